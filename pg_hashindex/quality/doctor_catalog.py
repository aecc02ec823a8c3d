"""The doctor's reading of PostgreSQL's catalog and statistics of a table; nothing is searched."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, LiteralString, NamedTuple

from psycopg import RawCursor, sql
from psycopg.rows import class_row, dict_row

from ..db.citus import SHOW_SHARDS, is_sharded, read_sizes
from ..db.connection import Connection
from ..db.owners import SCHEMA_OWNER
from ..db.server_errors import translated_errors
from ..db.sql_files import query
from ..db.statements import execute, one_row
from ..db.table_source import TableSource, find_relation
from ..errors import HashIndexError, InvalidInputError, MissingRightsError
from ..index.catalog import IndexRow, read_rows
from ..models import model
from ..models.model import Metric
from .doctor_findings import Memory, NameFacts, TableFacts, TenantFacts, VectorIndex
from .systems import OPERATORS

_METRICS = {operator: metric for metric, operator in OPERATORS.items()}

_HOLDERS = query("doctor.holders")


def locked(connection: Connection, table: str) -> str:
    """Say who has locked a table."""
    with translated_errors():
        holders = execute(connection, _HOLDERS, [table]).fetchall()
    by = "; ".join(f"process {pid}: {' '.join(query.split())}" for pid, query in holders)
    return (
        f"{table} is locked, as by VACUUM FULL or ALTER TABLE ({by or 'the holder is gone by now'})"
        "; run the command again when that is done"
    )


_FACTS = query("doctor.facts")

_MEMORY: LiteralString = """
    SELECT pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
           pg_size_bytes(current_setting('effective_cache_size')) AS effective_cache_size,
           pg_size_bytes(current_setting('work_mem')) AS work_mem,
           pg_size_bytes(current_setting('maintenance_work_mem')) AS maintenance_work_mem
"""

_INDEXES = query("doctor.indexes")

_COLUMNS = query("doctor.columns")


_LISTED = query("doctor.listed")

_TENANTS = query("doctor.tenants")

_NAMES: LiteralString = """
    WHERE i.column_name = $2::text
      AND to_regclass(pg_catalog.format('%I.%I', i.schema_name, i.table_name))::oid
        = to_regclass($1::text)::oid
    ORDER BY i.name
"""


class ListedColumn(NamedTuple):
    """A column of vectors: its table's rows by the server's estimate, and the vector indexes."""

    table: str
    column: str
    type: str
    rows: int | None
    bytes: int
    indexes: list[str]


class CatalogIndex(NamedTuple):
    """An index, its names with those of its partitions' indexes, and its operator."""

    entry: VectorIndex
    names: frozenset[str]
    operator: str


def read_memory(connection: Connection) -> Memory:
    """Read the settings of memory."""
    (found,) = RawCursor(connection, row_factory=class_row(Memory)).execute(_MEMORY)
    return found


def read_facts(
    source: TableSource,
    oid: int,
    *,
    dimension: int,
    null_share: float,
    vector_bytes: int,
    notes: list[str],
) -> TableFacts:
    """Read what there is to know of a table; add to the notes what is not known."""
    cursor = RawCursor(source.connection, row_factory=dict_row)
    (row,) = cursor.execute(_FACTS, [oid, source.vector])
    if row.pop("has_foreign"):
        notes.append(
            "some partitions are foreign tables: their sizes and indexes are on other servers"
        )
    if row.pop("has_indexed_parts"):
        notes.append(
            "partitions have vector indexes of their own, which are not measured: run the doctor "
            "for one, or attach them to an index of the table by ALTER INDEX ... ATTACH PARTITION"
        )
    if row.pop("has_hidden"):
        notes.append("row security hides rows from this role: figures are of the others")
    name = source.table.as_string(source.connection)
    if is_sharded(source.connection, name):
        row |= read_sizes(source.connection, name)._asdict() | {"kind": "sharded table"}
    if row["kind"] != "partitioned table" or not row["rows"]:
        # Counted where they are few.
        row["rows"] = source.estimate
    return TableFacts(
        **row,
        column=source.vector,
        null_share=round(null_share, 4),
        type=source.vector_type,
        dimension=dimension,
        vector_bytes=vector_bytes,
        # Were they in their rows, these would be as large at the least.
        toasted=row["heap_bytes"] < 0.5 * row["rows"] * (1 - null_share) * vector_bytes,
        pages_a_row=None,
    )


def read_indexes(connection: Connection, oid: int | None, column: str) -> list[CatalogIndex]:
    """Read the HNSW and IVFFlat indexes of a column, those over expressions of it too.

    Without a table (None) there are none.
    """
    found = []
    for row in RawCursor(connection, row_factory=dict_row).execute(_INDEXES, [oid, column]):
        names, operator = frozenset(row.pop("names")), row.pop("operator")
        row |= {"metric": _METRICS.get(operator), "options": tuple(row["options"])}
        found.append(CatalogIndex(VectorIndex(**row), names, operator))
    return found


