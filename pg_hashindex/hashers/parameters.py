"""Checks of parameters by their annotations, as in ``decay: Annotated[float, number(0, 1)]``."""

import math
from collections.abc import Callable
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

import numpy as np

from ..errors import InvalidInputError

_Check = Callable[[str, Any], None]


class TooManyBitsError(InvalidInputError):
    """A method finds fewer bits in these rows than ``n_bits``; ``most`` is how many it finds."""

    def __init__(self, message: str, *, most: int) -> None:
        super().__init__(message)
        self.most = most


def integer(low: int, high: int) -> _Check:
    """Return the check that a parameter is an integer from ``low`` to ``high``."""
    return partial(check_integer, low=low, high=high)


def check_integer(name: str, value: Any, low: int, high: int) -> None:
    """Refuse a value that is not an integer from ``low`` to ``high``."""
    known = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not known or not low <= value <= high:
        raise InvalidInputError(f"{name} must be an integer from {low} to {high}, got {value!r}")


def number(low: float, high: float, bounds: Literal["[]", "()", "(]", "[)"] = "[]") -> _Check:
    """Return the check that a parameter is a number of a range, with PostgreSQL's bounds."""
    what = f"a number from {low:g} to {high:g}"
    if bounds != "[]":
        least = f"above {low:g}" if bounds[0] == "(" else f"of {low:g} or more"
        most = f", {'below' if bounds[1] == ')' else 'at most'} {high:g}"
        what = f"a finite number {least}{most if high < math.inf else ''}"

    def check(name: str, value: Any) -> None:
        known = isinstance(value, int | float | np.integer | np.floating)
        if (
            not known
            or isinstance(value, bool)
            or not low <= value <= high
            or (value == low and bounds[0] == "(")
            or (value == high and bounds[1] == ")")
        ):
            raise InvalidInputError(f"{name} must be {what}, got {value!r}")

    return check


Positive: TypeAlias = Annotated[float, number(0, math.inf, "()")]
NotNegative: TypeAlias = Annotated[float, number(0, math.inf, "[)")]
#: Beyond this range, rounding takes over.
Factor: TypeAlias = Annotated[float, number(1e-12, 1e12)]


def check_annotated(name: str, value: Any, annotation: Any) -> None:
    """Refuse a value that the annotation of its parameter excludes.

    It checks choices (``Literal``), booleans and the checks of ``Annotated``, each optionally with
    None. It ignores other annotations and unions of several kinds.
    """
    is_union = get_origin(annotation) in (Union, UnionType)
    kinds = list(get_args(annotation)) if is_union else [annotation]
    if optional := NoneType in kinds:
        kinds.remove(NoneType)
    if len(kinds) > 1 or (optional and value is None):
        return
    if get_origin(kinds[0]) is Annotated:
        for check in kinds[0].__metadata__:
            check(name, value)
    elif get_origin(kinds[0]) is Literal:
        choices = get_args(kinds[0]) + (None,) * optional
        if not isinstance(value, str) or value not in choices:
            raise InvalidInputError(f"{name} must be one of {choices}, got {value!r}")
    elif kinds[0] is bool and not isinstance(value, bool | np.bool_):
        raise InvalidInputError(f"{name} must be True or False, got {value!r}")
