"""`pando bench scaling`: images/s by the number of workers, and the efficiency against the fewest workers. weak: each
worker has the same batch. strong: they share the batch that one worker has."""

from dataclasses import dataclass
from typing import List

from flags import Flags, listed, one_of
from measure import Programs, Variant, measure_in_turns
from results import BenchError, Plot, Point, ResultSet, Table, core_count, figures, number_text
from training import (IMAGES, TRANSPORTS, TrainPlan, Workload, add_training_flags, add_window_flags, join,
                      measure_throughput, processes, resolve, window_text)

HELP = ("images/s by the number of workers: with a batch for each (weak), and with one that they share (strong); "
        "efficiency against the fewest")
MODES = ("weak", "strong")
EFFICIENCY = "efficiency"


def add_flags(flags: Flags) -> None:
    add_training_flags(flags, ["mnist-cnn", "resnet18-cifar"], 3, ["mnist-cnn"])
    flags.add("--workers", [1, 2, 4], "how many workers of 1 thread, each in turn", listed(processes()), [1, 2])
    flags.add("--scaling", list(MODES), "weak, strong", listed(one_of(MODES)))
    flags.add("--transport", "auto", "as pando train --transport", one_of(TRANSPORTS))
    flags.add("--servers", 1, "how many servers, with 1 replica of each shard", processes())
    add_window_flags(flags)


@dataclass
class ScalingPoint:
    point: Point
    plan: TrainPlan
    mode: str
    first: str  # the point of the fewest workers of the same curve; its own name there


def point_of(args, workload: Workload, mode: str, strategy: str, workers: int) -> ScalingPoint:
    batch = workload.worker_batch * (workers if mode == "weak" else 1)
    plan = TrainPlan(workload, strategy, workers, args.servers, 1, args.transport, batch)
    point = plan.point(workers)
    point.name += f", {mode}"
    point.parameters["scaling"] = mode
    return ScalingPoint(point, plan, mode, "")


def scaling_points(args, workloads: List[Workload], cores: int) -> List[ScalingPoint]:
    points = []
    for workload in workloads:
        for mode in args.scaling:
            for strategy in args.strategy:
                curve = [point_of(args, workload, mode, strategy, workers) for workers in args.workers]
                for each in curve:
                    each.first = curve[0].point.name
                    each.point.is_oversubscribed = each.plan.process_count() > cores
                points += curve
    return points


def add_efficiency(asked: List[ScalingPoint]) -> None:
    """Adds images/s of a worker over those of a worker of the curve's first point, of the same round."""
    by_name = {each.point.name: each for each in asked}
    for each in asked:
        first = by_name[each.first]
        for many, few in zip(each.point.of(IMAGES), first.point.of(IMAGES)):
            each.point.add(EFFICIENCY, "1", first.plan.workers / each.plan.workers * many / few)


def row_of(each: ScalingPoint) -> List[str]:
    efficiency = figures(each.point.of(EFFICIENCY))
    workers = str(each.plan.workers) + (" *" if each.point.is_oversubscribed else "")
    return [each.plan.workload.model, each.mode, each.plan.exchange_text(), workers, str(each.plan.global_batch),
            number_text(each.point.median(IMAGES)), *(f"{efficiency[key]:.2f}" for key in ("p50", "min", "max"))]


def add_summaries(asked: List[ScalingPoint], results: ResultSet) -> None:
    """Adds a table, and a plot for each model, with a line for each curve."""
    note = (
        "Efficiency: images/s of a worker over those of a worker where there are fewest, of the same round; medians, "
        "and the extremes of the rounds. weak: each worker has the same batch; strong: they share it. * more active "
        "processes than cores: they share those, and more workers cannot bring more images."
    )
    header = ["model", "scaling", "exchange", "workers", "global batch", "images/s", "efficiency", "min", "max"]
    rows = [row_of(each) for each in asked]
    results.tables.append(Table("Efficiency against the fewest workers", header, rows, note))
    plots = {}
    for each in asked:
        model = each.plan.workload.model
        plot = plots.setdefault(model, Plot(f"scaling-{model}", f"Efficiency by workers, {model}",
                                            "images/s of a worker over the first's", "count"))
        line = plot.line(f"{each.mode}, {each.plan.exchange_text()}")
        line.append((each.plan.workers, each.point.median(EFFICIENCY)))
    results.plots += plots.values()


def run(args, programs: Programs) -> ResultSet:
    workloads = resolve(args, programs)
    args.workers = sorted(set(args.workers))
    if "strong" in args.scaling and any(w.worker_batch < args.workers[-1] for w in workloads):
        raise BenchError("--batch: with strong scaling the workers share it; give at least a sample for each")
    results = ResultSet("scaling", "More workers",
                        {"models": "; ".join(f"{w.model} on {w.data_text()}, batch {w.worker_batch} of one worker"
                                             for w in workloads), "workers": f"{join(args.workers)} of 1 thread",
                         "scaling": join(args.scaling), "strategies": join(args.strategy),
                         "servers": f"{args.servers}, 1 replica, {args.transport}", "rounds": str(args.rounds),
                         "seconds": window_text(args)})
    asked = scaling_points(args, workloads, core_count())
    variants = [Variant(each.point, lambda point, each=each: measure_throughput(args, [each.plan], point))
                for each in asked]
    results.points = measure_in_turns(variants, args.rounds)
    add_efficiency(asked)
    add_summaries(asked, results)
    return results