def read_tenants(connection: Connection, oid: int, asked: str | None) -> list[TenantFacts]:
    """Return the columns that tell tenants; that of the option first, then of policies."""
    cursor = RawCursor(connection, row_factory=class_row(TenantFacts))
    found = cursor.execute(_TENANTS, [oid, asked]).fetchall()
    order = ("--tenant", "a policy", "the key")
    return sorted(
        (one for one in found if one.column is not None), key=lambda one: order.index(one.source)
    )


def names_of(connection: Connection, table: str, column: str) -> list[IndexRow]:
    """Return the indexes of pg_hashindex on a column; none without schema hashindex."""
    return read_rows(connection, _NAMES, [table, column])


def as_name(row: IndexRow) -> NameFacts:
    """Return the facts of an index of pg_hashindex, without a measure."""
    size = row.relation_bytes()
    if row.is_lists:
        with suppress(HashIndexError):
            summary = row.summary()
            size = summary.code_bytes + summary.access_bytes
    model = row.model_name if row.model_id else None
    return NameFacts(
        row.name,
        row.set,
        row.access,
        model,
        bool(row.options.get("store")),
        row.metric,
        row.relation,
        size,
        row.tenant_column,
    )


def read_code_faults(connection: Connection, oid: int) -> tuple[tuple[str, str], ...]:
    """Return the faults of codes of models on a table, and a remedy of each.

    There are none without schema hashindex, or for a role that may not use it. The schema of
    another role is not read as a superuser, whose session would run its functions.
    """
    (usable,) = one_row(
        connection,
        "SELECT has_schema_privilege(to_regnamespace('hashindex')::oid, 'USAGE') IS TRUE",
    )
    if not usable or not any(safe for safe, *_ in execute(connection, SCHEMA_OWNER)):
        return ()
    (installed,) = one_row(
        connection,
        # Workers of Citus have functions and no catalog.
        "SELECT CAST(to_regprocedure('hashindex._code_faults(regclass)') AS oid) IS NOT NULL "
        "AND to_regclass('hashindex.object') IS NOT NULL",
    )
    if not installed:
        return ()
    found = execute(connection, "SELECT * FROM hashindex._code_faults($1::oid)", [oid])
    return tuple((fault, remedy) for fault, remedy in found)


def usual_metric(metrics: Iterable[str | None]) -> Metric:
    """Return the first metric that models have too, else cosine."""
    known: Any = next((metric for metric in metrics if metric in model.OPERATORS), "cosine")
    return known  # type: ignore[no-any-return]


def metric_of_column(connection: Connection, table: str, column: str) -> Metric:
    """Return the metric of the column's vector indexes, else cosine."""
    with translated_errors():
        (oid,) = one_row(connection, "SELECT to_regclass($1)::oid::bigint", [table])
        found = read_indexes(connection, oid, column)
    return usual_metric(index.entry.metric for index in found)


def list_columns(connection: Connection) -> list[ListedColumn]:
    """Return the columns of vectors that the role may read; no table is read."""
    with translated_errors():
        return [ListedColumn(*row) for row in execute(connection, _LISTED)]


def only_column(connection: Connection, table: str) -> str:
    """Return the name of the one column of vectors of a table; refuse none, and several."""
    with translated_errors():
        find_relation(connection, table)
        *_, vectors = one_row(connection, _COLUMNS, [table])
    if len(vectors) != 1:
        there = ", ".join(map(repr, vectors))
        raise InvalidInputError(
            f"name a column of {table}: its columns of vectors are {there}"
            if vectors
            else f"table {table} has no column of vectors"
        )
    return str(vectors[0])


def check_table(
    connection: Connection,
    table: str,
    column: str,
    *,
    tenant: str | None = None,
    measured: bool = True,
) -> int:
    """Refuse a table whose vectors cannot be looked at, or measured; return its oid."""
    relation, kind, _ = find_relation(connection, table)
    if kind == "f":
        raise InvalidInputError(
            f"{table} is a foreign table: its rows and indexes are on another server; run the "
            "doctor there"
        )
    if kind == "v":
        raise InvalidInputError(f"{table} is a view: give the table behind it")
    if measured and is_sharded(connection, table):
        raise InvalidInputError(
            f"Citus keeps {table} in shards, which have indexes of their own: run the doctor for "
            f"one of those that table citus_shards lists, on its node, with {SHOW_SHARDS}"
        )
    oid, name, role, may_read, columns, vectors = one_row(connection, _COLUMNS, [table])
    if column not in columns:
        there = ", ".join(map(repr, vectors))
        raise InvalidInputError(
            f"table {table} has no column {column!r}; "
            + (f"its columns of vectors: {there}" if there else "it has no column of vectors")
        )
    if tenant is not None and tenant not in columns:
        raise InvalidInputError(f"{table} has no column {tenant!r}: check --tenant")
    if not may_read:
        raise MissingRightsError(
            f"role {role} may not read the rows of {table}; its owner grants that "
            f"with: GRANT SELECT ON {name} TO {role}"
        )
    # This waits where somebody has locked the table.
    execute(
        connection, sql.SQL("SELECT {} FROM {} LIMIT 0").format(sql.Identifier(column), relation)
    )
    return int(oid)
