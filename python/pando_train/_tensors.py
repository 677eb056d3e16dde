"""The table of a module's tensors: those that the servers hold, and those that must not change.

Trainable parameters have the order of named_parameters, with tied ones once. The running statistics of
batch norms are among them, in the order of the module's state_dict. Frozen parameters and other buffers are
constants of the run.
"""
import hashlib
from dataclasses import dataclass
from operator import is_
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Set, Tuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.utils.spectral_norm import SpectralNorm

from ._library import PARAMETER, STATISTIC
from ._numbers import convert
from ._weights import tensor_bytes
from .errors import PandoError

COMPILED_PREFIX = "_orig_mod."
STATISTICS = ("running_mean", "running_var")
JOB_DECAY = -1.0  # stands for the weight decay of the job


@dataclass
class Entry:
    """A tensor that the servers hold: a parameter or a running statistic."""
    name: str
    owner: nn.Module
    attribute: str  # the tensor's name in the owner
    kind: int  # PARAMETER or STATISTIC
    momentum: float = 0.0
    lr_factor: float = 1.0
    weight_decay: float = JOB_DECAY
    group: int = 0  # of the groups that train in turns

    @property
    def label(self) -> str:
        return f"{'parameter' if self.kind == PARAMETER else 'statistic'} {self.name}"

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
    """Keeps a norm's num_batches_tracked: the number of steps, until the layer is set to eval()."""

    def __init__(self, norm: nn.Module):
        self._norm = norm
        self._first = 0 if norm.num_batches_tracked is None else int(norm.num_batches_tracked)
        self._steps = 0  # their number after the last step in train() that this process has seen
        self._is_moving = norm.training

    def note(self, step: int, is_moving: bool) -> None:
        """Notes that the layer was called in this step. `is_moving`: in train()."""
        self._is_moving = is_moving
        if is_moving:
            self._steps = step + 1
        self.show(step)

    def show(self, version: int) -> None:
        if self._norm.num_batches_tracked is not None:
            self._norm.num_batches_tracked.fill_(self._first + (version if self._is_moving else self._steps))


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
        # The parameters by index. check_unchanged raises PandoError if the module has other ones.
        self.trained: Dict[int, torch.Tensor] = {index: entry.tensor for index, entry in self.parameters}
        self._owners = list(module.modules())
        self._contents = read_contents(self._owners)
        self._check_overlaps()
        if not self.index_by_id:
            raise PandoError("the module has no trainable parameters: set requires_grad on those to train")

    def _add_entry(self, entry: Entry) -> None:
        check_type(entry.label, entry.tensor)
        if set(entry.name) & set(' "\\\n\t'):
            raise PandoError(f"the name {entry.name!r} has a blank, a quote or a backslash: rename the layer, "
                             "perhaps a key of a ModuleDict")
        self.entries.append(entry)

    def _add_parameter(self, name: str, owner: nn.Module, attribute: str, tensor: nn.Parameter) -> None:
        if not tensor.requires_grad:
            self.constants.append(Constant(name, owner, attribute, tensor, tensor._version))
            return
        if tensor.layout != torch.strided:
            raise PandoError(f"parameter {name} has the layout {tensor.layout}: Pando trains dense parameters alone")
        if tensor.numel() == 0:
            raise PandoError(f"parameter {name} has no elements: remove it, or set requires_grad_(False)")
        self.index_by_id[id(tensor)] = len(self.entries)
        self._add_entry(Entry(name, owner, attribute, PARAMETER))

    def _add_buffers(self, name: str, owner: nn.Module) -> None:
        has_statistics, power_vectors = is_norm(owner), find_power_vectors(owner)
        if has_statistics:
            self.counts[owner] = Count(owner)
        for attribute, tensor in owner._buffers.items():
            if has_statistics and attribute in STATISTICS:
                momentum = convert(float, f"momentum of {name}", owner.momentum)
                self._add_entry(Entry(join_names(name, attribute), owner, attribute, STATISTIC, momentum))
            elif attribute in power_vectors:
                self._add_entry(Entry(join_names(name, attribute), owner, attribute, STATISTIC, 1.0))
            elif tensor is not None and not (has_statistics and attribute == "num_batches_tracked"):
                self.constants.append(Constant(join_names(name, attribute), owner, attribute, tensor, tensor._version))

    @property
    def parameters(self) -> Iterator[Tuple[int, Entry]]:
        """Yields (index in the table, entry) of the parameters."""
        return ((index, entry) for index, entry in enumerate(self.entries) if entry.kind == PARAMETER)

    def statistics_of(self, module: nn.Module) -> List[int]:
        """Returns the indices of the module's running_mean and running_var; empty if it has none."""
        return [index for index, entry in enumerate(self.entries)
                if entry.owner is module and entry.kind == STATISTIC and is_norm(module)]

    @property
    def power_vectors(self) -> List[int]:
        """The indices of the vectors of spectral norms. Each forward improves them, equally in all micro-batches."""
        return [index for index, entry in enumerate(self.entries)
                if entry.kind == STATISTIC and not is_norm(entry.owner)]

    def apply_groups(self, params: Iterable[Any], lr: float) -> None:
        """Takes rates and decays from `params`, as torch's optimizers do. `lr` is the rate of the job."""
        groups = list_groups(params)
        grouped = set()
        for number, group in enumerate(groups):
            unknown = set(group) - {"params", "lr", "weight_decay", "name", "base_lr", "group"}
            if unknown:
                raise PandoError(f"parameter group {number} sets {sorted(unknown)[0]}: a group has params, lr and "
                                 "weight_decay, and the optimizer's other values hold for all groups")
            for parameter in group["params"]:
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
        lr = convert(float, "lr of the optimizer", group.get("base_lr", lr))
        own = convert(float, f"lr of parameter group {number}", group.get("lr", lr))
        if own != lr == 0:
            raise PandoError(f"parameter group {number} has lr {own}, and the optimizer has lr 0: give the optimizer "
                             "the highest rate")
        entry.lr_factor = own / lr if lr else 1.0
        entry.group = group.get("group", 0)
        decay = group.get("weight_decay", JOB_DECAY)
        entry.weight_decay = convert(float, f"weight_decay of parameter group {number}", decay)

    def start(self) -> None:
        """Starts the loop: reads again all that a program may change before it, and checks the rest."""
        self._check_contents()
        for entry in self.entries:
            check_type(entry.label, entry.tensor)
        for constant in self.constants:  # a module on another device has new buffers
            constant.tensor = getattr(constant.owner, constant.attribute)
            constant.version = constant.tensor._version
        self._check_overlaps()

    def _check_overlaps(self) -> None:
        """Raises PandoError if trained tensors share memory: the servers would update each one separately."""
        spans = [measure(entry.name, entry.tensor, True) for entry in self.entries]
        spans += [measure(constant.name, constant.tensor, False) for constant in self.constants]
        widest = ("", 0, 0, "", False)
        for span in sorted(span for span in spans if span[1]):
            if span[:1] == widest[:1] and span[1] < widest[2] and (span[4] or widest[4]):
                raise PandoError(f"{' and '.join(sorted((widest[3], span[3])))} share memory. For tied weights give "
                                 "both modules one nn.Parameter (a.weight = b.weight); otherwise clone() one")
            widest = max(widest, span, key=lambda span: (span[0], span[2]))

    def check_unchanged(self, idle: FrozenSet[int] = frozenset()) -> None:
        """Raises PandoError if training has changed a constant, or the set of trained tensors.

        `idle`: indices of parameters whose requires_grad may be cleared now.
        """
        self._check_contents()
        for constant in self.constants:
            if constant.has_changed():
                raise PandoError(f"{constant.name} was changed during training. The servers hold parameters and the "
                                 "running statistics of batch norms. Other buffers and frozen parameters must stay "
                                 "as they are: remove the layer, or compute the value from the step")
            if constant.tensor.requires_grad:
                raise PandoError(f"requires_grad of {constant.name} was set after pando.join: choose what is trained "
                                 "before join. A new run with init weights can train other parameters")
        for index, tensor in self.trained.items():
            if not tensor.requires_grad and index not in idle:
                raise PandoError(f"requires_grad of {self.entries[index].name} was cleared after pando.join: choose "
                                 "what is trained before join. A learning rate of 0 in a parameter group freezes a "
                                 "parameter")

    def _check_contents(self) -> None:
        """Raises PandoError if the parameters are not those at join. Layers without parameters may be replaced."""
        now = read_contents(self._owners)
        if len(now) == len(self._contents) and all(map(is_, now, self._contents)):
            return
        new = [name for name, tensor in self.module.named_parameters() if id(tensor) not in self._known]
        new += [join_names(name, STATISTICS[0]) for name, owner in self.module.named_modules()
                if is_norm(owner) and owner not in self.counts]
        new += [entry.name for index, entry in self.parameters
                if self.index_by_id.get(id(entry.owner._parameters.get(entry.attribute))) != index]
        new = list(dict.fromkeys(map(clean_name, new)))
        if new:
            verb = "was replaced" if new[0] in {entry.name for entry in self.entries} else "appeared"
            others = f" (and {len(new) - 1} more)" if len(new) > 1 else ""
            raise PandoError(f"parameter {new[0]}{others} {verb} after pando.join, so that the run would not train it: "
                             "replace heads, call lazy layers once, and add layers and adapters before pando.join")
        self._owners = list(self.module.modules())
        self._contents = read_contents(self._owners)

    def describe_constants(self) -> List[str]:
        """Returns each constant's name and hash, so that a worker with other constants is refused."""
        return [f"{constant.name} {hash_tensor(constant.tensor)}" for constant in self.constants]

    def set_counts(self, version: int) -> None:
        """Sets each norm's num_batches_tracked: the version is the number of steps."""
        for count in self.counts.values():
            count.show(version)


