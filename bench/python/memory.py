#!/usr/bin/env python3
"""memory.py [--model NAME] [--batch N] [--steps N] [--rounds N] [--data FOLDER] [--pando PROGRAM]

Measures what activation checkpointing saves and costs: peak resident memory and training images/s of a model with and
without it, interleaved, one thread, and whether the weights are the same. Images/s need an idle machine.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from report import PANDO, ROOT, commit, cpu, heading, in_turns, make_parser, row

VARIANTS = {"plain": [], "checkpointing": ["--set", "train.activation_checkpointing=true"]}
MIB = 1 << 20


def planned(args, words):
    """Returns the bytes that one computing thread's plan has for activations, from `pando model`."""
    done = subprocess.run([args.pando, "model", args.model, "--batch", str(args.batch), *words], check=True,
                          capture_output=True, text=True)
    return " ".join(re.search(r"^ *activations +(\S+) (\S+)", done.stdout, re.MULTILINE).groups())


def train(args, words):
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([args.pando, "train", "--serial", "--json", "--run-dir", f"{folder}/run", "--model",
                                    args.model, "--dataset", "cifar10", "--data", args.data, "--steps", str(args.steps),
                                    "--global-batch", str(args.batch), "--micro-batches", "1", "--set",
                                    "eval.every_epochs=0", "--set", "data.test_limit=64", *words],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        if status != 0:
            sys.exit(f"a run failed: {' '.join(process.args)}")
        return json.loads(text), usage.ru_maxrss * 1024


def main():
    args = make_parser(__doc__, model="resnet50-cifar", batch=16, steps=4, rounds=3,
                       data=str(ROOT.parent / "shared/data/cifar-10-batches-bin"), pando=PANDO).parse_args()
    print(f"commit {commit()}, {cpu()}, {args.model}, micro-batches of {args.batch}, {args.rounds} rounds interleaved")
    peaks, hashes = {}, set()

    def measure(name):
        summary, peaks[name] = train(args, VARIANTS[name])
        hashes.add(summary["weights_hash"])
        return summary["images_per_second"]

    speeds = in_turns(VARIANTS, args.rounds, measure)
    heading("images/s")
    for name, values in speeds.items():
        row(name, values)
    row("time: checkpointing / plain", [a / b for a, b in zip(speeds["plain"], speeds["checkpointing"])])
    print(f"peak resident memory: plain {peaks['plain'] / MIB:.0f} MiB, checkpointing "
          f"{peaks['checkpointing'] / MIB:.0f} MiB: {(peaks['plain'] - peaks['checkpointing']) / MIB:.0f} MiB less")
    print("planned activations: " + ", ".join(f"{name} {planned(args, words)}" for name, words in VARIANTS.items()))
    print("weights: " + ("the same" if len(hashes) == 1 else "DIFFERENT"))


if __name__ == "__main__":
    main()
