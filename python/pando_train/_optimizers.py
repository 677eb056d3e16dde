"""Reads the optimizers of pando.join into keys of the job: one for all parameters, or several that train in turns."""
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import torch

from ._from_torch import is_scheduler, read_optimizer, read_rates, write_rates
from ._job import check_optimizer, make_keys
from ._numbers import convert
from .errors import PandoError
from .optim import Optimizer

SHARED = ("lr", "weight_decay")  # options that each tensor has by itself


class Turns:
    """The groups of parameters that steps 0, 1, ... train, which repeat. `names` is empty without groups."""

    def __init__(self, names: Sequence[str], turns: Optional[Sequence[str]]):
        self.names = list(names) if turns is not None else []
        self.turns = list(turns or ())
        unknown = [turn for turn in self.turns if turn not in names]
        missing = [name for name in self.names if name not in self.turns]
        if turns is not None and (unknown or missing or not self.turns):
            raise PandoError(f"turns is {self.turns}, and the optimizers are {list(names)}: expected the names of "
                             'optimizer=dict(...), each at least once, as turns=["D", "G"]')

    def at(self, step: int) -> Optional[str]:
        """Returns the name of the group that this step trains. None: the step trains all parameters."""
        return self.turns[step % len(self.turns)] if self.turns else None

    def before(self, step: int) -> int:
        """Returns how many earlier steps have trained this step's group."""
        rounds, place = divmod(step, len(self.turns))
        name = self.at(step)
        return rounds * self.turns.count(name) + self.turns[:place].count(name)

    def count(self, name: str, step_count: int) -> int:
        """Returns how many of the first `step_count` steps train the group."""
        rounds, rest = divmod(step_count, len(self.turns))
        return rounds * self.turns.count(name) + self.turns[:rest].count(name)

    def passes(self, step: int, steps_per_epoch: int) -> int:
        """Returns the epoch that a step belongs to, for a scheduler.

        With turns it is a pass over the data by the network that trains most often, as in a plain loop that takes a
        batch for each of its steps.
        """
        if not self.turns:
            return step // steps_per_epoch
        return step // len(self.turns) * max(map(self.turns.count, self.names)) // steps_per_epoch


class Member:
    """One optimizer of torch: Pando's own with the same options, its parameter groups, and its rates."""

    def __init__(self, name: str, optimizer: torch.optim.Optimizer, schedule: Any, every: Optional[str],
                 counts: Dict[str, int]):
        self.name = name
        self.every = "step"
        self._rates: List[float] = []
        self.ours, self.groups = read_optimizer(optimizer, schedule)
        if is_scheduler(schedule):
            highest, self._rates, self.every = read_rates(optimizer, schedule, every, counts)
            self.groups = [{**group, "lr": lr} for group, lr in zip(self.groups, highest)]
        self.lr = max(float(group["lr"]) for group in self.groups)
        self.has_schedule = len(set(self._rates)) > 1

    def rate(self, place: int) -> float:
        """Returns the rate of the group with the highest one, at this step or epoch."""
        return self._rates[place] if self._rates else self.lr


def read_members(optimizers: Dict[str, Any], schedule: Any, every: Optional[str], turns: Turns, steps_per_epoch: int,
                 step_count: int) -> List[Member]:
    schedules = schedule if isinstance(schedule, dict) else dict.fromkeys(optimizers, schedule)
    unknown = [name for name in schedules if name not in optimizers]
    if unknown or (len(optimizers) > 1 and schedule is not None and not isinstance(schedule, dict)):
        raise PandoError(f"schedule is {schedule!r}, and the optimizers are {list(optimizers)}: expected a dict of "
                         "schedulers with these names")
    members = []
    for name, optimizer in optimizers.items():
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise PandoError(f"optimizer {name} is a {type(optimizer).__name__}: several optimizers are of torch.optim,"
                             " each with its parameters")
        own = schedules.get(name)
        if own is not None and isinstance(schedule, dict) and not is_scheduler(own):
            raise PandoError(f"the schedule of {name} is a {type(own).__name__}: expected one of "
                             "torch.optim.lr_scheduler for each name")
        counts = {"step": turns.count(name, step_count) if turns.names else step_count,
                  "epoch": turns.passes(step_count - 1, steps_per_epoch) + 1}
        members.append(Member(name, optimizer, schedules.get(name), every, counts))
    return members


def merge(members: List[Member]) -> Tuple[Optimizer, List[Dict[str, Any]]]:
    """Returns one optimizer and its groups, for optimizers that make all steps together."""
    first = make_keys(members[0].ours)
    for member in members[1:]:
        keys = make_keys(member.ours)
        different = [key for key in {**first, **keys} if key not in SHARED and keys.get(key) != first.get(key)]
        if different or member.has_schedule or members[0].has_schedule:
            why = f"{different[0]} differs" if different else "a scheduler sets their rates"
            raise PandoError(f"optimizers {members[0].name} and {member.name} have no turns, and {why}: without turns "
                             "they have equal options, and rates that stay. Give turns=, such as "
                             f"{[member.name for member in members]}, if they train in different steps")
    decays = [(group, member.ours.weight_decay) for member in members for group in member.groups]
    return members[0].ours, [{"weight_decay": decay, **group} for group, decay in decays] \
        if len(members) > 1 else members[0].groups


