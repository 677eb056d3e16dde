#!/usr/bin/env python3
"""run.py EXPERIMENT [--quick] [--out FOLDER] [--venvs FOLDER] [--systems A,B] [--rounds N] [--steps N] ...

The experiments of the papers, Pando beside the peers that install (bench/python/peers/run.py setup). Each is scaled
down where two cores demand it, and says by how much:

  small-pictures   MNIST + ResNet-50 and Fashion-MNIST + MobileNetV2, batch 32 per worker, 1 and 2 workers
  vgg16            VGG-16 with 100 classes, Adam, 64 per worker, weak scaling
  elastic          the MNIST CNN, batch 128, 30 epochs: workers that join and leave against a fixed number
  cifar-cnn        the CIFAR CNN, Adam with betas 0.8 and 0.999, weight decay 3e-7, clip 1
  resnet101        ResNet-101 with 4 activation checkpoints, 1, 2, 4 workers: time, and memory by kind over one step
  all              one after the other

Leaves papers-EXPERIMENT.json, which `pando bench report` reads and plots, and .md. Times need an idle machine.
"""
import argparse
import csv
import subprocess
import sys
import tempfile
from dataclasses import replace
from typing import Dict, Iterator, List

import elastic
from experiments import EXPERIMENTS, QUICK_STEPS, Experiment, write_hundred_classes
import session as s  # bench/python/peers; the modules above add its path
from launch import Event, Outcome
from results import Plot, Point, ResultSet, Table, bars
from session import Row
from systems import SYSTEMS, System
from workloads import TRAIN_SAMPLES, Workload

# Systems that are not compared here, because bench/python/peers compares them.
LEFT_OUT = ("ddp-compiled", "ddp-nccl", "pando-torch", "pando-torch1", "torch")
ELASTIC_EPOCHS = 30
RUN_TIME = ("whole run", "s")
MIB = 1 << 20
KINDS = ["parameters", "gradients", "optimizer", "activations", "other"]


def compare(session: s.Session, experiment: Experiment, rows: List[Row], rounds: int) -> Iterator[List[Table]]:
    """Yields after each round: speed, memory, and for several numbers of workers the efficiency of weak scaling."""
    def measure(row: Row) -> None:
        outcome = session.run(row.system, row.workload, row.workers)
        row.reason = outcome.reason
        if not outcome.reason:
            s.note_outcome(row.point, outcome, row.workload, row.workers)
            note_kinds(session, row, outcome)

    for _ in s.in_rounds(rows, rounds, measure):
        kinds = [kinds_table(rows)] if any(row.workload.memory_kinds for row in rows) else []
        yield [speeds_table(experiment, rows), *kinds]


def note_kinds(session: s.Session, row: Row, outcome: Outcome) -> None:
    kinds = outcome.kinds
    if row.workload.memory_kinds and row.system.is_pando():
        kinds = planned_memory(session.place.pando, row.workload)
    for kind, size in kinds.items():
        row.point.add(f"memory: {kind}", "MiB", size / MIB)


