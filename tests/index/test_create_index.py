"""Creating and dropping indexes: what is refused, under which names, and what is left behind."""

import re
import subprocess

import numpy as np
import psycopg
import pytest
from fixtures.catalog import catalog, contents
from fixtures.checks import assert_fresh
from fixtures.indexes import begin_lists, create_index
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.errors import (
    DuplicateNameError,
    HashIndexError,
    InvalidInputError,
    UnknownIndexError,
    UnknownModelError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex, list_indexes


def create(connection, name="fine", **changes):
    options = {"table": "items", "column": "embedding", "model": "lsh"} | changes
    return begin_lists(connection, name, **options)


def assert_refused(connection, error, message, **changes):
    before = contents(connection)
    with pytest.raises(error, match=message), connection.transaction():
        create(connection, **changes)
    assert contents(connection) == before


@pytest.fixture
def undone(connection):
    """A connection to a database that tests share, in a transaction that is rolled back."""
    with connection.transaction(force_rollback=True):
        yield connection


@pytest.mark.newest
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"model": "other"}, UnknownModelError, 'model "other" does not exist'),
        ({"model": "lsh:7"}, UnknownModelError, 'model "lsh:7" does not exist'),
        ({"model": "lsh:x"}, InvalidInputError, 'version "x" of model reference "lsh:x"'),
        ({"model": "lsh:"}, InvalidInputError, 'version "" of model reference'),
        ({"model": ""}, UnknownModelError, 'model "" does not exist'),
        ({"name": ""}, InvalidInputError, 'index name "" is not 1 to 40 letters'),
        ({"name": "x" * 41}, InvalidInputError, 'x" is not 1 to 40 letters'),
        ({"name": "my idx!"}, InvalidInputError, 'index name "my idx!" is not .* Choose another'),
        ({"name": "-x"}, InvalidInputError, 'index name "-x" is not'),
        ({"name": "é"}, InvalidInputError, 'index name "é" is not'),
        (
            {"metric": "l1"},
            InvalidInputError,
            "metric 'l1' of index 'fine' is unknown; use one of: l2, cosine, ip",
        ),
        ({"table": "nowhere"}, InvalidInputError, 'relation "nowhere" does not exist'),
        ({"table": "no.where"}, InvalidInputError, 'relation "no.where" does not exist'),
        ({"table": ""}, InvalidInputError, "invalid name syntax"),
        ({"table": "gold.shop.items"}, InvalidInputError, "cross-database references"),
        ({"table": "hashindex_items"}, InvalidInputError, 'relation "hashindex_items" does not'),
        ({"column": "nothing"}, InvalidInputError, 'table .*items has no column "nothing"'),
        ({"column": "category"}, InvalidInputError, 'column "category" of .* is of type text'),
        ({"column": "ctid"}, InvalidInputError, 'has no column "ctid"'),
        ({"key_columns": "nothing"}, InvalidInputError, 'table .*items has no column "nothing"'),
        ({"key_columns": "category"}, InvalidInputError, 'column "category" of .* is not a key'),
        ({"key_columns": "ctid"}, InvalidInputError, 'has no column "ctid"'),
        ({"key_columns": ["id", "id"]}, InvalidInputError, 'key column "id" is named twice'),
    ],
    ids=str,
)
@pytest.mark.reads
def test_refused(connection, items, model, changes, error, message):
    assert_refused(connection, error, message, **changes)


@pytest.mark.newest
@pytest.mark.parametrize("missing", ["name", "table_name", "column_name"])
@pytest.mark.reads
def test_null_is_refused(connection, items, model, missing):
    arguments = {
        "name": "'fine'",
        "table_name": "'items'",
        "column_name": "'embedding'",
        "model": "'lsh'",
    } | {missing: "NULL"}
    listed = ", ".join(f"{key} => {value}" for key, value in arguments.items())
    before = contents(connection)
    with pytest.raises(psycopg.errors.NullValueNotAllowed, match=f"{missing} is NULL"):
        connection.execute(f"SELECT hashindex.create_index({listed})".encode())
    assert contents(connection) == before


@pytest.mark.newest
@pytest.mark.reads
def test_a_taken_name_is_refused(index):
    assert_refused(
        index.connection,
        DuplicateNameError,
        'index "items_idx" exists already; Choose another name',
        name="items_idx",
    )


