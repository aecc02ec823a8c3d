"""Tables and columns are renamed or dropped: searches and checks say so; rebind follows."""

import contextlib

import psycopg
import pytest
import sqlalchemy as sa
from fixtures.catalog import contents
from fixtures.checks import assert_fresh, former
from fixtures.indexes import create_index, indexed

from pg_hashindex import operations, store
from pg_hashindex.errors import HashIndexError, InvalidInputError, UnknownIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

QUERIES = [[float(n), -1.0, 2.0, 0.5, n / 3, -0.25, 1.0, -2.0] for n in range(4)]

RENAMES = {
    "table": (
        ["ALTER TABLE items RENAME TO \"It's 100% new\""], {"table": "\"It's 100% new\""}
    ),
    "schema": (
        ["CREATE SCHEMA shop; ALTER TABLE items SET SCHEMA shop", "ALTER SCHEMA shop RENAME TO b"],
        {"table": "b.items"},
    ),
    "vectors": (['ALTER TABLE items RENAME embedding TO "v %s"'], {"column": "v %s"}),
    "key": (["ALTER TABLE items RENAME id TO number"], {"key_columns": "number"}),
    "everything": (
        [
            "ALTER TABLE items RENAME embedding TO v",
            "ALTER TABLE items RENAME id TO number",
            "ALTER TABLE items RENAME TO things",
            "CREATE SCHEMA shop; ALTER TABLE things SET SCHEMA shop",
        ],
        {"table": "shop.things", "column": "v", "key_columns": "number"},
    ),
}  # fmt: skip


def reopened(index):
    return HashIndex.open(index.connection, index.name)


def answers(index):
    return [
        *(index.search(query, 20, candidates=40) for query in QUERIES),
        index.search_like(7, 5),
        index.within(QUERIES[1], 4),
    ]


def write(index):
    """Change, add and remove rows, by the names that the catalog has."""
    for statement in (
        f"UPDATE {{0}} SET {{1}} = '{[8, 7, 6, 5, 4, 3, 2, 1]}' WHERE {{2}} < 10",
        f"INSERT INTO {{0}} ({{2}}, {{1}}) VALUES (1001, '{[1, -2, 3, -4, 5, -6, 7, -8]}')",
        "DELETE FROM {0} WHERE {2} BETWEEN 20 AND 30",
    ):
        quoted = [f'"{name}"' for name in (index.column_name, *index.key_columns)]
        index.connection.execute(statement.format(index.qualified_table, *quoted).encode())


def left(connection):
    """Return what dropped indexes have left."""
    return connection.execute(
        "SELECT object FROM hashindex.orphans() "
        "UNION ALL SELECT relname FROM pg_class WHERE relname ~ 'items_idx' "
        "UNION ALL SELECT proname FROM pg_proc WHERE proname ~ 'items_idx' "
        "UNION ALL SELECT tgname FROM pg_trigger WHERE tgname ~ 'hashindex' "
        "UNION ALL SELECT attname FROM pg_attribute WHERE attname ~ 'items_idx'"
    ).fetchall()


@pytest.mark.parametrize(("renames", "names"), RENAMES.values(), ids=RENAMES)
def test_rebind_gets_the_new_names(index, renames, names):
    connection = index.connection
    before = answers(index)
    for statement in renames:
        connection.execute(statement.encode())
    # By all ways to ask, the message leads to what says what to do.
    asks = [
        lambda: reopened(index).search(QUERIES[0]),
        lambda: reopened(index).search_like(7),
        lambda: reopened(index).search(QUERIES[0], where=sa.column("category") == "a"),
        lambda: reopened(index).encode(),
    ]
    for ask in asks:
        with pytest.raises(InvalidInputError, match="run pg-hashindex index check items_idx"):
            ask()
    renamed = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)
    for call in ("search_items_idx(%s::vector)", "search('items_idx', %s::vector)"):
        with pytest.raises(
            renamed, match='of index "items_idx" (does not exist|has no column)'
        ) as said:
            connection.execute(f"SELECT hashindex.{call}".encode(), [QUERIES[0]])
        assert "pg-hashindex index repair items_idx" in said.value.diag.message_hint
    unchanged = contents(connection)
    with pytest.raises(InvalidInputError, match="there any more; .*index repair items_idx --"):
        operations.repair(reopened(index))
    assert contents(connection) == unchanged
    done = operations.rebind(reopened(index), **names)
    assert done.left == ()
    assert [line.split()[0] for line in done.done] == ["bound"]
    now = reopened(index)
    assert answers(now) == before
    assert now.search(QUERIES[0], where=sa.column("category") == "a")
    write(now)
    assert_fresh(now)
    assert operations.repair(now).done == ()
    now.drop()
    assert left(connection) == []


