"""The papers' experiments, scaled to this machine: workloads, numbers of workers, and the scale of each."""
from dataclasses import dataclass, replace
from pathlib import Path
import sys
from typing import List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "peers"))
from workloads import MNIST_CNN, Workload  # noqa: E402

CLASSES = 100
CIFAR_ROW = 3073  # a label and a picture
SIDE = 32


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    scaled: str
    cases: List[Tuple[Workload, int]]  # workload and number of workers


MNIST_RESNET50 = Workload(name="mnist-resnet50", title="MNIST, ResNet-50", model="resnet50-cifar", dataset="mnist",
                          channels=3, side=SIDE, batch=32, steps=30, test_limit=500, warm_up=4)
FASHION_MOBILENET = Workload(name="fashion-mobilenet", title="Fashion-MNIST, MobileNetV2", model="mobilenet-v2-small",
                             dataset="fashion-mnist", channels=3, side=SIDE, batch=32, steps=80, test_limit=2000,
                             warm_up=8)
VGG16 = Workload(name="vgg16", title="VGG-16, 100 classes, Adam", model="vgg16", dataset="cifar100", classes=CLASSES,
                 channels=3, batch=64, steps=16, lr=0.0001, test_limit=500, warm_up=3)
ELASTIC = replace(MNIST_CNN, name="mnist-cnn-elastic", title="the MNIST CNN, batch 128 over two workers", batch=64,
                  kill_at=0)
CIFAR_CNN = Workload(name="cifar-cnn", title="the CIFAR CNN", model="cifar-cnn", dataset="cifar10", channels=3, batch=8,
                     steps=9375, beta1=0.8, beta2=0.999, weight_decay=3e-7, clip_norm=1.0, warm_up=100)
RESNET101 = Workload(name="resnet101", title="ResNet-101, 4 activation checkpoints", model="resnet101-cifar",
                     dataset="cifar10", channels=3, batch=8, steps=10, optimizer="sgd", lr=0.01, momentum=0.9,
                     test_limit=80, checkpoints=4, warm_up=2, memory_kinds=True)

SMALL_PICTURES = Experiment(
    "small-pictures", "MNIST with ResNet-50, Fashion-MNIST with MobileNetV2, batch 32 per worker, 1 and 2 workers",
    "pictures of 32 x 32 instead of 224 x 224 (49 times fewer pixels), so the networks have their stems and strides "
    "for small pictures; 30 and 80 steps instead of epochs of 1,875",
    [(workload, workers) for workload in (MNIST_RESNET50, FASHION_MOBILENET) for workers in (1, 2)])
VGG = Experiment(
    "vgg16", "VGG-16 with 100 classes, Adam, 64 per worker, weak scaling",
    "pictures of 32 x 32 instead of 224 x 224 (49 times fewer pixels; the 134.7 million parameters are all there), 16 "
    "steps; CIFAR-10's pictures, the class ten times theirs plus the picture's number modulo 10, as there is no set of "
    "100 classes at hand: accuracy means nothing",
    [(VGG16, workers) for workers in (1, 2)])
ELASTICITY = Experiment(
    "elastic", "The MNIST CNN, batch 128, 30 epochs: workers that join and leave against a fixed number",
    "one worker joins one after a third of the run, and loses it after two thirds: 2 workers at most", [(ELASTIC, 2)])
CIFAR = Experiment(
    "cifar-cnn",
    "The CIFAR CNN, Adam with betas 0.8 and 0.999, weight decay 3e-7, gradients clipped at norm 1, batch 16",
    "3 epochs instead of 30; two workers of 8 samples each", [(CIFAR_CNN, 2)])
RESNET = Experiment(
    "resnet101", "ResNet-101 with 4 activation checkpoints, 1, 2 and 4 workers: time, and memory by kind",
    "pictures of 32 x 32 with a stem for small pictures instead of 224 x 224 (49 times fewer pixels), batch 8 per "
    "worker, 10 steps; 4 workers share 2 cores. Pando chooses the checkpoints itself; the peers keep what enters each "
    "of the four stages",
    [(RESNET101, workers) for workers in (1, 2, 4)])

EXPERIMENTS = {e.name: e for e in (SMALL_PICTURES, VGG, ELASTICITY, CIFAR, RESNET)}
QUICK_STEPS = {"mnist-resnet50": 5, "fashion-mobilenet": 8, "vgg16": 4, "mnist-cnn-elastic": 300, "cifar-cnn": 200,
               "resnet101": 3}


def write_hundred_classes(cifar10: Path, folder: Path) -> Path:
    """Writes CIFAR-10's pictures in CIFAR-100's files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, parts in (("train.bin", [f"data_batch_{i}.bin" for i in range(1, 6)]), ("test.bin", ["test_batch.bin"])):
        content = b"".join((cifar10 / part).read_bytes() for part in parts)
        with open(folder / name, "wb") as out:
            for number in range(len(content) // CIFAR_ROW):
                row = content[number * CIFAR_ROW:(number + 1) * CIFAR_ROW]
                out.write(bytes([row[0], row[0] * 10 + number % 10]) + row[1:])
    (folder / "fine_label_names.txt").write_text("".join(f"class {i}\n" for i in range(CLASSES)))
    return folder
