#!/usr/bin/env python3
"""run.py EXPERIMENT [--quick] [--out FOLDER] [--venvs FOLDER] [--systems A,B] [--rounds N] [--steps N] ...

The experiments of the papers, Pando beside the peers that install (bench/python/peers/run.py setup), each scaled
down by what it says where two cores demand it:

  small-pictures   MNIST + ResNet-50 and Fashion-MNIST + MobileNetV2, batch 32 per worker, 1 and 2 workers
  vgg16            VGG-16 with 100 classes, Adam, 64 per worker, weak scaling
  elastic          the MNIST CNN, batch 128, 30 epochs: workers that join and leave against a fixed number
  cifar-cnn        the CIFAR CNN, Adam with betas 0.8 and 0.999, weight decay 3e-7, clip 1
  resnet101        ResNet-101 with 4 activation checkpoints, 1, 2, 4 workers: time, and memory by kind over one step
  all              one after the other

Leaves papers-EXPERIMENT.json, which `pando bench report` reads and plots, and .md. Times need an idle machine.
"""
import argparse
import os
import sys
from dataclasses import dataclass, field, replace
from typing import Dict, Iterator, List, Set

import elastic
import planned_memory
from experiments import EXPERIMENTS, QUICK_STEPS, Experiment, write_hundred_classes
import session as s  # bench/python/peers, whose place the modules above make known
from launch import Event, Outcome
from results import Plot, Point, ResultSet, Table, bars
from systems import SYSTEMS, System
from workloads import TRAIN_SAMPLES, Workload

# Of the usual ones: bench/python/peers compares them.
LEFT_OUT = ("ddp-compiled", "ddp-nccl", "pando-torch", "pando-torch1", "torch")
ELASTIC_EPOCHS = 30
RUN_TIME = ("whole run", "s")
MIB = 1 << 20
KINDS = ["parameters", "gradients", "optimizer", "activations", "other"]


@dataclass
class Row:
    system: System
    workload: Workload
    workers: int
    point: Point
    reason: str = ""
    weights: Set[str] = field(default_factory=set)  # at the end of its runs


def rows_of(session: s.Session, experiment: Experiment) -> List[Row]:
    rows = []
    for workload, workers in experiment.cases:
        for system in session.systems:
            parameters = {"system": system.title, "workload": workload.title, "workers": str(workers),
                          "batch per worker": str(workload.batch), "steps": str(workload.steps),
                          "version": session.versions.get(system.key, "none")}
            point = Point(f"{workload.title}, {workers} workers: {system.title}", parameters,
                          workers + 2 > len(os.sched_getaffinity(0)))
            rows.append(Row(system, workload, workers, point, session.reasons.get(system.key, "")))
    return rows


def compare(session: s.Session, experiment: Experiment, rounds: int) -> Iterator[List[Table]]:
    """Speed, memory, and of several numbers of workers the efficiency of weak scaling; after each round."""
    rows = rows_of(session, experiment)
    session.points += [row.point for row in rows]
    for turn in range(rounds):
        for row in s.turned([r for r in rows if not r.reason], turn):
            outcome = session.run(row.system, row.workload, row.workers)
            row.reason = outcome.reason
            if not outcome.reason:
                s.note_outcome(row.point, outcome, row.workload, row.workers)
                note_kinds(session, row, outcome)
        kinds = [kinds_table(rows)] if any(row.workload.memory_kinds for row in rows) else []
        yield [speeds_table(experiment, rows), *kinds]


def note_kinds(session: s.Session, row: Row, outcome: Outcome) -> None:
    kinds = outcome.kinds
    if row.workload.memory_kinds and row.system.is_pando():
        kinds = planned_memory.by_kind(session.place.pando, row.workload)
    for kind, size in kinds.items():
        row.point.add(f"memory: {kind}", "MiB", size / MIB)


def efficiency(row: Row, rows: List[Row]) -> str:
    """Images/s by those of one worker times the workers."""
    alone = next((r for r in rows if r.system is row.system and r.workload is row.workload and r.workers == 1), None)
    one, all_of = (s.median(r.point, s.IMAGES) if r else 0.0 for r in (alone, row))
    return f"{all_of / one / row.workers:.2f}" if one and all_of else "-"