@pytest.mark.parametrize("statement", [RENAMES["table"][0][0], RENAMES["schema"][0][0]])
def test_writes_after_the_table_was_renamed_continue(index, statement):
    index.connection.execute(statement.encode())
    name = index.connection.execute(
        "SELECT min(tgrelid::regclass::text) FROM pg_trigger WHERE tgname ~ 'hashindex'"
    ).fetchone()
    for change in (
        f"UPDATE {name[0]} SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10",
        f"INSERT INTO {name[0]} SELECT id + 1000, category, embedding FROM {name[0]} WHERE id < 9",
        f"DELETE FROM {name[0]} WHERE id BETWEEN 20 AND 30",
    ):
        index.connection.execute(change.encode())
    _, *encoded = operations.rebind(reopened(index), table=name[0]).done
    # They wait for the name.
    assert encoded == ["encoded 17 rows"]
    assert_fresh(reopened(index))


@pytest.mark.parametrize("column", ["embedding", "id"])
def test_writes_after_a_column_was_renamed_wait_for_the_command(index, column):
    connection = index.connection
    connection.execute(f"ALTER TABLE items RENAME {column} TO other".encode())
    for write in (
        "INSERT INTO items VALUES (1001, 'a', '[1,2,3,4,5,6,7,8]')",
        "UPDATE items SET category = 'b'",
        "DELETE FROM items WHERE ctid = '(0,1)'",
    ):
        connection.execute(write.encode())
    operations.rebind(
        reopened(index),
        **{"embedding": {"column": "other"}, "id": {"key_columns": "other"}}[column],
    )
    assert_fresh(reopened(index))


def test_names_that_cannot_be(index):
    connection = index.connection
    connection.execute("CREATE VIEW seen AS SELECT * FROM items")
    before = contents(connection)
    for names, message in (
        ({}, "name the table, the column or the key"),
        ({"table": "seen"}, "seen is not a table"),
        ({"table": "nowhere"}, 'relation "nowhere" does not exist'),
        ({"column": "nothing"}, 'column "nothing" of public.items is not there any more'),
        ({"column": "category"}, "is of type text, not vector"),
        ({"key_columns": "category"}, '"category" of public.items is not a key'),
    ):
        with pytest.raises(InvalidInputError, match=message):
            operations.rebind(index, **names)
        assert contents(connection) == before
    with pytest.raises(InvalidInputError, match="transaction"), connection.transaction():
        operations.rebind(index, column="embedding")


def test_another_column_and_key_take_their_places(index):
    """All codes are compared with those of the rows that they are named for now."""
    connection = index.connection
    connection.execute("ALTER TABLE items ADD other vector(8), ADD rank bigint")
    connection.execute(
        "UPDATE items SET rank = 301 - id, other = subvector(embedding || embedding, 2, 8)"
    )
    connection.execute("ALTER TABLE items ALTER rank SET NOT NULL, ADD UNIQUE (rank)")
    done = operations.rebind(index, column="other", key_columns="rank")
    assert done.done[0] == ("""bound the index to "public"."items", column 'other', key 'rank'""")
    assert_fresh(reopened(index))
    connection.execute("UPDATE items SET other = '[1,2,3,4,5,6,7,8]' WHERE id = 5")
    assert_fresh(reopened(index))


def test_an_index_without_codes(connection, items, model):
    index = create_index(connection, "i")
    connection.execute("ALTER TABLE items RENAME embedding TO v")
    assert operations.rebind(index, column="v").done[1:] == (
        "finished a set that was being built: codes of lsh:1 in lists without landmarks",
    )
    assert_fresh(reopened(index))


