#!/usr/bin/env python3
"""recovery.py [--kills N] [--dead-steps N] [--parts PART,...] [--data FOLDER] [--pando PROGRAM]

How fast a run notices deaths and goes on, from the faults of its summary. The MNIST CNN, 8 micro-batches, 3 workers,
3 servers, replicas 2. Parts:

  worker, server   kill -9 by --chaos, until there are N of each: detected after injected (noticed by the process's
                   exit), and recovered after detected, less the run's median step
  lease            workers stopped (SIGSTOP), until there are N: detected after injected, by heartbeats alone
  scheduler        step times as the workers see them, with the scheduler and, killed with -9, without it, for N steps
                   each (--dead-steps)

Prints min, p50, p99, max. Run it on an idle machine. Exits 1 if a fault was never detected or a detected one never
recovered from; those that the run's end overtook (stops in its last two leases) are not counted.
"""
import argparse
import csv
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import MNIST, PANDO, commit, cpu, heading, percentile, row

STEPS_PER_RUN = 3000
KILL_EVERY = "1500ms"
STOP = "stop worker 3s every 6s"  # three leases
LEASE_MS = 1000.0  # run.lease_ms, by default
STEPS_BEFORE = 200  # of warming up
PATIENCE_SECONDS = 600
COMMITTED = re.compile(r"version (\d+) committed, at (\d+) us")


def job(args, steps):
    return ["--model", "mnist-cnn", "--dataset", "mnist", "--data", args.data, "--steps", str(steps),
            "--global-batch", "128", "--micro-batches", "8", "--optimizer", "adam", "--lr", "0.001",
            "--set", "eval.every_epochs=0", "--servers", "3", "--workers", "3", "--replicas", "2"]


def elapsed_seconds(run_dir):
    """Of every step, since the run began."""
    with open(f"{run_dir}/metrics.csv", encoding="utf-8") as file:
        return [float(line["elapsed_seconds"]) for line in csv.DictReader(file)]


def median_ms(seconds):
    """Of the steps. Rows of metrics come in batches: each batch's mean step, as often as it has rows."""
    steps, rows = [], 0
    for before, now in zip(seconds, seconds[1:]):
        rows += 1
        if now > before:
            steps += [1000 * (now - before) / rows] * rows
            rows = 0
    return statistics.median(steps)


class Figures:
    """Of the faults of several runs, in ms; and those that have none."""

    def __init__(self):
        self.detected, self.recovered, self.steps = {}, [], []  # detected: by cause
        self.count, self.undetected, self.unrecovered = 0, [], []

    def add(self, fault, step):
        self.count += 1
        if fault["detected_ms"] is None:
            self.undetected.append(fault)
            return
        self.detected.setdefault(fault["detected_by"], []).append(fault["detected_ms"] - fault["injected_ms"])
        if fault["recovered_ms"] is None:
            self.unrecovered.append(fault)
            return
        self.recovered.append(fault["recovered_ms"] - fault["detected_ms"] - step)


