"""An index with labels: rows get the codeword of their class, others and queries hashed codes.

The model is made by hand: a code is the signs of the four numbers of a vector.
"""

import numpy as np
import psycopg
import pytest
from fixtures.health import findings, troubles
from fixtures.roles import denied
from pgvector import Vector

from pg_hashindex import operations, store
from pg_hashindex.errors import (
    DatabaseStateError,
    HashIndexError,
    InvalidInputError,
)
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks.building import LandmarkBuild
from pg_hashindex.models.layers import affine
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

pytestmark = pytest.mark.newest

NAMES = ["news", "it's", 'a "b"; DROP TABLE docs; --', "", "née", "100%"]
#: Codes of which no row in this module has the signs: the fourth number is never above 0.
CODEWORDS = dict(zip(NAMES, ["0111", "1001", "0001", "0101", "1011", "1111"], strict=True))
OTHERS = {"news": "0011", "new in this model": "1101"}
#: Labels in turn; the last two have no codeword.
LABELS = [*NAMES, "unknown", None]
ROWS = np.random.default_rng(2).standard_normal((80, 4)).astype(np.float32)
ROWS[:, 3] = -np.abs(ROWS[:, 3])
CODES = "SELECT c.id, c.code::text FROM hashindex.docs_idx_codes c"


def by_hand(name, codewords=CODEWORDS, **options):
    return Model(name, "byhand", 4, [affine(np.eye(4))], class_codes=codewords, **options)


def hashed(vector):
    return "".join("01"[int(number > 0)] for number in vector)


def expected(connection, codewords=CODEWORDS):
    """The codes that the rows of table docs should have, by what the table says."""
    rows = connection.execute("SELECT id, label, embedding::real[] FROM docs").fetchall()
    return {key: codewords.get(label, hashed(vector)) for key, label, vector in rows if vector}


def stored(index):
    """The codes of an index by key."""
    table = index.row.codes.as_string(index.connection)
    rows = index.connection.execute(f"SELECT id, code::text FROM {table}".encode())
    return dict(rows.fetchall())


def assert_right(index, codewords=CODEWORDS):
    assert stored(index) == expected(index.connection, codewords)


@pytest.fixture
def docs(connection):
    connection.execute("CREATE TABLE docs (id bigint PRIMARY KEY, label text, embedding vector(4))")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO docs VALUES (%s, %s, %s)",
            [(n, LABELS[n % len(LABELS)], Vector(row)) for n, row in enumerate(ROWS)],
        )
    store.save(connection, by_hand("taught"))
    store.save(connection, by_hand("other", OTHERS))
    store.save(connection, by_hand("plain", {}))
    return connection


def create(connection, **options):
    given = {"table": "docs", "column": "embedding", "model": "taught", "labels": "label"}
    return HashIndex.create(connection, "docs_idx", **given | options)


@pytest.fixture(params=["scan", "landmarks"])
def index(request, docs):
    made = create(docs, access=request.param)
    made.encode()
    assert made.row.access == request.param
    return made


def test_bulk_encoding_gives_codewords(index):
    codes = stored(index)
    assert len(codes) == len(ROWS)
    assert [codes[n] for n in range(6)] == list(CODEWORDS.values())
    assert [codes[n] for n in (6, 7)] == [hashed(ROWS[6]), hashed(ROWS[7])]
    assert_right(index)
    assert (index.row.label_column, index.row.filter_columns) == ("label", ["label"])


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO docs VALUES (100, 'news', '[1,1,1,1]'), (101, NULL, '[1,1,1,1]'), "
        "(102, 'News', '[1,1,1,1]'), (103, 'it''s', NULL)",
        "UPDATE docs SET label = 'news' WHERE id IN (1, 7)",
        "UPDATE docs SET label = NULL WHERE id < 20",
        "UPDATE docs SET label = 'nothing that it knows'",
        "UPDATE docs SET embedding = embedding * '[-1,-1,-1,-1]'",
        "UPDATE docs SET label = '', embedding = '[1,1,1,1]' WHERE id = 6",
        "UPDATE docs SET embedding = NULL WHERE id = 0",
        "UPDATE docs SET id = id + 1000, label = 'née' WHERE id < 9",
        "DELETE FROM docs WHERE id < 10",
        "INSERT INTO docs VALUES (0, 'it''s', '[1,1,1,1]') "
        "ON CONFLICT (id) DO UPDATE SET label = excluded.label",
    ],
)
def test_triggers_give_codewords(index, write):
    before = stored(index)
    index.connection.execute(write.encode())
    assert_right(index)
    if "embedding *" not in write:
        assert stored(index) != before


