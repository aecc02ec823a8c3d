"""``pg-hashindex index grant`` and ``revoke``."""

import json

import pytest
from fixtures.roles import As, denied

from pg_hashindex.database import Connection
from pg_hashindex.index import HashIndex

pytestmark = pytest.mark.newest

TYPED = "SELECT count(*) FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')"


@pytest.fixture
def table_index(connection: Connection, items: str, model: object) -> HashIndex:
    index = HashIndex.create(connection, "items_idx", table=items, column="embedding", model="lsh")
    index.encode()
    return index


def test_grant_and_revoke(on, connection: Connection, table_index: HashIndex, as_role: As) -> None:
    reader, owner = as_role("reader"), as_role("keeper")
    connection.execute("GRANT SELECT ON items TO reader; ALTER TABLE items OWNER TO keeper")
    connection.execute("GRANT USAGE, CREATE ON SCHEMA public TO keeper")
    with denied():
        reader.execute(TYPED)
    said = on("index", "grant", "items_idx", "--reader", "reader", "--owner", "keeper").output
    assert "role reader may search index items_idx" in said
    assert "role keeper may maintain index items_idx" in said
    assert reader.execute(TYPED).fetchone() == (10,)
    HashIndex.open(owner, "items_idx").configure(candidates=50)
    printed = on("index", "revoke", "items_idx", "reader", "--json").output
    assert json.loads(printed) == {"name": "items_idx", "revoked": ["reader"]}
    with denied():
        reader.execute(TYPED)
    printed = on("index", "grant", "items_idx", "--owner", "keeper", "--json").output
    assert json.loads(printed) == {"name": "items_idx", "readers": [], "owners": ["keeper"]}


def test_one_that_is_refused_leaves_all_as_it_was(
    on, connection: Connection, table_index: HashIndex, as_role: As
) -> None:
    reader = as_role("reader")
    as_role("stranger")
    connection.execute("GRANT SELECT ON items TO reader")
    said = on(
        "index", "grant", "items_idx", "--reader", "reader", "--reader", "stranger", code=1
    ).output
    assert 'role "stranger" may not read columns "id" and "embedding" of items' in said
    with denied():
        reader.execute(TYPED)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("items_idx",), 2, "give --reader or --owner"),
        (("nothing", "--reader", "postgres"), 1, "index 'nothing' does not exist"),
        (("items_idx", "--reader", "no one"), 1, 'role "no one" does not exist'),
        (("items_idx", "--owner", "public"), 1, 'role "public" does not own items'),
    ],
)
def test_refusals(on, table_index: HashIndex, arguments, code: int, message: str) -> None:
    assert message in on("index", "grant", *arguments, code=code).output