@pytest.mark.newest
@pytest.mark.parametrize(
    ("definition", "key", "message"),
    [
        ("id int, embedding vector(8)", None, "has no primary key; Name the columns of a unique"),
        ("id int, embedding vector(8)", "id", 'column "id" of .* is not a key'),
        ("id int UNIQUE, embedding vector(8)", None, "has no primary key"),
        ("id int UNIQUE, embedding vector(8)", "id", "must be NOT NULL with a unique index"),
        ("id int NOT NULL, embedding vector(8)", "id", "is not a key"),
        ("id int, b int, embedding vector(8), PRIMARY KEY (id, b)", "id", "is not a key"),
        ("id int, b int, embedding vector(8), PRIMARY KEY (id, b)", ["b"], "is not a key"),
        ("id int, b int, embedding vector(8), UNIQUE (id, b)", ["id", "b"], "must be NOT NULL"),
        ("id int PRIMARY KEY, b int NOT NULL, embedding vector(8)", ["id", "b"], "are not a key"),
        ("id int PRIMARY KEY, embedding vector(8)", [], "a key of 0 columns is wanted"),
        ("id int PRIMARY KEY, embedding vector(8)", ["id"] * 33, "a key of 33 columns is wanted"),
        ("id int PRIMARY KEY DEFERRABLE, embedding vector(8)", None, "is DEFERRABLE"),
        ("id int NOT NULL UNIQUE DEFERRABLE, embedding vector(8)", "id", "is DEFERRABLE"),
        ("id int PRIMARY KEY, embedding vector(9)", None, "vectors of 9 dimensions, the model tak"),
        (
            "id int PRIMARY KEY, embedding sparsevec(8)",
            None,
            "type public.sparsevec, not vector or half",
        ),
        (
            "id int PRIMARY KEY, embedding vector(8)[]",
            None,
            r"is of type public.vector\[\], not vector",
        ),
        ("id int PRIMARY KEY, embedding real[]", None, r"is of type real\[\], not vector"),
    ],
)
@pytest.mark.reads
def test_tables_that_are_refused(undone, model, definition, key, message):
    undone.execute(f"CREATE TABLE things ({definition})".encode())
    assert_refused(undone, InvalidInputError, message, table="things", key_columns=key)


@pytest.mark.newest
@pytest.mark.parametrize("index_on", ["(id) WHERE id > 0", "(abs(id))", "(id, b)"])
@pytest.mark.reads
def test_a_unique_index_that_is_not_a_key(undone, model, index_on):
    undone.execute(
        "CREATE TABLE things (id int NOT NULL, b int NOT NULL, embedding vector(8));"
        f"CREATE UNIQUE INDEX ON things {index_on}".encode()
    )
    message = 'column "id" of .* is not a key'
    assert_refused(undone, InvalidInputError, message, table="things", key_columns="id")
    # The hint's command repairs it.
    undone.execute("ALTER TABLE things ALTER COLUMN id SET NOT NULL, ADD UNIQUE (id)")
    assert create(undone, table="things", key_columns="id").key_types == ["integer"]


@pytest.mark.newest
@pytest.mark.parametrize("what", ["name", "table", "column", "model"])
def test_arguments_that_are_not_text(connection, items, model, what):
    given = {"name": "i", "table": "items", "column": "embedding", "model": "lsh"} | {what: model}
    with pytest.raises(InvalidInputError, match=f"{what} must be text, got a Model"):
        HashIndex.create(connection, **given)


@pytest.mark.parametrize("wrong", [5, b"lsh", ["lsh"]])
def test_names_that_are_not_text(connection, model, wrong):
    named = f"must be text, got {re.escape(repr(wrong))}"
    with pytest.raises(InvalidInputError, match=f"the name of an index {named}"):
        HashIndex.open(connection, wrong)
    for command in (store.load, store.describe, store.script, store.drop):
        with pytest.raises(InvalidInputError, match=f"the name of a model {named}"):
            command(connection, wrong)


@pytest.mark.parametrize(
    ("made", "key", "hint"),
    [
        (
            "PRIMARY KEY (id, day))",
            "day",
            "Run: ALTER TABLE public.things ALTER COLUMN day SET NOT NULL",
        ),
    ],
)
def test_hints_for_a_key_can_be_followed(connection, model, made, key, hint):
    connection.execute(
        f"CREATE TABLE things (id int, day int, embedding vector(8), {made}".encode()
    )
    with pytest.raises(InvalidInputError, match=hint) as raised:
        create(connection, table="things", key_columns=key)
    command = re.search("Run: (ALTER TABLE .*;)", str(raised.value))
    connection.execute(command[1].encode())
    assert create(connection, table="things", key_columns=key).key_columns == [key]


