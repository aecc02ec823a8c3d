"""The operations of alembic's migrations: how they run, and how revisions write and reverse them.

The same statements run in a migration, or are written to its script.
"""

import logging
from typing import Any

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import BatchOperations, MigrateOperation, Operations
from alembic.operations.ops import OpContainer

from ...db import schema
from ...db.connection import translated_errors
from ...errors import InvalidInputError
from ..sqlalchemy import statements
from ..sqlalchemy.specification import IndexSpec

__all__ = [
    "ChangeHashIndexOps",
    "ConfigureHashIndexOp",
    "CreateHashIndexOp",
    "DropHashIndexOp",
    "InstallHashIndexOp",
    "SwapHashModelOp",
    "UninstallHashIndexOp",
]

_log = logging.getLogger("alembic.pg_hashindex")


class _Op(MigrateOperation):
    def _statements(self) -> list[str]:
        """Return the SQL of the operation."""
        raise NotImplementedError

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        """Return the function that a revision calls, and its arguments."""
        raise NotImplementedError


def _flushed(operations: BatchOperations) -> Any:
    """Run the operations that a batch has gathered, to keep their order; return the batch."""
    batch: Any = operations.impl
    batch.flush()
    batch.batch.clear()
    return batch


@Operations.register_operation("create_hash_index")
@BatchOperations.register_operation("create_hash_index", "batch_create_hash_index")
class CreateHashIndexOp(_Op):
    """Make an index, and encode the rows of its table."""

    def __init__(self, spec: IndexSpec, *, encode: bool = True) -> None:
        spec.check()
        self.spec, self.encode = spec, encode

    @classmethod
    def create_hash_index(
        cls,
        operations: Any,
        name: str,
        table: str,
        column: str,
        *,
        model: str,
        encode: bool = True,
        **options: Any,
    ) -> None:
        """Make an index; see `pg_hashindex.contrib.alembic.create_hash_index`."""
        operations.invoke(cls(IndexSpec(name, table, column, model, **options), encode=encode))

    @classmethod
    def batch_create_hash_index(
        cls, operations: BatchOperations, name: str, column: str, *, model: str, **options: Any
    ) -> None:
        """Make an index of the table of a batch, after the batch's earlier operations."""
        batch = _flushed(operations)
        options.setdefault("schema", batch.schema)
        table = batch.table_name
        cls.create_hash_index(batch.operations, name, table, column, model=model, **options)

    def _statements(self) -> list[str]:
        return [statements.create_statement(self.spec, encode=self.encode)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named = {"model": spec.model, **spec.options()} | ({} if self.encode else {"encode": False})
        return "create_hash_index", [spec.name, spec.table, spec.column], named

    def reverse(self) -> "DropHashIndexOp":
        """Return the operation that drops it; a deferred index may not exist."""
        return DropHashIndexOp(self.spec.name, self.spec, if_exists=self.spec.defer)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("add_hash_index", self.spec)


@Operations.register_operation("drop_hash_index")
@BatchOperations.register_operation("drop_hash_index", "batch_drop_hash_index")
class DropHashIndexOp(_Op):
    """Drop an index."""

    def __init__(
        self, name: str, spec: IndexSpec | None = None, *, if_exists: bool = False
    ) -> None:
        self.name, self.spec, self.if_exists = name, spec, if_exists

    @classmethod
    def drop_hash_index(
        cls, operations: Any, name: str, *, if_exists: bool = False, **was: Any
    ) -> None:
        """Drop an index; see `pg_hashindex.contrib.alembic.drop_hash_index`."""
        if was and not {"table", "column", "model"} <= was.keys():
            raise InvalidInputError(
                f"to say what index {name!r} was takes table, column and model; got "
                f"{', '.join(was)}"
            )
        operations.invoke(cls(name, IndexSpec(name, **was) if was else None, if_exists=if_exists))

    @classmethod
    def batch_drop_hash_index(cls, operations: BatchOperations, name: str, **options: Any) -> None:
        """Drop an index, after the batch's earlier operations."""
        cls.drop_hash_index(_flushed(operations).operations, name, **options)

    def _statements(self) -> list[str]:
        return [statements.drop_statement(self.name, if_exists=self.if_exists)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        spec = self.spec
        named: dict[str, Any] = {}
        if spec is not None:
            named = {"table": spec.table, "column": spec.column, "model": spec.model}
            named |= spec.options()
        return (
            "drop_hash_index",
            [self.name],
            named | ({"if_exists": True} if self.if_exists else {}),
        )

    def reverse(self) -> CreateHashIndexOp:
        """Return the operation that makes it again."""
        if self.spec is None:
            raise InvalidInputError(
                f"operation cannot be reversed: drop_hash_index({self.name!r}) does not say what "
                "the index was; give it table, column and model too"
            )
        return CreateHashIndexOp(self.spec)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("remove_hash_index", self.spec or self.name)


@Operations.register_operation("swap_hash_model")
class SwapHashModelOp(_Op):
    """Give an index another model."""

    def __init__(self, name: str, model: str, existing_model: str | None = None) -> None:
        self.name, self.model, self.existing_model = name, model, existing_model

    @classmethod
    def swap_hash_model(
        cls, operations: Any, name: str, model: str, *, existing_model: str | None = None
    ) -> None:
        """Give an index another model; see `pg_hashindex.contrib.alembic.swap_hash_model`."""
        operations.invoke(cls(name, model, existing_model))

    def _statements(self) -> list[str]:
        return [statements.swap_statement(self.name, self.model)]

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        before = self.existing_model
        existing = {} if before is None else {"existing_model": before}
        return "swap_hash_model", [self.name, self.model], existing

    def reverse(self) -> "SwapHashModelOp":
        """Return the operation that restores the previous model."""
        if self.existing_model is None:
            raise InvalidInputError(
                f"operation cannot be reversed: swap_hash_model({self.name!r}, {self.model!r}) "
                "does not say which model the index had; give it existing_model too"
            )
        return SwapHashModelOp(self.name, self.existing_model, self.model)

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("swap_hash_model", self.name, self.existing_model, self.model)


@Operations.register_operation("configure_hash_index")
class ConfigureHashIndexOp(_Op):
    """Change how an index is searched by default."""

    def __init__(
        self, name: str, settings: dict[str, Any], existing: dict[str, Any] | None = None
    ) -> None:
        unknown = {*settings, *(existing or {})} - {"access", "ranking", "candidates", "probes"}
        if unknown or not settings:
            raise InvalidInputError(
                f"index {name!r} is configured by access, ranking, candidates and probes, got "
                f"{', '.join(sorted(unknown)) or 'none of them'}"
            )
        self.name, self.settings, self.existing = name, settings, existing or {}

    @classmethod
    def configure_hash_index(cls, operations: Any, name: str, **settings: Any) -> None:
        """Configure an index; see `pg_hashindex.contrib.alembic.configure_hash_index`."""
        given = {key: value for key, value in settings.items() if value is not None}
        before = {key for key in given if key.startswith("existing_")}
        existing = {key.removeprefix("existing_"): given.pop(key) for key in before}
        operations.invoke(cls(name, given, existing))

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

    def to_diff_tuple(self) -> tuple[Any, ...]:
        """Return what ``alembic check`` shows."""
        return ("configure_hash_index", self.name, self.existing, self.settings)


class ChangeHashIndexOps(OpContainer):
    """Another model and other settings; the model goes first in both directions."""

    def reverse(self) -> "ChangeHashIndexOps":
        """Return the operations that restore the model, and then the settings."""
        return ChangeHashIndexOps([operation.reverse() for operation in self.ops])


@Operations.register_operation("install_hashindex")
class InstallHashIndexOp(_Op):
    """Install schema hashindex, or bring it up to this release."""

    @classmethod
    def install_hashindex(cls, operations: Any) -> None:
        """Install schema hashindex; see `pg_hashindex.contrib.alembic.install_hashindex`."""
        operations.invoke(cls())

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "install_hashindex", [], {}

    def reverse(self) -> "UninstallHashIndexOp":
        """Return the operation that removes it."""
        return UninstallHashIndexOp()


@Operations.register_operation("uninstall_hashindex")
class UninstallHashIndexOp(_Op):
    """Remove schema hashindex."""

    def __init__(self, *, drop_models: bool = False) -> None:
        self.drop_models = drop_models

    @classmethod
    def uninstall_hashindex(cls, operations: Any, *, drop_models: bool = False) -> None:
        """Remove schema hashindex; see `pg_hashindex.contrib.alembic.uninstall_hashindex`."""
        operations.invoke(cls(drop_models=drop_models))

    def _call(self) -> tuple[str, list[Any], dict[str, Any]]:
        return "uninstall_hashindex", [], {"drop_models": True} if self.drop_models else {}

    def reverse(self) -> InstallHashIndexOp:
        """Return the operation that installs it."""
        return InstallHashIndexOp()


@Operations.implementation_for(_Op)
def _run(operations: Operations, operation: _Op) -> None:
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
