#!/usr/bin/env python3
"""Makes network_goldens.json and training_goldens.json: whole models as PyTorch computes them.

Run: /usr/bin/python3 tests/golden/make_network_goldens.py   (Debian's python3-torch and
python3-torchvision; made with 1.13.0 and 0.14.1)

network_goldens.json: the loss and the count of correct samples in training (batch norm with the
batch's statistics) and in evaluation (with the running ones), and a digest of each gradient of
training. A running statistic's gradient is the batch's statistic times the samples.
training_goldens.json: the loss before each of three steps of SGD on one batch, and a digest of how
each parameter and running statistic has moved.

Everything is in double precision with dropout off, from parameters and pictures that are floats by
a formula which tests/golden/network_goldens.h repeats, so that only results are stored; and the
moves of biases (keep_clear).

A digest stands for a tensor of any size: [elements, norm, sum, sum with signs, eight elements].
The signs are a fixed noise: if two tensors differ by an error of some norm, then so do, about,
their sums with signs.
"""
import copy
import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from make_goldens import batch_norms, noise, tensors_of

CLASS_COUNT = 10
PROBE_COUNT = 8  # elements in a digest
SIGN_SEED, TENSOR_SEED = 5, 1000
MEAN, STDDEV = np.float32([0.5, 0.4375, 0.375]), np.float32([0.25, 0.3125, 0.375])
MOVES = (torch.arange(16).double() - 8) / 64  # of a bias, one hexadecimal digit
TRAINING = {"lr": 0.005, "momentum": 0.9, "weight_decay": 0.01}
SMOOTHING = 0.5  # in training: few samples would else be learnt in one step, and the next be empty
STEP_COUNT = 3
CLEARANCE_MIN = 1.5  # of training: see clearance()


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 128)
        self.fc2 = nn.Linear(128, CLASS_COUNT)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.fc2(self.relu(self.fc1(x.flatten(1))))


class CifarCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, CLASS_COUNT)
        self.relu = nn.ReLU()

    def forward(self, x):
        x = F.max_pool2d(self.relu(self.conv1(x)), 2)
        x = F.max_pool2d(self.relu(self.conv2(x)), 2)
        x = self.relu(self.fc1(x.flatten(1)))
        return self.fc3(self.relu(self.fc2(x)))


class Layers(nn.Module):
    """layers.toml"""

    def __init__(self):
        super().__init__()
        self.several = nn.Conv2d(3, 12, 5, padding=2, groups=3)
        self.bn = nn.BatchNorm2d(12)
        self.depthwise = nn.Conv2d(12, 12, 5, padding=1, groups=12)
        self.grouped = nn.Conv2d(12, 18, 3, stride=2, padding=1, groups=2)
        self.gn = nn.GroupNorm(3, 18)
        self.even = nn.Conv2d(18, 20, 2)
        self.fc = nn.Linear(400, CLASS_COUNT)
        self.relu, self.relu6 = nn.ReLU(), nn.ReLU6()

    def forward(self, x):
        x = self.relu6(self.depthwise(self.relu(self.bn(self.several(x)))))
        x = self.even(F.avg_pool2d(self.gn(self.grouped(x)), 3, stride=1))
        return self.fc(F.max_pool2d(x, 2, stride=1, padding=1).flatten(1))


def resnet18_cifar():
    model = torchvision.models.resnet18(num_classes=CLASS_COUNT)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def vgg16_cifar():
    model = torchvision.models.vgg16(num_classes=CLASS_COUNT)
    model.avgpool = nn.Identity()
    model.classifier = nn.Sequential(
        nn.Dropout(), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(), nn.Linear(512, 512), nn.ReLU(),
        nn.Linear(512, CLASS_COUNT))
    return model


def mobilenet_v2_small():
    model = torchvision.models.mobilenet_v2(num_classes=CLASS_COUNT)
    model.features[0][0].stride = (1, 1)
    model.features[2].conv[1][0].stride = (1, 1)  # of the paper's second stage
    return model


