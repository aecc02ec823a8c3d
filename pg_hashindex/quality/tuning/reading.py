"""Advice that was printed as JSON, read again: without the models, which are not in it."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ...errors import InvalidInputError
from .advice import Advice
from .trials import Goal, Trial

__all__ = ["read_advice"]

Fields = TypeVar("Fields", Goal, Trial)

_OF_ADVICE = (
    "table", "column", "id_column", "metric", "index", "rows", "sample_rows", "reference_rows",
    "queries", "reason",
)  # fmt: skip


def read_advice(path: Path) -> Advice:
    """Read what ``pg-hashindex tune --json`` printed.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Advice
        Without models.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or holds anything else.
    """
    try:
        printed = json.loads(path.read_text(encoding="utf-8"))
        return _advice(printed)
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    # ValueError: no JSON, or no text; ours are among them.
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise InvalidInputError(
            f"{path} is not what pg-hashindex tune --json prints: {reason}"
        ) from error


def _advice(printed: Any) -> Advice:
    described = _mapping("it", printed)
    hints = get_type_hints(Advice)
    values = {name: _value(name, described, hints[name]) for name in _OF_ADVICE}
    trials = described.get("trials")
    if not isinstance(trials, list):
        raise InvalidInputError("it has no list of trials")
    recommended = described.get("recommended")
    return Advice(
        goal=_read(Goal, "goal", described.get("goal")),
        trials=[_read(Trial, f"trial {place}", one) for place, one in enumerate(trials)],
        recommended=None if recommended is None else _read(Trial, "recommended", recommended),
        left_out=[],
        models={},
        **values,
    )


def _read(kind: type[Fields], what: str, printed: Any) -> Fields:
    described, hints = _mapping(what, printed), get_type_hints(kind)
    return kind(
        **{
            field.name: _value(field.name, described, hints[field.name], what)
            for field in fields(kind)
        }
    )


def _mapping(what: str, printed: Any) -> Mapping[str, Any]:
    if not isinstance(printed, dict):
        raise InvalidInputError(f"{what} is no object")
    return printed


def _value(name: str, described: Mapping[str, Any], hint: Any, what: str = "it") -> Any:
    if name not in described:
        raise InvalidInputError(f"{what} has no {name!r}")
    value = described[name]
    if not _fits(value, hint):
        raise InvalidInputError(f"{name!r} of {what} is {str(value)[:40]!r}")
    return value


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        # True is equal to 1, and is no number of levels.
        return any(type(value) is type(one) and value == one for one in get_args(hint))
    if hint is float:
        # Neither NaN, nor infinite, nor beyond what float64 holds.
        return type(value) in (int, float) and abs(value) < 1e300
    return type(value) is (NoneType if hint is None else hint)
