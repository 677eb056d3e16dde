#!/usr/bin/env python3
"""mode_matrix.py [--steps 200] [--data FOLDER] [--pando PROGRAM]

Invariant I5 in every mode: train.staleness 0 and 1, train.local_steps 1, 10 and 50, on the MNIST CNN. In each mode the
weights are those of --serial for 1 worker and 1 server, 2 and 2, 3 and 2, over TCP and shared memory, and in a run of 3
workers and 3 servers with two replicas in which twenty processes of all roles are killed. Prints a line for each mode
and exits 1 if a hash differs, or if fewer than twenty faults are in the summary. Takes about 5 minutes on two cores.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FAULTS_MIN = 20
KILLS = 32  # a process that dies while it starts again is no further fault
MODES = [(staleness, local_steps) for staleness in (0, 1) for local_steps in (1, 10, 50)]
FORMS = [(1, 1, "tcp"), (2, 2, "shm"), (3, 2, "tcp"), (3, 2, "shm")]


def make_chaos(steps):
    """Returns the text for --chaos: deaths, spread over the run."""
    roles = ["worker {}", "server {}", "worker {}", "scheduler"]
    at = [(number + 1) * steps // (KILLS + 4) for number in range(KILLS)]
    return "; ".join(f"kill {roles[n % 4].format(n // 4 % 3)} at step {step}" for n, step in enumerate(at))


def train(args, mode, *flags):
    """Returns the run's summary."""
    staleness, local_steps = mode
    outer = ["--lr", "0.7", "--momentum", "0.9"] if local_steps > 1 else ["--lr", "0.02", "--momentum", "0.9"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [args.pando, "train", "--model", "mnist-cnn", "--dataset", "mnist", "--data", args.data, "--json",
             "--run-dir", f"{folder}/run", "--steps", str(args.steps), "--global-batch", "600", "--micro-batches", "6",
             "--staleness", str(staleness), "--local-steps", str(local_steps), "--set",
             "train.inner=type=adamw lr=0.001", *outer, *flags], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(flags)}: {done.stderr[-2000:]}")
        return json.loads(done.stdout)


def check_mode(args, mode):
    serial = train(args, mode, "--serial")["weights_hash"]
    wrong = []
    for workers, servers, transport in FORMS:
        form = ["--workers", str(workers), "--servers", str(servers), "--transport", transport]
        if train(args, mode, *form)["weights_hash"] != serial:
            wrong.append(" ".join(form))
    killed = train(args, mode, "--workers", "3", "--servers", "3", "--replicas", "2", "--set", "snapshot.every=10",
                   "--chaos", make_chaos(args.steps))
    faults = len(killed["faults"])
    if killed["weights_hash"] != serial or faults < FAULTS_MIN:
        wrong.append(f"{faults} faults of {FAULTS_MIN}")
    print(f"staleness {mode[0]}, local steps {mode[1]:>2}: serial {serial}, {len(FORMS)} forms and a run with {faults} "
          f"faults: {'; '.join(wrong) + ' DIFFER' if wrong else 'the same'}", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/mnist"))
    parser.add_argument("--pando", default=str(ROOT / "build/cli/pando"))
    args = parser.parse_args()
    results = [check_mode(args, mode) for mode in MODES]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
