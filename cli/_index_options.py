"""The options of an index as options of commands, made from the fields of `IndexOptions`."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from pg_hashindex.index.options import OPTIONS, Option

from ._shared import together, words


def index_options(names: Sequence[str] | None = None, *, new: bool = True) -> Callable[[Any], Any]:
    """Return options by their names, all by default: of a ``new`` index, or to change one."""
    return together(*(_as_click(name, OPTIONS[name], new) for name in names or OPTIONS))


def _as_click(name: str, option: Option, new: bool) -> Callable[[Any], Any]:
    usual = option.usual if new else "as it is"
    text = f"{option.help}  [default: {usual}]" if usual else option.help
    kind: dict[str, Any] = {}
    if option.choices:
        kind = {"type": click.Choice(option.choices)}
    elif bool in option.kinds:
        return click.option(f"--{option.flag}/--no-{option.flag}", name, default=None, help=text)
    elif int in option.kinds:
        kind = {"type": int}
    elif option.several:
        kind = {"callback": words, "metavar": "COLUMN,..."}
    elif option.columns:
        kind = {"metavar": "COLUMN"}
    return click.option(f"--{option.flag}", name, help=text, **kind)
