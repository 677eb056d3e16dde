"""The table of a module's tensors: what the servers hold, and what must not change.

Trainable parameters come in the order of named_parameters, tied ones once. The running statistics of
batch norms stand among them as in the module's state_dict. Frozen parameters and other buffers are
constants of the run.
"""
import hashlib
from dataclasses import dataclass
from operator import is_
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from ._library import PARAMETER, STATISTIC
from ._overlaps import check_overlaps
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
        return (self.owner._parameters if self.kind == PARAMETER else self.owner._buffers)[self.attribute]


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


class Count:
    """num_batches_tracked of a norm: the number of steps while the layer is in train()."""

    def __init__(self, norm: nn.Module):
        self._norm = norm
        self._first = 0 if norm.num_batches_tracked is None else int(norm.num_batches_tracked)
        self._is_moving: Optional[bool] = None  # in the last micro-batch here; None: the layer's mode says it
        self._steps = 0  # at the end of the last one in which it moved

    def move(self, step: int) -> None:
        """The layer has made statistics in this step."""
        self._is_moving, self._steps = True, step + 1
        self.show(step)

    def stop(self) -> None:
        """The layer was called in eval()."""
        if self._is_moving:
            self.show(self._steps)
        self._is_moving = False

    def show(self, version: int) -> None:
        is_moving = self._norm.training if self._is_moving is None else self._is_moving
        if is_moving and self._norm.num_batches_tracked is not None:
            self._norm.num_batches_tracked.fill_(self._first + version)


