"""The running statistics of a batch norm during training.

The servers keep them: version t + 1 is the moving average of version t and of the step's mean. A
worker gives only the statistics of its micro-batch. Before a forward the buffers are set to 0, with
momentum 1. After it they hold exactly the batch's mean and variance. Then the running statistics are
restored, so that the program sees no others. Activation checkpointing calls the layer again, which
gives the same values. Several calls by the program, as in pairs of networks with shared weights,
move the running statistics one after the other, in the order of the calls.
"""
import sys
from typing import List, Tuple

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ._exchange import Exchange
from ._tensors import Count
from .errors import PandoError


class Norm:
    """One layer with running statistics. `indices` are the indices of running_mean and running_var."""

    def __init__(self, module: nn.Module, name: str, indices: List[int], count: Count, exchange: Exchange):
        self._module = module
        self._name = name
        self._indices = indices
        self._count = count
        self._exchange = exchange
        self._momentum = exchange.entries[indices[0]].momentum
        self._running: Tuple[torch.Tensor, ...] = ()  # in a forward that makes statistics: the values to restore
        self._calls: List[Tuple[torch.Tensor, ...]] = []  # the statistics of this micro-batch's calls
        self._sends_at_end = True
        self._call_count = 0
        self._versions: List[int] = []  # versions of the buffers before the forward

    @property
    def is_repeated(self) -> bool:
        """Returns whether this micro-batch has called the layer several times."""
        return len(self._calls) > 1

    def begin(self, sends_at_end: bool) -> None:
        """Starts a micro-batch: the program may have called the layer in train() since the last one."""
        self._sends_at_end, self._calls = sends_at_end, []
        for index in self._indices:
            self._exchange.forget(index)

    def restore(self) -> None:
        """Gives the layer back to the program, with the running statistics. Runs also after a failed forward."""
        for value, running in zip(self._values(), self._running):
            value.data.copy_(running)  # through .data: autograd has saved the buffer, but does not read it
        if self._running:
            self._running, self._module.momentum = (), self._momentum

    def enter(self) -> None:
        """Runs before a forward of the layer."""
        self.restore()
        for index in self._indices:
            self._exchange.load(index)
        if not self._makes_statistics():
            if self._exchange.is_training:
                self._count.note(self._exchange.version, False)
            return
        if self._module.momentum != self._momentum:
            raise PandoError(f"momentum of batch norm {self._name} was changed after pando.join: the servers keep its "
                             f"running statistics with {self._momentum:g}")
        self._running = tuple(value.clone() for value in self._values())
        self._module.momentum = 1.0
        for value in self._values():
            value.data.zero_()  # through .data, because an earlier call's backward has saved the buffer
        self._versions = self._buffer_versions()
        self._call_count = self._count_calls()

    def leave(self, is_part: bool) -> None:
        """Runs after a forward of the layer, or of the compiled module that contains it.

        Raises PandoError if the layer has run twice, after the statistics of its first call have left.
        """
        if not self._makes_statistics():
            if self._module.training:  # the function of an evaluation has left eval()
                for index in self._indices:
                    self._exchange.forget(index)
                    self._exchange.load(index)
            return
        is_called = not is_part or self._versions != self._buffer_versions()
        values = tuple(value.clone() for value in self._values())
        self.restore()
        if not is_called:
            return
        if is_part and self._count_calls() > self._call_count + 1:
            raise PandoError(f"batch norm {self._name} was called twice in one call of a compiled module, which would "
                             "lose the statistics of the first: compile a part of the module that calls it once")
        self._count.note(self._exchange.version, True)
        if any(all(map(has_same_bits, call, values)) for call in self._calls) and is_recomputing():
            return
        self._calls.append(values)
        if self._sends_at_end:
            return
        if self.is_repeated:
            raise PandoError(f"batch norm {self._name} was called twice in this micro-batch, and once in earlier "
                             "ones: pass run.micro_batch(send_at_end=True), so that its statistics leave at the "
                             "block's end")
        for index, value in zip(self._indices, values):
            self._exchange.give(index, value)

    def finish(self) -> None:
        """Ends a micro-batch, and gives what has not left. A layer that made no statistics gives its running ones."""
        for place, (index, running) in enumerate(zip(self._indices, self._values())):
            if not self._exchange.is_given(index):
                self._exchange.load(index)
                self._exchange.give(index, self._combine(running, [call[place] for call in self._calls]))

    def _combine(self, running: torch.Tensor, calls: List[torch.Tensor]) -> torch.Tensor:
        """Returns the statistic that moves the running one as all calls do, one after the other.

        The servers move it by momentum x (statistic - running). The result is linear in the calls' statistics, so the
        mean over a step's micro-batches moves it as the mean of their moves.
        """
        if len(calls) < 2 or self._momentum == 0:
            return calls[0] if calls else running
        start = running.double()
        moved = start
        for call in calls:
            moved = moved + self._momentum * (call.double() - moved)
        return (start + (moved - start) / self._momentum).to(running.dtype)

    def _count_calls(self) -> int:
        """Returns torch's count of calls, in blocks that send at their end; in others 0, because a GPU would wait."""
        tracked = self._module.num_batches_tracked
        return 0 if tracked is None or not self._sends_at_end else int(tracked)

    def _buffer_versions(self) -> List[int]:
        return [buffer._version for buffer in self._module._buffers.values() if buffer is not None]

    def _makes_statistics(self) -> bool:
        return self._module.training and self._exchange.is_training

    def _values(self) -> Tuple[torch.Tensor, torch.Tensor]:
        return self._module.running_mean, self._module.running_var


def has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


def is_recomputing() -> bool:
    """Returns whether torch.utils.checkpoint calls a forward again, in backward."""
    path = CheckpointFunction.forward.__code__.co_filename
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename == path and frame.f_code.co_name in ("unpack", "unpack_hook", "backward"):
            return True
        frame = frame.f_back
    return False