def train(args, chaos):
    """The faults that were injected into one run, without those that its end overtook, and its median step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [args.pando, "train", *job(args, STEPS_PER_RUN), "--chaos", chaos, "--max-restarts", "1000",
                   "--run-dir", folder + "/run", "--json"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds = elapsed_seconds(folder + "/run")
    injected = [f for f in json.loads(done.stdout)["faults"] if f["injected_ms"] is not None]
    last_ms = 1000 * seconds[-1] - 2 * LEASE_MS
    return [f for f in injected if f["action"] == "kill" or f["injected_ms"] < last_ms], median_ms(seconds)


def measure(args, chaos, role):
    """Figures of N faults; all that were injected count, whatever became of them."""
    figures = Figures()
    while figures.count < args.kills:
        faults, step = train(args, chaos)
        faults = [f for f in faults if f["target"].startswith(role)]
        if not faults:
            sys.exit(f"recovery.py: a run of {STEPS_PER_RUN} steps under '{chaos}' has no faults")
        figures.steps.append(step)
        for fault in faults:
            figures.add(fault, step)
        print(f"{chaos}: {figures.count} of {args.kills}", file=sys.stderr)
    return figures


def report_deaths(args, action, role, chaos):
    """Whether every fault was detected and recovered from."""
    figures = measure(args, chaos, role)
    for cause, values in sorted(figures.detected.items()):
        row(f"{action} {role}: detected by {cause}", values)
    row(f"{action} {role}: recovered - detected - step", figures.recovered)
    row(f"{action} {role}: median step of the runs", figures.steps)
    for what, faults in (("detected", figures.undetected), ("recovered from", figures.unrecovered)):
        print(f"{action} {role}: {len(faults)} of {figures.count} never {what}")
        for fault in faults:
            print(f"  {fault}")
    return not figures.undetected and not figures.unrecovered


class JobByHand:
    """Scheduler, servers and workers without a supervisor: nobody starts a dead scheduler again."""

    def __init__(self, args, folder, steps):
        self.folder, self.processes = folder, []
        endpoint_file = Path(folder, "endpoint")
        self.scheduler = self.start(args, "scheduler", ["scheduler", *job(args, steps), "--bind", "tcp://127.0.0.1:0",
                                                        "--run-dir", folder + "/run",
                                                        "--endpoint-file", str(endpoint_file)])
        self.wait(lambda: endpoint_file.exists() and endpoint_file.read_text().endswith("\n"))
        join = ["--join", endpoint_file.read_text().strip()]
        for i in range(3):
            self.start(args, f"server-{i}", ["server", *join])
        for i in range(3):
            self.start(args, f"worker-{i}", ["worker", "-v", *join])

    def start(self, args, name, words):
        with open(f"{self.folder}/{name}.err", "w", encoding="utf-8") as err:
            process = subprocess.Popen([args.pando, *words], stdout=subprocess.DEVNULL, stderr=err)
        self.processes.append(process)
        return process

    def commits(self):
        """(version, seconds) as worker 0 learns of them."""
        text = Path(self.folder, "worker-0.err").read_text(encoding="utf-8")
        return [(int(version), int(micros) / 1e6) for version, micros in COMMITTED.findall(text)]

    def version(self):
        commits = self.commits() if Path(self.folder, "worker-0.err").exists() else []
        return commits[-1][0] if commits else 0

    def wait(self, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            ended = [p.args[1] for p in self.processes if p.poll() not in (None, -signal.SIGKILL)]
            if ended or time.monotonic() > deadline:
                errors = Path(self.folder, "scheduler.err").read_text(encoding="utf-8")
                sys.exit(f"recovery.py: no progress by hand; ended by themselves: {ended}; the scheduler said:\n{errors}")
            time.sleep(0.05)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def step_times_ms(commits, first, last):
    chosen = [(version, seconds) for version, seconds in commits if first <= version <= last]
    return [1000 * (b[1] - a[1]) / (b[0] - a[0]) for a, b in zip(chosen, chosen[1:])]


def report_scheduler(args):
    with tempfile.TemporaryDirectory() as folder:
        run = JobByHand(args, folder, steps=10 ** 9)
        try:
            run.wait(lambda: run.version() >= STEPS_BEFORE + args.dead_steps)
            os.kill(run.scheduler.pid, signal.SIGKILL)
            run.scheduler.wait()
            dead_at = run.version()
            run.wait(lambda: run.version() >= dead_at + args.dead_steps)
            commits = run.commits()
        finally:
            run.end()
    with_it = step_times_ms(commits, STEPS_BEFORE, dead_at)
    without = step_times_ms(commits, dead_at, dead_at + args.dead_steps)
    row("step, scheduler alive", with_it)
    row("step, scheduler dead", without)
    ratio = percentile(without, 0.99) / percentile(with_it, 0.99)
    print(f"p99 of a step without the scheduler / with it: {ratio:.2f}")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--dead-steps", type=int, default=1500)
    parser.add_argument("--parts", default="worker,server,lease,scheduler")
    parser.add_argument("--data", default=MNIST)
    parser.add_argument("--pando", default=PANDO)
    args = parser.parse_args()
    parts = {"worker": lambda: report_deaths(args, "kill", "worker", f"kill worker every {KILL_EVERY}"),
             "server": lambda: report_deaths(args, "kill", "server", f"kill server every {KILL_EVERY}"),
             "lease": lambda: report_deaths(args, "stop", "worker", STOP),
             "scheduler": lambda: report_scheduler(args)}
    chosen = args.parts.split(",")
    unknown = [part for part in chosen if part not in parts]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}")
    print(f"commit {commit()}, {cpu()}, MNIST CNN, 3 workers, 3 servers, replicas 2")
    heading("ms")
    are_good = [parts[part]() for part in chosen]
    return 0 if all(are_good) else 1


if __name__ == "__main__":
    sys.exit(main())