def test_a_row_of_another_class_is_never_seen_half_changed(index, url):
    connection = index.connection
    connection.execute("UPDATE docs SET label = 'news' WHERE id = 7")
    assert stored(index)[7] == "0111"
    connection.execute("UPDATE docs SET label = '100%' WHERE id = 7")
    assert stored(index)[7] == "1111"
    connection.execute("UPDATE docs SET label = NULL WHERE id = 7")
    assert stored(index)[7] == hashed(ROWS[7])


def test_rows_stay_in_the_list_of_their_vector(docs):
    """A codeword says nothing about where a vector lies."""
    index = create(docs, access="landmarks")
    index.encode()
    landmark = "SELECT landmark FROM hashindex.{} WHERE id = 7"
    table = index.row.codes.as_string(docs).rpartition(".")[2]
    before = docs.execute(landmark.format(table).encode()).fetchone()
    docs.execute("UPDATE docs SET label = 'news' WHERE id = 7")
    assert docs.execute(landmark.format(table).encode()).fetchone() == before
    assert before[0] is not None


def test_queries_are_hashed(index):
    """The row is found by its own vector if all are candidates, and by its class by their codes."""
    index.connection.execute("INSERT INTO docs VALUES (100, 'news', '[9,9,9,-9]')")
    answers = index.search([9, 9, 9, -9], 1, candidates=200, probes=1000)
    assert answers[0].id == 100
    # Nearest to codeword 0111 by Hamming distance: the rows of the class come first.
    nearest = index.connection.execute(
        "SELECT d.label FROM hashindex.candidates_docs_idx('[-9,9,9,9]', 11, 1000) c "
        "JOIN docs d USING (id)"
    ).fetchall()
    assert nearest == [("news",)] * 11


def test_sql_encodes_and_builds_alike(docs):
    create_sql = (
        "SELECT hashindex.create_index('docs_idx', 'docs', 'embedding', 'taught', "
        "label_column => 'label')"
    )
    docs.execute(create_sql)
    docs.execute("SELECT hashindex.encode_rows('docs_idx')")
    index = HashIndex.open(docs, "docs_idx")
    assert_right(index)
    docs.execute("SELECT hashindex.build_landmarks('docs_idx')")
    assert_right(index)
    docs.execute("INSERT INTO docs VALUES (100, 'news', '[1,1,1,1]')")
    assert_right(index)
    assert index.rebalance().rows == 81
    assert_right(index)
    assert troubles(index, full=True).keys() <= {"duplicates", "bits", "correlation"}


def test_declared_in_one_statement(docs):
    docs.execute(
        "SELECT hashindex.declare_index('docs_idx', 'docs', 'embedding', 'taught', "
        "label_column => 'label')"
    )
    assert_right(HashIndex.open(docs, "docs_idx"))


def test_labels_change_while_landmarks_are_built(docs, monkeypatch):
    index = create(docs, access="landmarks")
    put_in_order = LandmarkBuild._put_in_order

    def meanwhile(self):
        docs.execute("UPDATE docs SET label = 'news' WHERE id = 7")
        docs.execute("UPDATE docs SET label = NULL WHERE id = 1")
        put_in_order(self)
        docs.execute("UPDATE docs SET label = 'it''s' WHERE id = 0")
        docs.execute("UPDATE docs SET label = NULL WHERE id = 2")

    monkeypatch.setattr(LandmarkBuild, "_put_in_order", meanwhile)
    index.encode()
    assert index.row.access == "landmarks"
    assert_right(index)


