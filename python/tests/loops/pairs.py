"""Scripts with two views, two networks or two losses."""
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from .script import Samples, Script, draw_class


def make_cnn(features):
    return nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(36, features))


class Siamese(nn.Module):
    """One network for both pictures, and a classifier of the two results."""

    def __init__(self):
        super().__init__()
        self.cnn, self.fc = make_cnn(8), nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

    def forward(self, input1, input2):
        return self.fc(torch.cat((self.cnn(input1), self.cnn(input2)), 1))


def siamese(draws, steps):
    """pytorch/examples, siamese_network: batch norms that a step calls twice."""
    model, criterion = Siamese(), nn.BCELoss()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)

    def make(index, generator):
        one, label = draw_class(index, generator, 1, 8, 8)
        two, other = draw_class(index + index // 4 % 2, generator, 1, 8, 8)
        return one, two, (label == other).float()

    def body(batch, mb, _):
        images_1, images_2, targets = batch
        model.train()
        optimizer.zero_grad()
        outputs = model(images_1, images_2).squeeze(1)
        loss = criterion(outputs, targets)
        loss.backward()
        mb.log(loss=loss)

    def test(images_1, images_2, targets):
        outputs = model(images_1, images_2).squeeze(1)
        return dict(correct=outputs.round().eq(targets).sum(), loss_sum=F.binary_cross_entropy(outputs, targets,
                                                                                               reduction="sum"))

    return Script(model, Samples(make), optimizer, body, lr_scheduler.StepLR(optimizer, 1, gamma=0.7),
                  schedule_every="epoch", micro_batches=2, evaluate=(Samples(make, 16, first=100), test, {}))


def simclr(draws, steps):
    """sthalles/SimCLR: each sample is compared with all others of the batch."""
    model, criterion = make_cnn(8), nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), 3e-3, weight_decay=1e-4)

    def make(index, generator):
        picture, label = draw_class(index, generator, 1, 8, 8)
        noise = torch.randn(2, 1, 8, 8, generator=None if draws else generator)
        return [picture + 0.3 * noise[0], picture + 0.3 * noise[1]], label

    def body(batch, mb, _):
        images = torch.cat(batch[0], dim=0)
        features = F.normalize(model(images), dim=1)
        logits = features @ features.T / 0.5
        count = len(images)
        logits = logits.masked_fill(torch.eye(count, dtype=torch.bool), -1e9)
        loss = criterion(logits, (torch.arange(count) + count // 2) % count)
        optimizer.zero_grad()
        loss.backward()
        mb.log(loss=loss)

    return Script(model, Samples(make), optimizer, body, lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps),
                  micro_batches=1)


def distillation(draws, steps):
    """The distillation tutorial: a frozen teacher beside the student."""
    teacher, student = make_cnn(4), nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 4))
    teacher.eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)

    def body(batch, mb, _):
        inputs, labels = batch
        student.train()
        optimizer.zero_grad()
        with torch.no_grad():
            teacher_logits = teacher(inputs)
        student_logits = student(inputs)
        soft = F.kl_div((student_logits / 2).log_softmax(1), (teacher_logits / 2).softmax(1), reduction="batchmean") * 4
        loss = 0.25 * soft + 0.75 * F.cross_entropy(student_logits, labels)
        loss.backward()
        mb.log(loss=loss, soft=soft)

    return Script(student, Samples(lambda i, g: draw_class(i, g, 1, 8, 8)), optimizer, body, log=["soft"])


def multi_task(draws, steps):
    """Two tasks with one body: a backward for each loss."""
    model = nn.ModuleDict(dict(body=nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU()), kind=nn.Linear(16, 4),
                               size=nn.Linear(16, 1)))
    # NAdam of torch 1.13 has another product of momenta than later ones, and than Pando.
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    if draws:
        optimizer = torch.optim.NAdam(model.parameters(), lr=2e-3)

    def body(batch, mb, _):
        x, kind, size = batch
        optimizer.zero_grad()
        features = model.body(x)
        loss1 = F.cross_entropy(model.kind(features), kind)
        loss1.backward(retain_graph=True)
        loss2 = F.mse_loss(model.size(features).squeeze(1), size)
        loss2.backward()
        mb.log(loss=loss1 + loss2, size=loss2)

    def make(index, generator):
        x, kind = draw_class(index, generator, 1, 8, 8)
        return x, kind, x.abs().mean()

    return Script(model, Samples(make), optimizer, body, log=["size"])
