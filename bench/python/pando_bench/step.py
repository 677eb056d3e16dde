"""`pando bench step`: images/s of a training step, and how much of the step its workers lose to the exchange of
gradients and parameters, beside the same workers with a local update in its place."""

import itertools
from dataclasses import dataclass, replace
from typing import List

from flags import Flags, listed, number, one_of
from measure import Programs, Variant, measure_in_turns
from results import Plot, Point, ResultSet, Table, core_count, figures, number_text
from training import (IMAGES, STEP, TRANSPORTS, WAIT, TrainPlan, Workload, add_training_flags, add_window_flags, join,
                      measure_throughput, processes, resolve, window_text)

HELP = (
    "images/s in training, with servers and by allreduce, and the part that the workers lose to the exchange: beside "
    "the same workers with a local update in its place"
)
EXPOSED = "exposed synchronisation"
LOCAL = "local update"
SERIAL = "--serial"
# The most that a model may lose with 2 workers, in percent.
AIMS = {"resnet18-cifar": 5.0, "mnist-cnn": 8.0}
AIM_WORKERS = 2


def add_flags(flags: Flags) -> None:
    add_training_flags(flags, ["mnist-cnn", "resnet18-cifar"], 3, ["mnist-cnn"])
    flags.add("--workers", [2], "how many workers of 1 thread, each in turn", listed(processes()))
    flags.add("--transport", ["auto", "tcp"], "as pando train --transport, each in turn", listed(one_of(TRANSPORTS)),
              ["auto"])
    flags.add("--replicas", [1, 2], "of each shard, each in turn", listed(number(1, 2)), [1])
    flags.add("--servers", 1, "how many servers; as many as replicas, at least", processes())
    add_window_flags(flags)


@dataclass
class StepPoint:
    point: Point
    plans: List[TrainPlan]  # for the runs that train at the same time
    baseline: str = ""  # the point whose workers exchange nothing; "": this is one, or SERIAL


def local_point(workload: Workload, workers: int) -> StepPoint:
    """Returns a point with as many processes as workers, at the same time: each has a worker's trainer, batch and
    threads, makes the update itself, and has its own data."""
    plans = [TrainPlan(workload, "single", global_batch=workload.worker_batch, seed=rank + 1)
             for rank in range(workers)]
    return StepPoint(replace(plans[0].point(workers), name=f"{workload.model}, {workers} workers, {LOCAL}"), plans)


def serial_point(workload: Workload, workers: int) -> StepPoint:
    """Returns a point with the same job in one process with one thread."""
    plan = TrainPlan(workload, "single", workers, global_batch=workers * workload.worker_batch)
    return StepPoint(replace(plan.point(1), name=f"{workload.model}, {workers} workers' batch, {SERIAL}"), [plan])


def points_of(args, workload: Workload, workers: int) -> List[StepPoint]:
    points = [local_point(workload, workers)] + ([serial_point(workload, workers)] if workers > 1 else [])
    for strategy in args.strategy:
        has_servers = strategy == "ps"
        # gloo has its own transport
        ways = itertools.product(args.transport, args.replicas) if has_servers else [("tcp", 1)]
        for transport, replicas in ways:
            plan = TrainPlan(workload, strategy, workers, max(args.servers, replicas), replicas, transport,
                             workers * workload.worker_batch)
            points.append(StepPoint(plan.point(workers), [plan], points[0].point.name))
    return points


def step_points(args, workloads: List[Workload], cores: int) -> List[StepPoint]:
    points = [point for workload in workloads for workers in args.workers
              for point in points_of(args, workload, workers)]
    for each in points:
        each.point.is_oversubscribed = sum(plan.process_count() for plan in each.plans) > cores
    return points


def add_exposed(asked: List[StepPoint]) -> None:
    """Adds 1 - images/s over the baseline's of the same round, in percent, to each point with a baseline."""
    by_name = {each.point.name: each.point for each in asked}
    for each in asked:
        if each.baseline:
            for mine, alone in zip(each.point.of(IMAGES), by_name[each.baseline].of(IMAGES)):
                each.point.add(EXPOSED, "%", 100.0 * (1.0 - mine / alone))


def aim_text(plan: TrainPlan) -> str:
    has_aim = plan.strategy == "ps" and plan.workers == AIM_WORKERS and plan.workload.model in AIMS
    return f"{AIMS[plan.workload.model]:.0f}" if has_aim else "-"


def row_of(asked: StepPoint) -> List[str]:
    plan, point = asked.plans[0], asked.point
    exposed = figures(point.of(EXPOSED))
    way = plan.exchange_text() if asked.baseline else SERIAL if plan.workers > len(asked.plans) else LOCAL
    lost = [f"{exposed[key]:.1f}" if asked.baseline else "-" for key in ("p50", "min", "max")]
    return [plan.workload.model, str(plan.workers if asked.baseline else len(asked.plans)),
            way + (" *" if point.is_oversubscribed else ""), number_text(point.median(IMAGES)),
            number_text(point.median(STEP)), *lost, aim_text(plan), number_text(point.median(WAIT))]


def exposed_plot(model: str, asked: List[StepPoint]) -> Plot:
    """Plots the exposed time over the number of workers, with a line for each way."""
    plot = Plot(f"step-{model}", f"Exposed synchronisation, {model}", "% of the step", "count")
    for each in asked:
        plan = each.plans[0]
        if plan.workload.model == model and each.baseline:
            plot.line(plan.exchange_text()).append((plan.workers, each.point.median(EXPOSED)))
    return plot


def add_summaries(workloads: List[Workload], asked: List[StepPoint], results: ResultSet) -> None:
    note = (
        "1 - images/s over those of as many workers at once that exchange nothing (local update), of the same round; "
        "medians, and the extremes of the rounds. Waits are what the workers themselves report. --serial: "
        "the job of these workers in one process of one thread. * more active processes than cores."
    )
    header = ["model", "workers", "exchange", "images/s", "ms/step", "exposed %", "min", "max", "aim, at most"]
    header.append("wait ms/step")
    results.tables.append(Table("Exposed synchronisation", header, [row_of(each) for each in asked], note))
    results.plots += [exposed_plot(workload.model, asked) for workload in workloads]


def run(args, programs: Programs) -> ResultSet:
    workloads = resolve(args, programs)
    results = ResultSet("step", "A training step, and what it loses to the exchange",
                        {"models": "; ".join(f"{w.model} on {w.data_text()}, batch {w.worker_batch} a worker"
                                             for w in workloads), "workers": f"{join(args.workers)} of 1 thread",
                         "strategies": join(args.strategy), "transports": join(args.transport),
                         "replicas": join(args.replicas), "servers": str(args.servers), "rounds": str(args.rounds),
                         "seconds": window_text(args)})
    asked = step_points(args, workloads, core_count())
    variants = [Variant(each.point, lambda point, each=each: measure_throughput(args, each.plans, point))
                for each in asked]
    results.points = measure_in_turns(variants, args.rounds)
    add_exposed(asked)
    add_summaries(workloads, asked, results)
    return results