def test_a_swap_takes_the_codewords_of_its_model(index):
    said: list[str | None] = []
    index.connection.add_notice_handler(lambda told: said.append(told.message_primary))
    operations.swap(index, "plain", tolerance=1)
    assert any("has no codewords of classes" in (text or "") for text in said)
    assert_right(index, {})
    index.connection.execute("UPDATE docs SET label = 'news' WHERE id = 7")
    assert_right(index, {})
    operations.rollback(index)
    # The former codes were kept fresh.
    assert_right(index)
    operations.prune(index)
    operations.swap(index, "other", tolerance=1)
    assert_right(index, OTHERS)
    index.connection.execute("INSERT INTO docs VALUES (100, 'new in this model', '[1,1,1,1]')")
    assert stored(index)[100] == "1101"
    assert_right(index, OTHERS)


def test_a_migration_swaps_them_too(docs):
    index = create(docs)
    index.encode()
    docs.execute("SELECT hashindex.swap_model('docs_idx', 'other')")
    assert_right(index, OTHERS)
    # Labels stay whatever other filter columns are wanted.
    docs.execute("ALTER TABLE docs ADD price integer")
    docs.execute("SELECT hashindex.swap_model('docs_idx', 'taught', '{price}')")
    assert index.row.filter_columns == ["price", "label"]
    assert_right(index)
    docs.execute("UPDATE docs SET price = 3, label = 'news' WHERE id = 7")
    assert_right(index)


UNSEEN = {
    "another code of a class": "UPDATE hashindex.{codes} SET code = '0000' WHERE id IN (0, 1)",
    "a codeword of another class": "UPDATE hashindex.{codes} SET code = '1001' WHERE id IN (0, 2)",
    "another hashed code": "UPDATE hashindex.{codes} SET code = ~code WHERE id IN (6, 7)",
    "a codeword without a class": "UPDATE hashindex.{codes} SET code = '0111' WHERE id IN (6, 7)",
}


@pytest.mark.parametrize("what", UNSEEN)
def test_check_finds_other_codes_and_repair_makes_them_right(index, what):
    assert findings(index, full=True)["wrong_codes"].status == "ok"
    assert operations.repair(index, full=True).done == ()
    codes = index.row.codes.as_string(index.connection).rpartition(".")[2]
    index.connection.execute(UNSEEN[what].format(codes=codes).encode())
    for full in (False, True):
        found = findings(index, full=full)["wrong_codes"]
        assert (found.status, found.detail) == (
            "broken",
            "2 of 80 codes are not what the model gives their rows",
        )
    assert "removed 2 codes that were not those of their rows" in (
        operations.repair(index, full=True).done
    )
    assert_right(index)


def test_labels_that_triggers_did_not_see(index):
    connection = index.connection
    connection.execute("ALTER TABLE docs DISABLE TRIGGER USER")
    connection.execute("UPDATE docs SET label = NULL WHERE id = 0")
    connection.execute("UPDATE docs SET label = 'it''s' WHERE id IN (2, 7)")
    connection.execute("ALTER TABLE docs ENABLE TRIGGER USER")
    found = findings(index, full=True)
    assert (found["filters"].status, found["filters"].value) == ("broken", 3)
    assert "removed 3 codes that were not those of their rows" in (
        operations.repair(index, full=True).done
    )
    assert_right(index)
    assert findings(index, full=True)["filters"].status == "ok"


def test_repair_makes_lost_codes_again(docs):
    index = create(docs)
    index.encode()
    docs.execute("DROP TABLE hashindex.docs_idx_codes")
    operations.repair(index)
    assert_right(index)


