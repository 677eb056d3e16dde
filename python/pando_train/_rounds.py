"""Rounds of local steps, as in DiLoCo (Douillard et al. 2023, arXiv:2311.08105).

A round is one micro-batch of the run. It begins from a version of the parameters, on which the program's own optimizer
makes local steps. The round's gradient is the version minus the local parameters, and the servers' optimizer is the
outer one. The inner optimizer keeps nothing from round to round, so any process may compute any round.
"""
import warnings
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from ._data import Reader, split_work
from ._exchange import Exchange
from ._from_torch import choose_every, check_scheduler, is_scheduler, make_rows
from ._library import PARAMETER, Work
from ._numbers import convert
from ._random import derive, seed_generators
from ._tensors import TensorTable
from ._writes import Writes
from .errors import PandoError
from .optim import DiLoCo


class Inner:
    """The program's optimizer, and the rates of its local steps, which the number of a round decides.

    `batch` is the number of samples of a local step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: Any, every: Optional[str], outer: DiLoCo,
                 batch: int, lengths: Tuple[int, int]):
        """`lengths` are the rounds of an epoch, and of the run."""
        self.batch = batch
        self.local_steps = outer.local_steps
        self._optimizer = optimizer
        self._width = 1  # local steps with the same rates
        self._rates = [tuple(group["lr"] for group in optimizer.param_groups)]
        self._set: Optional[List[float]] = None
        if is_scheduler(schedule):
            check_scheduler(optimizer, schedule)
            counts = {"step": lengths[1] * self.local_steps, "epoch": -(-lengths[1] // lengths[0])}
            every = choose_every(schedule, every, counts)
            self._width = 1 if every == "step" else lengths[0] * self.local_steps
            self._rates = make_rows(optimizer, schedule, counts[every])

    def begin(self) -> None:
        self._optimizer.state.clear()
        self._set = None

    def set_rates(self, step: int) -> None:
        """Sets the rates of this local step, counted over the whole run."""
        self.check_rates()
        rates = self._rates[min(step // self._width, len(self._rates) - 1)]
        for group, rate in zip(self._optimizer.param_groups, rates):
            group["lr"] = rate
        self._set = self._list_rates()

    def check_rates(self) -> None:
        """Raises PandoError if the program has set another rate in this round."""
        if self._set not in (None, self._list_rates()):
            raise PandoError("the rate of the inner optimizer was changed in a round. A scheduler that the loop steps "
                             "counts the rounds of this process alone: remove its step(), and pass it as schedule= to "
                             "pando.join")

    def _list_rates(self) -> List[float]:
        return [float(group["lr"]) for group in self._optimizer.param_groups]


class Rounds:
    """Loads and gives the tensors of a round. A round's with block calls it as it calls Hooks otherwise.

    At a round's end the module has the version again with which the round began.
    """

    def __init__(self, table: TensorTable, exchange: Exchange, inner: Inner, seed: int):
        self.can_finish = True
        self._table = table
        self._exchange = exchange
        self._inner = inner
        self._seed = seed
        self._writes = Writes(table, exchange)
        self._taken = self._count = 0  # batches of the round: those that the loop has taken, and all of them

    def make_batches(self, reader: Reader, work: Work) -> Iterator[Any]:
        """Yields the batches of one round, in order. Raises Abandoned if the round is no longer needed."""
        self._taken, self._count = 0, -(-len(work.samples) // self._inner.batch)
        for number, chunk in enumerate(split_work(work, 1, self._inner.batch)):
            batch = reader.read(chunk)
            if not self._exchange.is_training:
                raise PandoError("a round's batches were read outside of its with block: write `with run.round():` "
                                 "around the loop over its batches")
            self._exchange.check_needed()
            self._inner.set_rates(work.step * self._inner.local_steps + number)
            seed_generators(derive("local", self._seed, work.step, work.micro_batch, number))
            self._taken += 1
            yield batch

    def begin(self, *_) -> None:
        """Raises Abandoned, and PandoError if the program has changed what must not change."""
        self._table.check_unchanged()
        self._inner.begin()
        for _, entry in self._table.parameters:
            entry.tensor.grad = None
        self._exchange.load_all()
        self._table.set_counts(self._exchange.version)

    def leave_forward(self) -> None:
        """Ends the program's part, which has overwritten the tensors."""
        for index in range(len(self._table.entries)):
            self._exchange.forget(index)

    def finish(self) -> None:
        """Gives what the round has changed. Raises Abandoned, and PandoError with the fault."""
        if self._taken < self._count:
            raise PandoError(f"a round ended after {self._taken} of {self._count} batches: each is a local step of the "
                             "run, so the loop over them has no break")
        self._inner.check_rates()
        self._table.check_unchanged()
        self._exchange.check_memory()
        for index, entry in enumerate(self._table.entries):
            version = self._exchange.read(index).to(entry.tensor.device)
            moved = entry.tensor.detach() - version
            if entry.kind == PARAMETER:
                self._exchange.give(index, -moved)
            else:  # the servers move it by its momentum, and the mean of the rounds' local ones comes out
                self._exchange.give(index, version + moved / entry.momentum if entry.momentum else version)
        self._exchange.flush()
        self._exchange.load_all()

    def check_report(self) -> None:
        """Raises PandoError if the function of run.on_evaluation has written to a parameter. Raises Abandoned."""
        if self._writes.find_written() is not None:
            raise PandoError("the function of run.on_evaluation has changed a parameter, which only rounds may")

    def remove(self) -> None:
        """Does nothing, because the module has no hooks."""


def read_outer(outer: Any, optimizer: Any, params: Any, table: TensorTable, options: Dict[str, Any]) -> int:
    """Makes `options` those of rounds. Returns the samples of a local step. Raises PandoError for bad arguments."""
    if not isinstance(outer, DiLoCo) or not isinstance(optimizer, torch.optim.Optimizer):
        raise PandoError(f"outer is a {type(outer).__name__} and optimizer a {type(optimizer).__name__}: expected "
                         "outer=pando.DiLoCo(...), and one optimizer of torch.optim for the local steps")
    own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if list(params) or any(id(parameter) not in table.index_by_id for parameter in own if parameter.requires_grad):
        raise PandoError("with outer= the local steps are made by `optimizer`, whose groups replace params=, and whose "
                         "parameters are all in the module: others would keep what a round has changed")
    if convert(int, "local_steps of DiLoCo", outer.local_steps) < 1:
        raise PandoError(f"local_steps of DiLoCo is {outer.local_steps}: expected at least 1")
    batch, parts = options["train.global_batch"], options["train.micro_batches"]
    if batch % parts or options["train.weighted"]:
        raise PandoError(f"global_batch is {batch}, micro_batches {parts}, and weighted {options['train.weighted']}: "
                         "with outer= each part of a batch has equally many samples, and no weight")
    if options["train.staleness"] and do_late_rounds_diverge(outer):
        warnings.warn(f"with staleness=1 rounds of many local steps diverge at {outer}: DiLoCo(lr=0.5, momentum=0.3) "
                      "does not", stacklevel=3)
    options["train.global_batch"] = batch * outer.local_steps
    return batch // parts


def do_late_rounds_diverge(outer: DiLoCo) -> bool:
    """Returns whether the outer steps move away from a point that all rounds reach, one version late."""
    read, updated, buffer = 1.0, 1.0, 0.0  # distances from the point
    for _ in range(1000):
        buffer = outer.momentum * buffer + read
        moved = read + outer.momentum * buffer if outer.nesterov else buffer
        read, updated = updated, updated - outer.lr * moved
        if abs(updated) > 1e6:
            return True
    return abs(updated) >= 1
