"""Runs one system on one workload: watches its progress and memory, and does to it what is due on the way."""
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
MIB = 1 << 20
# Steps are reported a little after they were made: those reported within this time after a kill may be older.
IN_FLIGHT_SECONDS = 0.25


@dataclass
class Outcome:
    progress: Progress = field(default_factory=Progress)
    peak_worker_mib: float = 0.0  # resident, of the largest worker
    peak_total_mib: float = 0.0  # of all processes together, shared pages once
    killed_seconds: Optional[float] = None
    correct: int = 0
    tested: int = 0
    kinds: Dict[str, int] = field(default_factory=dict)  # bytes
    weights: str = ""  # of a run of Pando's
    reason: str = ""  # why there are no figures

    def images_per_second(self, warm_up_samples: int) -> float:
        start, last = self.progress.reached(warm_up_samples), self.progress.last()
        if start is None or last <= warm_up_samples:
            return 0.0
        first = next(s for s in self.progress.samples if s >= warm_up_samples)
        return (last - first) / max(1e-9, self.progress.seconds[-1] - start) if last > first else 0.0

    def accuracy(self) -> float:
        return self.correct / self.tested if self.tested else 0.0

    @property
    def killed_samples(self) -> int:
        return self.progress.at(self.killed_seconds)

    def seconds_to_progress(self) -> Optional[float]:
        """From the kill to new progress: the delay of the samples that IN_FLIGHT_SECONDS bring without a death."""
        out, killed = self.progress, self.killed_seconds
        if killed is None or self.killed_samples <= out.samples[0]:
            return None
        first = out.samples[len(out.samples) // 20]  # the first steps are slower
        if self.killed_samples <= first:
            first = out.samples[0]
        before = (self.killed_samples - first) / (out.reached(self.killed_samples) - out.reached(first))
        target = next((n for n in out.samples if n > self.killed_samples + before * IN_FLIGHT_SECONDS), None)
        return None if target is None else out.reached(target) - killed - (target - self.killed_samples) / before

    def seconds_lost(self, undisturbed: "Outcome") -> Optional[float]:
        """Delay at the last samples that both runs reach, beside a run without a death."""
        if self.killed_seconds is None:
            return None
        target = min(self.progress.last(), undisturbed.progress.last())
        ends = [run.progress.reached(target) for run in (self, undisturbed)]
        starts = [run.progress.reached(self.killed_samples) for run in (self, undisturbed)]
        if None in (*ends, *starts) or target <= self.killed_samples:
            return None
        return (ends[0] - starts[0]) - (ends[1] - starts[1])


@dataclass
class Event:
    """Done once, when the run has come so far. The action returns False if it is too early."""
    samples: int
    act: Callable[["Watch"], bool]
    is_done: bool = False


class Watch:
    """Follows one run until its processes end."""

    def __init__(self, system: System, run: Run, place: Place, events: List[Event]):
        self.system, self.run, self.place, self.events = system, run, place, events
        self.log, self.outcome, self.memory_at = system.log(run), Outcome(), 0.0
        self.children: List[subprocess.Popen] = []  # whose end is the run's

    def start(self, command: Command) -> subprocess.Popen:
        with open(self.run.folder / "output.log", "ab") as out:
            child = subprocess.Popen(command.words, env=command.environment, cwd=self.run.folder, stdout=out,
                                     stderr=subprocess.STDOUT)
        if not command.is_background:
            self.children.append(child)
        return child

    def follow(self, time_limit_seconds: float) -> None:
        """Until all have ended."""
        deadline = time.monotonic() + time_limit_seconds
        while any(child.poll() is None for child in self.children):
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
    if not workers:
        return False
    os.kill(workers[max(workers)], signal.SIGKILL)
    watch.outcome.killed_seconds = time.monotonic()
    return True


def execute(system: System, run: Run, place: Place, time_limit_seconds: float, events: List[Event]) -> Outcome:
    """What the run measured; `reason` where it failed. Nothing it started is left."""
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
    out.weights = watch.system.weights(run)
    target = run.workload.steps * run.workload.batch * run.workers
    if out.reason:
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