# name, model, (height, width, channels), samples, label smoothing
NETWORKS = [
    ("mlp", Mlp, (28, 28, 1), 17, 0.0),
    ("cifar-cnn", CifarCnn, (32, 32, 3), 5, 0.125),
    ("layers.toml", Layers, (15, 13, 3), 5, 0.0),
    ("vgg16-cifar", vgg16_cifar, (32, 32, 3), 3, 0.0),
    ("resnet18-cifar", resnet18_cifar, (32, 32, 3), 3, 0.0),
    # Its pictures become 24, 12, 12, 6, 3 and 2 wide.
    ("resnet50", lambda: torchvision.models.resnet50(num_classes=CLASS_COUNT), (48, 48, 3), 5, 0.0),
    ("mobilenet-v2-small", mobilenet_v2_small, (32, 32, 3), 3, 0.0),
]
# name, model, (height, width, channels), samples, seed of the pictures: where to look for one from
TRAININGS = [
    ("resnet18-cifar", resnet18_cifar, (12, 12, 3), 4, 19),
    ("mobilenet-v2-small", mobilenet_v2_small, (12, 12, 3), 4, 271),
]


def fill_tensors(model):
    """Weights of layers as wide as Kaiming initialization before a relu; the rest near their usual."""
    norms = {name for name, layer in model.named_modules()
             if isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm))}
    for index, (name, tensor) in enumerate(tensors_of(model)):
        layer, _, kind = name.rpartition(".")
        is_near_one = kind == "running_var" or (layer in norms and kind == "weight")
        bound = np.sqrt(6 / tensor[0].numel()) if tensor.dim() > 1 else 0.125
        spread = noise(tensor.numel(), TENSOR_SEED + index).astype(np.float64) / 2**23 - 1
        values = np.float32((1 if is_near_one else 0) + spread * bound)
        tensor.data = torch.from_numpy(values.astype(np.float64)).reshape(tensor.shape)


def samples(shape, count, seed):
    height, width, channels = shape
    pixels = noise(count * height * width * channels, seed) >> 16
    pixels = pixels.reshape(count, height, width, channels).astype(np.float32)
    pixels = (pixels / np.float32(255) - MEAN[:channels]) / STDDEV[:channels]
    x = torch.from_numpy(pixels.astype(np.float64)).permute(0, 3, 1, 2).contiguous()
    return x, torch.arange(count) * 7 % CLASS_COUNT


def relus(model):
    return [m for m in model.modules() if isinstance(m, (nn.ReLU, nn.ReLU6))]


def edges(relu):
    return (0.0, 6.0) if isinstance(relu, nn.ReLU6) else (0.0,)


def distance(x, relu, dim=None):
    """Returns the least distance of a unit from an edge of the relu: of all, or along the other dimensions."""
    least = torch.stack([(x - edge).abs() for edge in edges(relu)]).amin(0)
    return least.min() if dim is None else least.transpose(0, dim).flatten(1).amin(1)


def keep_clear(model, x):
    """Moves the biases before relus so that no unit of these samples lies near an edge of its relu.

    There are millions of units. One that is on in double and off in float, or off on another
    machine, changes gradients by far more than roundings do, and tolerances would be for that. Of
    16 moves each channel gets the one that leaves the most room. Batch norms move by 1 besides:
    with most units on, no channel is left with so little variance that dividing by it makes
    roundings large. Returns the moves: [name of the bias, by how much all, a digit for each].
    """
    moves, last, hooks = [], [], []

    def note(name, layer):
        return lambda *_: last.append((name, layer))

    def move(relu, inputs):
        name, layer = last[-1]
        center = 1.0 if isinstance(layer, nn.BatchNorm2d) else 0.0
        x = inputs[0] + center
        room = torch.stack([distance(x + m, relu, dim=1) for m in MOVES])
        digits = room.argmax(0)
        moves.append([name + ".bias", center, "".join(f"{d:x}" for d in digits.tolist())])
        by = (center + MOVES[digits]).float()
        layer.bias.data = (layer.bias.data.float() + by).double()
        return inputs[0] + by.double().reshape([1, -1] + [1] * (x.dim() - 2))

    for name, layer in model.named_modules():
        if getattr(layer, "bias", None) is not None:
            hooks.append(layer.register_forward_hook(note(name, layer)))
    hooks += [relu.register_forward_pre_hook(move) for relu in relus(model)]
    statistics = {n: t.clone() for n, t in model.state_dict().items() if "running_" in n}
    with torch.no_grad():
        model(x)
    for hook in hooks:
        hook.remove()
    model.load_state_dict(statistics, strict=False)
    return moves


