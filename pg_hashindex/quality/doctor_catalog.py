"""What PostgreSQL's catalog and statistics say of a table of vectors; nothing is searched."""

from collections.abc import Sequence
from typing import Any, LiteralString, NamedTuple

from psycopg import RawCursor, sql

from ..db.connection import Connection, translated_errors
from ..db.table_source import TableSource, find_relation
from ..errors import InvalidInputError, MissingRightsError
from .doctor_findings import Memory, TableFacts, VectorIndex

__all__ = [
    "METRICS",
    "CatalogIndex",
    "check_table",
    "extension_schema",
    "locked",
    "read_facts",
    "read_indexes",
    "read_memory",
]

#: Distances by pgvector's operators.
METRICS = {"<->": "l2", "<=>": "cosine", "<#>": "ip", "<+>": "l1"}
_STORAGE = {"p": "plain", "e": "external", "m": "main", "x": "extended"}
_KINDS = {"r": "table", "p": "partitioned table", "m": "materialised view"}

_HOLDERS: LiteralString = """
    SELECT l.pid, left(coalesce(nullif(a.query, ''), '?'), 60)
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.relation = to_regclass($1) AND l.granted AND l.mode = 'AccessExclusiveLock'
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
"""


def locked(connection: Connection, table: str) -> str:
    """Say who has locked a table."""
    with translated_errors():
        holders = RawCursor(connection).execute(_HOLDERS, [table]).fetchall()
    by = "; ".join(f"process {pid}: {' '.join(query.split())}" for pid, query in holders)
    return (
        f"{table} is locked, as by VACUUM FULL or ALTER TABLE ({by or 'the holder is gone by now'})"
        "; run the command again when that is done"
    )


_FACTS: LiteralString = """
    WITH leaf AS (
        SELECT c.oid, c.reltoastrelid, c.reltuples, c.relkind FROM pg_class c
        WHERE c.relkind <> 'p'
          AND (c.oid = $1 OR c.oid IN (SELECT t.relid FROM pg_partition_tree($1) t))
    )
    SELECT $1::oid::regclass::text, quote_ident(a.attname), a.atttypmod, a.attstorage,
           sum(greatest(l.reltuples, 0))::bigint, bool_or(l.relkind = 'f'),
           coalesce(sum(pg_relation_size(l.oid)), 0)::bigint,
           coalesce(sum(pg_total_relation_size(nullif(l.reltoastrelid, 0))), 0)::bigint,
           coalesce(sum(pg_indexes_size(l.oid)), 0)::bigint,
           sum(s.n_dead_tup)::bigint, sum(s.n_live_tup)::bigint,
           max(greatest(s.last_vacuum, s.last_autovacuum)),
           max(greatest(s.last_analyze, s.last_autoanalyze)),
           coalesce(sum(s.n_tup_upd + s.n_tup_del), 0)::bigint
    FROM pg_attribute a, leaf l LEFT JOIN pg_stat_all_tables s ON s.relid = l.oid
    WHERE a.attrelid = $1 AND a.attname = $2 AND NOT a.attisdropped
    GROUP BY a.attname, a.atttypmod, a.attstorage
"""

_MEMORY: LiteralString = """
    SELECT pg_size_bytes(current_setting('shared_buffers')),
           pg_size_bytes(current_setting('effective_cache_size')),
           pg_size_bytes(current_setting('work_mem')),
           pg_size_bytes(current_setting('maintenance_work_mem'))
"""

# Indexes whose definition names the column, with those of the partitions.
_INDEXES: LiteralString = """
    SELECT i.oid::regclass::text, am.amname, oc.opcname, pg_get_indexdef(x.indexrelid), o.oprname,
           x.indisvalid, CASE WHEN x.indkey[0] = 0 THEN pg_get_indexdef(x.indexrelid, 1, true) END,
           pg_get_expr(x.indpred, x.indrelid, true), coalesce(i.reloptions, '{}'), p.names,
           p.bytes::bigint, p.scans::bigint, p.hit::double precision, p.read::double precision
    FROM pg_index x
    JOIN pg_class i ON i.oid = x.indexrelid
    JOIN pg_am am ON am.oid = i.relam AND am.amname IN ('hnsw', 'ivfflat')
    JOIN pg_opclass oc ON oc.oid = x.indclass[0]
    JOIN pg_amop ao ON ao.amopfamily = oc.opcfamily AND ao.amoppurpose = 'o'
        AND ao.amopstrategy = 1 AND ao.amoplefttype = oc.opcintype
    JOIN pg_operator o ON o.oid = ao.amopopr
    CROSS JOIN LATERAL (
        SELECT array_agg(c.relname) AS names, sum(pg_relation_size(c.oid)) AS bytes,
               coalesce(sum(s.idx_scan), 0) AS scans, coalesce(sum(b.idx_blks_hit), 0) AS hit,
               coalesce(sum(b.idx_blks_read), 0) AS read
        FROM pg_class c
        LEFT JOIN pg_stat_all_indexes s ON s.indexrelid = c.oid
        LEFT JOIN pg_statio_all_indexes b ON b.indexrelid = c.oid
        WHERE c.oid = i.oid OR c.oid IN (SELECT t.relid FROM pg_partition_tree(i.oid) t)
    ) p
    WHERE x.indrelid = $1 AND EXISTS (
        SELECT FROM pg_depend d JOIN pg_attribute a
            ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
        WHERE d.classid = 'pg_class'::regclass AND d.objid = x.indexrelid
          AND d.refclassid = 'pg_class'::regclass AND d.refobjid = $1 AND a.attname = $2
    )
    ORDER BY i.relname
"""

