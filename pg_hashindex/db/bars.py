"""Bars on a terminal, by rich: the bars that are open at once are drawn together."""

import threading
from textwrap import shorten

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column
from rich.text import Text

# Characters of the share, the numbers, the rate and the times, beside the name and the bar.
_FIGURES = 56
_LOCK = threading.RLock()
_open: "list[Bar]" = []
_drawn: Progress | None = None


class _Share(ProgressColumn):
    """The share that is done, or the number if the total is not known."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed:,.0f}" if task.total is None else f"{task.percentage:3.0f}%")


class _Count(ProgressColumn):
    """The number that is done, of how many, and how many a second."""

    def render(self, task: Task) -> Text:
        done = "" if task.total is None else f"{task.completed:,.0f}/{task.total:,.0f} "
        rate = task.finished_speed or task.speed
        speed = "?" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        return Text(f"{done}{speed} {task.fields['unit']}/s")


class Bar:
    """A bar, drawn until it is closed; ``total`` is None if it is not known."""

    def __init__(self, what: str, total: int | None, unit: str) -> None:
        global _drawn
        with _LOCK:
            if _drawn is None:
                _drawn = _started(len(what))
            columns = _drawn.console.width
            name = shorten(what, max(columns - 6, 8), placeholder=" ...")
            self._task = _drawn.add_task(name, total=total, unit=unit, note="")
            _open.append(self)

    def update(self, done: int, note: str = "") -> None:
        """Count what is done; ``note`` is shown beside it."""
        with _LOCK:
            if _drawn is not None:
                _drawn.update(self._task, advance=done, note=note)

    def set_total(self, total: int) -> None:
        """Set how many there are."""
        with _LOCK:
            if _drawn is not None:
                _drawn.update(self._task, total=total)

    def close(self) -> None:
        """Leave the bar as it is; once none is open, later lines are written below them."""
        global _drawn
        with _LOCK:
            _open.remove(self)
            if _drawn is not None:
                _drawn.stop_task(self._task)
                if not _open:
                    _drawn.stop()
                    _drawn = None


def write_above(text: str) -> bool:
    """Write lines above the bars that are drawn; return whether there are any."""
    with _LOCK:
        if _drawn is None:
            return False
        _drawn.console.print(text, markup=False, highlight=False, soft_wrap=True)
        return True


def _started(name: int) -> Progress:
    console = Console(stderr=True)
    # A long note takes its width from other columns than these two.
    named = Column(no_wrap=True, min_width=min(name + 1, console.width - 6))
    short: list[ProgressColumn] = [
        TextColumn("{task.description}:", markup=False, table_column=named),
        _Share(table_column=Column(no_wrap=True, min_width=4)),
    ]
    rest: list[ProgressColumn] = [
        BarColumn(bar_width=min(40, console.width - name - _FIGURES)),
        _Count(table_column=Column(no_wrap=True)),
        TimeElapsedColumn(),
        TextColumn("<"),
        TimeRemainingColumn(compact=True),
        TextColumn("{task.fields[note]}", markup=False, table_column=Column(no_wrap=True)),
    ]
    started = Progress(
        *short,
        *(rest if console.width - name >= _FIGURES + 4 else []),
        console=console,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    started.start()
    return started
