"""The servers' optimizers, with torch's argument names. The formulas are those of torch.optim."""
from dataclasses import dataclass
from typing import ClassVar, Tuple


class Optimizer:
    """Base of the optimizers. `lr` is the highest rate of the schedule."""
    TYPE: ClassVar[str] = ""
    lr: float


@dataclass(frozen=True)
class SGD(Optimizer):
    """torch.optim.SGD."""
    lr: float = 1e-3
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    nesterov: bool = False
    TYPE = "sgd"


@dataclass(frozen=True)
class Adam(Optimizer):
    """torch.optim.Adam. The decay is added to the gradient."""
    lr: float = 1e-3
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    TYPE = "adam"


@dataclass(frozen=True)
class AdamW(Adam):
    """torch.optim.AdamW. The decay is subtracted from the weights."""
    weight_decay: float = 1e-2
    TYPE = "adamw"


@dataclass(frozen=True)
class NAdam(Adam):
    """torch.optim.NAdam since 2.0."""
    lr: float = 2e-3
    momentum_decay: float = 4e-3
    decoupled_weight_decay: bool = False
    TYPE = "nadam"


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """torch.optim.RMSprop."""
    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.0
    centered: bool = False
    TYPE = "rmsprop"


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """torch.optim.Adagrad."""
    lr: float = 1e-2
    lr_decay: float = 0.0
    weight_decay: float = 0.0
    initial_accumulator_value: float = 0.0
    eps: float = 1e-10
    TYPE = "adagrad"


@dataclass(frozen=True)
class Adadelta(Optimizer):
    """torch.optim.Adadelta."""
    lr: float = 1.0
    rho: float = 0.9
    eps: float = 1e-6
    weight_decay: float = 0.0
    TYPE = "adadelta"


@dataclass(frozen=True)
class LARS(Optimizer):
    """LARS as published: SGD with a rate for each tensor. Tensors of one dimension have no decay."""
    lr: float = 0.1
    momentum: float = 0.9
    weight_decay: float = 0.0
    trust_coefficient: float = 0.001
    TYPE = "lars"


@dataclass(frozen=True)
class LAMB(Adam):
    """LAMB as published: Adam with a rate for each tensor. Tensors of one dimension have no decay."""
    eps: float = 1e-6
    trust_ratio_max: float = 10.0
    TYPE = "lamb"


@dataclass(frozen=True)
class DiLoCo:
    """The outer optimizer of rounds of local steps: SGD with Nesterov's momentum, as published."""
    local_steps: int
    lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True