@pytest.mark.parametrize(
    ("kind", "value", "name"),
    [
        ("integer", 7, "7"),
        ("smallint", -1, "-1"),
        ("bigint", 2**40, str(2**40)),
        ("boolean", True, "true"),
        ("varchar(9)", "Ab", "Ab"),
        ("char(9)", "Ab", "Ab"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("colour", "red", "red"),
        ('text COLLATE "C"', "Ab", "Ab"),
    ],
)
def test_types_of_labels(connection, kind, value, name):
    connection.execute(
        "CREATE TYPE colour AS ENUM ('red', 'blue');"
        f"CREATE TABLE docs (id bigint PRIMARY KEY, label {kind}, embedding vector(4))"
    )
    store.save(connection, by_hand("taught", {name: "0111", "AB": "0001"}))
    insert = f"INSERT INTO docs VALUES (%s, %s::{kind.partition(' COLL')[0]}, '[1,1,1,1]')"
    connection.execute(insert.encode(), [1, value])
    index = create(connection)
    index.encode()
    connection.execute(insert.encode(), [2, value])
    assert stored(index) == {1: "0111", 2: "0111"}
    assert operations.repair(index, full=True).done == ()


def test_a_key_of_two_columns_and_partitions(connection):
    connection.execute(
        "CREATE TABLE posts (day integer, id bigint, label text, embedding halfvec(4), "
        "PRIMARY KEY (day, id)) PARTITION BY LIST (day);"
        "CREATE TABLE posts_1 PARTITION OF posts FOR VALUES IN (1);"
        "CREATE TABLE posts_2 PARTITION OF posts FOR VALUES IN (2);"
        "INSERT INTO posts VALUES (1, 1, 'news', '[1,1,1,1]'), (1, 2, NULL, '[1,1,1,1]')"
    )
    store.save(connection, by_hand("taught"))
    index = create(connection, table="posts", access="landmarks")
    index.encode()
    connection.execute("INSERT INTO posts VALUES (2, 1, 'it''s', '[1,1,1,1]')")
    connection.execute("UPDATE posts SET day = 2 WHERE id = 2")
    connection.execute("UPDATE posts_1 SET label = 'it''s'")
    table = index.row.codes.as_string(connection)
    found = connection.execute(f"SELECT id_1, id_2, code::text FROM {table} ORDER BY 1, 2".encode())
    assert found.fetchall() == [(1, 1, "1001"), (2, 1, "1001"), (2, 2, "1111")]
    assert operations.repair(index, full=True).done == ()


REFUSED = {
    "domain": (
        "CREATE DOMAIN kind AS text; ALTER TABLE docs ADD l kind",
        {},
        "is of type public.kind",
    ),
    "composite": (
        "CREATE TYPE kind AS (a int); ALTER TABLE docs ADD l kind",
        {},
        "of type public.kind",
    ),
    "array": ("ALTER TABLE docs ADD l text[]", {}, r"is of type text\[\]"),
    "date": ("ALTER TABLE docs ADD l date", {}, "is of type date"),
    "missing": ("SELECT", {}, 'has no column "l" of labels'),
    "key": ("ALTER TABLE docs RENAME id TO l", {}, "is the key or the vector"),
    "virtual": ("ALTER TABLE docs ADD l int GENERATED ALWAYS AS (1) VIRTUAL", {}, "is a virtual"),
    "column": ("ALTER TABLE docs ADD l text", {"layout": "column"}, "in the table itself"),
    "tenant": ("ALTER TABLE docs ADD l text", {"tenant": "label"}, "has tenants"),
    "network": ("ALTER TABLE docs ADD l text", {"model": "network"}, "is evaluated in Python"),
    "citus": (
        "ALTER TABLE docs ADD l text; CREATE OR REPLACE FUNCTION hashindex._distribution_of("
        "relation regclass, OUT method text, OUT column_name text) LANGUAGE sql STABLE "
        "BEGIN ATOMIC SELECT 'hash'::text, 'id'::text; END",
        {},
        "rows of a distributed table are hashed",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(docs, what):
    statement, options, message = REFUSED[what]
    if what == "virtual" and docs.info.server_version < 180000:
        pytest.skip("virtual columns came with PostgreSQL 18")
    network = known_rows(ROWS, np.zeros((len(ROWS), 1), np.uint8), 4)
    store.save(docs, Model("network", "byhand", 4, (), network=network))
    docs.execute(statement.encode())
    with pytest.raises(HashIndexError, match=message):
        create(docs, labels="l", **options)
    assert docs.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


def test_an_enum_of_another_role_is_refused(docs, as_role):
    stranger = as_role("stranger")
    docs.execute("GRANT CREATE ON SCHEMA public TO stranger")
    stranger.execute("CREATE TYPE mood AS ENUM ('ok')")
    docs.execute("ALTER TABLE docs ADD l mood")
    with pytest.raises(InvalidInputError, match="of type public.mood"):
        create(docs, labels="l")


def test_a_swap_to_a_network_is_refused(index):
    network = known_rows(ROWS, np.zeros((len(ROWS), 1), np.uint8), 4)
    store.save(index.connection, Model("network", "byhand", 4, (), network=network))
    with pytest.raises(InvalidInputError, match="is evaluated in Python"):
        operations.swap(index, "network", tolerance=1)
    assert_right(index)


def test_codes_that_tell_labels_are_for_readers_of_labels(index, as_role):
    """Index made before the grants: `grant` decides; a second one is made after them."""
    connection, reader = index.connection, as_role("reader")
    connection.execute("GRANT SELECT (id, embedding) ON docs TO reader")
    query = "SELECT count(*) FROM hashindex.search_docs_idx('[1,1,1,1]')"
    with pytest.raises(DatabaseStateError, match='"label"'):
        index.grant("reader")
    with pytest.raises(DatabaseStateError, match='"label"'):
        index.grant("reader", reveal_codes=True)
    codes = index.row.codes.as_string(connection)
    with denied():
        reader.execute(f"SELECT code FROM {codes}".encode())
    # Exact, by what the role may read.
    assert reader.execute(query).fetchone() == (10,)
    assert reader.execute("SELECT * FROM hashindex.readable_class_code").fetchall() == []
    connection.execute("GRANT SELECT (label) ON docs TO reader")
    index.grant("reader")
    assert reader.execute(f"SELECT count(code) FROM {codes}".encode()).fetchone() == (80,)
    assert reader.execute(query).fetchone() == (10,)
    assert store.load(reader, "taught").class_codes == CODEWORDS
    found = findings(HashIndex.open(reader, "docs_idx"))
    assert found["wrong_codes"].status == "ok"
    connection.execute("REVOKE SELECT (label) ON docs FROM reader")
    assert "may read the codes, and not" in findings(index)["rights"].detail


def test_rights_when_an_index_is_made(docs, as_role):
    as_role("partly")
    as_role("wholly")
    docs.execute("GRANT SELECT (id, embedding) ON docs TO partly; GRANT SELECT ON docs TO wholly")
    index = create(docs)
    may = "SELECT has_column_privilege(%s, 'hashindex.docs_idx_codes', 'code', 'SELECT')"
    assert [docs.execute(may, [role]).fetchone()[0] for role in ("partly", "wholly")] == [
        False,
        True,
    ]
    assert index.row.label_column == "label"


def test_names_of_classes_are_not_for_readers_of_other_indexes(docs, as_role):
    reader = as_role("reader")
    docs.execute("GRANT SELECT (id, embedding) ON docs TO reader")
    create(docs, labels=None).encode()
    assert reader.execute("SELECT count(*) FROM hashindex.docs_idx_codes").fetchone() == (80,)
    loaded = store.load(reader, "taught")
    assert (loaded.class_codes, loaded.checksum) == ({}, by_hand("x").checksum)
    assert store.describe(reader, "taught").class_codes == 0
    assert store.describe(docs, "taught").class_codes == len(CODEWORDS)
    with denied():
        reader.execute("SELECT * FROM hashindex.class_code")


def test_a_writer_needs_no_rights_on_codewords(index, as_role):
    writer = as_role("writer")
    index.connection.execute("GRANT SELECT, INSERT, UPDATE ON docs TO writer")
    writer.execute("SET datestyle TO 'SQL'; SET search_path TO pg_temp")
    writer.execute("INSERT INTO public.docs VALUES (100, 'news', '[1,1,1,1]'::public.vector)")
    writer.execute("UPDATE public.docs SET label = 'it''s' WHERE id = 7")
    assert_right(index)


def test_a_label_column_that_is_gone(index):
    index.connection.execute("ALTER TABLE docs RENAME label TO kind")
    found = findings(index)
    assert found["filters"].status == "broken"
    assert 'filter column "label" of public.docs is gone' in found["filters"].detail
    with pytest.raises(psycopg.Error):
        index.connection.execute("INSERT INTO docs VALUES (100, 'news', '[1,1,1,1]')")
    index.connection.execute("ALTER TABLE docs RENAME kind TO label")
    index.connection.execute("INSERT INTO docs VALUES (100, 'news', '[1,1,1,1]')")
    assert_right(index)


def test_filters_on_labels(index):
    found = index.search([1, 1, 1, 1], 50, filter="label = 'news'", candidates=200, probes=1000)
    assert sorted(answer.id for answer in found) == list(range(0, 80, 8))


def test_near_duplicates_are_not_found_by_codewords(docs):
    index = create(docs, access="landmarks")
    index.encode()
    with pytest.raises(HashIndexError, match="found by hashed codes"):
        operations.near_duplicates(index, "pairs", max_distance=0.1)


def test_models_keep_codewords(docs, on, tmp_path):
    loaded = store.load(docs, "taught")
    assert (loaded.class_codes, loaded.version) == (CODEWORDS, 1)
    assert Model.from_bytes(loaded.to_bytes()).class_codes == CODEWORDS
    assert loaded.checksum == by_hand("plain", {}).checksum
    assert b"class_codes" not in by_hand("plain", {}).to_bytes()
    docs.execute(store.script(docs, "taught").encode())
    docs.execute(store.script(docs, "plain").encode())
    assert store.load(docs, "taught:2").class_codes == CODEWORDS
    assert store.load(docs, "plain:2").class_codes == {}
    assert "of 6 classes" in on("model", "show", "taught").output
    assert "codewords" in on("model", "show", "plain").output
    on("model", "export", "taught", tmp_path / "file.npz")
    on("model", "import", tmp_path / "file.npz")
    assert store.load(docs, "taught:3").class_codes == CODEWORDS
    with pytest.raises(psycopg.Error, match="cannot be changed"):
        docs.execute("UPDATE hashindex.class_code SET code = '0000'")
    store.drop(docs, "taught")
    found = docs.execute(
        "SELECT DISTINCT m.name FROM hashindex.class_code k JOIN hashindex.model m "
        "ON m.id = k.model_id"
    ).fetchall()
    assert found == [("other",)]


@pytest.mark.parametrize(
    ("codewords", "message"),
    [
        ({"a": "011"}, "must be 4 zeros and ones"),
        ({"a": "01112"}, "must be 4 zeros and ones"),
        ({"a": "012x"}, "must be 4 zeros and ones"),
        ({"a": 111}, "must be 4 zeros and ones"),
        ({"a\0": "0111"}, "cannot name a class"),
        ({"\ud800": "0111"}, "cannot name a class"),
        ({1: "0111"}, "cannot name a class"),
    ],
)
def test_codewords_that_a_model_cannot_have(codewords, message):
    with pytest.raises(InvalidInputError, match=message):
        by_hand("m", codewords)


def test_codewords_are_of_two_levels():
    with pytest.raises(InvalidInputError, match="with 2 levels"):
        by_hand("m", {"a": "01110111"}, levels=4)


def test_a_model_of_levels_hashes_all_rows(docs):
    """A swap may bring such a model, whose codes have two numbers beside them."""
    index = create(docs)
    index.encode()
    store.save(docs, by_hand("levels", {}, levels=4))
    operations.swap(index, "levels", tolerance=1)
    docs.execute("INSERT INTO docs VALUES (100, 'news', '[1,1,1,1]')")
    assert {len(code) for code in stored(index).values()} == {8}
    assert operations.repair(index, full=True).done == ()


def test_command_line(docs, on):
    made = on("index", "create", "docs_idx", "--table", "docs", "--column", "embedding",
              "--model", "taught", "--labels", "label")  # fmt: skip
    assert "labels" in made.output
    assert_right(HashIndex.open(docs, "docs_idx"))