def list_groups(params: Iterable[Any]) -> List[Dict[str, Any]]:
    """Returns an optimizer's `params` as groups of tensors. `params` has parameters, perhaps with names, or groups."""
    if isinstance(params, (torch.Tensor, dict, str)) or not isinstance(params, Iterable):
        raise PandoError(f"params is a {type(params).__name__}: pass model.parameters(), or a list of groups")
    items = list(params)
    groups = []
    for number, group in enumerate(items if not items or isinstance(items[0], dict) else [{"params": items}]):
        listed = group.get("params") if isinstance(group, dict) else [group]
        tensors = [item[1] if isinstance(item, tuple) else item
                   for item in ([listed] if isinstance(listed, torch.Tensor) else listed or ())]
        if listed is None or not all(isinstance(item, torch.Tensor) for item in tensors):
            raise PandoError(f"parameter group {number} has no tensors: it is dict(params=model.parameters(), ...)")
        groups.append({**group, "params": tensors})
    return groups


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
    if getattr(module, "max_norm", None) is not None and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
        raise PandoError(f"{where} has max_norm, with which each forward changes its weight: leave it out, or divide "
                         "by the norm in forward")
    if is_norm(module) and module.momentum is None:
        raise PandoError(f"{where} has momentum=None, a mean over all steps: give a number, for instance 0.1")


