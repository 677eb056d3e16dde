"""A run on hosts that fail: network namespaces, three etcds, a leading scheduler with a standby, servers and workers,
keys, no shared folder. Random faults, among them the loss of each kind of host with its disk; then the serial hash.

    sudo tests/e2e/standby/hosts_run.py PANDO [--faults 50] [--seed 1] [--steps 20000]

Prints each fault, how long the run was without a leader after each loss of one, and the longest time without a step.
"""
import argparse
import base64
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any, Callable

DEADLINE_S = 180
SCHEDULER_PORT = 7070
JOB = ["--model", "mnist-cnn", "--dataset", "synthetic-digits", "--snapshot-every", 200, "--set",
       "data.synthetic_train_samples=2000", "--set", "data.synthetic_test_samples=500"]


class Host:
    """A network namespace with an address, and a folder as its disk."""

    def __init__(self, world: "World", name: str, number: int):
        self.world, self.name, self.address = world, name, f"10.77.0.{number}"
        self.disk = world.folder / name
        self.disk.mkdir()
        self.processes: dict[str, subprocess.Popen] = {}
        space = self.space = f"{world.prefix}{name}"
        run("ip", "netns", "add", space)
        run("ip", "link", "add", f"{space}o", "type", "veth", "peer", "name", "eth0", "netns", space)
        run("ip", "link", "set", f"{space}o", "master", world.bridge, "up")
        run("ip", "-n", space, "addr", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", space, "link", "set", device, "up")

    def start(self, name: str, *words: Any) -> None:
        with open(self.world.folder / f"{self.name}-{name}.log", "a", encoding="utf-8") as log:
            self.processes[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.space, *map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                cwd=self.disk, env={**os.environ, "PANDO_KEYS": str(self.world.keys)})

    def signal(self, name: str, number: int) -> None:
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.kill()
        process.wait()

    def set_link(self, is_up: bool) -> None:
        run("ip", "link", "set", f"{self.space}o", "up" if is_up else "down")

    def lose(self) -> None:
        """The host is gone for good, with its disk."""
        for name in list(self.processes):
            self.kill(name)
        run("ip", "netns", "delete", self.space)
        subprocess.run(["ip", "link", "delete", f"{self.space}o"], check=False, capture_output=True)
        shutil.rmtree(self.disk)


def run(*words: Any) -> None:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr}")


