"""Indexes declared beside the tables of SQLAlchemy, made and dropped with them."""

import warnings
from dataclasses import replace
from typing import Any, Unpack

import sqlalchemy as sa
from pgvector.sqlalchemy import HALFVEC, VECTOR
from sqlalchemy import event
from sqlalchemy.engine.mock import MockConnection
from sqlalchemy.orm import MappedColumn
from sqlalchemy.schema import SchemaItem

from ...db.server_errors import translated_errors
from ...errors import InvalidInputError
from .specification import DeclaredOptions, IndexSpec
from .statements import create_statement, drop_statement, name_on, noticed, run


class HashIndex(SchemaItem):
    """An index of hash codes, declared on a column of vectors.

    Inside ``__table_args__``, or among the items of a `sqlalchemy.Table`, give the column's name;
    after the class or table, give the column itself. On PostgreSQL ``create_all`` makes the index
    together with its table, and ``drop_all`` drops it; alembic's autogenerate compares it with what
    the database has (`pg_hashindex.contrib.alembic`). `declared_on` returns it by its name.

    Parameters
    ----------
    name
        1 to 40 letters a to z, digits, ``_`` and ``-``, unique in the database.
    column
        A column of type ``VECTOR`` or ``HALFVEC``.
    model : str, optional
        ``name`` for any version, ``name:version``, or ``none`` for the vectors themselves. As in
        ``hashindex.create_index``, a model is trained if none is named, and a table of fewer than
        1,000 rows gets its vectors.
    defer : bool
        Whether to only warn if the model does not exist; the index is then made later.
    **options
        The fields of `pg_hashindex.index.options.IndexOptions`. An existing index keeps its own
        value of an option that is left out, but for ``tenant`` and ``key_columns``.

    Raises
    ------
    InvalidInputError
        If the column holds no vectors, or an argument cannot be used.
    """

    __visit_name__ = "hash_index"

    def __init__(
        self,
        name: str,
        column: Any,
        *,
        model: str | None = None,
        **options: Unpack[DeclaredOptions],
    ) -> None:
        self.name, self.model = name, model
        self.table: sa.Table | None = None
        self._column: sa.Column[Any] | None = None
        # While a class is being defined, its columns have no table yet, and perhaps no name.
        self._given, parent = _given_column(name, column)
        self._spec = IndexSpec.declared(name, "", _name_of(self._given), model, **options)
        if parent is not None:
            self._set_parent_with_dispatch(parent)

    @property
    def column(self) -> sa.Column[Any]:
        """The column that is indexed.

        Raises
        ------
        InvalidInputError
            If the index is not declared on a table yet.
        """
        if self._column is None:
            raise InvalidInputError(
                f"index {self.name!r} is not declared on a table: put it into __table_args__, or "
                "give it the column itself"
            )
        return self._column

    @property
    def dimension(self) -> int | None:
        """The dimension of the column's vectors, if its type has one."""
        kind = self.column.type
        return kind.dim if isinstance(kind, VECTOR | HALFVEC) else None

    def spec(self) -> IndexSpec:
        """Return the declaration as text: table and column by their names."""
        table = self.column.table
        schema = None if table.schema is None else str(table.schema)
        return replace(self._spec, table=str(table.name), schema=schema)

    def create(self, connection: sa.Connection, *, checkfirst: bool = False) -> None:
        """Make the index in the caller's transaction.

        A set of pgvector is complete; writers wait until the transaction ends. For lists (access
        ``lists`` or ``scan``) of a table with vectors a warning says the command that encodes the
        rows, ``pg-hashindex index encode``, and searches are exact until then.

        Parameters
        ----------
        checkfirst
            Whether to leave an existing index of that name as it is.

        Raises
        ------
        MissingSchemaError
            If schema hashindex is not installed.
        UnknownModelError
            If the model does not exist; with ``defer`` that is a warning.
        InvalidInputError
            If the model cannot serve the column: it has another dimension, say.
        DuplicateNameError
            If there is an index of that name.
        """
        spec = _translated(self.spec(), connection)
        with translated_errors(), noticed(connection, _warn):
            if checkfirst and self._exists(connection):
                return
            run(connection, create_statement(spec))

    def drop(self, connection: sa.Connection, *, checkfirst: bool = False) -> None:
        """Drop the index with its codes; table and model stay.

        Parameters
        ----------
        checkfirst
            Whether to do nothing if the table has no index of that name.

        Raises
        ------
        UnknownIndexError
            If there is none, without checkfirst.
        """
        with translated_errors():
            spec = _translated(self.spec(), connection)
            if checkfirst:
                installed = run(connection, "SELECT to_regclass('hashindex.index') IS NOT NULL")
                if installed is not None and not installed.scalar():
                    return
            place = {"table": spec.table, "schema": spec.schema}
            run(connection, drop_statement(self.name, **place, if_exists=checkfirst))

    @classmethod
    def create_missing(cls, connection: sa.Connection, metadata: sa.MetaData) -> list[str]:
        """Make the declared indexes that do not exist, such as deferred ones.

        Parameters
        ----------
        connection
            The caller commits.
        metadata
            The metadata of existing tables.

        Returns
        -------
        list of str
            The names of the new indexes.

        Raises
        ------
        HashIndexError
            As `create`.
        """
        made = []
        for table in metadata.sorted_tables:
            for name, index in declared_on(table).items():
                with translated_errors():
                    before = index._exists(connection)
                if not before:
                    index.create(connection)
                    if index._exists(connection):
                        made.append(name)
        return made

    def _exists(self, connection: sa.Connection) -> bool:
        spec = _translated(self.spec(), connection)
        name = name_on(self.name, spec.table, spec.schema).as_string(None)
        found = run(
            connection,
            f"SELECT EXISTS (SELECT FROM hashindex.index i WHERE i.name = {name})",  # noqa: S608
        )
        return found is not None and bool(found.scalar())

    def _set_parent(self, parent: Any, **_: Any) -> None:
        if not isinstance(parent, sa.Table):
            raise InvalidInputError(
                f"index {self.name!r} is declared on {parent!r}; it is of a table: put it into "
                "__table_args__, or give it the column itself"
            )
        if self.table is not None and self.table is not parent:
            raise InvalidInputError(
                f"index {self.name!r} is declared on table {self.table} already, and cannot be on "
                f"{parent} too; make one for each"
            )
        self._spec = replace(self._spec, column=_name_of(self._given))
        self.table, self._column = parent, _vectors_of(parent, self._spec)
        for other in (parent, *parent.metadata.tables.values()):
            known = other.info.get("hash_indexes", {}).get(self.name)
            if known is not None and declared_on(other)[self.name].spec() != self.spec():
                raise InvalidInputError(
                    f"index {self.name!r} is declared on {other} already, otherwise; a database "
                    "has one index of a name"
                )
        if "hash_indexes" not in parent.info:
            # Copies of the table share the listeners and this dict.
            event.listen(parent, "after_create", _create_with_table, propagate=True)
            event.listen(parent, "before_drop", _drop_with_table, propagate=True)
        # A new dict, since an index of a copy is not declared on the original.
        parent.info["hash_indexes"] = {**parent.info.get("hash_indexes", {}), self.name: self}

    def _copied_to(self, table: sa.Table) -> "HashIndex":
        options: Any = self._spec.given()
        copied = HashIndex(self.name, self._spec.column, model=self.model, **options)
        copied.table, copied._column = table, _vectors_of(table, self._spec)
        return copied

    def __repr__(self) -> str:
        return f"HashIndex({self.name!r}, {self._spec.column!r}, model={self.model!r})"


