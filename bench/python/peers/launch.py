"""Runs one system on one workload: watches its progress and memory, and runs the events that are due."""
import math
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional

import processes
from progress import Progress
from systems import Command, Place, Run, System
from venvs import what_failed

LOOK_SECONDS = 0.02
MEMORY_SECONDS = 0.5
KILL_RETRY_SECONDS = 0.5
MIB = 1 << 20
# Steps are reported a little after they were made: a step that is reported within this time after a kill may be older.
IN_FLIGHT_SECONDS = 0.25


@dataclass
class Outcome:
    progress: Progress = field(default_factory=Progress)
    peak_worker_mib: float = 0.0  # resident, of the largest worker
    peak_total_mib: float = 0.0  # of all processes together, shared pages once
    kills: List[float] = field(default_factory=list)  # seconds of the monotonic clock
    correct: int = 0
    tested: int = 0
    kinds: Dict[str, int] = field(default_factory=dict)  # bytes
    weights: str = ""  # only of Pando's runs
    batches_begun: Optional[int] = None
    reason: str = ""  # why there are no figures

    def images_per_second(self, warm_up_samples: int) -> float:
        start, last = self.progress.reached(warm_up_samples), self.progress.last()
        if start is None or last <= warm_up_samples:
            return 0.0
        first = next(s for s in self.progress.samples if s >= warm_up_samples)
        return (last - first) / max(1e-9, self.progress.seconds[-1] - start) if last > first else 0.0

    def accuracy(self) -> float:
        return self.correct / self.tested if self.tested else 0.0

    def seconds_to_step(self, killed: float) -> Optional[float]:
        """Returns from a kill to the next step: to the end of the longest pause that begins in IN_FLIGHT_SECONDS."""
        steps = [seconds for seconds in self.progress.seconds if seconds > killed]
        pauses = [(end - start, end) for start, end in zip([killed, *steps], steps)
                  if start <= killed + IN_FLIGHT_SECONDS]
        return max(pauses)[1] - killed if pauses else None

    def seconds_between(self, first: int, last: int) -> Optional[float]:
        """Returns the time from the first number of samples to the last; None: one was not reached."""
        start, end = self.progress.reached(first), self.progress.reached(last)
        return None if start is None or end is None else end - start

    def seconds_lost(self, undisturbed: "Outcome") -> Optional[float]:
        """Returns the delay behind a run without a death, at the last samples that both runs reach."""
        if not self.kills:
            return None
        killed, target = self.progress.at(self.kills[0]), min(self.progress.last(), undisturbed.progress.last())
        seconds = [run.seconds_between(killed, target) for run in (self, undisturbed)]
        return None if None in seconds or target <= killed else seconds[0] - seconds[1]


@dataclass
class Event:
    """An action that is done once, at a point of the run. The action returns False if it is too early."""
    samples: int
    act: Callable[["Watch"], bool]
    is_done: bool = False


@dataclass
class ByTheClock:
    """The action of an event at the first step: a kill every `kill_every` seconds, until the last step or `seconds`.

    A kill waits until all workers train."""
    kill_every: float = math.inf
    seconds: float = math.inf
    due: float = 0.0  # the next kill

    def __call__(self, watch: "Watch") -> bool:
        out, now = watch.outcome, time.monotonic()
        first, target = out.progress.seconds[0], watch.run.samples(watch.run.workload.steps)
        watch.is_over = out.progress.last() >= target or now >= first + self.seconds
        self.due = self.due or first + self.kill_every
        if not watch.is_over and now >= self.due:
            self.due = now + (self.kill_every if kill_a_worker(watch) else KILL_RETRY_SECONDS)
        return watch.is_over


class Watch:
    """Follows one run until its processes end."""

    def __init__(self, system: System, run: Run, place: Place, events: List[Event]):
        self.system, self.run, self.place, self.events = system, run, place, events
        self.log, self.outcome, self.memory_at = system.log(run), Outcome(), 0.0
        self.children: List[subprocess.Popen] = []  # the run ends with them
        self.is_over = False  # all results are known, and running processes may be killed

    def start(self, command: Command) -> subprocess.Popen:
        with open(self.run.folder / "output.log", "ab") as out:
            child = subprocess.Popen(command.words, env=command.environment, cwd=self.run.folder, stdout=out,
                                     stderr=subprocess.STDOUT)
        if not command.is_background:
            self.children.append(child)
        return child

    def follow(self, time_limit_seconds: float) -> None:
        """Follows the run until all have ended, or it is over."""
        deadline = time.monotonic() + time_limit_seconds
        while not self.is_over and any(child.poll() is None for child in self.children):
            self.log.poll(self.outcome.progress)
            self.look_at_memory()
            for event in self.events:
                if not event.is_done and self.outcome.progress.last() >= event.samples:
                    event.is_done = event.act(self)
            if time.monotonic() > deadline:
                self.outcome.reason = f"did not end within {time_limit_seconds:.0f} s"
                return
            time.sleep(LOOK_SECONDS)
        self.log.poll(self.outcome.progress)

    def look_at_memory(self) -> None:
        if time.monotonic() < self.memory_at:
            return
        self.memory_at = time.monotonic() + MEMORY_SECONDS
        out, alive = self.outcome, processes.below(os.getpid())
        out.peak_total_mib = max(out.peak_total_mib, processes.proportional_bytes(alive) / MIB)
        for pid in self.system.worker_pids(self.run).values():
            out.peak_worker_mib = max(out.peak_worker_mib, processes.peak_resident_bytes(pid) / MIB)


def kill_a_worker(watch: Watch) -> bool:
    workers = watch.system.worker_pids(watch.run)
    if len(workers) < watch.run.workers_at_start():
        return False
    os.kill(workers[max(workers)], signal.SIGKILL)
    watch.outcome.kills.append(time.monotonic())
    return True


def execute(system: System, run: Run, place: Place, time_limit_seconds: float, events: List[Event]) -> Outcome:
    """Returns the run's outcome, with a `reason` if it failed. Leaves no process behind."""
    watch = Watch(system, run, place, events)
    try:
        for command in system.commands(run, place):
            watch.start(command)
        watch.follow(time_limit_seconds)
        codes = [child.poll() for child in watch.children]
    finally:
        processes.end_all()
    return judged(watch, codes)


def judged(watch: Watch, codes: List[Optional[int]]) -> Outcome:
    run, out, undone = watch.run, watch.outcome, [event for event in watch.events if not event.is_done]
    out.correct, out.tested, out.kinds = watch.system.result(run)
    out.weights, out.batches_begun = watch.system.weights(run), watch.system.batches_begun(run)
    target = run.samples(run.workload.steps)
    if out.reason or watch.is_over:
        return out
    bears_events = watch.events and not watch.system.is_pando()  # a peer's dead or leaving worker has another exit code
    if any(codes) and not (bears_events and out.progress.last() >= target):
        out.reason = f"exit {codes}: {said(run)}"
    elif out.progress.last() < target:
        out.reason = f"ended after {out.progress.last()} of {target} samples: {said(run)}"
    elif undone:
        out.reason = ("ended before all was done to it that was due: "
                      f"{len(undone)} of {len(watch.events)} events are left")
    return out


def said(run: Run) -> str:
    return what_failed(run.folder / "output.log")