def test_a_unique_index_with_more_columns_included_is_a_key(connection, model):
    connection.execute(
        "CREATE TABLE things (id int NOT NULL, b int, embedding vector(8));"
        "CREATE UNIQUE INDEX ON things (id) INCLUDE (b)"
    )
    assert create(connection, table="things", key_columns="id").key_columns == ["id"]


def test_an_untyped_column_with_a_wrong_row(connection, model):
    connection.execute(
        "CREATE TABLE things (id int PRIMARY KEY, embedding vector);"
        "INSERT INTO things VALUES (1, '[1,2,3,4,5,6,7,8]'), (2, NULL), (3, '[1,2,3]')"
    )
    message = "holds vectors of 3 dimensions, the model takes 8; Train a model on this column"
    assert_refused(connection, InvalidInputError, message, table="things")
    connection.execute("DELETE FROM things WHERE id = 3")
    index = create(connection, table="things")
    assert index.encode() == 1
    assert_fresh(index)


@pytest.mark.newest
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE VIEW things AS SELECT * FROM items",
        "CREATE MATERIALIZED VIEW things AS SELECT * FROM items",
        "CREATE SEQUENCE things",
        "CREATE INDEX things ON items (category)",
    ],
)
@pytest.mark.reads
def test_not_a_table(undone, items, model, statement):
    undone.execute(statement.encode())
    assert_refused(
        undone, InvalidInputError, "things is not a table; Index the table", table="things"
    )


def test_two_names_of_full_length_that_differ_in_the_last_byte(connection, items, model):
    before = catalog(connection)
    indexes = [create(connection, "n" * 39 + last) for last in "ab"]
    for index in indexes:
        assert index.encode() == 300
    connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 1")
    for index in indexes:
        assert_fresh(index)
        index.drop()
    assert catalog(connection) == before


def _model(name):
    rows = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    return LSH(n_bits=6).fit(rows).to_model(name)


def test_names_of_our_own_functions(connection, items, model):
    """An index may be called as one of our functions ends: the two must not be confused."""
    before = catalog(connection)
    for name in ("query", "function_source", "index", "model"):
        index = create(connection, name)
        index.encode()
        assert len(index.search(np.ones(8))) == 10
        generic = connection.execute(
            "SELECT count(*) FROM hashindex.search(%s, '[1,1,1,1,1,1,1,1]')", [name]
        ).fetchone()
        assert generic == (10,)
    for index in list_indexes(connection):
        index.drop()
    assert catalog(connection) == before


def test_drop_leaves_the_table_as_it_was(connection, items, model):
    connection.execute(
        "CREATE INDEX ON items USING hnsw (embedding vector_l2_ops);"
        "ALTER TABLE items ADD CHECK (id > 0);"
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';"
        "CREATE TRIGGER own BEFORE INSERT ON items FOR EACH ROW EXECUTE FUNCTION nothing()"
    )
    rows = "SELECT id, category, embedding::text FROM items ORDER BY id"
    before, rows_before = contents(connection), connection.execute(rows).fetchall()
    index = create(connection)
    index.encode()
    index.drop()
    assert contents(connection) == before
    assert connection.execute(rows).fetchall() == rows_before
    with pytest.raises(UnknownIndexError, match='index "fine" does not exist'):
        index.drop()


def test_drop_of_one_leaves_the_other(connection, items, model):
    kept = create(connection, "kept")
    before = contents(connection)
    create(connection, "gone").drop()
    assert contents(connection) == before
    assert kept.encode() == 300
    connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id < 9")
    assert_fresh(kept)


def test_drop_after_the_table_was_dropped(index):
    connection = index.connection
    connection.execute("DROP TABLE items")
    assert [found.name for found in list_indexes(connection)] == ["items_idx"]
    with pytest.raises(InvalidInputError, match='table public.items of index "items_idx" does not'):
        HashIndex.open(connection, "items_idx").search(np.ones(8))
    index.drop()
    assert list_indexes(connection) == []
    left = catalog(connection)
    assert not any("items" in str(rows) for rows in left.values())