def declared_on(table: sa.Table) -> dict[str, HashIndex]:
    """Return the indexes that are declared on a table, by name.

    A copy of a table by ``Table.to_metadata`` has indexes of its own.
    """
    # to_metadata copies the dictionary with the indexes of the original.
    declared: dict[str, HashIndex] = table.info.get("hash_indexes", {})
    if any(index.table is not table for index in declared.values()):
        declared = {
            name: index if index.table is table else index._copied_to(table)
            for name, index in declared.items()
        }
        table.info["hash_indexes"] = declared
    return declared


def _translated(spec: IndexSpec, connection: sa.Connection | MockConnection) -> IndexSpec:
    """Translate the declared schema as statements of this connection do."""
    if isinstance(connection, MockConnection):
        return spec
    others = connection.get_execution_options().get("schema_translate_map") or {}
    return replace(spec, schema=others.get(spec.schema, spec.schema))


def _create_with_table(table: sa.Table, connection: Any, **_: Any) -> None:
    for index in declared_on(table).values():
        if connection is None:
            raise InvalidInputError(
                f"index {index.name!r} cannot be declared inside of op.create_table; call "
                "op.create_hash_index after it"
            )
        if connection.dialect.name == "postgresql":
            index.create(connection)


def _drop_with_table(table: sa.Table, connection: Any, **_: Any) -> None:
    for index in declared_on(table).values():
        if connection is not None and connection.dialect.name == "postgresql":
            index.drop(connection, checkfirst=True)


def _warn(message: str) -> None:
    # The stack level of the caller of HashIndex.create.
    warnings.warn(message, UserWarning, stacklevel=5)


def _given_column(index: str, column: Any) -> tuple[Any, sa.Table | None]:
    """Return a column, or its name, and its table if it has one already."""
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


def _name_of(column: Any) -> str:
    """Return the name of the declared column; empty if it has none yet."""
    return column if isinstance(column, str) else str(column.name or "")


def _vectors_of(table: sa.Table, spec: IndexSpec) -> sa.Column[Any]:
    """Find the column of an index in a table."""
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
