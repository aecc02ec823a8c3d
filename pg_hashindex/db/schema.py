"""Schema ``hashindex``: its tables by alembic, its types and functions by replaying ``sql/``.

Both run in one transaction of the caller's connection, so a failure leaves what was there before.
An application's own alembic installs it from a revision of its own::

    from alembic import op
    from pg_hashindex import schema

    def upgrade():
        schema.upgrade(op.get_bind())

    def downgrade():
        schema.downgrade(op.get_bind())
"""

import contextlib
import hashlib
import importlib.metadata
import io
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import alembic.command
import alembic.config
import alembic.context
import alembic.op
import alembic.script
import sqlalchemy as sa

from ..errors import HashIndexError, InUseError, MissingSchemaError
from . import sql_files
from .locks import LOCK_MS, is_locked, tries
from .owners import NOT_UPGRADED, SCHEMA_OWNER, refuse_owner
from .server_errors import translated_errors

__all__ = [
    "SchemaStatus",
    "administrator",
    "downgrade",
    "script",
    "statements",
    "status",
    "upgrade",
]

# alembic.op and alembic.context are module-wide, so a process does one run at a time. This lock is
# taken after the database's lock, and never held while waiting for that one.
_ALEMBIC = threading.RLock()

_REBUILD = "SELECT hashindex.rebuild_functions();"

_REFUSE_INSTALLED = sql_files.query("schema.refuse_installed")

_STATUS = sql_files.query("schema.status")

# Files below 100 run before the tables are made, which need them; the others run after.
_FIRST_AFTER_TABLES = 100


@dataclass(frozen=True)
class SchemaStatus:
    """The schema in a database, compared with the schema of this release.

    Parameters
    ----------
    installed
        Whether schema ``hashindex`` exists and is ours.
    revision, head
        The alembic revision of the database, and the latest.
    functions, packaged_functions
        The fingerprint of ``sql/`` in the database, and in this release. None if pgvector is in
        another schema now than the functions name.
    extension
        The version of the extension pg_hashindex, if that is how it was installed.
    """

    installed: bool
    revision: str | None
    head: str
    functions: str | None
    packaged_functions: str
    extension: str | None

    @property
    def up_to_date(self) -> bool:
        """Whether an upgrade would change nothing."""
        return self.revision == self.head and self.functions == self.packaged_functions

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {**asdict(self), "up_to_date": self.up_to_date}


def upgrade(
    connection: sa.Connection, *, owner: str | None = None, patience: float | None = None
) -> bool:
    """Install the schema, or bring it up to this release; a second call changes nothing.

    Where the extension pg_hashindex is installed, this runs ``ALTER EXTENSION ... UPDATE``.

    Parameters
    ----------
    connection
        The caller commits. Two upgrades at once wait for each other.
    owner
        The role that is to administer the schema: the owner of one that is made, and of one that is
        there, which is refused otherwise. By default the current role, or a member of it. A schema
        that is there refuses a superuser, unless its owner is one.
    patience
        Seconds to try again for, while transactions keep the schema in use; 60 by default. Each
        attempt waits for a lock for 100 ms at most, so that no writer queues behind it.

    Returns
    -------
    bool
        Whether anything was changed.

    Raises
    ------
    MissingExtensionError, OldServerError, MissingRightsError
        If the database does not allow it; nothing is changed then.
    MissingSchemaError
        If the extension is installed, and the server has no files of this release; or if the schema
        was made before the first release.
    InUseError
        If transactions kept the schema in use for so long. Nothing is changed then.
    """
    with translated_errors(), _kept_settings(connection) as before:
        _set(connection, "hashindex.owner", owner or before["hashindex.owner"])
        first, *others = _functions(before_tables=True)
        # This waits for another upgrade.
        _run(connection, first)
        found = _status(connection)
        _refuse_unknown(found)
        for last in tries(patience):
            try:
                with connection.begin_nested():
                    _set(connection, "lock_timeout", f"{LOCK_MS}ms")
                    if found.extension is not None:
                        # Its owner may be another role.
                        _set(connection, "role", before["role"])
                        _update_extension(connection, found)
                    else:
                        _bring_up_to_date(connection, found, others)
                break
            except sa.exc.OperationalError as error:
                if not is_locked(error.orig):
                    raise
                if last:
                    raise InUseError(
                        f"schema hashindex has been in use: {error.orig}; run the command again "
                        "when the transactions that use it have ended"
                    ) from None
        return _status(connection) != found


