"""Autogenerate: compare declared indexes with those of the database."""

import hashlib
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
from alembic import util
from alembic.autogenerate import comparators
from alembic.autogenerate.api import AutogenContext
from alembic.operations import MigrateOperation, ops
from alembic.util import DispatchPriority
from pgvector.sqlalchemy import VECTOR

from ...db.server_errors import translated_errors
from ...db.sql_files import query
from ...index.options import OPTIONS, same_option
from ..sqlalchemy.declared import HashIndex, declared_on
from ..sqlalchemy.specification import LISTS, Configure, Drop, IndexSpec, Swap
from .operations import (
    ConfigureHashIndexOp,
    CreateHashIndexOp,
    DropHashIndexOp,
    SwapHashIndexOp,
)

_log = logging.getLogger("alembic.autogenerate.pg_hashindex")

_INDEXES = query("alembic.indexes")

_HELD = query("alembic.held")

_MODELS = "SELECT m.name, m.version, m.dimension FROM hashindex.model m ORDER BY m.version"


@dataclass(frozen=True)
class Existing:
    """An index of the database; its model with the version."""

    spec: IndexSpec
    dimension: int
    #: The default of its option of that name.
    model_metric: str
    #: Whether its table exists under the name in the catalog.
    is_there: bool
    #: Whether the table's bare name finds it.
    visible: bool


# The part of an index that a change is of, and its operation.
_OPERATIONS: dict[
    type[Swap | Configure], tuple[str, type[SwapHashIndexOp | ConfigureHashIndexOp]]
] = {Swap: ("set", SwapHashIndexOp), Configure: ("settings", ConfigureHashIndexOp)}

# The schema and the name of a table; the schema is None in the default one.
_Place = tuple[str | None, str]
# Dimension by name and version.
_Sizes = dict[tuple[str, int], int]


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
        options = {name: stored[name] for name in OPTIONS if stored.get(name)}
        place = {name: row[name] for name in ("name", "schema", "table", "column", "model")}
        spec = IndexSpec(**place, options=options)
        if spec.schema == default_schema:
            spec = replace(spec, schema=None)
        read = ("dimension", "model_metric", "is_there", "visible")
        rest = {name: row[name] for name in read}
        found[spec.name] = Existing(spec, **rest)
    return found


def _model_sizes(connection: sa.Connection) -> _Sizes:
    """Read the dimensions of models; for each name, the latest version comes last."""
    rows = _read(connection, _MODELS)
    return {(row["name"], row["version"]): row["dimension"] for row in rows}


@comparators.dispatch_for("schema", priority=DispatchPriority.FIRST)
def _leave_what_is_ours(
    context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    """Have alembic not drop the schema, nor what sets have beside the tables of an application."""
    schemas.discard("hashindex")
    held = _held(context)

    def is_compared(item: Any, name: Any, kind: Any, reflected: bool, declared: Any) -> bool:
        return not (reflected and declared is None and kind in ("index", "column")) or (
            (item.table.schema, item.table.name, name) not in held
        )

    context._object_filters.append(is_compared)


def _held(context: AutogenContext) -> set[tuple[str | None, str, str]]:
    """Return schema, table and name of pgvector's indexes and columns of codes of sets."""
    connection = context.connection
    if connection is None or connection.dialect.name != "postgresql":
        return set()
    default_schema = connection.dialect.default_schema_name
    return {
        (schema, row["table"], row["held"])
        for row in _read(connection, _HELD)
        for schema in (
            {_place(row["schema"], "", default_schema)[0]} | ({None} if row["visible"] else set())
        )
    }


# A function of a model's codes in an expression.
_CODE_OF = re.compile(r'hashindex"?\.("[^"]+"|\w+)')


@comparators.dispatch_for("column")
def _warn_of_another_code(
    context: AutogenContext,
    operation: ops.AlterColumnOp,
    schema: str | None,
    table: str,
    column: Any,
    found: sa.Column[Any],
    declared: sa.Column[Any],
) -> None:
    """Name a generated column that keeps the codes of another model than the declared one."""
    computed = [one.server_default for one in (found, declared)]
    texts = [str(one.sqltext) for one in computed if isinstance(one, sa.Computed)]
    was, now = (
        [name.strip('"') for name in _CODE_OF.findall(text)] for text in (*texts, "", "")[:2]
    )
    if was and now and was != now:
        # As alembic warns of other generated columns.
        util.warn(
            f"column {column} of {table} keeps the codes of hashindex.{was[0]}, and is declared "
            f"with hashindex.{now[0]}: change its expression in the revision (PostgreSQL 17), or "
            "declare HashIndex(..., store=True), whose column changes with the model"
        )


@comparators.dispatch_for("schema", priority=DispatchPriority.LAST)
def _compare(
    context: AutogenContext, upgrade_ops: ops.UpgradeOps, schemas: set[str | None]
) -> None:
    connection = context.connection
    if connection is None or connection.dialect.name != "postgresql":
        return
    default_schema = connection.dialect.default_schema_name
    held = _held(context)
    for operation in upgrade_ops.ops:
        if isinstance(operation, ops.CreateTableOp):
            # Otherwise it would be written as an argument.
            operation.info.pop("hash_indexes", None)
        if isinstance(operation, ops.DropTableOp) and operation._reverse is not None:
            # A downgrade makes the index, which makes its column.
            place = (operation.schema, operation.table_name)
            operation._reverse.columns = [
                item
                for item in operation._reverse.columns
                if not (isinstance(item, sa.Column) and (*place, item.name) in held)
            ]
    existing = existing_indexes(connection, default_schema)
    sizes = _model_sizes(connection)
    gone = _dropped_columns(upgrade_ops)
    dropped, made = [], []
    for name, declared, found in _pairs(context, upgrade_ops, existing, default_schema):
        before, after = _changes(name, declared, found, sizes, default_schema, gone)
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
        (name, place): index
        for place, table in tables.items()
        for name, index in declared_on(table).items()
    }
    gone = {
        (operation.schema, operation.table_name)
        for operation in upgrade_ops.ops
        if isinstance(operation, ops.DropTableOp)
    }
    compared = {*gone, *tables}
    existing = {name: _as_compared(found, compared) for name, found in existing.items()}
    paired = set()
    for (name, place), index in sorted(declared.items(), key=lambda item: str(item[0])):
        found = _existing_of(name, place, declared, existing, default_schema)
        paired.add(name if found is None else found.spec.name)
        if found is not None and (trouble := _trouble(name, found, compared)) is not None:
            table = found.spec.qualified_table
            _log.warning("hash index %r is there already, of table %s, %s", name, table, trouble)
            found = None
        item = None if found is None else _as_item(found)
        if context.run_object_filters(index, name, _KIND, False, item):
            yield name, index, found
    for name, found in existing.items():
        if (
            name not in paired
            and found.is_there
            and _place_of(found) in compared
            and context.run_object_filters(_as_item(found), name, _KIND, True, None)
        ):
            yield name, None, found


