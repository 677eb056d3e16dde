"""The table of a module's tensors: what the servers hold, and what must not change.

Trainable parameters come in the order of named_parameters, tied ones once. The running statistics of
batch norms stand among them as in the module's state_dict. Frozen parameters and other buffers are
constants of the run.
"""
import hashlib
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ._library import PARAMETER, STATISTIC
from ._weights import tensor_bytes
from .errors import PandoError

COMPILED_PREFIX = "_orig_mod."
STATISTICS = ("running_mean", "running_var")
JOB_DECAY = -1.0  # the weight decay of the job


@dataclass
class Entry:
    """A tensor that the servers hold: a parameter or a running statistic."""
    name: str
    owner: nn.Module
    attribute: str  # its name in the owner
    kind: int  # PARAMETER or STATISTIC
    momentum: float = 0.0
    lr_factor: float = 1.0
    weight_decay: float = JOB_DECAY

    @property
    def tensor(self) -> torch.Tensor:
        return getattr(self.owner, self.attribute)


@dataclass
class Constant:
    """A frozen parameter or a buffer that training must not change."""
    name: str
    owner: nn.Module
    attribute: str
    tensor: torch.Tensor
    version: int

    def has_changed(self) -> bool:
        return getattr(self.owner, self.attribute) is not self.tensor or self.tensor._version != self.version


