"""Evaluation: named sums over slices of the test set, on one version of the parameters."""
import math
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Union

import torch
from torch import nn

from ._random import derive, kept_generators, seed_generators
from .errors import PandoError

Sums = Dict[str, float]
Reduce = Union[Callable[[List[Any]], Dict[str, Any]], Dict[str, Callable[[List[Any]], Any]]]


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
    """The user's function, and the names of its sums, in the function's order.

    With `reduce` the function returns anything, and `reduce` makes values of the results of all batches, in their
    order. The values are means: a sum is a value times the number of samples.
    """

    def __init__(self, module: nn.Module, test_set: Any, function: Callable[..., Any], batch_size: int,
                 reduce: Optional[Reduce]):
        if batch_size < 1:
            raise PandoError(f"batch_size of evaluate_with is {batch_size}: give at least 1")
        self.test_set = test_set
        self.batch_size = batch_size
        self.names: List[str] = []
        self._module = module
        self._function = function
        self._reduce = reduce
        self.is_whole = reduce is not None  # one process evaluates the whole test set
        self.trial_samples = min(batch_size if self.is_whole else 2, len(test_set))

    def find_names(self, batch: Any) -> None:
        """Calls the functions once, with a batch of `trial_samples` samples, to learn the names."""
        with evaluating(self._module, derive("names")):
            sums = self._call_reduce([self._call(batch)], True) if self.is_whole else self._call_for_sums(batch)
        bad = [name for name in sums if not str(name).isidentifier()]
        if bad or not sums:
            raise PandoError(f"the function of evaluate_with returned the names {list(sums)}: each is a word like "
                             "correct or loss_sum, and at least one is needed")
        self.names = list(sums)

    def run(self, batches: Iterable[Any], seed: int, version: int, samples: Sequence[int]) -> List[float]:
        """Returns the sums over all batches, in the order of the names, in double precision."""
        totals = [0.0] * len(self.names)
        with evaluating(self._module, derive("evaluate", seed, version, samples[0])):
            if self.is_whole:
                values = self._check_names(self._call_reduce([self._call(batch) for batch in batches], False))
                return [value * len(samples) for value in values]
            for batch in batches:
                sums = self._check_names(self._call_for_sums(batch))
                totals = [total + value for total, value in zip(totals, sums)]
        return totals

    def _check_names(self, sums: Sums) -> List[float]:
        if list(sums) != self.names:
            raise PandoError(f"the function of evaluate_with returned {list(sums)}, and before {self.names}: return "
                             "the same names in the same order each time")
        return list(sums.values())

    def _call(self, batch: Any) -> Any:
        return self._function(*batch) if isinstance(batch, (tuple, list)) else self._function(batch)

    def _call_for_sums(self, batch: Any) -> Sums:
        return read_sums(self._call(batch), "the function", "sums")

    def _call_reduce(self, results: List[Any], is_trial: bool) -> Sums:
        """Returns the values by name. A trial calls no function whose name is known."""
        if isinstance(self._reduce, dict):
            values = {name: math.nan if is_trial else function(results) for name, function in self._reduce.items()}
        else:
            try:
                values = self._reduce(results)
            except Exception as error:
                if not is_trial:
                    raise
                raise PandoError(f"reduce of evaluate_with failed with the first {self.trial_samples} test samples, "
                                 f"which Pando tries to learn the names: {type(error).__name__}: {error}. Pass "
                                 "reduce=dict(NAME=function), which needs no trial") from error
        values = read_sums(values, "reduce", "values")
        known = [name for name in values if name in ("correct", "loss_sum")]
        if known:
            raise PandoError(f"reduce of evaluate_with returned {known[0]}, which is the name of a sum: name the value "
                             "accuracy, or loss")
        return {"loss_sum" if name == "loss" else name: value for name, value in values.items()}


def read_sums(sums: Any, source: str, content: str) -> Sums:
    if not isinstance(sums, dict):
        raise PandoError(f"{source} of evaluate_with returned a {type(sums).__name__}: return a dict of {content}, "
                         "for instance dict(correct=..., loss_sum=...)")
    return {name: float(value) for name, value in sums.items()}
