"""Reads an optimizer and a scheduler of torch, once: their options, their groups, the rate of each step."""
import copy
import inspect
import struct
import warnings
from dataclasses import fields
from itertools import groupby
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

import torch
from torch.optim import lr_scheduler

from . import optim
from ._numbers import FLOAT_MAX, convert
from .errors import PandoError

OURS = {getattr(torch.optim, name): getattr(optim, name)
        for name in ("SGD", "Adam", "AdamW", "NAdam", "RMSprop", "Adagrad", "Adadelta")}
IGNORED = {"foreach", "fused", "capturable"}  # these change no value
SCHEDULER = getattr(lr_scheduler, "LRScheduler", None) or lr_scheduler._LRScheduler  # its name before torch 2.0
RATIO_TOLERANCE = 1e-6  # of the rates of two groups; torch's recursions in double differ by about 1e-12


def is_scheduler(schedule: Any) -> bool:
    """Returns whether this is one of torch.optim.lr_scheduler. Before torch 2.0 the one of a plateau has no base."""
    return isinstance(schedule, (SCHEDULER, lr_scheduler.ReduceLROnPlateau))


def read_optimizer(optimizer: torch.optim.Optimizer, schedule: Any) -> Tuple[optim.Optimizer, List[Dict[str, Any]]]:
    """Returns Pando's optimizer with the same options, and the parameter groups."""
    name, groups = type(optimizer).__name__, optimizer.param_groups
    if type(optimizer) not in OURS:
        raise PandoError(f"optimizer is a {name} ({type(optimizer).__module__}), and the servers have no such update: "
                         f"pass {', '.join(kind.__name__ for kind in OURS)} of torch.optim, or pando.LARS or LAMB")
    if any(float(state.get("step", 1)) for state in optimizer.state.values()):
        raise PandoError(f"{name} has made steps before pando.join, and the servers do not take over its state: pass a "
                         "new optimizer")
    if not is_scheduler(schedule) and any("initial_lr" in group for group in groups):
        raise PandoError(f"a scheduler of torch sets the rates of this {name}, and pando.join did not get it: pass it "
                         "as schedule=, or make the optimizer without it")
    ours = OURS[type(optimizer)]
    if ours is optim.Adam and groups[0].get("decoupled_weight_decay"):
        ours = optim.AdamW
    known = {field.name for field in fields(ours)} | ({"decoupled_weight_decay"} if ours is optim.AdamW else set())
    for number, group in enumerate(groups):
        for key in optimizer.defaults.keys() - {"lr", "weight_decay"} - IGNORED:
            if group[key] != groups[0][key]:
                raise PandoError(f"parameter group {number} has {key}={group[key]}, and group 0 has {groups[0][key]}: "
                                 "groups have their own lr and weight_decay, and equal values otherwise")
            if key not in known and group[key]:
                raise PandoError(f"{name} has {key}={group[key]}, which the servers do not have: leave it out")
    options = {field.name: groups[0][field.name] for field in fields(ours) if field.name in groups[0]}
    decays = [convert(float, f"weight_decay of parameter group {i}", group["weight_decay"])
              for i, group in enumerate(groups)]
    kept = ("params", "lr") if len(set(decays)) == 1 else ("params", "lr", "weight_decay")
    lr = max(convert(float, f"lr of parameter group {i}", group["lr"]) for i, group in enumerate(groups))
    return ours(**{**options, "lr": lr}), [{key: group[key] for key in kept} for group in groups]


def read_rates(optimizer: Any, schedule: Any, every: Optional[str],
               counts: Dict[str, int]) -> Tuple[List[float], List[float], str]:
    """Returns each parameter group's highest rate, the rates of the group with the highest one, and when they change.

    They change after each "step" or each "epoch", whose numbers are in `counts`. The scheduler and its optimizer stay
    as they are.
    """
    name = type(schedule).__name__
    check_scheduler(optimizer, schedule)
    every = choose_every(schedule, every, counts)
    rows = make_rows(optimizer, schedule, counts[every])
    place = max(range(len(rows)), key=lambda i: max(rows[i]))
    highest = max(rows[place])
    first = rows[place].index(highest)
    if highest == 0:
        raise PandoError(f"{name} gives the rate 0 to every step")
    for number, row in enumerate(rows):
        for group, rate in enumerate(row):
            expected = rows[place][group] / highest * row[first]
            if abs(rate - expected) > RATIO_TOLERANCE * max(rate, expected) + 1e-12 * highest:
                raise PandoError(f"{name} gives parameter group {group} {rate:.6g} at {every} {number}, and group "
                                 f"{first} {row[first]:.6g}. At {every} {place} they are {rows[place][group]:.6g} and "
                                 f"{highest:.6g}: the rates of groups must have the same ratio in all steps, so that "
                                 "one schedule serves all")
    return list(rows[place]), [row[first] for row in rows], every


