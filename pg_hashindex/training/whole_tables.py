"""Training on every row of a table, read in blocks in each pass of the method."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..db.connection import Connection, prepare
from ..db.progress import Progress
from ..db.server_errors import translated_errors
from ..db.statements import execute
from ..db.table_source import IN_ORDER, TableSource
from ..models.model import Model
from ..models.vectors import are_trainable, have_directions, warn_of_zeros
from .fitting import METHOD, train
from .sampling import warn_of_untrainable

__all__ = ["train_on_table"]


def train_on_table(
    connection: Connection,
    table: str,
    column: str,
    name: str,
    method: str = METHOD,
    **options: Any,
) -> Model:
    """Fit a hasher on all rows of a table that have a vector, which need not fit in memory.

    It runs in one read-only transaction, so that each pass sees the same rows; meanwhile VACUUM
    cannot remove deleted rows. It reads the table three times more often than the method does.

    Parameters
    ----------
    connection
        Not inside a transaction.
    table
        As SQL writes it.
    column
        A column of type ``vector`` or ``halfvec``, by its bare name.
    name, method
        As for `train`; a method that learns from rows alone.
    **options
        ``n_bits``, ``cuts``, ``metric``, ``random_state``, ``preset``, ``parameters``,
        ``force``: as for `train`.

    Returns
    -------
    Model
        As `train` returns it for rows in blocks.

    Raises
    ------
    InvalidInputError
        If there is no such table or column, its vectors have several dimensions, or as for `train`.
    """
    with translated_errors(table=table):
        prepare(connection)
        with connection.transaction():
            execute(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            execute(connection, IN_ORDER)
            source = TableSource.find(connection, table, column)
            metric = options.get("metric")
            return train(_passes(source, metric), name, method, **options)


def _passes(source: TableSource, metric: str | None) -> Callable[[], Iterator[NDArray[np.float32]]]:
    done = 0

    def read() -> Iterator[NDArray[np.float32]]:
        nonlocal done
        done += 1
        with Progress(f"reading, pass {done}", source.estimate) as bar:
            left_out = zeros = 0
            for block in source.blocks():
                fit, there = are_trainable(block), have_directions(block, metric)
                left_out += int((~fit).sum())
                zeros += int((~there).sum())
                yield block[fit & there]
                bar.update(len(block))
            if left_out and done == 1:
                warn_of_untrainable(source, left_out)
            if done == 1:
                warn_of_zeros(source.name, zeros)

    return read
