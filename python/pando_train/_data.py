"""Reads the samples of the work that this process is given, and those of the next work ahead.

torch's DataLoader reads with other processes. Its batch sampler, Reader, asks the library which work
will come. A view of the run changes that now and then, and what was read for nothing is dropped.
"""
import signal
from collections import deque
from itertools import chain, count, dropwhile, takewhile
from typing import Any, Callable, Deque, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset
from torch.utils.data._utils.pin_memory import pin_memory as pin

from ._library import EVALUATE, Work
from ._random import derive, kept_generators, seed_generators
from .errors import PandoError

Key = Tuple[bool, int, int]  # whether of the test set, epoch, sample


class Chunk(NamedTuple):
    """What is read and collated together. `tag` names it: kind, step or version, micro-batch or first sample, part."""
    tag: Tuple[int, int, int, int]
    keys: List[Key]


class Samples(Dataset):
    """Training and test samples by key. Each is drawn with generators seeded by (seed, epoch, sample)."""

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

    Threads: the main one alone.
    """

    def __init__(self, samples: Samples, find_ahead: Callable[[], Iterator[Chunk]], collate: Optional[Callable],
                 num_workers: int, pin_memory: bool):
        self._samples = samples
        self._find_ahead = find_ahead
        self._collate = collate or torch.utils.data.default_collate
        self._pins = pin_memory and torch.cuda.is_available()
        self._asked: Deque[Tuple] = deque()  # tags of chunks that the loader reads, in its order
        self._wanted: Optional[Tuple] = None  # the tag of the last read
        self._batches: Optional[Iterator] = None
        self._loader = None
        if num_workers > 0:
            self._loader = DataLoader(samples, batch_sampler=self, num_workers=num_workers, collate_fn=self._collate,
                                      pin_memory=self._pins, persistent_workers=True, generator=torch.Generator(),
                                      worker_init_fn=ignore_interrupts)

    def read(self, chunk: Chunk) -> Any:
        """The batch of a chunk of the current work."""
        if self._loader is None:
            return self._read_here(chunk)
        self._wanted = chunk.tag
        if chunk.tag not in self._asked:
            self._batches = iter(self._loader)  # drops what is on its way; the processes stay
        while True:
            batch = next(self._batches)
            if self._asked.popleft() == chunk.tag:
                return batch

    def close(self) -> None:
        """Ends the processes."""
        self._batches = self._loader = None

    def _read_here(self, chunk: Chunk) -> Any:
        with kept_generators():
            batch = self._collate([self._samples[key] for key in chunk.keys])
        return pin(batch) if self._pins else batch

    def __iter__(self) -> "Reader":
        """As the batch sampler of the DataLoader: it begins again."""
        self._asked.clear()
        return self

    def __next__(self) -> List[Key]:
        """The next chunk to read ahead. StopIteration: no guess; the DataLoader asks again after a batch."""
        for chunk in dropwhile(lambda chunk: chunk.tag != self._wanted, self._find_ahead()):
            if chunk.tag not in self._asked:
                self._asked.append(chunk.tag)
                return chunk.keys
        raise StopIteration


def ignore_interrupts(_worker: int) -> None:
    """In each reading process: Ctrl-C in a terminal reaches it too, and the loop needs it until its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def split_work(work: Work, batch_size: int) -> Iterator[Chunk]:
    """A micro-batch of training is one chunk. Test samples come in chunks of `batch_size`."""
    if work.kind != EVALUATE:
        yield Chunk((work.kind, work.step, work.micro_batch, 0), [(False, work.epoch, i) for i in work.samples])
        return
    for part in range(0, len(work.samples), batch_size):
        keys = [(True, 0, i) for i in work.samples[part:part + batch_size]]
        yield Chunk((work.kind, work.version, work.samples[0], part), keys)


def find_ahead(current: Optional[Work], peek: Callable[[int], Optional[Work]], batch_size: int) -> Iterator[Chunk]:
    """The chunks of the current work, then those of work that will likely come."""
    works = chain([current], map(peek, count()))
    for work in takewhile(lambda work: work is not None, works):
        yield from split_work(work, batch_size)


def count_samples(data: Any, name: str) -> int:
    """The length of a map-style data set. Raises PandoError for other ones."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        raise PandoError(f"{name} is a {type(data).__name__}: Pando gives samples out by index, so it needs a "
                         "map-style data set with __len__ and __getitem__")
    if len(data) == 0:
        raise PandoError(f"{name} is empty: a run needs at least one sample")
    return len(data)
