#!/usr/bin/env python3
"""Makes torchvision.txt: the tensors of torchvision's models, and how they are initialised.

Run: /usr/bin/python3 tests/golden/make_torchvision.py   (Debian's python3-torch and python3-torchvision;
made with 1.13.0 and 0.14.1)

Lines, fields separated by blanks:
  model NAME CLASSES PARAMETERS       begins a model; NAME is pando's
  NAME SHAPE MEAN STDDEV LARGEST      one tensor, in the order of state_dict(); SHAPE as 64x3x7x7;
                                      statistics of version 0, LARGEST of the absolute values
num_batches_tracked is left out: it counts steps and takes no part in the arithmetic.
"""
import pathlib

import torch
import torchvision

NAMES = {"vgg16": "vgg16", "vgg16-bn": "vgg16_bn", "resnet18": "resnet18", "resnet34": "resnet34",
         "resnet50": "resnet50", "resnet101": "resnet101", "mobilenet-v2": "mobilenet_v2"}
CLASS_COUNT = 1000
STATISTICS_MAX = 65536  # elements that statistics are taken of, the first ones


def tensor_line(name, tensor):
    x = tensor.detach().double().flatten()[:STATISTICS_MAX]
    shape = "x".join(str(d) for d in tensor.shape)
    deviation = x.std(unbiased=False).item()
    return f"{name} {shape} {x.mean().item():.4g} {deviation:.4g} {x.abs().max().item():.4g}"


def main():
    torch.manual_seed(1)
    lines = []
    for name, torchvision_name in NAMES.items():
        model = getattr(torchvision.models, torchvision_name)(weights=None, num_classes=CLASS_COUNT)
        count = sum(p.numel() for p in model.parameters())
        lines.append(f"model {name} {CLASS_COUNT} {count}")
        lines += [tensor_line(key, value) for key, value in model.state_dict().items()
                  if not key.endswith("num_batches_tracked")]
    path = pathlib.Path(__file__).with_name("torchvision.txt")
    path.write_text("\n".join(lines) + "\n")


main()
