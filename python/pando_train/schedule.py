"""The servers' schedules of the learning rate, with the names of torch.optim.lr_scheduler.

A schedule counts steps, not epochs: one step is one update of the weights. Any of them may begin with
a linear rise over `warmup_steps`; the schedule itself runs over the steps after it.
"""
from dataclasses import dataclass
from typing import ClassVar, Tuple


class Schedule:
    """Base of the schedules."""
    TYPE: ClassVar[str] = ""


@dataclass(frozen=True)
class Constant(Schedule):
    """Keeps the optimizer's rate at every step."""
    warmup_steps: int = 0
    TYPE = "constant"


@dataclass(frozen=True)
class StepLR(Schedule):
    """Multiplies the rate by gamma every `step_size` steps."""
    step_size: int
    gamma: float = 0.1
    warmup_steps: int = 0
    TYPE = "step"


@dataclass(frozen=True)
class MultiStepLR(Schedule):
    """Multiplies the rate by gamma at each of the steps `milestones`."""
    milestones: Tuple[int, ...]
    gamma: float = 0.1
    warmup_steps: int = 0
    TYPE = "multi-step"


@dataclass(frozen=True)
class ExponentialLR(Schedule):
    """Multiplies the rate by gamma at every step."""
    gamma: float
    warmup_steps: int = 0
    TYPE = "exponential"


@dataclass(frozen=True)
class CosineAnnealingLR(Schedule):
    """Half a cosine from the optimizer's rate to `eta_min`, over the whole run. The run's length is T_max."""
    eta_min: float = 0.0
    warmup_steps: int = 0
    TYPE = "cosine"


@dataclass(frozen=True)
class LinearLR(Schedule):
    """A line from start_factor to end_factor, times the rate. `total_iters` 0: over the whole run."""
    start_factor: float = 1.0
    end_factor: float = 0.0
    total_iters: int = 0
    warmup_steps: int = 0
    TYPE = "linear"


@dataclass(frozen=True)
class PolynomialLR(Schedule):
    """The rate times (share of steps left) ** power. `total_iters` 0: over the whole run."""
    total_iters: int = 0
    power: float = 1.0
    warmup_steps: int = 0
    TYPE = "polynomial"


@dataclass(frozen=True)
class OneCycle(Schedule):
    """OneCycleLR with two phases over the whole run; the optimizer's rate is its max_lr."""
    pct_start: float = 0.3
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    cycle_momentum: bool = True
    base_momentum: float = 0.85
    max_momentum: float = 0.95
    warmup_steps: int = 0
    TYPE = "one-cycle"
