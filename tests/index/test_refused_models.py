"""An index needs a model that SQL evaluates; others fill a column of codes."""

import psycopg
import pytest
from fixtures.indexes import create_index
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.index.handle import list_indexes

pytestmark = pytest.mark.newest

COMMAND = (
    "Fill a column with its codes: pg-hashindex model encode known:1 --table {} --column {} "
    "--into code"
)


def test_create(connection, items, known_model):
    store.save(connection, known_model)
    with pytest.raises(InvalidInputError, match="evaluated in Python") as refused:
        create_index(connection, model="known")
    assert COMMAND.format("public.items", "embedding") in str(refused.value)
    assert list_indexes(connection) == []
    assert operations.list_orphans(connection) == []


def test_a_table_and_a_column_that_a_shell_would_split(connection, items, known_model):
    store.save(connection, known_model)
    connection.execute('ALTER TABLE items RENAME TO "my items"')
    connection.execute('ALTER TABLE "my items" RENAME embedding TO "a b"')
    with pytest.raises(InvalidInputError) as refused:
        create_index(connection, model="known", table='"my items"', column="a b")
    assert COMMAND.format("""'public."my items"'""", "'a b'") in str(refused.value)


def test_swap(index, known_model, vectors):
    store.save(index.connection, known_model)
    before = index.search(vectors[0], 5)
    with pytest.raises(InvalidInputError, match="model encode known:1 --table public.items"):
        index.swap(model="known", force=True)
    assert [one.name for one in list_indexes(index.connection)] == ["items_idx"]
    assert index.search(vectors[0], 5) == before


def test_functions_of_sql(index, known_model):
    connection = index.connection
    store.save(connection, known_model)
    for call in (
        "create_index('i', 'items', 'embedding', 'known')",
        "_declare_swap('items_idx', 'known')",
        "create_functions('known')",
    ):
        with pytest.raises(psycopg.Error, match="evaluated in Python") as refused:
            connection.execute(f"SELECT hashindex.{call}".encode())
        assert "model encode known:1" in (refused.value.diag.message_hint or "")
    with pytest.raises(psycopg.Error, match="evaluated in Python") as refused:
        connection.execute("SELECT hashindex.encode('known', %s)", [Vector([1.0] * 8)])
    assert "model encode" in (refused.value.diag.message_hint or "")
