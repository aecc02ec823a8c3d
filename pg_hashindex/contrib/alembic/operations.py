"""The operations of alembic's migrations: how they run, and how revisions write and reverse them.

The same statements run in a migration, or are written to its script. Each function describes an
operation; calling it from a revision, as a method of ``alembic.op`` too, runs the operation.
"""

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, ParamSpec, Self, Unpack

import sqlalchemy as sa
from alembic import op
from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.runtime.migration import MigrationContext
from psycopg import sql

from ...db import schema
from ...db.connection import Connection, connect
from ...db.server_errors import translated_errors
from ...db.sql_files import query
from ...errors import HashIndexError, InvalidInputError
from ...index.handle import HashIndex
from ...index.options import IndexOptions, checked_options
from ..sqlalchemy import statements
from ..sqlalchemy.specification import (
    LISTS,
    IndexSpec,
    PlacedOptions,
    check_model,
    of_searches,
    of_sets,
)

_log = logging.getLogger("alembic.pg_hashindex")

#: The command that completes an index whose rows wait.
_ENCODE = "pg-hashindex index encode {}"


class _Op(MigrateOperation, ABC):
    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        function, values, named = self._call()
        return (function, *values, named)

    @abstractmethod
    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the function that a revision calls, and its arguments."""


class _IndexOp(_Op):
    @abstractmethod
    def _statement(self) -> str:
        """Return the SQL of the operation."""


class _EncodingOp(_IndexOp):
    """An operation that is complete in its transaction, but that lists wait for their codes."""

    @abstractmethod
    def _name(self) -> str:
        """Return SQL for the name of the index."""

    @abstractmethod
    def _may_wait(self) -> bool:
        """Return whether a command may have to complete it."""

    @abstractmethod
    def _complete(self, index: HashIndex) -> None:
        """Do what the command does, and take a set of lower recall."""

    def _waits(self) -> str:
        """Return SQL that finds whether rows wait, as an interrupted migration leaves them too."""
        return "SELECT WHERE false"


@dataclass(eq=False)
class CreateHashIndexOp(_EncodingOp):
    """Make an index, and encode the rows of its table."""

    spec: IndexSpec
    encode: bool = True

    def _statement(self) -> str:
        return statements.create_statement(self.spec)

    def _name(self) -> str:
        spec = self.spec
        return statements.name_on(spec.name, spec.table, spec.schema).as_string(None)

    def _may_wait(self) -> bool:
        return self.spec.options.get("access") in LISTS

    def _complete(self, index: HashIndex) -> None:
        index.encode()

    def _waits(self) -> str:
        spec = self.spec
        values = (spec.name, spec.qualified_table, spec.column, spec.model)
        named = zip(("name", "table", "column", "model"), map(sql.Literal, values), strict=True)
        return sql.SQL(query("alembic.waits")).format(**dict(named)).as_string(None)

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named = spec.stated | spec.given() | ({} if self.encode else {"encode": False})
        return "create_hash_index", [spec.name, spec.table, spec.column], named

    def reverse(self) -> "DropHashIndexOp":
        """Return the operation that drops it; a deferred index may not exist."""
        return DropHashIndexOp(self.spec.name, self.spec, if_exists=self.spec.defer)


@dataclass(eq=False)
class DropHashIndexOp(_IndexOp):
    """Drop an index."""

    name: str
    spec: IndexSpec | None = None
    if_exists: bool = False

    def _statement(self) -> str:
        place = {} if self.spec is None else {"table": self.spec.table, "schema": self.spec.schema}
        return statements.drop_statement(self.name, if_exists=self.if_exists, **place)

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named: dict[str, Any] = {"if_exists": True} if self.if_exists else {}
        if spec is not None:
            was = {"table": spec.table, "column": spec.column}
            named = was | spec.stated | spec.given() | named
        return "drop_hash_index", [self.name], named

    def reverse(self) -> CreateHashIndexOp:
        """Return the operation that makes it again."""
        if self.spec is None:
            raise InvalidInputError(
                f"operation cannot be reversed: drop_hash_index({self.name!r}) does not say what "
                "the index was; give it table, column and model too"
            )
        return CreateHashIndexOp(self.spec)


class _ChangeOp(_IndexOp):
    """Change options of an index; ``existing`` has their values before."""

    _function: ClassVar[str]
    _done: ClassVar[str]

    def __init__(
        self,
        name: str,
        options: dict[str, Any],
        existing: dict[str, Any] | None = None,
        *,
        table: str | None = None,
        schema: str | None = None,
    ) -> None:
        self.name, self.place = name, _place(name, table, schema)
        self.options, self.existing = self._checked(options), self._checked(existing or {})
        if not {*self._needs()} & {*self.options}:
            raise InvalidInputError(
                f"index {name!r} is {self._done} by {', '.join(self._needs())}; got none of them"
            )

    @abstractmethod
    def _needs(self) -> list[str]:
        """Return the options of which at least one is to be given."""

    @abstractmethod
    def _checked(self, options: dict[str, Any]) -> dict[str, Any]:
        """Refuse options that it does not change."""

    def _known(self) -> set[str]:
        """Return the options that a reversed operation restores."""
        return {*self.existing}

    @property
    def _named(self) -> sql.Composed:
        return statements.name_on(self.name, **self.place)

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        existing = {"existing": self.existing} if self.existing else {}
        return self._function, [self.name], self.place | self.options | existing

    def reverse(self) -> Self:
        """Return the operation that restores the options."""
        for option in self.options:
            if option not in self._known():
                raise _irreversible(self._function, self.name, option)
        return type(self)(self.name, self.existing, self.options, **self.place)


class SwapHashIndexOp(_ChangeOp, _EncodingOp):
    """Give an index another set, with its settings."""

    _function = "swap_hash_index"
    _done = "swapped"

    def _needs(self) -> list[str]:
        return ["model", *of_sets()]

    def _checked(self, options: dict[str, Any]) -> dict[str, Any]:
        given = {**options}
        model = given.pop("model", None)
        check_model(self.name, model)
        checked = checked_options(self.name, given, to=[*of_sets(), *of_searches()])
        return ({} if model is None else {"model": model}) | checked

    def _known(self) -> set[str]:
        known = {*super()._known(), *of_searches(), "reveal_anchors"}
        return known | {"code_column"} if "store" in self.existing else known

    def _statement(self) -> str:
        return statements.swap_statement(self._named, self.options)

    def _name(self) -> str:
        return self._named.as_string(None)

    def _may_wait(self) -> bool:
        given = self.options
        of_pgvector = {"store", "code_column"} & {*given} or given.get("model") == "none"
        return not of_pgvector and given.get("access", LISTS[0]) in LISTS

    def _complete(self, index: HashIndex) -> None:
        if index.state == "used":
            index.swap(force=True)
        else:
            index.encode()


class ConfigureHashIndexOp(_ChangeOp):
    """Change how an index is searched by default."""

    _function = "configure_hash_index"
    _done = "changed"

    def _needs(self) -> list[str]:
        return of_searches()

    def _checked(self, options: dict[str, Any]) -> dict[str, Any]:
        return checked_options(self.name, options, to=of_searches())

    def _statement(self) -> str:
        return statements.configure_statement(self._named, self.options)


def _place(index: str, table: str | None, schema: str | None) -> dict[str, str]:
    """Return the given names of the table of an index."""
    if schema is not None and table is None:
        raise InvalidInputError(
            f"schema {schema!r} of index {index!r} is given without a table; give table too"
        )
    place = {"table": table, "schema": schema}
    return {key: name for key, name in place.items() if name is not None}


def _irreversible(function: str, index: str, option: str) -> InvalidInputError:
    return InvalidInputError(
        f"operation cannot be reversed: {function}({index!r}, ...) does not say what {option} was "
        f"before; give it existing={{{option!r}: ...}} too"
    )


class InstallHashIndexOp(_Op):
    """Install schema hashindex, or bring it up to this release."""

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "install_hashindex", [], {}

    def reverse(self) -> "UninstallHashIndexOp":
        """Return the operation that removes it."""
        return UninstallHashIndexOp()


@dataclass(eq=False)
class UninstallHashIndexOp(_Op):
    """Remove schema hashindex."""

    drop_models: bool = False

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "uninstall_hashindex", [], {"drop_models": True} if self.drop_models else {}

    def reverse(self) -> InstallHashIndexOp:
        """Return the operation that installs it."""
        return InstallHashIndexOp()


@Operations.implementation_for(_IndexOp)
def _run(operations: Operations, operation: _IndexOp) -> None:
    context = operations.migration_context
    if context.as_sql:
        context.impl.static_output(f"{operation._statement()};")
        if isinstance(operation, _EncodingOp) and operation._may_wait():
            context.impl.static_output(
                "-- If its codes are in lists and its table has vectors, then run: "
                + _ENCODE.format(operation._call()[1][0])
            )
        return
    bind = operations.get_bind()
    encoding = operation if isinstance(operation, _EncodingOp) else None
    if isinstance(operation, CreateHashIndexOp) and not operation.encode:
        encoding = None
    with translated_errors(), statements.noticed(bind, _log.warning, encodes=encoding is not None):
        waits = encoding is not None and _scalar(bind, encoding._waits())
        if not waits:
            complete = _scalar(bind, operation._statement())
            waits = encoding is not None and (complete is False or _scalar(bind, encoding._waits()))
    if encoding is not None and waits:
        _encode(context, bind, encoding)


def _encode(context: MigrationContext, bind: sa.Connection, operation: _EncodingOp) -> None:
    name = _scalar(bind, f"SELECT {operation._name()}")
    with _own_connection(context, bind) as connection:
        if connection is not None:
            operation._complete(HashIndex.open(connection, name))
            return
    _log.warning(
        "the rows of index %r wait to be encoded, which takes transactions of its own; run: %s",
        name,
        _ENCODE.format(name),
    )


def _scalar(bind: sa.Connection, statement: str) -> Any:
    result = statements.run(bind, statement)
    return None if result is None else result.scalar()


@contextlib.contextmanager
def _own_connection(context: MigrationContext, bind: sa.Connection) -> Iterator[Connection | None]:
    """Commit what the migration did, and connect by its engine's URL; None if that cannot be.

    The caller of the migrations may have begun their transaction, or the engine may connect by a
    function, or as another role.
    """
    url = bind.engine.url
    if context._transaction is None or not (url.host or url.database or url.query):
        yield None
        return
    asked = "SELECT pg_postmaster_start_time(), current_database(), current_user"
    here = tuple(bind.exec_driver_sql(asked).one())
    with context.autocommit_block():
        try:
            connection = connect(
                url.set(drivername="postgresql").render_as_string(hide_password=False)
            )
        except HashIndexError as error:
            _log.warning("%s", error)
            yield None
            return
        with contextlib.closing(connection):
            yield connection if connection.execute(asked).fetchone() == here else None


@Operations.implementation_for(InstallHashIndexOp)
def _install(operations: Operations, operation: InstallHashIndexOp) -> None:
    context = operations.migration_context
    if context.as_sql:
        context.impl.static_output(schema.statements())
    else:
        schema.upgrade(operations.get_bind())


@Operations.implementation_for(UninstallHashIndexOp)
def _uninstall(operations: Operations, operation: UninstallHashIndexOp) -> None:
    if operations.migration_context.as_sql:
        raise InvalidInputError(
            "removing schema hashindex cannot be written as a script, since it looks for what is "
            "there; run it online, or write: DROP SCHEMA hashindex CASCADE"
        )
    schema.downgrade(operations.get_bind(), drop_models=operation.drop_models)


@renderers.dispatch_for(_Op)
def _render(context: AutogenContext, operation: _Op) -> str:
    """Write a call of a method of ``op``, or of the typed function with that name."""
    function, values, named = operation._call()
    arguments = [repr(value) for value in values]
    arguments += [f"{name}={value!r}" for name, value in named.items()]
    if context.opts.get("typed_hash_indexes"):
        context.imports.add(f"from pg_hashindex.contrib.alembic import {function}")
        return f"{function}({', '.join(arguments)})"
    # If env.py does not import the module, op has no such method.
    context.imports.add("import pg_hashindex.contrib.alembic  # noqa: F401")
    return f"{context.opts['alembic_module_prefix']}{function}({', '.join(arguments)})"


_P = ParamSpec("_P")


def _runs(described: Callable[_P, _Op]) -> Callable[_P, None]:
    """Have a function run the operation that it describes, and make it a method of ``op`` too."""

    @wraps(described)
    def method(operations: Operations, *arguments: _P.args, **named: _P.kwargs) -> None:
        operations.invoke(described(*arguments, **named))

    @wraps(described)
    def function(*arguments: _P.args, **named: _P.kwargs) -> None:
        op.invoke(described(*arguments, **named))

    setattr(Operations, described.__name__, method)
    return function


@_runs
def create_hash_index(
    name: str,
    table: str,
    column: str,
    *,
    model: str | None = None,
    encode: bool = True,
    **options: Unpack[PlacedOptions],
) -> _Op:
    """Make an index: by default a set of pgvector, which is complete.

    For lists (access ``lists`` or ``scan``) of a table with vectors the migration's transaction is
    committed, and a connection of its own encodes the rows as ``pg-hashindex index encode`` does,
    while others write; run the migration again if it is interrupted. In a script (``--sql``), and
    where the transaction is not the migration's own or the engine has no URL, the command is
    printed instead. Until the rows are encoded, searches are exact.

    Parameters
    ----------
    name
        1 to 40 letters a to z, digits, ``_`` and ``-``.
    table, column
        By their bare names.
    model : str, optional
        ``name`` (its latest version), ``name:version``, or ``none`` for the vectors themselves. As
        in ``hashindex.create_index``, a model is trained if none is named, and a table of fewer
        than 1,000 rows gets its vectors.
    encode
        Whether to encode the rows for lists; a warning names the command for them otherwise.
    schema : str, optional
        The schema of the table; found by the search_path by default.
    defer : bool
        Whether to do nothing, with a warning, if the model does not exist or the index exists
        already.
    **options
        The fields of `pg_hashindex.index.options.IndexOptions`.

    Raises
    ------
    MissingSchemaError, UnknownModelError, InvalidInputError, DuplicateNameError
        The whole migration fails then.
    """
    return CreateHashIndexOp(
        IndexSpec.declared(name, table, column, model, **options), encode=encode
    )


@_runs
def drop_hash_index(
    name: str,
    *,
    if_exists: bool = False,
    table: str | None = None,
    column: str | None = None,
    model: str | None = None,
    **options: Unpack[PlacedOptions],
) -> _Op:
    """Drop an index with its codes; table and model stay.

    Parameters
    ----------
    if_exists
        Whether to do nothing if there is no such index.
    table, column, model, **options : optional
        The index as `create_hash_index` makes it, so that the operation can be reversed. Without
        them it is the index of the table that the search_path finds.

    Raises
    ------
    UnknownIndexError
        If there is no such index, without if_exists.
    """
    if table is None or column is None:
        was = {"table": table, "column": column, "model": model, **options}
        given = [key for key, value in was.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"to say what index {name!r} was takes table and column; got {', '.join(given)}"
            )
        return DropHashIndexOp(name, if_exists=if_exists)
    return DropHashIndexOp(
        name, IndexSpec.declared(name, table, column, model, **options), if_exists=if_exists
    )


@_runs
def swap_hash_index(
    name: str,
    *,
    table: str | None = None,
    schema: str | None = None,
    model: str | None = None,
    existing: dict[str, Any] | None = None,
    **options: Unpack[IndexOptions],
) -> _Op:
    """Give an index another model, access or place of its codes; what is not given stays.

    Nothing is done if ``pg-hashindex index swap`` ran before. A lower recall is accepted. The
    former set stays, so that a downgrade can return to it, until ``pg-hashindex index prune`` or
    the next swap of a migration drops it. A set of pgvector is built in the migration's
    transaction; lists get their codes as by `create_hash_index`, and the former set serves searches
    until then.

    Parameters
    ----------
    table, schema
        The table of the index, where several schemas have one of that name and an index of its
        own; by default the one that the search_path finds.
    model
        ``name`` (its latest version), ``name:version``, or ``none`` for the vectors themselves.
    existing
        The options before, so that the operation can be reversed.
    **options
        ``access``, ``store``, ``code_column`` and ``reveal_anchors``, and ``candidates`` and
        ``effort`` of the new set, which are measured by default.

    Raises
    ------
    UnknownIndexError, UnknownModelError, InvalidInputError
        If the model cannot serve the index.
    InUseError
        If another swap of the index is under way.
    """
    given = {"model": model, **options} if model is not None else {**options}
    return SwapHashIndexOp(name, given, existing, table=table, schema=schema)


@_runs
def configure_hash_index(
    name: str,
    *,
    table: str | None = None,
    schema: str | None = None,
    existing: IndexOptions | None = None,
    **options: Unpack[IndexOptions],
) -> _Op:
    """Change the defaults of searches; None leaves an option as it is.

    Parameters
    ----------
    table, schema
        As those of `swap_hash_index`.
    existing
        The options before, so that the operation can be reversed.
    **options
        ``candidates`` and ``effort``.

    Raises
    ------
    UnknownIndexError, InvalidInputError
        If a value is out of range, or the index or its model cannot serve it.
    """
    return ConfigureHashIndexOp(name, {**options}, {**(existing or {})}, table=table, schema=schema)


@_runs
def install_hashindex() -> _Op:
    """Install schema hashindex, or bring it up to this release; do nothing if it is up to date.

    A script (``--sql``) is only for a database that does not have the schema.
    """
    return InstallHashIndexOp()


@_runs
def uninstall_hashindex(*, drop_models: bool = False) -> _Op:
    """Remove schema hashindex, with its models only if ``drop_models`` says so.

    Raises
    ------
    InUseError
        If there are indexes, or models that may not be dropped.
    InvalidInputError
        In a script (``--sql``).
    """
    return UninstallHashIndexOp(drop_models=drop_models)
