"""The columns that indexes are declared on, however they are given."""

from typing import Any

import sqlalchemy as sa
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy.orm import MappedColumn

from ...errors import InvalidInputError
from .specification import IndexSpec

__all__ = ["given_column", "name_of", "vectors_of"]


def given_column(index: str, column: Any) -> tuple[Any, sa.Table | None]:
    """Return a column, or its name, and its table where it has one already.

    Raises
    ------
    InvalidInputError
        If it is something else, or of an alias.
    """
    given = column.column if isinstance(column, MappedColumn) else column
    given = getattr(given, "expression", given)
    parent = getattr(given, "table", None)
    if isinstance(parent, sa.Table):
        return given, parent
    if parent is None and isinstance(given, str | sa.Column):
        return given, None
    raise InvalidInputError(
        f"index {index!r} is declared on {column!r}; give it an attribute of a mapped class, a "
        "column of a table, or a column's name inside of __table_args__"
    )


def name_of(column: Any) -> str:
    """Return the name of a column that an index was declared on; empty where it has none yet."""
    return column if isinstance(column, str) else str(column.name or "")


def vectors_of(table: sa.Table, spec: IndexSpec) -> sa.Column[Any]:
    """Find the column of an index in a table.

    Raises
    ------
    InvalidInputError
        If the table does not have it, or it holds no vectors.
    """
    for column in table.columns:
        if column.name == spec.column and isinstance(column.type, VECTOR | HALFVEC):
            return column
        if column.name == spec.column:
            raise InvalidInputError(
                f"index {spec.name!r} is declared on column {column}, which is of type "
                f"{column.type!r}; it needs one of pgvector's VECTOR or HALFVEC"
            )
    raise InvalidInputError(
        f"index {spec.name!r} is declared on column {spec.column!r}, which table {table} does not "
        "have; declare it after its columns, by the column's name in the database"
    )
