"""Autogenerate: compare declared indexes with those of the database."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from alembic.autogenerate import comparators
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, ops
from pgvector.sqlalchemy import VECTOR

from ..sqlalchemy.declared import HashIndex, declared_on
from ..sqlalchemy.specification import SETTINGS, IndexSpec
from .catalog import Existing, ModelSize, existing_indexes, model_sizes
from .operations import (
    ChangeHashIndexOps,
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    SwapHashModelOp,
)

_log = logging.getLogger("alembic.autogenerate.pg_hashindex")

# Since alembic 1.18 comparators have an order; in earlier releases ours run after alembic's own.
_first: dict[str, Any] = {}
_last: dict[str, Any] = {}
try:
    from alembic.util import DispatchPriority
except ImportError:  # pragma: no cover
    pass
else:
    _first["priority"] = DispatchPriority.FIRST
    _last["priority"] = DispatchPriority.LAST


# Without a qualifier, since in earlier releases a comparator with one replaces alembic's own.
@comparators.dispatch_for("schema", **_first)
def _leave_our_schema(
    context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    schemas.difference_update({name for name in schemas if _is_ours(name)})


@comparators.dispatch_for("schema", **_last)
def _compare(
    context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    connection = context.connection
    if connection is None or connection.dialect.name != "postgresql":
        return
    default_schema = connection.dialect.default_schema_name
    _leave_out_ours(upgrade_ops)
    existing = existing_indexes(connection, default_schema)
    sizes = model_sizes(connection)
    dropped, made = [], []
    for name, declared, found in _pairs(context, upgrade_ops, existing, default_schema):
        before, after = _changes(name, declared, found, sizes, default_schema)
        dropped += before
        made += after
    upgrade_ops.ops[:] = [*dropped, *upgrade_ops.ops, *made]


def _pairs(
    context: AutogenContext,
    upgrade_ops: ops.UpgradeOps,
    existing: dict[str, Existing],
    default_schema: str | None,
) -> Iterator[tuple[str, HashIndex | None, Existing | None]]:
    """Pair declared indexes with existing ones, for tables that are compared."""
    tables = {
        _place(table.schema, table.name, default_schema): table
        for table in context.sorted_tables
        if context.run_object_filters(table, table.name, "table", False, None)
    }
    declared = {
        name: index for table in tables.values() for name, index in declared_on(table).items()
    }
    gone = {
        (operation.schema, operation.table_name)
        for operation in upgrade_ops.ops
        if isinstance(operation, ops.DropTableOp)
    }
    compared = {*gone, *tables}
    existing = {name: _as_compared(found, compared) for name, found in existing.items()}
    for name, index in sorted(declared.items()):
        found = existing.get(name)
        trouble = None
        if found is not None and not found.is_there:
            trouble = (
                "which does not exist; if that was renamed, run pg-hashindex index rebind, and "
                f"else pg-hashindex index drop, with {name}"
            )
        elif found is not None and (found.spec.schema, found.spec.table) not in compared:
            trouble = "which is not compared; choose another name"
        if found is not None and trouble is not None:
            table = found.spec.qualified_table
            _log.warning("hash index %r is there already, of table %s, %s", name, table, trouble)
            found = None
        if context.run_object_filters(
            index, name, _KIND, False, None if found is None else _as_item(found)
        ):
            yield name, index, found
    for name, found in existing.items():
        if (
            name not in declared
            and found.is_there
            and (found.spec.schema, found.spec.table) in compared
            and context.run_object_filters(_as_item(found), name, _KIND, True, None)
        ):
            yield name, None, found


def _as_compared(found: Existing, compared: set[tuple[str | None, str]]) -> Existing:
    """Name the table as the metadata does: without its schema if the search_path finds it."""
    place = (found.spec.schema, found.spec.table)
    if place in compared or not found.visible or (None, found.spec.table) not in compared:
        return found
    return replace(found, spec=replace(found.spec, schema=None))


# A kind of object for include_object, beside alembic's own.
_KIND: Any = "hash_index"


def _as_item(found: Existing) -> HashIndex:
    spec = found.spec
    options = {key: value for key, value in spec.options().items() if key != "schema"}
    column = sa.Column(spec.column, VECTOR(found.dimension))
    table = sa.Table(spec.table, sa.MetaData(), column, schema=spec.schema)
    return HashIndex(spec.name, table.c[spec.column], model=_model(found), **options)


def _changes(
    name: str,
    declared: HashIndex | None,
    found: Existing | None,
    sizes: ModelSize,
    default_schema: str | None,
) -> tuple[list[MigrateOperation], list[MigrateOperation]]:
    """Return the operations before all changes of tables, and those after them."""
    drop: list[MigrateOperation] = []
    if found is not None:
        drop = [DropHashIndexOp(name, _to_be_made(found))]
    if declared is None:
        _log.info("Detected removed hash index %r", name)
        return drop, []
    spec = replace(
        declared.spec(),
        schema=_place(declared.column.table.schema, "", default_schema)[0],
    )
    _check_dimension(declared, spec, sizes)
    if found is None:
        if spec.defer and _size(spec, sizes) is None:
            left = "hash index %r is left for later: its model %r does not exist here"
            _log.warning(left, name, spec.model)
            return [], []
        _log.info("Detected added hash index %r", name)
        return [], [CreateHashIndexOp(spec)]
    if _is_another(spec, found) or declared.dimension not in (None, found.dimension):
        _log.info("Detected hash index %r, to be recreated", name)
        return drop, [CreateHashIndexOp(spec)]
    changes: list[MigrateOperation] = []
    changes += _swap(spec, found, sizes)
    settings = {
        key: value
        for key in SETTINGS
        if (value := getattr(spec, key)) not in (None, getattr(found.spec, key))
    }
    if settings:
        _log.info("Detected settings of hash index %r: %s", name, ", ".join(settings))
        # Another access path has no probes.
        lost = {*settings, "probes"} if "access" in settings else {*settings}
        before = {
            key: value
            for key in SETTINGS
            if key in lost and (value := getattr(found.spec, key)) is not None
        }
        changes.append(ConfigureHashIndexOp(name, settings, before))
    return [], [ChangeHashIndexOps(changes)] if len(changes) > 1 else changes


def _swap(spec: IndexSpec, found: Existing, sizes: ModelSize) -> list[MigrateOperation]:
    """Return the one operation for another model and other filter columns, if there are any."""
    model, filters = _model(found), None
    if spec.model not in (found.spec.model, model):
        model = spec.model
    if spec.filter_columns is not None:
        # An index keeps the column of tenants besides.
        wanted = [name for name in spec.filter_columns if name != spec.tenant]
        if not _same(wanted, found.spec.filter_columns):
            filters = wanted
    if model == _model(found) and filters is None:
        return []
    if _size(replace(spec, model=model), sizes) is None:
        left = (
            "hash index %r keeps model %r: %r does not exist here; bring it in, and generate again"
        )
        _log.warning(left, spec.name, _model(found), model)
        model = _model(found)
        if filters is None:
            return []
    _log.info("Detected model or filter columns of hash index %r", spec.name)
    before = None if filters is None else list(found.spec.filter_columns or ())
    return [SwapHashModelOp(spec.name, model, _model(found), filters, before)]


def _is_another(spec: IndexSpec, found: Existing) -> bool:
    was = found.spec
    place = attrgetter("schema", "table", "column", "tenant")
    if spec.key_columns is not None and not _same(spec.key_columns, was.key_columns):
        return True
    return place(spec) != place(was) or spec.metric not in (None, was.metric)


def _same(names: Sequence[str], others: Sequence[str] | None) -> bool:
    """Return whether columns are the same, in any order."""
    return sorted(names) == sorted(others or ())


def _to_be_made(found: Existing) -> IndexSpec:
    """Return the operation that makes an index again as it was."""
    as_usual: dict[str, Any] = {
        key: None for key, value in found.defaults.items() if getattr(found.spec, key) == value
    }
    return replace(found.spec, model=_model(found), **as_usual)


def _model(found: Existing) -> str:
    return f"{found.spec.model}:{found.version}"


def _size(spec: IndexSpec, sizes: ModelSize) -> int | None:
    name, _, version = spec.model.partition(":")
    of_name = {key[1]: size for key, size in sizes.items() if key[0] == name}
    return of_name.get(int(version)) if version else of_name.get(max(of_name, default=0))


def _check_dimension(declared: HashIndex, spec: IndexSpec, sizes: ModelSize) -> None:
    size = _size(spec, sizes)
    if None not in (size, declared.dimension) and size != declared.dimension:
        _log.warning(
            "hash index %r cannot be made: model %r takes %s dimensions, column %s is declared "
            "with %s; train a model on the changed column before the revision is run",
            spec.name,
            spec.model,
            size,
            declared.column,
            declared.dimension,
        )


def _place(schema: str | None, table: str, default_schema: str | None) -> tuple[str | None, str]:
    return (None if schema == default_schema else schema, table)


def _is_ours(schema: str | None) -> bool:
    return schema == "hashindex"


def _leave_out_ours(upgrade_ops: ops.UpgradeOps) -> None:
    """Remove what belongs to hash indexes from alembic's own operations."""
    upgrade_ops.ops[:] = [
        operation
        for operation in upgrade_ops.ops
        if not _is_ours(getattr(operation, "schema", None))
    ]
    for operation in upgrade_ops.ops:
        if isinstance(operation, ops.CreateTableOp):
            # Otherwise it would be written as an argument.
            operation.info.pop("hash_indexes", None)
