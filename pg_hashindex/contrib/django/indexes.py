"""Indexes declared in ``Meta.indexes``: what migrations run for them, and what is refused."""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import psycopg
from django.apps import apps
from django.core import checks
from django.db import connections, models, router
from django.db.backends.utils import split_identifier
from django.db.migrations.loader import MigrationLoader
from django.db.models.signals import post_migrate
from pgvector.django import HalfVectorField, VectorField
from psycopg import sql

from ...db.server_errors import warning_of
from ...db.sql_files import query
from ...errors import InvalidInputError
from ...index.options import OPTIONS
from ..sqlalchemy.specification import Configure, DeclaredOptions, IndexSpec, Swap
from ..sqlalchemy.statements import (
    configure_statement,
    create_statement,
    drop_statement,
    name_on,
    swap_statement,
)

_log = logging.getLogger("pg_hashindex.django")

DROP_LEFT = query("django.left")


class _Fields(list[str]):
    """The fields of an index, unlike those of an index of another name.

    Otherwise the autodetector would rename the index, by ``ALTER INDEX``.
    """

    def __init__(self, fields: Sequence[str], of: str) -> None:
        super().__init__(fields)
        self.of = of

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and self.of == getattr(other, "of", self.of)


class HashIndex(models.Index):  # type: ignore[misc]
    """An index of vectors or of codes, for ``Meta.indexes`` of a model.

    Migrations create it in their transaction, and give it another set if only ``model``,
    ``access``, ``store`` or ``code_column`` changes. For lists (access ``lists`` or ``scan``) of a
    table with vectors they warn with the command that encodes the rows; until it has run, searches
    are exact, and an index keeps its former model.

    Parameters
    ----------
    fields
        One field, a ``VectorField`` or ``HalfVectorField`` of pgvector.django.
    model : str, optional
        A saved hash model: ``name`` for any version, or ``name:version``; ``none`` for the vectors
        themselves. As in ``hashindex.create_index``, a model is trained if none is named, and a
        table of fewer than 1,000 rows gets its vectors.
    name
        1 to 40 letters a to z, digits, ``_`` and ``-``, unique in the database; Django makes
        one by default.
    **options
        As `pg_hashindex.contrib.sqlalchemy.HashIndex`, with fields in place of columns.

    Raises
    ------
    InvalidInputError
        If it is declared on expressions or several fields, with an option of B-trees, or with a
        value that is unknown.
    """

    max_name_length = 40

    def __init__(
        self,
        *expressions: Any,
        fields: Sequence[str] = (),
        model: str | None = None,
        name: str | None = None,
        **options: Any,
    ) -> None:
        named = f"hash index {name!r}" if name else "a hash index"
        given = ["expressions"] * bool(expressions) + [*options]
        unknown = [
            option for option in given if option not in {*OPTIONS, *DeclaredOptions.__annotations__}
        ]
        if unknown:
            raise InvalidInputError(f"{named} takes no {', '.join(unknown)}; give it fields=[...]")
        if len(fields) != 1 or str(fields[0]).startswith("-"):
            raise InvalidInputError(f"{named} is on one field of vectors, got {list(fields)}")
        super().__init__(fields=fields, name=name)
        self.model, self.options = model, options
        # Django fills the names of an abstract model's indexes in later.
        filled = str(name or "index").replace("%(app_label)s", "a").replace("%(class)s", "c")
        IndexSpec.declared(filled, "", fields[0], model, **options)

    def deconstruct(self) -> Any:
        """Return what a migration writes."""
        path, _, kwargs = super().deconstruct()
        path = path.replace(".django.indexes.", ".django.")
        model = {} if self.model is None else {"model": self.model}
        kwargs |= {"fields": _Fields(self.fields, self.name), **model, **self.options}
        return path, (), kwargs

    def spec(self, model: type[models.Model]) -> IndexSpec:
        """Return the declaration with the names that the database has, or refuse the model."""
        for error in self.errors(model):
            raise InvalidInputError(error)
        meta, options = model._meta, self.options
        schema, table = split_identifier(meta.db_table)

        def column(name: str) -> str:
            return str(meta.get_field(name).column)

        spec = IndexSpec.declared(self.name, table, column(self.fields[0]), self.model, **options)
        return replace(spec.with_columns(column), schema=schema or None)

    def errors(self, model: type[models.Model]) -> Iterator[str]:
        """Say why a model cannot have the index."""
        named, meta = f"hash index {self.name!r} of {model._meta.label}", model._meta
        local = {field.name: field for field in meta.local_concrete_fields}
        named_fields = [*self.fields]
        for option, value in self.options.items():
            if option in OPTIONS and OPTIONS[option].columns and value is not None:
                named_fields += [value] if isinstance(value, str) else value
        for name in named_fields:
            if name not in local:
                yield f"{named} names {name!r}, which is not a field of the model's own table"
        field = local.get(self.fields[0])
        if field is not None and not isinstance(field, VectorField | HalfVectorField):
            yield (
                f"{named} is on field {field.name!r}, a {type(field).__name__}; it needs a "
                "VectorField or HalfVectorField"
            )

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **options: Any) -> str:
        """Return SQL that makes the index, or changes the one that the migration has removed."""
        spec = self._allowed(model, schema_editor.connection, **options)
        if not schema_editor.collect_sql:
            _tell_warnings(schema_editor.connection)
        first = DROP_LEFT.format(_literal([self.name]))
        for removed in schema_editor.deferred_sql:
            if isinstance(removed, _Removed) and removed.name == self.name:
                schema_editor.deferred_sql.remove(removed)
                changes = removed.changes_to(spec)
                if changes is not None:
                    return ";\n".join(changes)
                first = str(removed)
                break
        return f"{first};\n{create_statement(spec)}"

    def remove_sql(self, model: Any, schema_editor: Any, **options: Any) -> str:
        """Have the index dropped when the migration ends, unless it is added again before that."""
        spec = self._allowed(model, schema_editor.connection, **options)
        schema_editor.deferred_sql.append(_Removed(spec))
        named = _named(spec)
        found = (
            "hashindex.index" if spec.defer else f"hashindex.find_index({named.as_string(None)})"
        )
        return f"SELECT i.name FROM {found} i {_where(named)}"  # noqa: S608

    def _allowed(self, model: Any, connection: Any, *, concurrently: bool = False) -> IndexSpec:
        if concurrently:
            raise InvalidInputError(
                f"hash index {self.name!r} cannot be made or removed concurrently; write AddIndex "
                "and RemoveIndex, and for a large table declare it with defer=True and make it "
                "with: pg-hashindex index create"
            )
        refuse_vendor(connection, f"hash index {self.name!r} of {model._meta.label}")
        return self.spec(model)

    def __repr__(self) -> str:
        return f"<HashIndex: name={self.name!r} fields={self.fields!r} model={self.model!r}>"