class World:
    def __init__(self, pando: str, folder: Path, options: argparse.Namespace):
        self.pando, self.folder, self.steps = pando, folder, options.steps
        self.random = random.Random(options.seed)
        self.prefix, self.bridge = f"p{os.getpid() % 10000}", f"p{os.getpid() % 10000}br"
        self.keys = folder / "keys"
        self.hosts: dict[str, Host] = {}
        self.next_number = 20
        self.gaps: list[float] = []
        self.last_rows, self.last_row_at, self.longest_gap = 0, time.monotonic(), 0.0

    def build(self) -> None:
        run("ip", "link", "add", self.bridge, "type", "bridge")
        run("ip", "addr", "add", "10.77.0.254/24", "dev", self.bridge)  # for our own questions to etcd
        run("ip", "link", "set", self.bridge, "up")
        run(self.pando, "keys", "new", self.keys)
        for number in (1, 2, 3):
            self.hosts[f"e{number}"] = Host(self, f"e{number}", number)
        for number in (1, 2, 3):
            self.start_etcd(number)
        for number in (1, 2):
            self.hosts[f"c{number}"] = Host(self, f"c{number}", 10 + number)
        self.start_scheduler("c1", *JOB, "--steps", self.steps, "--servers", 3, "--workers", 3, "--set",
                             "run.start_timeout_ms=60000")
        self.start_scheduler("c2", "--standby")
        for number in (1, 2, 3):
            self.start_node("server")
            self.start_node("worker")

    def start_etcd(self, number: int) -> None:
        host = self.hosts[f"e{number}"]
        cluster = ",".join(f"e{n}=http://10.77.0.{n}:2380" for n in (1, 2, 3))
        host.start("etcd", "etcd", "--name", f"e{number}", "--data-dir", host.disk / "etcd", "--listen-client-urls",
                   f"http://{host.address}:2379", "--advertise-client-urls", f"http://{host.address}:2379",
                   "--listen-peer-urls", f"http://{host.address}:2380", "--initial-advertise-peer-urls",
                   f"http://{host.address}:2380", "--initial-cluster", cluster, "--logger=zap", "--log-level=error")

    def start_scheduler(self, name: str, *words: Any) -> None:
        host = self.hosts[name]
        host.start("scheduler", self.pando, "scheduler", *words, "--run-dir", host.disk / "run", "--bind",
                   f"tcp://{host.address}:{SCHEDULER_PORT}", "--etcd",
                   ",".join(f"http://10.77.0.{n}:2379" for n in (1, 2, 3)))

    def start_node(self, role: str) -> None:
        self.next_number += 1
        name = f"{role[0]}{self.next_number}"
        self.hosts[name] = Host(self, name, self.next_number)
        self.start_process(name, role)

    def start_process(self, name: str, role: str) -> None:
        schedulers = [self.hosts[name].address for name in ("c1", "c2") if name in self.hosts]
        join = ",".join(f"tcp://{address}:{SCHEDULER_PORT}" for address in schedulers)
        words = ["--label", f"host={name}"] if role == "server" else []
        self.hosts[name].start(role, self.pando, role, "--join", join, *words)

    def replace_standby(self, name: str) -> None:
        """Another machine stands by, at an address that no running process was given."""
        self.next_number += 1
        self.hosts[name] = Host(self, name, self.next_number)
        self.start_scheduler(name, "--standby")

    # ---- what the run says

    def run_dir(self, name: str) -> Path:
        return self.hosts[name].disk / "run"

    def leader(self) -> str:
        """The host of the scheduler that leads, as etcd says."""
        found: list[str] = []

        def is_known() -> bool:
            folder = self.etcd_value("/pando/run/leader")
            found[:] = [name for name in ("c1", "c2") if name in self.hosts and folder == self.folder_name(name)]
            return bool(found) or self.is_over()
        self.wait(is_known, "a scheduler leads")
        return found[0] if found else "c1"

    def folder_name(self, name: str) -> str:
        """The name of a scheduler's folder in etcd."""
        path = self.run_dir(name) / ".etcd"
        return path.read_text().split("\n")[1] if path.exists() else ""

    def etcd_value(self, key: str) -> str | None:
        """A key's value; none if there is none, or no etcd answers."""
        for number in (1, 2, 3):
            answer = self.ask_etcd(number, "kv/range", {"key": base64.b64encode(key.encode()).decode()})
            if answer is not None:
                return base64.b64decode(answer["kvs"][0]["value"]).decode() if "kvs" in answer else None
        return None

    def etcd_leader(self) -> int:
        for number in (1, 2, 3):
            answer = self.ask_etcd(number, "maintenance/status", {})
            if answer is not None and answer["leader"] == answer["header"]["member_id"]:
                return number
        raise AssertionError("etcd has no leader")

    @staticmethod
    def ask_etcd(number: int, what: str, question: dict[str, str]) -> Any:
        body = json.dumps(question).encode()
        try:
            with urllib.request.urlopen(f"http://10.77.0.{number}:2379/v3/{what}", body, timeout=2) as answer:
                return json.load(answer)
        except OSError:
            return None

    def rows(self, name: str) -> int:
        path = self.run_dir(name) / "metrics.csv"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def events(self, name: str) -> str:
        path = self.run_dir(name) / "events.jsonl"
        return path.read_text(errors="replace") if path.exists() else ""

    def look(self) -> None:
        rows = max(self.rows(name) for name in ("c1", "c2") if name in self.hosts)
        now = time.monotonic()
        if rows > self.last_rows:
            self.longest_gap = max(self.longest_gap, now - self.last_row_at)
            self.last_rows, self.last_row_at = rows, now

    def wait(self, is_done: Callable[[], Any], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_done():
            self.look()
            assert time.monotonic() < deadline, f"not within {DEADLINE_S} s: {what}"
            time.sleep(0.02)

    def go_on(self, rows: int) -> None:
        begun = self.last_rows
        self.wait(lambda: self.last_rows >= begun + rows or self.is_over(), f"{rows} more rows")

    def is_over(self) -> bool:
        return any((self.run_dir(name) / "summary.json").exists() for name in ("c1", "c2") if name in self.hosts)

    def await_replicas(self) -> None:
        def is_whole() -> bool:
            view = [line for line in self.events(self.leader()).split("\n") if '"view"' in line][-1:]
            return self.is_over() or bool(view and " 0 replicas syncing" in view[0] and ", 3 servers" in view[0])
        self.wait(is_whole, "all replicas are in sync")

    def await_standby(self) -> None:
        def is_ready() -> bool:
            leader = self.leader()
            events = self.events(leader)
            standby = f"the standby at tcp://{self.hosts['c2' if leader == 'c1' else 'c1'].address}:{SCHEDULER_PORT} "
            return self.is_over() or events.rfind(standby + "has everything") > max(
                events.rfind(standby + "is silent"), events.rfind('"scheduler-restarted"'))
        self.wait(is_ready, "a standby is ready")

    # ---- faults

    def lose_leader(self, only_stops: bool, with_etcd: bool = False) -> str:
        self.await_standby()
        etcd = self.etcd_leader() if with_etcd else 0
        leader = self.leader()
        other = "c2" if leader == "c1" else "c1"
        before = self.events(other).count('"scheduler-restarted"')
        begun = time.monotonic()
        if with_etcd:
            self.hosts[f"e{etcd}"].kill("etcd")
        if only_stops:
            self.hosts[leader].signal("scheduler", signal.SIGSTOP)
        else:
            self.hosts.pop(leader).lose()
        self.wait(lambda: self.events(other).count('"scheduler-restarted"') > before and
                  '"view"' in self.events(other).rpartition('"scheduler-restarted"')[2], "another scheduler leads")
        self.gaps.append(time.monotonic() - begun)
        if with_etcd:
            self.start_etcd(etcd)
        if only_stops:
            self.hosts[leader].signal("scheduler", signal.SIGCONT)
        else:
            self.replace_standby(leader)
        return (f"{'stop of' if only_stops else 'loss of'} the leader {leader}"
                f"{f' and of the leading etcd e{etcd}' if with_etcd else ''}, {self.gaps[-1]:.1f} s to the next view")

    def lose_node(self, role: str, for_good: bool) -> str:
        if role == "server":
            self.await_replicas()
        name = self.random.choice([name for name in self.hosts if name[0] == role[0]])
        if for_good:
            self.hosts.pop(name).lose()
            self.start_node(role)
        else:
            self.hosts[name].kill(role)
            self.start_process(name, role)
        return f"{'loss of the host' if for_good else 'kill of the process'} {name}"

    def cut_off(self, role: str) -> str:
        if role == "server":
            self.await_replicas()
        name = self.random.choice([name for name in self.hosts if name[0] == role[0]])
        self.hosts[name].set_link(False)
        time.sleep(2)
        self.hosts[name].set_link(True)
        return f"{name} is cut off for 2 s"

    def kill_etcd(self) -> str:
        number = self.random.choice((1, 2, 3))
        self.hosts[f"e{number}"].kill("etcd")
        self.go_on(200)
        self.start_etcd(number)
        return f"kill of etcd {number}"

    def lose_etcd(self) -> str:
        name = self.random.choice(("e1", "e2", "e3"))
        self.hosts.pop(name).lose()
        return f"loss of the host {name}"

    def kill_standby(self) -> str:
        self.await_standby()
        name = "c2" if self.leader() == "c1" else "c1"
        self.hosts.pop(name).lose()
        self.replace_standby(name)
        return f"loss of the standby {name}"

    def play(self, faults: int) -> None:
        drawn = [lambda: self.lose_leader(False), lambda: self.lose_leader(False, with_etcd=True),
                 lambda: self.lose_leader(True), self.kill_standby, self.kill_etcd,
                 *(lambda role=role: self.lose_node(role, True) for role in ("server", "worker") for _ in range(3))]
        while len(drawn) < faults - 1:
            role = self.random.choice(("server", "worker"))
            drawn.append(self.random.choice((lambda role=role: self.lose_node(role, False),
                                             lambda role=role: self.cut_off(role))))
        self.random.shuffle(drawn)
        drawn.append(self.lose_etcd)  # two of three are left
        self.go_on(100)
        for number, fault in enumerate(drawn, 1):
            if self.is_over():
                raise AssertionError(f"the run ended after {number - 1} faults: give more --steps")
            print(f"{number}: step {self.last_rows}: {fault()}", flush=True)
            self.go_on(30)
        self.wait(self.is_over, "the run ends")

    def check(self) -> None:
        name = next(name for name in ("c1", "c2") if (self.run_dir(name) / "summary.json").exists())
        self.wait(lambda: self.hosts[name].processes["scheduler"].poll() is not None, "the scheduler ends")
        summary = json.loads((self.run_dir(name) / "summary.json").read_text())
        done = subprocess.run([self.pando, "train", "--serial", *map(str, JOB), "--steps", str(self.steps), "--run-dir",
                               self.folder / "serial"], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        serial = json.loads((self.folder / "serial/summary.json").read_text())
        print(f"hash {summary['weights_hash']}, serial {serial['weights_hash']}; "
              f"rollbacks {summary['rollbacks']}, rows {self.rows(name) - 1}, "
              f"missing {summary.get('missing_rows', 0)}; "
              f"leaders lost: "
              f"{', '.join(f'{gap:.1f} s' for gap in self.gaps)}; longest time without a row {self.longest_gap:.1f} s")
        assert summary["weights_hash"] == serial["weights_hash"], "the weights are not the serial ones"
        assert summary["rollbacks"] == 0, "the run went back"

    def tear_down(self) -> None:
        for host in self.hosts.values():
            for name in list(host.processes):
                host.kill(name)
            subprocess.run(["ip", "netns", "delete", host.space], check=False, capture_output=True)
            subprocess.run(["ip", "link", "delete", f"{host.space}o"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "delete", self.bridge], check=False, capture_output=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20000)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        world = World(options.pando, Path(name), options)
        try:
            world.build()
            world.play(options.faults)
            world.check()
        except AssertionError:
            shutil.copytree(name, f"{name}-kept", dirs_exist_ok=True)
            print(f"the hosts' disks and logs are in {name}-kept", file=sys.stderr)
            raise
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            world.tear_down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
