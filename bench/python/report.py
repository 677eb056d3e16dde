"""The common part of the benchmarks: flags, the machine, the commit, runs of both sides, one line per figure."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "pando_bench"))
from results import cpu_name, figures, source_commit as commit  # noqa: E402, F401  (commit: for the others)

ROOT = Path(__file__).resolve().parents[2]
MNIST = str(ROOT.parent / "shared/data/mnist")
PANDO = str(ROOT / "build/cli/pando")
NAME_WIDTH = 44


def make_parser(description, **defaults):
    """Makes a parser with a flag for each default, of its type; False: a switch."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in defaults.items():
        kind = {"action": "store_true"} if value is False else {"type": type(value), "default": value}
        parser.add_argument("--" + name.replace("_", "-"), **kind)
    return parser


def cpu():
    return f"{cpu_name()} x {os.cpu_count()}"


def torch_environment(threads, blas_threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(blas_threads))
    environment.pop("OPENBLAS_CORETYPE", None)
    return environment


def train(pando, words):
    """Returns the summary of `pando train` with these flags, in a separate folder. A failed run ends the benchmark."""
    with tempfile.TemporaryDirectory() as folder:
        command = [pando, "train", *map(str, words), "--run-dir", folder + "/run", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"exit {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def in_turns(names, rounds, measure):
    """Returns the samples by name: `measure` makes one of each name a round, and every other round goes backwards, so
    that a machine whose speed drifts is fair to all."""
    samples = {name: [] for name in names}
    for done in range(rounds):
        for name in list(names)[::-1 if done % 2 else 1]:
            samples[name].append(measure(name))
            print(f"round {done + 1} of {rounds}, {name}: {samples[name][-1]}", file=sys.stderr)
    return samples


def heading(unit):
    print(f"{unit:<{NAME_WIDTH}}{'samples':>8}{'min':>10}{'p50':>10}{'p99':>10}{'max':>10}")


def row(name, values, digits=2):
    if not values:
        print(f"{name:<{NAME_WIDTH}}{0:>8}")
        return
    f = figures(values)
    print(f"{name:<{NAME_WIDTH}}{len(values):>8}" +
          "".join(f"{f[key]:>10,.{digits}f}" for key in ("min", "p50", "p99", "max")))