def _existing_of(
    name: str,
    place: _Place,
    declared: Collection[tuple[str, _Place]],
    existing: dict[str, Existing],
    default_schema: str | None,
) -> Existing | None:
    """Find the index that is declared under a name on a table; it may have a longer name."""
    found = existing.get(name)
    if found is not None and (name, _place_of(found)) in {*declared} - {(name, place)}:
        # Another table declares an index of this name, too.
        found = None
    others = {*existing} - {one for one, _ in declared}
    longer = _longer_names(name, place[0] or default_schema or "")
    second = next((existing[one] for one in longer if one in others), None)
    if second is None or _place_of(second) != place:
        return found
    return found if found is not None and _place_of(found) == place else second


def _trouble(name: str, found: Existing, compared: Collection[_Place]) -> str | None:
    """Say why an index that is there cannot be compared with a declared one, and what to do."""
    if not found.is_there:
        return (
            "which does not exist; if that was renamed, run pg-hashindex index repair, and "
            f"else pg-hashindex index drop, with {name}"
        )
    if _place_of(found) not in compared:
        return "which is not compared; choose another name"
    return None


def _longer_names(name: str, schema: str) -> Iterator[str]:
    """Yield names that ``hashindex._declared_name`` gives where another schema has the name."""
    yield f"{schema}_{name}"
    yield f"{name[:31]}_{hashlib.md5(schema.encode(), usedforsecurity=False).hexdigest()[:8]}"


def _place_of(found: Existing) -> _Place:
    return found.spec.schema, found.spec.table


def _as_compared(found: Existing, compared: Collection[_Place]) -> Existing:
    """Name the table as the metadata does: without its schema if the search_path finds it."""
    place = _place_of(found)
    if place in compared or not found.visible or (None, found.spec.table) not in compared:
        return found
    return replace(found, spec=replace(found.spec, schema=None))


# A kind of object for include_object, beside alembic's own.
_KIND: Any = "hash_index"


def _as_item(found: Existing) -> HashIndex:
    spec = found.spec
    column = sa.Column(spec.column, VECTOR(found.dimension))
    table = sa.Table(spec.table, sa.MetaData(), column, schema=spec.schema)
    return HashIndex(spec.name, table.c[spec.column], model=spec.model, **spec.options)


