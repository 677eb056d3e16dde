"""The peers' virtual environments: makes them, and tells whether each works, and why not."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Optional

ROOT = Path(__file__).resolve().parents[3]
DEFAULT_FOLDER = ROOT / "bench/python/peers/.venvs"
REASONS = "reasons.json"
REASON_LINES, REASON_LINE_MAX = 2, 200  # lines of a failed command's log, and characters of each
ERROR = re.compile(r"(\w*Error|\w*Exception|ERROR): \S")
TORCH, HOROVOD = "torch", "horovod"
HOROVOD_BUILD = {"HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1",
                 "HOROVOD_WITHOUT_TENSORFLOW": "1", "HOROVOD_WITHOUT_MXNET": "1"}
# venv: the words of each call of pip. DeepSpeed and Horovod look for an installed torch.
STEPS: Dict[str, List[List[str]]] = {
    TORCH: [["torch==2.15.0", "torchvision==0.29.2", "numpy"],
            ["torchft-nightly==2026.10.26"],
            ["ray[train]==2.60.0"],
            ["setuptools", "wheel", "ninja", "psutil"],
            ["--no-build-isolation", "deepspeed==0.19.8"]],
    # torchvision's wheel for torch 1.13.1 ends with Python 3.10; of 0.15.1 only the models are used, which are Python.
    HOROVOD: [["torch==1.13.1", "numpy<2", "setuptools<70", "cmake==3.25.*", "wheel", "packaging", "psutil",
               "cloudpickle", "pyyaml", "cffi", "pillow", "requests"],
              ["--no-deps", "torchvision==0.15.1"],
              ["--no-build-isolation", "horovod==0.28.1"]],
}
# Without this, DeepSpeed compiles it when it first needs it, during a run.
AFTERWARDS = {TORCH: ("deepspeed",
                      "from deepspeed.ops.op_builder.cpu.comm import ShmCommBuilder; ShmCommBuilder().load()")}
# system: its venv, the module to import, the package whose version is reported.
MODULES = {"pando-torch": (TORCH, "torch", "torch"), "ddp": (TORCH, "torch", "torch"),
           "torchft": (TORCH, "torchft", "torchft-nightly"), "ray": (TORCH, "ray.train.torch", "ray"),
           "deepspeed": (TORCH, "deepspeed", "deepspeed"), "horovod": (HOROVOD, "horovod.torch", "horovod")}


def python_of(folder: Path, venv: str) -> Path:
    return folder / venv / "bin/python"


def environment_of(folder: Path, venv: str) -> Dict[str, str]:
    """Returns an environment with one computing thread a process, with oneDNN, and the venv's programs first."""
    environment = dict(os.environ, PATH=f"{folder / venv / 'bin'}:{os.environ['PATH']}", OMP_NUM_THREADS="1",
                       OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", DS_ACCELERATOR="cpu", RAY_DEDUP_LOGS="0",
                       RAY_USAGE_STATS_ENABLED="0", TOKENIZERS_PARALLELISM="false", PYTHONWARNINGS="ignore",
                       RUST_LOG="warn", TORCH_EXTENSIONS_DIR=str(folder / venv / "torch_extensions"),
                       VIRTUAL_ENV=str(folder / venv))
    environment.pop("OPENBLAS_CORETYPE", None)
    return environment


def what_failed(path: Path) -> str:
    """Returns the first errors in the log, or its end."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.search(line) and "ChildFailedError" not in line]
    said = list(dict.fromkeys(errors))[:REASON_LINES] or lines[-REASON_LINES:]
    return " / ".join(line[:REASON_LINE_MAX] for line in said) or "it said nothing"


def run_python(folder: Path, venv: str, words: List[str]) -> Optional[str]:
    """Returns None, or why it failed."""
    log = folder / f"{venv}.log"
    print(f"{venv}: python {' '.join(words)}", file=sys.stderr, flush=True)
    environment = {**environment_of(folder, venv), **HOROVOD_BUILD, "MAKEFLAGS": os.environ.get("MAKEFLAGS", "-j2")}
    with open(log, "w", encoding="utf-8") as out:
        done = subprocess.run([str(python_of(folder, venv)), *words], env=environment, stdout=out,
                              stderr=subprocess.STDOUT, check=False)
    return None if done.returncode == 0 else f"python {' '.join(words)}: {what_failed(log)}"


def make(folder: Path, venv: str, python: str) -> Dict[str, str]:
    """Makes a venv. Returns its failures by command; a package that does not install does not stop the others."""
    if not python_of(folder, venv).exists():
        subprocess.run([python, "-m", "venv", str(folder / venv)], check=True)
    reasons = {}
    for words in STEPS[venv]:
        reason = run_python(folder, venv, ["-m", "pip", "install", *words])
        if reason:
            reasons[words[-1].split("==")[0].split("[")[0]] = reason
    package, code = AFTERWARDS.get(venv, ("", ""))
    if package and package not in reasons:
        reason = run_python(folder, venv, ["-c", code])
        if reason:
            reasons[package] = reason
    return reasons


def setup(folder: Path, python: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    reasons = {venv: make(folder, venv, python) for venv in STEPS}
    (folder / REASONS).write_text(json.dumps(reasons, indent=1))
    for system in MODULES:
        print(f"{system:<12}{version_of(folder, system) or reason_of(folder, system)}")


def ask(folder: Path, system: str, what: str) -> subprocess.CompletedProcess:
    venv = MODULES[system][0]
    return subprocess.run([str(python_of(folder, venv)), "-c", what], env=environment_of(folder, venv),
                          capture_output=True, text=True, check=False)


def version_of(folder: Path, system: str) -> Optional[str]:
    """"0.28.1 (torch 1.13.1)"; None where the system cannot be imported."""
    venv, module, package = MODULES[system]
    if not python_of(folder, venv).exists():
        return None
    done = ask(folder, system, f"import {module}, torch, importlib.metadata as m; "
                               f"print('VERSION', m.version('{package}'), torch.__version__)")
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("VERSION ")]
    if done.returncode != 0 or not lines:
        return None
    return lines[0][1] if package == "torch" else f"{lines[0][1]} (torch {lines[0][2]})"


def reason_of(folder: Path, system: str) -> str:
    """Why version_of() has none."""
    venv, module, package = MODULES[system]
    if not python_of(folder, venv).exists():
        return f"not installed: {python_of(folder, venv)} is not there; run bench/python/peers/run.py setup"
    path = folder / REASONS
    reasons = json.loads(path.read_text()).get(venv, {}) if path.exists() else {}
    if package in reasons:
        return f"does not install: {reasons[package]}"
    return f"import {module} fails: {ask(folder, system, f'import {module}').stderr.strip().splitlines()[-1:]}"
