"""``pg-hashindex index grant``."""

import json

import pytest
from fixtures.indexes import indexed
from fixtures.roles import denied, make_administrator

pytestmark = pytest.mark.newest

CODES = "SELECT count(*) FROM hashindex.set_1_codes"


@pytest.fixture
def table_index(connection, items, model):
    return indexed(connection)


def test_grant_and_revoke(on, connection, table_index, as_role):
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    with denied():
        reader.execute(CODES)
    said = on("index", "grant", "items_idx", "reader").output
    assert "role reader may search index items_idx by its codes" in said
    assert reader.execute(CODES).fetchone() == (300,)
    printed = on("index", "grant", "items_idx", "reader", "--revoke", "--json").output
    assert json.loads(printed) == {"name": "items_idx", "revoked": ["reader"]}
    with denied():
        reader.execute(CODES)
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    said = on("index", "grant", "items_idx", "reader", code=3).output
    assert "row security of public.items hides rows" in said
    assert "--reveal-codes" in said
    printed = on("index", "grant", "items_idx", "reader", "--reveal-codes", "--json").output
    assert json.loads(printed) == {"name": "items_idx", "granted": ["reader"]}
    assert reader.execute(CODES).fetchone() == (300,)


def test_one_that_is_refused_leaves_all_as_it_was(on, connection, table_index, as_role):
    reader = as_role("reader")
    as_role("stranger")
    connection.execute("GRANT SELECT ON items TO reader")
    said = on("index", "grant", "items_idx", "reader", "stranger", code=3).output
    assert 'role "stranger" may not read columns "id" and "embedding" of public.items' in said
    with denied():
        reader.execute(CODES)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("items_idx",), 2, "Missing argument 'ROLE...'"),
        (("nothing", "postgres"), 3, 'index "nothing" does not exist'),
        (("items_idx", "no one"), 3, 'role "no one" does not exist'),
        (("items_idx", "public"), 3, 'role "public" may not read columns'),
        (("items_idx", "postgres", "--revoke", "--reveal-codes"), 2, "leave one out"),
        (("items_idx", "no one", "--revoke"), 3, 'role "no one" does not exist'),
    ],
)
def test_refusals(on, table_index, arguments, code, message):
    assert message in on("index", "grant", *arguments, code=code).output


def test_rights_to_create_an_index(on, connection, table_index, as_role):
    as_role("app")
    connection.execute("ALTER TABLE items OWNER TO app")
    where = ("--table", "items", "--column", "embedding", "--model", "lsh")
    said = on("index", "create", "second", "--access", "scan", *where, code=3).output
    assert "table public.items belongs to role app, which can run code as postgres" in said
    made = (
        "pg-hashindex model functions lsh:1; CREATE INDEX ON public.items "
        "USING hnsw ((hashindex.code_lsh(embedding)::bit(12)) public.bit_hamming_ops)"
    )
    assert made in " ".join(said.split())


def test_a_schema_of_a_superuser(on, connection, as_role):
    """An upgrade says which role to make, so that triggers run with less."""
    said = on("schema", "upgrade").output
    assert "belongs to superuser postgres" in said
    assert "pg-hashindex schema upgrade --owner hashindex_admin" in said
    as_role("keeper")
    make_administrator(connection, "keeper")
    said = on("schema", "upgrade", "--owner", "keeper", code=3).output
    assert "connect as role keeper" in said.lower()
