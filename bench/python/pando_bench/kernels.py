"""`pando bench kernels`: each layer of the zoo's models on one core, beside the most that core and memory do.
`pando-bench layers` measures; it makes one pass over a model for each line that it reads."""

import json
import subprocess
from dataclasses import dataclass
from typing import Dict, List, Tuple

from flags import Flags, listed, number
from measure import Programs, Variant, exit_text, measure_in_turns, running
from results import EXIT_FAILED, BenchError, Plot, Point, ResultSet, Table, number_text
from training import join

HELP = (
    "each layer of the zoo's models on one core: GFLOP/s, and its share of the core's multiply-adds or of its memory's "
    "bandwidth"
)
PEAK, COPY, RATE, FORWARD, BACKWARD = "fused multiply-adds", "memcpy", "rate", "forward", "backward"
EIGEN = "Eigen, forward"


def add_flags(flags: Flags) -> None:
    flags.add("--model", ["mnist-cnn", "resnet18-cifar", "vgg16-cifar", "mobilenet-v2-small"],
              "models of the zoo, each in turn", listed(str), ["mnist-cnn"])
    flags.add("--batch", 32, "samples of a pass", number(1, 4096))
    flags.add("--rounds", 5, "samples of each point; all points take turns", number(1, 10_000), 2)


@dataclass
class Work:
    """The least work of some layers for one batch. Layers that are computed in one go are one."""

    names: str  # "conv1 bn1 relu"
    kind: str  # the first one's: "Conv2d 3x3"
    forward_flops: float = 0.0
    backward_flops: float = 0.0
    forward_bytes: float = 0.0  # each array once
    backward_bytes: float = 0.0


