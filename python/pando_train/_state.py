"""The state that a module keeps in plain attributes. Abandoned work and evaluations leave it as it was."""
from collections import deque
from typing import Any, Dict, List, Optional, Set, Tuple

import torch
from torch import nn

CONTAINERS = (list, dict, set, deque)
BLOCKS_CLONED = 5  # in the first ones every tensor is cloned, later only those that these blocks changed in place
CARRIED = ("The module's attribute {} differs from block to block. Gradients must not depend on it, because any "
           "process computes the next block: set it at the block's start")
_OWN = frozenset(vars(nn.Module()))  # what torch keeps in each module


class Saved:
    """One attribute: the object that it named, and a copy of what that held. None: a change of it is not undone."""

    def __init__(self, value: Any, is_cloned: bool):
        self.value = value
        self.copy: Optional[Any] = None
        if isinstance(value, CONTAINERS):
            self.copy = value.copy()
        elif isinstance(value, torch.Tensor):
            self.version = value._version
            if is_cloned:
                self.copy = value.detach().clone()

    def is_changed_tensor(self) -> bool:
        return isinstance(self.value, torch.Tensor) and self.value._version != self.version

    def differs(self, other: "Saved") -> bool:
        """Returns whether the attribute holds other values than at another save."""
        if isinstance(self.value, CONTAINERS) and isinstance(other.value, type(self.value)):
            ours, theirs = (list(copy.items() if isinstance(copy, dict) else copy) for copy in (self.copy, other.copy))
            return len(ours) != len(theirs) or any(a is not b and are_different(a, b) for a, b in zip(ours, theirs))
        return are_different(self.value if self.copy is None else self.copy,
                             other.value if other.copy is None else other.copy)

    def put_back(self) -> None:
        if isinstance(self.value, list):
            self.value[:] = self.copy
        elif isinstance(self.value, CONTAINERS):
            self.value.clear()
            (self.value.extend if isinstance(self.value, deque) else self.value.update)(self.copy)
        elif self.is_changed_tensor() and self.copy is not None:
            with torch.no_grad():
                self.value.detach().copy_(self.copy)


def are_different(one: Any, other: Any) -> bool:
    """Returns whether these are tensors, numbers or texts with other values, or objects of another type."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        is_alike = (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        return not is_alike or not torch.equal(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        return any(map(are_different, one, other))
    return type(one) is not type(other) or (isinstance(one, (bool, int, float, str)) and one != other)


class ModuleState:
    """Saves and restores the plain attributes of modules whose classes are not torch's: lists, dicts, sets, deques,
    tensors (also those that are changed in place), numbers. What a container holds is not copied.

    Parameters and buffers are not among them: _writes.py has their rules.
    """

    def __init__(self, module: nn.Module):
        self._modules: List[nn.Module] = [each for each in module.modules()
                                          if type(each).__module__.split(".")[0] != "torch"]
        self._saved: List[Tuple[nn.Module, Dict[str, Saved]]] = []
        self._changed: Set[Tuple[int, str]] = set()  # tensors that a block has changed in place
        self._block_count = 0
        self.suspect = ""  # a sentence about an attribute that differs from block to block

    def save(self) -> None:
        for module, attributes in self._saved:
            self._changed.update((id(module), name) for name, saved in attributes.items() if saved.is_changed_tensor())
        clones_all = self._block_count < BLOCKS_CLONED
        self._block_count += 1
        before = self._saved
        self._saved = [(module, {name: Saved(value, clones_all or (id(module), name) in self._changed)
                                 for name, value in vars(module).items() if name not in _OWN})
                       for module in self._modules]
        if self._block_count != BLOCKS_CLONED:  # the first blocks may fill caches
            return
        carried = [f"{type(module).__name__}.{name}" for (module, now), (_, then) in zip(self._saved, before)
                   for name in now if name in then and now[name].differs(then[name])]
        self.suspect = CARRIED.format(carried[0]) if carried else ""

    def restore(self) -> None:
        """Brings back what the last save has seen."""
        for module, attributes in self._saved:
            for name in [name for name in vars(module) if name not in _OWN and name not in attributes]:
                del vars(module)[name]
            for name, saved in attributes.items():
                saved.put_back()
                vars(module)[name] = saved.value
