"""What parameters are checked for."""

import math
from typing import Any

import numpy as np

from ...errors import InvalidInputError

__all__ = ["check_choice", "check_integer", "check_positive", "check_within"]

_INTEGERS = (int, np.integer)
_NUMBERS = (int, float, np.integer, np.floating)


def check_integer(name: str, value: Any, low: int, high: int) -> None:
    """Refuse what is not an integer of the range.

    Raises
    ------
    InvalidInputError
    """
    if isinstance(value, bool) or not isinstance(value, _INTEGERS) or not low <= value <= high:
        raise InvalidInputError(f"{name} must be an integer from {low} to {high}, got {value!r}")


def check_positive(name: str, value: Any) -> None:
    """Refuse what is not a finite number above 0.

    Raises
    ------
    InvalidInputError
    """
    if isinstance(value, bool) or not isinstance(value, _NUMBERS) or not 0 < value < math.inf:
        raise InvalidInputError(f"{name} must be a finite number above 0, got {value!r}")


def check_within(name: str, value: Any, low: float = 1e-12, high: float = 1e12) -> None:
    """Refuse what is not a number of the range; beyond the usual one, rounding takes over.

    Raises
    ------
    InvalidInputError
    """
    check_positive(name, value)
    if not low <= value <= high:
        raise InvalidInputError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


def check_choice(name: str, value: Any, choices: tuple[str | None, ...]) -> None:
    """Refuse what is not one of the choices.

    Raises
    ------
    InvalidInputError
    """
    if not isinstance(value, str | None) or value not in choices:
        raise InvalidInputError(f"{name} must be one of {choices}, got {value!r}")
