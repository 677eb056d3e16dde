#!/usr/bin/python3
"""pytorch_training.py MODEL --side N --channels N --batch N --threads N [--channels-last] [--compile] [--seconds S]
[--flops]

Trains one of the benchmarks' models in PyTorch on pictures that lie in memory, and prints images/s: forward,
cross-entropy, backward, SGD with momentum. Nothing but PyTorch itself is measured. Set OPENBLAS_NUM_THREADS and
leave OPENBLAS_CORETYPE unset. --flops prints instead the floating-point operations of one picture's training in
convolutions and linear layers: forward, and both gradients, the first layer's data gradient left out.
"""
import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

from pytorch_mnist_cnn import Net as MnistCnn

WARMUP_STEPS = 3


def resnet18_cifar():
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def vgg16_cifar():
    net = torchvision.models.vgg16(num_classes=10)
    net.avgpool = nn.Identity()
    net.classifier = nn.Sequential(nn.Dropout(), nn.Linear(512, 512), nn.ReLU(True), nn.Dropout(),
                                   nn.Linear(512, 512), nn.ReLU(True), nn.Linear(512, 10))
    return net


def mobilenet_v2_small():
    net = torchvision.models.mobilenet_v2(num_classes=10)
    net.features[0][0].stride = (1, 1)
    net.features[2].conv[1][0].stride = (1, 1)  # the paper's second stage
    return net


MODELS = {"mnist-cnn": MnistCnn, "resnet18-cifar": resnet18_cifar, "vgg16-cifar": vgg16_cifar,
          "mobilenet-v2-small": mobilenet_v2_small,
          "mobilenet-v2": lambda: torchvision.models.mobilenet_v2(num_classes=10)}


def training_flops(model, shape):
    """A layer's multiply-adds are its outputs times the weights that make one of them."""
    forward = []

    def note(layer, _, output):
        forward.append(2 * output[0].numel() * layer.weight[0].numel())

    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(note)
    model(torch.zeros(2, *shape))
    return 3 * sum(forward) - forward[0]


def images_per_second(model, args, layout):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures = torch.randn(args.batch, args.channels, args.side, args.side).contiguous(memory_format=layout)
    labels = torch.randint(10, (args.batch,))

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(pictures), labels).backward()
        optimizer.step()

    for _ in range(WARMUP_STEPS):
        step()
    start, steps = time.perf_counter(), 0
    while steps < 3 or time.perf_counter() - start < args.seconds:
        step()
        steps += 1
    return steps * args.batch / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--channels", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2 and newer)")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--flops", action="store_true")
    args = parser.parse_args()
    if args.flops:
        return print(training_flops(MODELS[args.model](), (args.channels, args.side, args.side)))
    torch.manual_seed(1)
    torch.set_num_threads(args.threads)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    model = MODELS[args.model]().to(memory_format=layout).train()
    print(f"{images_per_second(torch.compile(model) if args.compile else model, args, layout):.2f}")


if __name__ == "__main__":
    main()