def measure(name: str, tensor: torch.Tensor, is_trained: bool) -> Tuple[str, int, int, str, bool]:
    """Returns device, address, end, name, and is_trained. A tensor without memory to compare has the address 0."""
    if tensor.layout != torch.strided or tensor.is_meta or tensor.numel() == 0:
        return "", 0, 0, name, is_trained
    count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    if is_trained and count < tensor.numel():
        raise PandoError(f"elements of {name} share memory: clone() what was expanded")
    first = tensor.data_ptr()
    return str(tensor.device), first, first + count * tensor.element_size(), name, is_trained


def is_norm(module: nn.Module) -> bool:
    """Returns whether the module has running statistics."""
    return isinstance(module, _NormBase) and module.running_mean is not None


def find_power_vectors(module: nn.Module) -> Set[str]:
    """Returns the names of the buffers in which a spectral norm of torch keeps its power iteration."""
    names = {f"{hook.name}_{part}" for hook in module._forward_pre_hooks.values() if isinstance(hook, SpectralNorm)
             for part in "uv"}
    return names | ({"_u", "_v"} if type(module).__name__ == "_SpectralNorm" else set())


def check_type(name: str, tensor: torch.Tensor) -> None:
    """Raises PandoError for a tensor whose memory the library cannot read."""
    if tensor.dtype != torch.float32:
        raise PandoError(f"{name} is {tensor.dtype}, and Pando trains torch.float32: call model.float(). "
                         "For bfloat16 activations use torch.autocast in the loop")


def read_contents(owners: List[nn.Module]) -> List[Any]:
    """Returns, for each module, the modules and parameters that it holds itself, and then the module."""
    contents: List[Any] = []
    for owner in owners:
        contents += owner._modules.values()
        contents += owner._parameters.values()
        contents.append(owner)
    return contents


def hash_tensor(tensor: torch.Tensor) -> str:
    on_host = tensor.detach().cpu().contiguous()  # must outlive the view
    return hashlib.blake2b(tensor_bytes(on_host), digest_size=8).hexdigest()


def clean_name(name: str) -> str:
    """Returns the name without torch.compile's part, so that a compiled module is the same model."""
    return (name + ".").replace(COMPILED_PREFIX, "")[:-1]


def join_names(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name
