"""libpando_worker.so through ctypes: the structs and functions of pando_worker.h, one to one.

Each result becomes a value or an exception. A call that blocks returns every 100 ms, so that Python
handles its signals.
"""
import ctypes
import os
import sys
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .errors import Abandoned, PandoError

ABI = 3
OK, AGAIN, ABANDONED, END, ERROR = range(5)
PARAMETER, STATISTIC = range(2)
TRAIN, EVALUATE, REPORT = range(3)
NOT_ENDED, COMPLETED, FAILED, INTERRUPTED, DRAINED = range(5)
ANY_RANK = 2**32 - 1
NOT_LOGGED = -sys.float_info.max  # PANDO_NOT_LOGGED
WAIT_MS = 100
FAIL_TIMEOUT_MS = 5000
NAME = "libpando_worker.so"


class TensorStruct(Structure):
    _fields_ = [("name", c_char_p), ("shape", POINTER(c_uint64)), ("dimensions", c_uint32), ("kind", c_uint32),
                ("momentum", c_float), ("group", c_uint32), ("lr_factor", c_double), ("weight_decay", c_double),
                ("initial", c_void_p)]


class OptionsStruct(Structure):
    _fields_ = [("scheduler", c_char_p), ("job", c_char_p), ("model_name", c_char_p),
                ("tensors", POINTER(TensorStruct)), ("tensor_count", c_uint32), ("train_samples", c_uint64),
                ("test_samples", c_uint64), ("kind", c_char_p), ("start_timeout_ms", c_uint32),
                ("wanted_rank", c_uint32)]


class RunStruct(Structure):
    _fields_ = [("rank", c_uint32), ("seed", c_uint64), ("step_count", c_uint64), ("steps_per_epoch", c_uint64),
                ("micro_batches", c_uint32), ("took_over", c_uint32), ("run_dir", c_char_p)]


class WorkStruct(Structure):
    _fields_ = [("kind", c_uint32), ("micro_batch", c_uint32), ("step", c_uint64), ("epoch", c_uint64),
                ("version", c_uint64), ("sample_count", c_uint64), ("samples", POINTER(c_uint64))]


class MeanStruct(Structure):
    _fields_ = [("name", c_char_p), ("value", c_double)]


# The functions of pando_worker.h. Name: (type of the result, types of the arguments).
FUNCTIONS = {
    "pando_abi": (c_uint32, []),
    "pando_version": (c_char_p, []),
    "pando_open": (c_uint32, [POINTER(OptionsStruct), POINTER(c_void_p)]),
    "pando_join": (c_uint32, [c_void_p, c_uint32]),
    "pando_describe": (c_uint32, [c_void_p, POINTER(RunStruct)]),
    "pando_next_work": (c_uint32, [c_void_p, POINTER(WorkStruct), c_uint32]),
    "pando_peek_work": (c_uint32, [c_void_p, c_uint32, POINTER(WorkStruct)]),
    "pando_end_reading": (c_uint32, [c_void_p]),
    "pando_load_tensor": (c_uint32, [c_void_p, c_uint32, c_void_p, POINTER(c_uint64), c_uint32]),
    "pando_give_gradient": (c_uint32, [c_void_p, c_uint32, c_void_p, c_double]),
    "pando_finish_work": (c_uint32, [c_void_p, POINTER(c_double), c_uint32]),
    "pando_evaluated": (c_uint32, [c_void_p, POINTER(POINTER(MeanStruct)), POINTER(c_uint32)]),
    "pando_stop": (c_uint32, [c_void_p, c_char_p]),
    "pando_leave": (None, [c_void_p]),
    "pando_fail": (c_uint32, [c_void_p, c_char_p, c_uint32]),
    "pando_end": (c_uint32, [c_void_p, POINTER(c_char_p)]),
    "pando_last_error": (c_char_p, [c_void_p]),
    "pando_close": (None, [c_void_p]),
}


class Work(NamedTuple):
    """One work, as in pando_work. `samples` are indices into the training or the test set."""
    kind: int
    step: int
    micro_batch: int
    epoch: int
    version: int
    samples: Tuple[int, ...]


class RunFacts(NamedTuple):
    """Facts of the run, as in pando_run."""
    rank: int
    seed: int
    step_count: int
    steps_per_epoch: int
    micro_batches: int
    took_over: bool
    run_dir: str


def find_file(variable: str, name: str, in_build: str) -> Tuple[Optional[str], List[str]]:
    """Finds a file of the build: named by an environment variable, beside the package, or in the repository.

    Returns its path, or None, and the places that were searched.
    Raises PandoError if the variable names a file that does not exist.
    """
    named = os.environ.get(variable)
    if named:
        if not Path(named).exists():
            raise PandoError(f"{variable} is {named}, which does not exist: set it to the path of {name}")
        return named, []
    package = Path(__file__).resolve().parent
    places = [package / name, package.parents[1] / "build" / in_build / name]
    found = next((str(place) for place in places if place.exists()), None)
    return found, [f"{variable} in the environment", *map(str, places)]