class Layers:
    """The process that measures. It answers each line with one line of JSON."""

    def __init__(self, process: subprocess.Popen):
        self.process = process

    def ask(self, what: str) -> dict:
        try:
            self.process.stdin.write(what + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            error = self.process.stderr.read().strip()
            code = self.process.wait()
            raise BenchError(error or f"pando-bench ended: {exit_text(code)}", code if code > 0 else EXIT_FAILED)
        return json.loads(line)


def layer_point(model: str, work: Work) -> Point:
    return Point(f"{model}: {work.names}", {"model": model, "kind": work.kind})


def rate_variant(layers: Layers, name: str, unit: str) -> Variant:
    return Variant(Point(name, {"kind": name}), lambda point: point.add(RATE, unit, layers.ask(name)["rate"]))


def model_variant(layers: Layers, model: str, points: List[Point]) -> Variant:
    """Returns a pass over a model: its time, and the time of each layer."""

    def measure(whole: Point) -> None:
        answer = layers.ask(model)
        for metric, key in ((FORWARD, "forward_ms"), (BACKWARD, "backward_ms")):
            for point, time in zip(points, answer[key]):
                point.add(metric, "ms", time)
            whole.add(metric, "ms", sum(answer[key]))
        for point, time in zip(points, answer["eigen_ms"]):
            if time is not None:
                point.add(EIGEN, "ms", time)

    return Variant(Point(model, {"model": model}), measure)


# ---- tables and plot ------------------------------------------------------------------------------------------------


@dataclass
class Pass:
    """Time and work of one pass over some layers."""

    seconds: float = 0.0
    flops: float = 0.0
    bytes: float = 0.0

    def add(self, other: "Pass") -> None:
        self.seconds += other.seconds
        self.flops += other.flops
        self.bytes += other.bytes


@dataclass
class Ceilings:
    flops_per_s: float
    bytes_per_s: float

    def share(self, work: Pass) -> Tuple[float, str]:
        """Returns the share of its bound: the ceiling that takes longer for this work, which must have taken time."""
        of_peak = work.flops / work.seconds / self.flops_per_s
        of_memory = work.bytes / work.seconds / self.bytes_per_s
        return (of_memory, "memory") if of_memory > of_peak else (of_peak, "FMA")

    def cells(self, work: Pass) -> List[str]:
        if work.seconds <= 0:
            return ["-"] * 4
        value, bound = self.share(work)
        return [f"{1e3 * work.seconds:.3f}", number_text(1e-9 * work.flops / work.seconds),
                number_text(1e-9 * work.bytes / work.seconds), f"{value:.2f} {bound}"]


def passes_of(work: Work, point: Point) -> Tuple[Pass, Pass]:
    return (Pass(1e-3 * point.median(FORWARD), work.forward_flops, work.forward_bytes),
            Pass(1e-3 * point.median(BACKWARD), work.backward_flops, work.backward_bytes))


def header(first: str) -> List[str]:
    ways = [f"{way} {what}" for way in (FORWARD, BACKWARD) for what in ("ms", "GFLOP/s", "GB/s", "share of")]
    return [first, "kind", *ways, "Eigen's product, ms"]


def eigen_text(ms: float) -> str:
    return f"{ms:.3f}" if ms > 0 else "-"


def add_summaries(models: Dict[str, List[Work]], results: ResultSet) -> None:
    """Adds a table of each model's layers, one of kinds of layers over all of them, and its plot, from the points."""
    peak, copy = results.find(PEAK), results.find(COPY)
    ceilings = Ceilings(1e9 * peak.median(RATE), 1e9 * copy.median(RATE))
    kinds: Dict[str, Tuple[Pass, Pass]] = {}
    eigen: Dict[str, float] = {}
    tables = []
    for model, layers in models.items():
        table = Table(model, header("layers"), [])
        for work in layers:
            point = results.find(layer_point(model, work).name)
            forward, backward = passes_of(work, point)
            table.rows.append([work.names, work.kind, *ceilings.cells(forward), *ceilings.cells(backward),
                               eigen_text(point.median(EIGEN))])
            totals = kinds.setdefault(work.kind, (Pass(), Pass()))
            totals[0].add(forward)
            totals[1].add(backward)
            eigen[work.kind] = eigen.get(work.kind, 0.0) + point.median(EIGEN)
        tables.append(table)
    note = (
        f"Processor time, medians. Shares are of what bounds the work: {number_text(1e-9 * ceilings.flops_per_s)} "
        f"GFLOP/s of fused multiply-adds, or {number_text(1e-9 * ceilings.bytes_per_s)} GB/s of memcpy over 64 MiB, "
        "read and written, both measured in turns with the models. Each array counts once, so arrays that stay in a "
        "cache may have more than all of the memory's bandwidth. Layers that are computed in one go are one; the "
        "first says the kind. Eigen's product: the matrix product of the same size as the layer's forward pass (a "
        "convolution as the product of its unfolded pictures, which are at hand), by Eigen on the same core."
    )
    rows = [["all", kind, *ceilings.cells(forward), *ceilings.cells(backward), eigen_text(eigen[kind])]
            for kind, (forward, backward) in sorted(kinds.items())]
    results.tables += [Table("Kinds of layers, over all models", header("models"), rows, note), *tables]
    results.plots.append(kinds_plot(kinds, ceilings))


def kinds_plot(kinds: Dict[str, Tuple[Pass, Pass]], ceilings: Ceilings) -> Plot:
    """Makes two bars for each kind."""
    plot = Plot("kernels-kinds", "Kinds of layers, over all models",
                "share of what bounds the work: multiply-adds or memory", "none")
    for kind, passes in sorted(kinds.items()):
        for way, work in zip((FORWARD, BACKWARD), passes):
            if work.seconds > 0:
                value, bound = ceilings.share(work)
                plot.series.append((f"{kind}, {way} ({bound})", [(0.0, value)]))
    return plot


def run(args, programs: Programs) -> ResultSet:
    results = ResultSet("kernels", "Kernels on one core",
                        {"models": join(args.model), "batch": str(args.batch), "rounds": str(args.rounds)})
    words = [programs.bench(), "layers", "--batch", str(args.batch), *(f"--model={model}" for model in args.model)]
    with running(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        layers = Layers(process)
        models = {model: [Work(**work) for work in layers.ask(f"work {model}")["layers"]] for model in args.model}
        points = {model: [layer_point(model, work) for work in models[model]] for model in models}
        variants = [rate_variant(layers, PEAK, "GFLOP/s"), rate_variant(layers, COPY, "GB/s"),
                    *(model_variant(layers, model, points[model]) for model in models)]
        results.points = measure_in_turns(variants, args.rounds)
    results.points += [point for model in models for point in points[model]]
    add_summaries(models, results)
    return results
