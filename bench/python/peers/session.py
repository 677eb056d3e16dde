"""The common part of bench/python/peers and bench/python/papers: command line, runs in turns, samples and tables."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Set, Tuple

import processes
import venvs
from launch import Event, Outcome, execute, kill_a_worker
from systems import LAYOUTS, SYSTEMS, Place, Run, System
from venvs import ROOT
from workloads import TRAIN_SAMPLES, Workload

from results import Point, ResultSet, Table  # noqa: E402

IMAGES = ("images/s", "images/s")
EPOCH = ("epoch", "s")
ACCURACY = ("test accuracy", "share")
WORKER_MEMORY = ("peak resident memory of a worker", "MiB")
TOTAL_MEMORY = ("peak memory of all processes", "MiB")
LOST = ("lost to a killed worker, at an equal later step", "s")
KILLED_IMAGES = ("images/s with kills", "images/s")
TIMES = ("total time with kills by the time without", "times")
KILLS = ("kills", "kills")
WASTED = ("computed again or lost, by kill", "steps")
TO_STEP = ("from a kill to the next step", "s")
LAYOUT_SECONDS = 2


def add_options(parser: argparse.ArgumentParser, benchmark: str) -> None:
    parser.add_argument("--out", type=Path, default=Path("results"),
                        help=f"folder of {benchmark}.json and .md [results]")
    parser.add_argument("--venvs", type=Path, default=Path(os.environ.get("PANDO_PEERS_VENVS", venvs.DEFAULT_FOLDER)),
                        help="folder of the virtual environments [$PANDO_PEERS_VENVS, or bench/python/peers/.venvs]")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data",
                        help="folder that holds mnist, fashion-mnist and cifar-10-batches-bin")
    parser.add_argument("--pando", default=os.environ.get("PANDO", str(ROOT / "build/cli/pando")), help="[$PANDO]")
    parser.add_argument("--systems", help="of these, between commas: " + ", ".join(s.key for s in SYSTEMS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="few steps, one round: whether it runs, not how fast")
    parser.add_argument("--limit-seconds", type=float, default=1800, help="a run that takes longer has failed")
    parser.add_argument("--keep", type=Path, help="keep the runs' folders, logs and all, below this one")


def chosen(text: str, usual: List[System]) -> List[System]:
    if not text:
        return usual
    by_key = {system.key: system for system in SYSTEMS}
    unknown = [key for key in text.split(",") if key not in by_key]
    if unknown:
        sys.exit(f"--systems: there is no '{unknown[0]}'; there are {', '.join(by_key)}")
    return [by_key[key] for key in text.split(",")]


def check_data(place: Place, workloads: List[Workload]) -> None:
    for workload in workloads:
        folder = workload.data_folder(place.data)
        if not folder.is_dir():
            sys.exit(f"{workload.name} needs the data set {workload.dataset} in {folder}, which is not there: "
                     "name the folder above it by --data, or fetch it (pando data fetch)")


def gpu_count() -> int:
    """Returns the number of computing GPUs: NCCL needs one per worker."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return 0
    return done.stdout.count("GPU ") if done.returncode == 0 else 0


class LayoutError(Exception):
    """The layouts of a model cannot be compared."""


