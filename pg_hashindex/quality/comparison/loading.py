"""Data sets from files, and splits that are drawn."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...errors import InvalidInputError
from ...models.model import UNREADABLE
from .splits import ROW_NUMBERS, Split, scaled_rows

__all__ = ["QUERIES", "TRAIN_ROWS", "draw_split", "load_split"]

#: Queries and training rows that are drawn at most, unless told otherwise.
QUERIES = 1_000
TRAIN_ROWS = 10_000


def draw_split(
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    queries: int | None = None,
    train_rows: int | None = None,
    random_state: int = 0,
) -> Split:
    """Draw queries, keep the other rows as database, and draw training rows among those.

    Parameters
    ----------
    X : array-like (n, d)
        Bytes (uint8) are divided by 255.
    y : array-like (n,) or (n, c), optional
    queries : int, optional
        By default 1,000, and at most a tenth of the rows.
    train_rows : int, optional
        By default 10,000; where the database has no more, all of it.
    random_state : int

    Raises
    ------
    InvalidInputError
        If rows or labels are not usable, or too few.
    """
    X = scaled_rows(X)
    n = len(X)
    n_queries = max(1, min(QUERIES, n // 10)) if queries is None else queries
    if not 1 <= n_queries < n:
        raise InvalidInputError(
            f"queries must be from 1 to one less than the rows, {n}; got {n_queries}"
        )
    n_train = min(TRAIN_ROWS if train_rows is None else train_rows, n - n_queries)
    if n_train < 2:
        raise InvalidInputError(f"train_rows must be 2 or more, got {n_train}")
    rng = np.random.default_rng(random_state)
    order = rng.permutation(n)
    database = np.sort(order[n_queries:])
    train = np.sort(rng.choice(database, n_train, replace=False))
    numbers = {"query": np.sort(order[:n_queries]), "database": database, "train": train}
    return Split.of(X, y, numbers=numbers)


def load_split(
    data: Path,
    split: Path | None = None,
    *,
    queries: int | None = None,
    train_rows: int | None = None,
    random_state: int = 0,
) -> Split:
    """Read a data set, and its split or draw one.

    Parameters
    ----------
    data : Path
        An ``.npz`` archive with rows ``X`` and, where there are labels, ``y``.
    split : Path, optional
        An ``.npz`` archive with the row numbers that `Split.of` takes.
    queries, train_rows, random_state : int, optional
        As `draw_split` takes them, where no split is given.

    Raises
    ------
    InvalidInputError
        If a file cannot be read, or does not hold what it should.
    """
    arrays = _read(data, ("X", "y"))
    if "X" not in arrays:
        raise InvalidInputError(f"{data} has no array X; put the rows there, and their labels in y")
    X, y = arrays["X"], arrays.get("y")
    if split is None:
        return draw_split(X, y, queries=queries, train_rows=train_rows, random_state=random_state)
    if queries is not None or train_rows is not None:
        raise InvalidInputError(
            f"{split} says which rows are queries and training rows; give no numbers of them"
        )
    return Split.of(X, y, numbers=_read(split, ROW_NUMBERS))


def _read(path: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """Read those of the arrays that are there; others may hold what NumPy would not read."""
    try:
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise InvalidInputError(f"{path} is a single array; use an .npz archive")
            return {name: loaded[name] for name in names if name in loaded.files}
    except InvalidInputError:
        raise
    except UNREADABLE as error:
        raise InvalidInputError(f"cannot read arrays from {path}: {error}") from error