class TensorTable:
    """All tensors of a module. `entries` has the order of the library's table.

    Raises PandoError for a tensor that Pando cannot train; the message names it.
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.entries: List[Entry] = []
        self.constants: List[Constant] = []
        self.counts: Dict[nn.Module, Count] = {}
        self.index_by_id: Dict[int, int] = {}  # id(parameter) -> index in entries
        self._known: Dict[int, torch.Tensor] = {}  # all parameters by id
        for prefix, owner in module.named_modules():
            name = clean_name(prefix)
            check_module(name, owner)
            for attribute, tensor in owner._parameters.items():
                if tensor is not None and id(tensor) not in self._known:
                    self._known[id(tensor)] = tensor
                    self._add_parameter(join_names(name, attribute), owner, attribute, tensor)
            self._add_buffers(name, owner)
        self._contents = read_contents(module)
        self._check_overlaps()
        if not self.index_by_id:
            raise PandoError("the module has no trainable parameters: set requires_grad on those to train")

    def _add_parameter(self, name: str, owner: nn.Module, attribute: str, tensor: nn.Parameter) -> None:
        if not tensor.requires_grad:
            self.constants.append(Constant(name, owner, attribute, tensor, tensor._version))
            return
        check_type(name, tensor)
        if tensor.layout != torch.strided:
            raise PandoError(f"parameter {name} has the layout {tensor.layout}: Pando trains dense parameters alone")
        if tensor.numel() == 0:
            raise PandoError(f"parameter {name} has no elements: remove it, or set requires_grad_(False)")
        self.index_by_id[id(tensor)] = len(self.entries)
        self.entries.append(Entry(name, owner, attribute, PARAMETER))

    def _add_buffers(self, name: str, owner: nn.Module) -> None:
        has_statistics = is_norm(owner)
        if has_statistics:
            self.counts[owner] = Count(owner)
        for attribute, tensor in owner._buffers.items():
            if has_statistics and attribute in STATISTICS:
                check_type(join_names(name, attribute), tensor)
                self.entries.append(Entry(join_names(name, attribute), owner, attribute, STATISTIC, owner.momentum))
            elif tensor is not None and not (has_statistics and attribute == "num_batches_tracked"):
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

    def start(self) -> None:
        """At the start of the loop: what a program may change until then is read again, the rest is checked."""
        self._check_contents()
        for entry in self.entries:
            check_type(entry.name, entry.tensor)
        for constant in self.constants:  # a module that is moved to another device gets new buffers
            constant.tensor = getattr(constant.owner, constant.attribute)
            constant.version = constant.tensor._version
        self._check_overlaps()

    def _check_overlaps(self) -> None:
        check_overlaps([*((entry.name, entry.tensor, True) for entry in self.entries),
                        *((constant.name, constant.tensor, False) for constant in self.constants)])

    def check_unchanged(self) -> None:
        """Raises PandoError if training has changed a constant, or what is trained."""
        self._check_contents()
        for constant in self.constants:
            if constant.has_changed():
                raise PandoError(f"{constant.name} was changed during training. The servers hold parameters and the "
                                 "running statistics of batch norms. Other buffers and frozen parameters must stay "
                                 "as they are: remove the layer, or compute the value from the step")
            if constant.tensor.requires_grad:
                raise PandoError(f"requires_grad of {constant.name} was set after pando.join: choose what is trained "
                                 "before join. A new run with init weights can train other parameters")
        for _, entry in self.parameters:
            if not entry.tensor.requires_grad:
                raise PandoError(f"requires_grad of {entry.name} was cleared after pando.join: choose what is trained "
                                 "before join. A learning rate of 0 in a parameter group freezes a parameter")

    def _check_contents(self) -> None:
        """Raises PandoError if the module has other parameters than at join. Layers without any may be replaced."""
        if all(len(known) == len(now) and all(map(is_, known, now))
               for known, now in ((known, list_contents(owner)) for owner, known in self._contents)):
            return
        new = [clean_name(name) for name, tensor in self.module.named_parameters() if id(tensor) not in self._known]
        new += [join_names(clean_name(name), STATISTICS[0]) for name, owner in self.module.named_modules()
                if is_norm(owner) and owner not in self.counts]
        new += [entry.name for index, entry in self.parameters
                if self.index_by_id.get(id(entry.owner._parameters.get(entry.attribute))) != index]
        new = list(dict.fromkeys(new))
        if new:
            verb = "was replaced" if new[0] in {entry.name for entry in self.entries} else "appeared"
            others = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
            raise PandoError(f"parameter {new[0]}{others} {verb} after pando.join, so that the run would not train it: "
                             "replace heads, call lazy layers once, and add layers and adapters before pando.join")
        self._contents = read_contents(self.module)

    def describe_constants(self) -> List[str]:
        """Name and hash of each constant, so that a worker with other ones is refused."""
        return [f"{constant.name} {hash_tensor(constant.tensor)}" for constant in self.constants]

    def set_counts(self, version: int) -> None:
        """Sets each norm's num_batches_tracked: the version is the number of steps."""
        for count in self.counts.values():
            count.show(version)


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
    if is_norm(module) and module.momentum is None:
        raise PandoError(f"{where} has momentum=None, a mean over all steps: give a number, for instance 0.1")


def is_norm(module: nn.Module) -> bool:
    """Whether the module has running statistics."""
    return isinstance(module, _NormBase) and module.running_mean is not None


def check_type(name: str, tensor: torch.Tensor) -> None:
    """Raises PandoError for a tensor whose memory the library cannot read."""
    if tensor.dtype != torch.float32:
        raise PandoError(f"{name} is {tensor.dtype}, and Pando trains torch.float32: call model.float(). "
                         "For bfloat16 activations use torch.autocast in the loop")


def list_contents(owner: nn.Module) -> List[Any]:
    """The modules and parameters that this module holds itself."""
    return [*owner._modules.values(), *owner._parameters.values()]


def read_contents(module: nn.Module) -> List[Tuple[nn.Module, List[Any]]]:
    return [(owner, list_contents(owner)) for owner in module.modules()]


def hash_tensor(tensor: torch.Tensor) -> str:
    on_host = tensor.detach().cpu().contiguous()  # must outlive the view
    return hashlib.blake2b(tensor_bytes(on_host), digest_size=8).hexdigest()


def clean_name(name: str) -> str:
    """The name without torch.compile's part, so that compiled modules and others are one model."""
    return (name + ".").replace(COMPILED_PREFIX, "")[:-1]


def join_names(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
