"""Sets whose tables, keys, columns or indexes were changed by others."""

import psycopg
import pytest
from test_commands import TABLE, refused_swap, relations
from test_sets import docs  # noqa: F401 (a fixture)

from pg_hashindex import operations
from pg_hashindex.errors import DatabaseStateError, HashIndexError, InUseError
from pg_hashindex.index import sets
from pg_hashindex.index.handle import HashIndex


def test_a_key_of_another_type_is_repaired(connection, docs, on):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE)
    connection.execute("ALTER TABLE docs ALTER id TYPE integer")
    assert "broken" in on("index", "check", "docs", code=1).stdout
    connection.execute("ALTER TABLE docs ALTER id TYPE text")
    connection.execute("UPDATE docs SET id = 'a' WHERE id = '1'")
    assert "the key is of type text now" in on("index", "repair", "docs").output
    assert index.search(docs[0])[0].id == "a"
    on("index", "check", "docs")


def test_a_stored_column_stays_for_another_set(connection, docs):  # noqa: F811
    first = HashIndex.create(connection, "docs", **TABLE, store=True)
    other = HashIndex.create(connection, "other", **TABLE, model="docs", code_column="docs_code")
    first.drop()
    assert len(other.search(docs[0])) == 10
    assert "other_hnsw" in relations(connection) or "docs_hnsw" in relations(connection)
    other.drop()
    columns = "SELECT count(*) FROM pg_attribute WHERE attname = 'docs_code' AND NOT attisdropped"
    assert connection.execute(columns.encode()).fetchone() == (0,)


def test_repair_refuses_vectors_of_another_dimension(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    connection.execute(
        "DROP TABLE docs;"
        "CREATE TABLE docs (id bigint PRIMARY KEY, account integer, embedding vector(8))"
    )
    with pytest.raises(HashIndexError, match="holds vectors of 8 dimensions"):
        operations.repair(index)
    assert relations(connection) == ["docs_pkey"]
    connection.execute("INSERT INTO docs VALUES (1, 1, '[1,2,3,4,5,6,7,8]')")


def test_an_upgrade_leaves_an_index_whose_column_has_another_name(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE, tenant="account")
    connection.execute("ALTER TABLE docs RENAME account TO customer")
    notices = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    connection.execute("SELECT hashindex.rebuild_functions()")
    assert notices == ['index "docs" is left as it is, since its table has no column "account"']
    connection.execute("UPDATE hashindex.index SET tenant_column = 'customer'")
    operations.repair(HashIndex.open(connection, "docs"))
    assert HashIndex.open(connection, "docs").search(docs[0], tenant=1)[0].id == 1


@pytest.mark.parametrize("access", ["hnsw", "lists"])
def test_a_view_of_a_search_outlives_swaps(connection, docs, access):  # noqa: F811
    """The function keeps its arguments, so that it is replaced."""
    index = HashIndex.create(connection, "docs", **TABLE, access=access)
    connection.execute(
        f"CREATE VIEW near AS SELECT * FROM hashindex.search_docs('{docs[0].tolist()}')".encode()
    )
    connection.execute(
        "CREATE ROLE viewer; GRANT EXECUTE ON FUNCTION hashindex.search_docs TO viewer"
    )
    try:
        for other in ("lists", "hnsw"):
            if other != index.access:
                index.swap(access=other, force=True)
                index.prune()
            assert len(connection.execute("SELECT * FROM near").fetchall()) == 10
            granted = (
                "SELECT has_function_privilege('viewer', p.oid, 'EXECUTE') FROM pg_proc p "
                "WHERE p.proname = 'search_docs'"
            )
            assert connection.execute(granted.encode()).fetchall() == [(True,)]
    finally:
        connection.execute("DROP OWNED BY viewer; DROP ROLE viewer")


def test_a_ready_set_that_lost_its_index_is_not_taken(connection, docs):  # noqa: F811
    index = refused_swap(connection)
    connection.execute("DROP INDEX docs_hnsw_2")
    with pytest.raises(DatabaseStateError, match="the ready set of index .* has lost its index"):
        index.swap(force=True)
    assert index.set == "vectors as halfvec in hnsw"


def test_functions_that_searches_call_are_not_dropped(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, store=True)
    index.swap(code_column="docs_code", store=False, force=True)
    with pytest.raises(psycopg.Error, match='index "docs" encodes queries by them'):
        connection.execute("SELECT hashindex.drop_functions('docs')")
    assert len(index.search(docs[0])) == 10


def test_indexes_of_parts_that_a_build_has_left_are_dropped(connection, docs, monkeypatch):  # noqa: F811
    connection.execute(
        "CREATE TABLE parted (id bigint PRIMARY KEY, embedding vector(32)) PARTITION BY HASH (id);"
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 0);"
        "CREATE TABLE parted_2 PARTITION OF parted FOR VALUES WITH (MODULUS 2, REMAINDER 1);"
        "INSERT INTO parted SELECT id, embedding FROM docs"
    )
    options = {"table": "parted", "column": "embedding", "model": "none"}
    attached = []

    def run(connection, statements, table):
        for statement, _ in statements:
            if "ATTACH" in statement:
                raise KeyboardInterrupt
            attached.append(statement)
            connection.execute(statement)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sets, "_run", run)
        patch.setattr(sets, "_give_up", lambda *_: None)
        HashIndex.create(connection, "parted", **options)
    assert len(attached) == 2
    connection.execute("SELECT hashindex.drop_index('parted')")
    left = "SELECT count(*) FROM pg_class WHERE relname LIKE 'parted_hnsw%'"
    assert connection.execute(left.encode()).fetchone() == (0,)
    index = HashIndex.create(connection, "parted", **options)
    assert len(index.search(docs[0])) == 10


