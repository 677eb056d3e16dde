#!/usr/bin/env python3
"""memory.py [--model NAME] [--batch N] [--steps N] [--rounds N] [--data FOLDER] [--pando PROGRAM]

What activation checkpointing saves and costs: peak resident memory and training images/s of a model with and without
it, interleaved, one thread, and whether the weights are the same. Images/s need an idle machine.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

from report import PANDO, ROOT, commit, cpu, heading, row

VARIANTS = {"plain": [], "checkpointing": ["--set", "train.activation_checkpointing=true"]}
MIB = 1 << 20


def planned(args, flags):
    """What the plan of one computing thread allocates for activations, as `pando model` says it."""
    done = subprocess.run([args.pando, "model", args.model, "--batch", str(args.batch), *flags], check=True,
                          capture_output=True, text=True)
    return " ".join(re.search(r"^ *activations +(\S+) (\S+)", done.stdout, re.MULTILINE).groups())


def train(args, flags):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [args.pando, "train", "--serial", "--json", "--run-dir", f"{folder}/run", "--model", args.model,
             "--dataset",
             "cifar10", "--data", args.data, "--steps", str(args.steps), "--global-batch", str(args.batch),
             "--micro-batches", "1", "--set", "eval.every_epochs=0", "--set", "data.test_limit=64", *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"a run failed: {' '.join(process.args)}")
        return json.loads(text), usage.ru_maxrss * 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50-cifar")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/cifar-10-batches-bin"))
    parser.add_argument("--pando", default=PANDO)
    args = parser.parse_args()
    print(f"commit {commit()}, {cpu()}, {args.model}, micro-batches of {args.batch}, {args.rounds} rounds interleaved")
    speeds = {name: [] for name in VARIANTS}
    peaks, hashes = {}, set()
    for _ in range(args.rounds):
        for name, flags in VARIANTS.items():
            summary, peaks[name] = train(args, flags)
            speeds[name].append(summary["images_per_second"])
            hashes.add(summary["weights_hash"])
    heading("images/s")
    for name, values in speeds.items():
        row(name, values)
    row("time: checkpointing / plain", [a / b for a, b in zip(speeds["plain"], speeds["checkpointing"])])
    print(f"peak resident memory: plain {peaks['plain'] / MIB:.0f} MiB, checkpointing "
          f"{peaks['checkpointing'] / MIB:.0f} MiB: {(peaks['plain'] - peaks['checkpointing']) / MIB:.0f} MiB less")
    print("planned activations: " + ", ".join(f"{name} {planned(args, flags)}" for name, flags in VARIANTS.items()))
    print("weights: " + ("the same" if len(hashes) == 1 else "DIFFERENT"))


if __name__ == "__main__":
    main()
