"""Finds where a module's forward first reads each parameter."""
from typing import Any, Dict, Optional

import torch
from torch.overrides import TorchFunctionMode

from ._tensors import TensorTable


class FirstUses(TorchFunctionMode):
    """While it is on, it notes for each parameter which module had been entered last at the first use.

    A module may read parameters of another module without calling it: tied weights, attention. So the
    owner's call is not always early enough to wait for a parameter.
    """

    def __init__(self, table: TensorTable):
        super().__init__()
        self.entered: Any = None  # set by each module's pre-hook
        self.first: Dict[int, Any] = {}  # index -> `entered` at the first use
        self._index_by_id = table.index_by_id

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        self._note(arguments)
        if keywords:
            self._note(keywords.values())
        return function(*arguments, **(keywords or {}))

    def _note(self, values) -> None:
        for value in values:
            if isinstance(value, torch.Tensor):
                index: Optional[int] = self._index_by_id.get(id(value))
                if index is not None:
                    self.first.setdefault(index, self.entered)
            elif isinstance(value, (tuple, list)):
                self._note(value)
