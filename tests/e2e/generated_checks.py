"""The program `pando` as generated_inputs.py runs it, and what a check of one variation needs: kinds and outcomes,
the weights and the preprocessing of a run, and their network in NumPy."""
import json
import os
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

import numpy as np

TRAINS, ERROR = "trains", "one error"
ACCURACY_TOLERANCE = 0.005  # half a point: two of 400 test rows
# Exported moments beside NumPy's: both round, and a mean's last bit counts as its share of the deviation.
INPUT_TOLERANCE = 1e-5
RUN_SECONDS_MAX = 120
EXIT_FAILED, EXIT_USAGE = 1, 2
JOB = ["--model", "mlp", "--global-batch", "32", "--micro-batches", "2", "--lr", "0.1", "--epochs", "4"]


@dataclass
class Variation:
    """One input and what Pando must do with it. `write` makes it in an empty folder."""
    what: str
    expected: str
    write: Callable[[Path], None]
    check: "Callable[[Program, Path, Variation], list[str]]"
    parts: tuple[str, ...] = ()  # of the error; of the notices where it trains
    flags: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # for `check` alone


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.err.splitlines()


class Program:
    """Runs `pando`."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)

    def run(self, *args: str, prefix: tuple[str, ...] = ()) -> Done:
        # Bytes that are not UTF-8 in a message are a fault: `strict` raises.
        done = subprocess.run([*prefix, self.path, *args], capture_output=True, check=False, timeout=RUN_SECONDS_MAX,
                              cwd="/", encoding="utf-8", errors="strict")
        return Done(done.returncode, done.stdout, done.stderr)

    def train(self, run_dir: Path, flags: list[str], prefix: tuple[str, ...] = ()) -> Done:
        return self.run("train", *JOB, "--run-dir", str(run_dir), *flags, prefix=prefix)


# ---- one error ------------------------------------------------------------------------------------------------------

def error_problems(name: str, done: Done, parts: tuple[str, ...], code: int = EXIT_USAGE) -> list[str]:
    """Returns the faults of a run that must end with one clear error."""
    problems = []
    if done.code != code:
        problems.append(f"{name}: exit code {done.code}, expected {code}")
    if len(done.lines) != 1 or not done.err.startswith("pando: "):
        problems.append(f"{name}: expected one line that begins with 'pando: ': {done.err!r}")
    problems += [f"{name}: no {part!r} in: {done.err.strip()}" for part in parts if part not in done.err]
    return problems


def refused_by_all(program: Program, folder: Path, inspect: list[str], train: list[str], parts: tuple[str, ...],
                   prefix: tuple[str, ...] = ()) -> list[str]:
    """`train` with and without processes and `inspect` end with the same error, and no run is begun."""
    problems = []
    for name, form in (("train --serial", ["--serial"]), ("train", ["--workers", "1", "--servers", "1"])):
        problems += error_problems(name, program.train(folder / "run", [*train, *form], prefix), parts)
        if (folder / "run").exists():
            problems.append(f"{name}: a run folder is there")
    done = program.run("data", "inspect", *inspect, prefix=prefix)
    return problems + error_problems("inspect", done, parts)


# ---- a run ----------------------------------------------------------------------------------------------------------

def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors, in the file's order, and the metadata."""
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    facts = header.pop("__metadata__", {})
    tensors = {}
    for name, tensor in header.items():
        first, last = tensor["data_offsets"]
        values = np.frombuffer(data[8 + size + first:8 + size + last], np.float32)
        tensors[name] = values.reshape(tensor["shape"])
    return tensors, facts


class Run:
    """The content of a run folder."""

    def __init__(self, folder: Path):
        self.summary = json.loads((folder / "summary.json").read_text())
        self.tensors, self.facts = read_safetensors(folder / "final.safetensors")
        self.accuracy = self.summary["test_accuracy"]

    def listed(self, key: str) -> Any:
        return json.loads(self.facts[key])

    def predict(self, inputs: np.ndarray) -> np.ndarray:
        """The network in NumPy: [rows, inputs] -> classes."""
        x = inputs
        layers = [name[:-len(".weight")] for name in self.tensors if name.endswith(".weight")]
        for i, layer in enumerate(layers):
            x = x @ self.tensors[layer + ".weight"].T.astype(float) + self.tensors[layer + ".bias"]
            if i + 1 < len(layers):
                x = np.maximum(x, 0)
        return x.argmax(axis=1)

    def accuracy_in_numpy(self, inputs: np.ndarray, labels: list[str]) -> float:
        classes = np.array(self.listed("class_names"))
        return float((classes[self.predict(inputs)] == np.array(labels)).mean())


def accuracy_problems(name: str, found: float, expected: float) -> list[str]:
    if abs(found - expected) <= ACCURACY_TOLERANCE + 1e-9:
        return []
    return [f"accuracy {100 * expected:.2f} %, and {name}: {100 * found:.2f} %"]


def missing_parts(name: str, text: str, parts: tuple[str, ...]) -> list[str]:
    return [f"{name}: no {part!r} in: {text.strip()}" for part in parts if part not in text]
