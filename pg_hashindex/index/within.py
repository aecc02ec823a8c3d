"""Rows within a Hamming radius, as steps; ``sql/templates/within_scan.sql`` is the function."""

import operator

from numpy.typing import ArrayLike
from pgvector import Bit, Vector
from psycopg import sql

from ..db.connection import translated_errors
from ..db.steps import Statement, Steps
from ..errors import InvalidInputError
from .row import IndexRow
from .search import Hit, as_query, code_of

__all__ = ["within"]


def within(
    index: IndexRow, query: ArrayLike | Vector, radius: int, *, code: Bit | None = None
) -> Steps[list[Hit]]:
    """Find every row within a Hamming radius; see `HashIndex.within`.

    ``code`` is the query's, where it is known; of an index that is encoded in Python it is computed
    otherwise.
    """
    vector = as_query(query, index.dimension)
    try:
        bits = operator.index(radius)
    except TypeError:
        raise InvalidInputError(f"radius must be an integer, got {radius!r}") from None
    if not 0 <= bits <= index.n_bits:
        raise InvalidInputError(
            f"radius is {bits}; it must be 0 to {index.n_bits}, the bits of a code"
        )
    if code is None and index.encoded_in == "python":
        code = yield from code_of(index, vector)
    with translated_errors(index):
        rows = yield Statement(
            sql.SQL("SELECT id, distance FROM hashindex.{}($1, $2, $3)").format(
                sql.Identifier(f"within_{index.name}")
            ),
            [vector, bits, code if index.encoded_in == "python" else None],
            prepare=True,
            binary=index.binary_ids,
        )
    return [Hit(*row) for row in rows]
