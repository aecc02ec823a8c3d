"""The indexes of a database, which autogenerate compares with declared ones."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from ...db.server_errors import translated_errors
from ...db.sql_files import query
from ...index.options import OPTIONS
from ..sqlalchemy.specification import IndexSpec

_INDEXES = query("alembic.indexes")

_MODELS = "SELECT m.name, m.version, m.dimension FROM hashindex.model m ORDER BY m.version"


@dataclass(frozen=True)
class Existing:
    """An index of the database; its model as a bare name."""

    spec: IndexSpec
    version: int
    dimension: int
    #: The defaults that creation would choose.
    defaults: dict[str, Any]
    #: Whether its table exists under the name in the catalog.
    is_there: bool
    #: Whether the table's bare name finds it.
    visible: bool


#: Dimension by name and version.
ModelSize = dict[tuple[str, int], int]


def _read(connection: sa.Connection, statement: str) -> Sequence[sa.RowMapping]:
    """Read rows of the catalog; none where schema hashindex is not installed."""
    with translated_errors():
        if connection.scalar(sa.text("SELECT to_regclass('hashindex.index')")) is None:
            return []
        return connection.execute(sa.text(statement)).mappings().all()


def existing_indexes(connection: sa.Connection, default_schema: str | None) -> dict[str, Existing]:
    """Read the indexes of a database; schema is None in the default one, as alembic has it."""
    found = {}
    for row in _read(connection, _INDEXES):
        stored = json.loads(row["options"])
        options = {name: stored[name] for name in OPTIONS if stored.get(name) is not None}
        place = {name: row[name] for name in ("name", "schema", "table", "column", "model")}
        spec = IndexSpec(**place, options=options)
        if spec.schema == default_schema:
            spec = replace(spec, schema=None)
        defaults = {"metric": row["model_metric"]}
        found[spec.name] = Existing(
            spec, row["version"], row["dimension"], defaults, row["is_there"], row["visible"]
        )
    return found


def model_sizes(connection: sa.Connection) -> ModelSize:
    """Read the dimensions of models; for each name, the latest version comes last."""
    rows = _read(connection, _MODELS)
    return {(row["name"], row["version"]): row["dimension"] for row in rows}
