"""Describes the training as TOML, with the keys of a job file (docs/job-file.md)."""
import json
import math
from dataclasses import fields
from typing import Any, Dict, Optional, Tuple, Union

from ._numbers import convert
from .errors import PandoError
from .optim import Optimizer
from .schedule import Constant, Schedule

RENAMED = {"eta_min": "min_lr"}  # torch's name: the key's name


def make_sections(optimizer: Optional[Optimizer], schedule: Optional[Schedule], *, epochs: Optional[float],
                  steps: Optional[int], options: Dict[str, Any]) -> Dict[str, Dict[str, Any]]:
    """Returns section -> key -> value. `options` has further keys, such as "train.seed"; None omits a key.

    `optimizer` is None if the caller adds its keys.
    """
    if schedule is not None and not isinstance(schedule, Schedule):
        raise PandoError(f"schedule is a {type(schedule).__name__}: pass one of pando.schedule, for instance "
                         "pando.OneCycle(), or one of torch.optim.lr_scheduler together with its optimizer")
    if (epochs is None) == (steps is None):
        raise PandoError("pass either epochs or steps to pando.join: the length of the run")
    sections: Dict[str, Dict[str, Any]] = {"train": {}, "optimizer": make_keys(optimizer) if optimizer else {},
                                           "schedule": make_keys(schedule or Constant()), "eval": {}}
    if epochs is not None:
        sections["train"]["epochs"] = convert(float, "epochs", epochs)
    else:
        sections["train"]["steps"] = convert(int, "steps", steps)
    for key, value in options.items():
        if value is not None:
            section, name = key.split(".")
            sections[section][name] = value
    return sections


def count_steps(samples: int, train: Dict[str, Any]) -> Tuple[int, int]:
    """Returns the steps of an epoch and of the run. `train` has the keys of that section."""
    whole, rest = divmod(samples, train["global_batch"])
    per_epoch = whole + 1 if rest and (train["last_batch"] == "short" or not whole) else whole
    return per_epoch, train.get("steps") or math.ceil(train["epochs"] * per_epoch)


def make_keys(arguments: Union[Optimizer, Schedule]) -> Dict[str, Any]:
    """Returns the keys of the section optimizer or schedule, each with its key's type."""
    keys: Dict[str, Any] = {"type": arguments.TYPE}
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        name = f"{field.name} of {type(arguments).__name__}"
        if field.name == "betas":
            keys["beta1"], keys["beta2"] = (convert(float, name, beta) for beta in value)
        elif field.name == "milestones":
            keys["milestones"] = [convert(int, name, step) for step in value]
        else:
            keys[RENAMED.get(field.name, field.name)] = convert(field.type, name, value)
    return keys


def check_optimizer(optimizer: Any) -> None:
    if isinstance(optimizer, (list, tuple)):
        raise PandoError("several optimizers need names: pass optimizer=dict(D=..., G=...), and turns= if they train "
                         "in different steps. In one optimizer, groups give parameters their own rate and decay")
    if not isinstance(optimizer, Optimizer):
        raise PandoError(f"optimizer is a {type(optimizer).__name__}: pass one of torch.optim or of pando.optim, for "
                         "instance pando.SGD()")


def write_toml(sections: Dict[str, Dict[str, Any]]) -> str:
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in keys.items()]
    return "\n".join(lines) + "\n"


def toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    return json.dumps(value) if isinstance(value, str) else repr(value)
