"""What the benchmarks have in common: the machine, the commit, how both sides run, one line per figure."""
import json
import os
import platform
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MNIST = str(ROOT.parent / "shared/data/mnist")
PANDO = str(ROOT / "build/cli/pando")
NAME_WIDTH = 44


def commit():
    git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--tags"], capture_output=True,
                         text=True)
    return git.stdout.strip() or "unknown"


def cpu_name():
    names = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return names[0] if names else platform.machine()


def cpu():
    return f"{cpu_name()} x {os.cpu_count()}"


def torch_environment(threads, blas_threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(blas_threads))
    environment.pop("OPENBLAS_CORETYPE", None)
    return environment


def images_per_second(pando, flags):
    """Of a run of `pando train` with these flags, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([pando, "train", *flags, "--run-dir", folder + "/run", "--json"], check=True,
                              capture_output=True, text=True)
        return json.loads(done.stdout)["images_per_second"]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]


def heading(unit):
    print(f"{unit:<{NAME_WIDTH}}{'samples':>8}{'min':>10}{'p50':>10}{'p99':>10}{'max':>10}")


def row(name, values, digits=2):
    if not values:
        print(f"{name:<{NAME_WIDTH}}{0:>8}")
        return
    figures = [min(values), statistics.median(values), percentile(values, 0.99), max(values)]
    print(f"{name:<{NAME_WIDTH}}{len(values):>8}" + "".join(f"{figure:>10,.{digits}f}" for figure in figures))