_EXTENSION: LiteralString = """
    SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector'
"""


class CatalogIndex(NamedTuple):
    """An index, its names with those of its partitions' indexes, and its operator."""

    entry: VectorIndex
    names: frozenset[str]
    operator: str


def extension_schema(cursor: RawCursor[Any]) -> str:
    """Return the schema that pgvector is in."""
    return str(_row(cursor, _EXTENSION)[0])


def read_memory(cursor: RawCursor[Any]) -> Memory:
    """Read the settings of memory."""
    return Memory(*_row(cursor, _MEMORY))


def read_facts(
    cursor: RawCursor[Any],
    source: TableSource,
    oid: int,
    dimension: int,
    null_share: float,
    vector_bytes: int,
    notes: list[str],
) -> TableFacts:
    """Read what there is to know of a table; add to the notes what is not known."""
    row = _row(cursor, _FACTS, [oid, source.vector])
    name, column, modifier, storage, rows, foreign, heap, toast, indexes, dead, live = row[:11]
    kind = _KINDS[find_relation(source.connection, source.name)[1]]
    if foreign:
        notes.append(
            "some partitions are foreign tables: their sizes and indexes are on other servers"
        )
    # Counted where they are few.
    rows = source.estimate if kind != "partitioned table" or not rows else rows
    if _row(cursor, "SELECT row_security_active($1::oid)", [oid])[0]:
        notes.append("row security hides rows from this role: figures are of the others")
    return TableFacts(
        name=name,
        column=source.vector,
        quoted_column=column,
        kind=kind,
        rows=rows,
        null_share=round(null_share, 4),
        type=source.vector_type,
        dimension=dimension,
        declared=modifier != -1,
        vector_bytes=vector_bytes,
        storage=_STORAGE.get(storage, storage),
        # Were they in their rows, these would be as large at the least.
        toasted=heap < 0.5 * rows * (1 - null_share) * vector_bytes,
        pages_a_row=None,
        heap_bytes=heap,
        toast_bytes=toast,
        index_bytes=indexes,
        dead_share=round(dead / (dead + live), 4) if dead is not None and dead + live else None,
        last_vacuum=row[11],
        last_analyze=row[12],
        changed=row[13],
    )


def read_indexes(cursor: RawCursor[Any], oid: int, column: str) -> list[CatalogIndex]:
    """Read the HNSW and IVFFlat indexes of a column, those over expressions of it too."""
    return [
        CatalogIndex(
            VectorIndex(
                name=row[0],
                method=row[1],
                operator_class=row[2],
                definition=row[3],
                metric=METRICS.get(row[4]),
                bytes=row[10],
                valid=row[5],
                expression=row[6],
                condition=row[7],
                options=tuple(row[8]),
                scans=row[11],
                cached_share=round(row[12] / (row[12] + row[13]), 3) if row[12] + row[13] else None,
            ),
            frozenset(row[9]),
            row[4],
        )
        for row in cursor.execute(_INDEXES, [oid, column]).fetchall()
    ]


def check_table(cursor: RawCursor[Any], connection: Connection, table: str, column: str) -> int:
    """Refuse a table whose vectors cannot be looked at; return its oid."""
    relation, kind, _ = find_relation(connection, table)
    if kind == "f":
        raise InvalidInputError(
            f"{table} is a foreign table: its rows and indexes are on another server; run the "
            "doctor there"
        )
    if kind == "v":
        raise InvalidInputError(f"{table} is a view: give the table behind it")
    (oid,) = cursor.execute("SELECT $1::regclass::oid::bigint", [table]).fetchone() or (0,)
    known = cursor.execute(
        "SELECT format_type(a.atttypid, -1), has_table_privilege($1::oid, 'SELECT'), "
        "quote_ident(current_user), $1::oid::regclass::text FROM pg_attribute a "
        "WHERE a.attrelid = $1 AND a.attname = $2 AND a.attnum > 0 AND NOT a.attisdropped",
        [oid, column],
    ).fetchone()
    if known is None:
        others = cursor.execute(
            "SELECT a.attname FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid "
            "WHERE a.attrelid = $1 AND t.typname IN ('vector', 'halfvec') AND NOT a.attisdropped "
            "ORDER BY a.attnum",
            [oid],
        ).fetchall()
        there = ", ".join(repr(name) for (name,) in others)
        raise InvalidInputError(
            f"table {table} has no column {column!r}; "
            + (f"its columns of vectors: {there}" if there else "it has no column of vectors")
        )
    if not known[1]:
        raise MissingRightsError(
            f"role {known[2]} may not read the rows of {table}; its owner grants that "
            f"with: GRANT SELECT ON {known[3]} TO {known[2]}"
        )
    # Whoever has locked the table is met here.
    cursor.execute(sql.SQL("SELECT {} FROM {} LIMIT 0").format(sql.Identifier(column), relation))
    return int(oid)


def _row(cursor: RawCursor[Any], statement: LiteralString, values: Sequence[Any] = ()) -> Any:
    return cursor.execute(statement, list(values)).fetchone()