def write_rates(rates: Iterable[Tuple[float, int]]) -> List[str]:
    """Returns the texts of the key schedule.rates. `rates` has rates, and for how many steps each one holds."""
    texts = []
    for rate, run in groupby(rates, lambda item: item[0]):
        count = sum(item[1] for item in run)
        texts.append(shorten(rate) if count == 1 else f"{shorten(rate)}*{count}")
    return texts


def check_scheduler(optimizer: Any, schedule: Any) -> None:
    """Raises PandoError for a scheduler that is no function of the number of its steps."""
    for part in list_parts(schedule):
        name = type(part).__name__
        needed = [parameter.name for parameter in list(inspect.signature(type(part).step).parameters.values())[1:]
                  if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        if needed or isinstance(part, lr_scheduler.ReduceLROnPlateau):
            raise PandoError(f"schedule is a {name}, which decides by results ({', '.join(needed)}), and rates are "
                             "fixed before the run: pass one that counts steps or epochs, as StepLR or "
                             "CosineAnnealingLR; early_stop_patience= ends a run that has stopped improving")
        if part.optimizer is not optimizer:
            raise PandoError(f"schedule is a {name} of another optimizer: pass that optimizer of torch to pando.join")
    if getattr(schedule, "last_epoch", 0) > 0:
        raise PandoError(f"{type(schedule).__name__} was stepped {schedule.last_epoch} times before pando.join: pass a "
                         "new one, because the run begins at its first rate")


def choose_every(schedule: Any, every: Optional[str], counts: Dict[str, int]) -> str:
    """Returns "step" or "epoch": when the plain loop calls schedule.step()."""
    name = type(schedule).__name__
    if every not in (None, "step", "epoch"):
        raise PandoError(f"schedule_every is {every!r}: expected \"step\" or \"epoch\"")
    length = f"{counts['step']} steps and {counts['epoch']} epochs"
    is_cycle = isinstance(schedule, lr_scheduler.OneCycleLR)
    total = schedule.total_steps if is_cycle else getattr(schedule, "T_max", None)
    fitting = [unit for unit in counts if counts[unit] == total]
    if is_cycle and (not fitting or every not in (None, *fitting)):
        asked = f" and schedule_every={every!r}" if every else ""
        raise PandoError(f"OneCycleLR has total_steps={total}{asked}, and this run has {length}: give it "
                         f"total_steps={counts[every or 'step']}")
    chosen = every or (fitting[0] if fitting else "step" if counts["step"] == counts["epoch"] else None)
    if chosen is None:
        raise PandoError(f"schedule is a {name}: pass schedule_every=\"step\" if the plain loop calls schedule.step() "
                         f"after each step, or \"epoch\" if after each epoch (this run has {length})")
    return chosen


def make_rows(optimizer: Any, schedule: Any, count: int) -> List[Tuple[float, ...]]:
    """Returns the rates of all groups before the first and after each further step() of the scheduler."""
    groups, name = optimizer.param_groups, type(schedule).__name__
    parts = list(list_parts(schedule))
    kept = [{key: copy.copy(value) if isinstance(value, (list, dict)) else value for key, value in vars(part).items()}
            for part in parts]
    kept_groups = [{key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in group.items()
                    if key != "params"} for group in groups]
    rows: List[Tuple[float, ...]] = []
    fixed = [key for key in ("momentum", "betas", "weight_decay") if key in optimizer.defaults]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no optimizer.step() before schedule.step()
            for part in parts:
                part.verbose = False
            while len(rows) < count:
                if rows:
                    schedule.step()
                rows.append(tuple(float(group["lr"]) for group in groups))
                if not all(0 <= rate < FLOAT_MAX for rate in rows[-1]):
                    raise PandoError(f"{name} gives the rates {rows[-1]} after {len(rows) - 1} of its steps: expected "
                                     "numbers of at least 0")
                for group, first in zip(groups, kept_groups):
                    for key in fixed:
                        if group[key] != first[key]:
                            raise PandoError(f"{name} moves {key}, from {first[key]} to {group[key]}: pass "
                                             "cycle_momentum=False, or schedule=pando.OneCycle() instead of it")
    except PandoError:
        raise
    except Exception as error:
        raise PandoError(f"step {len(rows)} of {name} failed ({error}), and the run needs {count - 1}") from error
    finally:
        for part, values in zip(parts, kept):
            vars(part).clear()
            vars(part).update(values)
        for group, values in zip(groups, kept_groups):
            group.update(values)
    return rows


def list_parts(schedule: Any) -> Iterator[Any]:
    """Yields the scheduler, and those that it consists of."""
    yield schedule
    for part in getattr(schedule, "_schedulers", ()):
        yield from list_parts(part)


def shorten(rate: float) -> str:
    """Returns the shortest text that has the rate's float of 32 bits, with which the servers compute."""
    def rounded(value: float) -> bytes:
        return struct.pack("f", value)
    texts = (f"{rate:.{digits}g}" for digits in range(5, 10))
    return next((text for text in texts if rounded(float(text)) == rounded(rate)), repr(rate))
