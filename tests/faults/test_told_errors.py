"""The language of a server, its time limits and prepared transactions change no remedy."""

import pytest
from fixtures.indexes import begin_lists
from psycopg import sql

from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import retry_while_locked
from pg_hashindex.db.server_errors import translated_errors
from pg_hashindex.errors import (
    DatabaseStateError,
    InUseError,
    InvalidInputError,
    MissingRightsError,
    MissingSchemaError,
)

pytestmark = pytest.mark.newest

# Messages of a German server, with the error that is raised and a part of its remedy.
GERMAN = [
    ("42P01", "Relation »hashindex.x_codes« existiert nicht", DatabaseStateError, "run it again"),
    ("42883", "Funktion hashindex.search_x(vector) existiert nicht", DatabaseStateError, "again"),
    ("42P01", "Relation »hashindex.model« existiert nicht", MissingSchemaError, "schema upgrade"),
    ("3F000", "Schema »hashindex« existiert nicht", MissingSchemaError, "schema upgrade"),
    ("42P01", "Relation »things« existiert nicht", InvalidInputError, "check the name"),
    ("42501", "nur für Eigentümer der Tabelle items", MissingRightsError, "member of its owner"),
    ("57014", "Zeitüberschreitung der Anweisung", DatabaseStateError, "statement_timeout=1h"),
    ("55P03", "Zeitüberschreitung einer Sperre", DatabaseStateError, "lock_timeout=1h"),
]


def fail_with(connection, state, message):
    """Have the server raise an error, as in a statement of its own: without a context."""
    statement = sql.SQL(
        "DO $do$ BEGIN RAISE EXCEPTION USING ERRCODE = {}, MESSAGE = {}; END $do$"
    ).format(sql.Literal(state), sql.Literal(message))
    connection.execute(statement)


@pytest.mark.parametrize(("state", "message", "kind", "remedy"), GERMAN)
def test_remedies_do_not_depend_on_the_language_of_the_server(
    connection, state, message, kind, remedy
):
    with pytest.raises(kind, match=remedy), translated_errors():
        fail_with(connection, state, message)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("42703", "Spalte b.embedding existiert nicht"),
        ("42703", "Spalte »embedding« von Relation »items« existiert nicht"),
        ("42P01", "Relation »public.items« existiert nicht"),
        ("42P01", "Relation »hashindex.set_1_codes« existiert nicht"),
        ("42883", "Funktion hashindex.search_items_idx(vector, integer) existiert nicht"),
    ],
)
@pytest.mark.usefixtures("items", "model")
def test_a_part_of_an_index_is_known_in_any_language(connection, state, message):
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="scan"
    )
    remedy = "run pg-hashindex index check items_idx"
    with pytest.raises(InvalidInputError, match=remedy), translated_errors(index.metadata):
        fail_with(connection, state, message)
    assert not index.metadata.has_part("42703", "Spalte »embedding_2« existiert nicht")


@pytest.mark.parametrize(
    "limit",
    ["idle_session_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"],
)
def test_a_limit_of_the_server_that_ends_a_session_is_named(url, connection, limit):
    with connect(url) as session:
        session.execute(f"SET {limit} = 100".encode())
        if limit != "idle_session_timeout":
            session.execute("BEGIN")
        connection.execute("SELECT pg_sleep(0.4)")
        said = f"again with more time .*{limit}=1h"
        with pytest.raises(DatabaseStateError, match=said), translated_errors():
            session.execute("SELECT 1")


def test_a_prepared_transaction_that_holds_a_table_is_named(database, installed):
    with connect(database(installed)) as session:
        session.execute("BEGIN; UPDATE items SET category = category WHERE id = 1")
        session.execute("PREPARE TRANSACTION 'left over'")
        try:
            with pytest.raises(InUseError, match="prepared transactions 'left over' hold locks"):
                retry_while_locked(
                    session,
                    lambda: session.execute("LOCK TABLE items IN SHARE ROW EXCLUSIVE MODE"),
                    table="items",
                    patience=0,
                )
        finally:
            session.execute("ROLLBACK PREPARED 'left over'")
