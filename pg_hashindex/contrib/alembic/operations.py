"""The operations of alembic's migrations: how they run, and how revisions write and reverse them.

The same statements run in a migration, or are written to its script. Each function describes an
operation; calling it from a revision, as a method of ``alembic.op`` too, runs the operation.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Literal, ParamSpec, TypedDict, Unpack

from alembic import op
from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, Operations
from alembic.operations.ops import OpContainer

from ...db import schema
from ...db.server_errors import translated_errors
from ...errors import InvalidInputError
from ...index.catalog import Access
from ...models.functions import code_function
from ...models.quantization import Ranking
from ..sqlalchemy import statements
from ..sqlalchemy.specification import SETTINGS, IndexSpec, PlacedIndexOptions

_log = logging.getLogger("alembic.pg_hashindex")


class _Op(MigrateOperation, ABC):
    #: The name in what ``alembic check`` shows.
    _shown = ""

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        _, values, named = self._call()
        return (self._shown, *values, named)

    @abstractmethod
    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the function that a revision calls, and its arguments."""


class _IndexOp(_Op):
    @abstractmethod
    def _statements(self) -> list[str]:
        """Return the SQL of the operation."""


class CreateHashIndexOp(_IndexOp):
    """Make an index, and encode the rows of its table."""

    _shown = "add_hash_index"

    def __init__(self, spec: IndexSpec, *, encode: bool = True) -> None:
        spec.check()
        self.spec, self.encode = spec, encode

    def _statements(self) -> list[str]:
        return [statements.create_statement(self.spec, encode=self.encode)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named = {"model": spec.model, **spec.options()} | ({} if self.encode else {"encode": False})
        return "create_hash_index", [spec.name, spec.table, spec.column], named

    def reverse(self) -> "DropHashIndexOp":
        """Return the operation that drops it; a deferred index may not exist."""
        return DropHashIndexOp(self.spec.name, self.spec, if_exists=self.spec.defer)


class DropHashIndexOp(_IndexOp):
    """Drop an index."""

    _shown = "remove_hash_index"

    def __init__(
        self, name: str, spec: IndexSpec | None = None, *, if_exists: bool = False
    ) -> None:
        self.name, self.spec, self.if_exists = name, spec, if_exists

    def _statements(self) -> list[str]:
        return [statements.drop_statement(self.name, if_exists=self.if_exists)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named: dict[str, Any] = {"if_exists": True} if self.if_exists else {}
        if spec is not None:
            was = {"table": spec.table, "column": spec.column, "model": spec.model}
            named = was | spec.options() | named
        return "drop_hash_index", [self.name], named

    def reverse(self) -> CreateHashIndexOp:
        """Return the operation that makes it again."""
        if self.spec is None:
            raise InvalidInputError(
                f"operation cannot be reversed: drop_hash_index({self.name!r}) does not say what "
                "the index was; give it table, column and model too"
            )
        return CreateHashIndexOp(self.spec)


class SwapHashModelOp(_IndexOp):
    """Give an index another model, or other filter columns, or both at once."""

    _shown = "swap_hash_model"

    def __init__(
        self,
        name: str,
        model: str,
        existing_model: str | None = None,
        filter_columns: Sequence[str] | None = None,
        existing_filter_columns: Sequence[str] | None = None,
    ) -> None:
        self.name, self.model, self.existing_model = name, model, existing_model
        self.filter_columns = filter_columns
        self.existing_filter_columns = existing_filter_columns

    def _statements(self) -> list[str]:
        return [statements.swap_statement(self.name, self.model, self.filter_columns)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        names = ("existing_model", "filter_columns", "existing_filter_columns")
        named = {name: value for name in names if (value := getattr(self, name)) is not None}
        return "swap_hash_model", [self.name, self.model], named

    def reverse(self) -> "SwapHashModelOp":
        """Return the operation that restores the previous model."""
        if self.existing_model is None:
            raise InvalidInputError(
                f"operation cannot be reversed: swap_hash_model({self.name!r}, {self.model!r}) "
                "does not say which model the index had; give it existing_model too"
            )
        if self.filter_columns is not None and self.existing_filter_columns is None:
            raise InvalidInputError(
                f"operation cannot be reversed: swap_hash_model({self.name!r}, {self.model!r}) "
                "does not say which filter columns the index had; give it existing_filter_columns "
                "too"
            )
        return SwapHashModelOp(
            self.name,
            self.existing_model,
            self.model,
            self.existing_filter_columns,
            self.filter_columns,
        )


class ConfigureHashIndexOp(_IndexOp):
    """Change how an index is searched by default."""

    _shown = "configure_hash_index"

    def __init__(
        self, name: str, settings: dict[str, Any], existing: dict[str, Any] | None = None
    ) -> None:
        unknown = {*settings, *(existing or {})} - {*SETTINGS}
        if unknown or not settings:
            raise InvalidInputError(
                f"index {name!r} is configured by access, ranking, candidates and probes, got "
                f"{', '.join(sorted(unknown)) or 'none of them'}"
            )
        self.name, self.settings, self.existing = name, settings, existing or {}

    def _statements(self) -> list[str]:
        return statements.configure_statements(self.name, self.settings)

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        existing = {f"existing_{name}": value for name, value in self.existing.items()}
        return "configure_hash_index", [self.name], self.settings | existing

    def reverse(self) -> "ConfigureHashIndexOp":
        """Return the operation that restores the settings."""
        if not self.existing:
            raise InvalidInputError(
                f"operation cannot be reversed: configure_hash_index({self.name!r}, ...) does not "
                "say how the index was configured; give it existing_access and the like too"
            )
        return ConfigureHashIndexOp(self.name, self.existing, self.settings)


class ChangeHashIndexOps(OpContainer):
    """Another model and other settings; the model goes first in both directions."""

    def reverse(self) -> "ChangeHashIndexOps":
        """Return the operations that restore the model, and then the settings."""
        return ChangeHashIndexOps([operation.reverse() for operation in self.ops])


class ModelFunctionsOp(_IndexOp):
    """Make or drop the functions of a model."""

    def __init__(self, model: str, verb: Literal["create", "drop"]) -> None:
        self.model, self.verb = code_function(model)[0], verb

    def _statements(self) -> list[str]:
        return [statements.function_call(f"{self.verb}_functions", {"model": self.model})]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return f"{self.verb}_model_functions", [self.model], {}

    def reverse(self) -> "ModelFunctionsOp":
        """Return the operation that drops, or makes, them."""
        return ModelFunctionsOp(self.model, "create" if self.verb == "drop" else "drop")


class InstallHashIndexOp(_Op):
    """Install schema hashindex, or bring it up to this release."""

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "install_hashindex", [], {}

    def reverse(self) -> "UninstallHashIndexOp":
        """Return the operation that removes it."""
        return UninstallHashIndexOp()


class UninstallHashIndexOp(_Op):
    """Remove schema hashindex."""

    def __init__(self, *, drop_models: bool = False) -> None:
        self.drop_models = drop_models

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "uninstall_hashindex", [], {"drop_models": True} if self.drop_models else {}

    def reverse(self) -> InstallHashIndexOp:
        """Return the operation that installs it."""
        return InstallHashIndexOp()


@Operations.implementation_for(_IndexOp)
def _run(operations: Operations, operation: _IndexOp) -> None:
    context = operations.migration_context
    if context.as_sql:
        for text in operation._statements():
            context.impl.static_output(f"{text};")
        return
    connection = operations.get_bind()
    with translated_errors(), statements.noticed(connection, _log.warning):
        for text in operation._statements():
            statements.run(connection, text)


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


@renderers.dispatch_for(ChangeHashIndexOps)
def _render_changes(context: AutogenContext, operation: ChangeHashIndexOps) -> list[str]:
    return [_render(context, inner) for inner in operation.ops if isinstance(inner, _Op)]


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


class _Settings(TypedDict, total=False):
    access: Access | None
    ranking: Ranking | None
    candidates: int | None
    probes: int | None
    existing_access: Access | None
    existing_ranking: Ranking | None
    existing_candidates: int | None
    existing_probes: int | None


@_runs
def create_hash_index(
    name: str,
    table: str,
    column: str,
    *,
    model: str,
    encode: bool = True,
    **options: Unpack[PlacedIndexOptions],
) -> _Op:
    """Make an index, and encode the rows of its table, in the migration's transaction.

    Writers wait until that ends, so for a large table leave the encoding to ``pg-hashindex index
    encode``. That also encodes by models that are evaluated in Python, and builds access paths;
    until then searches scan all codes.

    Parameters
    ----------
    name
        1 to 40 letters a to z, digits, ``_`` and ``-``.
    table, column
        By their bare names.
    model
        ``name`` (its latest version) or ``name:version``.
    encode
        Whether to encode the rows that are there.
    schema : str, optional
        The schema of the table; found by the search_path by default.
    key, metric, access, ranking, candidates, probes, filter_columns, tenant : optional
        As `pg_hashindex.contrib.sqlalchemy.HashIndex`.
    trust_owner : optional
        As `pg_hashindex.contrib.sqlalchemy.HashIndex`.
    defer : bool
        Whether to do nothing, with a warning, if the model does not exist or the index exists
        already.

    Raises
    ------
    MissingSchemaError, UnknownModelError, InvalidInputError, DuplicateNameError
        The whole migration fails then.
    """
    return CreateHashIndexOp(IndexSpec(name, table, column, model, **options), encode=encode)


@_runs
def drop_hash_index(
    name: str,
    *,
    if_exists: bool = False,
    table: str | None = None,
    column: str | None = None,
    model: str | None = None,
    **options: Unpack[PlacedIndexOptions],
) -> _Op:
    """Drop an index with its codes; table and model stay.

    Parameters
    ----------
    if_exists
        Whether to do nothing if there is no such index.
    table, column, model, schema, key, metric, access, ranking, candidates, probes,
    filter_columns, tenant, defer, trust_owner : optional
        The settings of the index, so that the operation can be reversed; not needed to drop it.

    Raises
    ------
    UnknownIndexError
        If there is no such index, without if_exists.
    """
    if table is None or column is None or model is None:
        was = {"table": table, "column": column, "model": model, **options}
        given = [key for key, value in was.items() if value is not None]
        if given:
            raise InvalidInputError(
                f"to say what index {name!r} was takes table, column and model; got "
                f"{', '.join(given)}"
            )
        return DropHashIndexOp(name, if_exists=if_exists)
    return DropHashIndexOp(
        name, IndexSpec(name, table, column, model, **options), if_exists=if_exists
    )


@_runs
def swap_hash_model(
    name: str,
    model: str,
    *,
    existing_model: str | None = None,
    filter_columns: Sequence[str] | None = None,
    existing_filter_columns: Sequence[str] | None = None,
) -> _Op:
    """Give an index another model, or other filter columns, in the migration's transaction.

    Writers wait until the migration ends. For a large table run ``pg-hashindex index swap`` before
    it: if the index has model and filter columns already, nothing is done. Recall is not compared.
    The old codes stay, so that a downgrade can return to them, until ``pg-hashindex index prune``
    or the next swap drops them.

    Parameters
    ----------
    model
        ``name`` (its latest version) or ``name:version``, of the same dimension; one that SQL
        evaluates.
    existing_model
        The model before, so that the operation can be reversed.
    filter_columns
        The columns that are copied beside the codes from then on; by default they stay.
    existing_filter_columns
        Those before, so that the operation can be reversed.

    Raises
    ------
    UnknownIndexError, UnknownModelError, InvalidInputError
        If the model cannot serve the index, or is evaluated in Python.
    InUseError
        If another swap of the index is under way.
    """
    return SwapHashModelOp(name, model, existing_model, filter_columns, existing_filter_columns)


@_runs
def configure_hash_index(
    name: str,
    **settings: Unpack[_Settings],
) -> _Op:
    """Change the defaults of searches; None leaves a setting as it is.

    The migration does not build another access path: ``pg-hashindex index encode`` does.
    ``pg-hashindex index repair`` drops landmarks that are no longer used.

    Parameters
    ----------
    access, ranking, candidates, probes : str or int, optional
        As `pg_hashindex.HashIndex.configure`.
    existing_access, existing_ranking, existing_candidates, existing_probes : str or int
        The settings before, so that the operation can be reversed.

    Raises
    ------
    UnknownIndexError, InvalidInputError
        If a value is out of range, or the index or its model cannot serve it.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    existing = {key: value for key, value in given.items() if key.startswith("existing_")}
    return ConfigureHashIndexOp(
        name,
        {key: value for key, value in given.items() if key not in existing},
        {key.removeprefix("existing_"): value for key, value in existing.items()},
    )


@_runs
def create_model_functions(model: str) -> _Op:
    """Make the functions ``code_NAME`` and ``project_NAME`` of a model, for indexes of pgvector.

    Parameters
    ----------
    model
        ``name``, which is its version 1, or ``name:version``.

    Raises
    ------
    UnknownModelError, DatabaseStateError
        If there is no such model, or it cannot be a function.
    """
    return ModelFunctionsOp(model, "create")


@_runs
def drop_model_functions(model: str) -> _Op:
    """Drop the functions of a model; refused while an index or a column uses them.

    Parameters
    ----------
    model
        As `create_model_functions`.

    Raises
    ------
    UnknownModelError, InUseError
    """
    return ModelFunctionsOp(model, "drop")


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
