"""What the benchmarks have in common: the machine, the commit, how both sides run, one line per figure."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "pando_bench"))
from results import cpu_name, quantile, source_commit as commit  # noqa: E402, F401  (commit: for the others)

ROOT = Path(__file__).resolve().parents[2]
MNIST = str(ROOT.parent / "shared/data/mnist")
PANDO = str(ROOT / "build/cli/pando")
NAME_WIDTH = 44


def cpu():
    return f"{cpu_name()} x {os.cpu_count()}"


def torch_environment(threads, blas_threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(blas_threads))
    environment.pop("OPENBLAS_CORETYPE", None)
    return environment


def images_per_second(pando, flags):
    """Of a run of `pando train` with these flags, in a separate folder."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([pando, "train", *flags, "--run-dir", folder + "/run", "--json"], check=True,
                              capture_output=True, text=True)
        return json.loads(done.stdout)["images_per_second"]


def heading(unit):
    print(f"{unit:<{NAME_WIDTH}}{'samples':>8}{'min':>10}{'p50':>10}{'p99':>10}{'max':>10}")


def row(name, values, digits=2):
    if not values:
        print(f"{name:<{NAME_WIDTH}}{0:>8}")
        return
    figures = [min(values), statistics.median(values), quantile(values, 0.99), max(values)]
    print(f"{name:<{NAME_WIDTH}}{len(values):>8}" + "".join(f"{figure:>10,.{digits}f}" for figure in figures))
