#!/usr/bin/env python3
"""timeline_cost.py [--rounds N] [--steps N] [--data FOLDER] [--dataset NAME] [--pando PROGRAM]

What --timeline costs in images/s: a run with it beside one without, and beside a second one without, which says how far
two equal runs differ. The MNIST CNN with 2 workers and 2 servers, and serially. Every round runs each variant once, in
an order that turns from round to round, so that a machine whose speed drifts is fair to all. Prints min, p50, p99, max,
and the ratios of the rounds. Figures need an idle machine; on a busy one the ratio of the medians over many rounds says
most.
"""
import argparse
import os
import statistics
import sys
import tempfile

from report import MNIST, PANDO, commit, cpu, heading, images_per_second, row

OFF, AGAIN, ON = "without", "without, again", "with --timeline"
VARIANTS = [OFF, ON, AGAIN]
MODES = {"2 workers, 2 servers": ["--workers", "2", "--servers", "2"], "serial": ["--serial"]}


def measure_one(args, flags, name, trace):
    timeline = ["--timeline", trace] if name == ON else []
    data = ["--data", args.data] if args.data else []
    return images_per_second(args.pando, [
        "--model", "mnist-cnn", "--dataset", args.dataset, *data, "--global-batch", "128", "--micro-batches", "8",
        "--steps", str(args.steps), "--optimizer", "adam", "--lr", "0.001", "--set", "eval.every_epochs=0",
        *flags, *timeline])


def turned(items, by):
    return items[by % len(items):] + items[:by % len(items)]


def measure(args, mode, flags):
    figures = {name: [] for name in VARIANTS}
    with tempfile.TemporaryDirectory() as folder:
        for done in range(args.rounds):
            for name in turned(VARIANTS, done):
                figures[name].append(measure_one(args, flags, name, os.path.join(folder, "trace.json")))
            print(f"{mode}: round {done + 1} of {args.rounds}", file=sys.stderr)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--data", default=MNIST, help="folder; empty: the data set has none")
    parser.add_argument("--pando", default=PANDO)
    args = parser.parse_args()
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, {args.steps} steps")
    for mode, flags in MODES.items():
        figures = measure(args, mode, flags)
        heading(f"{mode}: images/s")
        for name, values in figures.items():
            row(name, values)
        for over in (ON, AGAIN):
            row(f"{over} / {OFF}", [a / b for a, b in zip(figures[over], figures[OFF])])
            ratio = statistics.median(figures[over]) / statistics.median(figures[OFF])
            print(f"{over} / {OFF}, of the medians: {ratio:.4f}")


if __name__ == "__main__":
    main()
