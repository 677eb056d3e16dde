#!/usr/bin/env python3
"""Writes optimizer_goldens.json: PyTorch's parameters, rates and momenta over 50 steps.

Needs PyTorch 1.13 (Debian: apt install python3-torch), then: python3 make_optimizer_goldens.py
Gradients and first parameters are exact in a float and made by the same rule in the tests, so the
file holds results only. Scalars are what a scheduler sends with each step; parameters are those
after the steps named in `checkpoints`.
"""
import json
import math
import pathlib

import numpy
import torch
from torch.optim import lr_scheduler

STEP_COUNT = 50
SIZE = 19  # one register of 16 and a rest
CHECKPOINTS = [1, 2, 10, 50]

SGD = {"kind": "sgd", "lr": 0.1}
MOMENTUM = SGD | {"momentum": 0.9}
NESTEROV = MOMENTUM | {"nesterov": True}
ADAM = {"kind": "adam", "lr": 0.01}
ADAMW = {"kind": "adamw", "lr": 0.01, "weight_decay": 0.01}
CONSTANT = {"kind": "constant"}
STEP = {"kind": "step", "step_size": 7, "gamma": 0.5}
COSINE = {"kind": "cosine", "min_lr": 0.001}
ONE_CYCLE = {"kind": "one-cycle"}
WARM_COSINE = COSINE | {"warmup_steps": 8}
WARM_STEP = STEP | {"warmup_steps": 5}

CASES = {
    "sgd, constant": (SGD, CONSTANT),
    "sgd with decay, step": (SGD | {"weight_decay": 0.05}, STEP),
    "momentum, constant": (MOMENTUM, CONSTANT),
    "momentum with dampening and decay, cosine":
        (MOMENTUM | {"dampening": 0.3, "weight_decay": 0.05}, COSINE),
    "momentum, one-cycle": (MOMENTUM, ONE_CYCLE),
    "nesterov, constant": (NESTEROV, CONSTANT),
    "nesterov with decay, one-cycle": (NESTEROV | {"weight_decay": 0.05}, ONE_CYCLE),
    "nesterov, warm-up and cosine": (NESTEROV, WARM_COSINE),
    "adam, constant": (ADAM, CONSTANT),
    "adam with decay, cosine": (ADAM | {"weight_decay": 0.05}, COSINE),
    "adam, one-cycle": (ADAM, ONE_CYCLE),
    "adam, one-cycle of the rate alone": (ADAM, ONE_CYCLE | {"cycle_momentum": False}),
    "adam with other betas and eps, early peak":
        (ADAM | {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3},
         ONE_CYCLE | {"pct_start": 0.05, "div_factor": 10.0, "final_div_factor": 100.0,
                      "base_momentum": 0.7, "max_momentum": 0.9}),
    "adamw, constant": (ADAMW, CONSTANT),
    "adamw with much decay, one-cycle": (ADAMW | {"weight_decay": 0.5}, ONE_CYCLE),
    "adamw, warm-up and step": (ADAMW, WARM_STEP),
}


def first_parameters():
    return torch.tensor([((i * 29) % 17 - 8) / 8 for i in range(SIZE)])


def gradient(step):
    """Signs and sizes that change, zeros among them; spread over 2^-3 ... 2^3."""
    return torch.tensor([((step * 37 + i * 61 + 13) % 101 - 50) / 64 * 2.0 ** (i % 7 - 3)
                         for i in range(SIZE)])


def make_optimizer(parameter, options):
    options = dict(options)
    kind = options.pop("kind")
    if kind == "sgd":
        return torch.optim.SGD([parameter], **options)
    betas = (options.pop("beta1", 0.9), options.pop("beta2", 0.999))
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[kind](
        [parameter], betas=betas, **options)


def make_schedule(optimizer, options, lr, step_count):
    options = dict(options)
    kind = options.pop("kind")
    warmup = options.pop("warmup_steps", 0)
    if warmup:
        rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / warmup, total_iters=warmup - 1)
        rest = make_schedule(optimizer, options | {"kind": kind}, lr, step_count - warmup)
        return lr_scheduler.SequentialLR(optimizer, [rise, rest], milestones=[warmup])
    if kind == "constant":
        return lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    if kind == "step":
        return lr_scheduler.StepLR(optimizer, **options)
    if kind == "cosine":
        return lr_scheduler.CosineAnnealingLR(optimizer, T_max=step_count,
                                              eta_min=options["min_lr"])
    return lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=step_count, **options)


def as_floats(values):
    """The shortest decimals that read back as the same floats."""
    return [float(numpy.format_float_scientific(numpy.float32(v), unique=True)) for v in values]


def scalars_of(group, step):
    if "betas" not in group:
        return as_floats([group["lr"], group["momentum"], 1, 1])
    beta1, beta2 = group["betas"]
    return as_floats([group["lr"], beta1, 1 - beta1 ** (step + 1),
                      math.sqrt(1 - beta2 ** (step + 1))])


def run(optimizer_options, schedule_options):
    parameter = torch.nn.Parameter(first_parameters())
    optimizer = make_optimizer(parameter, optimizer_options)
    schedule = make_schedule(optimizer, schedule_options, optimizer_options["lr"], STEP_COUNT)
    scalars, parameters = [], []
    for step in range(STEP_COUNT):
        scalars.append(scalars_of(optimizer.param_groups[0], step))
        parameter.grad = gradient(step)
        optimizer.step()
        if step + 1 in CHECKPOINTS:
            parameters.append(as_floats(parameter.detach().numpy()))
        if step + 1 < STEP_COUNT:
            schedule.step()
    return {"optimizer": optimizer_options, "schedule": schedule_options,
            "scalars": scalars, "parameters": parameters}


def to_json(goldens):
    """One row of numbers per line: the file is read in diffs."""
    def indent(value, depth):
        if isinstance(value, dict) and depth < 3:
            rows = [f"{json.dumps(k)}: {indent(v, depth + 1)}" for k, v in value.items()]
            return "{\n" + ",\n".join(rows) + "\n}"
        if isinstance(value, list) and value and isinstance(value[0], list):
            return "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
        return json.dumps(value)
    return indent(goldens, 0) + "\n"


def main():
    torch.set_num_threads(1)
    goldens = {"made_with": f"torch {torch.__version__}", "step_count": STEP_COUNT, "size": SIZE,
               "checkpoints": CHECKPOINTS,
               "cases": {name: run(*options) for name, options in CASES.items()}}
    path = pathlib.Path(__file__).with_name("optimizer_goldens.json")
    path.write_text(to_json(goldens), encoding="utf-8")
    print(f"{path.name}: {len(CASES)} cases, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
