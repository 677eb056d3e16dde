"""Converts arguments that are numbers of Python, NumPy or torch, or texts."""
import math
from typing import Any

from .errors import PandoError

FLOAT_MAX = 3.4e38  # of 32 bits
EXPECTED = {bool: "True or False", int: "a whole number", float: "a number", str: "a text"}


def convert(kind: type, name: str, value: Any, may_be_infinite: bool = False) -> Any:
    """Returns the value as this type. Raises PandoError, with the argument's name, if it has another type.

    It raises also for NaN and infinity, unless `may_be_infinite`.
    """
    if kind is str and isinstance(value, str):
        return value
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = kind(plain)
        if may_be_infinite and isinstance(plain, (int, float)):
            return number
        if number != plain or not math.isfinite(number) or (isinstance(plain, bool) and kind is not bool):
            raise ValueError  # a text never equals a number
        return number
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PandoError(f"{name} is {value!r}: expected {EXPECTED[kind]}") from error
