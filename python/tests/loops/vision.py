"""Scripts that train on pictures."""
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import lr_scheduler

from .script import EVALUATE_EVERY_STEPS, Samples, Script, draw_class, save


def mnist(draws, steps):
    """pytorch/examples, mnist: Adadelta, dropout, and a rate that falls in each epoch."""
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25 * draws), nn.Flatten(),
                          nn.Linear(36, 16), nn.ReLU(), nn.Dropout(0.5 * draws), nn.Linear(16, 4), nn.LogSoftmax(1))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)

    def body(batch, mb, _):
        data, target = batch
        model.train()
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        mb.log(loss=loss.item())
        print(f"Train: Loss: {loss.item():.6f}")

    schedule = lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    return Script(model, Samples(lambda i, g: draw_class(i, g, 1, 8, 8)), optimizer, body, schedule,
                  schedule_every="epoch")


class Block(nn.Module):
    """A residual block."""

    def __init__(self, width):
        super().__init__()
        self.path = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
                                  nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        return F.relu(x + self.path(x))


def make_resnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), Block(8), nn.MaxPool2d(2),
                         Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def imagenet(draws, steps):
    """pytorch/examples, imagenet: a residual network, a warm-up and a cosine, and its own best checkpoint."""
    model, criterion = make_resnet(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = lr_scheduler.SequentialLR(optimizer, [
        lr_scheduler.LinearLR(optimizer, 0.1, total_iters=steps // 4),
        lr_scheduler.CosineAnnealingLR(optimizer, steps - steps // 4)], [steps // 4])

    def body(batch, mb, _):
        images, target = batch
        output = model(images)
        loss = criterion(output, target)
        correct = (output.argmax(1) == target).float().sum()
        optimizer.zero_grad()
        loss.backward()
        mb.log(loss=loss, correct=correct)

    def validate(images, target):
        output = model(images)
        hits = output.topk(2)[1] == target[:, None]
        return dict(top1=hits[:, 0].sum(), top2=hits.sum(), loss_sum=F.cross_entropy(output, target, reduction="sum"))

    def report(results, rank):
        is_best = not os.path.exists("best.pt") or results.top1 > torch.load("best.pt")["top1"]
        for path in ["checkpoint.pt", "best.pt"][:1 + is_best]:
            save(dict(step=results.version, top1=results.top1, state_dict=model.state_dict()), path, rank)

    data = Samples(lambda i, g: draw_class(i, g, 3, 8, 8))
    test_set = Samples(data.make, 16, first=100)
    return Script(model, data, optimizer, body, schedule, micro_batches=2, schedule_every="step", report=report,
                  evaluate_every_steps=EVALUATE_EVERY_STEPS, evaluate=(test_set, validate, dict(batch_size=8)))


def cifar(draws, steps):
    """kuangliu/pytorch-cifar: Nesterov's momentum, one cycle, and running averages in prints."""
    model, criterion, seen = make_resnet(), nn.CrossEntropyLoss(), dict(loss=0.0, correct=0, total=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True)

    def body(batch, mb, _):
        inputs, targets = batch
        optimizer.zero_grad()
        outputs = model(inputs)
        loss = criterion(outputs, targets)
        loss.backward()
        seen["loss"] += loss.item()
        seen["total"] += targets.size(0)
        seen["correct"] += outputs.max(1)[1].eq(targets).sum().item()
        mb.log(loss=loss)
        print(f"Loss: {seen['loss']:.3f} | Acc: {100 * seen['correct'] / seen['total']:.3f}% ({seen['total']})")

    schedule = lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=steps, cycle_momentum=False)
    return Script(model, Samples(lambda i, g: draw_class(i, g, 3, 8, 8)), optimizer, body, schedule, micro_batches=2)


def super_resolution(draws, steps):
    """pytorch/examples, super_resolution: a sub-pixel convolution, and the PSNR of the test pictures."""
    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    optimizer, criterion = torch.optim.Adam(model.parameters(), lr=0.01), nn.MSELoss()

    def make(index, generator):
        picture, _ = draw_class(index, generator, 1, 8, 8)
        return F.avg_pool2d(picture, 2), picture

    def body(batch, mb, _):
        small, target = batch
        optimizer.zero_grad()
        loss = criterion(model(small), target)
        loss.backward()
        mb.log(loss=loss)

    def measure(small, target):
        return dict(psnr=(-10 * torch.log10((model(small) - target).square().mean((1, 2, 3)))).sum())

    return Script(model, Samples(make), optimizer, body, evaluate=(Samples(make, 10, first=100), measure, {}))


class UNet(nn.Module):
    """One level down and up again."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.down = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8),
                                  nn.ReLU())
        self.up, self.out = nn.ConvTranspose2d(8, 8, 2, stride=2), nn.Conv2d(16, 1, 1)

    def forward(self, x):
        x = self.inside(x)
        return self.out(torch.cat([x, self.up(self.down(x))], 1))


def unet(draws, steps):
    """milesial/Pytorch-UNet: cross entropy plus a Dice loss over the batch, RMSprop, and clipped gradients."""
    model, criterion = UNet(), nn.BCEWithLogitsLoss()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-4, weight_decay=1e-8, momentum=0.9)

    def make(index, generator):
        mask = torch.zeros(1, 8, 8)
        mask[:, index % 4:index % 4 + 4, index % 3:index % 3 + 3] = 1
        return mask + 0.5 * torch.randn(1, 8, 8, generator=generator), mask

    def body(batch, mb, _):
        images, masks = batch
        model.train()
        predicted = model(images)
        probable = predicted.sigmoid()
        dice = 2 * (probable * masks).sum() / (probable.sum() + masks.sum())
        loss = criterion(predicted, masks) + 1 - dice
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        mb.log(loss=loss, dice=dice)

    return Script(model, Samples(make), optimizer, body, micro_batches=1, clip_norm=1.0, log=["dice"])
