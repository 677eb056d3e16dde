"""One micro-batch of training: the with block of a training loop."""
import traceback
from typing import Any, Dict, Optional

import torch

from ._exchange import Exchange
from ._hooks import Hooks
from ._library import NOT_LOGGED, Work, Worker
from ._numbers import FLOAT_MAX, convert
from ._random import derive, seed_generators
from .errors import Abandoned, PandoError


class MicroBatch:
    """The with block that Run.micro_batch returns, for one use. It has `samples` samples.

    `step` counts updates from 0, and `index` the step's micro-batches. `turn` is that of run.turn. At the start it
    clears gradients, seeds the generators and loads parameters. At the end it gives the remaining gradients and
    finishes the work. If the work is abandoned meanwhile, the rest of the block is skipped.
    """

    def __init__(self, run, work: Work, weight: Optional[float], sends_at_end: bool):
        self._run = run
        self.step, self.index, self.samples = work.step, work.micro_batch, len(work.samples)
        self.turn = run.turns.at(work.step)
        self._sends_at_end = sends_at_end
        self._is_weighted = weight is not None
        self._weight = float(self.samples if weight is None else weight)
        self._logged: Dict[str, Any] = {}

    def log(self, loss: Any = None, correct: Any = None, **others: Any) -> None:
        """Takes values for metrics.csv: the mean loss, as in backward, the number of right answers, and other means.

        If a micro-batch does not log a value, or one that is not finite, its step does not have that value.
        """
        for name, value in dict(others, loss=loss, correct=correct).items():
            if name not in ("loss", "correct", *self._run.log_names):
                raise PandoError(f"mb.log got {name}, which pando.join did not find in the script: name all values "
                                 f"there, as log={sorted({*self._run.log_names, name})}")
            if value is not None:
                self._logged[name] = value.detach() if isinstance(value, torch.Tensor) else value

    def __enter__(self) -> "MicroBatch":
        self._run.worker.end_reading()
        self._run.state.save()
        exchange: Exchange = self._run.exchange
        exchange.begin(True, self.step, self._weight, self.samples)
        seed_generators(derive("forward", self._run.facts.seed, self.step, self.index))
        try:
            self._run.hooks.begin(self._run.turns.names.index(self.turn) if self.turn else None, self._sends_at_end)
        except Abandoned:
            pass  # the first hook raises Abandoned again, within the block
        except BaseException as error:
            self._run.hooks.leave_forward()
            self._fail(error)
            raise
        return self

    def __exit__(self, kind, error, trace) -> bool:
        """Suppresses Abandoned, and errors that follow from it. Other errors end the run with their traceback."""
        exchange: Exchange = self._run.exchange
        hooks: Hooks = self._run.hooks
        hooks.leave_forward()
        try:
            if error is not None:
                return self._handle(error)
            if hooks.can_finish and not exchange.is_abandoned:  # otherwise the loader raises, except after break
                self._finish(hooks, self._run.worker)
        except Abandoned:
            exchange.is_abandoned = True
        except Exception as problem:
            self._fail(problem)
            raise
        finally:
            self._clean(exchange)
        return True

    def _handle(self, error: BaseException) -> bool:
        """Returns whether to suppress the block's error."""
        # If torch's C++ calls Python during backward, it turns Abandoned into a RuntimeError.
        if isinstance(error, Abandoned) or (self._run.exchange.is_abandoned and isinstance(error, RuntimeError)):
            self._run.exchange.is_abandoned = True
            return True
        if isinstance(error, Exception):
            self._fail(error)
        return False

    def _finish(self, hooks: Hooks, worker: Worker) -> None:
        hooks.finish()
        means = {name: convert(float, f"{name} of mb.log", value, True) for name, value in self._logged.items()}
        names = ["loss", "correct", *self._run.log_names]
        sums = [means[name] if name in means else NOT_LOGGED for name in names]
        for place, name in enumerate(names):
            if name in means and name != "correct":  # a mean over nothing is NaN, and has weight 0
                sums[place] = means[name] * self._weight if self._weight > 0 else 0.0
            if name not in ("loss", "correct") and not abs(sums[place]) < FLOAT_MAX:
                sums[place] = NOT_LOGGED
        worker.finish_work(sums + ([self._weight] if self._is_weighted else []))

    def _fail(self, error: BaseException) -> None:
        self._run.fail("".join(traceback.format_exception(type(error), error, error.__traceback__)))

    def _clean(self, exchange: Exchange) -> None:
        if exchange.is_abandoned:
            for _, entry in self._run.table.parameters:
                entry.tensor.grad = None
            self._run.state.restore()
        exchange.end()