def load_library():
    """Loads the library and declares its functions. Raises PandoError with the places searched."""
    path, places = find_file("PANDO_LIBRARY", NAME, "embed")
    try:
        library = ctypes.CDLL(path or NAME)
    except OSError as error:
        searched = "; ".join([*places, "the loader's path (LD_LIBRARY_PATH)"])
        raise PandoError(f"cannot load {path or NAME}: {error}. Searched: {searched}. Build it with "
                         "`ninja -C build`, or set PANDO_LIBRARY to its path") from error
    if library.pando_abi() != ABI:
        raise PandoError(f"{path or NAME} has interface {library.pando_abi()}, and this package needs {ABI}: "
                         "install the package and the library of one release")
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class Worker:
    """One pando_worker. Methods raise PandoError after PANDO_ERROR and Abandoned after PANDO_ABANDONED.

    Threads: see pando_worker.h. A forked child must not call it; close() does nothing there.
    """

    def __init__(self, library, options: OptionsStruct):
        """Opens the worker. `options` and its strings are copied."""
        self._library = library
        self._handle = c_void_p()
        self._process = os.getpid()
        self._is_broken = False  # after an error or fail() only close() may follow
        try:
            self._check(library.pando_open(byref(options), byref(self._handle)))
        except PandoError:
            self.close()
            raise

    def _check(self, result: int) -> int:
        if result == ABANDONED:
            raise Abandoned()
        if result == ERROR:
            self._is_broken = True
            raise PandoError((self._library.pando_last_error(self._handle) or b"").decode("utf-8", "replace"))
        return result

    def _wait(self, function, *arguments) -> int:
        while True:
            result = function(self._handle, *arguments, WAIT_MS)
            if result != AGAIN:
                return self._check(result)

    def join(self) -> bool:
        """Waits until the run has this process. False: the run was over."""
        return self._wait(self._library.pando_join) == OK

    def describe(self) -> RunFacts:
        run = RunStruct()
        self._check(self._library.pando_describe(self._handle, byref(run)))
        return RunFacts(run.rank, run.seed, run.step_count, run.steps_per_epoch, run.micro_batches,
                        bool(run.took_over), (run.run_dir or b"").decode())

    def next_work(self) -> Optional[Work]:
        """Returns the next work, or None at the end."""
        work = WorkStruct()
        return read_work(work) if self._wait(self._library.pando_next_work, byref(work)) == OK else None

    def peek_work(self, ahead: int) -> Optional[Work]:
        """Returns a guess of later work, or None if there is no guess."""
        work = WorkStruct()
        return read_work(work) if self._library.pando_peek_work(self._handle, ahead, byref(work)) == OK else None

    def end_reading(self) -> None:
        """Notes that the program has the samples of its work, for which it waited until now."""
        self._check(self._library.pando_end_reading(self._handle))

    def load_tensor(self, index: int, address: int, holds) -> None:
        """Waits for the tensor and copies it to `address`. `holds` is a pointer to a c_uint64."""
        if self._wait(self._library.pando_load_tensor, index, address, holds) == END:
            raise Abandoned()

    def give_gradient(self, index: int, address: int, weight: float) -> None:
        if self._check(self._library.pando_give_gradient(self._handle, index, address, weight)) == END:
            raise Abandoned()

    def finish_work(self, sums: Sequence[float]) -> None:
        values = (c_double * max(len(sums), 1))(*sums)
        if self._check(self._library.pando_finish_work(self._handle, values, len(sums))) == END:
            raise Abandoned()

    def evaluated(self) -> Dict[str, float]:
        """Returns the means of the version that the current work reports, by name."""
        means, count = POINTER(MeanStruct)(), c_uint32()
        if self._check(self._library.pando_evaluated(self._handle, byref(means), byref(count))) == END:
            raise Abandoned()
        return {means[index].name.decode(): means[index].value for index in range(count.value)}

    def stop(self, text: str) -> None:
        """Ends the run with the version that the current work reports."""
        if self._check(self._library.pando_stop(self._handle, text.encode("utf-8", "replace"))) == END:
            raise Abandoned()

    def leave(self) -> None:
        self._library.pando_leave(self._handle)

    def fail(self, text: str) -> None:
        """Ends the run with this root cause. Does nothing after an error of the library (already known)."""
        if self._is_broken or os.getpid() != self._process:
            return
        self._is_broken = True
        cause = text.strip().replace("\0", " ").encode("utf-8", "replace")
        self._library.pando_fail(self._handle, cause, FAIL_TIMEOUT_MS)

    def end(self) -> Tuple[int, str]:
        """Returns how the run ended for this process, and why."""
        text = c_char_p()
        ending = self._library.pando_end(self._handle, byref(text))
        return ending, (text.value or b"").decode("utf-8", "replace")

    def close(self) -> None:
        if self._handle and os.getpid() == self._process:
            self._library.pando_close(self._handle)
        self._handle = c_void_p()


def read_work(work: WorkStruct) -> Work:
    return Work(work.kind, work.step, work.micro_batch, work.epoch, work.version,
                tuple(work.samples[:work.sample_count]) if work.sample_count else ())
