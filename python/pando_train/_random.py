"""Makes seeds. Every random number of a run follows from the seed and from the number's purpose."""
import hashlib
import os
import random
import struct
import sys
from contextlib import contextmanager
from typing import Iterator, Optional

import torch

from ._numbers import convert

_given_seed: Optional[int] = None


def seed(value: int) -> None:
    """Seeds torch, random and NumPy. Call it before the model is built.

    Every worker then builds the same model. The value is also the seed of the job, which decides the order
    of samples, random augmentation and dropout.
    """
    global _given_seed
    value = convert(int, "the seed", value)
    if not 0 <= value < 2**63:
        raise ValueError(f"the seed is {value}: give a whole number from 0 to 2**63 - 1")
    _given_seed = value
    torch.manual_seed(value)
    random.seed(value)
    _seed_numpy(value)


def given_seed() -> int:
    """Returns the value that `seed` got, or 1, the default of train.seed."""
    return 1 if _given_seed is None else _given_seed


def derive(purpose: str, *numbers: int) -> int:
    """Returns 63 random bits for this purpose and these numbers, equal on all machines."""
    text = purpose.encode() + struct.pack(f"<{len(numbers)}Q", *numbers)
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") >> 1


def seed_generators(value: int) -> None:
    """Seeds the generators of torch, random and NumPy, and those of initialized GPUs."""
    # torch.manual_seed is not used: without a GPU it formats a stack for a later initialization of CUDA.
    torch.default_generator.manual_seed(value)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(value)
    random.seed(value)
    _seed_numpy(value)


def _seed_numpy(value: int) -> None:
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(value % 2**32)


@contextmanager
def kept_generators() -> Iterator[None]:
    """Restores the state of all generators after the block."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy else None
    gpu_states = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        random.setstate(states[0])
        torch.set_rng_state(states[1])
        if numpy:
            numpy.random.set_state(states[2])
        if gpu_states:
            torch.cuda.set_rng_state_all(gpu_states)


def choose_determinism(threads: int) -> None:
    """Sets torch's switches so that a kernel gives the same bits each time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    if hasattr(torch.backends, "mha"):
        torch.backends.mha.set_fastpath_enabled(False)  # its use would depend on hooks
    if hasattr(torch.utils, "deterministic"):
        # Otherwise torch fills each new tensor, which costs time and changes no bit of a correct program.
        torch.utils.deterministic.fill_uninitialized_memory = False


def flushes_denormals() -> bool:
    """Returns the value that torch.set_flush_denormal got in this thread."""
    return (torch.full((1,), 1e-40, dtype=torch.float32, device="cpu") * 1.0).item() == 0.0


def describe_kind(device: torch.device) -> str:
    """Describes the settings that decide a gradient's bits. Workers with equal texts compute equal bits."""
    build = torch.__config__.show().splitlines()
    capability = next((line.split(":")[-1].strip() for line in build if "CPU capability" in line), "unknown")
    parts = ["torch", torch.__version__, capability.lower(), f"{torch.get_num_threads()} threads",
             f"mkl {torch.backends.mkl.is_available():d}", f"onednn {torch.backends.mkldnn.is_available():d}",
             f"flush-to-zero {flushes_denormals():d}", f"matmul {torch.get_float32_matmul_precision()}", device.type]
    if device.type == "cuda":
        parts += [torch.cuda.get_device_name(device), f"cuda {torch.version.cuda}",
                  f"cudnn {torch.backends.cudnn.version()} tf32 {torch.backends.cudnn.allow_tf32:d}"]
    return " ".join(parts)
