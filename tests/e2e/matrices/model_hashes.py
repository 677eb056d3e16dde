#!/usr/bin/env python3
"""model_hashes.py [--models NAME ...] [--steps N] [--data FOLDER] [--pando PROGRAM]

Invariant I5 for the large networks: ResNet-18 and MobileNetV2 on CIFAR-10, crops and flips drawn, end with the serial
run's weights for any number of workers, servers and threads, with activation checkpointing, and under random faults.
Prints a row per run; exit code 0 where all are the same, else 1. Some minutes on two cores.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
RUNS = [("serial, 2 threads", ["--serial", "--threads", "2"]),
        ("1 worker, 1 server", ["--workers", "1", "--servers", "1"]),
        ("2 workers, 2 servers, tcp", ["--workers", "2", "--servers", "2"]),
        ("3 workers of 2 threads, 3 servers, ipc",
         ["--workers", "3", "--threads", "2", "--servers", "3", "--transport", "ipc"]),
        ("2 workers, checkpointing",
         ["--workers", "2", "--servers", "1", "--set", "train.activation_checkpointing=true"]),
        ("2 workers, 2 servers, random:1", ["--workers", "2", "--servers", "2", "--chaos", "random:1:1s"]),
        ("2 workers, 2 servers, random:2", ["--workers", "2", "--servers", "2", "--chaos", "random:2:1s"])]


def train(args, model, flags):
    """The run's summary; None where it failed."""
    with tempfile.TemporaryDirectory() as temp:
        done = subprocess.run(
            [args.pando, "train", "--json", "--run-dir", f"{temp}/run", "--model", model, "--dataset", "cifar10",
             "--data", str(args.data), "--augment", "crop,flip", "--steps", str(args.steps), "--global-batch", "32",
             "--micro-batches", "4", "--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9", "--set",
             "data.test_limit=64", *flags], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            print(done.stderr[-2000:], file=sys.stderr)
            return None
        return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["resnet18-cifar", "mobilenet-v2-small"])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--data", type=pathlib.Path, default=ROOT.parent / "shared/data/cifar-10-batches-bin")
    parser.add_argument("--pando", default=str(ROOT / "build/cli/pando"))
    args = parser.parse_args()
    failures = 0
    for model in args.models:
        serial = train(args, model, ["--serial"])
        expected = serial["weights_hash"] if serial else "failed"
        print(f"{model}: serial: {expected}", flush=True)
        for name, flags in RUNS:
            summary = train(args, model, flags)
            found = summary["weights_hash"] if summary else "failed"
            is_same = serial is not None and found == expected
            failures += not is_same
            faults = f", {len(summary['faults'])} faults" if summary and summary.get("faults") else ""
            print(f"  {name:40} {found} {'same' if is_same else 'DIFFERS'}{faults}", flush=True)
    print("PASS" if failures == 0 else f"FAIL: {failures} runs")
    return 0 if failures == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