def planned_memory(pando: str, workload: Workload) -> Dict[str, int]:
    """Returns the bytes that Pando's plan of one step allocates: the most of each kind at any time of the step;
    kept_bytes are the bytes that batch norms keep for backward."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pando, "model", workload.model, "--batch", str(workload.batch), "--classes", str(workload.classes),
                   "--optimizer", workload.optimizer, "--momentum", str(workload.momentum), "--set",
                   f"train.activation_checkpointing={'true' if workload.checkpoints else 'false'}",
                   "--memory-timeline", f"{folder}/step"]
        subprocess.run(command, check=True, capture_output=True)
        with open(f"{folder}/step.csv", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))

    def most(*columns: str) -> int:
        return max(sum(int(row[f"{column}_bytes"]) for column in columns) for row in rows)

    return {"parameters": most("parameters"), "gradients": most("gradients"),
            "optimizer": most("servers_optimizer_state"), "activations": most("activations", "kept"),
            "other": most("activation_gradients", "scratch")}


def efficiency(row: Row, rows: List[Row]) -> float:
    """Returns images/s over those of one worker times the workers."""
    alone = next((r for r in rows if r.system is row.system and r.workload is row.workload and r.workers == 1), None)
    one, all_of = (r.point.median(s.IMAGES[0]) if r else 0.0 for r in (alone, row))
    return one and all_of / one / row.workers


def speeds_table(experiment: Experiment, rows: List[Row]) -> Table:
    header = ["workload", "workers", "system", *s.speed_header("efficiency")]
    lines = [[row.workload.title, str(row.workers), row.system.title,
              *s.speed_cells(row.point, efficiency(row, rows))] for row in rows]
    steps = ", ".join(f"{w.steps} of {w.title}" for w in dict.fromkeys(w for w, _ in experiment.cases))
    note = (f"p50 (min-max) of interleaved rounds. Scaled: {experiment.scaled}. Steps: {steps}. Efficiency: of weak "
            "scaling, beside one worker. Memory of a worker: the most that was resident; in all: shared pages once.")
    return Table(f"{experiment.title}: speed and memory", header, lines, note + s.reasons(rows))


def kinds_table(rows: List[Row]) -> Table:
    lines = [[str(row.workers), row.system.title, *(row.point.cell(f"memory: {kind}", "MiB", 0) for kind in KINDS)]
             for row in rows]
    note = ("MiB of one worker over one step. Peers: tensors counted after forward and backward, activations as the "
            "most that autograd kept at once, counted on the way; other: live tensors besides (buckets, flat copies, "
            "pictures). torchft's activations are not counted: a step outside its protocol cannot be made. Pando: what "
            "the plan of one computing thread allocates (pando model --memory-timeline), other: gradients of "
            "activations and scratch; its optimizer's state is on the servers (with allreduce, in each worker).")
    return Table("Memory by kind", ["workers", "system", *KINDS], lines, note)


def moving_row(row: Row) -> Row:
    """Returns the same row with a worker that comes and goes."""
    return replace(row, point=replace(row.point, name=row.point.name + ", elastic", samples={}),
                   reason=row.reason or elastic.WHY_NOT.get(row.system.key, ""), weights=set())


def compare_elastic(session: s.Session, experiment: Experiment, rows: List[Row], rounds: int) -> Iterator[List[Table]]:
    """Measures each system with a fixed number of workers and with one that comes and goes, in turns."""
    fixed, moving = rows[:len(rows) // 2], rows[len(rows) // 2:]

    def measure(row: Row) -> None:
        is_moving = any(row is r for r in moving)
        measure_elastic(session, row, events_of(row.system, row.workload, row.workers) if is_moving else [])

    for _ in s.in_rounds(rows, rounds, measure):
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
    return Table(experiment.title, header, lines, note + s.reasons(fixed + moving))


def weights_said(rows: List[Row]) -> str:
    """Describes the weights of the runs with servers, which must not differ."""
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
    """Returns a plot for each workload; for elastic runs one plot of their times."""
    metric = RUN_TIME if experiment.name == "elastic" else s.IMAGES
    return [bars(f"papers-{experiment.name}-{workload.name}", f"{workload.title}: {metric[0]}", metric,
                 [(point.name.removeprefix(f"{workload.title}, "), point) for point in points
                  if point.parameters["workload"] == workload.title])
            for workload in dict.fromkeys(workload for workload, _ in experiment.cases)]


def sized(workload: Workload, args, session: s.Session) -> Workload:
    """Returns the workload with the steps of the flags, and with available data."""
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


def run_experiment(experiment: Experiment, args) -> bool:
    """Runs the experiment. Returns whether anything was measured."""
    session = s.Session.of(args, [system for system in SYSTEMS if system.key not in LEFT_OUT])
    s.check_data(session.place, [replace(w, dataset="cifar10") if w.dataset == "cifar100" else w
                                 for w, _ in experiment.cases])
    sizes: Dict[str, Workload] = {w.name: sized(w, args, session) for w, _ in experiment.cases}
    experiment = replace(experiment, cases=[(sizes[w.name], workers) for w, workers in experiment.cases])
    print(f"{experiment.name}: {experiment.title}\n  scaled: {experiment.scaled}", file=sys.stderr)
    results = ResultSet(f"papers-{experiment.name}", experiment.title,
                        {"rounds": str(args.rounds), "quick": str(args.quick).lower()})
    rows, compares = s.rows_of(session, experiment.cases), compare
    if experiment.name == "elastic":
        rows, compares = rows + [moving_row(row) for row in rows], compare_elastic
    s.record(results, rows, ((tables, plots_of(experiment, [row.point for row in rows]))
                             for tables in compares(session, experiment, rows, args.rounds)), args.out)
    return s.finish(results, session, args.out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "all"])
    s.add_options(parser, "papers-EXPERIMENT")
    parser.add_argument("--steps", type=int, default=0, help="of each run, instead of the experiment's")
    args = parser.parse_args()
    args.rounds = 1 if args.quick else args.rounds
    names = EXPERIMENTS if args.experiment == "all" else [args.experiment]
    return 0 if any([run_experiment(EXPERIMENTS[name], args) for name in names]) else 1


if __name__ == "__main__":
    sys.exit(main())
