"""A run whose leading scheduler is lost, and one that only stops: standbys take over (docs/clusters.md).

    tests/e2e/standby/standby_test.py PANDO

Exits with 77 where there is no etcd.
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

DEADLINE_S = 120
STEPS = 4000
JOB = ["--model", "mlp", "--dataset", "synthetic-digits", "--steps", STEPS, "--snapshot-every", 100,
       "--set", "data.synthetic_train_samples=2000", "--set", "data.synthetic_test_samples=500"]
NODES = {"server-0": ["server"], "server-1": ["server"], "worker": ["worker"],
         "node": ["node", "--servers", "0", "--workers", "1", "--threads", "1"]}
EXIT_SKIPPED = 77
FIRST_PORT, FIRST_CLIENT_PORT = 10000, 32768  # Linux gives connections the ports from there on
LINES_SHOWN, COLUMNS_SHOWN = 6, 300  # of each log, after a failure


def check(holds: Any, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def free_port_pair() -> int:
    """A port that is free, and so is the next one, where the file store of a leader listens. No connection begins at
    these ports, so they stay free."""
    while True:
        port = random.randrange(FIRST_PORT, FIRST_CLIENT_PORT, 2)
        try:
            for number in (port, port + 1):
                with socket.socket() as free:
                    free.bind(("127.0.0.1", number))
            return port
        except OSError:
            continue


class Cluster:
    """An etcd, schedulers by name, two servers, a worker, and a `pando node` that keeps another worker running."""

    def __init__(self, pando: str, folder: Path):
        self.pando, self.folder = pando, folder
        self.processes: dict[str, subprocess.Popen] = {}
        self.ports = [free_port_pair() for _ in range(3)]
        client, peer = free_port_pair(), free_port_pair()
        self.etcd = f"http://127.0.0.1:{client}"
        peers = f"http://127.0.0.1:{peer}"
        self.start("etcd", "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", self.etcd,
                   "--advertise-client-urls", self.etcd, "--listen-peer-urls", peers, "--initial-advertise-peer-urls",
                   peers, "--initial-cluster", f"default={peers}")

    def start(self, name: str, *words: Any) -> subprocess.Popen:
        with open(self.folder / f"{name}.log", "a", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                                                    stdout=log, stderr=log, cwd=self.folder)
        return self.processes[name]

    def start_scheduler(self, name: str, port: int, *words: Any) -> subprocess.Popen:
        return self.start(name, self.pando, "scheduler", *words, "--run-dir", self.folder / name, "--bind",
                          f"tcp://127.0.0.1:{port}", "--etcd", self.etcd, "--etcd-prefix", "/pando/test")

    def start_nodes(self) -> None:
        join = ",".join(f"tcp://127.0.0.1:{port}" for port in self.ports[:2])
        for name, words in NODES.items():
            self.start(name, self.pando, *words, "--join", join)

    def kill_child(self, name: str) -> None:
        """Kills the process that a `pando node` keeps running."""
        parent = self.processes[name].pid
        child = int(Path(f"/proc/{parent}/task/{parent}/children").read_text())
        os.kill(child, signal.SIGKILL)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def rows(self, name: str) -> int:
        path = self.folder / name / "metrics.csv"
        return path.read_text().count("\n") - 1 if path.exists() else 0

    def events(self, name: str) -> str:
        path = self.folder / name / "events.jsonl"
        return path.read_text() if path.exists() else ""

    def wait(self, is_done: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            if time.monotonic() >= deadline:
                raise AssertionError(f"not within {DEADLINE_S} s: {what}\n{self.describe()}")
            time.sleep(0.02)  # files of other processes cannot be waited for otherwise

    def describe(self) -> str:
        """The exit code and the last lines of each process, of etcd last."""
        lines = []
        for name, process in sorted(self.processes.items(), key=lambda entry: entry[0] == "etcd"):
            lines.append(f"---- {name}: {process.poll()}")
            lines += [line[-COLUMNS_SHOWN:] for line in self.log(name).splitlines()[-LINES_SHOWN:]]
        return "\n".join(lines)

    def await_standby(self, leader: str, standby: str, port: int) -> None:
        text = f"the standby at tcp://127.0.0.1:{port} has everything"
        self.wait(lambda: self.events(leader).rpartition(text)[1] and
                  "standby-lost" not in self.events(leader).rpartition(text)[2], f"{leader} has a standby")
        self.wait(lambda: text in self.events(standby), f"{standby} has that event, too")

    def await_lead(self, name: str) -> None:
        self.wait(lambda: "scheduler-restarted" in self.events(name).rpartition('"standby-ready"')[2],
                  f"{name} leads")
        rows = self.rows(name)
        self.wait(lambda: self.rows(name) > rows + 20, f"{name} records steps")

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()


def check_status(cluster: Cluster, line: str) -> None:
    done = subprocess.run([cluster.pando, "status", "--join", f"tcp://127.0.0.1:{cluster.ports[1]}"], text=True,
                          capture_output=True, check=False, timeout=DEADLINE_S)
    check(line in done.stdout, f"pando status does not say '{line}': {done.stdout}{done.stderr}")


def check_port_is_kept(port: int) -> None:
    """A standby keeps the port at which its file store will listen, since others that dial it may get it."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            other.bind(("127.0.0.1", port))
            other.listen()
        except OSError:
            return
    raise AssertionError(f"another process gets the port {port} of a standby's file store")


