"""What the catalog says of an index, on a connection of whatever kind."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, LiteralString, TypeVar

import psycopg
from psycopg import sql

from ..db.connection import translated_errors
from ..db.steps import Statement, Steps
from ..errors import DatabaseStateError, UnknownIndexError
from ..models.model import Metric
from ..models.network import NetworkKind
from ..models.quantization import Levels
from ..models.store import EvaluatedIn

__all__ = [
    "Access",
    "IndexRow",
    "Layout",
    "Ranking",
    "SwapState",
    "find",
    "read",
]

Layout = Literal["table", "column"]
Access = Literal["scan", "lookup", "landmarks", "hnsw"]
Ranking = Literal["hamming", "asymmetric", "weighted"]
#: What a row beside that of an index stands for, while or after its model is swapped.
SwapState = Literal["next", "ready", "previous"]

_CATALOG: LiteralString = """
    SELECT i.name, m.name AS model, m.version AS model_version, m.method, m.n_bits, m.levels,
           m.dimension, i.model_id, i.schema_name, i.table_name, i.column_name, i.id_column,
           i.id_type, hashindex._key_type(i.id_type) AS key_type, i.metric, i.layout,
           i.code_schema, i.code_table, i.code_column, i.created_at,
           i.access, i.building, i.ranking, i.candidates, i.probes, i.trained_rows, i.chunks,
           i.storage, i.swap_of, i.swap_state, i.filter_columns,
           m.network ->> 'kind'::text AS network
    FROM hashindex.index i JOIN hashindex.model m ON m.id = i.model_id
"""


@dataclass(frozen=True)
class IndexRow:
    """What the catalog says of an index, and the connection it was read with."""

    connection: psycopg.BaseConnection[Any]
    name: str
    model: str
    model_version: int
    method: str
    n_bits: int
    levels: Levels
    dimension: int
    model_id: int
    schema_name: str
    table_name: str
    column_name: str
    id_column: str
    id_type: str
    key_type: str
    metric: Metric
    layout: Layout
    code_schema: str
    code_table: str
    code_column: str
    created_at: datetime
    access: Access
    building: Access | None
    ranking: Ranking
    candidates: int
    probes: int | None
    trained_rows: int | None
    chunks: int | None
    storage: str
    swap_of: str | None
    swap_state: SwapState | None
    filter_columns: list[str]
    network: NetworkKind | None

    @property
    def encoded_in(self) -> EvaluatedIn:
        """Where codes are made: by triggers in SQL, or by `HashIndex.encode` in Python alone."""
        return "sql" if self.network is None else "python"

    @property
    def table(self) -> sql.Identifier:
        """The searched table, quoted."""
        return sql.Identifier(self.schema_name, self.table_name)

    @property
    def qualified_table(self) -> str:
        """The searched table as SQL writes it."""
        return self.table.as_string(self.connection)

    @property
    def search_function(self) -> str:
        """The index's own search function as SQL writes it."""
        return sql.Identifier("hashindex", f"search_{self.name}").as_string(self.connection)

    @property
    def binary_ids(self) -> bool:
        """Whether psycopg reads the key's type in binary; of other types it takes the text."""
        types = self.connection.adapters.types
        return types.get(self.id_type.partition("(")[0]) is not None

    @property
    def code_of_row(self) -> sql.Composed:
        """SQL for the code of a row of the searched table, which is called b; NULL without one."""
        # By name: a build gives an index another code table.
        return sql.SQL("hashindex.code_of({name}, b.{id}::text)").format(
            name=sql.Literal(self.name), id=sql.Identifier(self.id_column)
        )

    def made_anew(self) -> DatabaseStateError:
        """Return the error of an index that is not any more what was opened."""
        return DatabaseStateError(
            f"index {self.name!r} was made anew meanwhile, or dropped; open it again with "
            f"HashIndex.open(connection, {self.name!r})"
        )


Row = TypeVar("Row", bound=IndexRow)


def read(
    kind: type[Row],
    connection: psycopg.BaseConnection[Any],
    which: LiteralString,
    values: Sequence[str],
) -> Steps[list[Row]]:
    """Read rows of the catalog as objects of a class.

    Parameters
    ----------
    kind : type
        `IndexRow` or a subclass.
    connection : psycopg.BaseConnection
        What they will be bound to.
    which : str
        The end of the query: its WHERE or ORDER BY.
    values : sequence of str
        Its parameters $1, $2, ...
    """
    with translated_errors():
        rows = yield Statement(_CATALOG + which, values, named=True)
    return [kind(connection=connection, **row) for row in rows]


def find(kind: type[Row], connection: psycopg.BaseConnection[Any], name: str) -> Steps[Row]:
    """Find an index by its name.

    Raises
    ------
    UnknownIndexError
        If there is none.
    """
    found = yield from read(kind, connection, "WHERE i.name = $1", [name])
    if not found:
        raise UnknownIndexError(
            f"index {name!r} does not exist; see those that do with: pg-hashindex index list"
        )
    return found[0]
