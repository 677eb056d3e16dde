#!/usr/bin/env python3
"""standby_cost.py [--rounds N] [--steps N] [--snapshot-every N] [--pando PROGRAM]

Measures the cost of a standby scheduler in images/s (docs/clusters.md): a run with its journal in etcd and a standby
that gets its folder, beside one without; and 3 replicas beside 2. ResNet-18 on small pictures, three servers and two
workers, each a process. Snapshots travel to the scheduler. An etcd of three members runs beside all of them. Every
round runs each variant once, and every other round goes backwards. Prints min, p50, p99, max, and the ratios of the
rounds. Run it on an idle machine.
"""
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from report import PANDO, commit, cpu, heading, in_turns, make_parser, row

VARIANTS = {"2 replicas": (2, False), "2 replicas, standby": (2, True), "3 replicas": (3, False)}
RATIOS = [("2 replicas, standby", "2 replicas"), ("3 replicas", "2 replicas")]
SERVERS, WORKERS = 3, 2


def free_ports(count):
    """Returns ports of which each next one is free, too: the scheduler's store of files listens there."""
    ports = []
    while len(ports) < count:
        with contextlib.ExitStack() as stack:
            first, second = (stack.enter_context(socket.socket()) for _ in range(2))
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            with contextlib.suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                ports.append(port)
    return ports


class Processes:
    """Processes that end with the with block."""

    def __init__(self, folder):
        self.folder, self.running = Path(folder), []

    def start(self, name, *words):
        log = open(self.folder / f"{name}.log", "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.running.append(subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=log, cwd=self.folder))
        return self.running[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()


def start_etcd(processes):
    """Returns the endpoints of an etcd of three members."""
    ports = free_ports(6)
    clients = [f"http://127.0.0.1:{port}" for port in ports[:3]]
    peers = [f"http://127.0.0.1:{port}" for port in ports[3:]]
    cluster = ",".join(f"e{i}={peer}" for i, peer in enumerate(peers))
    for i in range(3):
        processes.start(f"etcd-{i}", "etcd", "--name", f"e{i}", "--data-dir", processes.folder / f"etcd-{i}",
                        "--listen-client-urls", clients[i], "--advertise-client-urls", clients[i],
                        "--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i],
                        "--initial-cluster", cluster, "--log-level", "error")
    return ",".join(clients)


def measure(args, etcd, name):
    """Returns the images/s of one run."""
    replicas, has_standby = VARIANTS[name]
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        endpoints = [f"tcp://127.0.0.1:{port}" for port in free_ports(2)]
        meeting = ["--etcd", etcd, "--etcd-prefix", f"/pando/bench-{time.time_ns()}"] if has_standby else []

        def start_scheduler(number, *words):
            return processes.start(f"scheduler-{number}", args.pando, "scheduler", *words, "--run-dir",
                                   f"{folder}/run-{number}", "--bind", endpoints[number], *meeting)
        leader = start_scheduler(0, "--model", "resnet18-cifar", "--dataset", "synthetic-digits", "--set",
                                 "data.synthetic_test_samples=64", "--steps", args.steps, "--global-batch", 64,
                                 "--micro-batches", 2, "--servers", SERVERS, "--workers", WORKERS, "--replicas",
                                 replicas, "--snapshot-every", args.snapshot_every, "--set", "eval.every_epochs=0",
                                 "--set", "snapshot.store=scheduler")
        if has_standby:
            start_scheduler(1, "--standby")
        for role, count, words in (("server", SERVERS, []), ("worker", WORKERS, ["--threads", 1])):
            for i in range(count):
                processes.start(f"{role}-{i}", args.pando, role, "--join",
                                ",".join(endpoints) if has_standby else endpoints[0], *words)
        if leader.wait() != 0:
            sys.exit(f"{name}: {Path(folder, 'scheduler-0.log').read_text()[-2000:]}")
        if has_standby and "standby-ready" not in Path(folder, "run-0/events.jsonl").read_text():
            sys.exit("the standby was never ready")
        return json.loads(Path(folder, "run-0/summary.json").read_text())["images_per_second"]


def main():
    args = make_parser(__doc__, rounds=5, steps=60, snapshot_every=500, pando=PANDO).parse_args()
    print(f"commit {commit()}, {cpu()}, {args.rounds} rounds interleaved, {args.steps} steps")
    with tempfile.TemporaryDirectory() as folder, Processes(folder) as processes:
        etcd = start_etcd(processes)
        figures = in_turns(VARIANTS, args.rounds, lambda name: measure(args, etcd, name))
    heading("ResNet-18: images/s")
    for name, values in figures.items():
        row(name, values)
    for over, under in RATIOS:
        row(f"{over} / {under}", [a / b for a, b in zip(figures[over], figures[under])], digits=3)


if __name__ == "__main__":
    main()
