"""The bits of an index's codes, by codes that are drawn."""

from dataclasses import dataclass
from typing import LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import RawCursor, sql

from ...db.connection import translated_errors
from ...index.catalog import HasRow, IndexRow

__all__ = ["Bits", "read_bits"]

_MOST_CODES = 10_000
# So many bits are read in about a second.
_MOST_BITS = 8_000_000
# Pages that codes are drawn from.
_PAGES = 2_000
# Of more bits a picture has more points than it is large.
_MOST_CORRELATED = 512

_SHARE: LiteralString = "SELECT hashindex._sample_share(%s::regclass, %s)"

# By what places hash to, so that a seed says it all as long as nothing is written.
_CODES: LiteralString = """
    SELECT c.{code}::text FROM {codes} c {sample} WHERE c.{code} IS NOT NULL
    ORDER BY hashtextextended(c.tableoid::text || c.ctid::text, $1) LIMIT $2
"""


@dataclass(frozen=True, eq=False)
class Bits:
    """Bits of codes.

    Attributes
    ----------
    codes : int
        How many were drawn.
    ones : float64 (b,)
        Share of them in which a bit is one.
    numbers : intp (c,)
        Bits whose correlations were computed: all, or of many some.
    correlation : float32 (c, c)
        Of each two of these; NaN where one of them is the same in all codes.
    """

    codes: int
    ones: NDArray[np.float64]
    numbers: NDArray[np.intp]
    correlation: NDArray[np.float32]


def read_bits(index: HasRow, random_state: int = 0) -> Bits | None:
    """Draw codes, and look at their bits.

    Parameters
    ----------
    index : HashIndex
    random_state : int
        Seed of the draw; unchanged codes give the same.

    Returns
    -------
    Bits or None
        None where there are no codes.
    """
    index = index.row
    drawn = _drawn(index, random_state)
    if not drawn:
        return None
    # Text of zeros and ones, all of one length.
    letters = np.frombuffer("".join(drawn).encode(), dtype=np.uint8)
    codes = letters.reshape(len(drawn), -1) == ord("1")
    n_bits = codes.shape[1]
    numbers = np.arange(n_bits)
    if n_bits > _MOST_CORRELATED:
        numbers = np.linspace(0, n_bits - 1, _MOST_CORRELATED).astype(np.intp)
    return Bits(len(drawn), codes.mean(axis=0), numbers, _correlation(codes[:, numbers]))


def _drawn(index: IndexRow, random_state: int) -> list[str]:
    connection = index.connection
    codes = index.codes
    most = min(_MOST_CODES, max(200, _MOST_BITS // index.n_bits))
    with translated_errors():
        row = connection.execute(_SHARE, [codes.as_string(connection), _PAGES]).fetchone()
        share = 1.0 if row is None else float(row[0])
        sample = sql.SQL("TABLESAMPLE SYSTEM ({}) REPEATABLE ({})").format(
            sql.Literal(100 * share), sql.Literal(random_state)
        )
        # Where few rows have a code, some pages may have none.
        for pages in [sample, sql.SQL("")] if share < 1 else [sql.SQL("")]:
            statement = sql.SQL(_CODES).format(
                code=sql.Identifier(index.code_column), codes=codes, sample=pages
            )
            # Raw: to psycopg's other cursors a % in a name is the start of a placeholder.
            rows = RawCursor(connection).execute(statement, [random_state, most]).fetchall()
            if rows:
                break
    return [row[0] for row in rows]


def _correlation(codes: NDArray[np.bool_]) -> NDArray[np.float32]:
    centred = codes - codes.mean(axis=0, dtype=np.float64)
    length = np.sqrt((centred**2).sum(axis=0))
    with np.errstate(divide="ignore", invalid="ignore"):
        unit = np.where(length > 0, centred / length, np.nan)
    correlation: NDArray[np.float32] = np.clip(unit.T @ unit, -1, 1).astype(np.float32)
    return correlation