@dataclass
class Session:
    """All runs of one call of a benchmark."""
    place: Place
    folder: Path
    limit_seconds: float
    systems: List[System]
    reasons: Dict[str, str] = field(default_factory=dict)  # by system: why it has no figures
    versions: Dict[str, str] = field(default_factory=dict)
    layouts: Dict[Tuple[str, str], Dict[str, float]] = field(default_factory=dict)  # (venv, model): images/s of each
    keeps: bool = False  # keeps the runs' folders
    count: int = 0

    @staticmethod
    def of(args: argparse.Namespace, usual: List[System]) -> "Session":
        processes.adopt_orphans()
        place = Place(args.venvs.resolve(), args.data.resolve(), str(Path(args.pando).resolve()))
        folder = (args.keep or Path(tempfile.mkdtemp(prefix="pando-peers-"))).resolve()
        session = Session(place, folder, args.limit_seconds, chosen(args.systems, usual), keeps=bool(args.keep))
        gpus = gpu_count()
        for system in session.systems:
            reason = system.why_not(place, gpus)
            if reason:
                session.reasons[system.key] = reason
            else:
                session.versions[system.key] = session.version(system)
        return session

    def version(self, system: System) -> str:
        installed = venvs.version_of(self.place.venvs, system.module) or "unknown" if system.module else ""
        if not system.is_pando():
            return installed
        done = subprocess.run([self.place.pando, "--version"], capture_output=True, text=True, check=False)
        return (done.stdout.strip() or "unknown") + (f" (torch {installed})" if installed else "")

    def layout(self, system: System, workload: Workload) -> str:
        """Returns the quickest layout of the system for one worker's step, measured once by venv and model."""
        if not system.module:
            return LAYOUTS[0]
        key = (venvs.MODULES[system.module][0], workload.model)
        if key not in self.layouts:
            self.layouts[key] = {name: layout_speed(self.place, key[0], workload, name) for name in LAYOUTS}
        speeds = self.layouts[key]
        return max((n for n in LAYOUTS if not (system.needs_contiguous and n == "channels_last")), key=speeds.get)

    def run(self, system: System, workload: Workload, workers: int, has_death: bool = False) -> Outcome:
        deaths = [Event(workload.kill_at * workload.batch * workers, kill_a_worker)] if has_death else []
        return self.run_with(system, workload, workers, deaths)

    def run_with(self, system: System, workload: Workload, workers: int, events: List[Event],
                 absent_workers: int = 0) -> Outcome:
        """Runs a system. With events a peer runs in its elastic form, if it has one."""
        try:
            layout = self.layout(system, workload)
        except LayoutError as error:
            return Outcome(reason=str(error))
        self.count += 1
        name = f"{self.count:03d}-{workload.name}-{system.key}-{workers}{'-events' if events else ''}"
        run = Run(workload, workers, self.folder / name, bool(events), layout, absent_workers)
        outcome = execute(system, run, self.place, self.limit_seconds, events)
        if not self.keeps:  # a snapshot of VGG-16 is 2 GB
            shutil.rmtree(run.folder, ignore_errors=True)
        speed = outcome.images_per_second(workload.warm_up * workload.batch * workers)
        print(f"{name[4:]}: " + (outcome.reason or f"{speed:,.1f} images/s"), file=sys.stderr, flush=True)
        return outcome

    def clean(self) -> None:
        if not self.keeps:
            shutil.rmtree(self.folder, ignore_errors=True)


