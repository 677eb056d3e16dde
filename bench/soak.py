#!/usr/bin/env python3
"""soak.py --epochs E [--mean 5s] [--seed N] [--pando PROGRAM] [--data FOLDER] [--hash HASH]

Trains the MNIST CNN under `--chaos random` for as long as the epochs take and watches the processes of the run:
resident memory, open files, orphans, what is left in /tmp and /dev/shm. Fails when the run fails, when the final
hash is not the serial run's (--hash; without it the serial run is made first), when a process that lived long
enough grew, or when anything is left behind. Half an hour is about 60 epochs with 2 cores.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 2.0
WARM_UP_SECONDS = 60.0  # in which a process fills its pools
JUDGED_SECONDS = 180.0  # of life after the warm-up, before growth says anything
GROWTH_MAX_KIB = 16 * 1024  # allocator and page-cache noise; a leak of one 88 KB record a step would be 25 MB a second
FILE_GROWTH_MAX = 8


def job(args):
    return ["train", "--model", "mnist-cnn", "--dataset", "mnist", "--data", args.data, "--epochs", str(args.epochs),
            "--global-batch", "128", "--micro-batches", "8", "--optimizer", "adam", "--lr", "0.001",
            "--set", "eval.every_epochs=10"]


def serial_hash(args, folder):
    done = subprocess.run([args.pando, *job(args), "--serial", "--set", "run.threads=2", "--run-dir", f"{folder}/serial", "--json"],
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)["weights_hash"]


class Process:
    def __init__(self, pid, role):
        self.pid, self.role, self.samples = pid, role, []  # (seconds, KiB, open files)

    def sample(self, seconds):
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
            self.samples.append((seconds, kib, len(os.listdir(f"/proc/{self.pid}/fd"))))
        except (OSError, StopIteration):
            pass  # it has gone

    def growth(self):
        """KiB and files gained from the first to the last quarter after the warm-up; None if it lived too briefly."""
        if not self.samples:
            return None
        born = self.samples[0][0]
        warm = [s for s in self.samples if s[0] - born >= WARM_UP_SECONDS]
        if not warm or warm[-1][0] - warm[0][0] < JUDGED_SECONDS:
            return None
        quarter = max(1, len(warm) // 4)
        first, last = warm[:quarter], warm[-quarter:]
        return tuple(statistics.median(s[i] for s in last) - statistics.median(s[i] for s in first) for i in (1, 2))


def children(parent):
    tasks = Path(f"/proc/{parent}/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()] if tasks.exists() else []


def role_of(pid):
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return words[1].decode() if len(words) > 1 else "?"


def watch(run):
    seen, start = {}, time.monotonic()
    while run.poll() is None:
        seconds = time.monotonic() - start
        for pid in [run.pid, *children(run.pid)]:
            try:
                seen.setdefault(pid, Process(pid, role_of(pid))).sample(seconds)
            except OSError:
                pass  # it has gone
        time.sleep(SAMPLE_SECONDS)
    return seen, time.monotonic() - start


def leftovers():
    return {str(path) for folder in ("/tmp", "/dev/shm") for path in Path(folder).glob("pando*")}


def report(seen, faults, seconds):
    actions = {}
    for fault in faults:
        key = f"{fault['action']} {fault['target'].split()[0]}"
        actions[key] = actions.get(key, 0) + 1
    print(f"{seconds:.0f} s, {len(faults)} faults, {len(seen)} processes: {actions}")
    unrecovered = [f for f in faults if f["recovered_ms"] is None]
    print(f"faults without a recovery time: {len(unrecovered)}")
    for process in seen.values():
        growth = process.growth()
        if growth:
            peak = max(s[1] for s in process.samples)
            print(f"  {process.role:<10} pid {process.pid}: lived {process.samples[-1][0] - process.samples[0][0]:.0f} s, "
                  f"peak {peak} KiB, grew {growth[0]:+.0f} KiB, {growth[1]:+.0f} files")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=float, required=True)
    parser.add_argument("--mean", default="5s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", default=str(ROOT.parent / "shared/data/mnist"))
    parser.add_argument("--pando", default=str(ROOT / "build/cli/pando"))
    parser.add_argument("--hash")
    args = parser.parse_args()
    problems, before = [], leftovers()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        expected = args.hash or serial_hash(args, folder)
        print(f"expected hash {expected}", flush=True)
        command = [args.pando, *job(args), "--workers", "3", "--servers", "3", "--replicas", "2", "--set", "run.transport=ipc",
                   "--chaos", f"random:{args.seed}:{args.mean}", "--run-dir", f"{folder}/run", "--json"]
        with open(f"{folder}/out", "w+") as out, open(f"{folder}/err", "w+") as err:
            run = subprocess.Popen(command, stdout=out, stderr=err)
            seen, seconds = watch(run)
            out.seek(0)
            summary = json.loads(out.read() or "{}")
            err.seek(0)
            tail = err.read()[-2000:]
        report(seen, summary.get("faults", []), seconds)
        if run.returncode != 0 or summary.get("status") != "completed":
            problems.append(f"exit {run.returncode}, status {summary.get('status')}: {tail}")
        if summary.get("weights_hash") != expected:
            problems.append(f"hash {summary.get('weights_hash')}")
        problems += [f"orphan {pid} ({p.role})" for pid, p in seen.items() if pid != run.pid and Path(f"/proc/{pid}").exists()]
        for process in seen.values():
            growth = process.growth()
            if growth and (growth[0] > GROWTH_MAX_KIB or growth[1] > FILE_GROWTH_MAX):
                problems.append(f"{process.role} pid {process.pid} grew {growth[0]:+.0f} KiB, {growth[1]:+.0f} files")
        problems += [f"left behind: {path}" for path in leftovers() - before]
    for problem in problems:
        print("PROBLEM:", problem)
    print("hash", "equal" if not any("hash" in p for p in problems) else "DIFFERENT", "-", len(problems), "problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
