"""Finds writes through .data, which torch's version counters do not see."""
from typing import Dict, List, Optional, Sequence

import torch

from ._exchange import Exchange
from ._tensors import TensorTable

ALWAYS = 2  # tensors that every block checks, the smallest
FIRST, EVERY = 3, 100  # blocks that check all tensors: the first ones, and one in so many


class Writes:
    """Sums of the bytes of parameters and gradients, at the two ends of the time in which they must not change.

    Parameters: from the end of a block to the next one's start, and at its end as the library holds them.
    Gradients: from when they leave to the block's end.
    """

    def __init__(self, table: TensorTable, exchange: Exchange):
        self._exchange = exchange
        sizes = {index: entry.tensor.numel() for index, entry in table.parameters}
        self._all = list(sizes)
        self._few = sorted(sizes, key=sizes.__getitem__)[:ALWAYS]
        self._blocks = 0
        self._checked: Sequence[int] = ()  # parameters that this block checks
        self._left: Dict[int, torch.Tensor] = {}  # sums of the gradients that have left
        self._ended: Dict[int, torch.Tensor] = {}  # sums of the parameters at the last block's end
        self._serial = 0  # of the last block

    def begin(self) -> Optional[int]:
        """Begins a block, before anything is loaded. The index of a parameter written to since the last one."""
        ended, self._ended = self._ended, {}
        is_next = self._exchange.serial == self._serial + 1  # otherwise an evaluation has loaded another version
        self._serial = self._exchange.serial
        self._checked = self._all if self._blocks < FIRST or self._blocks % EVERY == 0 else self._few
        self._blocks += 1
        self._left.clear()
        return find_difference(ended, [self._sum(index) for index in ended]) if is_next else None

    def note(self, index: int, gradient: torch.Tensor) -> None:
        """This gradient leaves."""
        if index in self._checked:
            self._left[index] = sum_bytes(gradient)

    def find_gradient(self) -> Optional[int]:
        """At the block's end: the index of a parameter whose gradient was written to after it had left."""
        grads = {index: self._exchange.entries[index].tensor.grad for index in self._left}
        kept = {index: self._left[index] for index, grad in grads.items() if grad is not None}
        return find_difference(kept, [sum_bytes(grads[index]) for index in kept])

    def find_parameter(self) -> Optional[int]:
        """At the block's end: the index of a parameter written to in it. Raises Abandoned."""
        ended = {index: self._sum(index) for index in self._checked}
        found = find_difference(ended, [sum_bytes(self._exchange.read(index)) for index in self._checked])
        self._ended = ended
        return found

    def _sum(self, index: int) -> torch.Tensor:
        return sum_bytes(self._exchange.entries[index].tensor)


def sum_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Of whole numbers of 8 bytes, row by row: 0.6 ns per parameter, and those of 4 bytes take 10."""
    words = tensor.detach().contiguous().view(-1).view(torch.int32)
    if words.storage_offset() % 2:
        words = words.clone()
    total = words[:len(words) // 2 * 2].view(torch.int64).sum()
    return total + words[-1] if len(words) % 2 else total


def find_difference(sums: Dict[int, torch.Tensor], others: List[torch.Tensor]) -> Optional[int]:
    """The first key whose sum differs. Waits for a GPU once."""
    if not sums:
        return None
    pairs = zip(sums, torch.stack(list(sums.values())).tolist(), torch.stack(others).tolist())
    return next((index for index, first, second in pairs if first != second), None)