def list_rates(members: List[Member], turns: Turns, steps_per_epoch: int,
               step_count: int) -> Iterator[Tuple[float, int]]:
    """Yields the rates of all steps, and for how many steps each one holds."""
    if not turns.names:
        width = 1 if members[0].every == "step" else steps_per_epoch
        for first in range(0, step_count, width):
            yield members[0].rate(first // width), min(width, step_count - first)
        return
    by_name = {member.name: member for member in members}
    for step in range(step_count):
        member = by_name[turns.at(step)]
        yield member.rate(turns.before(step) if member.every == "step" else turns.passes(step, steps_per_epoch)), 1


def set_turns(members: List[Member], turns: Turns, clips: Dict[str, float], sections: Dict[str, Any]) -> None:
    """Adds the groups' options and their turns to the sections."""
    texts = []
    for member in members:
        keys = {key: value for key, value in make_keys(member.ours).items() if key not in SHARED}
        keys.update(make_clip(clips.get(member.name, 0.0)))
        if keys["type"] == "nadam":
            raise PandoError(f"optimizer {member.name} is NAdam, which has no turns: pass Adam, AdamW, SGD, RMSprop, "
                             "Adagrad or Adadelta of torch.optim")
        texts.append(" ".join(f"{key}={value:d}" if isinstance(value, bool) else f"{key}={value}"
                              for key, value in keys.items()))
    sections["optimizer"].update(groups=texts, turns=[turns.names.index(turn) for turn in turns.turns])


def make_clip(value: Any) -> Dict[str, float]:
    """Returns the key of weight_clip, if it is given."""
    if isinstance(value, dict):
        raise PandoError(f"weight_clip is {value}: names need turns=; without turns one number is for all parameters")
    return {"weight_clip": convert(float, "weight_clip", value)} if value else {}


def read_torch(optimizer: Any, schedule: Any, every: Optional[str], turns: Turns, clip: Any, lengths: Tuple[int, int],
               sections: Dict[str, Any]) -> Iterable[Dict[str, Any]]:
    """Puts torch's optimizers and schedulers into the sections, and returns the parameter groups of all of them.

    `lengths` are the steps of an epoch, and of the run.
    """
    optimizers = optimizer if isinstance(optimizer, dict) else {"": optimizer}
    members = read_members(optimizers, schedule, every, turns, *lengths)
    is_tabled = any(member.has_schedule for member in members)
    lr = max(member.lr for member in members)
    if turns.names:
        clips = clip if isinstance(clip, dict) else dict.fromkeys(optimizers, clip)
        if set(clips) - set(optimizers):
            raise PandoError(f"weight_clip has {list(clips)}, and the optimizers are {list(optimizers)}")
        set_turns(members, turns, clips, sections)
        groups = [{"weight_decay": member.ours.weight_decay, **group, "group": number,
                   "base_lr": member.lr if is_tabled else lr}
                  for number, member in enumerate(members) for group in member.groups]
    else:
        ours, groups = merge(members)
        sections["optimizer"].update(make_keys(ours), **make_clip(clip))
    sections["optimizer"]["lr"] = lr
    if is_tabled:
        sections["schedule"] = {"type": "table", "rates": write_rates(list_rates(members, turns, *lengths))}
    return groups


def check_options(optimizer: Any, schedule: Any, every: Optional[str], params: Any, turns: Any) -> bool:
    """Returns whether the optimizers are torch's. Raises PandoError for arguments that do not go together."""
    is_torch = isinstance(optimizer, (torch.optim.Optimizer, dict))
    if not is_torch:
        check_optimizer(optimizer)
    if is_torch and list(params):
        raise PandoError("params= goes with an optimizer of pando.optim: torch's "
                         f"{type(optimizer).__name__} has its own parameter groups")
    is_tabled = is_scheduler(schedule) or isinstance(schedule, dict)
    if every is not None and not (is_torch and is_tabled):
        raise PandoError("schedule_every= goes with an optimizer and a scheduler of torch: Pando's schedules count "
                         "steps")
    if isinstance(optimizer, dict) and not optimizer:
        raise PandoError("optimizer is an empty dict: expected optimizers of torch by name, as dict(D=..., G=...)")
    if turns is not None and not isinstance(optimizer, dict):
        raise PandoError("turns= goes with several optimizers: optimizer=dict(D=..., G=...), turns=[\"D\", \"G\"]")
    return is_torch
