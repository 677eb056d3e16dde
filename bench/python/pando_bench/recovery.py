"""`pando bench recovery`: the cost of a dead process to a run, with servers and by allreduce."""

import datetime
import json
import os
import re
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Optional, Tuple

from flags import Flags, listed, number, one_of
from measure import Programs, Variant, measure_in_turns
from results import EXIT_FAILED, BenchError, Plot, Point, ResultSet, Table, bar, core_count, figures, number_text
from training import (TRANSPORTS, LineTail, TrainPlan, Workload, add_training_flags, join, processes, resolve,
                      training_runs)

HELP = ("how long a run waits for its next step when a process is killed or stopped, and what it loses in all: with "
        "servers, and by allreduce, which starts again from a snapshot")
TO_GOAL, NEXT_COMMIT, LOST = "time to the goal", "next commit", "lost"
LOST_OF_OWN_PACE, NOTICED, RECOVERED = "lost, of own pace", "noticed", "recovered"
VICTIM_RANK = 1  # rank 0 writes the log that is read
LOOK_SECONDS = 0.001  # the resolution of the fault's time


@dataclass(frozen=True)
class Fault:
    """A signal to a process of the run, as a user's kill sends it."""

    name: str
    role: str
    signal: int  # SIGKILL; SIGSTOP: the process is silent from then on


FAULTS = {**{role: Fault(f"{role} killed", role, signal.SIGKILL) for role in ("worker", "server", "scheduler")},
          **{f"stopped-{role}": Fault(f"{role} stopped", role, signal.SIGSTOP) for role in ("worker", "scheduler")}}


def add_flags(flags: Flags) -> None:
    add_training_flags(flags, ["mnist-cnn"], 5)
    flags.defaults["batch"] = (0, 16)
    flags.add("--fault", list(FAULTS), "which process is killed, or stopped for good, each in turn",
              listed(one_of(FAULTS)), ["worker", "server", "scheduler"])
    flags.add("--workers", 2, "how many workers of 1 thread", processes(2))
    flags.add("--servers", 2, "how many servers, with 2 replicas of each shard", processes(2))
    flags.add("--transport", "auto", "as pando train --transport", one_of(TRANSPORTS))
    steps = number(1, 1_000_000)
    flags.add("--snapshot-every", 200, "steps between snapshots", steps, 40)
    flags.add("--warm-up", 100, "steps before time is taken", steps, 10)
    flags.add("--at-step", 300, "committed steps at which the fault comes", steps, 60)
    flags.add("--steps-after", 1000, "steps from the fault to where the delay is taken", steps, 60)


def goal(args) -> int:
    return args.at_step + args.steps_after


# ---- a run as seen from outside --------------------------------------------------------------------------------------

COMMIT_LINE = re.compile(r" version (\d+) committed, at (\d+) us")


class Commits:
    """When a worker learned of each version, in seconds of the machine's steady clock. Only progress counts: a group
    that starts again from a snapshot makes versions a second time."""

    def __init__(self):
        self.all: List[Tuple[int, float]] = []  # (version, time), ascending

    def add(self, line: str) -> None:
        """Reads a line of a worker's log (pando worker -v); others are ignored."""
        found = COMMIT_LINE.search(line)
        if found and int(found[1]) > self.newest():
            self.all.append((int(found[1]), 1e-6 * int(found[2])))

    def newest(self) -> int:
        return self.all[-1][0] if self.all else 0

    def reached(self, version: int) -> Optional[float]:
        """Returns when this version or a later one was committed."""
        return next((at for known, at in self.all if known >= version), None)

    def longest_wait(self, since: float) -> Optional[float]:
        """Returns the longest time without a commit from `since` on. None without a commit after it."""
        times = [since] + [at for _, at in self.all if at > since]
        return max((later - earlier for earlier, later in zip(times, times[1:])), default=None)


def find_child(parent: int, role: str, rank: int) -> Optional[int]:
    """Finds a process that `parent` has started: "worker" and its rank, "server" and its rank, "scheduler"."""
    for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has just ended
            continue
        if words[1:2] == [role] and ("--rank" not in words or words[words.index("--rank") + 1] == str(rank)):
            return int(pid)
    return None


def read_fault(events: Path, injected_at: float) -> Dict[str, float]:
    """Returns when the run wrote that it had noticed a fault, and that it had recovered, in ms after `injected_at` (a
    UTC time in seconds). The run writes a fault again when it has more information."""
    said: Dict[str, float] = {}
    for line in events.read_text().splitlines() if events.exists() else []:
        try:
            event = json.loads(line)
            at = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()
            details = event["details"] if event["event"] == "fault" else {}
        except (ValueError, KeyError, TypeError):
            continue
        if at < int(1000 * injected_at) / 1000:
            continue
        for key, metric in (("detected_ms", NOTICED), ("recovered_ms", RECOVERED)):
            if isinstance(details.get(key), (int, float)):
                said.setdefault(metric, max(1000 * (at - injected_at), 0.0))
    return said


# ---- one run --------------------------------------------------------------------------------------------------------


@dataclass
class RecoveryPoint:
    point: Point
    plan: TrainPlan
    fault: Optional[Fault] = None
    undisturbed: str = ""  # the point without the fault; "": this is one


def recovery_points(args, workload: Workload, cores: int) -> List[RecoveryPoint]:
    points = []
    for strategy in args.strategy:
        plan = TrainPlan(workload, strategy, args.workers, args.servers, 2, args.transport,
                         args.workers * workload.worker_batch, args.snapshot_every, is_verbose=True)
        base = replace(plan.point(args.workers), is_oversubscribed=plan.process_count() > cores)
        calm = f"{strategy}, undisturbed"
        points.append(RecoveryPoint(replace(base, name=calm, samples={}), plan))
        for fault in (FAULTS[name] for name in args.fault):
            if strategy == "ps" or fault.role != "server":  # a group has no servers
                points.append(RecoveryPoint(replace(base, name=f"{strategy}, {fault.name}", samples={}), plan, fault,
                                            calm))
    return points