#: Triggers name the column of vectors, and PostgreSQL changes no such column's type.
AWAY = "; ".join(f"DROP TRIGGER hashindex_i_{e} ON items" for e in ("insert", "update", "delete"))


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (f"{AWAY}; ALTER TABLE items ALTER embedding TYPE vector(7) "
         "USING subvector(embedding, 1, 7)",
         "holds vectors of 7 dimensions, the model takes 8"),
        (f"{AWAY}; ALTER TABLE items ALTER embedding TYPE sparsevec(8)",
         r"type \S*sparsevec, not vector"),
        ("ALTER TABLE items DROP CONSTRAINT items_pkey", '"id" of public.items is not a key'),
        ("CREATE TABLE child () INHERITS (items)", "has tables that inherit from it"),
    ],
)  # fmt: skip
def test_recreated_objects_are_refused(connection, items, model, statement, message):
    index = indexed(connection, "i")
    # With its triggers away: a change of type would rewrite a column that one names.
    connection.execute(statement.encode())
    before = contents(connection)
    with pytest.raises(InvalidInputError, match=message):
        operations.repair(index)
    assert contents(connection) == before


@pytest.mark.newest
@pytest.mark.parametrize(
    ("access", "key", "options", "changed", "kind", "new"),
    [
        ("scan", "id", {}, "id", "bigint", 3 * 10**9),
        ("lists", "id", {}, "id", "bigint", 3 * 10**9),
        ("scan", "id", {}, "id", "numeric", 7000.4),
        ("scan", "id", {}, "id", "text", "a"),
        ("scan", "shop, id", {}, "id", "bigint", 3 * 10**9),
        ("scan", "id", {"tenant": "shop"}, "shop", "bigint", 3 * 10**9),
        ("lists", "id", {"tenant": "shop"}, "shop", "bigint", 3 * 10**9),
        ("scan", "shop, id", {"tenant": "shop"}, "shop", "bigint", 3 * 10**9),
    ],
)  # fmt: skip
def test_columns_that_take_another_type(
    connection, items, model, access, key, options, changed, kind, new
):
    """Values that fit into the former type are written; for others, a repair follows the type."""
    connection.execute(
        f"CREATE TABLE docs (id int, shop int DEFAULT 1, v vector(8), PRIMARY KEY ({key}));"
        "INSERT INTO docs (id, v) SELECT id, embedding FROM items".encode()
    )
    index = indexed(connection, "i", table="docs", column="v", access=access, **options)
    connection.execute(f"ALTER TABLE docs ALTER {changed} TYPE {kind}".encode())
    for write in (
        "INSERT INTO docs (id, v) VALUES ('5000', '[1,2,3,4,5,6,7,8]')",
        "UPDATE docs SET v = '[1,2,3,4,5,6,7,8]' WHERE id = '7'",
    ):
        # Nothing compares a text with an integer.
        refused = pytest.raises(psycopg.errors.DatatypeMismatch, match="no operator|not exist")
        with refused if kind == "text" else contextlib.nullcontext():
            connection.execute(write.encode())
    large = {"id": 9, "shop": 1} | {changed: new}
    statements = (
        ("UPDATE docs SET id = %(id)s, shop = %(shop)s WHERE id = '9'", large),
        (
            "INSERT INTO docs VALUES (%(id)s, %(shop)s, '[8,7,6,5,4,3,2,1]')",
            large | {"id": 9000 if changed == "shop" else new},
        ),
    )
    for statement in statements:
        with pytest.raises(psycopg.errors.DatatypeMismatch, match="other types than index") as told:
            connection.execute(*statement)
        assert told.value.diag.message_hint == "Run: pg-hashindex index repair i"
    assert operations.repair(index).done[0] == "recreated the codes"
    connection.execute(*statements[1])
    index = HashIndex.open(connection, "i")
    assert_fresh(index)
    assert (index.access, index.encoded) == (access, True)
    of_all = {"filter": "true", "all_tenants": "tenant" in options}
    nearest = index.search([8, 7, 6, 5, 4, 3, 2, 1], 1, **of_all)[0]
    assert nearest.distance == 0
    assert index.search_like(nearest.id, 3, **of_all)
    assert operations.repair(index, full=True).done == ()


@pytest.mark.parametrize(
    ("drop", "swapped"),
    [
        ("DROP TABLE items", False),
        ("DROP SCHEMA shop CASCADE", False),
        ("ALTER TABLE items DROP embedding CASCADE", False),
        ("ALTER TABLE items DROP embedding CASCADE", True),
    ],
)
def test_an_index_whose_table_or_column_is_gone_can_be_dropped(index, vectors, drop, swapped):
    connection = index.connection
    if swapped:
        store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
        index.swap(model="other", force=True)
    if "shop" in drop:
        connection.execute("CREATE SCHEMA shop; ALTER TABLE items SET SCHEMA shop")
    connection.execute(drop.encode())
    with pytest.raises(HashIndexError, match="index check items_idx"):
        reopened(index).search(QUERIES[0])
    # It may have been renamed, too: no guess.
    with pytest.raises(InvalidInputError, match="index drop items_idx"):
        operations.repair(reopened(index))
    reopened(index).drop()
    with pytest.raises(UnknownIndexError):
        reopened(index)
    assert left(connection) == []