def play(cluster: Cluster) -> None:
    first, second, third = cluster.ports
    cluster.start_scheduler("a", first, *JOB, "--servers", 2, "--workers", 2)
    cluster.start_scheduler("b", second, "--standby")
    cluster.start_nodes()
    cluster.await_standby("a", "b", second)
    cluster.wait(lambda: cluster.rows("a") > 100, "the run makes steps")
    check_port_is_kept(second + 1)
    # The leader's machine is lost, with its disk.
    cluster.processes["a"].kill()
    cluster.processes["a"].wait()
    shutil.rmtree(cluster.folder / "a")
    cluster.await_lead("b")
    # Another machine stands by, whose address the nodes were not given. Then the leader only stops.
    cluster.start_scheduler("c", third, "--standby")
    cluster.await_standby("b", "c", third)
    check_status(cluster, f"schedulers: tcp://127.0.0.1:{second} leads, tcp://127.0.0.1:{third} may lead")
    cluster.wait(lambda: f"tcp://127.0.0.1:{third}" in cluster.log("node"), "pando node knows of it")
    cluster.processes["b"].send_signal(signal.SIGSTOP)
    cluster.await_lead("c")
    # A process that is restarted now finds the leader.
    members = cluster.events("c").count('"registered"')
    cluster.kill_child("node")
    cluster.wait(lambda: cluster.events("c").count('"registered"') > members, "the restarted worker joins")
    cluster.processes["b"].send_signal(signal.SIGCONT)
    cluster.wait(lambda: "this one stands by" in cluster.log("b"), "the old leader stands by")
    cluster.wait(lambda: cluster.processes["c"].poll() is not None, "the run ends")
    check(cluster.processes["c"].returncode == 0, f"c: {cluster.log('c')[-2000:]}")
    for name in ("b", *NODES):
        cluster.wait(lambda name=name: cluster.processes[name].poll() is not None, f"{name} ends")
        check(cluster.processes[name].returncode == 0, f"{name}: {cluster.log(name)[-2000:]}")
    summary = json.loads((cluster.folder / "c" / "summary.json").read_text())
    check(summary["rollbacks"] == 0, f"the run went back: {summary}")
    check((cluster.folder / "c" / "final.safetensors").exists(), "there are no final weights")
    serial = cluster.folder / "serial"
    subprocess.run([cluster.pando, "train", "--serial", *map(str, JOB), "--run-dir", serial], check=True,
                   capture_output=True, timeout=DEADLINE_S)
    expected = json.loads((serial / "summary.json").read_text())["weights_hash"]
    check(summary["weights_hash"] == expected, f"{summary['weights_hash']} is not the serial hash {expected}")
    steps = [sorted(line.split(",")[0] for line in (folder / "metrics.csv").read_text().split("\n"))
             for folder in (cluster.folder / "c", serial)]
    check(steps[0] == steps[1], f"metrics.csv has {len(steps[0])} rows, and the serial run's {len(steps[1])}")
    print(f"two leaders lost; the serial hash {expected}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    options = parser.parse_args()
    if shutil.which("etcd") is None:
        print("skipped: there is no etcd; tools/setup.sh test installs it")
        return EXIT_SKIPPED
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        cluster = Cluster(options.pando, Path(name))
        try:
            play(cluster)
        finally:
            cluster.kill_all()
    return 0


if __name__ == "__main__":
    sys.exit(main())