def test_part_of_the_caller_s_transaction(connection, items, model):
    before = contents(connection)
    with connection.transaction(force_rollback=True):
        index = create(connection)
        connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 1")
        assert index.search(np.arange(1, 9), 1)[0].id == 1
    assert contents(connection) == before
    with connection.transaction():
        with pytest.raises(DuplicateNameError):
            create(connection)
            create(connection)
        index = create(connection, "other")
    assert [found.name for found in list_indexes(connection)] == ["fine", "other"]
    with connection.transaction(force_rollback=True):
        index.drop()
    assert index.encode() == 300
    assert_fresh(index)


def test_summary_of_an_index(connection, items, model):
    index = create(connection, "told", metric="cosine")
    assert (index.model, index.model_version, index.method) == ("lsh", 1, "lsh")
    assert (index.n_bits, index.dimension, index.metric) == (12, 8, "cosine")
    assert (index.schema_name, index.table_name) == ("public", "items")
    assert (index.column_name, index.key_columns, index.key_types) == (
        "embedding",
        ["id"],
        ["bigint"],
    )
    assert index.qualified_table == '"public"."items"'
    assert list_indexes(connection) == [index] == [HashIndex.open(connection, "told")]

    summary = index.summary()
    assert (summary.rows, summary.codes) == (300, 0)
    connection.execute("UPDATE items SET embedding = NULL WHERE id <= 100")
    index.encode()
    summary = index.summary()
    assert (summary.rows, summary.codes) == (200, 200)
    # A vector takes 4 bytes a dimension and a header of 8; a code of 12 bits 2.
    assert 200 * 8 * 4 < summary.vector_bytes <= 200 * (8 * 4 + 8)
    assert summary.code_bytes >= 200 * 2


def test_metric_is_the_model_s_by_default(connection, items):
    rows = np.random.default_rng(1).standard_normal((20, 8)).astype(np.float32)
    store.save(connection, LSH(n_bits=4).fit(rows).to_model("cos", metric="cosine"))
    assert create(connection, model="cos").metric == "cosine"
    assert create(connection, "other", model="cos", metric="ip").metric == "ip"


def test_versions_of_a_model(connection, items, model):
    """An index keeps the version that it was made with, whatever comes after."""
    first = create(connection, "first")
    store.save(connection, _model("lsh"))
    second, third = create(connection, "second"), create(connection, "third", model="lsh:1")
    versions = [index.model_version for index in (first, second, third)]
    assert versions == [1, 2, 1]
    for index in (first, second, third):
        index.encode()
        assert_fresh(index)


