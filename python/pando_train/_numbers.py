"""Arguments that are numbers: Python's, NumPy's or torch's."""
import math
from typing import Any

from .errors import PandoError

EXPECTED = {bool: "True or False", int: "a whole number", float: "a number"}


def convert(kind: type, name: str, value: Any) -> Any:
    """Returns the value as this type. If it has another one, raises PandoError, which names the argument."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        number = kind(plain)
        if number != plain or not math.isfinite(number) or (isinstance(plain, bool) and kind is not bool):
            raise ValueError  # a text is never equal
        return number
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise PandoError(f"{name} is {value!r}: expected {EXPECTED[kind]}") from error
