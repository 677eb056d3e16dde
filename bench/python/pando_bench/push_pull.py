"""`pando bench push-pull`: the data path between workers and servers, beside memcpy, a += b, raw TCP and raw ZeroMQ.
Each sample is one `pando-bench trial`, which starts the processes of the measurement and prints their figures."""

import itertools
import json
import statistics
import tempfile
from typing import Callable, List

from flags import Flags, listed, number, one_of
from measure import Programs, Variant, measure_in_turns
from results import BenchError, Plot, Point, ResultSet, Table, bytes_text, core_count, number_text, parse_bytes
from training import join

HELP = ("GB/s, messages/s, latency and processor time of pushes and their replies, between workers and servers in "
        "separate processes, beside memcpy, a += b, raw TCP and raw ZeroMQ")
KIB, MIB = 1 << 10, 1 << 20
SHARD_BYTES_MIN, SHARD_BYTES_MAX, LINE_BYTES = 128, 64 * MIB, 64
MEMORY_SECONDS_MAX = 0.2  # a memory ceiling needs little time
REFERENCE_BYTES = MIB  # shares refer to raw ZeroMQ of this size
THROUGHPUT, MEMCPY, ADD, RAW_TCP = "throughput", "memcpy", "a += b", "raw TCP"
FIGURES = {"gb_per_s": (THROUGHPUT, "GB/s"), "messages_per_s": ("messages", "1/s"),
           "latency_p50_us": ("latency p50", "us"), "latency_p99_us": ("latency p99", "us"),
           "cpu_s_per_gb": ("processor time", "s/GB")}
# The shares at which Pando aims: over TCP of raw ZeroMQ at 1 MiB, over ipc of raw ZeroMQ at the same size, in shared
# memory of a += b.
TCP_AIMS = {4 * KIB: 0.16, 64 * KIB: 0.48, 256 * KIB: 0.65, MIB: 0.75, 4 * MIB: 0.75}
IPC_AIM, IPC_AIM_FROM_BYTES = 0.75, 256 * KIB
SHM_AIM, SHM_AIM_FROM_BYTES = 0.5, MIB
SINGLE_FROM_BYTES = 64 * KIB  # such shards do not share a message


def shard_bytes(text: str) -> int:
    try:
        size = parse_bytes(text, SHARD_BYTES_MAX)
    except BenchError as error:
        raise BenchError(f"--bytes: {error}") from error
    if size < SHARD_BYTES_MIN or size % LINE_BYTES != 0:
        raise BenchError(
            f"--bytes {text}: a shard is a multiple of {LINE_BYTES} bytes and has at least {SHARD_BYTES_MIN}"
        )
    return size


def add_flags(flags: Flags) -> None:
    flags.add("--bytes", ["4KiB", "64KiB", "256KiB", "1MiB", "4MiB"], "sizes of shards", listed(str), ["4KiB", "1MiB"])
    flags.add("--servers", [1, 2], "how many servers, each in turn", listed(number(1, 64)), [1])
    flags.add("--workers", [1, 2], "how many workers, each in turn", listed(number(1, 64)), [1])
    flags.add("--transport", ["tcp", "ipc", "shm"], "shm: shared memory; messages by the link's own connection",
              listed(one_of(("tcp", "ipc", "shm"))))
    flags.add("--optimizer", ["sum", "sgd-momentum"], "sum: SGD", listed(one_of(("sum", "sgd-momentum"))), ["sum"])
    flags.add("--in-flight", 8, "shards of each server, all in flight at the same time", number(1, 1024))
    flags.add("--rounds", 5, "samples of each point; all points take turns", number(1, 10_000), 2)
    flags.add("--seconds", 0.5, "time of one sample", number(0.01, 600.0, float), 0.05)
    flags.add("--warm-up", 0.2, "time before each sample, after the first reply", number(0.0, 600.0, float), 0.02)
    flags.parser.add_argument(
        "--barrier",
        action="store_true",
        help="no push of a step before all shards of the step before have arrived, as in training (P4)",
    )
    flags.parser.add_argument("--copy", action="store_true",
                              help="workers copy parameters out of the received messages, as in training")


# ---- points ---------------------------------------------------------------------------------------------------------


def point_of(kind: str, size: int) -> Point:
    return Point(f"{kind}, {bytes_text(size)}", {"kind": kind, "bytes": str(size)})


def pando_point(size: int, transport: str, servers: int, workers: int, optimizer: str) -> Point:
    point = point_of(f"Pando {transport} {servers}x{workers} {optimizer}", size)
    point.parameters.update(transport=transport, servers=str(servers), workers=str(workers), optimizer=optimizer)
    return point


def raw_zmq(transport: str) -> str:
    return f"raw ZeroMQ {transport}"


