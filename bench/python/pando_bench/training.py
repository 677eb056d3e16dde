"""The common part of step, scaling and recovery: workloads, command lines of `pando train`, and runs that are watched
from outside through their folders."""

import os
import re
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Tuple

from flags import Flags, listed, number, one_of
from measure import Programs, exit_text, log_tail, start, stop
from results import EXIT_FAILED, EXIT_UNREACHED, BenchError, Point

IMAGES, STEP, WAIT = "images/s", "step", "wait for parameters"
TRANSPORTS = ("auto", "tcp", "ipc", "shm")
STRATEGIES = ("ps", "allreduce")
WORKERS_MAX = 64
ENDLESS_STEPS = 1_000_000_000_000  # the most that a job may have
PATIENCE_SECONDS = 300.0  # a busy machine may be slow; without progress for longer than this, it is a failure

# ---- flags ----------------------------------------------------------------------------------------------------------


def add_training_flags(flags: Flags, models: List[str], rounds: int, quick_models: List[str] = None) -> None:
    flags.add("--model", models, "models of the zoo, each in turn", listed(str), quick_models)
    flags.add("--batch", 0, "samples of each worker in a step; 0: 128 of MNIST's, else 32", number(0, 65536))
    flags.add("--data", "",
              "folder that has mnist/ and cifar10/, before data/ and ../shared/data/; where none has them, "
              "pictures are drawn", metavar="DIR")
    flags.add("--program", "", "the program pando to measure", metavar="FILE")
    flags.add("--rounds", rounds, "samples of each point; all points take turns", number(1, 10_000), 1)
    flags.add("--strategy", list(STRATEGIES), "ps, allreduce", listed(one_of(STRATEGIES)))


def add_window_flags(flags: Flags) -> None:
    flags.add("--seconds", 10.0, "time of one sample, at least", number(0.1, 3600.0, float), 0.5)
    flags.add("--steps-min", 5, "steps of one sample, at least", number(1, 1_000_000))
    flags.add("--warm-up", 5, "steps of each run before its sample", number(1, 1_000_000))


def processes(low: int = 1):
    return number(low, WORKERS_MAX)


# ---- workloads ------------------------------------------------------------------------------------------------------


@dataclass
class Workload:
    """A model and the data that it learns."""

    model: str
    data_set: str
    data_path: str = ""  # "": the set is drawn
    resize: int = 0
    worker_batch: int = 0  # a worker's samples in a step

    def data_text(self) -> str:
        return self.data_set if self.data_path else self.data_set + " (drawn)"

    def flags(self) -> List[str]:
        words = ["--model", self.model, "--dataset", self.data_set]
        words += ["--data", self.data_path] if self.data_path else []
        return words + (["--resize", str(self.resize)] if self.resize else [])


def zoo(pando: str) -> Dict[str, Tuple[int, int]]:
    """Returns (height, channels) of each model's pictures, from `pando models`."""
    text = subprocess.run([pando, "models"], capture_output=True, text=True, check=False).stdout
    rows = re.findall(r"^(\S+)\s+[\d,]+\s+(\d+) x \d+ x (\d+)\s", text, re.MULTILINE)
    return {name: (int(height), int(channels)) for name, height, channels in rows}


MNIST_FILES = [(f"{split}-{what}", kind) for split in ("train", "t10k")
               for what, kind in (("images", "idx3"), ("labels", "idx1"))]
CIFAR_FILES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]


def holds_mnist(folder: Path) -> bool:
    """Looks for the four IDX files, packed or not, with either of their usual names."""
    return all(any((folder / f"{name}{joint}{kind}-ubyte{end}").is_file() for joint in ".-" for end in ("", ".gz"))
               for name, kind in MNIST_FILES)


def holds_cifar10(folder: Path) -> bool:
    places = (folder, folder / "cifar-10-batches-bin")
    return any(all((place / name).is_file() for name in CIFAR_FILES) for place in places)


# By the folder's name: the data set, and a function that tells whether a folder holds it.
DATA_FOLDERS = {"mnist": ("mnist", holds_mnist), "cifar10": ("cifar10", holds_cifar10),
                "cifar-10-batches-bin": ("cifar10", holds_cifar10)}


