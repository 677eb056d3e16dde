"""The tensors of the current work: which ones have arrived, and which ones were given."""
import ctypes
from typing import List

import torch

from ._device import FLOATS, open_device
from ._library import STATISTIC, Worker
from ._tensors import TensorTable, check_type
from .errors import Abandoned, PandoError


class Exchange:
    """Loads parameters and gives gradients, each once per work.

    Threads: one at a time. On a GPU, autograd's thread gives gradients while the main thread waits.
    """

    def __init__(self, worker: Worker, table: TensorTable, device: torch.device):
        count = len(table.entries)
        self.entries = table.entries
        self.trained = table.trained
        self.is_active = False  # there is a current work
        self.is_training = False  # the work is a micro-batch of training
        self.is_abandoned = False
        self._worker = worker
        self._device = open_device(worker, device)
        self._addresses = [entry.tensor.data_ptr() for entry in table.entries]
        self.serial = 0  # the serial number of the work
        self.version = 0  # the version of the parameters in this work
        self.weight = self._samples = 0.0
        self._loaded: List[int] = [0] * count  # by tensor: serial number of the work that loaded it
        self._given: List[int] = [0] * count
        self._holds = (ctypes.c_uint64 * count)()
        size = ctypes.sizeof(ctypes.c_uint64)
        base = ctypes.addressof(self._holds)
        pointer = ctypes.POINTER(ctypes.c_uint64)
        self._hold_pointers = [ctypes.cast(base + size * index, pointer) for index in range(count)]

    def begin(self, is_training: bool, version: int, weight: float, samples: int) -> None:
        """Begins a work. Gradients count with the weight `weight`, statistics with the number of samples."""
        self.serial += 1
        self.version = version
        self.weight, self._samples = weight, float(samples)
        self.is_active = True
        self.is_training = is_training
        self.is_abandoned = False
        torch.clear_autocast_cache()  # the cache has copies of earlier versions

    def end(self) -> None:
        if self.is_abandoned:
            self._device.drop()
        self.is_active = self.is_training = False
        torch.clear_autocast_cache()

    def load(self, index: int) -> None:
        """Waits until the tensor has the work's version. Raises Abandoned."""
        if self._loaded[index] == self.serial and not self.is_abandoned:
            return
        tensor = self.tensor(index)
        if tensor.data_ptr() != self._addresses[index]:
            self._refuse_memory(index, tensor)
        self._guard(self._device.load, index, tensor, self._hold_pointers[index])
        self._loaded[index] = self.serial

    def tensor(self, index: int) -> torch.Tensor:
        parameter = self.trained.get(index)
        return self.entries[index].tensor if parameter is None else parameter

    def check_memory(self) -> None:
        """Raises PandoError if a tensor's memory is not the one that it had at the start of the loop."""
        for index, address in enumerate(self._addresses):
            tensor = self.tensor(index)
            if tensor.data_ptr() != address:
                self._refuse_memory(index, tensor)

    def _refuse_memory(self, index: int, tensor: torch.Tensor) -> None:
        label = self.entries[index].label
        check_type(label, tensor)
        raise PandoError(f"the memory of {label} was replaced after run.loader(), by .data = ..., .to() or "
                         "vector_to_parameters. The servers update the weights, and the memory stays where it is: "
                         "move the module before the loop, and change no weights in it")

    def read(self, index: int) -> torch.Tensor:
        """Returns the tensor as the library holds it, in host memory. Raises Abandoned."""
        held = torch.empty(self.tensor(index).shape, **FLOATS)
        self._guard(self._worker.load_tensor, index, held.data_ptr(), ctypes.byref(ctypes.c_uint64(0)))
        return held

    def check_needed(self) -> None:
        """Raises Abandoned if the work is no longer needed. REQUIRES: load_all."""
        self._guard(self._worker.load_tensor, 0, self._addresses[0], self._hold_pointers[0])

    def load_all(self) -> None:
        for index in range(len(self.entries)):
            self.load(index)

    def forget(self, index: int) -> None:
        """Notes that the tensor in the module was overwritten, so that it has no version."""
        self._holds[index] = 0
        self._loaded[index] = 0

    def give(self, index: int, value: torch.Tensor) -> None:
        """Gives the gradient of a mean loss, or a statistic. Raises Abandoned."""
        weight = self._samples if self.entries[index].kind == STATISTIC else self.weight
        if weight > 0:  # a mean over nothing is NaN; a tensor that is not given is zeros
            self._guard(self._device.give, index, value, weight)
        self._given[index] = self.serial

    def flush(self) -> None:
        """Waits until the library has all gradients. Raises Abandoned."""
        self._guard(self._device.flush)

    def is_loaded(self, index: int) -> bool:
        return self._loaded[index] == self.serial

    def is_given(self, index: int) -> bool:
        return self._given[index] == self.serial

    def has_given_any(self) -> bool:
        return self.serial in self._given

    def _guard(self, call, *arguments) -> None:
        if self.is_abandoned:
            raise Abandoned()
        try:
            call(*arguments)
        except Abandoned:
            self.is_abandoned = True
            raise
