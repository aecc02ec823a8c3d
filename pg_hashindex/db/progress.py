"""Progress of long work: drawn where `show_progress` asks for it, and recorded by its `Work`.

The library reports it (`Progress`, `tell`), whether or not it is shown; `show_progress` shows it.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from .bars import Bar
    from .work import Work

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


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is a terminal; one that was closed is None."""
    return stream is not None and stream.isatty()


def is_shown() -> bool:
    """Return whether bars are drawn."""
    return _BARS.get()


def is_listened_to() -> bool:
    """Return whether bars are drawn, or somebody listens to steps."""
    return is_shown() or _TELL.get() is not None


def tell(message: str) -> None:
    """Tell the current step, in words, to the listener if there is one."""
    listener = _TELL.get()
    if listener is not None:
        listener(message)


def write_above_bars(text: str) -> bool:
    """Write lines above the bars that are drawn; return whether there are any."""
    bars = sys.modules.get(f"{__package__}.bars")
    return bars is not None and bool(bars.write_above(text))


class Progress:
    """Counts what is done; as a context manager it draws a bar, if bars are shown.

    ``unit`` names one of the ``total``, None if that is not known.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        unit: str = "row",
        work: "Work | None" = None,
    ) -> None:
        self.n = 0
        self._what, self._total, self._unit = what, total, unit
        self._work = work
        self._bar: Bar | None = None

    def __enter__(self) -> Self:
        if is_shown() and is_terminal(sys.stderr):
            from .bars import Bar

            self._bar = Bar(self._what, self._total, self._unit)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    @property
    def total(self) -> int:
        """How many there are; 0 if that is not known."""
        return self._total or 0

    @total.setter
    def total(self, total: int) -> None:
        self._total = total
        if self._bar is not None:
            self._bar.set_total(total)
        if self._work is not None:
            self._work.expect(total)

    def update(self, done: int = 1, note: str = "") -> None:
        """Count what is done; fewer than none if it has to be done again. A bar shows ``note``."""
        self.n += done
        if self._bar is not None:
            self._bar.update(done, note)
        if self._work is not None:
            self._work.advance(done)
