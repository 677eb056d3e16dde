"""A run whose steps stop, and what it says of that: for stalls_test.py."""
import ctypes
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Callable, Optional

DEADLINE_S = 180
POLL_S = 0.05
EXIT_COMPLETED = 0
STEPS, STEPS_BEFORE = 300, 20
JOB = ["--model", "mnist-cnn", "--dataset", "synthetic-digits", "--set", "data.synthetic_train_samples=1923", "--set",
       "data.synthetic_test_samples=500", "--global-batch", "128", "--optimizer", "adam", "--lr", "0.01", "--set",
       "eval.every_epochs=0", "--steps", str(STEPS)]
# A stall begins at the longer of these after the last step. It is named within NAMED_S of that. The tolerance: the
# scheduler counts from when it knows that a step is made, a heartbeat of 250 ms may be late by as much on two busy
# cores, and `pando status` takes up to 200 ms there.
STALL_MIN_S, USUAL_STEPS = 1.0, 10
NAMED_S, TOLERANCE_S = 1.0, 0.7
LOG_WORDS = ("no step for", "waits for")
PR_SET_PDEATHSIG = 1


def check(holds: bool, text: str) -> None:
    if not holds:
        raise AssertionError(text)


def die_with_parent() -> None:
    """In a child, before its program: the child ends with this test, however that ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@dataclass
class Stall:
    """The first name of a stall."""
    waiter: str
    waited_for: str
    what: str
    text: str
    log_line: str
    after_s: float  # since the last step; where that is not known, since the fault


class StalledRun:
    """The processes of a case. Each writes to files in `folder`."""

    def __init__(self, pando: str, folder: Path):
        self.pando, self.folder = pando, folder
        self.run_dir = folder / "run"
        self.processes: dict[str, subprocess.Popen] = {}
        self.environment = dict(os.environ)
        self.fault_at = 0.0  # of time.time()
        self.inside: tuple[str, ...] = ()  # the command that reaches the run's network

    def start(self, name: str, *words: Any, through: tuple = ()) -> subprocess.Popen:
        """`through`: a command that execs the words that follow it."""
        with (self.folder / f"{name}.out").open("wb") as out, (self.folder / f"{name}.err").open("wb") as err:
            process = subprocess.Popen(
                [str(word) for word in (*through, self.pando, *words)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=err, cwd=self.folder, env=self.environment, preexec_fn=die_with_parent)
        self.processes[name] = process
        return process

    def start_training(self, *more: Any, job: Optional[list[str]] = None) -> None:
        self.start("train", "train", *(job or JOB), "--run-dir", self.run_dir, *more)
        self.await_steps()

    def wait(self, is_done: Callable[[], Any], what: str, within_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + within_s
        while not is_done():
            for name, process in self.processes.items():
                check(process.poll() is None, f"{name} has exited with {process.poll()}, before: {what}; "
                                              f"{self.output(name)[-3000:]}")
            check(time.monotonic() < deadline, f"not within {within_s} s: {what}; {self.describe()}")
            time.sleep(POLL_S)  # neither files nor a status can be waited for otherwise

    def output(self, name: str) -> str:
        return "".join((self.folder / f"{name}.{kind}").read_text(errors="replace") for kind in ("out", "err"))

    def describe(self) -> str:
        events = self.run_dir / "events.jsonl"
        said = events.read_text(errors="replace")[-2000:] if events.exists() else "no events"
        return f"status {self.status()}; events\n{said}"

    def status(self) -> dict[str, Any]:
        """Empty while no scheduler answers."""
        done = subprocess.run([*self.inside, self.pando, "status", self.run_dir, "--json"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False, timeout=DEADLINE_S)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def process_of(self, node: str) -> int:
        """The process id of "worker 0"."""
        return next(each["pid"] for each in self.status()["nodes"] if each["name"] == node)

    def steps(self) -> list[tuple[int, float]]:
        """Returns from the whole rows in metrics.csv the step, and the seconds since the run began."""
        path = self.run_dir / "metrics.csv"
        rows = [row.split(",") for row in path.read_text().split("\n")[1:-1]] if path.exists() else []
        return [(int(row[0]), float(row[7])) for row in rows if row[2]]

    def await_steps(self, count: int = STEPS_BEFORE) -> None:
        """Waits for as many steps more than there are now."""
        goal = (self.steps() or [(0, 0.0)])[-1][0] + count
        self.wait(lambda: (self.steps() or [(0, 0.0)])[-1][0] >= goal, f"step {goal} is made")

    def usual_step_s(self) -> float:
        times = [elapsed for _, elapsed in self.steps()][-2 * STEPS_BEFORE:]
        return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0  # several are made known at once

    def mark_fault(self) -> None:
        """The fault begins. A run may have stalled before: at its start it waits for its processes."""
        self.fault_at = time.time()

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Those since the fault."""
        path = self.run_dir / "events.jsonl"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return [event for event in map(json.loads, lines) if event["event"] in names
                and datetime.fromisoformat(event["time"]).timestamp() >= self.fault_at]

    def await_stall(self) -> Stall:
        """The first name of the stall that the fault causes. The event says the same."""
        usual_s = self.usual_step_s()
        stall: dict[str, Any] = {}

        def is_named() -> bool:
            stall.update(self.status().get("stall", {}))
            return bool(stall)
        self.wait(is_named, "the stall is named")
        since_fault_s = time.time() - self.fault_at
        after_s = since_fault_s
        named = self.events("stalled")
        if named:  # its time does not depend on when this test looks
            node = named[0]["details"].get("node")
            check(node == stall["waited_for"], f"the event names another process: {named[0]}, {stall}")
            before = [elapsed for _, elapsed in self.steps() if 1000 * elapsed < named[0]["elapsed_ms"]]
            after_s = named[0]["elapsed_ms"] / 1000 - before[-1] if before else after_s
        limit_s = max(STALL_MIN_S, USUAL_STEPS * usual_s) + NAMED_S + TOLERANCE_S
        print(f"  named {after_s:.2f} s after the last step, and at most {since_fault_s:.2f} s after the fault; usual "
              f"steps of {1000 * usual_s:.0f} ms, limit {limit_s:.2f} s\n  {stall}", flush=True)
        check(after_s <= limit_s, f"it took {after_s:.2f} s to name the stall; limit {limit_s:.2f} s")
        return Stall(stall.get("waiter", ""), stall["waited_for"], stall["what"], stall["text"],
                     stall.get("log_line", ""), after_s)

    def await_length(self, seconds: float) -> None:
        self.wait(lambda: self.status().get("stall", {}).get("since_ms", 0) >= 1000 * seconds, f"it takes {seconds} s")

    def await_text(self, *parts: str) -> None:
        """Until the stall's text has these parts."""
        self.wait(lambda: all(part in self.status().get("stall", {}).get("text", "") for part in parts),
                  f"the stall's text has {parts}")

    def check_places(self, stall: Stall) -> None:
        """The events are a stall and its end, with one name, and the scheduler's log has it."""
        events = self.events("stalled", "stall-ended")
        names = [event["event"] for event in events]
        check(names[0] == "stalled" and names[-1] == "stall-ended", f"the events of the stall are {events}")
        nodes = {event["details"]["node"] for event in events[:names.index("stall-ended")]}
        check(nodes == {stall.waited_for}, f"until it ends the stall is named after {nodes}: {events}")
        for before, after in zip(events, events[1:]):
            check(before["event"] != "stall-ended" or after["elapsed_ms"] - before["elapsed_ms"] >= 1000 * STALL_MIN_S,
                  f"a stall begins as one ends: {before}, {after}")
        log = self.output(next(iter(self.processes))).splitlines()
        check(any(stall.waited_for in line and any(word in line for word in LOG_WORDS) for line in log),
              f"the log has no line about {stall.waited_for}: {log[-50:]}")

    def await_stall_end(self, main: str) -> None:
        self.wait(lambda: self.events("stall-ended") or self.processes[main].poll() is not None, "the stall ends")

    def await_end(self) -> dict[str, Any]:
        """Waits for the run's end. Returns its summary."""
        for name, process in self.processes.items():
            try:
                code = process.wait(DEADLINE_S)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"{name} does not end; {self.describe()}") from None
            check(code == EXIT_COMPLETED, f"{name} has exited with {code}: {self.output(name)[-3000:]}")
        return json.loads((self.run_dir / "summary.json").read_text())

    def kill_all(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()


class SerialRuns:
    """The hashes of jobs that one process trains without a fault."""

    def __init__(self, pando: str, folder: Path):
        self.pando, self.folder = pando, folder
        self.hashes: dict[tuple, str] = {}

    def hash_of(self, job: list[str]) -> str:
        key = tuple(job)
        if key not in self.hashes:
            run_dir = self.folder / f"serial-{len(self.hashes)}"
            done = subprocess.run([self.pando, "train", *job, "--serial", "--run-dir", run_dir], check=False, text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S)
            check(done.returncode == EXIT_COMPLETED, f"the serial run fails: {done.stderr}")
            self.hashes[key] = json.loads((run_dir / "summary.json").read_text())["weights_hash"]
        return self.hashes[key]
