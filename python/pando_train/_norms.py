"""The running statistics of a batch norm during training.

The servers keep them: version t + 1 is the moving average of version t and of the step's mean. A
worker gives only the statistics of its micro-batch. Before a forward the buffers are set to 0, with
momentum 1. After it they hold exactly the batch's mean and variance. Then the running statistics are
restored, so that the program sees no others. Activation checkpointing calls the layer again, which
gives the same values.
"""
from typing import List, Tuple

import torch
from torch import nn

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
        self._given: Tuple[torch.Tensor, ...] = ()  # this micro-batch's statistics, once they are given
        self._versions: List[int] = []  # versions of the buffers before the forward

    def begin(self) -> None:
        """Starts a micro-batch: the program may have called the layer in train() since the last one."""
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
            value.zero_()
        self._versions = self._buffer_versions()

    def leave(self, is_part: bool) -> None:
        """Runs after a forward of the layer, or of the compiled module that contains it.

        Raises PandoError if the layer has run twice on different inputs.
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
        self._count.note(self._exchange.version, True)
        if not self._exchange.is_given(self._indices[0]):
            self._given = values
            for index, value in zip(self._indices, values):
                self._exchange.give(index, value)
        elif not all(map(torch.equal, self._given, values)):
            raise PandoError(f"batch norm {self._name} was called twice in one micro-batch, with different inputs: "
                             "its running statistics would depend on the order. Use two layers")

    def finish(self) -> None:
        """Ends a micro-batch. A layer that made no statistics gives its running ones."""
        for index, value in zip(self._indices, self._values()):
            if not self._exchange.is_given(index):
                self._exchange.load(index)
                self._exchange.give(index, value)

    def _buffer_versions(self) -> List[int]:
        return [buffer._version for buffer in self._module._buffers.values() if buffer is not None]

    def _makes_statistics(self) -> bool:
        return self._module.training and self._exchange.is_training

    def _values(self) -> Tuple[torch.Tensor, torch.Tensor]:
        return self._module.running_mean, self._module.running_var
