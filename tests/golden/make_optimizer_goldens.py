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
LARS = {"kind": "lars", "lr": 2.0, "momentum": 0.9, "weight_decay": 0.05,
        "trust_coefficient": 0.02}
LAMB = {"kind": "lamb", "lr": 0.01, "weight_decay": 0.05}
RMSPROP = {"kind": "rmsprop", "lr": 0.01}
ADAGRAD = {"kind": "adagrad", "lr": 0.1, "eps": 1e-10}
ADADELTA = {"kind": "adadelta", "lr": 1.0, "eps": 1e-6}
NADAM = {"kind": "nadam", "lr": 0.01}
CONSTANT = {"kind": "constant"}
STEP = {"kind": "step", "step_size": 7, "gamma": 0.5}
COSINE = {"kind": "cosine", "min_lr": 0.001}
ONE_CYCLE = {"kind": "one-cycle"}
MULTI_STEP = {"kind": "multi-step", "milestones": [9, 20, 21, 44], "gamma": 0.6}
EXPONENTIAL = {"kind": "exponential", "gamma": 0.93}
LINEAR = {"kind": "linear", "start_factor": 0.75, "end_factor": 0.05}
SHORT_LINEAR = {"kind": "linear", "start_factor": 1.0, "end_factor": 0.25, "total_iters": 30}
POLYNOMIAL = {"kind": "polynomial", "power": 2.0}
SHORT_POLYNOMIAL = {"kind": "polynomial", "power": 0.5, "total_iters": 30}
WARM = {"warmup_steps": 6}
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
    "sgd, cosine": (SGD, COSINE),
    # PyTorch would switch momentum on.
    "sgd, one-cycle": (SGD, ONE_CYCLE | {"cycle_momentum": False}),
    "momentum, step": (MOMENTUM, STEP),
    "momentum, warm-up and one-cycle": (MOMENTUM, ONE_CYCLE | WARM),
    "nesterov, step": (NESTEROV, STEP),
    "adam, step": (ADAM, STEP),
    "adam, warm-up and constant": (ADAM, CONSTANT | WARM),
    "adamw, cosine": (ADAMW, COSINE),
    "sgd clipped by value": (SGD | {"clip_value": 0.5}, CONSTANT),
    "adamw clipped by value": (ADAMW | {"clip_value": 0.5}, CONSTANT),
    "momentum with decay, clipped by value":
        (MOMENTUM | {"weight_decay": 0.05, "clip_value": 0.25}, COSINE),
} | {
    f"{optimizer_name}, {schedule_name}": (optimizer, schedule)
    for optimizer_name, optimizer in (("sgd", SGD), ("momentum", MOMENTUM), ("nesterov", NESTEROV),
                                      ("adam", ADAM), ("adamw", ADAMW))
    for schedule_name, schedule in (
        ("multi-step", MULTI_STEP), ("exponential", EXPONENTIAL),
        ("linear", LINEAR if optimizer is not ADAM else SHORT_LINEAR),
        ("polynomial", POLYNOMIAL if optimizer is not ADAM else SHORT_POLYNOMIAL))
} | {
    "momentum, warm-up and multi-step": (MOMENTUM, MULTI_STEP | WARM),
    "adam, warm-up and exponential": (ADAM, EXPONENTIAL | WARM),
    "adamw, warm-up and linear": (ADAMW, SHORT_LINEAR | WARM),
    "nesterov, warm-up and polynomial": (NESTEROV, POLYNOMIAL | WARM),
    "sgd clipped by norm": (SGD | {"clip_norm": 2.0}, CONSTANT),
    "nesterov with decay, clipped by norm":
        (NESTEROV | {"weight_decay": 0.05, "clip_norm": 1.0}, COSINE),
    "adam clipped by norm": (ADAM | {"clip_norm": 2.0}, STEP),
    "adamw clipped by a norm that is never reached": (ADAMW | {"clip_norm": 1e6}, CONSTANT),
    "lars clipped by norm": (LARS | {"clip_norm": 1.0}, COSINE),
    "lars without momentum": (LARS | {"momentum": 0.0}, CONSTANT),
    "lamb without decay": (LAMB | {"weight_decay": 0.0}, CONSTANT),
    "lamb with other betas and eps": (LAMB | {"beta1": 0.8, "beta2": 0.95, "eps": 1e-3}, CONSTANT),
} | {
    f"{optimizer_name}, {schedule_name}": (optimizer, schedule)
    for optimizer_name, optimizer in (("lars", LARS), ("lamb", LAMB))
    for schedule_name, schedule in (
        ("constant", CONSTANT), ("step", STEP), ("cosine", COSINE), ("one-cycle", ONE_CYCLE),
        ("multi-step", MULTI_STEP), ("exponential", EXPONENTIAL), ("linear", LINEAR),
        ("warm-up and polynomial", POLYNOMIAL | WARM))
} | {
    "rmsprop, constant": (RMSPROP, CONSTANT),
    "rmsprop with another alpha and decay, cosine":
        (RMSPROP | {"alpha": 0.9, "eps": 1e-3, "weight_decay": 0.05}, COSINE),
    "rmsprop, centered": (RMSPROP | {"centered": True}, CONSTANT),
    "rmsprop with momentum, one-cycle": (RMSPROP | {"lr": 0.001, "momentum": 0.9}, ONE_CYCLE),
    "rmsprop, centered, with momentum and decay, clipped by value":
        (RMSPROP | {"lr": 0.001, "momentum": 0.8, "centered": True, "weight_decay": 0.05, "clip_value": 0.5}, STEP),
    "adagrad, constant": (ADAGRAD, CONSTANT),
    "adagrad with a decaying rate, sum and decay, cosine":
        (ADAGRAD | {"lr_decay": 0.1, "initial_accumulator_value": 0.25, "weight_decay": 0.05},
         COSINE),
    "adagrad clipped by norm": (ADAGRAD | {"clip_norm": 2.0}, CONSTANT),
    "adadelta, constant": (ADADELTA, CONSTANT),
    "adadelta with another rho and decay, multi-step":
        (ADADELTA | {"rho": 0.8, "eps": 1e-3, "weight_decay": 0.05}, MULTI_STEP),
    "nadam, constant": (NADAM, CONSTANT),
    "nadam with decay, cosine": (NADAM | {"weight_decay": 0.05}, COSINE),
    "nadam with decoupled decay": (NADAM | {"weight_decay": 0.5, "decoupled_weight_decay": True},
                                   CONSTANT),
    "nadam with other betas, momentum decay and eps, step":
        (NADAM | {"beta1": 0.8, "beta2": 0.95, "momentum_decay": 0.1, "eps": 1e-3}, STEP),
    "nadam, one-cycle": (NADAM, ONE_CYCLE),
}


