"""A service manager's view of a run (docs/clusters.md): this test plays systemd with the sockets that units of
Type=notify get. It hangs the scheduler and restarts it by its watchdog, drains a node, and ends the run.

    tests/e2e/service_manager.py --pando PROGRAM
"""
import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

DEADLINE_S = 120
WATCHDOG_S = 2.0
EXIT_COMPLETED, EXIT_INTERRUPTED = 0, 130
JOB = ["--model", "mnist-cnn", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=2000", "--set",
       "data.synthetic_test_samples=500", "--global-batch", "128", "--steps", "1000000", "--set",
       "eval.every_epochs=0", "--workers", "2", "--servers", "2", "--set", "run.lease_ms=3000"]


class Service:
    """One process with a notification socket, as a unit starts it."""

    def __init__(self, folder: Path, name: str, words: list[str]):
        self.words = words
        self.log = folder / f"{name}.log"
        self.address = str(folder / f"{name}.notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.address)
        self.start()

    def start(self) -> None:
        self.drop_messages()
        variables = {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(int(WATCHDOG_S * 1e6))}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(["sh", "-c", 'WATCHDOG_PID=$$ exec "$@"', "sh", *self.words],
                                            env=os.environ | variables, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log)

    def receive(self, within_s: float = DEADLINE_S) -> str:
        """The next message; empty: none within that time."""
        self.socket.settimeout(within_s)
        try:
            return self.socket.recv(4096).decode()
        except TimeoutError:
            return ""

    def drop_messages(self) -> None:
        self.socket.setblocking(False)
        try:
            while True:
                self.socket.recv(4096)
        except BlockingIOError:
            pass

    def expect(self, part: str) -> None:
        while part not in (message := self.receive()):
            check(message != "", f"no {part} from {self.words[1]}; its log: {self.log.read_text()[-2000:]}")

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.socket.close()


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def variables_of(pid: int) -> str:
    return Path(f"/proc/{pid}/environ").read_text(errors="replace")


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def hang(scheduler: Service) -> None:
    """Stops it, sees its signs of life cease for the watchdog's timeout, and ends it as systemd does."""
    scheduler.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, scheduler.process.pid, os.WSTOPPED | os.WNOWAIT)
    scheduler.drop_messages()
    message = scheduler.receive(within_s=WATCHDOG_S)
    check(message == "", f"a stopped scheduler has sent {message!r}")
    scheduler.process.send_signal(signal.SIGABRT)
    check(scheduler.end(signal.SIGCONT) == -signal.SIGABRT, "the scheduler has not ended by SIGABRT")


def play(pando: str, folder: Path, services: list[Service]) -> None:
    def start(name: str, *words: str) -> Service:
        services.append(Service(folder, name, [pando, *words]))
        return services[-1]

    endpoint = f"ipc://{folder}/scheduler.ipc"
    scheduler = start("scheduler", "scheduler", *JOB, "--bind", endpoint, "--run-dir", str(folder / "run"))
    scheduler.expect("READY=1")
    nodes = [start(f"node-{i}", "node", "--join", endpoint, "--servers", "1", "--workers", "1", "--threads", "1")
             for i in range(2)]
    for node in nodes:
        node.expect("READY=1")
        node.expect("STATUS=2 processes train")
        node.expect("WATCHDOG=1")
        children = children_of(node.process.pid)
        check(len(children) == 2, f"a node has the children {children}")
        for child in children:
            for name in ("NOTIFY_SOCKET=", "WATCHDOG_PID=", "WATCHDOG_USEC="):
                check(name not in variables_of(child), f"a child has inherited {name}")
    scheduler.expect("WATCHDOG=1")
    hang(scheduler)
    scheduler.start()
    scheduler.expect("READY=1")
    scheduler.expect("STATUS=the scheduler has restarted")
    scheduler.expect("WATCHDOG=1")
    code = nodes[1].end(signal.SIGTERM)
    check(code == EXIT_COMPLETED, f"a drained node has ended with {code}: {nodes[1].log.read_text()[-2000:]}")
    nodes[1].expect("STOPPING=1")
    scheduler.expect("WATCHDOG=1")
    code = scheduler.end(signal.SIGTERM)
    check(code == EXIT_INTERRUPTED, f"the scheduler has ended with {code}: {scheduler.log.read_text()[-2000:]}")
    scheduler.expect("STOPPING=1")
    code = nodes[0].process.wait(DEADLINE_S)
    check(code == EXIT_COMPLETED, f"a node has ended with {code}: {nodes[0].log.read_text()[-2000:]}")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pando", required=True)
    options = parser.parse_args()
    services: list[Service] = []
    with tempfile.TemporaryDirectory(prefix="pando-test-") as folder:
        try:
            play(os.path.abspath(options.pando), Path(folder), services)
        finally:
            for service in services:
                service.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
