"""The workloads: one description becomes a peer's job file and Pando's flags."""
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import List

TRAIN_SAMPLES = {"mnist": 60000, "fashion-mnist": 60000, "cifar10": 50000, "cifar100": 50000}
FOLDERS = {"mnist": "mnist", "fashion-mnist": "fashion-mnist", "cifar10": "cifar-10-batches-bin"}


@dataclass(frozen=True)
class Workload:
    """Batches are per worker and step, as all peers count them."""
    name: str
    title: str
    model: str  # Pando's name
    dataset: str
    batch: int
    steps: int
    classes: int = 10
    channels: int = 1  # the model's; a picture's single channel is repeated
    side: int = 0  # pictures are resized to this; 0: unchanged
    optimizer: str = "adam"
    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    seed: int = 1
    checkpoints: int = 0  # activation checkpoints
    train_limit: int = 0
    test_limit: int = 0
    snapshot_every: int = 0  # steps between snapshots of the job; 0: none
    checkpoint_every: int = 0  # the same for peers that return to checkpoints, in runs with repeated deaths
    kill_at: int = 0  # step at which a worker is killed in runs with a death
    warm_up: int = 20  # steps that do not count
    memory_kinds: bool = False
    data_path: str = ""  # instead of the data set's own folder

    def data_folder(self, data: Path) -> Path:
        return Path(self.data_path) if self.data_path else data / FOLDERS[self.dataset]


# With a kill every T seconds and checkpoints that take C, Young's best interval is sqrt(2 T C): with 20 s and 0.1 s it
# is 2 s, about checkpoint_every steps.
MNIST_CNN = Workload(name="mnist-cnn", title="the MNIST CNN, Adam", model="mnist-cnn", dataset="mnist", batch=128,
                     steps=1170, snapshot_every=200, checkpoint_every=100, kill_at=300, warm_up=50)
RESNET18 = Workload(name="resnet18", title="ResNet-18 for small pictures on CIFAR-10, SGD with momentum",
                    model="resnet18-cifar", dataset="cifar10", channels=3, batch=32, steps=60, optimizer="sgd", lr=0.01,
                    momentum=0.9, test_limit=2000, snapshot_every=20, checkpoint_every=2, kill_at=30, warm_up=5)


def write_job(workload: Workload, path: Path, **more) -> None:
    """Writes the file that trainers/common.py reads."""
    path.write_text(json.dumps({**asdict(workload), **more}, indent=1))


def pando_flags(workload: Workload, data: Path, workers: int, workers_at_start: int) -> List[str]:
    """Returns flags with one micro-batch for each worker, as a peer's worker computes."""
    w = workload
    values = {"--model": w.model, "--dataset": w.dataset, "--data": w.data_folder(data), "--steps": w.steps,
              "--global-batch": w.batch * workers, "--micro-batches": workers, "--workers": workers_at_start,
              "--optimizer": w.optimizer, "--lr": w.lr, "--momentum": w.momentum, "--weight-decay": w.weight_decay,
              "--clip-norm": w.clip_norm, "--resize": w.side, "--limit": w.train_limit, "--seed": w.seed,
              "--snapshot-every": w.snapshot_every, "--eval-every-epochs": 0}
    flags = [str(word) for pair in values.items() for word in pair]
    for key, value in {"optimizer.beta1": w.beta1, "optimizer.beta2": w.beta2, "data.test_limit": w.test_limit,
                       "train.last_batch": "drop",
                       "train.activation_checkpointing": "true" if w.checkpoints else "false"}.items():
        flags += ["--set", f"{key}={value}"]
    return flags