@pytest.mark.parametrize("chosen", ["items", "items_old"])
def test_a_table_that_took_the_name_of_another(index, vectors, chosen):
    """A repair goes by the name that the index has; rebind takes the table of before."""
    connection = index.connection
    connection.execute("CREATE TABLE items_new (LIKE items INCLUDING INDEXES)")
    connection.execute(
        "INSERT INTO items_new SELECT id + 100, category, "
        "subvector(embedding || embedding, 2, 8) FROM items"
    )
    connection.execute(
        "ALTER TABLE items RENAME TO items_old; ALTER TABLE items_new RENAME TO items"
    )
    if chosen == "items":
        operations.repair(index)
    else:
        operations.rebind(index, table=chosen)
    now = reopened(index)
    assert now.table_name == chosen
    assert_fresh(now)
    for table in ("items", "items_old"):
        connection.execute(f"UPDATE {table} SET embedding = '[1,2,3,4,5,6,7,8]'".encode())
        connection.execute(f"DELETE FROM {table} WHERE id BETWEEN 150 AND 160".encode())
    assert_fresh(now)
    assert operations.repair(now).done == ()
    now.drop()


def test_a_table_whose_name_another_had_for_a_while(index):
    """Rows that are written to it meanwhile are found when it has its name again."""
    connection = index.connection
    swap = "ALTER TABLE items RENAME TO {0}; ALTER TABLE {1} RENAME TO items"
    connection.execute("CREATE TABLE others (LIKE items INCLUDING ALL)")
    connection.execute("INSERT INTO others SELECT id, category, '[1,1,1,1,1,1,1,1]' FROM items")
    connection.execute(swap.format("items_old", "others").encode())
    connection.execute(
        "UPDATE items_old SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id = 1;"
        "INSERT INTO items_old VALUES (5000, 'new', '[8,7,6,5,4,3,2,1]')"
    )
    connection.execute(swap.format("others", "items_old").encode())
    found = [hit.id for hit in reopened(index).search([8, 7, 6, 5, 4, 3, 2, 1], 2, candidates=2)]
    assert sorted(found) == [1, 5000]
    reopened(index).encode()
    assert_fresh(reopened(index))


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_a_table_made_again_is_not_searched_by_the_codes_of_the_old_one(
    connection, items, model, access
):
    """As by loads that drop a table and fill a new one, or that swap names; keys are the same."""
    index = indexed(connection, "i", access=access)
    index.search(QUERIES[0])
    connection.execute(
        "CREATE TABLE items_new (LIKE items INCLUDING ALL); "
        "INSERT INTO items_new (id, category, embedding) SELECT id, category, (embedding * "
        "array_fill(-1, ARRAY[8])::vector)::vector(8) FROM items; "
        "DROP TABLE items; ALTER TABLE items_new RENAME TO items"
    )
    for query in QUERIES:
        nearest = connection.execute(
            "SELECT id FROM items ORDER BY embedding <-> %s::vector, id LIMIT 5", (str(query),)
        ).fetchall()
        assert [hit.id for hit in index.search(query, 5, candidates=5)] == [n for (n,) in nearest]
    with pytest.raises(HashIndexError, match="recreated.*index check i"):
        index.within(QUERIES[0], 4)
    operations.repair(index)
    assert_fresh(index)
    assert len(index.within(QUERIES[0], index.n_bits)) == len(index.search(QUERIES[0], 10_000))


def test_both_models_of_a_swap_follow(index, vectors):
    connection = index.connection
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    index.swap(model="other", force=True)
    statements, names = RENAMES["everything"]
    for statement in statements:
        connection.execute(statement.encode())
    operations.rebind(reopened(index), **names)
    for found in (reopened(index), former(index)):
        assert (found.schema_name, found.column_name) == ("shop", "v")
    write(reopened(index))
    assert_fresh(reopened(index))
    assert_fresh(former(index))
    connection.execute("DELETE FROM shop.things WHERE number = 1001")
    reopened(index).rollback()
    now = reopened(index)
    assert now.model == "lsh"
    assert_fresh(now)