def layout_speed(place: Place, venv: str, workload: Workload, layout: str) -> float:
    """Returns images/s of one worker alone, on pictures in memory."""
    words = [str(venvs.python_of(place.venvs, venv)), str(ROOT / "bench/python/peers/trainers/alone.py"),
             workload.model, "--classes", str(workload.classes), "--channels", str(workload.channels), "--side",
             str(workload.side or (32 if workload.dataset.startswith("cifar") else 28)), "--batch", str(workload.batch),
             "--seconds", str(LAYOUT_SECONDS), "--layout", layout]
    done = subprocess.run(words, env=venvs.environment_of(place.venvs, venv), capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise LayoutError(f"the layouts of {workload.model} cannot be compared in {venv}: {done.stderr.strip()[-300:]}")
    return float(done.stdout)


def layouts_table(session: Session) -> Table:
    rows = [[venv, model, *(f"{speeds[name]:,.1f}" for name in LAYOUTS)]
            for (venv, model), speeds in session.layouts.items()]
    return Table("Memory layout of the peers", ["venv", "model", "default", "channels_last pictures", "weights too"],
                 rows, "Images/s of one worker alone; each peer gets the quickest that it bears (Horovod and DeepSpeed "
                 "refuse "
                 "weights in channels_last). One computing thread a worker (OMP, OpenBLAS, MKL); oneDNN is on.")


HELPERS = 2  # processes of a run besides its workers, at least: a launcher, a server, an agent


@dataclass
class Row:
    """A line of a table: one system on one workload."""
    system: System
    workload: Workload
    workers: int
    point: Point
    reason: str = ""  # why it has no figures
    death_reason: str = ""  # why it has no figures of a death
    weights: Set[str] = field(default_factory=set)  # at the end of its runs


def rows_of(session: Session, cases: Iterable[Tuple[Workload, int]]) -> List[Row]:
    """Returns a row of each system for each workload and number of workers."""
    rows = []
    for workload, workers in cases:
        for system in session.systems:
            parameters = {"system": system.title, "workload": workload.title, "workers": str(workers),
                          "batch per worker": str(workload.batch), "steps": str(workload.steps),
                          "version": session.versions.get(system.key, "none")}
            point = Point(f"{workload.title}, {workers} workers: {system.title}", parameters,
                          workers + HELPERS > len(os.sched_getaffinity(0)))
            reason = session.reasons.get(system.key, "")
            if workers > (system.workers_max or workers):
                reason = f"is for --workers {system.workers_max}"
            rows.append(Row(system, workload, workers, point, reason))
    return rows


def in_rounds(rows: List[Row], rounds: int, measure: Callable[[Row], None]) -> Iterator[int]:
    """Measures each row once a round, every other round backwards: a machine that slows down is fair to all. A row that
    fails is left out from then on. Yields after each round."""
    for turn in range(rounds):
        for row in [row for row in rows if not row.reason][::-1 if turn % 2 else 1]:
            measure(row)
            if row.reason:
                row.reason = f"round {turn + 1}: {row.reason}"
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
        yield turn


def record(results: ResultSet, rows: List[Row], parts: Iterator[Tuple[List[Table], List]], folder: Path) -> None:
    """Adds the rows' points, and the tables and plots that are made after each round, to the results, and writes them
    each time."""
    points, tables, plots = results.points, results.tables, results.plots  # those from before
    for more_tables, more_plots in parts:
        results.points = points + [row.point for row in rows]
        results.tables = tables + more_tables
        results.plots = plots + more_plots
        results.write(folder)


def finish(results: ResultSet, session: Session, folder: Path) -> bool:
    """Prints the results. Returns whether there are any."""
    results.tables.append(layouts_table(session))
    results.write(folder)
    print(results.as_markdown(), flush=True)
    session.clean()
    return any(point.samples for point in results.points)


def reasons(rows: List[Row]) -> str:
    said = dict.fromkeys(f"{row.point.name}: {reason}" for row in rows for reason in (row.reason, row.death_reason)
                         if reason)
    return " **Without figures, or without all of them:** " + "; ".join(said) + "." if said else ""


def speed_header(ratio: str) -> List[str]:
    return ["images/s", ratio, "s per epoch", "test accuracy", "MiB of a worker", "MiB in all"]


def speed_cells(point: Point, ratio: float) -> List[str]:
    """Returns the cells of speed_header's columns."""
    return [point.cell(*IMAGES), f"{ratio:.2f}" if ratio else "-", point.cell(*EPOCH), point.cell(*ACCURACY, 4),
            point.cell(*WORKER_MEMORY, 0), point.cell(*TOTAL_MEMORY, 0)]


def note_outcome(point: Point, outcome: Outcome, workload: Workload, workers: int) -> None:
    speed = outcome.images_per_second(workload.warm_up * workload.batch * workers)
    samples = workload.train_limit or TRAIN_SAMPLES[workload.dataset]
    point.add(*IMAGES, speed)
    point.add(*EPOCH, samples / speed if speed else 0.0)
    point.add(*ACCURACY, outcome.accuracy())
    point.add(*WORKER_MEMORY, outcome.peak_worker_mib)
    point.add(*TOTAL_MEMORY, outcome.peak_total_mib)


def quick(workload: Workload, steps: int) -> Workload:
    """Returns the fewest steps that show that all works: a snapshot, a death in between, some steps after it."""
    return replace(workload, steps=steps, snapshot_every=steps // 4, kill_at=steps // 4 + steps // 8,
                   warm_up=steps // 10, test_limit=500)
