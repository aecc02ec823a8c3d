"""The table of `scale.py`."""

from collections.abc import Iterator, Mapping
from typing import Any

Whole = Mapping[str, Any]


def lines(whole: Whole) -> Iterator[str]:
    yield from ()