def _bring_up_to_date(connection: sa.Connection, found: SchemaStatus, first: list[str]) -> None:
    """Make tables and functions, unless they are up to date; functions of indexes in any case."""
    # To replace a view waits for everybody who has read it, and all others queue behind.
    if not found.up_to_date:
        for text in first:
            _run(connection, text)
        with _kept_proxies():
            alembic.command.upgrade(_config(connection), "head")
        for text in _functions(before_tables=False):
            _run(connection, text)
    _run(connection, f"{_REBUILD} {'' if found.up_to_date else stamp()}")


def downgrade(connection: sa.Connection, *, drop_models: bool = False) -> None:
    """Remove the schema; the user's own tables stay as they are.

    Parameters
    ----------
    connection
        The caller commits.
    drop_models
        Whether to drop trained models with it.

    Raises
    ------
    MissingRightsError
        As for `status`.
    InUseError
        If there are indexes, models that may not be dropped, or objects of the user's that use our
        functions.
    """
    with translated_errors():
        if not status(connection).installed:
            return
        # This waits for an upgrade or another downgrade, and only the owner may do it.
        _run(
            connection,
            "DO $$ BEGIN COMMENT ON SCHEMA hashindex IS 'pg_hashindex, about to go'; "
            "EXCEPTION WHEN invalid_schema_name THEN END $$",
        )
        found = _status(connection)
        if not found.installed:
            return
        _refuse_unknown(found)
        names = list(connection.scalars(sa.text("SELECT name FROM hashindex.index ORDER BY name")))
        if names:
            raise InUseError(
                f"there are indexes: {', '.join(names)}; drop each with: pg-hashindex index drop"
            )
        models = connection.scalars(
            sa.text("SELECT name || ':' || version FROM hashindex.model ORDER BY name, version")
        ).all()
        if models and not drop_models:
            raise InUseError(
                f"there are models: {', '.join(models)}; keep each with: pg-hashindex model "
                "export, and drop it with: pg-hashindex model drop"
            )
        if found.extension is not None:
            _run(connection, "DROP EXTENSION pg_hashindex; DROP SCHEMA IF EXISTS hashindex")
            return
        _run(connection, sql_files.query("schema.drop_dependents"))
        # In one statement, since some depend on others; without CASCADE, which could drop objects
        # of the user.
        functions = connection.scalar(
            sa.text(
                "SELECT string_agg(p.oid::regprocedure::text, ', ') FROM pg_catalog.pg_proc p "
                "WHERE p.pronamespace = 'hashindex'::regnamespace::oid"
            )
        )
        if functions:
            _run(connection, f"DROP FUNCTION {functions}")
        with _kept_proxies():
            alembic.command.downgrade(_config(connection), "base")
        _run(
            connection,
            "DROP TABLE hashindex.alembic_version; DROP TYPE hashindex.layer; "
            "DROP SCHEMA hashindex",
        )


def status(connection: sa.Connection) -> SchemaStatus:
    """Compare the database with this release.

    Raises
    ------
    MissingRightsError
        If a superuser asks, and another role owns the schema: it can run code as whoever uses it.
    """
    with translated_errors():
        row = connection.execute(sa.text(SCHEMA_OWNER)).one_or_none()
        if row is not None:
            refuse_owner(*row[:3])
        return _status(connection)


