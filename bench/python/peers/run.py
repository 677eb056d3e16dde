#!/usr/bin/env python3
"""run.py [setup | run] [--quick] [--out FOLDER] [--venvs FOLDER] [--systems A,B] [--workloads A,B] [--rounds N] ...

Pando beside the systems that people train with: the same model, batch and data through PyTorch DDP, torchft, Ray
Train, DeepSpeed (ZeRO 1, 2, 3) and Horovod, two workers of one thread each. `setup` makes their virtual environments
(PyPI; some 10 GB, and half an hour, of which Horovod's build takes ten minutes). `run` measures, in turns: images/s,
seconds per epoch, accuracy, memory, and what a worker killed with -9 costs. Leaves peers.json, which `pando bench
report` reads and plots, and peers.md. A system that does not install or run is in the table, with the reason. Images/s
and seconds need an idle machine.
"""
import argparse
import os
import sys
from dataclasses import dataclass
from typing import Dict, Iterator, List

import session as s
import venvs
from results import Plot, Point, ResultSet, Table, bars
from systems import SYSTEMS, System
from workloads import MNIST_CNN, RESNET18, TRAIN_SAMPLES, Workload

WORKLOADS = {w.name: w for w in (MNIST_CNN, RESNET18)}
QUICK_STEPS = {"mnist-cnn": 80, "resnet18": 12}
HELPERS = 2  # processes of a run besides its workers, at least: a launcher, a server, an agent


@dataclass
class Row:
    system: System
    point: Point
    reason: str = ""
    death_reason: str = ""


def measure(session: s.Session, workload: Workload, args) -> Iterator[List[Row]]:
    """What is known after each round."""
    rows = [Row(system, point_of(session, system, workload, args.workers)) for system in session.systems]
    for row in rows:
        row.reason = session.reasons.get(row.system.key, "")
        if args.workers > (row.system.workers_max or args.workers):
            row.reason = f"is for --workers {row.system.workers_max}"
    for turn in range(args.rounds):
        for row in s.turned([r for r in rows if not r.reason], turn):
            measure_once(session, workload, row, args)
            if row.reason:
                row.reason = f"round {turn + 1}: {row.reason}"
        print(f"{workload.name}: round {turn + 1} of {args.rounds}", file=sys.stderr)
        yield rows


def point_of(session: s.Session, system: System, workload: Workload, workers: int) -> Point:
    return Point(f"{workload.name}: {system.title}",
                 {"system": system.title, "workload": workload.title, "workers": str(workers),
                  "batch per worker": str(workload.batch), "steps": str(workload.steps),
                  "version": session.versions.get(system.key, "none")},
                 is_oversubscribed=workers + HELPERS > len(os.sched_getaffinity(0)))


def measure_once(session: s.Session, workload: Workload, row: Row, args) -> None:
    calm = session.run(row.system, workload, args.workers)
    if calm.reason:
        row.reason = calm.reason
        return
    s.note_outcome(row.point, calm, workload, args.workers)
    if args.no_deaths:
        return
    death = session.run(row.system, workload, args.workers, has_death=True)
    row.death_reason = row.death_reason or death.reason
    for metric, seconds in ((s.LOST, death.seconds_lost(calm)), (s.TO_PROGRESS, death.seconds_to_progress())):
        if seconds is not None and not death.reason:
            row.point.add(*metric, seconds)
        elif not death.reason:
            row.death_reason = f"of one run it is not known what was {metric[0]}"


def speeds_table(workload: Workload, rows: List[Row], args) -> Table:
    best = max((s.median(r.point, s.IMAGES) for r in rows if not r.system.is_pando()), default=0.0)
    header = ["system", "version", "images/s", "÷ the best peer's", "s per epoch", "test accuracy", "MiB of a worker",
              "MiB in all"]
    lines = []
    for row in rows:
        p = row.point
        ratio = f"{s.median(p, s.IMAGES) / best:.2f}" if best and s.median(p, s.IMAGES) else "-"
        lines.append([row.system.title, p.parameters["version"], p.cell(*s.IMAGES), ratio, p.cell(*s.EPOCH),
                      p.cell(*s.ACCURACY, 4), p.cell(*s.WORKER_MEMORY, 0), p.cell(*s.TOTAL_MEMORY, 0)])
    note = (f"p50 (min-max) of interleaved rounds. {args.workers} workers of one thread, {workload.batch} samples each "
            f"a step, {workload.steps} steps, the first {workload.warm_up} of which do not count. An epoch is "
            f"{TRAIN_SAMPLES[workload.dataset]} samples at that speed. Accuracy after these steps on "
            f"{workload.test_limit or 10000} test pictures. Of a worker: the most resident memory (VmHWM); in all: "
            "the most of all processes at once, shared pages once (PSS, every 0.5 s).")
    return Table(f"{workload.title}: speed and memory", header, lines, note + reasons(rows, "reason"))


def deaths_table(workload: Workload, rows: List[Row]) -> Table:
    lines = [[row.system.title, row.point.cell(*s.LOST, 2), row.point.cell(*s.TO_PROGRESS, 2)] for row in rows]
    note = (f"A worker is killed with -9 at step {workload.kill_at} of {workload.steps}; snapshots "
            f"(checkpoints, commits) every {workload.snapshot_every} steps. Lost: the delay at the last step, counted "
            "in samples, beside the run without a death in the same round. New progress: the first samples beyond "
            "those learnt when it was killed.")
    return Table(f"{workload.title}: a worker killed", ["system", "s lost at an equal later step", "s to new progress"],
                 lines, note + reasons(rows, "death_reason"))


def plots_of(workload: Workload, rows: List[Row]) -> List[Plot]:
    points = [(row.system.title, row.point) for row in rows]
    plots = [bars(f"peers-{workload.name}-speed", f"{workload.title}: images/s", s.IMAGES, points),
             bars(f"peers-{workload.name}-lost", f"{workload.title}: {s.LOST[0]}", s.LOST, points)]
    return [plot for plot in plots if plot.series]


def reasons(rows: List[Row], which: str) -> str:
    said = [f"{row.system.title}: {getattr(row, which)}" for row in rows if getattr(row, which)]
    return " **Without figures, or without all of them:** " + "; ".join(said) + "." if said else ""


def run(args) -> int:
    workloads = [WORKLOADS[name] for name in args.workloads.split(",")]
    if args.quick:
        args.rounds, workloads = 1, [s.quick(w, QUICK_STEPS[w.name]) for w in workloads]
    session = s.Session.of(args, [x for x in SYSTEMS if args.workers <= (x.workers_max or args.workers)])
    s.check_data(session.place, workloads)
    options: Dict[str, str] = {"rounds": str(args.rounds), "workers": str(args.workers),
                               "quick": str(args.quick).lower()}
    results = ResultSet("peers", "Pando beside the systems that people train with", options, [], [])
    for workload in workloads:
        points, tables, plots = results.points, results.tables, results.plots  # of the workloads before
        for rows in measure(session, workload, args):
            results.points = points + [row.point for row in rows]
            results.tables = tables + [speeds_table(workload, rows, args)]
            results.tables += [] if args.no_deaths else [deaths_table(workload, rows)]
            results.plots = plots + plots_of(workload, rows)
            results.write(args.out)
    results.tables.append(s.layouts_table(session))
    results.write(args.out)
    print(results.as_markdown())
    session.clean()
    return 0 if any(point.samples for point in results.points) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["setup", "run"], default="run")
    s.add_options(parser, "peers")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="between commas [%(default)s]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-deaths", action="store_true", help="kill no worker")
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
