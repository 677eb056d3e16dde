#!/usr/bin/env python3
"""pytorch_gpu.py [--seconds 2] [--models NAME,...]

PyTorch's images/s on this machine's GPU, of the networks and micro-batches of gpu_bench: forward and backward, no
optimizer; channels_last, bf16 autocast, TF32 where floats are left, cudnn.benchmark. Each eager, as one CUDA graph, and
by torch.compile. Exits with 77 where there is no GPU.
"""
import argparse
import sys
import time

try:
    import torch
    import torchvision
except ImportError as error:
    sys.exit(f"PyTorch and torchvision are needed: {error}")

SKIPPED = 77
ROWS = {"resnet50": 256, "vgg16": 128, "mobilenet_v2": 256, "resnet101": 64, "mnist-cnn": 128}


class MnistCnn(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 10, 5)
        self.conv2 = torch.nn.Conv2d(10, 20, 5)
        self.drop = torch.nn.Dropout2d()
        self.fc1 = torch.nn.Linear(320, 50)
        self.fc2 = torch.nn.Linear(50, 10)

    def forward(self, x):
        f = torch.nn.functional
        x = f.relu(f.max_pool2d(self.conv1(x), 2))
        x = f.relu(f.max_pool2d(self.drop(self.conv2(x)), 2))
        x = f.dropout(f.relu(self.fc1(x.flatten(1))), training=self.training)
        return self.fc2(x)


def make(name):
    if name == "mnist-cnn":
        return MnistCnn(), (1, 28, 28), 10
    return getattr(torchvision.models, name)(), (3, 224, 224), 1000


def images_per_second(step, batch, seconds):
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(5):
            step()
        torch.cuda.synchronize()
        count += 5
    return count * batch / (time.perf_counter() - start)


def eager_step(model, x, labels):
    def step():
        for p in model.parameters():
            p.grad = None
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), labels, reduction="sum")
        loss.backward()
    return step


def graphed_step(model, x, labels):
    step = eager_step(model, x, labels)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    for p in model.parameters():
        p.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), labels, reduction="sum")
        loss.backward()
    return graph.replay


def run(name, batch, seconds):
    model, shape, classes = make(name)
    model = model.cuda().to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, *shape, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device="cuda")
    ways = {"eager": lambda: eager_step(model, x, labels),
            "graphed": lambda: graphed_step(model, x, labels),
            "compiled": lambda: eager_step(torch.compile(model), x, labels)}
    for way, make_step in ways.items():
        try:
            print(f"{name:14} {way:9} {images_per_second(make_step(), batch, seconds):10.0f} images/s, {batch} a step",
                  flush=True)
        except Exception as error:  # what one way cannot do, the others may
            print(f"{name:14} {way:9} failed: {str(error).splitlines()[0]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--models", default=",".join(ROWS))
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU here")
        sys.exit(SKIPPED)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    for name in args.models.split(","):
        if name not in ROWS:
            sys.exit(f"no such model: {name}; there are {', '.join(ROWS)}")
        run(name, ROWS[name], args.seconds)


if __name__ == "__main__":
    main()
