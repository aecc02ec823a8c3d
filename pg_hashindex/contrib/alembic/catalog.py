"""What a database has of indexes, for autogenerate to compare with what is declared."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from ...db.connection import translated_errors
from ..sqlalchemy.specification import IndexSpec

__all__ = ["Existing", "ModelSize", "existing_indexes", "model_sizes", "objects_in_tables"]

_INDEXES = """
    SELECT i.name, i.schema_name, i.table_name, i.column_name, i.id_column, i.metric, i.layout,
           coalesce(i.building, i.access) AS access, i.ranking, i.candidates,
           CASE coalesce(i.building, i.access) WHEN 'landmarks' THEN i.probes END AS probes,
           i.filter_columns,
           c.oid IS NOT NULL AS is_there, coalesce(pg_table_is_visible(c.oid), false) AS visible,
           m.name AS model, m.version, m.dimension,
           m.metric AS model_metric, hashindex._default_ranking(m) AS model_ranking
    FROM hashindex.index i JOIN hashindex.model m ON m.id = i.model_id
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = i.schema_name
    LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = i.table_name
    WHERE i.swap_of IS NULL ORDER BY i.name
"""

# Of layout column: the code columns, of swaps too, and the indexes over them.
_OBJECTS = """
    SELECT o.*, coalesce(pg_table_is_visible(c.oid), false) AS visible
    FROM (
        SELECT 'column' AS kind, i.code_schema AS schema, i.code_table AS relation,
               i.code_column AS name
        FROM hashindex.index i WHERE i.layout = 'column'
        UNION
        SELECT 'index', n.nspname, t.relname, c.relname
        FROM hashindex.index i
        CROSS JOIN pg_catalog.unnest(ARRAY[i.access, i.building]) path
        CROSS JOIN hashindex._code_indexes(i, path) x
        JOIN pg_catalog.pg_class c ON c.oid = to_regclass(x.index_name)::oid
        JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        JOIN pg_catalog.pg_class t ON t.oid = to_regclass(x.relation)::oid
        WHERE i.layout = 'column' AND path IS NOT NULL
    ) o
    LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = o.schema
    LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = o.relation
"""

_MODELS = "SELECT m.name, m.version, m.dimension FROM hashindex.model m ORDER BY m.version"


@dataclass(frozen=True)
class Existing:
    """An index of the database; its model as a bare name."""

    spec: IndexSpec
    version: int
    dimension: int
    #: What creating it would choose by itself.
    defaults: dict[str, Any]
    #: Whether its table exists, under the name that it had.
    is_there: bool
    #: Whether the table's bare name means it.
    visible: bool


#: Dimension by name and version.
ModelSize = dict[tuple[str, int], int]


def _installed(connection: sa.Connection) -> bool:
    return bool(connection.scalar(sa.text("SELECT to_regclass('hashindex.index') IS NOT NULL")))


def existing_indexes(connection: sa.Connection, default_schema: str | None) -> dict[str, Existing]:
    """Read the indexes of a database; schema is None in the default one, as alembic has it."""
    with translated_errors():
        if not _installed(connection):
            return {}
        rows = connection.execute(sa.text(_INDEXES)).all()
    return {
        row.name: Existing(
            IndexSpec(
                row.name,
                row.table_name,
                row.column_name,
                row.model,
                schema=None if row.schema_name == default_schema else row.schema_name,
                key=row.id_column,
                metric=row.metric,
                layout=row.layout,
                access=row.access,
                ranking=row.ranking,
                candidates=row.candidates,
                probes=row.probes,
                filter_columns=row.filter_columns,
            ),
            row.version,
            row.dimension,
            {
                "metric": row.model_metric,
                "access": "scan",
                "ranking": row.model_ranking,
                "candidates": 200,
                "filter_columns": [],
            },
            row.is_there,
            row.visible,
        )
        for row in rows
    }


def model_sizes(connection: sa.Connection) -> ModelSize:
    """Read the dimensions of models; of a name the latest version is the last."""
    with translated_errors():
        if not _installed(connection):
            return {}
        rows = connection.execute(sa.text(_MODELS)).all()
    return {(row.name, row.version): row.dimension for row in rows}


def objects_in_tables(
    connection: sa.Connection, default_schema: str | None
) -> set[tuple[str, str | None, str, str]]:
    """Read what indexes put into users' tables: kind, schema, table and name.

    Where the search_path finds the table, it is there without its schema too.
    """
    with translated_errors():
        if not _installed(connection):
            return set()
        rows = connection.execute(sa.text(_OBJECTS)).all()
    return {
        (row.kind, schema, row.relation, row.name)
        for row in rows
        for schema in (
            None if row.visible else row.schema,
            None if row.schema == default_schema else row.schema,
        )
    }