class TensorTable:
    """All tensors of a module. `entries` has the order of the library's table.

    Raises PandoError for a tensor that Pando cannot train; the message names it.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.entries: List[Entry] = []
        self.constants: List[Constant] = []
        self.counts: List[Tuple[nn.Module, int]] = []  # norms, and their num_batches_tracked at version 0
        self.index_by_id: Dict[int, int] = {}  # id(parameter) -> index in entries
        seen = set()
        for prefix, owner in module.named_modules():
            name = clean_name(prefix)
            check_module(name, owner)
            for attribute, tensor in owner._parameters.items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    self._add_parameter(join_names(name, attribute), owner, attribute, tensor)
            self._add_buffers(name, owner)
        if not self.index_by_id:
            raise PandoError("the module has no trainable parameters: set requires_grad on those to train")

    def _add_parameter(self, name: str, owner: nn.Module, attribute: str, tensor: nn.Parameter) -> None:
        if not tensor.requires_grad:
            self.constants.append(Constant(name, owner, attribute, tensor, tensor._version))
            return
        if tensor.dtype != torch.float32:
            raise PandoError(f"parameter {name} is {tensor.dtype}, and Pando trains torch.float32: call model.float(). "
                             "For bfloat16 activations use torch.autocast in the loop")
        if tensor.layout != torch.strided:
            raise PandoError(f"parameter {name} has the layout {tensor.layout}: Pando trains dense parameters alone")
        if tensor.numel() == 0:
            raise PandoError(f"parameter {name} has no elements: remove it, or set requires_grad_(False)")
        self.index_by_id[id(tensor)] = len(self.entries)
        self.entries.append(Entry(name, owner, attribute, PARAMETER))

    def _add_buffers(self, name: str, owner: nn.Module) -> None:
        is_norm = isinstance(owner, _NormBase) and owner.running_mean is not None
        for attribute, tensor in owner._buffers.items():
            if is_norm and attribute in STATISTICS:
                self.entries.append(Entry(join_names(name, attribute), owner, attribute, STATISTIC, owner.momentum))
            elif is_norm and attribute == "num_batches_tracked":
                self.counts.append((owner, 0 if tensor is None else int(tensor)))
            elif tensor is not None:
                self.constants.append(Constant(join_names(name, attribute), owner, attribute, tensor, tensor._version))

    @property
    def parameters(self) -> Iterator[Tuple[int, Entry]]:
        """(index in the table, entry) of the parameters."""
        return ((index, entry) for index, entry in enumerate(self.entries) if entry.kind == PARAMETER)

    def statistics_of(self, module: nn.Module) -> List[int]:
        """Indices of the module's running_mean and running_var; empty if it has none."""
        return [index for index, entry in enumerate(self.entries)
                if entry.owner is module and entry.kind == STATISTIC]

    def apply_groups(self, groups: Sequence[Dict[str, Any]], lr: float) -> None:
        """Takes rates and decays from torch's parameter groups. `lr` is the optimizer's."""
        grouped = set()
        for number, group in enumerate(groups):
            unknown = set(group) - {"params", "lr", "weight_decay", "name"}
            if unknown:
                raise PandoError(f"parameter group {number} sets {sorted(unknown)[0]}: a group has params, lr and "
                                 "weight_decay, and the optimizer's other values hold for all groups")
            listed = group["params"]
            for parameter in [listed] if isinstance(listed, torch.Tensor) else listed:
                self._apply_group(number, group, parameter, lr, grouped)
        missing = [entry.name for _, entry in self.parameters if entry.name not in grouped]
        if groups and missing:
            raise PandoError(f"parameter {missing[0]} and {len(missing) - 1} others are in no group of params: add a "
                             "group, or set requires_grad_(False)")

    def _apply_group(self, number: int, group: Dict[str, Any], parameter: torch.Tensor, lr: float, grouped) -> None:
        index = self.index_by_id.get(id(parameter))
        if index is None and not parameter.requires_grad:
            return
        if index is None:
            raise PandoError(f"parameter group {number} has a tensor of shape {tuple(parameter.shape)} that is no "
                             "parameter of the module: pass one module that holds all parameters")
        entry = self.entries[index]
        if entry.name in grouped:
            raise PandoError(f"parameter {entry.name} is in two groups of params: leave it in one")
        grouped.add(entry.name)
        own = group.get("lr", lr)
        if own != lr == 0:
            raise PandoError(f"parameter group {number} has lr {own}, and the optimizer has lr 0: give the optimizer "
                             "the highest rate")
        entry.lr_factor = own / lr if lr else 1.0
        entry.weight_decay = group.get("weight_decay", JOB_DECAY)

    def check_unchanged(self) -> None:
        """Raises PandoError if training has changed a constant, or what is trained."""
        for constant in self.constants:
            if constant.has_changed():
                raise PandoError(f"{constant.name} was changed during training. The servers hold parameters and the "
                                 "running statistics of batch norms. Other buffers and frozen parameters must stay "
                                 "as they are: remove the layer, or compute the value from the step")
            if constant.tensor.requires_grad:
                raise PandoError(f"requires_grad of {constant.name} was set after pando.join: choose what is trained "
                                 "before join. A new run with init weights can train other parameters")
        for index, entry in self.parameters:
            tensor = entry.owner._parameters.get(entry.attribute)
            if self.index_by_id.get(id(tensor)) != index:
                raise PandoError(f"parameter {entry.name} was replaced after pando.join: change the module before join")
            if not tensor.requires_grad:
                raise PandoError(f"requires_grad of {entry.name} was cleared after pando.join: choose what is trained "
                                 "before join. A learning rate of 0 in a parameter group freezes a parameter")

    def describe_constants(self) -> List[str]:
        """Name and hash of each constant, so that a worker with other ones is refused."""
        return [f"{constant.name} {hash_tensor(constant.tensor)}" for constant in self.constants]

    def set_counts(self, version: int) -> None:
        """Sets each norm's num_batches_tracked: the version is the number of steps."""
        for norm, first in self.counts:
            if norm.num_batches_tracked is not None:
                norm.num_batches_tracked.fill_(first + version)


def check_module(name: str, module: nn.Module) -> None:
    """Raises PandoError for a kind of module that cannot be trained."""
    where = f"module {name or '(root)'} ({type(module).__name__})"
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and module.has_uninitialized_params():
        raise PandoError(f"{where} has no shapes yet: call the model once with a sample before pando.join")
    if isinstance(module, nn.SyncBatchNorm):
        raise PandoError(f"{where}: a batch norm's batch is the micro-batch, on any number of workers. Use "
                         "BatchNorm1d, 2d or 3d")
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise PandoError(f"{where}: pass the module inside it, model.module")
    if isinstance(module, _NormBase) and module.running_mean is not None and module.momentum is None:
        raise PandoError(f"{where} has momentum=None, a mean over all steps: give a number, for instance 0.1")


def hash_tensor(tensor: torch.Tensor) -> str:
    on_host = tensor.detach().cpu().contiguous()  # must outlive the view
    return hashlib.blake2b(tensor_bytes(on_host), digest_size=8).hexdigest()


def clean_name(name: str) -> str:
    """The name without torch.compile's part, so that compiled modules and others are one model."""
    return (name + ".").replace(COMPILED_PREFIX, "")[:-1]


def join_names(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
