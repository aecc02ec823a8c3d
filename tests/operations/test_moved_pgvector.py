"""After ALTER EXTENSION vector SET SCHEMA every part gives one advice, and it works."""

import pytest
from fixtures.checks import assert_fresh
from fixtures.health import findings, troubles
from fixtures.indexes import create_index

from pg_hashindex import operations
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

ADVICE = "pg-hashindex schema upgrade"


@pytest.fixture
def moved(index):
    index.connection.execute("CREATE SCHEMA ext; ALTER EXTENSION vector SET SCHEMA ext")
    return index


ACTIONS = {
    "search": lambda index: index.search([1.0] * 8, 5),
    "within": lambda index: index.within([1.0] * 8, 5),
    "repair": lambda index: operations.repair(index, full=True),
    "encode": lambda index: (
        index.connection.execute("ALTER TABLE items DISABLE TRIGGER ALL"),
        index.connection.execute("UPDATE items SET embedding = NULL WHERE id = 1"),
        index.configure(candidates=9),
        index.encode(),
    ),
    "create": lambda index: create_index(index.connection, "other"),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_errors_lead_to_it(moved, url, action):
    with connect(url) as connection, pytest.raises(HashIndexError, match=ADVICE) as told:
        ACTIONS[action](HashIndex.open(connection, "items_idx"))
    assert "rebind" not in str(told.value)
    assert "index check" not in str(told.value)


def test_check_reports_it_and_the_upgrade_fixes_it(moved, on):
    found = findings(moved)["table"]
    assert found.status == "broken"
    assert found.detail.startswith("pgvector is in schema ext now, and was in public")
    assert found.advice == ADVICE
    assert "run: pg-hashindex schema upgrade" in on("schema", "status", code=1).output
    assert "schema is at revision" in on("schema", "upgrade").output
    assert "already up to date" in on("schema", "upgrade").output
    assert on("schema", "status").exit_code == 0
    with moved.connection.transaction():
        moved.connection.execute("SET LOCAL search_path TO public, ext")
        moved.connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 9")
    assert troubles(moved, full=True) == {}
    assert_fresh(moved)