def test_sql_alone(server, url, connection, items, model):
    script = """
        SELECT hashindex.create_index('plain', 'items', 'embedding', 'lsh', access => 'scan');
        UPDATE items SET embedding = embedding;
        UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id = 1;
        INSERT INTO items VALUES (1000, 'a', '[1,2,3,4,5,6,7,8]');
        SELECT id FROM hashindex.search_plain('[1,2,3,4,5,6,7,8]', k => 2);
    """
    # Not the connection's own address: psql of PostgreSQL 15 does not know all options of libpq.
    done = subprocess.run(
        [server.bin_dir / "psql", "-X", "-At", "-v", "ON_ERROR_STOP=1", url],
        input=script,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["1", "1000"]
    index = HashIndex.open(connection, "plain")
    index.encode()
    assert_fresh(index)


def test_two_creations_of_one_name_at_once(connection, other, items, model):
    """The second meets the first's row, or its table: a HashIndexError either way."""
    connection.execute("CREATE TABLE more (LIKE items INCLUDING ALL)")
    with connection.transaction():
        create(connection)
        with pytest.raises(HashIndexError):
            create(other, table="more", patience=0.1)
    with pytest.raises(DuplicateNameError):
        create(other, table="more")
    assert [found.table_name for found in list_indexes(other)] == ["items"]


def test_many_indexes_on_one_column(connection, items, model, vectors):
    indexes = [create(connection, metric, metric=metric) for metric in ("l2", "cosine", "ip")]
    for index in indexes:
        assert index.encode() == 300
    connection.execute("DELETE FROM items WHERE id = 300")
    connection.execute("INSERT INTO items VALUES (301, 'a', %s)", [Vector(vectors[0])])
    for index in indexes:
        assert_fresh(index)
    assert [index.name for index in list_indexes(connection)] == sorted(i.name for i in indexes)


def test_tables_that_an_index_would_outlive_or_miss(connection, model):
    connection.execute(
        "CREATE TEMPORARY TABLE passing (id int PRIMARY KEY, v vector(8));"
        "CREATE TABLE parent (id int PRIMARY KEY, v vector(8));"
        "CREATE TABLE child () INHERITS (parent);"
        "CREATE TABLE arrays (id int[] PRIMARY KEY, v vector(8));"
        "CREATE TABLE made (id int PRIMARY KEY, a real[], "
        "v vector(8) GENERATED ALWAYS AS (a::vector(8)) STORED)"
    )
    for table, message in (
        ("passing", "temporary table"),
        ("parent", "inherit from it"),
        ("arrays", "an array"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            create_index(connection, "refused", table=table, column="v")
    connection.execute("INSERT INTO made (id, a) VALUES (1, '{1,2,3,4,5,6,7,8}')")
    index = create_index(connection, "made", table="made", column="v")
    assert index.encode() == 1
    connection.execute("INSERT INTO made (id, a) VALUES (2, '{1,2,3,4,5,6,7,9}')")
    assert index.summary().codes == 2


def test_codes_of_an_unlogged_table_are_unlogged(connection, model):
    connection.execute("CREATE UNLOGGED TABLE fast (id int PRIMARY KEY, v vector(8))")
    create_index(connection, "fast", table="fast", column="v")
    row = connection.execute(
        "SELECT relpersistence::text FROM pg_class WHERE relname = 'set_1_codes'"
    ).fetchone()
    assert row == ("u",)


# Parts of a table that call shop.norm, and their names in the error about them.
CALLERS = {
    "index": (
        "CREATE INDEX items_norm ON items (shop.norm(category))",
        "index public.items_norm of",
    ),
    "predicate": (
        "CREATE INDEX items_norm ON items (id) WHERE shop.norm(category) <> ''",
        "index public.items_norm of",
    ),
    "policy": (
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY seen ON items USING (shop.norm(category) IS NOT NULL)",
        'policy "seen" of',
    ),
    "constraint": (
        "ALTER TABLE items ADD CONSTRAINT folded CHECK (shop.norm(category) IS NOT NULL)",
        None,
    ),
    "generated column": (
        "ALTER TABLE items ADD norm text GENERATED ALWAYS AS (shop.norm(category)) STORED",
        None,
    ),
}
# As many applications make them: the body names another function without its schema.
SHOP = """
    CREATE SCHEMA shop;
    CREATE FUNCTION shop.fold(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT lower($1)';
    SET search_path = shop, public;
    CREATE FUNCTION shop.norm(text) RETURNS text LANGUAGE sql IMMUTABLE SET search_path = shop
        AS 'SELECT fold($1)';
"""


@pytest.mark.parametrize("what", CALLERS)
def test_names_that_depend_on_the_path_in_expressions_of_the_table(connection, items, model, what):
    statement, shown = CALLERS[what]
    connection.execute((SHOP + statement).encode())
    # Since PostgreSQL 17 no index can be made with it so; one can become so.
    connection.execute("ALTER FUNCTION shop.norm(text) RESET search_path")
    if shown is not None:
        message = (
            f"{re.escape(shown)} public.items calls .*: function fold\\(text\\) does not exist; .* "
            r"run: ALTER FUNCTION shop.norm\(text\) SET search_path = shop, pg_temp;"
        )
        assert_refused(connection, InvalidInputError, message)
        # The cure that the message names.
        connection.execute("ALTER FUNCTION shop.norm(text) SET search_path = shop, pg_temp")
    index = create(connection)
    assert index.encode() == len(index.search(np.ones(8), k=300))
    assert_fresh(index)


def test_expressions_that_find_their_names_are_not_refused(connection, model):
    connection.execute(
        "CREATE TABLE things (id int PRIMARY KEY, name text, embedding vector(8),"
        " upper text GENERATED ALWAYS AS (upper(name)) STORED,"
        " CHECK (tableoid IS NOT NULL));"
        "CREATE INDEX ON things (lower(name)) WHERE things.name <> '';"
        "CREATE INDEX ON things USING hnsw ((embedding::halfvec(8)) halfvec_l2_ops);"
        "ALTER TABLE things ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY seen ON things USING (EXISTS (SELECT FROM pg_roles WHERE name = rolname))"
    )
    assert create(connection, table="things").encode() == 0
