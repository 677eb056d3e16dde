"""Finds writes through .data, which torch's version counters do not see."""
from typing import Callable, Dict, List, Optional

import torch

from ._exchange import Exchange
from ._tensors import TensorTable

ALWAYS = 2  # every block checks this number of the smallest tensors, and one more in turn
FIRST, EVERY = 3, 97  # blocks that check all tensors: the first 3, and one in 97, a prime number


class Writes:
    """Compares sums of the bytes of parameters and gradients, at both ends of a time in which none may change.

    Parameters: from a block's end to the next block's start, and at a block's end with the library's copy.
    Gradients: from the time when they are given to the block's end.
    """

    def __init__(self, table: TensorTable, exchange: Exchange):
        self._exchange = exchange
        self._all = [index for index, _ in table.parameters]
        self._few = sorted(self._all, key=lambda index: table.trained[index].numel())[:ALWAYS]
        self._trained = table.trained
        # Views of the parameters, whose memory stays where it is. The other ones are copied for each sum.
        self._words = {index: read_words(tensor) for index, tensor in table.trained.items()
                       if tensor.is_contiguous() and tensor.storage_offset() % 2 == 0}
        self._blocks = 0
        self._checked = self._all  # parameters that this block checks
        self._left: Dict[int, torch.Tensor] = {}  # sums of the given gradients
        self._ended: Dict[int, torch.Tensor] = {}  # sums of the parameters at the last block's end
        self._serial = 0  # the serial number of the last block's work

    def begin(self) -> Optional[int]:
        """Runs before a block loads anything. Returns the index of a parameter written to since the last block."""
        is_next = self._exchange.serial == self._serial + 1  # otherwise an evaluation has loaded another version
        changed = self._find_difference(self._ended, self._sum) if is_next else None
        self._serial = self._exchange.serial
        is_whole = self._blocks < FIRST or self._blocks % EVERY == 0
        self._checked = self._all if is_whole else [*{*self._few, self._all[self._blocks % len(self._all)]}]
        self._blocks += 1
        self._left, self._ended = {}, {}
        return changed

    def note(self, index: int, gradient: torch.Tensor) -> None:
        """Notes the bytes of a gradient that is given now."""
        if index in self._checked:
            self._left[index] = sum_bytes(gradient)

    def find_gradient(self) -> Optional[int]:
        """Returns, at the block's end, the index of a parameter whose gradient was written to after it was given."""
        kept = {index: left for index, left in self._left.items() if self._trained[index].grad is not None}
        return self._find_difference(kept, lambda index: sum_bytes(self._trained[index].grad))

    def find_parameter(self) -> Optional[int]:
        """Returns, at the block's end, the index of a parameter that the block has written to. Raises Abandoned."""
        self._ended = {index: self._sum(index) for index in self._checked}
        return self._find_difference(self._ended, lambda index: sum_bytes(self._exchange.read(index)))

    def find_written(self) -> Optional[int]:
        """Returns the index of a parameter that differs from the version of the work. Raises Abandoned."""
        now = {index: self._sum(index) for index in self._all}
        return self._find_difference(now, lambda index: sum_bytes(self._exchange.read(index)))

    def _sum(self, index: int) -> torch.Tensor:
        words = self._words.get(index)
        return sum_bytes(self._trained[index]) if words is None else add_words(words)

    @staticmethod
    def _find_difference(sums: Dict[int, torch.Tensor], sum_now: Callable[[int], torch.Tensor]) -> Optional[int]:
        """Returns the first index with a different sum. Waits only once for a GPU."""
        if not sums:
            return None
        pairs = zip(sums, torch.stack(list(sums.values())).tolist(), torch.stack(list(map(sum_now, sums))).tolist())
        return next((index for index, first, second in pairs if first != second), None)


def sum_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Adds the bytes as whole numbers of 8 bytes: 0.6 ns per parameter. Numbers of 4 bytes take 10 ns."""
    return add_words(read_words(tensor))


def read_words(tensor: torch.Tensor) -> List[torch.Tensor]:
    """Returns the tensor's bytes as whole numbers of 8 bytes, and perhaps the last 4 bytes as another number.

    They are a view of a contiguous tensor with an even storage offset, and otherwise a copy.
    """
    flat = tensor.detach().reshape(-1)
    if flat.storage_offset() % 2 == flat.numel() % 2 == 0:
        return [flat.view(torch.int64)]
    words = flat.view(torch.int32)
    if words.storage_offset() % 2:
        words = words.clone()
    count = words.numel()
    whole = words[:count // 2 * 2].view(torch.int64)
    return [whole, words[-1]] if count % 2 else [whole]


def add_words(words: List[torch.Tensor]) -> torch.Tensor:
    return words[0].sum() if len(words) == 1 else words[0].sum() + words[1]
