"""Reads the samples of this process's current work, and those of the next work ahead.

torch's DataLoader reads with other processes. Its batch sampler, Reader, asks the library which work
will come. A new view of the run may change the answer: samples that nothing needs any more are dropped.
"""
import multiprocessing
import signal
from collections import deque
from functools import partial
from itertools import chain, count, dropwhile, takewhile
from multiprocessing.connection import wait
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils import signal_handling
from torch.utils.data._utils.pin_memory import pin_memory as pin

from ._library import TRAIN, Work
from ._random import choose_determinism, derive, flushes_denormals, kept_generators, seed_generators
from .errors import PandoError

NO_GUARD = """{}. The start methods spawn and forkserver import the script in each process that reads samples.
Keep what trains away from the import:
    def main():
        ...  # from pando.join to the script's end
    if __name__ == "__main__":
        main()"""
TRIES = 3  # attempts to read a batch, if processes die
DEATH_TIMEOUT_S = 1.0  # from the error that a dying process causes to its end
Key = Tuple[bool, int, int]  # whether it is a test sample, epoch, sample


class Chunk(NamedTuple):
    """Samples that are read and collated together. `tag`: kind, step or version, micro-batch or first sample, part."""
    tag: Tuple[int, int, int, int]
    keys: List[Key]


class Samples(Dataset):
    """Training and test samples by key. (seed, epoch, sample) seed the generators of each sample."""

    def __init__(self, train_set: Any, test_set: Any, seed: int):
        self._train_set = train_set
        self._test_set = test_set
        self._seed = seed

    def __getitem__(self, key: Key) -> Any:
        is_test, epoch, sample = key
        seed_generators(derive("test" if is_test else "train", self._seed, epoch, sample))
        return (self._test_set if is_test else self._train_set)[sample]


class Reader:
    """Returns the batches of chunks. `find_ahead` yields the chunks of the current work, then likely ones.

    Threads: only the main thread.
    """

    def __init__(self, samples: Samples, find_ahead: Callable[[], Iterator[Chunk]], collate: Optional[Callable],
                 num_workers: int, pin_memory: bool):
        self._samples = samples
        self._find_ahead = find_ahead
        self._collate = collate or torch.utils.data.default_collate
        self._pins = pin_memory and torch.cuda.is_available()
        self._asked: Deque[Tuple] = deque()  # tags of chunks that the loader reads, in its order
        self._wanted: Optional[Tuple] = None  # the tag of the last chunk that was read
        self._batches: Optional[Iterator] = None
        self._loader: Optional[DataLoader] = None
        self._num_workers = num_workers
        self._start_method = multiprocessing.get_start_method(allow_none=True) or "fork"
        if num_workers > 0:
            self._make_loader()

    def read(self, chunk: Chunk) -> Any:
        """Returns the batch of a chunk of the current work. If processes die, other ones read it."""
        if self._loader is None:
            return self._read_here(chunk)
        self._wanted = chunk.tag
        for _ in range(TRIES):
            if not self._has_dead_process():
                try:
                    return self._read_ahead(chunk.tag)
                except Exception as error:
                    self._check_start(error)
                    if not self._has_dead_process(DEATH_TIMEOUT_S):
                        raise
            self._batches._shutdown_workers()
            self._make_loader()
        raise PandoError(f"processes that read samples died {TRIES} times while they read one batch: they may need "
                         "more memory than the machine has. Use a smaller num_workers")

    def close(self) -> None:
        """Ends the processes."""
        self._batches = self._loader = None

    def _make_loader(self) -> None:
        self._batches = None
        self._asked.clear()
        self._loader = DataLoader(self._samples, batch_sampler=self, num_workers=self._num_workers,
                                  multiprocessing_context=self._start_method, collate_fn=self._collate,
                                  pin_memory=self._pins, persistent_workers=True, generator=torch.Generator(),
                                  worker_init_fn=partial(prepare, flushes_denormals()))

    def _check_start(self, error: Exception) -> None:
        """Raises PandoError if the cause is that processes, or the server that forks them, end while they start."""
        if self._start_method == "fork":
            return
        is_dead = any((process.exitcode or 0) > 0 for process in self._batches._workers) \
            if self._batches is not None else isinstance(error, (EOFError, OSError))
        if is_dead:
            raise PandoError(NO_GUARD.format("the processes that read samples end while they start, with an error: "
                                             "their messages are above")) from error

    def _has_dead_process(self, timeout_s: float = 0.0) -> bool:
        return self._batches is not None and bool(wait([p.sentinel for p in self._batches._workers], timeout_s))

    def _read_ahead(self, tag: Tuple) -> Any:
        if tag not in self._asked:
            self._batches = iter(self._loader)  # drops the batches in work; the processes go on
            # If one of them died, torch would raise in the main thread at any place. read() checks instead.
            signal_handling._remove_worker_pids(id(self._batches))
            signal_handling._set_worker_pids(id(self._batches), ())
        while True:
            batch = next(self._batches)
            if self._asked.popleft() == tag:
                return batch

    def _read_here(self, chunk: Chunk) -> Any:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as in the loader's processes
        try:
            with kept_generators():
                batch = self._collate([self._samples[key] for key in chunk.keys])
        finally:
            torch.set_num_threads(threads)
        return pin(batch) if self._pins else batch

    def __iter__(self) -> "Reader":
        """Begins again, as the batch sampler of the DataLoader."""
        self._asked.clear()
        return self

    def __next__(self) -> List[Key]:
        """Returns the next chunk to read ahead. StopIteration: none yet; the DataLoader asks again after a batch."""
        for chunk in dropwhile(lambda chunk: chunk.tag != self._wanted, self._find_ahead()):
            if chunk.tag not in self._asked:
                self._asked.append(chunk.tag)
                return chunk.keys
        raise StopIteration


