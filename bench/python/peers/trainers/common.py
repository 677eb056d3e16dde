"""The common part of all peers' trainers: the job, the pictures, the model, the log of steps, the test.

It runs under the torch of the peer's venv, 1.13 or newer, and uses no framework.
"""
import json
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Iterable, Tuple

import torch
import torch.nn.functional as F
from torch import nn

BENCH = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(BENCH), str(BENCH.parents[1] / "tests/golden")]
from models import make_model  # noqa: E402  (beside this file)
from pytorch_mnist_cnn import read_idx  # noqa: E402

IDX = {"mnist": (0.1307, 0.3081), "fashion-mnist": (0.2860, 0.3530)}  # mean, deviation: Pando's
CIFAR = {"cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
         "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762))}
CIFAR_FILES = {"cifar10": ([f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"], 1),
               "cifar100": (["train.bin"], ["test.bin"], 2)}  # bytes of labels before a picture, the last one counts
EVALUATION_BATCH = 250


def read_job() -> SimpleNamespace:
    """Reads the job file that the command line names (see workloads.py)."""
    return SimpleNamespace(**json.loads(Path(sys.argv[1]).read_text()))


def seed(job: SimpleNamespace) -> None:
    torch.manual_seed(job.seed)
    torch.set_num_threads(1)


class Pictures:
    """Training and test pictures as bytes in memory; batches are normalised as they are made."""

    def __init__(self, job: SimpleNamespace, device: str = "cpu"):
        read = read_idx_set if job.dataset in IDX else read_cifar_set
        self.train, self.train_labels, self.test, self.test_labels = (t.to(device) for t in read(job))
        mean, deviation = IDX.get(job.dataset) or CIFAR[job.dataset]
        self.mean = 255 * torch.tensor(mean, device=device).view(1, -1, 1, 1)
        self.deviation = 255 * torch.tensor(deviation, device=device).view(1, -1, 1, 1)
        self.job, self.device, self.epoch, self.order = job, device, -1, torch.empty(0)
        if job.train_limit:
            self.train, self.train_labels = self.train[:job.train_limit], self.train_labels[:job.train_limit]
        if job.test_limit:
            self.test, self.test_labels = self.test[:job.test_limit], self.test_labels[:job.test_limit]
        self.begun = None  # this process's file: a byte for each batch

    def batch(self, position: int, rank: int) -> Tuple[torch.Tensor, torch.Tensor]:
        """Returns the part of worker `rank` in the step that begins after `position` samples."""
        count = len(self.train_labels)
        if position // count != self.epoch:
            self.epoch = position // count
            draw = torch.Generator().manual_seed(self.job.seed + self.epoch)
            self.order = torch.randperm(count, generator=draw).to(self.device)
        first = position % count + rank * self.job.batch
        index = self.order[torch.arange(first, first + self.job.batch, device=self.device) % count]
        return self.train_batch(index)

    def train_batch(self, index: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        if self.begun is None:  # not before: a preloaded process forks the workers
            self.begun = open(Path(self.job.folder, f"batches-{os.getpid()}"), "ab", buffering=0)
        self.begun.write(b".")
        return self.normalised(self.train[index]), self.train_labels[index]

    def test_batch(self, index) -> Tuple[torch.Tensor, torch.Tensor]:
        return self.normalised(self.test[index]), self.test_labels[index]

    def normalised(self, pictures: torch.Tensor) -> torch.Tensor:
        x = pictures.float().sub_(self.mean).div_(self.deviation)
        if self.job.side and self.job.side != x.shape[-1]:
            x = F.interpolate(x, size=self.job.side, mode="bilinear", align_corners=False)
        if x.shape[1] < self.job.channels:
            x = x.expand(-1, self.job.channels, -1, -1)
        return x.contiguous(memory_format=format_of(self.job.layout != "default"))


def format_of(is_channels_last: bool) -> torch.memory_format:
    return torch.channels_last if is_channels_last else torch.contiguous_format


def read_idx_set(job: SimpleNamespace) -> Iterable[torch.Tensor]:
    for stem in ("train", "t10k"):
        yield read_idx(Path(job.data, f"{stem}-images-idx3-ubyte.gz"), 16).view(-1, 1, 28, 28)
        yield read_idx(Path(job.data, f"{stem}-labels-idx1-ubyte.gz"), 8).long()


def read_cifar_set(job: SimpleNamespace) -> Iterable[torch.Tensor]:
    train, test, label_bytes = CIFAR_FILES[job.dataset]
    for names in (train, test):
        content = bytearray().join(Path(job.data, name).read_bytes() for name in names)
        rows = torch.frombuffer(content, dtype=torch.uint8).view(-1, label_bytes + 3072)
        yield rows[:, label_bytes:].reshape(-1, 3, 32, 32)
        yield rows[:, label_bytes - 1].long()


def model_of(job: SimpleNamespace, is_reentrant: bool = True) -> nn.Module:
    model = make_model(job.model, job.classes, job.checkpoints, is_reentrant)
    return model.to(memory_format=format_of(job.layout == "channels_last")).train()


def optimizer_of(job: SimpleNamespace, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Returns the optimizer, in its form with one pass over the parameters if torch has it on CPUs (2.4 and newer)."""
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    fused = {"fused": True} if version >= (2, 4) else {}
    if job.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=job.lr, betas=(job.beta1, job.beta2), weight_decay=job.weight_decay,
                                **fused)
    return torch.optim.SGD(parameters, lr=job.lr, momentum=job.momentum, weight_decay=job.weight_decay, **fused)


def clip(job: SimpleNamespace, parameters: Iterable[nn.Parameter]) -> None:
    if job.clip_norm:
        nn.utils.clip_grad_norm_(parameters, job.clip_norm)


class StepLog:
    """Writes a line per step, `samples of the run so far, seconds of the monotonic clock`; the name has the worker."""

    def __init__(self, job: SimpleNamespace, rank: int):
        self.file = open(Path(job.folder, f"steps-{rank}-{os.getpid()}.csv"), "a", buffering=1, encoding="utf-8")

    def add(self, samples: int) -> None:
        self.file.write(f"{samples},{time.monotonic():.6f}\n")


def evaluate(job: SimpleNamespace, pictures: Pictures, model: nn.Module, rank: int, world: int) -> Tuple[int, int]:
    """Returns (correct, tested) of this worker's share; every worker computes equally many batches, as ZeRO 3 needs."""
    share = len(pictures.test_labels) // world
    first, correct = rank * share, 0
    model.eval()
    with torch.no_grad():
        for i in range(first, first + share, EVALUATION_BATCH):
            x, labels = pictures.test_batch(slice(i, min(i + EVALUATION_BATCH, first + share)))
            correct += int((model(x).argmax(1) == labels).sum())
    model.train()
    return correct, share


def finish(job: SimpleNamespace, pictures: Pictures, model: nn.Module, rank: int, world: int, kinds: dict,
           tests_all: bool = False) -> None:
    """Tests this worker's share, or all pictures, and writes its result; `kinds`: memory by kind."""
    correct, tested = evaluate(job, pictures, model, *((0, 1) if tests_all else (rank, world)))
    result = {"correct": correct, "tested": tested, "memory": kinds}
    Path(job.folder, f"result-{rank}.json").write_text(json.dumps(result))


def checkpoint_path(job: SimpleNamespace) -> Path:
    return Path(job.folder, "checkpoint.pt")


def save_checkpoint(job: SimpleNamespace, **state: Any) -> None:
    """Saves it whole or not at all, because a worker may be killed at any time."""
    temporary = checkpoint_path(job).with_suffix(".new")
    torch.save(state, temporary)
    temporary.replace(checkpoint_path(job))


def is_checkpoint_due(job: SimpleNamespace, step: int) -> bool:
    return job.snapshot_every > 0 and step % job.snapshot_every == 0
