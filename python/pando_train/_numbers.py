"""Arguments that are numbers: Python's, NumPy's or torch's."""
import math
from typing import Any, TypeVar

from .errors import PandoError

EXPECTED = {bool: "True or False", int: "a whole number", float: "a number"}
Number = TypeVar("Number", bool, int, float)


def convert(kind: "type[Number]", name: str, value: Any) -> Number:
    """The value as this type. Raises PandoError that names the argument if it is of another one."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        if isinstance(plain, (str, bytes)) or (isinstance(plain, bool) and kind is not bool):
            raise TypeError
        number = kind(plain)
        if number != plain or not math.isfinite(number):
            raise ValueError
        return number
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PandoError(f"{name} is {value!r}: expected {EXPECTED[kind]}") from error