def _status(connection: sa.Connection) -> SchemaStatus:
    with translated_errors():
        row = connection.execute(sa.text(_STATUS)).one()
        installed = row.installed
        revision = None
        if installed:
            revision = connection.scalar(
                sa.text("SELECT version_num FROM hashindex.alembic_version")
            )
    return SchemaStatus(
        installed=installed,
        revision=revision,
        head=head(),
        functions=row.comment.rpartition(" ")[2] if installed and row.comment else None,
        packaged_functions=_fingerprint(),
        extension=row.extension,
    )


def _update_extension(connection: sa.Connection, found: SchemaStatus) -> None:
    release = importlib.metadata.version("pg_hashindex")
    if found.extension == release and found.functions is None:
        # pgvector has moved, and from a release to itself there is no update.
        _run(connection, "SELECT hashindex.leave_extension()")
        upgrade(connection)
        _run(connection, "SELECT hashindex.join_extension()")
        return
    if not found.up_to_date:
        if not connection.scalar(
            sa.text(sql_files.query("schema.update_paths")),
            {"installed": found.extension, "release": release},
        ):
            raise MissingSchemaError(
                f"the extension pg_hashindex {found.extension} is installed, and the server has no "
                f"files that update it to {release} of this release; on the server run: "
                "pg-hashindex extension --install"
            )
        _run(connection, f"ALTER EXTENSION pg_hashindex UPDATE TO '{release}'")
    # A dump of an earlier release brings the functions of its indexes along.
    _run(connection, _REBUILD)


def administrator(connection: sa.Connection) -> tuple[str, bool] | None:
    """Return the owner of the schema, and whether it is a superuser: no trigger should run as one.

    None without the schema.
    """
    with translated_errors():
        row = connection.execute(
            sa.text(
                "SELECT r.rolname, r.rolsuper FROM pg_catalog.pg_namespace n "
                "JOIN pg_catalog.pg_roles r ON r.oid = n.nspowner WHERE n.nspname = 'hashindex'"
            )
        ).one_or_none()
    return None if row is None else (row[0], row[1])


def script() -> str:
    """Return one SQL script that installs everything with psql alone.

    For a database without the schema; Python may upgrade it later, since the script records the
    revision as `upgrade` does.
    """
    parts = [
        "-- Installs schema hashindex of pg_hashindex. Run: psql -f THIS_FILE DATABASE",
        "\\set ON_ERROR_STOP on",
        "BEGIN;",
        _REFUSE_INSTALLED,
        *install_statements(),
        "COMMIT;",
    ]
    return "\n".join(parts) + "\n"


def statements() -> str:
    """Return the statements of `script` without its transaction, to run in one of the caller.

    As after `upgrade`, search_path and role are as before.
    """
    keep = "SELECT pg_catalog.set_config('{}', pg_catalog.current_setting('{}'), true);"
    path = ("hashindex.path_before", "search_path")
    role = ("hashindex.role_before", "role")
    return "\n".join(
        [
            keep.format(*path),
            keep.format(*role),
            *install_statements(),
            keep.format(*reversed(role)),
            keep.format(*reversed(path)),
        ]
    )


def install_statements(since: str = "base") -> list[str]:
    """Return the statements that install the schema, or update one of an alembic revision."""
    tables = io.StringIO()
    config = _config()
    config.output_buffer = tables
    with _kept_proxies():
        alembic.command.upgrade(config, f"{since}:head", sql=True)
    return [
        *_functions(before_tables=True),
        tables.getvalue(),
        *_functions(before_tables=False),
        stamp(),
    ]


def _run(connection: sa.Connection, statements: str) -> None:
    # Without parameters the driver sends the text unchanged: several statements, with % signs.
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})


def _functions(*, before_tables: bool) -> list[str]:
    """Return the texts of ``sql/`` in their order; those after the tables begin with templates."""
    files = sorted(sql_files.folder("sql").glob("*.sql"), key=lambda file: file.name)
    texts = [
        sql_files.text(file)
        for file in files
        if (int(file.name[:3]) < _FIRST_AFTER_TABLES) == before_tables
    ]
    return texts if before_tables else [_templates(), *map(_naming_pgvector, texts)]


