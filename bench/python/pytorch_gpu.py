#!/usr/bin/env python3
"""pytorch_gpu.py [--seconds 2] [--models NAME,...] [--precision bf16|tf32] [--train]

PyTorch's images/s on this machine's GPU, of the networks and micro-batches of gpu_bench: forward and backward;
channels_last, bf16 autocast or floats with TF32, cudnn.benchmark. Each eager, as one CUDA graph, and by torch.compile.
With --train as `pando train` does it, eager and compiled: pictures come as bytes from pinned memory while the step
before computes, are normalised on the GPU, and SGD with momentum makes the new weights. Exits with 77 where there is
no GPU.
"""
import argparse
import sys
import time

try:
    import torch
    import torchvision
except ImportError as error:
    sys.exit(f"PyTorch and torchvision are needed: {error}")

from pytorch_mnist_cnn import Net as MnistCnn  # noqa: E402

SKIPPED = 77
ROWS = {"resnet50": 256, "vgg16": 128, "mobilenet_v2": 256, "resnet101": 64, "mnist-cnn": 128}


def make_network(name):
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


def autocast(precision):
    return torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16")


def pass_over(model, x, labels, precision):
    with autocast(precision):
        loss = torch.nn.functional.cross_entropy(model(x), labels, reduction="sum")
    loss.backward()


def eager_step(model, x, labels, precision):
    def step():
        for p in model.parameters():
            p.grad = None
        pass_over(model, x, labels, precision)
    return step


def graphed_step(model, x, labels, precision):
    step = eager_step(model, x, labels, precision)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    for p in model.parameters():
        p.grad = None
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pass_over(model, x, labels, precision)
    return graph.replay


def training_step(model, x, labels, precision):
    host = torch.randint(256, x.shape, dtype=torch.uint8).to(memory_format=torch.channels_last).pin_memory()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9, fused=True)
    copies = torch.cuda.Stream()
    coming = []

    def bring():
        with torch.cuda.stream(copies):
            coming.append(host.cuda(non_blocking=True))

    def step():
        torch.cuda.current_stream().wait_stream(copies)
        pictures = coming.pop()
        pictures.record_stream(torch.cuda.current_stream())
        bring()
        optimizer.zero_grad(set_to_none=True)
        pass_over(model, (pictures.float() / 255 - 0.45) / 0.225, labels, precision)
        optimizer.step()
    bring()
    return step


def run(name, batch, args):
    model, shape, classes = make_network(name)
    model = model.cuda().to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, *shape, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(classes, (batch,), device="cuda")
    make = training_step if args.train else eager_step
    ways = {"eager": lambda: make(model, x, labels, args.precision),
            "graphed": lambda: graphed_step(model, x, labels, args.precision),
            "compiled": lambda: make(torch.compile(model), x, labels, args.precision)}
    if args.train:
        del ways["graphed"]
    for way, make_step in ways.items():
        try:
            rate = images_per_second(make_step(), batch, args.seconds)
            print(f"{name:14} {way:9} {rate:10.0f} images/s, {batch} a step", flush=True)
        except Exception as error:  # other ways may still work
            print(f"{name:14} {way:9} failed: {str(error).splitlines()[0]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--models", default=",".join(ROWS))
    parser.add_argument("--precision", choices=["bf16", "tf32"], default="bf16")
    parser.add_argument("--train", action="store_true")
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
        run(name, ROWS[name], args)


if __name__ == "__main__":
    main()
