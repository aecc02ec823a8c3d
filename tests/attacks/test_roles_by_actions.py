"""The rights of each role: the table of docs/production.md."""

import psycopg
import pytest
from fixtures.indexes import indexed
from pgvector import Vector

from pg_hashindex import operations
from pg_hashindex.errors import DatabaseStateError, MissingRightsError
from pg_hashindex.index.handle import HashIndex

QUERY = "'[1,2,3,4,5,6,7,8]'::vector"
ROW = "(1001, 'a', '[1,2,3,4,5,6,7,8]')"

#: Actions, by their names in the table below.
ACTIONS = {
    "search": {
        "typed": f"SELECT * FROM hashindex.search_items_idx({QUERY})",
        "by name": f"SELECT * FROM hashindex.search('items_idx', {QUERY})",
        "filtered": f"SELECT * FROM hashindex.search('items_idx', {QUERY}, filter => 'id > 5')",
        "exact": f"SELECT * FROM hashindex.exact_search('items_idx', {QUERY})",
        "candidates": f"SELECT * FROM hashindex.candidates('items_idx', {QUERY})",
    },
    "search for words": {
        "hybrid": f"SELECT * FROM hashindex.hybrid('items_idx', {QUERY}, 'b', 'category')",
        "filtered": f"SELECT * FROM hashindex.search('items_idx', {QUERY}, "
        "filter => $$category = 'b'$$)",
    },
    "read codes": {
        "codes": "SELECT * FROM hashindex.set_1_codes",
        "within": f"SELECT * FROM hashindex.within('items_idx', {QUERY}, 5)",
        "code_of": "SELECT hashindex.code_of('items_idx', '1')",
        "models": "SELECT layers, parameters FROM hashindex.find_model('lsh')",
        "encode": f"SELECT hashindex.encode('lsh', {QUERY})",
    },
    "insert": {"insert": f"INSERT INTO items VALUES {ROW}"},
    # PostgreSQL has no COPY FROM under row security.
    "copy": {"copy": "COPY items FROM STDIN"},
    "update": {
        "update": "UPDATE items SET embedding = '[1,1,1,1,1,1,1,1]' WHERE id < 9",
        "move": "UPDATE items SET id = id + 5000 WHERE id = 1",
    },
    "delete": {"delete": "DELETE FROM items WHERE id < 9"},
    # Whoever attaches a partition needs it.
    "attach": {
        "a trigger": "CREATE TRIGGER own AFTER TRUNCATE ON items "
        "EXECUTE FUNCTION hashindex.sync_items_idx()"
    },
    "administer": {
        "all models": "SELECT layers, parameters FROM hashindex.model",
        "parts of models": "SELECT * FROM hashindex.model_part",
        "recall": "SELECT * FROM hashindex.recall_history",
        "forge recall": "INSERT INTO hashindex.recall_history (index_name, model, access, "
        "candidates, k, queries, recall, p50_ms, p95_ms) VALUES "
        "('items_idx', 'lsh:1', 'scan', 1, 1, 1, 1, 1, 1)",
        "forge work": "INSERT INTO hashindex.claim VALUES ('encode', 'items_idx', 1, 1)",
        "write codes": "UPDATE hashindex.set_1_codes SET code = ~code",
        "call refresh": "SELECT hashindex.refresh_1('{1}')",
        "catalog": "UPDATE hashindex.index SET key_types = '{int); DROP TABLE items}'",
        "attach to another": "UPDATE hashindex.index_set SET index_name = index_name",
        "forge a model": "INSERT INTO hashindex.model OVERRIDING SYSTEM VALUE "
        "SELECT (m).* FROM hashindex.model m WHERE false",
        "forge a network": "INSERT INTO hashindex.model_part SELECT 1, 1, '' WHERE false",
        "drop a model": "DELETE FROM hashindex.model WHERE false",
        "make a function": "CREATE FUNCTION hashindex.layers_of(integer) RETURNS int "
        "LANGUAGE sql AS 'SELECT 1'",
        "make a table": "CREATE TABLE hashindex.own (id int)",
        "replace a function": "CREATE OR REPLACE FUNCTION hashindex._shell_word(word "
        "text) RETURNS text LANGUAGE sql AS 'SELECT word'",
        "configure": "SELECT hashindex.configure_index('items_idx', candidates => 5)",
        "swap": "SELECT * FROM hashindex.swap_index('items_idx', 'none', 'hnsw')",
        "declare a model": "SELECT hashindex._declare_swap('items_idx', 'lsh')",
        "create": "SELECT hashindex.create_index('second', 'items', 'embedding', 'lsh', 'scan')",
        "drop": "SELECT hashindex.drop_index('items_idx')",
        "drop orphans": "SELECT * FROM hashindex.drop_orphans()",
        "prune": "SELECT hashindex.prune_index('items_idx')",
        "roll back": "SELECT hashindex.rollback_index('items_idx')",
        "grant": "SELECT hashindex.grant_reader('items_idx', 'other_role')",
        "revoke": "SELECT hashindex.revoke_reader('items_idx', 'other_role')",
        "disable": "ALTER TABLE hashindex.set_1_codes DISABLE TRIGGER ALL",
    },
}