def check_guard() -> None:
    """Raises PandoError in a process that multiprocessing has started, if it imports the script."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise PandoError(NO_GUARD.format("pando.join was called in a process that reads samples"))


def prepare(flushes: bool, _worker: int) -> None:
    """Prepares a reading process. Ctrl-C in a terminal must not end it, because the loop needs it to its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    choose_determinism(1)
    torch.set_flush_denormal(flushes)


def split_work(work: Work, batch_size: int, train_batch: Optional[int] = None) -> Iterator[Chunk]:
    """Yields test samples in chunks of `batch_size`, and those of training in chunks of `train_batch`. None: in one.

    A report has none.
    """
    if work.kind == TRAIN:
        size = train_batch or len(work.samples)
        for part in range(0, len(work.samples), size):
            yield Chunk((work.kind, work.step, work.micro_batch, part),
                        [(False, work.epoch, i) for i in work.samples[part:part + size]])
        return
    for part in range(0, len(work.samples), batch_size):
        keys = [(True, 0, i) for i in work.samples[part:part + batch_size]]
        yield Chunk((work.kind, work.version, work.samples[0], part), keys)


def find_ahead(current: Optional[Work], peek: Callable[[int], Optional[Work]], batch_size: int,
               train_batch: Optional[int] = None) -> Iterator[Chunk]:
    """Yields the chunks of the current work, then those of work that will likely come."""
    works = chain([current], map(peek, count()))
    for work in takewhile(lambda work: work is not None, works):
        yield from split_work(work, batch_size, train_batch)


def count_samples(data: Any, name: str) -> int:
    """Returns the length of a map-style data set. Raises PandoError for other data."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise PandoError(f"{name} is a {type(data).__name__}: Pando gives samples out by index, so it needs a "
                         "map-style data set with __len__ and __getitem__")
    if len(data) == 0:
        raise PandoError(f"{name} is empty: a run needs at least one sample")
    return len(data)
