"""Evaluation: named sums over slices of the test set, on one version of the parameters."""
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional

import torch
from torch import nn

from ._random import derive, kept_generators, seed_generators
from .errors import PandoError

Sums = Dict[str, float]


@contextmanager
def evaluating(module: nn.Module, seed: int) -> Iterator[None]:
    """Sets eval() and no_grad, and seeds the generators. Restores modes and generators afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    with kept_generators(), torch.no_grad():
        module.eval()
        seed_generators(seed)
        try:
            yield
        finally:
            for part, was_training in modes:
                part.training = was_training


class Results(Dict[str, float]):
    """The means of one evaluated version, by their names in metrics.csv; results.loss is results["loss"].

    `version` is the version's step, and `epoch` the number of epochs until then.
    """

    def __init__(self, version: int, epoch: float, means: Dict[str, float]):
        super().__init__(means)
        self.version, self.epoch = version, epoch

    def __getattr__(self, name: str) -> float:
        if name not in self:
            raise AttributeError(f"the evaluation has no {name}: evaluate_with's function gives {list(self)}")
        return self[name]


class Evaluation:
    """The user's function, and the names of its sums, in the function's order."""

    def __init__(self, module: nn.Module, test_set: Any, function: Callable[..., Dict[str, Any]], batch_size: int):
        if batch_size < 1:
            raise PandoError(f"batch_size of evaluate_with is {batch_size}: give at least 1")
        self.test_set = test_set
        self.batch_size = batch_size
        self.names: List[str] = []
        self._module = module
        self._function = function

    def find_names(self, batch: Any) -> None:
        """Calls the function once, with a batch of one or two samples, to learn the names."""
        with evaluating(self._module, derive("names")):
            sums = self._call(batch)
        bad = [name for name in sums if not str(name).isidentifier()]
        if bad or not sums:
            raise PandoError(f"the function of evaluate_with returned the names {list(sums)}: each is a word like "
                             "correct or loss_sum, and at least one is needed")
        self.names = list(sums)

    def run(self, batches: Iterable[Any], seed: int, version: int, first_sample: int) -> List[float]:
        """Returns the sums over all batches, in the order of the names, in double precision."""
        totals = [0.0] * len(self.names)
        with evaluating(self._module, derive("evaluate", seed, version, first_sample)):
            for batch in batches:
                sums = self._call(batch)
                if list(sums) != self.names:
                    raise PandoError(f"the function of evaluate_with returned {list(sums)}, and before {self.names}: "
                                     "return the same names in the same order each time")
                totals = [total + sums[name] for total, name in zip(totals, self.names)]
        return totals

    def _call(self, batch: Any) -> Sums:
        sums: Optional[Dict[str, Any]] = self._function(*batch) if isinstance(batch, (tuple, list)) \
            else self._function(batch)
        if not isinstance(sums, dict):
            raise PandoError(f"the function of evaluate_with returned a {type(sums).__name__}: return a dict of sums, "
                             'for instance dict(correct=..., loss_sum=...)')
        return {name: float(value) for name, value in sums.items()}