SEARCHES = {"search", "search for words"}
WRITES = {"insert", "copy", "update", "delete"}
#: Rights given to a role, and all that it may do then.
ROLES = {
    "administrator": ("GRANT keeper TO tried", {*ACTIONS}),
    "writer": ("GRANT SELECT, INSERT, UPDATE, DELETE ON items TO tried", {*SEARCHES, *WRITES}),
    "TRIGGER-only": ("GRANT TRIGGER ON items TO tried", set()),
    "column reader": ("GRANT SELECT (id, embedding) ON items TO tried", {"search"}),
    "column reader with codes": (
        "GRANT SELECT (id, embedding) ON items TO tried; "
        "SELECT hashindex.grant_reader('items_idx', 'tried')",
        {"search", "read codes"},
    ),
    "insert-only": ("GRANT INSERT ON items TO tried", {"insert", "copy"}),
    "one column": ("GRANT SELECT (category) ON items TO tried", set()),
    "reader": ("GRANT SELECT ON items TO tried", {*SEARCHES}),
    "reader with codes": (
        "GRANT SELECT ON items TO tried; SELECT hashindex.grant_reader('items_idx', 'tried')",
        {*SEARCHES, "read codes"},
    ),
    "tenant": (
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON items USING "
        "(category = 'a'); GRANT SELECT, INSERT, UPDATE, DELETE ON items TO tried",
        {*SEARCHES, *WRITES} - {"copy"},
    ),
    "tenant with codes": (
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; CREATE POLICY own ON items USING "
        "(category = 'a'); GRANT SELECT ON items TO tried; "
        "SELECT hashindex.grant_reader('items_idx', 'tried', true)",
        {*SEARCHES, "read codes"},
    ),
    # If he puts another table in the place of this one, the index is refused: see test_owners.
    "owner of a schema": ("ALTER SCHEMA public OWNER TO tried", set()),
    "creator of schemas": (
        "DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO tried', current_database()); "
        "END $$",
        set(),
    ),
    "stranger": ("", set()),
}


@pytest.fixture
def made(connection, keeper, as_role):
    indexed(keeper)
    tried = as_role("tried")
    as_role("other_role")
    connection.execute(
        "GRANT SELECT ON items TO other_role; GRANT CREATE ON SCHEMA public TO tried"
    )
    return tried


@pytest.mark.parametrize("role", ROLES)
def test_a_role(role, made, keeper, connection):
    given, allowed = ROLES[role]
    connection.execute(given.encode())
    for kind, actions in ACTIONS.items():
        for name, statement in actions.items():
            error = attempt(made, statement)
            if kind in allowed:
                # No swap was made before.
                done = error is None or "has no former set" in str(error)
                assert done, f"{role} may not {name}: {error}"
            else:
                refused = (psycopg.errors.InsufficientPrivilege, psycopg.errors.FeatureNotSupported)
                assert isinstance(error, refused), f"{role} may {name}: {error}"
    connection.execute("ALTER SCHEMA public OWNER TO pg_database_owner")
    # Whatever was tried, codes are right.
    index = HashIndex.open(keeper, "items_idx")
    assert operations.check(index, full=True).as_dict()["status"] != "broken"


def attempt(session, statement):
    """Run a statement and take it back; return its error."""
    with session.transaction(force_rollback=True):
        try:
            if statement.startswith("COPY"):
                with session.cursor() as cursor, cursor.copy(statement.encode()) as copy:
                    copy.write_row((1002, "a", Vector([1.0] * 8)))
            else:
                with session.transaction():
                    session.execute(statement.encode())
        except psycopg.Error as error:
            return error
    return None


# Rights are tested for each version above; here, the messages of Python.
@pytest.mark.newest
@pytest.mark.parametrize("role", ROLES)
def test_a_role_in_python(role, made, connection):
    given, allowed = ROLES[role]
    connection.execute(given.encode())
    index = HashIndex.open(made, "items_idx")

    def may(kind, call):  # type: ignore[no-untyped-def]
        if kind in allowed:
            call()
        else:
            with pytest.raises((MissingRightsError, DatabaseStateError)):
                call()

    may("search", lambda: index.search([1.0] * 8, 5))
    may("search", lambda: index.search([1.0] * 8, 5, filter="id > 7"))
    may("search", lambda: index.search_like(1, 5))
    may("read codes", lambda: index.within([1.0] * 8, 5))
    may("administer", index.encode)
    may("administer", lambda: index.configure(candidates=50))
    may("administer", lambda: index.grant("other_role"))
    may("administer", lambda: operations.repair(index))
    may("administer", lambda: HashIndex.open(made, "items_idx").drop())


def test_answers_are_the_same_by_codes_and_without(made, keeper, connection):
    connection.execute("GRANT SELECT ON items TO tried")
    index = HashIndex.open(made, "items_idx")
    exact = [hit.id for hit in index.search([1.0] * 8, 5, candidates=300)]
    HashIndex.open(keeper, "items_idx").grant("tried")
    assert [hit.id for hit in index.search([1.0] * 8, 5, candidates=300)] == exact
