"""The memory of one step by kind: parameters, gradients, optimizer, activations kept for backward; in bytes."""
import gc
from typing import Callable, Dict, Iterable

import torch
from torch import nn


def storage_bytes(tensors: Iterable[torch.Tensor]) -> Dict[int, int]:
    """Returns bytes by storage, so that several views of one storage are counted once."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()
        found[storage.data_ptr()] = storage.nbytes()
    found.pop(0, None)
    return found


class KeptForBackward:
    """Counts what autograd keeps while one step computes. Parameters are no activations."""

    class Kept:
        def __init__(self, owner, tensor):
            self.owner, self.tensor = owner, tensor
            owner.add(tensor, 1)

        def __del__(self):
            self.owner.add(self.tensor, -1)

    def __init__(self, parameters: Iterable[nn.Parameter]):
        self.others = set(storage_bytes(p.detach() for p in parameters))
        self.users, self.bytes, self.peak_bytes = {}, 0, 0

    def add(self, tensor: torch.Tensor, users: int) -> None:
        for key, size in storage_bytes([tensor]).items():
            if key in self.others:
                continue
            before = self.users.get(key, 0)
            self.users[key] = before + users
            if (before == 0) != (self.users[key] == 0):
                self.bytes += size if users > 0 else -size
                self.peak_bytes = max(self.peak_bytes, self.bytes)

    def hooks(self) -> torch.autograd.graph.saved_tensors_hooks:
        return torch.autograd.graph.saved_tensors_hooks(lambda t: self.Kept(self, t), lambda kept: kept.tensor)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> Iterable[torch.Tensor]:
    for state in optimizer.state.values():
        yield from (value for value in state.values() if torch.is_tensor(value))


def of_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Dict[str, int]:
    """Returns bytes by kind, without activations. All other live tensors (buckets, copies, pictures) are `other`."""
    kinds = {"parameters": storage_bytes(p.detach() for p in model.parameters()),
             "gradients": storage_bytes(p.grad for p in model.parameters() if p.grad is not None),
             "optimizer": storage_bytes(optimizer_tensors(optimizer))}
    counted = set().union(*kinds.values())
    live = storage_bytes(t for t in gc.get_objects() if isinstance(t, torch.Tensor))
    sums = {name: sum(found.values()) for name, found in kinds.items()}
    return {**sums, "other": sum(size for key, size in live.items() if key not in counted)}


def measure(model: nn.Module, optimizer: torch.optim.Optimizer, compute: Callable[[], None]) -> Dict[str, int]:
    """Returns bytes by kind for one more step, whose forward and backward `compute` does."""
    kept = KeptForBackward(model.parameters())
    with kept.hooks():
        compute()
    return {**of_state(model, optimizer), "activations": kept.peak_bytes}
