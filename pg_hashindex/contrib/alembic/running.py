"""What the operations do: the same statements run in a migration, or are written to its script."""

import logging

from alembic.operations import Operations

from ...db import schema
from ...db.connection import translated_errors
from ...errors import InvalidInputError
from ..sqlalchemy import statements
from .operations import (
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    InstallHashIndexOp,
    SwapHashModelOp,
    UninstallHashIndexOp,
)

__all__: list[str] = []

_log = logging.getLogger("alembic.pg_hashindex")


def _run(operations: Operations, *texts: str) -> None:
    context = operations.migration_context
    if context.as_sql:
        for text in texts:
            context.impl.static_output(f"{text};")
        return
    connection = operations.get_bind()
    with translated_errors(), statements.noticed(connection, _log.warning):
        for text in texts:
            statements.run(connection, text)


@Operations.implementation_for(CreateHashIndexOp)
def _create(operations: Operations, operation: CreateHashIndexOp) -> None:
    _run(operations, statements.create_statement(operation.spec, encode=operation.encode))


@Operations.implementation_for(DropHashIndexOp)
def _drop(operations: Operations, operation: DropHashIndexOp) -> None:
    _run(operations, statements.drop_statement(operation.name, if_exists=operation.if_exists))


@Operations.implementation_for(SwapHashModelOp)
def _swap(operations: Operations, operation: SwapHashModelOp) -> None:
    _run(operations, statements.swap_statement(operation.name, operation.model))


@Operations.implementation_for(ConfigureHashIndexOp)
def _configure(operations: Operations, operation: ConfigureHashIndexOp) -> None:
    _run(operations, *statements.configure_statements(operation.name, operation.settings))


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
    schema.downgrade(operations.get_bind())
