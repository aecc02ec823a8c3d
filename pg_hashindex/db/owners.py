"""Ask whose schema ``hashindex`` is before anything in it is read.

A superuser's session runs whatever the owner of the schema has put there, and so does that of a
role that can become one. ``sql/queries/owners.sql`` says which roles may.
"""

from contextlib import nullcontext

from ..errors import MissingRightsError, MissingSchemaError
from .connection import Connection, prepare
from .sql_files import query
from .statements import Statement, Steps, run

SCHEMA_OWNER = query("owners.schema_owner")

#: Refusal of a schema from before the first release.
NOT_UPGRADED = (
    "schema hashindex was made by an earlier commit, from which there is no upgrade; with that "
    "commit run pg-hashindex model export NAME FILE for each model, pg-hashindex index drop NAME "
    "for each index and pg-hashindex schema downgrade, then with this release pg-hashindex schema "
    "upgrade and pg-hashindex model import FILE, and create the indexes again"
)


def ask_schema(connection: Connection) -> None:
    """Refuse a superuser's session the schema ``hashindex`` of another role, before it is read.

    A session of another role is checked too, since a superuser may have lowered it by ``SET ROLE``,
    or it may become one. Every other role relies on the administrator, as docs/production.md says.
    """
    # Without a block, a connection that is not in autocommit mode would begin a transaction.
    with nullcontext() if connection.autocommit else connection.transaction():
        run(connection, schema_owner_steps())


def schema_owner_steps() -> Steps[None]:
    """Refuse the schema of another role as `ask_schema` does."""
    for *row, is_earlier in (yield Statement(SCHEMA_OWNER)):
        refuse_owner(*row)
        if is_earlier:
            raise MissingSchemaError(NOT_UPGRADED)


def refuse_owner(is_safe: bool, owner: str, role: str) -> None:
    """Refuse a schema whose owner, by a row of `SCHEMA_OWNER`, could do more as the caller."""
    if not is_safe:
        raise MissingRightsError(
            f"schema hashindex belongs to role {owner}, which can run code as superuser {role} "
            f"whenever {role} uses it; connect as role {owner}, or as a member of it that is not "
            "a superuser and cannot become one"
        )


def prepare_schema(connection: Connection) -> None:
    """Prepare a connection as `connection.prepare` does, and ask whose the schema is."""
    prepare(connection)
    ask_schema(connection)
