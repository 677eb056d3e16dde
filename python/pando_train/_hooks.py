"""Hooks on a module: they load parameters before these are read, and give gradients when these are made."""
import copyreg
import gc
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from types import FunctionType
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ._exchange import Exchange
from ._norms import Norm
from ._tensors import TensorTable, check_type, clean_name
from ._uses import Uses
from ._writes import Writes
from .errors import Abandoned, PandoError


@dataclass(eq=False)
class Scope:
    """A module with hooks, and the norms that the hooks handle: itself, or the norms in a compiled module."""
    module: nn.Module
    norms: List[Norm] = field(default_factory=list)
    handles: List[Any] = field(default_factory=list)


class Hooks:
    """All hooks of a run. `remove` restores the module.

    In the first micro-batch every parameter is loaded before the forward, and Uses sees which ones are read.
    Later it loads those when they are read, and the others are loaded before the forward. If torch.compile
    is in use, all parameters are loaded before every forward.
    """

    def __init__(self, table: TensorTable, exchange: Exchange, is_compiling: bool):
        self._table = table
        self._exchange = exchange
        self._first_loads = [index for index, _ in table.parameters]
        self._scopes: List[Scope] = []
        self._gradients: Dict[int, Tuple[torch.Tensor, int, int]] = {}  # by index: gradient, its version, its address
        self._nodes: List[Any] = []  # keeps AccumulateGrad alive
        self._handles: List[Any] = []
        self._dynamo = sys.modules["torch._dynamo"] if is_compiling else None
        self._uses = None if is_compiling else Uses(exchange, table.index_by_id)
        if is_compiling:
            self._dynamo.config.skip_nnmodule_hook_guards = False
            self._dynamo.reset()  # code compiled before would skip the hooks
        self._add_scopes()
        self._norms = [norm for scope in self._scopes for norm in scope.norms]
        self._reducers = {type(scope.module): copyreg.dispatch_table.get(type(scope.module)) for scope in self._scopes}
        for kind in self._reducers:  # copy and pickle look first into this table
            copyreg.pickle(kind, self._reduce)
        self._is_watching = False  # Uses is on
        self._is_first = True  # no micro-batch has ended without an error
        self._turn: Optional[int] = None  # the group of parameters that the micro-batch trains; None: all
        self._repeats: Dict[Optional[int], bool] = {}  # by turn: whether blocks call backward or a norm several times
        self._has_repeats = False  # a parameter got a second gradient in this micro-batch
        self._is_asked = False  # the program wants the following
        self._sends_at_end = True  # gradients and statistics leave at the block's end
        self._writes = Writes(table, exchange)
        self._power_vectors = table.power_vectors
        self._all = frozenset(table.trained)
        self._idle: FrozenSet[int] = frozenset()  # parameters of other groups than the micro-batch trains
        self._versions = [parameter._version for parameter in table.trained.values()]
        for index, entry in table.parameters:
            self._hook_gradient(index, entry.tensor)

    @property
    def can_finish(self) -> bool:
        """Returns whether a gradient was given since begin(), or the micro-batch has weight 0 and needs none."""
        return bool(self._gradients) or self._exchange.weight == 0

    def remove(self) -> None:
        for norm in self._norms:
            norm.restore()
        for handle in self._handles + [handle for scope in self._scopes for handle in scope.handles]:
            handle.remove()
        for kind, reducer in self._reducers.items():
            copyreg.dispatch_table.pop(kind, None)
            if reducer is not None:
                copyreg.pickle(kind, reducer)

    def begin(self, turn: Optional[int], sends_at_end: bool) -> None:
        """Raises Abandoned, and PandoError if the program has changed tensors that the servers update."""
        self._turn, self._is_asked = turn, sends_at_end
        self._sends_at_end = sends_at_end or self._repeats.get(turn, True)
        if turn is None:
            self._table.check_unchanged()
        else:  # the block may begin with setting requires_grad of its group
            self._idle = frozenset(index for index in self._all if self._table.entries[index].group != turn)
            self._table.check_unchanged(self._all)
        self.check_parameters()
        self._refuse_write(self._writes.begin())
        self._gradients.clear()
        self._has_repeats = False
        for norm in self._norms:
            norm.begin(self._sends_at_end)
        for parameter in self._table.trained.values():
            parameter.grad = None
        try:
            for index in (*self._first_loads, *self._power_vectors):
                self._exchange.load(index)
        finally:  # if the work is abandoned, the first use raises Abandoned again
            if self._uses is not None:
                self._uses.__enter__()
                self._is_watching = True

    def leave_forward(self) -> None:
        """Ends the program's part, whether or not it had an error."""
        if self._is_watching:
            self._is_watching = False
            self._uses.__exit__(None, None, None)
        for norm in self._norms:
            norm.restore()
        for index in self._power_vectors:
            self._exchange.forget(index)

    def finish(self) -> None:
        """Ends the program's part if it had no error. Raises Abandoned, and PandoError with the fault."""
        self._table.check_unchanged(self._idle)
        self.check_parameters()
        self._check_gradients()
        if self._is_first:
            check_scalers()
        if self._sends_at_end:
            for index, (gradient, _, _) in reversed(self._gradients.items()):
                self._exchange.give(index, gradient)
            self._learn_repeats()
        for norm in self._norms:
            norm.finish()
        for index in self._power_vectors:
            self._exchange.give(index, self._table.entries[index].tensor)
        self._exchange.load_all()  # also tensors that this forward did not read: between blocks all have one version
        self._refuse_write(self._writes.find_parameter())
        self._exchange.flush()
        if self._is_first and self._uses is not None:
            self._first_loads = [index for index in self._first_loads if index not in self._uses.seen]
        self._is_first = False

    def _learn_repeats(self) -> None:
        """Raises PandoError for a block that does not repeat calls as earlier ones of its turn do.

        A process that is started later would learn otherwise, and fail, although the others do not.
        """
        repeats = self._has_repeats or any(norm.is_repeated for norm in self._norms)
        if self._gradients and not self._is_asked and repeats != self._repeats.setdefault(self._turn, repeats):
            raise PandoError("some micro-batches call backward or a batch norm several times, and others once: pass "
                             "run.micro_batch(send_at_end=True), so that gradients always leave at the block's end")

    def check_parameters(self) -> None:
        """Raises PandoError if the program has moved a tensor, or written to a parameter."""
        self._exchange.check_memory()
        for (index, parameter), version in zip(self._table.trained.items(), self._versions):
            if parameter._version != version:
                self._refuse_write(index)

    def check_report(self) -> None:
        """Raises PandoError if the function of run.on_evaluation has written to a parameter. Raises Abandoned."""
        self.check_parameters()
        self._refuse_write(self._writes.find_written())

    def _refuse_write(self, index: Optional[int]) -> None:
        if index is not None:
            raise PandoError(f"parameter {self._table.entries[index].name} was changed by the program. The servers "
                             "update parameters: remove the optimizer of torch.optim and its step(), and other changes "
                             "in place, also through .data; pass pando.SGD or another of Pando's optimizers to "
                             "pando.join")

    def _check_gradients(self) -> None:
        changed = self._writes.find_gradient()
        for index, (gradient, version, address) in self._gradients.items():
            now = self._table.trained[index].grad
            if now is not None and (now is not gradient or now._version != version or now.data_ptr() != address):
                changed = index
        if changed is not None:
            self._raise_changed(changed)

    def _raise_changed(self, index: int) -> None:
        raise PandoError(f"the gradient of {self._table.entries[index].name} was changed after backward. Remove "
                         "clip_grad_norm_, clip_grad_value_, GradScaler and zero_grad after backward from the loop: "
                         "pando.join(..., clip_norm=, clip_value=) clips the step's whole gradient, autocast with "
                         "bfloat16 needs no scaler, and torch.autograd.grad gives gradients that train nothing")

    def _add_scopes(self) -> None:
        """Adds a scope per module that reads tensors; the parts of a compiled module belong to its scope."""
        outer: Dict[str, Scope] = {}  # by the name of a compiled module
        for name, module in self._table.module.named_modules():
            scope = next((outer[prefix] for prefix in outer if not prefix or name.startswith(prefix + ".")), None)
            if scope is None:
                scope = Scope(module)
                if module._parameters or not name or is_compiled(module):
                    self._scopes.append(scope)
                if is_compiled(module):
                    outer[name] = scope
            indices = self._table.statistics_of(module)
            if indices:
                scope.norms.append(Norm(module, clean_name(name), indices, self._table.counts[module], self._exchange))
        for scope in self._scopes:
            self._hook_scope(scope)

    def _hook_scope(self, scope: Scope) -> None:
        before = Hook(self._no_compile(self._enter), scope)
        handle = scope.module.register_forward_pre_hook(before)
        # It must be the first hook, because others read parameters, as that of weight_norm does.
        scope.module._forward_pre_hooks.move_to_end(handle.id, last=False)
        scope.handles.append(handle)
        if scope.norms:
            after = Hook(self._no_compile(self._leave), scope)
            scope.handles.append(scope.module.register_forward_hook(after))
            scope.module._forward_hooks.move_to_end(scope.handles[-1].id, last=False)

    def _no_compile(self, function: Callable) -> Callable:
        """Keeps torch.compile from looking into the function. The compiled graph ends there."""
        return function if self._dynamo is None else self._dynamo.disable(function)

    def _reduce(self, module: nn.Module) -> Any:
        """Reduces the module for copies and pickles, which do not have these hooks."""
        reducer = self._reducers.get(type(module))
        reduced = module.__reduce_ex__(2) if reducer is None else reducer(module)
        ids = {handle.id for scope in self._scopes if scope.module is module for handle in scope.handles}
        if not ids or not isinstance(reduced, tuple) or len(reduced) < 3 or not isinstance(reduced[2], dict):
            return reduced
        state = {key: OrderedDict((id_, hook) for id_, hook in value.items() if id_ not in ids)
                 if key in ("_forward_pre_hooks", "_forward_hooks") else value for key, value in reduced[2].items()}
        return (*reduced[:2], state, *reduced[3:])

    def _enter(self, scope: Scope) -> None:
        if not self._exchange.is_active:
            return
        if self._exchange.is_abandoned:
            raise Abandoned()
        if self._exchange.is_training and not torch.is_grad_enabled():
            check_checkpointing(scope.module)
        if scope.norms:
            self._call([norm.enter for norm in scope.norms])

    def _leave(self, scope: Scope) -> None:
        if self._exchange.is_active:
            self._call([partial(norm.leave, is_compiled(scope.module)) for norm in scope.norms])

    def _call(self, functions: List[Callable[[], None]]) -> None:
        if self._uses is not None:
            self._uses.call_unwatched(functions)
        else:
            for function in functions:
                function()

    def _hook_gradient(self, index: int, parameter: torch.Tensor) -> None:
        if hasattr(parameter, "register_post_accumulate_grad_hook"):  # since torch 2.1
            hook = Hook(self._give_gradient, index)
            self._handles.append(parameter.register_post_accumulate_grad_hook(hook))
            return
        with torch.enable_grad():
            node = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        self._nodes.append(node)
        self._handles.append(node.register_hook(Hook(self._give_gradient, index)))

    def _give_gradient(self, index: int) -> None:
        entry = self._table.entries[index]
        if not self._exchange.is_training:
            raise PandoError("backward was called outside of run.micro_batch(): move it into the with block")
        if self._exchange.is_abandoned:
            raise Abandoned()
        gradient = self._table.trained[index].grad
        if gradient is None:  # an undefined gradient, before torch 2.1
            return
        if index in self._idle:
            return
        if index in self._gradients:
            self._check_addition(index, gradient)
        if gradient.layout != torch.strided:
            raise PandoError(f"the gradient of {entry.name} is sparse: create its layer with sparse=False")
        if not self._exchange.is_loaded(index):
            raise PandoError(f"parameter {entry.name} was read before it had arrived, because this forward differs "
                             "from the first one. Call torch.compile before run.loader")
        check_type(f"the gradient of {entry.name}", gradient)
        self._gradients[index] = gradient, gradient._version, gradient.data_ptr()
        self._writes.note(index, gradient)
        if not self._sends_at_end:
            self._exchange.give(index, gradient)

    def _check_addition(self, index: int, gradient: torch.Tensor) -> None:
        """Raises PandoError unless backward has just added to a gradient that has not left."""
        name = self._table.entries[index].name
        if not self._sends_at_end:
            raise PandoError(f"parameter {name} got a second gradient in this micro-batch, and one in earlier "
                             "ones: pass run.micro_batch(send_at_end=True), so that gradients leave at the block's "
                             "end. torch.utils.checkpoint needs use_reentrant=False")
        before, version, _ = self._gradients[index]
        if not torch.is_grad_enabled() and (gradient is not before or gradient._version != version + 1):
            self._raise_changed(index)
        self._has_repeats = True


