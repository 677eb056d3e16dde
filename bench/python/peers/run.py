#!/usr/bin/env python3
"""run.py [setup | run] [--quick] [--out FOLDER] [--venvs FOLDER] [--systems A,B] [--workloads A,B] [--rounds N] ...

Pando beside the systems that people train with: the same model, batch and data through PyTorch DDP, torchft, Ray
Train, DeepSpeed (ZeRO 1, 2, 3) and Horovod, two workers of one thread each. `setup` makes their virtual environments
(PyPI; some 10 GB, and half an hour, of which Horovod's build takes ten minutes). `run` measures, in turns: images/s,
seconds per epoch, accuracy, memory, and what a worker killed with -9 costs. With --kill-every it measures instead the
cost of repeated kills: each system trains for --minutes, and then as many steps again under kills.

Leaves peers.json or kills.json, the same as .md, and plots (python3-matplotlib). A system that does not install or run
is in the table, with the reason. Images/s and seconds need an idle machine.
"""
import argparse
import sys
from dataclasses import replace
from typing import Dict, Iterator, List, Tuple

import session as s
import page
import venvs
from launch import ByTheClock, Event
from results import BenchError, Plot, ResultSet, Table, bars
from session import Row
from systems import SYSTEMS
from workloads import MNIST_CNN, RESNET18, TRAIN_SAMPLES, Workload

WORKLOADS = {w.name: w for w in (MNIST_CNN, RESNET18)}
QUICK_STEPS = {"mnist-cnn": 80, "resnet18": 12}
STEPS_MAX = 10**6  # for a run that ends by the clock
NEXT_STEP = ("Next step: the end of the longest pause that begins within 0.25 s of the kill; steps that are computed "
             "again do not count.")


def measure_once(session: s.Session, row: Row, args) -> None:
    workload = row.workload
    calm = session.run(row.system, workload, args.workers)
    if calm.reason:
        row.reason = calm.reason
        return
    s.note_outcome(row.point, calm, workload, args.workers)
    if args.no_deaths:
        return
    death = session.run(row.system, workload, args.workers, has_death=True)
    row.death_reason = row.death_reason or death.reason
    to_step = death.seconds_to_step(death.kills[0]) if death.kills else None
    for metric, seconds in ((s.LOST, death.seconds_lost(calm)), (s.TO_STEP, to_step)):
        if seconds is not None and not death.reason:
            row.point.add(*metric, seconds)
        elif not death.reason:
            row.death_reason = f"of one run it is not known what was {metric[0]}"