def _changes(
    name: str,
    declared: HashIndex | None,
    found: Existing | None,
    sizes: _Sizes,
    default_schema: str | None,
    gone: set[tuple[str | None, str, str]],
) -> tuple[list[MigrateOperation], list[MigrateOperation]]:
    """Return the operations before all changes of tables, and those after them."""
    drop: list[MigrateOperation] = [] if found is None else [_drop(name, found)]
    if declared is None:
        _log.info("Detected removed hash index %r", name)
        return drop, []
    spec = replace(
        declared.spec(),
        schema=_place(declared.column.table.schema, "", default_schema)[0],
    )
    _check_dimension(declared, spec, sizes)
    if found is None:
        if spec.defer and spec.model not in (None, "none") and _size(spec, sizes) is None:
            left = "hash index %r is left for later: its model %r does not exist here"
            _log.warning(left, name, spec.model)
            return [], []
        _log.info("Detected added hash index %r", name)
        return [], [CreateHashIndexOp(spec)]
    spec = _with_key(spec, declared, found)
    is_another = _is_another(declared, found, gone)
    changes = [] if is_another else _as_known(spec, found, sizes).changes_from(found.spec)
    if is_another or any(isinstance(change, Drop) for change in changes):
        _log.info("Detected hash index %r, to be recreated", name)
        return drop, [CreateHashIndexOp(spec)]
    made: list[MigrateOperation] = []
    place = {"table": spec.table, "schema": spec.schema}
    for change in changes:
        if isinstance(change, Swap | Configure):
            part, operation = _OPERATIONS[type(change)]
            _log.info("Detected %s of hash index %r: %s", part, name, ", ".join(change.options))
            made.append(operation(name, change.options, change.existing, **place))
    return [], made


def _drop(name: str, found: Existing) -> DropHashIndexOp:
    """Return the operation that drops an index, and can make it again."""
    options = {**found.spec.options}
    if options.get("metric") == found.model_metric:
        del options["metric"]
    return DropHashIndexOp(name, replace(found.spec, options=options))


def _with_key(spec: IndexSpec, declared: HashIndex, found: Existing) -> IndexSpec:
    """Name the primary key, by which searches join their answers, if the declaration names none."""
    primary = [column.name for column in declared.column.table.primary_key]
    kept = spec.options.get("key_columns", primary)
    has = found.spec.options["key_columns"]
    if not {*has} <= {column.name for column in declared.column.table.c}:
        renamed = (
            "hash index %r has the key %s: if a column was renamed, run pg-hashindex index repair"
        )
        _log.warning(renamed, spec.name, ", ".join(has))
    elif kept and not same_option(kept, has):
        return replace(spec, options=spec.options | {"key_columns": kept})
    return spec


def _is_another(
    declared: HashIndex, found: Existing, gone: set[tuple[str | None, str, str]]
) -> bool:
    """Return whether no change of options can make an index the declared one."""
    # Triggers and searches read these columns.
    read = [*found.spec.options["key_columns"], found.spec.options.get("tenant")]
    return declared.dimension not in (None, found.dimension) or any(
        (found.spec.schema, found.spec.table, column) in gone for column in read
    )


def _dropped_columns(upgrade_ops: ops.UpgradeOps) -> set[tuple[str | None, str, str]]:
    """Return schema, table and name of each column that is dropped."""
    return {
        (operation.schema, operation.table_name, operation.column_name)
        for changed in upgrade_ops.ops
        if isinstance(changed, ops.ModifyTableOps)
        for operation in changed.ops
        if isinstance(operation, ops.DropColumnOp)
    }


def _as_known(spec: IndexSpec, found: Existing, sizes: _Sizes) -> IndexSpec:
    """Name the model as this database has it, or not at all if it does not have it."""
    was, access = found.spec.model, found.spec.options.get("access")
    if access is None and "access" in spec.options:
        # Pgvector does not index vectors of that dimension.
        spec = replace(spec, options={k: v for k, v in spec.options.items() if k != "access"})
    if spec.model in (None, "none", was):
        return spec
    newest = max((version for name, version in sizes if name == spec.model), default=None)
    if newest is not None:
        # A model that was trained again: a set of pgvector takes it without a command.
        return spec if access in LISTS else replace(spec, model=f"{spec.model}:{newest}")
    if _size(spec, sizes) is None:
        left = (
            "hash index %r keeps model %r: %r does not exist here; bring it in, and generate again"
        )
        _log.warning(left, spec.name, was, spec.model)
        return replace(spec, model=None)
    return spec


def _size(spec: IndexSpec, sizes: _Sizes) -> int | None:
    if spec.model is None:
        return None
    name, _, version = spec.model.partition(":")
    of_name = {key[1]: size for key, size in sizes.items() if key[0] == name}
    return of_name.get(int(version)) if version else of_name.get(max(of_name, default=0))


def _check_dimension(declared: HashIndex, spec: IndexSpec, sizes: _Sizes) -> None:
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


def _place(schema: str | None, table: str, default_schema: str | None) -> _Place:
    return (None if schema == default_schema else schema, table)