class _Removed:
    """A removed index, among the statements that run when its migration ends."""

    def __init__(self, spec: IndexSpec) -> None:
        self.spec, self.name = spec, spec.name

    def __str__(self) -> str:
        spec = self.spec
        return drop_statement(self.name, table=spec.table, schema=spec.schema, if_exists=spec.defer)

    def changes_to(self, spec: IndexSpec) -> list[str] | None:
        """Return SQL that changes it to another one, or None if it has to be dropped and made."""
        # Unlike a setting, neither stays when it is no longer declared: searches join their answers
        # by the declared key.
        if {"key_columns", "metric"} & {*self.spec.options} - {*spec.options}:
            return None
        named, changes = _named(spec), []
        for change in spec.changes_from(self.spec):
            match change:
                case Swap(options):
                    changes.append(swap_statement(named, options))
                case Configure(options):
                    changes.append(configure_statement(named, options))
                case _:
                    return None
        # A deferred index may not exist.
        changes = [f"{change} FROM hashindex.index i {_where(named)}" for change in changes]
        return [*changes, create_statement(spec)] if spec.defer else changes or ["SELECT"]


def _literal(value: Any) -> str:
    return sql.Literal(value).as_string(None)


def _named(spec: IndexSpec) -> sql.Composed:
    """Return SQL for the name of an index, which a second schema puts its own name before."""
    return name_on(spec.name, spec.table, spec.schema)


def _where(named: sql.Composable) -> str:
    return f"WHERE i.name = {named.as_string(None)}"


def refuse_vendor(connection: Any, what: str) -> None:
    """Refuse a database that is not PostgreSQL."""
    if connection.vendor != "postgresql":
        raise InvalidInputError(
            f"{what} needs PostgreSQL, and database {connection.alias!r} is "
            f"{connection.display_name}; route the model to another one"
        )


def _tell_warnings(connection: Any) -> None:
    connection.ensure_connection()
    with contextlib.suppress(ValueError):
        connection.connection.remove_notice_handler(_warn)
    connection.connection.add_notice_handler(_warn)


def _warn(diagnosis: psycopg.errors.Diagnostic) -> None:
    if warning := warning_of(diagnosis):
        _log.warning("%s", warning)


def _declared(registry: Any) -> Iterator[tuple[type[models.Model], HashIndex]]:
    for model in registry.get_models():
        for index in model._meta.indexes:
            if isinstance(index, HashIndex):
                yield model, index


def _check(app_configs: Any, databases: Any = None, **_: Any) -> list[checks.Error]:
    found = []
    for model, index in _declared(apps):
        if app_configs is None or model._meta.app_config in app_configs:
            errors = [*index.errors(model)]
            found += [(model, error) for error in errors]
            for alias in () if errors else databases or ():
                if router.allow_migrate_model(alias, model):
                    try:
                        index._allowed(model, connections[alias])
                    except InvalidInputError as error:
                        found.append((model, str(error)))
    return [checks.Error(error, obj=model, id="hashindex.E001") for model, error in found]


def _last_sender() -> Any:
    """Return the last of the apps that send ``post_migrate``, as each with models does."""
    return [app for app in apps.get_app_configs() if app.models_module is not None][-1]


def _drop_leftovers(sender: Any, using: str, plan: Any = (), apps: Any = apps, **_: Any) -> None:
    """Drop the indexes of migrations whose table and declaration are gone."""
    if not plan or connections[using].vendor != "postgresql" or sender is not _last_sender():
        return
    loader = MigrationLoader(None, load=False)
    loader.load_disk()
    operations = [each for found in loader.disk_migrations.values() for each in found.operations]
    indexes = [getattr(each, "index", None) for each in operations]
    for each in operations:
        indexes += getattr(each, "options", {}).get("indexes", ())
    names = {index.name for index in indexes if isinstance(index, HashIndex)}
    names -= {index.name for _, index in _declared(apps)}
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT to_regclass('hashindex.index') IS NOT NULL")
        if names and cursor.fetchone() == (True,):
            cursor.execute(DROP_LEFT.format(_literal(sorted(names))))


checks.register(_check, checks.Tags.models)
post_migrate.connect(_drop_leftovers)
