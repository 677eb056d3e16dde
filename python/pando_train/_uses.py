"""Loads each parameter when a forward first reads it."""
from typing import Callable, Iterable, Set

from torch.overrides import TorchFunctionMode, _get_current_function_mode

from ._exchange import Exchange


class Uses(TorchFunctionMode):
    """While this mode is on, functions of torch wait for the parameters among their arguments.

    The owner's call would come too late if another module reads its parameters, as in tied weights or attention.
    The mode is on in every micro-batch, because torch 1.13 chooses other kernels of attention without it.
    """

    def __init__(self, exchange: Exchange, index_by_id):
        super().__init__()
        self.seen: Set[int] = set()  # indices of the parameters that were arguments
        self._exchange = exchange
        self._index_by_id = index_by_id

    def __torch_function__(self, function, types, arguments=(), keywords=None):
        self._load(arguments)
        if keywords:
            self._load(keywords.values())
        return function(*arguments, **(keywords or {}))

    def call_unwatched(self, functions: Iterable[Callable[[], None]]) -> None:
        """Calls hooks with the mode off, because the mode costs up to 8 us per operation."""
        is_on = _get_current_function_mode() is self  # False in backward, and below a mode of the program
        if is_on:
            self.__exit__(None, None, None)
        try:
            for function in functions:
                function()
        finally:
            if is_on:
                self.__enter__()

    def _load(self, values) -> None:
        for value in values:
            index = self._index_by_id.get(id(value))
            if index is not None:
                self.seen.add(index)
                self._exchange.load(index)
            elif isinstance(value, (tuple, list)):
                self._load(value)
