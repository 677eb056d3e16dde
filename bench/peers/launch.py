"""Runs one system on one workload: watches its progress and memory, kills a worker if the run is to have a death."""
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from typing import Dict, List, Optional

import processes
from progress import Progress
from systems import Place, Run, System

LOOK_SECONDS = 0.02
MEMORY_SECONDS = 0.5
MIB = 1 << 20


@dataclass
class Outcome:
    progress: Progress = field(default_factory=Progress)
    peak_worker_mib: float = 0.0  # resident, of the largest worker
    peak_total_mib: float = 0.0  # of all processes together, shared pages once
    killed_seconds: Optional[float] = None
    killed_samples: int = 0
    correct: int = 0
    tested: int = 0
    kinds: Dict[str, int] = field(default_factory=dict)  # bytes
    reason: str = ""  # why there are no figures

    def images_per_second(self, warm_up_samples: int) -> float:
        start, last = self.progress.reached(warm_up_samples), self.progress.last()
        if start is None or last <= warm_up_samples:
            return 0.0
        first = next(s for s in self.progress.samples if s >= warm_up_samples)
        return (last - first) / max(1e-9, self.progress.seconds[-1] - start) if last > first else 0.0

    def accuracy(self) -> float:
        return self.correct / self.tested if self.tested else 0.0

    def seconds_to_progress(self) -> Optional[float]:
        """From the kill to the first samples beyond those learnt by then."""
        if self.killed_seconds is None:
            return None
        reached = self.progress.after(self.killed_seconds + LOOK_SECONDS)
        return None if reached is None else reached - self.killed_seconds

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


class Watch:
    """Follows one run until its processes end."""

    def __init__(self, system: System, run: Run, time_limit_seconds: float):
        self.system, self.run, self.time_limit_seconds = system, run, time_limit_seconds
        self.log, self.outcome, self.memory_at = system.log(run), Outcome(), 0.0
        self.kill_samples = run.workload.kill_at * run.workload.batch * run.workers

    def follow(self, children: List[subprocess.Popen]) -> None:
        """Until all have ended. REQUIRES: they are this process's children."""
        deadline = time.monotonic() + self.time_limit_seconds
        while any(child.poll() is None for child in children):
            self.log.poll(self.outcome.progress)
            self.look_at_memory()
            self.kill_if_due()
            if time.monotonic() > deadline:
                self.outcome.reason = f"did not end within {self.time_limit_seconds:.0f} s"
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

    def kill_if_due(self) -> None:
        out = self.outcome
        if not self.run.has_death or out.killed_seconds is not None or out.progress.last() < self.kill_samples:
            return
        workers = self.system.worker_pids(self.run)
        if workers:
            os.kill(workers[max(workers)], signal.SIGKILL)
            out.killed_seconds, out.killed_samples = time.monotonic(), out.progress.last()


def execute(system: System, run: Run, place: Place, time_limit_seconds: float) -> Outcome:
    """What the run measured; `reason` where it failed. Nothing it started is left."""
    commands = system.commands(run, place)
    watch = Watch(system, run, time_limit_seconds)
    with open(run.folder / "output.log", "wb") as out:
        children = [subprocess.Popen(c.words, env=c.environment, cwd=run.folder, stdout=out, stderr=subprocess.STDOUT)
                    for c in commands]
        foreground = [child for child, c in zip(children, commands) if not c.is_background]
        try:
            watch.follow(foreground)
            codes = [child.poll() for child in foreground]
        finally:
            processes.end_all()
    return judged(watch, codes)


def judged(watch: Watch, codes: List[Optional[int]]) -> Outcome:
    run, out = watch.run, watch.outcome
    out.correct, out.tested, out.kinds = watch.system.result(run)
    target = run.workload.steps * run.workload.batch * run.workers
    if out.reason:
        return out
    if any(codes) and not (run.has_death and out.progress.last() >= target):
        out.reason = f"exit {codes}: {said(run)}"
    elif out.progress.last() < target:
        out.reason = f"ended after {out.progress.last()} of {target} samples: {said(run)}"
    elif run.has_death and out.killed_seconds is None:
        out.reason = "ended before a worker could be killed"
    return out


def said(run: Run) -> str:
    from venvs import last_lines
    return last_lines(run.folder / "output.log")
