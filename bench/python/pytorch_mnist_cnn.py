#!/usr/bin/python3
"""pytorch_mnist_cnn.py DATA_FOLDER [--channels-last] [--steps N]: PyTorch on the main job, images/s.

The MNIST CNN of tests/golden, batch 128, Adam: the training set lies in memory as a normalised tensor
and is indexed by a shuffled permutation, so nothing but PyTorch itself is measured. Debian's
python3-torch; set OMP_NUM_THREADS, OPENBLAS_NUM_THREADS and leave OPENBLAS_CORETYPE unset.
"""
import argparse
import gzip
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH = 128
WARMUP_STEPS = 20


class Net(nn.Module):
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
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return self.fc2(x)


def read_idx(path, offset):
    with gzip.open(path) as file:
        return torch.frombuffer(bytearray(file.read()[offset:]), dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=469)
    args = parser.parse_args()
    torch.manual_seed(1)
    images = read_idx(args.data + "/train-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28).float()
    images = (images / 255 - 0.1307) / 0.3081
    labels = read_idx(args.data + "/train-labels-idx1-ubyte.gz", 8).long()
    model = Net()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    order = torch.randperm(len(images))
    start = 0.0
    for step in range(WARMUP_STEPS + args.steps):
        if step == WARMUP_STEPS:
            start = time.perf_counter()
        at = step * BATCH % (len(images) - BATCH)
        index = order[at:at + BATCH]
        batch = images[index]
        if args.channels_last:
            batch = batch.contiguous(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(model(batch), labels[index]).backward()
        optimizer.step()
    print(f"{args.steps * BATCH / (time.perf_counter() - start):.0f}")


if __name__ == "__main__":
    main()