class Hook:
    """Calls a function with its own arguments, and drops torch's. A copy of a hook does nothing."""

    def __init__(self, function: Callable[[Any], None], target: Any):
        self._function, self._target = function, target

    def __call__(self, *_) -> None:
        self._function(self._target)

    def __reduce__(self):  # called because torch.fx copies the hooks of a module
        return Hook, (id, None)


def uses_compile() -> bool:
    """Returns whether torch.compile has been called. Others import torch._dynamo too, such as torchvision."""
    return "torch._dynamo" in sys.modules and any(
        getattr(thing, "_torchdynamo_orig_callable", None) and not getattr(thing, "_torchdynamo_disable", False)
        for thing in gc.get_objects() if type(thing) is FunctionType)


def is_compiled(module: nn.Module) -> bool:
    """Returns whether torch.compile has compiled this module."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def check_checkpointing(module: nn.Module) -> None:
    """Raises PandoError if torch.utils.checkpoint runs this forward with use_reentrant=True."""
    code = CheckpointFunction.forward.__code__
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            raise PandoError(f"torch.utils.checkpoint runs {type(module).__name__} with use_reentrant=True, whose "
                             "nested backward gives a gradient in parts: pass use_reentrant=False")
        frame = frame.f_back


def check_scalers() -> None:
    """Raises PandoError if the program has an active GradScaler, or torch's average of weights."""
    for thing in gc.get_objects():
        if type(thing).__name__ == "AveragedModel":
            raise PandoError("the program has an AveragedModel, which each process would update by its own "
                             "micro-batches: remove it, and let the servers keep the average, with ema_decay= of "
                             "pando.join")
        if type(thing).__name__ == "GradScaler" and thing.is_enabled():
            raise PandoError("the program has a GradScaler, whose factor would reach the servers: remove it. autocast "
                             "with bfloat16 needs none")
