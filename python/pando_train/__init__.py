"""Trains a torch.nn.Module on Pando's servers: docs/pytorch.md."""
from typing import TYPE_CHECKING

from . import optim, schedule
from .errors import Abandoned, PandoError, RunFailed, Stopped
from .optim import LAMB, LARS, SGD, Adadelta, Adagrad, Adam, AdamW, DiLoCo, NAdam, RMSprop
from .schedule import (Constant, CosineAnnealingLR, ExponentialLR, LinearLR, MultiStepLR, OneCycle, PolynomialLR,
                       StepLR)

if TYPE_CHECKING:
    from ._random import seed
    from ._run import Run, join

__all__ = ["Abandoned", "Adadelta", "Adagrad", "Adam", "AdamW", "Constant", "CosineAnnealingLR", "DiLoCo",
           "ExponentialLR", "LAMB", "LARS", "LinearLR", "MultiStepLR", "NAdam", "OneCycle", "PandoError",
           "PolynomialLR", "RMSprop", "Run", "RunFailed", "SGD", "StepLR", "Stopped", "join", "optim", "schedule",
           "seed"]


def __getattr__(name: str):
    """Imports torch at the first use of join, Run or seed: the command pando starts without it."""
    if name not in ("Run", "join", "seed"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import _random, _run
    globals().update(Run=_run.Run, join=_run.join, seed=_random.seed)
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__})