class VariantMaker:
    def __init__(self, args, programs: Programs, cores: int, folder: str):
        self.args, self.programs, self.cores, self.folder = args, programs, cores, folder

    def all(self) -> List[Variant]:
        args = self.args
        raw_bytes = list(dict.fromkeys([*args.bytes, REFERENCE_BYTES]))
        seconds = min(args.seconds / 2, MEMORY_SECONDS_MAX)
        variants = [self.variant(point_of(kind, size), size, seconds, ["--kind", name])
                    for size in args.bytes for kind, name in ((MEMCPY, "memcpy"), (ADD, "add"))]
        for size in raw_bytes:
            for transport in args.transport:
                if transport != "shm":  # its ceiling is a += b
                    variants.append(self.raw(raw_zmq(transport), size, f"zmq-{transport}"))
                if transport == "tcp":
                    variants.append(self.raw(RAW_TCP, size, "tcp"))
        shapes = itertools.product(args.bytes, args.transport, args.servers, args.workers, args.optimizer)
        return variants + [self.pando(*shape) for shape in shapes]

    def raw(self, kind: str, size: int, name: str) -> Variant:
        return self.variant(point_of(kind, size), size, self.args.seconds, ["--kind", name])

    def pando(self, size: int, transport: str, servers: int, workers: int, optimizer: str) -> Variant:
        point = pando_point(size, transport, servers, workers, optimizer)
        point.is_oversubscribed = servers + workers > self.cores
        words = ["--kind", f"pando-{transport}", "--servers", str(servers), "--workers", str(workers)]
        flags = {"--momentum": optimizer != "sum", "--barrier": self.args.barrier, "--copy": self.args.copy}
        words += [flag for flag, is_on in flags.items() if is_on]
        return self.variant(point, size, self.args.seconds, words)

    def variant(self, point: Point, size: int, seconds: float, words: List[str]) -> Variant:
        words = ["trial", *words, "--bytes", str(size), "--shards", str(self.args.in_flight), "--seconds", str(seconds),
                 "--warm-up", str(self.args.warm_up), "--folder", self.folder]

        def measure(to: Point) -> None:
            for key, value in json.loads(self.programs.ask_bench(words)).items():
                to.add(*FIGURES[key], value)

        return Variant(point, measure)


# ---- tables and plots -----------------------------------------------------------------------------------------------


def gb_per_s(results: ResultSet, named: Point) -> float:
    """Returns the median; 0 if it was not measured."""
    point = results.find(named.name)
    return point.median(THROUGHPUT) if point else 0.0


def share(part: float, whole: float) -> str:
    return f"{part / whole:.2f}" if part > 0 and whole > 0 else "-"


def figure(value: float) -> str:
    return number_text(value) if value > 0 else "-"


def best_of(args, results: ResultSet, size: int, transport: str, optimizer: str):
    """Returns the best (GB/s, shape) with as many servers as workers, to which the aims apply."""
    found = [(gb_per_s(results, pando_point(size, transport, n, n, optimizer)), f"{n}x{n}")
             for n in args.servers if n in args.workers]
    speed, shape = max(found, default=(0.0, ""), key=lambda each: each[0])
    return (speed, shape) if speed > 0 else (0.0, "-")


def aim_text(transport: str, size: int) -> str:
    if transport == "ipc":
        return f"{IPC_AIM:.2f} same size" if size >= IPC_AIM_FROM_BYTES else "-"
    return f"{TCP_AIMS[size]:.2f} of 1 MiB" if size in TCP_AIMS else "-"


def shares_table(args, results: ResultSet, transport: str) -> Table:
    table = Table(
        f"Beside raw ZeroMQ, {transport}",
        [
            "shard",
            "memcpy",
            "a += b",
            "raw TCP",
            "raw ZeroMQ",
            "Pando, sum",
            "shape",
            "of raw, same size",
            "of raw at 1 MiB",
            "aim",
            "Pando, momentum",
            "of raw at 1 MiB",
        ],
        [],
        "GB/s are pushed and pulled payload, medians. Pando: the best of as many servers as workers. Raw ZeroMQ "
        "sends without a copy, both ways, one client and one server.",
    )
    reference = gb_per_s(results, point_of(raw_zmq(transport), REFERENCE_BYTES))
    for size in args.bytes:
        ceilings = [gb_per_s(results, point_of(kind, size)) for kind in (MEMCPY, ADD, RAW_TCP, raw_zmq(transport))]
        speed, shape = best_of(args, results, size, transport, "sum")
        momentum, _ = best_of(args, results, size, transport, "sgd-momentum")
        table.rows.append([bytes_text(size), *map(figure, ceilings), figure(speed), shape, share(speed, ceilings[-1]),
                           share(speed, reference), aim_text(transport, size), figure(momentum),
                           share(momentum, reference)])
    return table


def shared_memory_table(args, results: ResultSet) -> Table:
    table = Table(
        "Beside a += b, shm",
        ["shard", "memcpy", "a += b", "Pando, sum", "shape", "of a += b", "aim", "Pando, momentum", "of a += b"],
        [],
        "GB/s are pushed and pulled payload, medians. Pando: the best of as many servers as workers. a += b reads "
        "each byte that comes and writes each that goes, once, on one core. Shards below 16 KiB are not shared: "
        "they travel in their messages.",
    )
    for size in args.bytes:
        copy, ceiling = (gb_per_s(results, point_of(kind, size)) for kind in (MEMCPY, ADD))
        speed, shape = best_of(args, results, size, "shm", "sum")
        momentum, _ = best_of(args, results, size, "shm", "sgd-momentum")
        aim = f"{SHM_AIM:.2f}" if size >= SHM_AIM_FROM_BYTES else "-"
        table.rows.append([bytes_text(size), figure(copy), figure(ceiling), figure(speed), shape, share(speed, ceiling),
                           aim, figure(momentum), share(momentum, ceiling)])
    return table