def test_an_index_that_became_part_of_another_is_left(connection, docs):  # noqa: F811
    connection.execute(
        "CREATE TABLE parted (id bigint PRIMARY KEY, embedding vector(32)) PARTITION BY RANGE (id);"
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10000);"
        "INSERT INTO parted SELECT id, embedding FROM docs"
    )
    part = HashIndex.create(connection, "part", table="parted_1", column="embedding", model="none")
    whole = HashIndex.create(connection, "whole", table="parted", column="embedding", model="none")
    part.drop()
    assert len(whole.search(docs[0])) == 10
    whole.drop()
    left = "SELECT count(*) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'hnsw'"
    assert connection.execute(left.encode()).fetchone() == (0,)


def test_a_table_with_another_name_is_tidied_up(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, store=True)
    connection.execute("ALTER TABLE docs RENAME TO archived")
    connection.execute("CREATE TABLE docs (LIKE archived INCLUDING ALL)")
    index.drop()
    count = (
        "SELECT count(*) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attname = 'docs_code' AND NOT attisdropped"
    )
    assert connection.execute(count.encode(), ["archived"]).fetchone() == (0,)
    assert connection.execute(count.encode(), ["docs"]).fetchone() == (1,)


def test_a_smaller_index_of_the_vectors_is_another_set(connection, docs):  # noqa: F811
    connection.execute("CREATE INDEX full_hnsw ON docs USING hnsw (embedding vector_cosine_ops)")
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    assert index.set == "vectors in hnsw"
    with pytest.raises(InUseError, match="has this set already"):
        index.swap(model="none")
    connection.execute(
        "CREATE INDEX half ON docs USING hnsw ((embedding::halfvec(32)) halfvec_cosine_ops)"
    )
    assert index.swap(model="none").set == "vectors as halfvec in hnsw"


def test_tiny_vectors_are_no_halfvecs(connection, docs):  # noqa: F811
    connection.execute(
        "UPDATE docs SET id = id, embedding = ("
        "SELECT array_agg(x * 1e-9) FROM unnest(embedding::real[]) x)::vector WHERE id <= 5"
    )
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    assert index.set == "vectors in hnsw"
    assert index.search(docs[0])[0].id == 1


def test_a_column_that_two_sets_of_an_index_have_goes_with_it(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, store=True)
    index.swap(code_column="docs_code", store=False, force=True)
    index.drop()
    columns = "SELECT count(*) FROM pg_attribute WHERE attname = 'docs_code' AND NOT attisdropped"
    assert connection.execute(columns.encode()).fetchone() == (0,)
    assert relations(connection) == ["docs_pkey"]


def test_sets_under_quoted_identifiers(connection, docs):  # noqa: F811
    connection.execute("SET quote_all_identifiers = on")
    connection.execute("SELECT hashindex.create_index('docs', 'docs', 'embedding')")
    connection.execute("SELECT hashindex.swap_index('docs', 'none')")
    assert len(HashIndex.open(connection, "docs").search(docs[0])) == 10


def test_an_upgrade_goes_on_beside_a_former_set_without_its_column(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE)
    connection.execute("SELECT hashindex.train('other', 'docs', 'embedding', 'sign')")
    connection.execute("ALTER TABLE docs ADD zero bit(32) DEFAULT 0::bit(32)")
    index.swap(model="other", code_column="zero", force=True)
    index.prune()
    index.swap(model="none", force=True)
    connection.execute("ALTER TABLE docs DROP zero")
    notices = []
    connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
    connection.execute("SELECT hashindex.rebuild_functions()")
    assert notices == []
