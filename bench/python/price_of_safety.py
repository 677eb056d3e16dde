#!/usr/bin/env python3
"""price_of_safety.py [--rounds N] [--steps N] [--mlp-steps N] [--data FOLDER] [--pando PROGRAM]

What replicas and snapshots cost in images/s: replicas 2 beside 1, snapshots every 50 steps beside none, for the MNIST
CNN and for an MLP of 25 million parameters. Two workers, two servers. Every round runs each variant once, in an order
that turns from round to round, so that a machine whose speed drifts is fair to all. Prints min, p50, p99, max, and the
ratios of the rounds. Run it on an idle machine.
"""
import argparse
import sys

from report import MNIST, PANDO, commit, cpu, heading, images_per_second, row

# 784 x 5120 + 5120 x 4096 + 4096 x 10 weights and their biases: 25,035,786.
MODELS = {"CNN": ["--model", "mnist-cnn", "--global-batch", "128"],
          "MLP": ["--model", "mlp", "--set", "model.hidden=[5120, 4096]", "--global-batch", "256"]}
PLAIN = ("1 replica", ["--replicas", "1", "--snapshot-every", "0"])
REPLICAS = ("2 replicas", ["--replicas", "2", "--snapshot-every", "0"])
SNAPSHOTS = ("1 replica, snapshots", ["--replicas", "1", "--snapshot-every", "50"])
BOTH = ("2 replicas, snapshots", ["--replicas", "2", "--snapshot-every", "50"])
RATIOS = [(REPLICAS, PLAIN), (SNAPSHOTS, PLAIN), (BOTH, REPLICAS)]


def measure_one(args, model, steps, flags):
    return images_per_second(args.pando, [
        *MODELS[model], "--dataset", "mnist", "--data", args.data, "--steps", str(steps), "--micro-batches", "8",
        "--optimizer", "adam", "--lr", "0.001", "--set", "eval.every_epochs=0", "--workers", "2", "--servers", "2",
        *flags])


def turned(items, by):
    return items[by % len(items):] + items[:by % len(items)]


def measure(args, variants, model, steps):
    figures = {name: [] for name, _ in variants}
    for done in range(args.rounds):
        for name, flags in turned(variants, done):
            figures[name].append(measure_one(args, model, steps, flags))
        print(f"{model}: round {done + 1} of {args.rounds}", file=sys.stderr)
    return figures


def main(description, variants, ratios):
    """Measures `variants` (name, flags) and prints the ratios of the pairs in `ratios`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--mlp-steps", type=int, default=100)
    parser.add_argument("--data", default=MNIST)
    parser.add_argument("--pando", default=PANDO)
    args = parser.parse_args()
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, 2 workers, 2 servers")
    for model, steps in (("CNN", args.steps), ("MLP", args.mlp_steps)):
        figures = measure(args, variants, model, steps)
        heading(f"{model}, {steps} steps: images/s")
        for name, values in figures.items():
            row(name, values)
        for over, under in ratios:
            row(f"{over[0]} / {under[0]}", [a / b for a, b in zip(figures[over[0]], figures[under[0]])])


if __name__ == "__main__":
    main(__doc__, [PLAIN, REPLICAS, SNAPSHOTS, BOTH], RATIOS)
