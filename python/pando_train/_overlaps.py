"""Finds tensors that share memory, which the servers would update one by one."""
from typing import Iterable, List, NamedTuple, Tuple

import torch

from .errors import PandoError


class Span(NamedTuple):
    """The bytes of a tensor from its first to behind its last element."""
    device: str
    first: int
    last: int
    position: int
    name: str
    tensor: torch.Tensor
    is_trained: bool


def check_overlaps(tensors: Iterable[Tuple[str, torch.Tensor, bool]]) -> None:
    """Raises PandoError if a tensor that is trained shares memory. The arguments: name, tensor, whether it is."""
    spans: List[Span] = sorted(measure(position, *item) for position, item in enumerate(tensors)
                               if item[1].layout == torch.strided and not item[1].is_meta)
    widest = None
    for span in spans:
        if span.is_trained and (span.last - span.first) // span.tensor.element_size() < span.tensor.numel():
            raise PandoError(f"elements of {span.name} share memory: clone() what was expanded")
        if widest and (span.is_trained or widest.is_trained) and is_shared(widest, span):
            one, other = sorted((widest, span), key=lambda span: span.position)
            raise PandoError(f"{one.name} and {other.name} share memory, and would be updated one by one. For tied "
                             "weights give both modules one nn.Parameter (a.weight = b.weight); otherwise clone() one")
        if widest is None or (span.device, span.last) > (widest.device, widest.last):
            widest = span


def measure(position: int, name: str, tensor: torch.Tensor, is_trained: bool) -> Span:
    count = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else 0
    first = tensor.data_ptr()
    return Span(str(tensor.device), first, first + count * tensor.element_size(), position, name, tensor,
                is_trained)


def is_shared(one: Span, other: Span) -> bool:
    """Whether a byte belongs to both. Columns of one matrix lie between each other and share none."""
    if one.device != other.device or other.first >= one.last:
        return False
    if one.tensor.is_contiguous() and other.tensor.is_contiguous():
        return True
    used = torch.zeros(max(one.last, other.last) - one.first, dtype=torch.bool, device="cpu")
    views = [used.as_strided((*span.tensor.shape, span.tensor.element_size()),
                             (*(stride * span.tensor.element_size() for stride in span.tensor.stride()), 1),
                             span.first - one.first) for span in (one, other)]
    views[0].fill_(True)
    return bool(views[1].any())
