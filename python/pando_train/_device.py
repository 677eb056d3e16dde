"""Moves tensors between a module and the library's buffers in host memory."""
from collections import deque
from typing import Deque, Dict, Tuple

import torch

from ._library import Worker

FLOATS = {"dtype": torch.float32, "device": "cpu"}  # the program may have set other defaults


class HostDevice:
    """Handles tensors in host memory, which the library reads and writes in place."""

    def __init__(self, worker: Worker):
        self._worker = worker

    def load(self, index: int, tensor: torch.Tensor, holds) -> None:
        """Waits for the tensor's version in work, and copies it to `tensor`, at its old address."""
        if tensor.is_contiguous():
            self._worker.load_tensor(index, tensor.data_ptr(), holds)
            return
        staging = torch.empty(tensor.shape, **FLOATS)
        holds[0] = 0  # the staging memory is new, so it holds no version
        self._worker.load_tensor(index, staging.data_ptr(), holds)
        tensor.data.copy_(staging)

    def give(self, index: int, gradient: torch.Tensor, weight: float) -> None:
        dense = gradient.contiguous()  # must outlive the call
        self._worker.give_gradient(index, dense.data_ptr(), weight)

    def flush(self) -> None:
        """Waits until the library has everything that `give` took."""

    def drop(self) -> None:
        """Drops the gradients that `give` took for abandoned work."""


class GpuDevice:
    """Handles tensors on a GPU. Copies run on two side streams, through pinned memory.

    The library gets a gradient when a later call finds that its copy is complete, at the latest in flush().
    """

    def __init__(self, worker: Worker, device: torch.device):
        self._worker = worker
        self._device = device
        self._to_host = torch.cuda.Stream(device)
        self._to_gpu = torch.cuda.Stream(device)
        self._loads: Dict[int, Tuple[torch.Tensor, torch.cuda.Event]] = {}  # pinned memory, and the end of its copy
        self._pinned: Dict[int, torch.Tensor] = {}  # memory for gradients
        self._copies: Deque[Tuple[int, torch.cuda.Event, float]] = deque()

    def load(self, index: int, tensor: torch.Tensor, holds) -> None:
        if index not in self._loads:
            self._loads[index] = torch.empty(tensor.shape, pin_memory=True, **FLOATS), torch.cuda.Event()
        pinned, copied = self._loads[index]
        copied.synchronize()
        self._worker.load_tensor(index, pinned.data_ptr(), holds)
        current = torch.cuda.current_stream(self._device)
        self._to_gpu.wait_stream(current)  # kernels may still read the last version
        with torch.cuda.stream(self._to_gpu):
            tensor.data.copy_(pinned, non_blocking=True)
            copied.record()
        current.wait_event(copied)

    def give(self, index: int, gradient: torch.Tensor, weight: float) -> None:
        if index not in self._pinned:
            self._pinned[index] = torch.empty(gradient.shape, pin_memory=True, **FLOATS)
        self._to_host.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._to_host):
            self._pinned[index].copy_(gradient, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record()
        gradient.record_stream(self._to_host)
        self._copies.append((index, copied, weight))
        while self._copies and self._copies[0][1].query():
            self._give_first()

    def flush(self) -> None:
        while self._copies:
            self._copies[0][1].synchronize()
            self._give_first()

    def drop(self) -> None:
        self._to_host.synchronize()
        self._copies.clear()

    def _give_first(self) -> None:
        index, _, weight = self._copies.popleft()
        self._worker.give_gradient(index, self._pinned[index].data_ptr(), weight)


def open_device(worker: Worker, device: torch.device):
    """Returns the class for tensors of this device."""
    return GpuDevice(worker, device) if device.type == "cuda" else HostDevice(worker)