def _naming_pgvector(text: str) -> str:
    """Replace ``{ext}`` by the schema of pgvector, which the database knows."""
    if "{ext}" not in text:
        return text
    return (
        f"DO $install$ BEGIN EXECUTE replace($text${text}$text$, '{{ext}}', "  # noqa: S608
        "(SELECT quote_ident(n.nspname) FROM pg_extension e JOIN pg_namespace n "
        "ON n.oid = e.extnamespace WHERE e.extname = 'vector')); END $install$;\n"
    )


def _templates() -> str:
    """Return the SQL of a function that returns a template of ``sql/templates`` by its name."""
    files = sorted(
        (sql_files.folder("sql") / "templates").glob("*.sql"), key=lambda file: file.name
    )
    cases = "\n".join(
        # Without the last line break: templates stand in lines of others.
        f"        WHEN '{file.stem}' THEN $template${file.read_text('utf-8').rstrip()}$template$"
        for file in files
    )
    return (
        "CREATE OR REPLACE FUNCTION hashindex._template(name text) RETURNS text\n"
        "LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path FROM CURRENT\n"
        f"AS $function$\nBEGIN\n    RETURN CASE name\n{cases}\n    END;\nEND\n$function$;\n"
        "COMMENT ON FUNCTION hashindex._template(text) IS "
        "'template of a function of an index, by its name';\n"
    )


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for text in (*_functions(before_tables=True), *_functions(before_tables=False)):
        digest.update(text.encode())
    return digest.hexdigest()[:16]


def comment() -> str:
    """Return the schema's comment, which names the release and the fingerprint of ``sql/``."""
    release = importlib.metadata.version("pg_hashindex")
    return (
        f"pg_hashindex {release}: hash models, indexes of binary codes, search. "
        f"Functions {_fingerprint()}"
    )


def stamp() -> str:
    """Return the statement that gives the schema its comment."""
    return f"COMMENT ON SCHEMA hashindex IS '{comment()}';"


def _config(connection: sa.Connection | None = None) -> alembic.config.Config:
    config = alembic.config.Config()
    config.set_main_option("script_location", str(sql_files.folder("alembic")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_unknown(found: SchemaStatus) -> None:
    """Refuse a schema whose revision is none of this release's migrations."""
    scripts = alembic.script.ScriptDirectory.from_config(_config()).walk_revisions()
    if found.installed and found.revision not in {one.revision for one in scripts}:
        raise MissingSchemaError(NOT_UPGRADED)


def head() -> str:
    head = alembic.script.ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None  # noqa: S101
    return head


@contextlib.contextmanager
def _kept_settings(connection: sa.Connection) -> Iterator[dict[str, str]]:
    # sql/ sets search_path and role for its transaction, which here is the caller's.
    names = ("role", "search_path", "hashindex.owner", "lock_timeout")
    before = {
        name: connection.scalar(sa.text("SELECT current_setting(:name, true)"), {"name": name})
        or ""
        for name in names
    }

    def restore() -> None:
        for name, value in before.items():
            _set(connection, name, value)

    try:
        yield before
    except HashIndexError:
        # It was refused, and the caller's transaction may continue.
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            restore()
        raise
    restore()


def _set(connection: sa.Connection, name: str, value: str) -> None:
    connection.execute(
        sa.text("SELECT pg_catalog.set_config(:name, :value, true)"), {"name": name, "value": value}
    )


@contextlib.contextmanager
def _kept_proxies() -> Iterator[None]:
    """Let alembic run inside a revision of another alembic.

    ``alembic.op`` and ``alembic.context`` are module-wide and not re-entrant: our run would leave
    the application's revision without its ``op``.
    """
    with _ALEMBIC:
        outer = [getattr(module, "_proxy", None) for module in (alembic.op, alembic.context)]
        try:
            yield
        finally:
            for proxy in outer:
                if proxy is not None:
                    proxy._install_proxy()
