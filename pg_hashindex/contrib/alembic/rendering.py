"""Operations as the lines of a generated revision."""

from typing import Any

from alembic.autogenerate import renderers
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation

from ..sqlalchemy.specification import IndexSpec
from .operations import (
    ChangeHashIndexOps,
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    InstallHashIndexOp,
    SwapHashModelOp,
    UninstallHashIndexOp,
)

__all__: list[str] = []


def _call(context: AutogenContext, function: str, *values: Any, **named: Any) -> str:
    """Write a call: of a method of ``op``, or of the typed function of that name."""
    arguments = [repr(value) for value in values]
    arguments += [f"{name}={value!r}" for name, value in named.items()]
    if context.opts.get("typed_hash_indexes"):
        context.imports.add(f"from pg_hashindex.contrib.alembic import {function}")
        return f"{function}({', '.join(arguments)})"
    # Where env.py does not import it, op has no such method.
    context.imports.add("import pg_hashindex.contrib.alembic  # noqa: F401")
    return f"{context.opts['alembic_module_prefix']}{function}({', '.join(arguments)})"


def _named(spec: IndexSpec) -> dict[str, Any]:
    return {"model": spec.model, **spec.options()}


@renderers.dispatch_for(CreateHashIndexOp)
def _create(context: AutogenContext, operation: CreateHashIndexOp) -> str:
    spec = operation.spec
    encode = {} if operation.encode else {"encode": False}
    return _call(
        context,
        "create_hash_index",
        spec.name,
        spec.table,
        spec.column,
        **_named(spec),
        **encode,
    )


@renderers.dispatch_for(DropHashIndexOp)
def _drop(context: AutogenContext, operation: DropHashIndexOp) -> str:
    spec = operation.spec
    was = {} if spec is None else {"table": spec.table, "column": spec.column, **_named(spec)}
    if_exists = {"if_exists": True} if operation.if_exists else {}
    return _call(context, "drop_hash_index", operation.name, **was, **if_exists)


@renderers.dispatch_for(SwapHashModelOp)
def _swap(context: AutogenContext, operation: SwapHashModelOp) -> str:
    before = operation.existing_model
    existing = {} if before is None else {"existing_model": before}
    return _call(context, "swap_hash_model", operation.name, operation.model, **existing)


@renderers.dispatch_for(ConfigureHashIndexOp)
def _configure(context: AutogenContext, operation: ConfigureHashIndexOp) -> str:
    existing = {f"existing_{name}": value for name, value in operation.existing.items()}
    return _call(context, "configure_hash_index", operation.name, **operation.settings, **existing)


@renderers.dispatch_for(ChangeHashIndexOps)
def _change(context: AutogenContext, operation: ChangeHashIndexOps) -> list[str]:
    return [renderers.dispatch(inner)(context, inner) for inner in operation.ops]


@renderers.dispatch_for(InstallHashIndexOp)
def _install(context: AutogenContext, operation: MigrateOperation) -> str:
    return _call(context, "install_hashindex")


@renderers.dispatch_for(UninstallHashIndexOp)
def _uninstall(context: AutogenContext, operation: MigrateOperation) -> str:
    return _call(context, "uninstall_hashindex")
