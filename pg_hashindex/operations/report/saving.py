"""Writing the page: whole, or not at all."""

import os
from pathlib import Path

from ...errors import InvalidInputError
from ...quality.plots.figures import drawing

__all__ = ["check_page", "save_page"]


def check_page(path: Path) -> None:
    """Find out before the work whether a page can be written.

    Parameters
    ----------
    path : Path

    Raises
    ------
    InvalidInputError
        If matplotlib is missing, there is no such folder, or something is there that is no file.
    """
    with drawing():
        pass
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path} cannot be written: there is no folder {path.parent}")
    if path.exists() and not path.is_file():
        raise InvalidInputError(f"{path} cannot be written: it is no plain file; name another")
    if not os.access(path.resolve().parent, os.W_OK):
        raise InvalidInputError(
            f"{path} cannot be written: you may not write in {path.resolve().parent}"
        )


def save_page(text: str, path: Path) -> None:
    """Write a page beside, and put it in its place.

    Parameters
    ----------
    text : str
    path : Path
        What is there is replaced; if writing fails, it stays as it is.

    Raises
    ------
    InvalidInputError
        As `check_page`.
    OSError
        If the file cannot be written.
    """
    check_page(path)
    # A link stays one.
    target = path.resolve()
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
