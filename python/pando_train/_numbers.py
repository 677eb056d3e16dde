"""Converts arguments that are numbers of Python, NumPy or torch."""
import math
from typing import Any

from .errors import PandoError

EXPECTED = {bool: "True or False", int: "a whole number", float: "a number"}


def convert(kind: type, name: str, value: Any) -> Any:
    """Returns the value as this type. Raises PandoError, with the argument's name, if it has another type."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = kind(plain)
        if number != plain or not math.isfinite(number) or (isinstance(plain, bool) and kind is not bool):
            raise ValueError  # a text never equals a number
        return number
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PandoError(f"{name} is {value!r}: expected {EXPECTED[kind]}") from error
