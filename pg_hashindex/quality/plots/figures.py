"""Parts that figures share: making, styling and writing them; needs the extra ``plot``."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InvalidInputError
from ...models.whole_files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_INSTALL = "pip install '.[plot]' in the checkout"

# Okabe and Ito's colours, which colour-blind readers can distinguish, without yellow, which is too
# light on white. When the colours repeat, line styles and markers differ, also in print without
# colour.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_LINES = ("-", "--", ":", "-.")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "h")

_LONGEST_NAME = 48
_DPI = 150


def check_plot(path: Path) -> None:
    """Find out before the work whether a figure can be written.

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, does not write files of this name, or may not write there.
    """
    known = sorted(new_figure((1, 1)).canvas.get_supported_filetypes())
    if path.suffix.lower().removeprefix(".") not in known:
        raise InvalidInputError(
            f"{path} does not end in the name of a format of figures; use one of "
            + ", ".join(f".{name}" for name in known)
        )
    check_file(path)


def check_file(path: Path) -> None:
    """Refuse a path that `write_whole` could not write."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInputError(f"{path} cannot be written: there is no folder {folder}")
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{path} cannot be written: it is not a plain file; name another")
    if not os.access(folder, os.W_OK):
        raise InvalidInputError(f"{path} cannot be written: you may not write there")


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure into a file; its name says in which format.

    Raises
    ------
    InvalidInputError
        As `check_plot`.
    OSError
        If the file cannot be written; a file that was there stays as it is.
    """
    check_plot(path)
    content = io.BytesIO()
    with drawing():
        figure.savefig(content, dpi=_DPI, format=path.suffix.lower().removeprefix("."))
    write_whole(path, content.getvalue())


def new_figure(size: tuple[float, float]) -> Any:
    """Make a figure of a size in inches: without pyplot, so without a window or shared state."""
    return _matplotlib().figure.Figure(figsize=size, layout="constrained")


@contextmanager
def drawing() -> Iterator[None]:
    """Draw names literally: a ``$`` begins no formula, and missing letters are boxes."""
    with _matplotlib().rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        yield


def plain(name: str) -> str:
    """Return a name for a figure: one line of printable letters, not too long."""
    line = "".join(letter if letter.isprintable() else " " for letter in name)
    return line if len(line) <= _LONGEST_NAME else line[: _LONGEST_NAME - 1] + "…"


def styles() -> Iterator[dict[str, Any]]:
    """Yield the style of one line after the other, all different."""
    looks = zip(cycle(product(_LINES, COLOURS)), cycle(_MARKERS), strict=False)
    for (line, colour), marker in looks:
        yield {
            "color": colour,
            "linestyle": line,
            "marker": marker,
            "markersize": 4,
            "linewidth": 1.4,
        }


def name_panel(panel: Axes, title: str, x: str, y: str) -> None:
    """Give a panel its names, and a grid."""
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(x)
    panel.set_ylabel(y)
    panel.grid(alpha=0.3)


def scale_recall(panel: Axes, recalls: Sequence[float]) -> None:
    """Scale an axis for recall: from a little below the lowest value to 1."""
    lowest = max(0.0, min(recalls) - 0.05)
    panel.set_ylim(lowest, 1)
    panel.set_yticks([tick for tick in panel.get_yticks() if lowest <= tick <= 1])
    # The margin lets a line at 1 be seen.
    panel.set_ylim(lowest, 1 + 0.04 * (1 - lowest))


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise InvalidInputError(f"figures need the extra plot: {_INSTALL}") from error
    return matplotlib