def find_workload(model: str, models: Dict[str, Tuple[int, int]], worker_batch: int, folders: List[str]) -> Workload:
    """Finds the files of the model's data set in one of the folders of data sets; without them, pictures of the same
    size are drawn. `worker_batch` 0: 128 of MNIST's pictures, else 32."""
    if model not in models:
        raise BenchError(f"--model: '{model}' is none of the zoo's; pando models lists them")
    height, channels = models[model]
    is_digits = channels == 1
    name = "mnist" if is_digits else "cifar10" if height <= 32 else ""
    batch = worker_batch or (128 if is_digits else 32)
    for folder in folders:
        for sub_folder, (data_set, holds) in DATA_FOLDERS.items():
            path = os.path.join(folder, sub_folder)
            if data_set == name and holds(Path(path)):
                return Workload(model, name, path, 0, batch)
    return Workload(model, "synthetic-digits" if is_digits else "synthetic-imagenet", "", 0 if is_digits else height,
                    batch)


def resolve(args, programs: Programs) -> List[Workload]:
    """Sets args.program. Returns the models with their data."""
    args.program = programs.measured(args.program)
    models = zoo(args.program)
    folders = ([args.data] if args.data else []) + ["data", "../shared/data"]
    return [find_workload(model, models, args.batch, folders) for model in args.model]


# ---- command lines --------------------------------------------------------------------------------------------------


@dataclass
class TrainPlan:
    """One way to train a workload."""

    workload: Workload
    strategy: str  # ps, allreduce; single: one process, which updates its parameters itself
    workers: int = 1
    servers: int = 1
    replicas: int = 1
    transport: str = "tcp"
    global_batch: int = 0  # a micro-batch for each worker
    snapshot_every: int = 0  # steps; 0: none
    seed: int = 1
    is_verbose: bool = False  # workers log when they learn of a commit

    def process_count(self) -> int:
        """Counts the processes that compute or sum; the scheduler has little to do."""
        if self.strategy == "single":
            return 1
        return self.workers + (self.servers if self.strategy == "ps" else 0)

    def exchange_text(self) -> str:
        if self.strategy != "ps":
            return self.strategy
        return f"ps {self.transport}, {count(self.servers, 'server')}, {count(self.replicas, 'replica')}"

    def words(self, run_dir: Path) -> List[str]:
        """Returns the flags of a run that never ends by itself: with full batches all steps are alike."""
        words = ["train", *self.workload.flags(), "--strategy", self.strategy, "--steps", str(ENDLESS_STEPS),
                 "--global-batch", str(self.global_batch), "--micro-batches", str(self.workers), "--seed",
                 str(self.seed), "--device", "cpu", "--threads", "1", "--snapshot-every", str(self.snapshot_every),
                 "--set", "train.last_batch=drop", "--set", "eval.every_epochs=0", "--run-dir", str(run_dir)]
        if self.strategy != "single":
            words += ["--workers", str(self.workers)]
        if self.strategy == "ps":
            words += ["--servers", str(self.servers), "--replicas", str(self.replicas), "--transport", self.transport]
        return words + (["-v"] if self.is_verbose else [])

    def point(self, workers: int) -> Point:
        parameters = {"model": self.workload.model, "data": self.workload.data_text(), "strategy": self.strategy,
                      "workers": str(workers), "batch of a run": str(self.global_batch)}
        if self.strategy == "ps":
            parameters.update(transport=self.transport, servers=str(self.servers), replicas=str(self.replicas))
        return Point(f"{self.workload.model}, {count(workers, 'worker')}, {self.exchange_text()}", parameters)


def count(number_of: int, what: str) -> str:
    return f"{number_of} {what}{'' if number_of == 1 else 's'}"


# ---- runs -----------------------------------------------------------------------------------------------------------


class LineTail:
    """Reads a file that grows while its writer runs."""

    def __init__(self, path: Path):
        self.path, self.read_bytes = path, 0

    def take(self) -> List[str]:
        """Returns the whole lines since the last call. No lines while there is no file."""
        try:
            with open(self.path, "rb") as file:
                if file.seek(0, os.SEEK_END) < self.read_bytes:
                    self.read_bytes = 0  # it is a new file
                file.seek(self.read_bytes)
                whole, newline, _ = file.read().rpartition(b"\n")
        except FileNotFoundError:
            return []
        self.read_bytes += len(whole) + len(newline)
        return whole.decode(errors="replace").split("\n") if newline else []


@dataclass
class StepRow:
    step: int  # steps completed
    elapsed_s: float
    exposed_sync_ms: float