def figures_table(results: ResultSet) -> Table:
    """Returns every figure of each way to move a shard."""
    note = ("Medians over the rounds. * more active processes than cores. Messages are those of a worker, sent and "
            "received; small shards share one.")
    rows = [[point.marked_name(), *(number_text(point.median(metric)) for metric, _ in FIGURES.values())]
            for point in results.points if point.of("messages")]
    header = ["", "GB/s", "messages/s", "p50 us", "p99 us", "processor s/GB"]
    return Table("Throughput, latency, processor time", header, rows, note)


def plan_costs_table(args, results: ResultSet) -> Table:
    """Returns the costs that `pando plan` takes, from one worker and one server over TCP, whose optimizer is a sum."""
    ends = {}  # by shard size: bytes of a message, and microseconds of each of its two ends
    for size in args.bytes:
        point = results.find(pando_point(size, "tcp", 1, 1, "sum").name)
        if point and point.of("messages"):
            message_bytes = 1e9 * point.median(THROUGHPUT) / point.median("messages")
            ends[size] = message_bytes, message_bytes / 1e9 * point.median("processor time") * 1e6 / 2
    large = [size for size in ends if size >= SINGLE_FROM_BYTES]
    table = Table("Costs for pando plan", ["--message-us", "--item-us", "--byte-ns", "--sum-ns"], [],
                  "Processor time of one end of a message, by a straight line through shards of 64 KiB and more, which "
                  "travel one by one; smaller ones share messages. Without the sum, which one of four ends makes.")
    if len(large) < 2:
        return table
    slope, message_us = statistics.linear_regression(*zip(*(ends[size] for size in large)))
    items = [(us - message_us - slope * message_bytes) / (message_bytes / size)
             for size, (message_bytes, us) in ends.items() if size < SINGLE_FROM_BYTES]
    sum_ns = 1 / gb_per_s(results, point_of(ADD, max(large)))
    table.rows.append([f"{max(0.0, message_us):.1f}", f"{max(0.0, statistics.median(items)):.1f}" if items else "-",
                       f"{max(0.0, 1000 * slope - sum_ns / 4):.2f}", f"{sum_ns:.2f}"])
    return table


def throughput_plot(args, results: ResultSet, transport: str) -> Plot:
    plot = Plot(f"push-pull-{transport}", f"Pushed and pulled, {transport}", "GB/s")

    def add(name: str, point_at: Callable[[int], Point]) -> None:
        speeds = [(float(size), gb_per_s(results, point_at(size))) for size in args.bytes]
        if any(speed > 0 for _, speed in speeds):
            plot.series.append((name, [(size, speed) for size, speed in speeds if speed > 0]))

    ceilings = {"shm": [ADD, raw_zmq(transport)], "tcp": [raw_zmq(transport), RAW_TCP]}
    for kind in ceilings.get(transport, [raw_zmq(transport)]):
        add(kind, lambda size, kind=kind: point_of(kind, size))
    for optimizer, servers, workers in itertools.product(args.optimizer, args.servers, args.workers):
        shape = (transport, servers, workers, optimizer)
        add(f"Pando {servers}x{workers} {optimizer}", lambda size, shape=shape: pando_point(size, *shape))
    return plot


def add_summaries(args, results: ResultSet) -> None:
    """Adds tables and plots from the points only."""
    for transport in args.transport:
        is_shared = transport == "shm"
        results.tables.append(shared_memory_table(args, results) if is_shared
                              else shares_table(args, results, transport))
        results.plots.append(throughput_plot(args, results, transport))
    results.tables.append(figures_table(results))
    if "tcp" in args.transport:
        results.tables.append(plan_costs_table(args, results))


def run(args, programs: Programs) -> ResultSet:
    args.bytes = [shard_bytes(text) for text in args.bytes]
    results = ResultSet("push-pull", "Push and pull between workers and servers",
                        {"bytes": join(map(bytes_text, args.bytes)), "servers": join(args.servers),
                         "workers": join(args.workers), "transports": join(args.transport),
                         "optimizers": join(args.optimizer), "shards in flight per server": str(args.in_flight),
                         "rounds": str(args.rounds), "seconds": f"{args.seconds:g} after {args.warm_up:g}",
                         "barrier (P4)": "yes" if args.barrier else "no",
                         "parameters copied out": "yes" if args.copy else "no"})
    with tempfile.TemporaryDirectory(prefix="pando-bench-") as folder:
        results.points = measure_in_turns(VariantMaker(args, programs, core_count(), folder).all(), args.rounds)
    add_summaries(args, results)
    return results
