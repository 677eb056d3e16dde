#!/usr/bin/env python3
"""compare_engines.py [--rounds N] [--seconds S] [--rows NAME ...] [--pando PROGRAM] [--torch-python PYTHON] [--compile]

Pando's CPU engine beside PyTorch, interleaved: training images/s of the papers' networks with one thread (one
micro-batch) and with two (two micro-batches). Every round runs each variant once, so that a machine whose speed
drifts is fair to all. PyTorch runs in its default layout and channels_last, with OPENBLAS_NUM_THREADS 1 and 2; the
variant with the best median counts. --compile adds torch.compile (PyTorch 2 and newer). Beside each: GFLOP/s, and the
share of the fused multiply-adds that the cores do at most, measured in the same rounds. Run it on an idle machine.
"""
import argparse
import json
import statistics
import subprocess
import sys

from report import ROOT, PANDO, commit, cpu, heading, images_per_second, row, torch_environment

DATA = ROOT.parent / "shared/data"
PANDO_BENCH = str(ROOT / "build/bench/cpp/pando-bench")
# model: data set, side of a picture, channels, global batch, the ratio to reach
ROWS = {"mnist-cnn": ("mnist", 28, 1, 128, 2.0),
        "resnet18-cifar": ("cifar10", 32, 3, 32, 1.15),
        "mobilenet-v2": ("cifar10", 64, 3, 32, 1.8),
        "vgg16-cifar": ("cifar10", 32, 3, 16, 1.15)}
FOLDERS = {"mnist": "mnist", "cifar10": "cifar-10-batches-bin"}
STEPS_MIN = 4


def pytorch_command(args, model, threads, *flags):
    _, side, channels, batch, _ = ROWS[model]
    return [args.torch_python, str(ROOT / "bench/python/pytorch_training.py"), model, "--side", str(side), "--channels",
            str(channels), "--batch", str(batch), "--threads", str(threads), "--seconds", str(args.seconds), *flags]


def pytorch(args, model, threads, blas_threads, flags):
    done = subprocess.run(pytorch_command(args, model, threads, *flags), env=torch_environment(threads, blas_threads),
                          check=True, capture_output=True, text=True)
    return float(done.stdout)


def pando(args, model, threads, steps):
    data, side, _, batch, _ = ROWS[model]
    flags = ["--serial", "--model", model, "--dataset", data, "--data", str(DATA / FOLDERS[data]), "--global-batch",
             str(batch), "--micro-batches", str(threads), "--threads", str(threads), "--steps", str(steps),
             "--optimizer", "sgd", "--lr", "0.01", "--set", "optimizer.momentum=0.9", "--set", "eval.every_epochs=0"]
    if data == "cifar10" and side != 32:
        flags += ["--set", f"data.resize={side}"]
    return images_per_second(args.pando, flags)


def fma_peak():
    """GFLOP/s of one core."""
    done = subprocess.run([PANDO_BENCH, "layers", "--model", "mlp", "--batch", "1"], input="fused multiply-adds\n",
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["rate"]


def torch_variants(args):
    variants = {}
    for name, flags in (("default", []), ("channels_last", ["--channels-last"])):
        for blas in (1, 2):
            variants[f"PyTorch {name}, {blas} BLAS"] = (blas, flags)
    if args.compile:
        variants["PyTorch compiled"] = (1, ["--compile"])
        variants["PyTorch compiled, channels_last"] = (1, ["--compile", "--channels-last"])
    return variants


def measure(args, model, threads):
    variants = torch_variants(args)
    figures = {name: [] for name in [*variants, "Pando"]}
    peaks, steps = [], STEPS_MIN
    for done in range(args.rounds):
        for name, (blas, flags) in variants.items():
            figures[name].append(pytorch(args, model, threads, blas, flags))
        if done == 0:  # as long a run as the others'
            steps = max(STEPS_MIN, round(args.seconds * max(figures[name][0] for name in variants) / ROWS[model][3]))
        figures["Pando"].append(pando(args, model, threads, steps))
        peaks.append(threads * fma_peak())
        print(f"{model}, {threads} threads: round {done + 1} of {args.rounds}", file=sys.stderr)
    return figures, peaks


def show(args, model, threads):
    figures, peaks = measure(args, model, threads)
    flops = float(subprocess.run(pytorch_command(args, model, threads, "--flops"), check=True, capture_output=True,
                                 text=True).stdout)
    _, side, _, batch, bar = ROWS[model]
    heading(f"{model} {side}x{side}, batch {batch}, {threads} threads")
    for name, values in figures.items():
        row(name, values)
    best = max(torch_variants(args), key=lambda name: statistics.median(figures[name]))
    row(f"ratio: Pando / {best} (bar {bar})", [a / b for a, b in zip(figures["Pando"], figures[best])])
    for name in ("Pando", best):
        row(f"GFLOP/s: {name}", [1e-9 * flops * value for value in figures[name]])
        row(f"of the peak: {name}", [1e-9 * flops * value / peak for value, peak in zip(figures[name], peaks)])
    print(flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5, help="of each run")
    parser.add_argument("--rows", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--pando", default=PANDO)
    parser.add_argument("--torch-python", default="/usr/bin/python3")
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    version = subprocess.run([args.torch_python, "-c", "import torch; print(torch.__version__)"], check=True,
                             capture_output=True, text=True).stdout.strip()
    print(f"commit {commit()}, {cpu()}, PyTorch {version}, {args.rounds} rounds interleaved, images/s")
    for model in args.rows:
        for threads in (1, 2):
            show(args, model, threads)


if __name__ == "__main__":
    main()