def measure_kills(session: s.Session, row: Row, args) -> None:
    workload = row.workload
    if not row.system.is_pando():
        workload = replace(workload, snapshot_every=workload.checkpoint_every)
    calm = session.run_with(row.system, replace(workload, steps=STEPS_MAX), args.workers,
                            [Event(1, ByTheClock(seconds=60 * args.minutes))])
    samples = workload.batch * args.workers
    workload = replace(workload, steps=calm.progress.last() // samples)
    if calm.reason or workload.steps < 2:
        row.reason = calm.reason or f"made {workload.steps} steps in {args.minutes:g} minutes"
        return
    killed = session.run_with(row.system, workload, args.workers, [Event(1, ByTheClock(args.kill_every))])
    first, last = samples, samples * workload.steps
    without, total = (run.seconds_between(first, last) for run in (calm, killed))
    row.point.add(*s.IMAGES, (last - first) / without)
    if killed.reason:
        row.death_reason = killed.reason
        return
    row.point.add(*s.KILLED_IMAGES, (last - first) / total)
    row.point.add(*s.TIMES, total / without)
    row.point.add(*s.KILLS, len(killed.kills))
    if killed.kills and killed.batches_begun is not None:
        wasted = killed.batches_begun / args.workers - killed.progress.last() / samples
        row.point.add(*s.WASTED, wasted / len(killed.kills))
    for seconds in map(killed.seconds_to_step, killed.kills):
        if seconds is not None:
            row.point.add(*s.TO_STEP, seconds)


def speeds_table(workload: Workload, rows: List[Row], args) -> Table:
    best = max((r.point.median(s.IMAGES[0]) for r in rows if not r.system.is_pando()), default=0.0)
    header = ["system", "version", *s.speed_header("÷ the best peer's")]
    lines = [[row.system.title, row.point.parameters["version"],
              *s.speed_cells(row.point, best and row.point.median(s.IMAGES[0]) / best)] for row in rows]
    note = (f"p50 (min-max) of interleaved rounds. {args.workers} workers of one thread, {workload.batch} samples each "
            f"a step, {workload.steps} steps, the first {workload.warm_up} of which do not count. An epoch is "
            f"{TRAIN_SAMPLES[workload.dataset]} samples at that speed. Accuracy after these steps on "
            f"{workload.test_limit or 10000} test pictures. Of a worker: the most resident memory (VmHWM); in all: "
            "the most of all processes at once, shared pages once (PSS, every 0.5 s).")
    return Table(f"{workload.title}: speed and memory", header, lines, note + s.reasons(rows))


def deaths_table(workload: Workload, rows: List[Row]) -> Table:
    lines = [[row.system.title, row.point.cell(*s.LOST, 2), row.point.cell(*s.TO_STEP, 2)] for row in rows]
    note = (f"A worker is killed with -9 at step {workload.kill_at} of {workload.steps}; snapshots "
            f"(checkpoints, commits) every {workload.snapshot_every} steps. Lost: the delay at the last step, counted "
            f"in samples, beside the run without a death in the same round. {NEXT_STEP}")
    header = ["system", "s lost at an equal later step", "s to the next step"]
    return Table(f"{workload.title}: a worker killed", header, lines, note)


def kills_table(workload: Workload, rows: List[Row], args) -> Table:
    metrics = ((s.IMAGES, 1), (s.KILLED_IMAGES, 1), (s.TIMES, 2), (s.KILLS, 0), (s.WASTED, 2), (s.TO_STEP, 2))
    lines = [[row.system.title, row.point.parameters["version"],
              *(row.point.cell(*metric, digits) for metric, digits in metrics)] for row in rows]
    note = (f"p50 (min-max). {args.workers} workers of one thread, {workload.batch} samples each a step. A system "
            f"trains for {args.minutes:g} minutes, and then as many steps while a worker is killed with -9 every "
            f"{args.kill_every:g} s, or later, once all workers train. Times are from the first step to the last. "
            f"Checkpoints of peers: every {workload.checkpoint_every} steps. Wasted steps: micro-batches begun, less "
            f"those of the run's steps. {NEXT_STEP}")
    header = ["system", "version", "images/s", "images/s with kills", "total time with kills ÷ without", "kills",
              "wasted steps per kill", "s to the next step"]
    return Table(f"{workload.title}: a kill every {args.kill_every:g} s", header, lines, note + s.reasons(rows))


def tables_of(workload: Workload, rows: List[Row], args) -> List[Table]:
    if args.kill_every:
        return [kills_table(workload, rows, args)]
    return [speeds_table(workload, rows, args)] + ([] if args.no_deaths else [deaths_table(workload, rows)])


def plots_of(workload: Workload, rows: List[Row], args) -> List[Plot]:
    points = [(row.system.title, row.point) for row in rows]
    if args.kill_every:
        return [bars(f"kills-{workload.name}", f"{workload.title}: {s.TIMES[0]}", s.TIMES, points)]
    plots = [bars(f"peers-{workload.name}-speed", f"{workload.title}: images/s", s.IMAGES, points),
             bars(f"peers-{workload.name}-lost", f"{workload.title}: {s.LOST[0]}", s.LOST, points)]
    return [plot for plot in plots if plot.series]


def parts(session: s.Session, workload: Workload, rows: List[Row], args) -> Iterator[Tuple[List[Table], List[Plot]]]:
    once = measure_kills if args.kill_every else measure_once
    for _ in s.in_rounds(rows, args.rounds, lambda row: once(session, row, args)):
        yield tables_of(workload, rows, args), plots_of(workload, rows, args)


def run(args) -> int:
    workloads = [WORKLOADS[name] for name in args.workloads.split(",")]
    if args.quick:
        args.rounds, workloads = 1, [s.quick(w, QUICK_STEPS[w.name]) for w in workloads]
    session = s.Session.of(args, [x for x in SYSTEMS if args.workers <= (x.workers_max or args.workers)])
    s.check_data(session.place, workloads)
    options: Dict[str, str] = {"rounds": str(args.rounds), "workers": str(args.workers),
                               "quick": str(args.quick).lower()}
    if args.kill_every:
        options.update({"kill every": f"{args.kill_every:g} s", "minutes": f"{args.minutes:g}"})
    results = ResultSet("kills" if args.kill_every else "peers", "Pando beside the systems that people train with",
                        options, [], [])
    for workload in workloads:
        rows = s.rows_of(session, [(workload, args.workers)])
        s.record(results, rows, parts(session, workload, rows, args), args.out)
    measured = s.finish(results, session, args.out)
    draw(args.out)
    return 0 if measured else 1


def draw(folder) -> None:
    try:
        print(page.write_report(folder), file=sys.stderr)
    except BenchError as error:
        print(f"no plots: {error}", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["setup", "run"], default="run")
    s.add_options(parser, "peers")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="between commas [%(default)s]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-deaths", action="store_true", help="kill no worker")
    parser.add_argument("--kill-every", type=float, default=0.0, metavar="SECONDS", help="kill worker after worker")
    parser.add_argument("--minutes", type=float, default=5.0, help="with --kill-every: of the run without kills [5]")
    parser.add_argument("--python", default=sys.executable,
                        help="with setup: makes the environments; needs its headers")
    args = parser.parse_args()
    unknown = [name for name in args.workloads.split(",") if name not in WORKLOADS]
    if unknown:
        parser.error(f"--workloads: there is no '{unknown[0]}'; there are {', '.join(WORKLOADS)}")
    if args.what == "setup":
        return venvs.setup(args.venvs.resolve(), args.python)
    return run(args)


if __name__ == "__main__":
    sys.exit(main())