def made(make_model, x):
    """The model by the formula, dropout off, batch norm with the batch's statistics; its moves."""
    model = make_model()
    fill_tensors(model)
    model.eval()
    for _, norm in batch_norms(model):
        norm.train()
    return model, keep_clear(model, x)


def digest(name, tensor):
    x = tensor.numpy().ravel()
    signs = 1 - 2 * (noise(x.size, SIGN_SEED) >> 23).astype(np.float64)
    probes = [x[x.size * (2 * k + 1) // (2 * PROBE_COUNT)] for k in range(PROBE_COUNT)]
    numbers = [np.sqrt(x @ x), x.sum(), x @ signs, *probes]
    return [name, x.size] + [float(f"{v:.8g}") for v in numbers]


def correct_count(scores, labels):
    return int((scores.argmax(1) == labels).sum())


def network_golden(name, make_model, shape, count, smoothing, seed=7):
    x, labels = samples(shape, count, seed)
    model, moves = made(make_model, x)
    with torch.no_grad():
        evaluated = copy.deepcopy(model).eval()(x)
    for _, norm in batch_norms(model):
        norm.momentum = 1  # running statistics become the batch's
    scores = model(x)
    loss = F.cross_entropy(scores, labels, reduction="sum", label_smoothing=smoothing)
    loss.backward()
    gradients = [(n, t * count if "running_" in n else t.grad) for n, t in tensors_of(model)]
    return {"name": name, "shape": shape, "samples": count, "picture_seed": seed,
            "label_smoothing": smoothing, "loss": loss.item(),
            "correct": correct_count(scores, labels),
            "evaluated_loss": F.cross_entropy(evaluated, labels, reduction="sum").item(),
            "evaluated_correct": correct_count(evaluated, labels), "moves": moves,
            "tensors": [digest(n, g) for n, g in gradients]}


def train(model, x, labels):
    """The losses, and what entered each relu of each step."""
    entered, losses = [], []

    def note(relu, inputs):
        entered.append((inputs[0].detach().double().clone(), relu))  # relus work in place

    for relu in relus(model):
        relu.register_forward_pre_hook(note)
    optimizer = torch.optim.SGD(model.parameters(), **TRAINING)
    for _ in range(STEP_COUNT):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), labels, label_smoothing=SMOOTHING)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, entered


def clearance(in_double, in_float):
    """How many times float's largest error there lies between the units and the relus' edges.

    keep_clear sees to the first step alone. Below 1 float may fall on another side than double.
    """
    return min((distance(a, relu) / (a - b).abs().max()).item()
               for (a, relu), (b, _) in zip(in_double, in_float))


def cleared_training(make_model, shape, count, seed):
    """From this seed on the first one of which the training has the clearance."""
    while True:
        x, labels = samples(shape, count, seed)
        model, moves = made(make_model, x)
        _, in_float = train(copy.deepcopy(model).float(), x.float(), labels)
        first = {n: t.detach().clone() for n, t in tensors_of(model)}
        losses, in_double = train(model, x, labels)
        room = clearance(in_double, in_float)
        print(f"pictures {seed}: clearance {room:.2f}", flush=True)
        if room >= CLEARANCE_MIN:
            return seed, moves, losses, {n: t.detach() - first[n] for n, t in tensors_of(model)}
        seed += 1


def training_golden(name, make_model, shape, count, seed):
    seed, moves, losses, moved = cleared_training(make_model, shape, count, seed)
    return {"name": name, "shape": shape, "samples": count, "picture_seed": seed,
            "label_smoothing": SMOOTHING, **TRAINING, "losses": losses, "moves": moves,
            "tensors": [digest(n, by) for n, by in moved.items()]}


def write(file_name, goldens):
    """One tensor per line: the file is read in diffs."""
    text = json.dumps(goldens, separators=(",", ":"))
    text = text.replace('],["', '],\n["').replace(',{"name"', ',\n{"name"')
    path = pathlib.Path(__file__).with_name(file_name)
    path.write_text(text + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


def main():
    torch.set_num_threads(1)
    write("network_goldens.json", [network_golden(*n) for n in NETWORKS])
    write("training_goldens.json", [training_golden(*t) for t in TRAININGS])


if __name__ == "__main__":
    main()
