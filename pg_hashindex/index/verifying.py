"""Compare codes with fresh encodings of their rows, and delete wrong ones.

`encode` makes deleted codes again. A code is deleted only if it is still the one that was compared,
so this is safe beside writers.
"""

from collections.abc import Sequence
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ..db import rows
from ..db.batches import RowBatch, read_batch, rows_of_batch
from ..db.progress import Progress
from ..db.sql_files import query
from ..db.statements import execute
from ..db.work import Work
from ..models.model import Model
from ..models.quantization import above_cuts
from .catalog import IndexRow
from .encoding import ASSIGN, PRUNE

# If a projection is nearer than this to a cut, SQL and NumPy may round it to different sides. In
# units of the root mean square of the row's projections.
_ROUNDING = 3e-4

# $1 is a key or NULL, $2 the most rows.
_ROWS: LiteralString = """
    SELECT {key_text}, b.{column}, c.code::text FROM {table} b
    JOIN {codes} c ON ({code_key}) = ({key}) WHERE ($1::text IS NULL OR ({key}) > ({start}))
    AND b.{column} IS NOT NULL ORDER BY {key} LIMIT $2
"""

_COUNT: LiteralString = """
    SELECT count(*) FROM {table} b JOIN {codes} c ON ({code_key}) = ({key})
"""

_OTHER_TENANTS = query("verifying.other_tenants")

_WITHOUT_VECTOR: LiteralString = """
    SELECT {key_text}, c.code::text FROM {table} b JOIN {codes} c ON ({code_key}) = ({key})
    WHERE b.{column} IS NULL
"""

# $1 and $2 are keys and codes.
_TAKE: LiteralString = """
    DELETE FROM {codes} c USING unnest($1::text[], $2::text[]) s(id, code)
    WHERE ({code_key}) = ({given_key}) AND c.code::text = s.code AND {current}
"""

# Codes in lists of landmarks that no longer exist.
_UNLIST: LiteralString = """
    UPDATE {codes} c SET landmark = NULL
    WHERE c.landmark IS NOT NULL
      AND NOT EXISTS (SELECT FROM {landmarks} l WHERE l.landmark = c.landmark)
"""


class Verifier:
    """The codes of one index, on a connection in autocommit mode."""

    def __init__(self, index: IndexRow, work: Work) -> None:
        self.index, self.work = index, work
        self.connection = index.connection
        self.model = index.loaded_model
        self.names = index.names_with_codes | {"current": index.is_current}
        self.names |= {"start": index.key.from_text(sql.SQL("$1::text"))}

    def drop_gone(self) -> int:
        """Delete codes whose row is gone or has no vector; return how many."""
        self.work.phase("removing codes without rows")
        taken = int(self._execute(PRUNE).rowcount)
        found = self._execute(_WITHOUT_VECTOR).fetchall()
        return taken + self._take([row[0] for row in found], [row[1] for row in found])

    def verify(self) -> int:
        """Delete codes that are not as their rows, or of other tenants."""
        (total,) = self._execute(_COUNT).fetchone()
        self.work.phase("verifying codes", total)
        size = rows_of_batch(self.index.dimension)
        taken, last = self._take_other_tenants(), None
        with Progress("verifying", total, work=self.work) as bar:
            while True:
                with self.connection.transaction():
                    batch = read_batch(
                        self.connection,
                        self._query(_ROWS),
                        [last, size],
                        rows=size,
                        dimension=self.index.dimension,
                        table=self.index.qualified_table,
                    )
                wrong = self._wrong(batch)
                found = batch.select(wrong)
                taken += self._take(found.ids, found.codes)
                bar.update(len(batch))
                if len(batch) < size:
                    return taken
                last = batch.ids[-1]

    def _take_other_tenants(self) -> int:
        if (tenant := self.index.tenant_column) is None:
            return 0
        return int(self._execute(_OTHER_TENANTS, tenant=sql.Identifier(tenant)).rowcount)

    def list_missing(self) -> int:
        """Put rows with a code but without a landmark into lists; return how many."""
        self.work.phase("looking for rows in no list")
        self._execute(_UNLIST)
        row = self._execute(ASSIGN, [self.index.set_id]).fetchone()
        return int(row[0])

    def _take(self, ids: Sequence[str], stored: Sequence[str | None]) -> int:
        # A statement that changes no row would fire triggers too.
        if not ids:
            return 0
        return int(self._execute(_TAKE, [list(ids), list(stored)]).rowcount)

    def _wrong(self, batch: RowBatch) -> NDArray[np.bool_]:
        """Return which codes differ from fresh ones by more than rounding."""
        wrong = np.ones(len(batch), dtype=bool)
        projections, taken = self.model.project_taken(batch.vectors)
        if taken.any():
            stored = [code or "" for code in batch.select(taken).codes]
            wrong[taken] = differing(self.model, projections, stored, _ROUNDING)
        return wrong

    def _execute(
        self,
        statement: LiteralString,
        values: Sequence[Any] | None = None,
        **names: sql.Composable,
    ) -> Any:
        return execute(self.connection, self._query(statement, **names), values)

    def _query(self, statement: LiteralString, **names: sql.Composable) -> sql.Composed:
        return sql.SQL(statement).format(**self.names | names)


def draw_codes(index: IndexRow, most: int, share: float, random_state: int) -> list[str]:
    """Draw codes, as texts of zeros and ones, from a share of the pages of all.

    By a hash of their places: unchanged codes give the same draw.
    """
    place = sql.SQL("c.tableoid::text || c.ctid::text")
    # If few rows have a code, the drawn pages may have none.
    drawn = rows.by_hash(place, random_state, most)
    for tried in (share, 1):
        names = {"codes": index.codes, "part": rows.part(tried, random_state), "drawn": drawn}
        statement = "SELECT c.code::text FROM {codes} c {part} {drawn}"
        found = execute(index.connection, statement, names=names).fetchall()
        if found:
            break
    return [row[0] for row in found]


def as_bits(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Read codes, equally long texts of zeros and ones, as bool (n, n_bits)."""
    characters = np.frombuffer("".join(texts).encode(), np.uint8).reshape(len(texts), -1)
    bits: NDArray[np.bool_] = characters == ord("1")
    return bits


def differing(
    model: Model,
    projections: NDArray[np.floating],
    texts: Sequence[str],
    tolerance: float,
) -> NDArray[np.bool_]:
    """Return which codes are wrong, apart from bits that rounding may decide.

    Projections are (n, n_projections), and texts n codes as bits. Rounding decides what is nearer
    to a cut than ``tolerance``, in units of the root mean square of a row's projections.
    """
    stored = as_bits(texts)
    above = above_cuts(projections, model.cuts)
    differs = stored != (above > 0)
    other = np.flatnonzero(differs.any(axis=1))
    scale = np.sqrt(np.mean(projections[other].astype(np.float64) ** 2, axis=1, keepdims=True))
    wrong = np.zeros(len(stored), dtype=bool)
    wrong[other] = (differs[other] & (np.abs(above[other]) > tolerance * scale)).any(axis=1)
    return wrong
