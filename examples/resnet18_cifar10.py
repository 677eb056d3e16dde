"""ResNet-18 on CIFAR-10: pando run --workers 4 --servers 2 examples/resnet18_cifar10.py --data FOLDER

FOLDER has the binary files of https://www.cs.toronto.edu/~kriz/cifar.html, or of `pando data fetch cifar10`.
"""
import argparse
from pathlib import Path

import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision import transforms

import pando_train as pando

parser = argparse.ArgumentParser()
parser.add_argument("--data", default="data/cifar-10-batches-bin")
parser.add_argument("--epochs", type=float, default=30)
parser.add_argument("--batch", type=int, default=128)
parser.add_argument("--loader-workers", type=int, default=2)
parser.add_argument("--out", default="resnet18.safetensors")
args = parser.parse_args()


class Cifar10(torch.utils.data.Dataset):
    """Pictures [3, 32, 32] and their classes. A record is the class and the picture, in bytes."""

    def __init__(self, pattern, augment):
        data = b"".join(path.read_bytes() for path in sorted(Path(args.data).glob(pattern)))
        self.records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 1 + 3 * 32 * 32)
        self.transform = transforms.Compose(augment + [transforms.Normalize((0.491, 0.482, 0.447), (0.25, 0.24, 0.26))])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return self.transform(self.records[index, 1:].view(3, 32, 32) / 255), int(self.records[index, 0])


pando.seed(1)
augment = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
model = torchvision.models.resnet18(num_classes=10)
model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)  # for pictures of 32 x 32 pixels
model.maxpool = nn.Identity()

run = pando.join(model, Cifar10("data_batch_*", augment), pando.SGD(lr=0.1, momentum=0.9, weight_decay=5e-4),
                 schedule=pando.OneCycle(), epochs=args.epochs, global_batch=args.batch, drop_last=True)
run.evaluate_with(Cifar10("test_batch*", []), lambda x, y: dict(
    correct=(model(x).argmax(1) == y).sum(), loss_sum=F.cross_entropy(model(x), y, reduction="sum")))
for x, y in run.loader(num_workers=args.loader_workers):
    with run.micro_batch() as mb:
        output = model(x)
        loss = F.cross_entropy(output, y)
        loss.backward()
        mb.log(loss=loss, correct=(output.argmax(1) == y).sum())
run.save(args.out)
