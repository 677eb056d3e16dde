#!/usr/bin/env python3
"""codecs.py [--epochs N] [--seeds N] [--data FOLDER] [--pando PROGRAM]

Measures each codec's cost in accuracy and saving in bytes: the MNIST CNN on real MNIST, two workers, two micro-batches
(each worker pushes one gradient a step with every codec), one server. Prints the test accuracy of each seed's run, the
mean less the mean of floats, whether that is within the codec's bound, and the bytes that workers pushed and pulled, as
shares of those of floats.
"""
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from report import MNIST, PANDO, commit, cpu, make_parser

NEAR, FAR = 0.003, 0.01  # how far below floats the accuracy may be
CODECS = {  # flags and bound
    "fp32": ([], None),
    "fp16": (["--codec", "fp16"], NEAR),
    "bf16": (["--codec", "bf16"], NEAR),
    "int8": (["--codec", "int8"], NEAR),
    "1-bit": (["--codec", "1-bit"], FAR),
    "top-k": (["--codec", "top-k"], FAR),
    "pull fp16": (["--pull-codec", "fp16"], NEAR),
    "pull bf16": (["--pull-codec", "bf16"], NEAR),
    "pull int8": (["--pull-codec", "int8"], NEAR),
    "int8, pull bf16": (["--codec", "int8", "--pull-codec", "bf16"], NEAR),
}
TRAFFIC = re.compile(r"pushed (\d+) bytes.*pulled (\d+) bytes")


def train(args, words, seed):
    """Returns the accuracy, and the bytes pushed and pulled by all workers."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.pando, "train", "--json", "--data", args.data, "--run-dir", folder + "/run", "--workers", "2",
                   "--servers", "1", "--micro-batches", "2", "--epochs", str(args.epochs), "--optimizer", "adam",
                   "--lr", "0.002", "--schedule", "one-cycle", "--eval-every-epochs", str(args.epochs), "--seed",
                   str(seed), "-v", *words]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr}")
        traffic = [TRAFFIC.search(log.read_text()) for log in Path(folder, "run", "logs").glob("worker-*.log")]
        pushed, pulled = (sum(int(found.group(i)) for found in traffic) for i in (1, 2))
        return json.loads(done.stdout)["test_accuracy"], pushed, pulled


def main():
    args = make_parser(__doc__, epochs=5, seeds=2, data=MNIST, pando=PANDO).parse_args()
    print(f"commit {commit()}, {cpu()}, MNIST CNN, {args.epochs} epochs, 2 workers, 2 micro-batches, 1 server")
    print(f"{'codec':<18}{'accuracy':<18}{'less fp32':>10}{'bound':>8}{'':>8}{'pushed':>9}{'pulled':>9}")
    floats = None
    is_met = True
    for name, (words, bound) in CODECS.items():
        runs = [train(args, words, seed + 1) for seed in range(args.seeds)]
        mean = statistics.mean(run[0] for run in runs)
        floats = floats or (mean, *runs[0][1:])
        verdict = "" if bound is None else "met" if mean >= floats[0] - bound else "MISSED"
        is_met = is_met and verdict != "MISSED"
        accuracies = " ".join(f"{run[0]:.4f}" for run in runs)
        print(f"{name:<18}{accuracies:<18}{mean - floats[0]:>+10.4f}{bound or '':>8}{verdict:>8}"
              f"{runs[0][1] / floats[1]:>9.3f}{runs[0][2] / floats[2]:>9.3f}", flush=True)
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
