"""Find near-duplicates of a table: pairs by lists and codes in SQL, block by block into a table."""

import json
from dataclasses import dataclass
from typing import Any, LiteralString

import numpy as np
from numpy.typing import NDArray
from psycopg import sql

from ..db.connection import outside_transactions
from ..db.progress import Progress
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..errors import DatabaseStateError, InvalidInputError
from ..index.catalog import HasRow, IndexRow
from ..models.model import Model
from ..quality.queries import draw

# Lists of a statement, each of about 30 rows, which are compared with 16 times as many.
_BLOCK_LISTS = 200
# Rows sampled to choose the radius, and the share of copies whose codes are to be within it.
_TURNED_ROWS = 500
_WITHIN_RADIUS = 0.99

# Codes of tenants without landmarks are in lists of these numbers, by the hash of the tenant.
_LISTS_OF_TENANTS = range(-1024, 0)

# $5 and $6 are the first and the last list.
_PAIRS: LiteralString = "SELECT * FROM hashindex.near_duplicates($1, $2, $3, $4, $5, $6)"

_GENERATION: LiteralString = """
    SELECT pg_catalog.concat_ws('.', s.id, s.generation) FROM hashindex.index_set s
    WHERE s.index_name = $1 AND s.state = 'used'
"""


@dataclass(frozen=True)
class NearDuplicates:
    """The result: the table of pairs, how many they are, and the Hamming radius of their codes."""

    table: str
    pairs: int
    radius: int


def near_duplicates(
    index: HasRow,
    into: str,
    *,
    max_distance: float,
    radius: int | None = None,
    lists: int = 16,
    random_state: int = 0,
) -> NearDuplicates:
    """Write every pair of rows that are near each other into a table.

    Each list is compared with those near to it, by codes; pairs whose codes are near are
    compared by their vectors. A block of lists is a transaction; a run that was cut off continues
    when it is called again. Rows that are written meanwhile may be missing. If the index has
    tenants, both rows of a pair are of one.

    Parameters
    ----------
    into
        The table of ``id``, ``other_id`` and ``distance``, which is made; ``id`` is the lesser.
        Keys of several columns are ``id_1``, ``id_2``, ..., ``other_id_1``, ``other_id_2``, ...
    max_distance
        The greatest distance of a pair; for cosine 1 - similarity.
    radius
        The most bits in which codes of a pair differ. By default it holds 99 of 100 copies
        of rows at the greatest distance.
    lists
        How many lists a list is compared with, 1 to 1000, the list itself among them.
    random_state
        Seed of the rows that the radius is found by.

    Raises
    ------
    DatabaseStateError
        If the index has no landmarks, its table was dropped and recreated, or `into` exists
        and is of something else.
    InvalidInputError
        If a value is out of range.
    """
    row = index.row
    with (
        outside_transactions(row.connection, "pairs are written block by block"),
        translated_errors(row),
        row.reporting_drops(),
    ):
        # This asks for no list: SQL refuses what cannot be used before a table is made.
        execute(row.connection, _PAIRS, [row.name, max_distance, radius or 0, lists, 0, -1])
        if radius is None:
            radius = _kept_radius(row, into)
        if radius is None:
            drawn = draw(row, _TURNED_ROWS, random_state)
            sample = np.array([query.vector.to_numpy() for query in drawn])
            radius = radius_of(row.loaded_model, sample, row.metric, max_distance, random_state)
        settings = {"max_distance": max_distance, "radius": radius, "lists": lists}
        target = _Target(row, into, settings)
        start, n_lists = target.begin(), len(target.lists)
        with Progress("comparing", n_lists, "list") as bar:
            bar.update(start)
            while start < n_lists:
                end = min(start + _BLOCK_LISTS, n_lists)
                target.write(start, end)
                bar.update(end - start)
                start = end
        return NearDuplicates(into, target.count(), radius)


def radius_of(
    model: Model,
    rows: NDArray[np.float32],
    metric: str,
    max_distance: float,
    random_state: int,
) -> int:
    """Return a Hamming radius that holds 99 of 100 codes of copies at the greatest distance.

    A copy of a row (n, d) is the row moved to that distance towards another row, so that it stays
    where the data are.
    """
    if len(rows) < 2 or metric == "ip":
        raise InvalidInputError("give a radius: it cannot be found from these rows")
    rng = np.random.default_rng(random_state)
    X = rows.astype(np.float64)
    steps = X[rng.permutation(len(X))] - X[rng.permutation(len(X))]
    if metric == "cosine":
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-30)
        steps -= (steps * X).sum(axis=1, keepdims=True) * X
    steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-30)
    if metric == "cosine":
        angle = np.arccos(np.clip(1 - max_distance, -1, 1))
        copies = np.cos(angle) * X + np.sin(angle) * steps
    else:
        copies = X + max_distance * steps
    far = np.bitwise_count(
        model.encode(X.astype(np.float32)) ^ model.encode(copies.astype(np.float32))
    ).sum(axis=1)
    return int(np.quantile(far, _WITHIN_RADIUS, method="higher"))