def speeds_table(experiment: Experiment, rows: List[Row]) -> Table:
    header = ["workload", "workers", "system", "images/s", "efficiency", "s per epoch", "test accuracy",
              "MiB of a worker", "MiB in all"]
    lines = []
    for row in rows:
        p = row.point
        lines.append([row.workload.title, str(row.workers), row.system.title, p.cell(*s.IMAGES), efficiency(row, rows),
                      p.cell(*s.EPOCH), p.cell(*s.ACCURACY, 4), p.cell(*s.WORKER_MEMORY, 0),
                      p.cell(*s.TOTAL_MEMORY, 0)])
    steps = ", ".join(f"{w.steps} of {w.title}" for w in dict.fromkeys(w for w, _ in experiment.cases))
    note = (f"p50 (min-max) of interleaved rounds. Scaled: {experiment.scaled}. Steps: {steps}. Efficiency: of weak "
            "scaling, beside one worker. Memory of a worker: the most that was resident; in all: shared pages once.")
    return Table(f"{experiment.title}: speed and memory", header, lines, note + reasons(rows))


def reasons(rows: List[Row]) -> str:
    said = dict.fromkeys(f"{row.point.name}: {row.reason}" for row in rows if row.reason)
    return " **Without figures:** " + "; ".join(said) + "." if said else ""


def kinds_table(rows: List[Row]) -> Table:
    lines = [[str(row.workers), row.system.title, *(row.point.cell(f"memory: {kind}", "MiB", 0) for kind in KINDS)]
             for row in rows]
    note = ("MiB of one worker over one step. Peers: tensors counted after forward and backward, activations as the "
            "most that autograd kept at once, counted on the way; other: live tensors besides (buckets, flat copies, "
            "pictures). torchft's activations are not counted: a step outside its protocol cannot be made. Pando: what "
            "the plan of one computing thread allocates (pando model --memory-timeline), other: gradients of "
            "activations and scratch; its optimizer's state is on the servers (with allreduce, in each worker).")
    return Table("Memory by kind", ["workers", "system", *KINDS], lines, note)


def compare_elastic(session: s.Session, experiment: Experiment, rounds: int) -> Iterator[List[Table]]:
    """Each system with a fixed number of workers, and with one that comes and goes, in turns; after each round."""
    workload, workers = experiment.cases[0]
    fixed = rows_of(session, experiment)
    moving = [replace(row, point=replace(row.point, name=row.point.name + ", elastic", samples={}),
                      reason=row.reason or elastic.WHY_NOT.get(row.system.key, ""), weights=set()) for row in fixed]
    session.points += [row.point for row in fixed + moving]
    for turn in range(rounds):
        for row in s.turned([r for r in fixed + moving if not r.reason], turn):
            is_moving = any(row is r for r in moving)
            measure_elastic(session, row, events_of(row.system, workload, workers) if is_moving else [])
        yield [elastic_table(experiment, fixed, moving)]


def elastic_table(experiment: Experiment, fixed: List[Row], moving: List[Row]) -> Table:
    workload, workers = experiment.cases[0]
    header = ["system", "s, fixed", "s, elastic", "accuracy, fixed", "accuracy, elastic", "images/s, fixed",
              "images/s, elastic"]
    lines = [[a.system.title, *(row.point.cell(*metric, digits) for metric, digits in
                                ((RUN_TIME, 1), (s.ACCURACY, 4), (s.IMAGES, 0)) for row in (a, b))]
             for a, b in zip(fixed, moving)]
    note = (f"{workload.steps} steps of {workload.batch * workers} samples. Scaled: {experiment.scaled}. Fixed: 2 "
            "workers from beginning to end. From the first step's end to the last one's. Peers count samples: with one "
            "worker their step is half as large; Pando's is the same step" + weights_said(fixed + moving))
    return Table(experiment.title, header, lines, note + reasons(fixed + moving))


