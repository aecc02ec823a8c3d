"""The doctor's reading of PostgreSQL's catalog and statistics of a table; nothing is searched."""

from collections.abc import Iterable
from typing import Any, LiteralString, NamedTuple

from psycopg import RawCursor, sql
from psycopg.rows import class_row, dict_row

from ..db.citus import SHOW_SHARDS, is_distributed, is_sharded, read_sizes
from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..db.statements import execute, one_row
from ..db.table_source import TableSource, find_relation
from ..errors import InvalidInputError, MissingRightsError
from ..models import model
from ..models.model import Metric
from .doctor_findings import Memory, TableFacts, VectorIndex
from .systems import OPERATORS

_METRICS = {operator: metric for metric, operator in OPERATORS.items()}

_HOLDERS: LiteralString = """
    SELECT l.pid, left(coalesce(nullif(a.query, ''), '?'), 60)
    FROM pg_catalog.pg_locks l LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
    WHERE l.relation = to_regclass($1)::oid AND l.granted AND l.mode = 'AccessExclusiveLock'
      AND l.database = (
          SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database()
      )
"""


def locked(connection: Connection, table: str) -> str:
    """Say who has locked a table."""
    with translated_errors():
        holders = execute(connection, _HOLDERS, [table]).fetchall()
    by = "; ".join(f"process {pid}: {' '.join(query.split())}" for pid, query in holders)
    return (
        f"{table} is locked, as by VACUUM FULL or ALTER TABLE ({by or 'the holder is gone by now'})"
        "; run the command again when that is done"
    )


# The columns are fields of TableFacts, but for the last two.
_FACTS: LiteralString = """
    WITH leaf AS (
        SELECT c.oid, c.reltoastrelid, c.reltuples, c.relkind FROM pg_catalog.pg_class c
        WHERE c.relkind <> 'p'
          AND (c.oid = $1::oid
               OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree($1::oid) t))
    ), key AS (
        -- As hashindex._find_key wants it; the schema need not be installed.
        SELECT k.names, x.indisprimary AS is_primary
        FROM pg_catalog.pg_index x CROSS JOIN LATERAL (
            SELECT pg_catalog.array_agg(a.attname::text ORDER BY n.n) AS names,
                   pg_catalog.bool_and(a.attnotnull) AS are_there
            FROM pg_catalog.generate_series(0, x.indnkeyatts - 1) n(n)
            JOIN pg_catalog.pg_attribute a
                ON a.attrelid = x.indrelid AND a.attnum = x.indkey[n.n]
        ) k
        WHERE x.indrelid = $1::oid AND x.indisunique AND x.indisvalid AND x.indimmediate
          AND x.indpred IS NULL AND x.indexprs IS NULL AND k.are_there
    )
    SELECT $1::oid::regclass::text AS name, pg_catalog.quote_ident(a.attname) AS quoted_column,
           a.atttypmod <> -1 AS declared,
           CASE a.attstorage WHEN 'p' THEN 'plain' WHEN 'e' THEN 'external' WHEN 'm' THEN 'main'
               ELSE 'extended' END AS storage,
           CASE r.relkind WHEN 'p' THEN 'partitioned table' WHEN 'm' THEN 'materialised view'
               ELSE 'table' END AS kind,
           sum(greatest(l.reltuples, 0))::bigint AS rows,
           coalesce(sum(pg_catalog.pg_relation_size(l.oid)), 0)::bigint AS heap_bytes,
           coalesce(
               sum(pg_catalog.pg_total_relation_size(nullif(l.reltoastrelid, 0::oid))), 0
           )::bigint AS toast_bytes,
           coalesce(sum(pg_catalog.pg_indexes_size(l.oid)), 0)::bigint AS index_bytes,
           round(
               sum(s.n_dead_tup) / nullif(sum(s.n_dead_tup) + sum(s.n_live_tup), 0::numeric), 4
           )::float8 AS dead_share,
           max(greatest(s.last_vacuum, s.last_autovacuum)) AS last_vacuum,
           max(greatest(s.last_analyze, s.last_autoanalyze)) AS last_analyze,
           coalesce(sum(s.n_tup_upd + s.n_tup_del), 0)::bigint AS changed,
           (SELECT k.names FROM key k WHERE k.is_primary) AS primary_key,
           (SELECT k.names FROM key k WHERE NOT k.is_primary
            ORDER BY pg_catalog.cardinality(k.names), k.names LIMIT 1) AS other_key,
           bool_or(l.relkind = 'f') AS has_foreign, row_security_active($1::oid) AS has_hidden
    FROM pg_catalog.pg_class r JOIN pg_catalog.pg_attribute a ON a.attrelid = r.oid,
         leaf l LEFT JOIN pg_catalog.pg_stat_all_tables s ON s.relid = l.oid
    WHERE r.oid = $1::oid AND a.attname = $2 AND NOT a.attisdropped
    GROUP BY a.attname, a.atttypmod, a.attstorage, r.relkind
"""

_MEMORY: LiteralString = """
    SELECT pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
           pg_size_bytes(current_setting('effective_cache_size')) AS effective_cache_size,
           pg_size_bytes(current_setting('work_mem')) AS work_mem,
           pg_size_bytes(current_setting('maintenance_work_mem')) AS maintenance_work_mem
"""