def _kept_radius(index: IndexRow, into: str) -> int | None:
    """Return the radius that a run which was cut off has found: rows written since change it."""
    comment = "SELECT pg_catalog.obj_description(pg_catalog.to_regclass($1)::oid, 'pg_class')"
    (kept,) = one_row(index.connection, comment, [into])
    try:
        return int(json.loads(kept or "")["radius"])
    except (ValueError, KeyError, TypeError):
        return None


class _Target:
    """The table of pairs. Its comment has the options, and the list to continue from."""

    def __init__(self, index: IndexRow, into: str, settings: dict[str, Any]) -> None:
        self._index = index
        self._name = into
        (names,) = one_row(index.connection, "SELECT pg_catalog.parse_ident($1)", [into])
        self._table = sql.Identifier(*names)
        self._settings = {"index": index.name, "generation": self._generation()} | settings
        #: The numbers of the lists: those of landmarks have gaps after one tenant was rebalanced.
        self.lists = [] if index.tenant_column is None else [*_LISTS_OF_TENANTS]
        landmarks = sql.SQL("SELECT l.landmark FROM {} l ORDER BY 1").format(
            index.part("landmarks")
        )
        self.lists += [number for (number,) in execute(index.connection, landmarks)]

    def begin(self) -> int:
        """Make the table, or return the list from which an interrupted run continues."""
        found = self._execute(
            query("duplicates.found"),
            [self._table.as_string(self._index.connection)],
        ).fetchone()
        comment, exists, is_own = found
        if not exists:
            with self._index.connection.transaction():
                self._execute(
                    "CREATE TABLE {table} ({columns}, distance double precision NOT NULL, "
                    "PRIMARY KEY ({ids}))"
                )
                self._keep(0)
            return 0
        if not is_own:
            # Anybody may write the comment on his table, whose triggers would run as the caller.
            raise DatabaseStateError(
                f"table {self._name} exists, and belongs to another role; name another table"
            )
        try:
            kept = json.loads(comment or "")
            start = int(kept.pop("next"))
        except (ValueError, KeyError, AttributeError, TypeError):
            kept = None
        if kept != self._settings:
            # The comment marks our own tables, which a run may continue.
            ours = isinstance(kept, dict) and kept.keys() == self._settings.keys()
            raise DatabaseStateError(
                f"table {self._name} exists, and holds no pairs of these settings; name another "
                + (f"table, or drop it: DROP TABLE {self._name}" if ours else "table")
            )
        return start

    def write(self, start: int, end: int) -> None:
        """Write the pairs of a block of lists."""
        with self._index.connection.transaction():
            settings = [self._settings[name] for name in ("max_distance", "radius", "lists")]
            self._execute(
                "INSERT INTO {table} SELECT {pair}, p.distance "
                "FROM ({pairs}) p ON CONFLICT DO NOTHING",
                [self._index.name, *settings, self.lists[start], self.lists[end - 1]],
                pairs=sql.SQL(_PAIRS),
            )
            # Other lists hold the rows after a swap or a rebalance.
            if self._generation() != self._settings["generation"]:
                raise DatabaseStateError(
                    f"index {self._index.name!r} was built again while pairs were written; drop "
                    f"table {self._name}, and run the command again"
                )
            self._keep(end)

    def count(self) -> int:
        return int(self._execute("SELECT pg_catalog.count(*) FROM {table}").fetchone()[0])

    def _generation(self) -> str:
        (generation,) = one_row(self._index.connection, _GENERATION, [self._index.name])
        return str(generation)

    def _keep(self, place: int) -> None:
        comment = sql.Literal(json.dumps(self._settings | {"next": place}))
        self._execute("COMMENT ON TABLE {table} IS {comment}", comment=comment)

    def _execute(self, statement: Any, values: Any = None, **more: sql.Composable) -> Any:
        comma, key = sql.SQL(", "), self._index.key
        ids = [*key.code_columns, *(f"other_{column}" for column in key.code_columns)]
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in zip(ids, 2 * key.types, strict=True)
        ]
        names = {
            "table": self._table,
            "ids": comma.join(map(sql.Identifier, ids)),
            "columns": comma.join(columns),
            "pair": comma.join(
                [key.from_text(sql.Identifier("p", name)) for name in ("id", "other_id")]
            ),
        }
        return execute(self._index.connection, statement, values, names=names | more)
