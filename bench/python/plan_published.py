#!/usr/bin/env python3
"""plan_published.py [--latency-us X] [--pando PROGRAM]

Scaling efficiencies that Horovod published beside what `pando plan` predicts for the same machines: Pascal GPUs, 4 to
a host, 25 Gbit/s (RoCE) between hosts, batch 64 per GPU (docs/benchmarks.rst of horovod/horovod, and its earlier
edition for 128 GPUs; Sergeev and Del Balso, arXiv:1802.05799).

One GPU's own speed was not published, so it is assumed. Images/s of a P100 in tf_cnn_benchmarks, the program that
Horovod measured, batch 64, synthetic data, are TensorFlow's (tensorflow/docs_src/performance/benchmarks.md, May 2017):
Inception V3 142, VGG-16 154, ResNet-50 219, ResNet-152 91.8. ResNet-101 stands half-way between the last two in
FLOPs, and so in time per image: 129. Tensor fusion is 64 MiB, Horovod's default. Nothing is fitted.

The last column is the bandwidth at which the prediction would equal the published value: the part of a host's 25
Gbit/s that was used, if nothing else cost anything.
"""
import json
import subprocess

from report import PANDO, commit, make_parser

RESNET_101 = 2 / (1 / 219 + 1 / 91.8)
INCEPTION_V3_PARAMETERS = 23_834_568  # without the auxiliary classifier; the zoo has no such model
POINTS = [  # name, the model's flags, a GPU's images/s, GPUs, published efficiency in percent
    ("ResNet-101", ["--model", "resnet101"], RESNET_101, 128, 90),
    ("Inception V3", ["--parameters", str(INCEPTION_V3_PARAMETERS)], 142, 128, 90),
    ("VGG-16", ["--model", "vgg16"], 154, 128, 79),
    ("ResNet-101", ["--model", "resnet101"], RESNET_101, 512, 90),
    ("Inception V3", ["--parameters", str(INCEPTION_V3_PARAMETERS)], 142, 512, 90),
    ("VGG-16", ["--model", "vgg16"], 154, 512, 68)]
LINE_GBIT = 25
BISECTIONS = 30


def plan(args, point, gbit):
    _, model, images_per_second, gpus, _ = point
    done = subprocess.run([
        args.pando, "plan", *model, "--batch", "64", "--images-per-second", f"{images_per_second:.1f}", "--workers",
        str(gpus), "--workers-per-host", "4", "--host-sum", "--servers", str(gpus // 4), "--replicas", "1",
        "--bandwidth", f"{gbit}Gbit", "--no-costs", "--latency-us",
        str(args.latency_us), "--bucket-cap-mb", "64", "--json"],
        check=True, capture_output=True, text=True)
    return {p["strategy"]: 100 * p["efficiency"] for p in json.loads(done.stdout)["predictions"]}


def gbit_that_explains(args, point):
    """Returns the bandwidth whose prediction for allreduce equals the published value."""
    low, high = 0.1, LINE_GBIT
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if plan(args, point, middle)["allreduce"] < point[-1]:
            low = middle
        else:
            high = middle
    return high


def main():
    args = make_parser(__doc__, latency_us=10.0, pando=PANDO).parse_args()
    print(f"commit {commit()}, {LINE_GBIT} Gbit/s, latency {args.latency_us:g} us (assumed)\n")
    print("| | GPUs | images/s of one, assumed | published | predicted: allreduce | servers on the workers' hosts "
          "| as many servers on separate hosts | Gbit/s that would explain it |")
    print("|---|---|---|---|---|---|---|---|")
    for point in POINTS:
        name, _, images_per_second, gpus, published = point
        predicted = plan(args, point, LINE_GBIT)
        print(f"| {name} | {gpus} | {images_per_second:.0f} | {published} % | {predicted['allreduce']:.0f} % "
              f"| {predicted['ps-worker-hosts']:.0f} % | {predicted['ps-own-hosts']:.0f} % "
              f"| {gbit_that_explains(args, point):.1f} |")


if __name__ == "__main__":
    main()