# Indexes whose definition names the column, with those of the partitions. The columns are fields of
# VectorIndex, but for the first two.
_INDEXES: LiteralString = """
    SELECT p.names, o.oprname AS operator, i.oid::regclass::text AS name, am.amname AS method,
           oc.opcname AS operator_class, pg_get_indexdef(x.indexrelid) AS definition,
           x.indisvalid AS valid,
           CASE WHEN x.indkey[0] = 0 THEN pg_get_indexdef(x.indexrelid, 1, true) END AS expression,
           pg_get_expr(x.indpred, x.indrelid, true) AS condition,
           coalesce(i.reloptions, '{}') AS options, p.bytes::bigint, p.scans::bigint,
           round(p.hit / nullif(p.hit + p.read, 0::numeric), 3)::float8 AS cached_share
    FROM pg_catalog.pg_index x
    JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
    JOIN pg_catalog.pg_am am ON am.oid = i.relam AND am.amname IN ('hnsw', 'ivfflat')
    JOIN pg_catalog.pg_opclass oc ON oc.oid = x.indclass[0]
    JOIN pg_catalog.pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amoppurpose = 'o'
        AND ao.amopstrategy = 1 AND ao.amoplefttype = oc.opcintype
    JOIN pg_catalog.pg_operator o ON o.oid = ao.amopopr
    CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(c.relname) AS names,
               sum(pg_catalog.pg_relation_size(c.oid)) AS bytes,
               coalesce(sum(s.idx_scan), 0) AS scans, coalesce(sum(b.idx_blks_hit), 0) AS hit,
               coalesce(sum(b.idx_blks_read), 0) AS read
        FROM pg_catalog.pg_class c
        LEFT JOIN pg_catalog.pg_stat_all_indexes s ON s.indexrelid = c.oid
        LEFT JOIN pg_catalog.pg_statio_all_indexes b ON b.indexrelid = c.oid
        WHERE c.oid = i.oid OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(i.oid) t)
    ) p
    WHERE x.indrelid = $1::oid AND EXISTS (
        SELECT FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_attribute a
            ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_catalog.pg_class'::regclass::oid AND d.objid = x.indexrelid
          AND d.refclassid = d.classid AND d.refobjid = x.indrelid AND a.attname = $2
    )
    ORDER BY i.relname
"""

_COLUMNS: LiteralString = """
    SELECT r.oid::bigint, r.oid::regclass::text, pg_catalog.quote_ident(current_user),
           pg_catalog.has_table_privilege(r.oid, 'SELECT'),
           coalesce(pg_catalog.array_agg(a.attname::text), '{}'),
           coalesce(pg_catalog.array_agg(a.attname::text ORDER BY a.attnum)
               FILTER (WHERE t.typname IN ('vector', 'halfvec')), '{}')
    FROM (SELECT CAST($1::text AS regclass)::oid AS oid) r
    LEFT JOIN pg_catalog.pg_attribute a
        ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
    GROUP BY r.oid
"""


# The columns are fields of ListedColumn.
_LISTED: LiteralString = """
    SELECT c.oid::regclass::text, a.attname::text, pg_catalog.format_type(t.oid, a.atttypmod),
           -- Unknown before the first ANALYZE.
           sum(l.reltuples) FILTER (WHERE l.reltuples >= 0)::bigint,
           coalesce(sum(pg_catalog.pg_table_size(l.oid)), 0)::bigint,
           ARRAY(SELECT i.relname::text FROM pg_catalog.pg_index x
                 JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
                 JOIN pg_catalog.pg_am m ON m.oid = i.relam AND m.amname IN ('hnsw', 'ivfflat')
                 WHERE x.indrelid = c.oid AND a.attnum = ANY (x.indkey::smallint[])
                 ORDER BY i.relname)
    FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_type t ON t.oid = a.atttypid AND t.typname IN ('vector', 'halfvec')
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> 'hashindex'
    LEFT JOIN pg_catalog.pg_class l ON l.relkind <> 'p' AND (
        l.oid = c.oid OR l.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p))
    WHERE c.relkind IN ('r', 'p', 'm') AND NOT c.relispartition AND a.attnum > 0
      AND NOT a.attisdropped AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
    GROUP BY c.oid, a.attname, a.attnum, t.oid, a.atttypmod ORDER BY 1, a.attnum
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
    if row.pop("has_hidden"):
        notes.append("row security hides rows from this role: figures are of the others")
    name = source.table.as_string(source.connection)
    if is_distributed(source.connection, name):
        row |= read_sizes(source.connection, name)._asdict()
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


def usual_metric(metrics: Iterable[str | None]) -> Metric:
    """Return the first metric that models have too, else cosine."""
    known: Any = next((metric for metric in metrics if metric in model.OPERATORS), "cosine")
    return known  # type: ignore[no-any-return]


def metric_of_column(connection: Connection, table: str, column: str) -> Metric:
    """Return the metric of the column's vector indexes, else cosine."""
    return usual_metric(index.metric for index in indexes_of(connection, table, column))


def indexes_of(connection: Connection, table: str, column: str) -> list[VectorIndex]:
    """Return the vector indexes of a column."""
    with translated_errors():
        (oid,) = one_row(connection, "SELECT to_regclass($1)::oid::bigint", [table])
        return [found.entry for found in read_indexes(connection, oid, column)]


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


def check_table(connection: Connection, table: str, column: str, *, measured: bool = True) -> int:
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
