"""Dates and times that Python has no values for, as the text that PostgreSQL has for them.

A key may be ``infinity``, of a year before 1 or after 9999, or the time ``24:00:00``. psycopg
refuses to read these, and with them the whole answer.
"""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
from psycopg.abc import Loader
from psycopg.pq import Format

_EPOCH = np.datetime64("2000-01-01", "us")
_DAY = 86_400_000_000


def _date(days: int) -> str:
    day = _EPOCH.astype("datetime64[D]") + days
    year = int(day.astype("datetime64[Y]").astype(int)) + 1970
    month_and_day = str(day)[-6:]
    # Numpy counts years as astronomers do: before the year 1 there is 0, which is 1 BC.
    return f"{year:04d}{month_and_day}" if year > 0 else f"{1 - year:04d}{month_and_day} BC"


def _clock(microseconds: int) -> str:
    seconds, rest = divmod(microseconds, 1_000_000)
    whole = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{whole}.{rest:06d}".rstrip("0") if rest else whole


def _timestamp(microseconds: int, zone: str) -> str:
    days, clock = divmod(microseconds, _DAY)
    date, *era = _date(days).split(" ")
    return " ".join([date, _clock(clock) + zone, *era])


def _offset(seconds_west: int) -> str:
    sign, seconds = "-" if seconds_west > 0 else "+", abs(seconds_west)
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}"


def _number(data: Any) -> int:
    return int.from_bytes(data, "big", signed=True)


def _unless_infinite(text: Callable[[int], str]) -> Callable[[Any], str]:
    def written(data: Any) -> str:
        number = _number(data)
        largest = (1 << (8 * len(data) - 1)) - 1
        return {largest: "infinity", -largest - 1: "-infinity"}.get(number) or text(number)

    return written


#: By the oids of PostgreSQL's types: the text of a value in binary form.
_TEXTS: dict[int, Callable[[Any], str]] = {
    1082: _unless_infinite(_date),
    1114: _unless_infinite(lambda number: _timestamp(number, "")),
    1184: _unless_infinite(lambda number: _timestamp(number, "+00")),
    1083: lambda data: _clock(_number(data)),
    1266: lambda data: _clock(_number(data[:8])) + _offset(_number(data[8:])),
}


def keep_times(cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
    """Have a cursor of binary results give text in the place of times that Python cannot hold."""
    for oid, text in _TEXTS.items():
        usual = cursor.adapters.get_loader(oid, Format.BINARY)
        if usual is not None:
            cursor.adapters.register_loader(oid, _loader(usual, text))


@functools.cache
def _loader(usual: type[Loader], text: Callable[[Any], str]) -> type[psycopg.adapt.Loader]:
    class OrText(psycopg.adapt.Loader):
        format = Format.BINARY

        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._usual = usual(oid, context)

        def load(self, data: Any) -> Any:
            try:
                return self._usual.load(data)
            except psycopg.DataError:
                return text(bytes(data))

    return OrText
