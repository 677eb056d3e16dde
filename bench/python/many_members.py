#!/usr/bin/env python3
"""Measures a real scheduler with a thousand members over real sockets (docs/performance.md).

    bench/python/many_members.py [--members N] [--keys] [--build FOLDER]

The members are stubs in one process (pando-bench members). It prints a table.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_MAX_S = 60


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=1000)
    parser.add_argument("--keys", action="store_true", help="with keys on every connection")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    return parser.parse_args()


def start_scheduler(args, folder):
    """Returns the process and its endpoint once it listens."""
    pando = args.build / "cli/pando"
    listens = folder / "endpoint"
    command = [pando, "scheduler", "--run-dir", folder / "run", "--dataset", "synthetic-digits"]
    command += ["--model", "mlp", "--steps", 1000000, "--global-batch", 1024, "--micro-batches", 1024]
    command += ["--workers", 8, "--servers", 8, "--replicas", 2]
    command += ["--bind", "tcp://127.0.0.1:0", "--endpoint-file", listens]
    if args.keys:
        subprocess.run([pando, "keys", "new", folder / "keys"], check=True, capture_output=True)
        command += ["--keys", folder / "keys"]
    log = (folder / "scheduler.log").open("w")
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=log)
    ends = time.monotonic() + START_MAX_S
    while time.monotonic() < ends and process.poll() is None:
        if listens.exists() and listens.read_text().strip():
            return process, listens.read_text().strip()
        time.sleep(0.05)
    sys.exit("error: the scheduler did not start:\n" + (folder / "scheduler.log").read_text())


def main():
    args = parse_args()
    with tempfile.TemporaryDirectory(prefix="pando-members-") as name:
        folder = pathlib.Path(name)
        scheduler, endpoint = start_scheduler(args, folder)
        command = [args.build / "bench/cpp/pando-bench", "members", "--scheduler", endpoint]
        command += ["--pid", scheduler.pid, "--members", args.members]
        command += ["--keys", folder / "keys"] if args.keys else []
        try:
            load = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        finally:
            scheduler.kill()
            scheduler.wait()
        if load.returncode != 0:
            tail = "\n".join((folder / "scheduler.log").read_text().splitlines()[-20:])
            sys.exit(f"{load.stderr}the scheduler's last lines:\n{tail}")
        print(f"{args.members} members, keys {'on' if args.keys else 'off'}, {os.cpu_count()} cores")
        print(f"{'phase':<12} {'s':>7} {'CPU s':>7} {'% core':>7} {'MB':>8} {'views':>6} {'RSS MB':>7}")
        for phase, f in json.loads(load.stdout).items():
            spread = f", reaches all within {1000 * f['spread_s']:.0f} ms" if "spread_s" in f else ""
            print(
                f"{phase:<12} {f['seconds']:>7.2f} {f['processor_s']:>7.2f} {f['core_percent']:>7.1f} "
                f"{f['received_mb']:>8.1f} {f['views']:>6} {f['resident_mb']:>7.0f}{spread}"
            )


if __name__ == "__main__":
    main()
