"""A run of `pando train` and the process that shows it, `pando view`, for the tests of this folder."""
import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Callable

DEADLINE_S = 300
POLL_S = 0.1
EXIT_COMPLETED, EXIT_INTERRUPTED = 0, 130
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
JOB = ["--model", "mlp", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=8000", "--set",
       "data.synthetic_test_samples=500", "--global-batch", "512", "--micro-batches", "4", "--optimizer", "adam",
       "--lr", "0.001", "--eval-every-steps", "100", "--snapshot-every", "200"]
PROCESSES = ["--steps", "1000000", "--workers", "2", "--servers", "2"]
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=(\S+)")


def get(address: str, path: str) -> http.client.HTTPResponse:
    """As a client without a browser. `address`: of the page, with the token."""
    found = ADDRESS.search(address)
    connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=DEADLINE_S)
    connection.request("GET", path, headers={"Authorization": f"Bearer {found[2]}"})
    return connection.getresponse()


def end_children_on_signals() -> None:
    """SIGTERM and SIGHUP end the test as an exception does: its `with` and `finally` blocks end its processes."""
    def leave(number: int, _: Any) -> None:
        for each in SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        sys.exit(128 + number)

    for number in SIGNALS:
        signal.signal(number, leave)


class ViewedRun:
    """The processes of a test. Each writes to files in `folder`."""

    def __init__(self, pando: str, folder: Path):
        self.pando, self.folder = pando, folder
        self.run_dir = folder / "run"
        self.processes: dict[str, subprocess.Popen] = {}
        self.may_end: set[str] = set()

    def start(self, name: str, *words: Any) -> subprocess.Popen:
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as err:
            process = subprocess.Popen([self.pando, *map(str, words)], stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=err, cwd=self.folder)
        self.processes[name] = process
        return process

    def start_training(self, *more: str) -> None:
        self.start("train", "train", *JOB, *PROCESSES, "--run-dir", self.run_dir, *more)
        self.wait(lambda: self.steps() > 0, "the run makes its first step")

    def start_viewer(self, name: str, *run_dirs: Path) -> str:
        """Returns the address of its page, with the token."""
        self.start(name, "view", *run_dirs, "--http", "127.0.0.1:0")
        self.wait(lambda: ADDRESS.search(self.output(name)), f"{name} prints its address")
        return ADDRESS.search(self.output(name))[0]

    def output(self, name: str, kind: str = "out") -> str:
        return (self.folder / f"{name}.{kind}").read_text(errors="replace")

    def command(self, *words: Any) -> str:
        done = subprocess.run([self.pando, *map(str, words)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=DEADLINE_S, cwd=self.folder)
        assert done.returncode == 0, f"pando {' '.join(map(str, words))}: {done.stdout}{done.stderr}"
        return done.stdout

    def steps(self) -> int:
        """Those of the last whole row in metrics.csv."""
        path = self.run_dir / "metrics.csv"
        rows = path.read_text().split("\n")[1:-1] if path.exists() else []
        return int(rows[-1].split(",")[0]) if rows else 0

    def wait(self, is_done: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + within_s
        while not is_done():
            assert time.monotonic() < deadline, f"not within {within_s} s: {what}"
            for name, process in self.processes.items():
                assert process.poll() is None or name in self.may_end, (
                    f"{name} has exited with {process.returncode}, before: {what}; "
                    f"{self.output(name)[-2000:]}{self.output(name, 'err')[-2000:]}")
            time.sleep(POLL_S)  # neither files nor a page can be waited for otherwise

    def await_end(self) -> None:
        """Waits for the end of a stopped run."""
        self.may_end.add("train")
        self.wait(lambda: self.processes["train"].poll() is not None, "the run ends")
        code = self.processes["train"].returncode
        assert code == EXIT_INTERRUPTED, f"a stopped run has exited with {code}: {self.output('train', 'err')[-2000:]}"

    def weights(self) -> tuple[int, str]:
        """The completed steps of a stopped run, and the hash of its weights."""
        said = self.command("export", self.run_dir, self.folder / "weights.safetensors")
        found = re.search(r"after (\d+) steps, weights_hash (\w+)", said)
        assert found, said
        return int(found[1]), found[2]

    def serial_hash(self, steps: int) -> str:
        """The hash of the same job's weights after N steps in one process, without a viewer."""
        self.command("train", *JOB, "--serial", "--steps", steps, "--run-dir", self.folder / "serial")
        return json.loads((self.folder / "serial/summary.json").read_text())["weights_hash"]

    def memory_peak_mb(self, name: str) -> float:
        status = Path(f"/proc/{self.processes[name].pid}/status").read_text()
        return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024

    def kill_all(self) -> None:
        """The run's other processes die with `pando train`."""
        for process in self.processes.values():
            process.kill()
            process.wait()


def main_with(description: str, play: Callable[[ViewedRun], None]) -> int:
    """The main function of a test that needs the program alone. `play` gets a run in a new folder, and however it
    ends, the run's processes end too."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pando", type=os.path.abspath)
    options = parser.parse_args()
    end_children_on_signals()
    with tempfile.TemporaryDirectory(prefix="pando-test-", ignore_cleanup_errors=True) as name:
        run = ViewedRun(options.pando, Path(name))
        try:
            play(run)
        finally:
            run.kill_all()
    return 0