class Lars(torch.optim.Optimizer):
    """You, Gitman, Ginsburg 2017, algorithm 1, in double; PyTorch has no LARS."""

    def __init__(self, params, lr, momentum, weight_decay, trust_coefficient):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay,
                                  "trust_coefficient": trust_coefficient})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                w, g, decay = p.double(), p.grad.double(), group["weight_decay"]
                rate = group["trust_coefficient"] * w.norm() / (g.norm() + decay * w.norm())
                step = group["lr"] * rate * (g + decay * w)
                buffer = self.state[p].get("buffer", torch.zeros_like(w))
                self.state[p]["buffer"] = group["momentum"] * buffer + step
                p.copy_(w - self.state[p]["buffer"])


class Lamb(torch.optim.Optimizer):
    """You et al. 2020, algorithm 2, in double, the trust ratio at most DeepSpeed's max_coeff."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                w, g, state = p.double(), p.grad.double(), self.state[p]
                t = state["step"] = state.get("step", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
                v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
                r = (m / (1 - beta1 ** t)) / ((v / (1 - beta2 ** t)).sqrt() + group["eps"])
                direction = r + group["weight_decay"] * w
                ratio = (w.norm() / direction.norm()).clamp(max=10.0)
                p.copy_(w - group["lr"] * ratio * direction)


class Nadam(torch.optim.Optimizer):
    """torch.optim.NAdam since 2.0, in double. Version 1.13 has one mu too many in the product of the next step."""

    def __init__(self, params, lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, momentum_decay=4e-3,
                 decoupled_weight_decay=False):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "momentum_decay": momentum_decay, "decoupled": decoupled_weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), lr, decay = group["betas"], group["lr"], group["weight_decay"]
            for p in group["params"]:
                w, g, state = p.double(), p.grad.double(), self.state[p]
                t = state["step"] = state.get("step", 0) + 1
                mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (i * group["momentum_decay"])) for i in (t, t + 1))
                product = state["product"] = state.get("product", 1.0) * mu
                w, g = (w * (1 - lr * decay), g) if group["decoupled"] else (w, g + decay * w)
                m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
                v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
                direction = (1 - mu) / (1 - product) * g + mu_next / (1 - product * mu_next) * m
                p.copy_(w - lr * direction / ((v / (1 - beta2 ** t)).sqrt() + group["eps"]))


def first_parameters():
    return torch.tensor([((i * 29) % 17 - 8) / 8 for i in range(SIZE)])


def gradient(step):
    """Signs and sizes that change, zeros among them; spread over 2^-3 ... 2^3."""
    return torch.tensor([((step * 37 + i * 61 + 13) % 101 - 50) / 64 * 2.0 ** (i % 7 - 3)
                         for i in range(SIZE)])


def make_optimizer(parameter, options):
    options = dict(options)
    options.pop("clip_value", None)
    options.pop("clip_norm", None)
    kind = options.pop("kind")
    if kind == "lars":
        return Lars([parameter], **options)
    if kind == "sgd":
        return torch.optim.SGD([parameter], **options)
    makers = {"rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad,
              "adadelta": torch.optim.Adadelta}
    if kind in makers:
        return makers[kind]([parameter], **options)
    betas = (options.pop("beta1", 0.9), options.pop("beta2", 0.999))
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "lamb": Lamb, "nadam": Nadam}[
        kind]([parameter], betas=betas, **options)


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
    if kind == "multi-step":
        return lr_scheduler.MultiStepLR(optimizer, **options)
    if kind == "exponential":
        return lr_scheduler.ExponentialLR(optimizer, **options)
    if kind in ("linear", "polynomial"):
        options.setdefault("total_iters", step_count)
        maker = lr_scheduler.LinearLR if kind == "linear" else lr_scheduler.PolynomialLR
        return maker(optimizer, **options)
    return lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=step_count, **options)


def as_floats(values):
    """The shortest decimals that read back as the same floats."""
    return [float(numpy.format_float_scientific(numpy.float32(v), unique=True)) for v in values]


def scalars_of(group, step, mus):
    """`mus` are NAdam's of the steps before; the scalars of NAdam alone are its two factors."""
    if "betas" not in group:
        return as_floats([group["lr"], group.get("momentum", 0),
                          1 + step * group.get("lr_decay", 0), 1])
    beta1, beta2 = group["betas"]
    scalars = [group["lr"], beta1, 1 - beta1 ** (step + 1), math.sqrt(1 - beta2 ** (step + 1))]
    if "momentum_decay" in group:
        mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** ((step + ahead) * group["momentum_decay"]))
                       for ahead in (1, 2))
        mus.append(mu)
        product = math.prod(mus)
        scalars += [(1 - mu) / (1 - product), mu_next / (1 - product * mu_next)]
    return as_floats(scalars)


def run(optimizer_options, schedule_options):
    parameter = torch.nn.Parameter(first_parameters())
    optimizer = make_optimizer(parameter, optimizer_options)
    schedule = make_schedule(optimizer, schedule_options, optimizer_options["lr"], STEP_COUNT)
    scalars, parameters, mus = [], [], []
    for step in range(STEP_COUNT):
        scalars.append(scalars_of(optimizer.param_groups[0], step, mus))
        parameter.grad = gradient(step)
        if "clip_value" in optimizer_options:
            torch.nn.utils.clip_grad_value_([parameter], optimizer_options["clip_value"])
        if "clip_norm" in optimizer_options:
            torch.nn.utils.clip_grad_norm_([parameter], optimizer_options["clip_norm"])
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
