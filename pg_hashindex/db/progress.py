"""Progress of long work: drawn where `show_progress` asks for it, and recorded by its `Work`.

The library reports it (`Progress`, `tell`), whether or not it is shown; `show_progress` shows it.
"""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from textwrap import shorten
from types import TracebackType
from typing import Any, Protocol, Self

from tqdm import tqdm

# Shown beside the name: the share, a short bar, numbers, times and the rate.
_BAR_COLUMNS = 50
_BARS: ContextVar[bool] = ContextVar("whether bars are drawn", default=False)
_TELL: ContextVar[Callable[[str], object] | None] = ContextVar("step listener", default=None)


@contextlib.contextmanager
def show_progress(
    tell: Callable[[str], object] | None = None, *, bars: bool = True
) -> Iterator[None]:
    """Show how far the work of the block is.

    Parameters
    ----------
    tell
        Called with the steps of `diagnose`, in words.
    bars
        Whether to draw bars on stderr, if that is a terminal.
    """
    drawn, told = _BARS.set(bars), _TELL.set(tell)
    try:
        yield
    finally:
        _BARS.reset(drawn)
        _TELL.reset(told)


def is_shown() -> bool:
    """Return whether bars are drawn."""
    return _BARS.get()


def tell(message: str) -> None:
    """Tell the current step, in words, to the listener if there is one."""
    listener = _TELL.get()
    if listener is not None:
        listener(message)


class Recorder(Protocol):
    """A `Work`, which other sessions see."""

    def advance(self, rows: int = 0) -> None:
        """Count rows that are done."""

    def expect(self, total: int) -> None:
        """Set the number of rows."""


class Progress:
    """Counts what is done; as a context manager it draws a bar, if bars are shown.

    ``unit`` names one of the ``total``, None if that is not known.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        unit: str = "row",
        work: Recorder | None = None,
    ) -> None:
        self.n = 0
        self._what, self._total, self._unit = what, total, unit
        self._work = work
        self._bar: Any = None

    def __enter__(self) -> Self:
        # On a terminal that does not tell its size, as one that records, tqdm would show nothing.
        told, (columns, lines) = _tells_its_size(), shutil.get_terminal_size()
        self._bar = tqdm(
            desc=shorten(self._what, max(columns - 6, 8), placeholder=" ..."),
            total=self._total,
            unit=self._unit,
            unit_scale=self._unit == "row",
            disable=None if is_shown() else True,
            ncols=None if told else columns,
            nrows=None if told else lines,
            bar_format=self._format(columns),
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()

    def _format(self, columns: int) -> str | None:
        """Return what fits into a line, since tqdm cuts the line in the middle of a word."""
        if columns >= len(self._what) + _BAR_COLUMNS:
            return None
        return "{desc}: {percentage:3.0f}%" if self._total else "{desc}: {n_fmt}"

    @property
    def total(self) -> int:
        """How many there are; 0 if that is not known."""
        return self._total or 0

    @total.setter
    def total(self, total: int) -> None:
        self._total = total
        if self._bar is not None:
            self._bar.total = total
        if self._work is not None:
            self._work.expect(total)

    def update(self, done: int = 1) -> None:
        """Count what is done; fewer than none if it has to be done again."""
        self.n += done
        if self._bar is not None:
            self._bar.update(done)
        if self._work is not None:
            self._work.advance(done)


def _tells_its_size() -> bool:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns > 0
    except (OSError, ValueError):
        return False
