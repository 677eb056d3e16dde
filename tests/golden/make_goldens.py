#!/usr/bin/env python3
"""Makes models.bin: losses and parameter gradients of the zoo's models as PyTorch computes them.

Run: /usr/bin/python3 tests/golden/make_goldens.py   (Debian's python3-torch; made with 1.13.0)

Parameters, pictures and labels come from a formula that tests/models/golden_test.cc repeats, so that
only results are stored. PyTorch computes in double precision, dropout off (model.eval()), batch norm
with the batch's statistics; these, times the samples, stand for the gradients of the running ones.

models.bin, little-endian; a string is u32 length + bytes:
  u32 model count, then per model:
    string name; f64 loss summed over samples; u32 correct count; u32 tensor count, then per tensor:
      string name; u32 element count; f32 scale; i16 elements: gradient / scale, rounded
"""
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

SAMPLE_COUNT = 17  # not a multiple of any vector's lanes


class MnistCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, 5)
        self.conv2 = nn.Conv2d(10, 20, 5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(F.dropout(x, training=self.training))


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc3(F.relu(self.fc2(x)))


class ResidualNet(nn.Module):
    """residual.toml"""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, stride=2, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8, eps=1e-3)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.conv3 = nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(16)
        self.conv4 = nn.Conv2d(16, 16, 3, padding=1, bias=False)
        self.bn4 = nn.BatchNorm2d(16)
        self.down = nn.Conv2d(8, 16, 1, stride=2, bias=False)
        self.down_bn = nn.BatchNorm2d(16)
        self.conv5 = nn.Conv2d(16, 32, 1, bias=False)
        self.bn5 = nn.BatchNorm2d(32)
        self.conv6 = nn.Conv2d(32, 32, 3, padding=1, groups=32, bias=False)
        self.bn6 = nn.BatchNorm2d(32)
        self.conv7 = nn.Conv2d(32, 16, 1, bias=False)
        self.bn7 = nn.BatchNorm2d(16)
        self.fc1 = nn.Linear(16, 20, bias=False)
        self.fc2 = nn.Linear(20, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(x, 3, stride=2, padding=1)
        x = F.relu(self.bn2(self.conv2(x)) + x)
        trunk = self.bn4(self.conv4(F.relu(self.bn3(self.conv3(x)))))
        x = F.relu(trunk + self.down_bn(self.down(x)))
        wide = F.relu6(self.bn5(self.conv5(x)))
        wide = F.relu6(self.bn6(self.conv6(wide)))
        x = F.relu6(self.bn7(self.conv7(wide)) + x + x)
        x = F.avg_pool2d(F.adaptive_avg_pool2d(x, 3), 2, stride=1)
        x = F.relu(self.fc1(x.mean((2, 3))))
        return self.fc2(x)


def noise(count, seed):
    """Integers in [0, 2^24): the upper bits of an integer hash (murmur3's finalizer)."""
    h = np.arange(count, dtype=np.uint32) * np.uint32(0x9E3779B9) + np.uint32(seed)
    h ^= h >> 16
    h *= np.uint32(0x85EBCA6B)
    h ^= h >> 13
    h *= np.uint32(0xC2B2AE35)
    h ^= h >> 16
    return h >> 8


def batch_norms(model):
    return [(name, m) for name, m in model.named_modules() if isinstance(m, nn.BatchNorm2d)]


def tensors_of(model):
    """As the layout has them: parameters and running statistics."""
    state = model.state_dict(keep_vars=True).items()
    return [(name, tensor) for name, tensor in state if not name.endswith("num_batches_tracked")]


def fill_parameters(model):
    norm_weights = {name + ".weight" for name, _ in batch_norms(model)}
    for seed, (name, tensor) in enumerate(tensors_of(model)):
        weight = noise(tensor.numel(), 1000 + seed).astype(np.float64) / 2**23 - 1
        bound = 0.25 if tensor.dim() > 2 else 0.125  # near PyTorch's own for these layers
        center = 1 if name in norm_weights else 0
        tensor.data = torch.from_numpy(center + weight * bound).reshape(tensor.shape)


def samples():
    pixels = noise(SAMPLE_COUNT * 784, 7) >> 16
    x = torch.from_numpy(pixels.astype(np.float64)).reshape(SAMPLE_COUNT, 1, 28, 28)
    labels = torch.arange(SAMPLE_COUNT) * 7 % 10
    return (x / 255 - 0.1307) / 0.3081, labels


def pack_string(text):
    return struct.pack("<I", len(text)) + text.encode()


def pack_model(name, model):
    fill_parameters(model)
    model.eval()
    for _, norm in batch_norms(model):
        norm.train()
        norm.momentum = 1  # running statistics become the batch's
    x, labels = samples()
    scores = model(x)
    loss = F.cross_entropy(scores, labels, reduction="sum")
    loss.backward()
    correct = int((scores.argmax(1) == labels).sum())
    tensors = tensors_of(model)
    out = pack_string(name) + struct.pack("<dII", loss.item(), correct, len(tensors))
    for tensor_name, tensor in tensors:
        is_statistic = "running_" in tensor_name
        gradient = (tensor * SAMPLE_COUNT if is_statistic else tensor.grad).numpy().ravel()
        scale = np.float32(np.abs(gradient).max() / 32767)
        out += pack_string(tensor_name) + struct.pack("<If", gradient.size, scale)
        out += np.rint(gradient / scale).clip(-32767, 32767).astype("<i2").tobytes()
    return out


def main():
    models = [("mnist-cnn", MnistCnn()), ("lenet5", LeNet5()), ("residual.toml", ResidualNet())]
    out = struct.pack("<I", len(models)) + b"".join(pack_model(*m) for m in models)
    path = pathlib.Path(__file__).with_name("models.bin")
    path.write_bytes(out)
    print(f"{path}: {len(out)} bytes")


if __name__ == "__main__":
    main()
