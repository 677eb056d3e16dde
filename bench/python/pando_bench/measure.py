"""Measures: variants in turns, child processes that end with this one, a search for the programs."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List

from results import EXIT_FAILED, BenchError, Point

PR_SET_PDEATHSIG = 1
STOP_SECONDS = 5.0  # pando train gives its own processes 800 ms to leave, then kills them
LOG_LINES = 5


@dataclass
class Variant:
    point: Point  # named, without samples
    measure: Callable[[Point], None]  # adds a sample to each metric of the point


def progress_line(done: int, total: int, name: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\033[K{done + 1}/{total} {name}" + ("\r\033[K" if done + 1 == total else ""), end="", file=sys.stderr,
              flush=True)


def measure_in_turns(variants: List[Variant], rounds: int, on_progress=progress_line) -> List[Point]:
    """Measures every variant once a round, so that a slow minute of the machine is slow for all of them. Every other
    round goes backwards, so that no variant always follows the same one. The first error ends it."""
    done = 0
    for turn in range(rounds):
        for variant in variants if turn % 2 == 0 else reversed(variants):
            on_progress(done, len(variants) * rounds, variant.point.name)
            done += 1
            try:
                variant.measure(variant.point)
            except BenchError as error:
                raise BenchError(f"{variant.point.name}: {error}", error.exit_code) from error
    return [variant.point for variant in variants]


def busy_share(seconds: float) -> float:
    """Returns the part of this machine's processor time that programs use while this one waits."""

    def ticks():
        values = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return values[3] + values[4], sum(values)  # idle, all

    idle, total = ticks()
    time.sleep(seconds)
    idle_later, total_later = ticks()
    return 1 - (idle_later - idle) / max(1, total_later - total)


def warn_of_load() -> None:
    share = busy_share(0.5)
    if share > 0.1:
        print(f"pando bench: warning: other programs use {share:.0%} of this machine's processors, and figures will be "
              "too low: end them first (top lists them)", file=sys.stderr)


# ---- processes ------------------------------------------------------------------------------------------------------


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def start(words: List[str], **options) -> subprocess.Popen:
    """Starts it in a separate session: Ctrl-C reaches only this process, which then stops the children in order."""
    return subprocess.Popen(words, start_new_session=True, preexec_fn=die_with_parent,
                            stdin=options.pop("stdin", subprocess.DEVNULL), **options)


def stop(processes: List[subprocess.Popen]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    for process in processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def running(words: List[str], **options) -> Iterator[subprocess.Popen]:
    """Starts a process that is stopped at the end of the block."""
    process = start(words, **options)
    try:
        yield process
    finally:
        stop([process])
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                with suppress(BrokenPipeError):  # an ended process reads no more; the stream is closed anyway
                    stream.close()


def exit_text(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def log_tail(path: Path) -> str:
    try:
        return "; ".join(path.read_text(errors="replace").splitlines()[-LOG_LINES:])
    except OSError:
        return ""


# ---- programs -------------------------------------------------------------------------------------------------------


class Programs:
    """pando, which starts the benchmarks, and pando-bench, which makes the measurements in C++."""

    def __init__(self, pando: Path):
        self.pando = pando
        folder = pando.parent
        # Beside pando; in the build folder; in the folder of the installed scripts.
        self.bench_places = [folder / "pando-bench", folder.parent / "bench/cpp/pando-bench",
                             Path(__file__).resolve().parents[1] / "pando-bench"]

    def measured(self, given: str) -> str:
        """Returns the program pando whose training is measured."""
        path = Path(given) if given else self.pando
        if path.is_file() and os.access(path, os.X_OK):
            return str(path.absolute())
        raise BenchError(
            f"the program pando, which this benchmark measures, is not there:\n  {path}\nname it with --program"
        )

    def bench(self) -> str:
        for place in self.bench_places:
            if os.access(place, os.X_OK):
                return str(place)
        tried = "".join(f"\n  {place}" for place in self.bench_places)
        raise BenchError(f"the program pando-bench, which measures, is missing:{tried}\n"
                         "build it with: ninja -C BUILD_FOLDER bench/cpp/pando-bench")

    def commit(self) -> str:
        """Returns the sources' commit when pando-bench was built; "" without the program."""
        done = subprocess.run([self.bench(), "--version"], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    def ask_bench(self, words: List[str]) -> str:
        """Returns pando-bench's output. Its error becomes the BenchError's text."""
        with running([self.bench(), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            out, error = process.communicate()
        if process.returncode == 0:
            return out
        code = process.returncode
        raise BenchError(error.strip() or f"pando-bench ended: {exit_text(code)}", code if code > 0 else EXIT_FAILED)
