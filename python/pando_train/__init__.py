"""Trains a torch.nn.Module on Pando's servers: docs/pytorch.md."""
from . import optim, schedule
from ._random import seed
from ._run import Run, join
from .errors import Abandoned, PandoError, RunFailed, Stopped
from .optim import LAMB, LARS, SGD, Adam, AdamW
from .schedule import (Constant, CosineAnnealingLR, ExponentialLR, LinearLR, MultiStepLR, OneCycle, PolynomialLR,
                       StepLR)

__all__ = ["Abandoned", "Adam", "AdamW", "Constant", "CosineAnnealingLR", "ExponentialLR", "LAMB", "LARS", "LinearLR",
           "MultiStepLR", "OneCycle", "PandoError", "PolynomialLR", "Run", "RunFailed", "SGD", "StepLR", "Stopped",
           "join", "optim", "schedule", "seed"]