class StepRows:
    """The rows of a run's metrics.csv, by the names of its columns."""

    COLUMNS = {"step": int, "elapsed_seconds": float, "exposed_sync_ms": float}

    def __init__(self):
        self.heading: List[str] = []
        self.rows: List[StepRow] = []

    def add(self, line: str) -> None:
        """Takes the next line of the file; the first one is the heading."""
        fields = line.split(",")
        if not self.heading:
            self.heading = fields
            return
        if "loss" in self.heading and len(fields) == len(self.heading) and not fields[self.heading.index("loss")]:
            return  # an evaluation's row
        try:
            step, *times = [kind(fields[self.heading.index(name)]) for name, kind in self.COLUMNS.items()]
            if step < 0:
                raise ValueError(step)
        except (ValueError, IndexError) as error:
            raise BenchError(
                f"metrics.csv: '{line}' has no step, elapsed_seconds and exposed_sync_ms; is pando of another "
                "release than its benchmarks?"
            ) from error
        self.rows.append(StepRow(step, *times))

    def pace(self, first: int, last: int) -> Tuple[float, float]:
        """Returns steps/s, and ms of waiting in a step, between two rows; `first` is left out. The scheduler gets reports
        of several steps at once, whose rows have one time: a pace is between the ends of such batches."""
        rows = self.rows[first:last + 1]
        waits = [row.exposed_sync_ms for row in rows[1:]]
        return (rows[-1].step - rows[0].step) / (rows[-1].elapsed_s - rows[0].elapsed_s), sum(waits) / len(waits)


class TrainingRuns:
    """`pando train` processes that run at the same time."""

    def __init__(self, program: str, folder: Path):
        self.program, self.folder = program, folder
        self.runs: List[Tuple[str, subprocess.Popen]] = []  # (strategy, process)

    def start(self, plan: TrainPlan, more_words: Tuple[str, ...] = ()) -> Path:
        """Returns the run's folder."""
        run_dir = self.folder / f"run-{len(self.runs)}"
        with open(f"{run_dir}.log", "ab") as log:
            process = start([self.program, *plan.words(run_dir), *more_words], stdout=log, stderr=log)
        self.runs.append((plan.strategy, process))
        return run_dir

    def wait_for(self, is_met: Callable[[], bool], interval_s: float) -> None:
        """Checks every `interval_s` until the condition holds. A run that ends by itself is an error."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_met():
            for i, (strategy, process) in enumerate(self.runs):
                if process.poll() is not None:
                    raise BenchError(f"pando train --strategy {strategy} ended: {exit_text(process.returncode)}; "
                                     f"{log_tail(self.folder / f'run-{i}.log')}", EXIT_FAILED)
            if time.monotonic() >= deadline:
                raise BenchError(f"training made no progress within {PATIENCE_SECONDS:.0f} s; is the machine busy?",
                                 EXIT_UNREACHED)
            time.sleep(interval_s)

    def stop(self) -> None:
        stop([process for _, process in self.runs])


@contextmanager
def training_runs(program: str) -> Iterator[TrainingRuns]:
    """Makes a folder for runs. At the end it is removed, and the processes are ended."""
    with tempfile.TemporaryDirectory(prefix="pando-bench-") as folder:
        runs = TrainingRuns(program, Path(folder))
        try:
            yield runs
        finally:
            runs.stop()


LOOK_SECONDS = 0.02  # a look costs some microseconds; the measured times are seconds


@dataclass
class Reader:
    """The rows of one run so far."""

    tail: LineTail
    rows: StepRows = field(default_factory=StepRows)
    first: int = 0  # the row before the window

    def has_more(self, more: int) -> bool:
        """Whether there are at least `more` rows after the first."""
        for line in self.tail.take():
            self.rows.add(line)
        return len(self.rows.rows) > self.first + more


def measure_throughput(args, plans: List[TrainPlan], point: Point) -> None:
    """Measures images/s of runs at the same time. Each warms up; then their metrics are read over the same time."""
    with training_runs(args.program) as runs:
        readers = [Reader(LineTail(runs.start(plan) / "metrics.csv")) for plan in plans]

        def wait_for_rows(more: int, not_before: float) -> None:
            runs.wait_for(lambda: all([r.has_more(more) for r in readers]) and time.monotonic() >= not_before,
                          LOOK_SECONDS)

        wait_for_rows(args.warm_up, 0.0)
        for reader in readers:
            reader.first = len(reader.rows.rows) - 1
        wait_for_rows(args.steps_min, time.monotonic() + args.seconds)
    paces = [reader.rows.pace(reader.first, len(reader.rows.rows) - 1) for reader in readers]
    point.add(IMAGES, "1/s", sum(pace * plan.global_batch for (pace, _), plan in zip(paces, plans)))
    point.add(STEP, "ms", sum(1e3 / pace for pace, _ in paces) / len(paces))
    point.add(WAIT, "ms/step", sum(wait for _, wait in paces) / len(paces))


def window_text(args) -> str:
    return f"{args.seconds:g} and {args.steps_min} steps at least, after {args.warm_up} steps"


def join(values) -> str:
    return " ".join(map(str, values))