def weights_said(rows: List[Row]) -> str:
    """Of the runs with servers, which must not differ."""
    found = sorted(set().union(*(row.weights for row in rows if row.system.key in ("pando-ps", "pando-ps1"))))
    if not found:
        return "."
    if len(found) == 1:
        return f", and the weights of all runs with servers are the same bits ({found[0]})."
    return f". **The weights of its runs with servers differ: {', '.join(found)}.**"


def events_of(system: System, workload: Workload, workers: int) -> List[Event]:
    joins, leaves = elastic.ACTIONS[system.key]
    samples = workload.steps * workload.batch * workers
    return [Event(samples // 3, joins), Event(2 * samples // 3, leaves)]


def measure_elastic(session: s.Session, row: Row, events: List[Event]) -> None:
    outcome = session.run_with(row.system, row.workload, row.workers, events, absent_workers=1 if events else 0)
    row.reason = outcome.reason
    if not outcome.reason:
        s.note_outcome(row.point, outcome, row.workload, row.workers)
        row.point.add(*RUN_TIME, outcome.progress.seconds[-1] - outcome.progress.seconds[0])
        row.weights |= {outcome.weights} - {""}


def plots_of(experiment: Experiment, points: List[Point]) -> List[Plot]:
    """A plot for each workload; of the elastic runs one of their times."""
    metric = RUN_TIME if experiment.name == "elastic" else s.IMAGES
    return [bars(f"papers-{experiment.name}-{workload.name}", f"{workload.title}: {metric[0]}", metric,
                 [(point.name.removeprefix(f"{workload.title}, "), point) for point in points
                  if point.parameters["workload"] == workload.title])
            for workload in dict.fromkeys(workload for workload, _ in experiment.cases)]


def sized(workload: Workload, args, session: s.Session) -> Workload:
    """With the steps that were asked for, and data that are there."""
    if workload.name == "mnist-cnn-elastic":
        workload = replace(workload, steps=round(ELASTIC_EPOCHS * TRAIN_SAMPLES["mnist"] / 128))
    if args.steps:
        workload = replace(workload, steps=args.steps)
    if args.quick:
        workload = replace(s.quick(workload, QUICK_STEPS[workload.name]), warm_up=1, kill_at=0)
        workload = workload if workload.snapshot_every >= 100 else replace(workload, snapshot_every=0)
    if workload.dataset == "cifar100":
        folder = write_hundred_classes(session.place.data / "cifar-10-batches-bin", session.folder / "cifar-100-binary")
        workload = replace(workload, data_path=str(folder))
    return workload


def run_experiment(experiment: Experiment, args) -> ResultSet:
    session = s.Session.of(args, [system for system in SYSTEMS if system.key not in LEFT_OUT])
    s.check_data(session.place, [replace(w, dataset="cifar10") if w.dataset == "cifar100" else w
                                 for w, _ in experiment.cases])
    sizes: Dict[str, Workload] = {w.name: sized(w, args, session) for w, _ in experiment.cases}
    experiment = replace(experiment, cases=[(sizes[w.name], workers) for w, workers in experiment.cases])
    print(f"{experiment.name}: {experiment.title}\n  scaled: {experiment.scaled}", file=sys.stderr)
    results = ResultSet(f"papers-{experiment.name}", experiment.title,
                        {"rounds": str(args.rounds), "quick": str(args.quick).lower()}, session.points, [])
    compares = compare_elastic if experiment.name == "elastic" else compare
    for tables in compares(session, experiment, args.rounds):
        results.tables = tables + [s.layouts_table(session)]
        results.plots = plots_of(experiment, session.points)
        results.write(args.out)
    session.clean()
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"])
    s.add_options(parser, "papers-EXPERIMENT")
    parser.add_argument("--steps", type=int, default=0, help="of each run, instead of the experiment's")
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    measured = False
    for name in EXPERIMENTS if args.experiment == "all" else [args.experiment]:
        results = run_experiment(EXPERIMENTS[name], args)
        print(results.as_markdown(), flush=True)
        measured = measured or any(point.samples for point in results.points)
    return 0 if measured else 1


if __name__ == "__main__":
    sys.exit(main())
