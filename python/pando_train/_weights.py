"""Weights as files: safetensors, https://huggingface.co/docs/safetensors.

A file is the header's size (8 bytes, little-endian), a JSON header with each tensor's type, shape and
place, and the tensors' bytes, row-major.
"""
import ctypes
import json
import os
import struct
from typing import Dict, Tuple

import torch

from .errors import PandoError

HEADER_BYTES_MAX = 100 << 20
TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
         "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
         "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def tensor_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the memory of a contiguous tensor on the host. The tensor must outlive the view."""
    count = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * count).from_address(tensor.data_ptr()) if count else b"").cast("B")


def write_safetensors(path: str, tensors: Dict[str, torch.Tensor]) -> None:
    """Writes the tensors in the given order. A reader finds the old file or the whole new one."""
    header = {"__metadata__": {"format": "pt"}}
    first = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in NAMES:
            raise PandoError(f"tensor {name} is {tensor.dtype}, which a safetensors file cannot hold")
        last = first + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [first, last]}
        first = last
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for tensor in tensors.values():
                on_host = tensor.detach().cpu().contiguous()
                file.write(tensor_bytes(on_host))
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)


def read_safetensors(path: str) -> Tuple[Dict[str, torch.Tensor], Dict[str, str]]:
    """Returns a file's tensors and metadata. Raises PandoError for a damaged file, OSError for an unreadable one."""
    with open(path, "rb") as file:
        header_bytes = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))[0]
        if header_bytes > HEADER_BYTES_MAX:
            raise PandoError(f"{path} is no safetensors file: its header would have {header_bytes} bytes")
        try:
            header = json.loads(file.read(header_bytes))
            metadata = header.pop("__metadata__", {})
            return {name: read_tensor(file, 8 + header_bytes, entry) for name, entry in header.items()}, metadata
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise PandoError(f"{path} is damaged: {error}") from error


def read_tensor(file, start: int, entry) -> torch.Tensor:
    first, last = entry["data_offsets"]
    tensor = torch.empty(entry["shape"], dtype=TYPES[entry["dtype"]], device="cpu")
    memory = tensor_bytes(tensor)
    file.seek(start + first)
    if last - first != memory.nbytes or (memory.nbytes and file.readinto(memory) != memory.nbytes):
        raise ValueError(f"the bytes {first} to {last} are not a tensor of shape {entry['shape']}")
    return tensor