def add_figures(args, commits: Commits, fault_at: Optional[float], point: Point) -> None:
    """Adds the figures from one run's commits; `fault_at` is None without a fault."""
    start, fault_step, end = (commits.reached(version) for version in (args.warm_up, args.at_step, goal(args)))
    if start is None or fault_step is None or end is None:
        raise BenchError(f"worker 0 never reported step {goal(args)}", EXIT_FAILED)
    point.add(TO_GOAL, "s", end - start)
    if fault_at is None:
        return
    wait = commits.longest_wait(fault_at)
    if wait is not None:
        point.add(NEXT_COMMIT, "ms", 1000 * wait)
    step_s = (fault_step - start) / (args.at_step - args.warm_up)
    point.add(LOST_OF_OWN_PACE, "s", end - fault_step - step_s * args.steps_after)


def run_once(args, asked: RecoveryPoint, point: Point) -> None:
    """Makes one run, from its start to the goal."""
    commits, fault_at, injected_at = Commits(), None, 0.0
    with training_runs(args.program) as runs:
        run_dir = runs.start(asked.plan, ("--group-restarts", "1") if asked.plan.strategy == "allreduce" else ())
        log = LineTail(run_dir / "logs/worker-0.log")

        def has_reached(version: int) -> bool:
            for line in log.take():
                commits.add(line)
            return commits.newest() >= version

        runs.wait_for(lambda: has_reached(args.at_step), LOOK_SECONDS)
        if asked.fault:
            fault_at, injected_at = time.monotonic(), time.time()
            victim = find_child(runs.runs[0][1].pid, asked.fault.role, VICTIM_RANK)
            if victim is None:
                raise BenchError(f"the run has no {asked.fault.role} to send a signal to", EXIT_FAILED)
            os.kill(victim, asked.fault.signal)
        runs.wait_for(lambda: has_reached(goal(args)), LOOK_SECONDS)
        runs.stop()
        for metric, ms in (read_fault(run_dir / "events.jsonl", injected_at) if asked.fault else {}).items():
            point.add(metric, "ms", ms)
    add_figures(args, commits, fault_at, point)


# ---- all of them ----------------------------------------------------------------------------------------------------


def add_lost(asked: List[RecoveryPoint]) -> None:
    """Adds the time to the goal less that of the same round's undisturbed run."""
    by_name = {each.point.name: each.point for each in asked}
    for each in asked:
        if each.undisturbed:
            for hurt, calm in zip(each.point.of(TO_GOAL), by_name[each.undisturbed].of(TO_GOAL)):
                each.point.add(LOST, "s", hurt - calm)


def row_of(point: Point) -> List[str]:
    columns = ((NEXT_COMMIT, "p50"), (NEXT_COMMIT, "max"), (LOST, "p50"), (LOST, "min"), (LOST, "max"),
               (LOST_OF_OWN_PACE, "p50"), (NOTICED, "p50"), (RECOVERED, "p50"))
    return [point.marked_name(), *(number_text(figures(point.of(metric))[which]) if point.of(metric) else "-"
                                   for metric, which in columns)]


def add_summaries(args, asked: List[RecoveryPoint], results: ResultSet) -> None:
    points = [each.point for each in asked if each.fault]
    note = (
        "Next commit: the longest time without a new version, from the fault on. Lost: the delay at step "
        f"{goal(args)}, against the undisturbed run of the same round, and against the run's own pace before the "
        "fault; steps after the last snapshot are computed again. Noticed, recovered: as the run reports, after the "
        "fault; the restarted scheduler reports its own death. Medians. * more active processes than cores."
    )
    header = ["run", "next commit ms", "max", "lost s", "min", "max", "of own pace s", "noticed ms", "recovered ms"]
    results.tables.append(Table("What a fault costs", header, [row_of(point) for point in points], note))
    for name, title, unit, metric in (("next-commit", "The longest wait for a new version", "ms", NEXT_COMMIT),
                                      ("lost", "Delay at an equal later step", "s", LOST)):
        results.plots.append(Plot(f"recovery-{name}", title, f"{unit}, median and extremes", "none",
                                  [(point.name, bar(point.of(metric))) for point in points]))


def run(args, programs: Programs) -> ResultSet:
    if len(args.model) != 1:
        raise BenchError("--model: recovery takes one model")
    if args.warm_up >= args.at_step:
        raise BenchError("--at-step: the fault comes after the steps of --warm-up; raise it")
    workload = resolve(args, programs)[0]
    results = ResultSet("recovery", "What a dead process costs",
                        {"model": f"{workload.model} on {workload.data_text()}, batch {workload.worker_batch} a worker",
                         "workers": f"{args.workers} of 1 thread",
                         "servers": f"{args.servers}, 2 replicas, {args.transport}", "faults": join(args.fault),
                         "fault": f"after step {args.at_step}, with a snapshot every {args.snapshot_every}",
                         "time": f"from step {args.warm_up} to step {goal(args)}", "rounds": str(args.rounds)})
    asked = recovery_points(args, workload, core_count())
    variants = [Variant(each.point, lambda point, each=each: run_once(args, each, point)) for each in asked]
    results.points = measure_in_turns(variants, args.rounds)
    add_lost(asked)
    add_summaries(args, asked, results)
    return results
