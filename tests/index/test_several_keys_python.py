"""Keys of several columns: everything that Python does with an index, beside brute force."""

import datetime
import json

import numpy as np
import pytest
import sqlalchemy as sa
from fixtures.checks import assert_fresh
from fixtures.filters import look_codes_up
from fixtures.indexes import begin_lists
from pgvector import Vector
from pgvector.sqlalchemy import VECTOR
from sqlalchemy.dialects.postgresql import JSONB

from pg_hashindex import operations, store
from pg_hashindex.contrib.sqlalchemy import HashIndex as Declared
from pg_hashindex.contrib.sqlalchemy import nearest
from pg_hashindex.errors import InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.quality.evaluate import evaluate
from pg_hashindex.quality.queries import draw
from pg_hashindex.training.sampling import sample_table

pytestmark = pytest.mark.newest

#: The keys of the rows: three tenants have the same ids.
KEYS = [(n % 3, n // 3) for n in range(300)]


@pytest.fixture
def things(connection, vectors, lsh_model):
    """Table things: keys of tenant and id, named as text too, and a category."""
    store.save(connection, lsh_model)
    connection.execute(
        "CREATE TABLE things (category text, id bigint, tenant_id integer, embedding vector(8), "
        "PRIMARY KEY (tenant_id, id))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY things FROM STDIN") as copy:
        for (tenant, number), vector in zip(KEYS, vectors, strict=True):
            copy.write_row(("abc"[number % 3], number, tenant, Vector(vector)))
    connection.execute("ANALYZE things")
    return "things"


def create(connection, name="things_idx", **options):
    given = {"table": "things", "column": "embedding", "model": "lsh"} | options
    made = begin_lists(connection, name, **given)
    made.encode()
    return made


@pytest.fixture
def index(connection, things):
    return create(connection)


def exact(vectors, query, k=10, keep=lambda key: True):
    """The keys of the nearest rows, by brute force."""
    order = np.argsort(((vectors - query) ** 2).sum(axis=1), kind="stable")
    return [KEYS[n] for n in order if keep(KEYS[n])][:k]


def ids(hits):
    return [hit.id for hit in hits]


def test_answers_have_the_key_as_a_tuple(index, vectors):
    assert (index.key_columns, index.key_types) == (["tenant_id", "id"], ["integer", "bigint"])
    assert_fresh(index)
    wanted = exact(vectors, vectors[10])
    assert ids(index.search(vectors[10], candidates=300)) == wanted
    for key in ((1, 3), [1, 3], "[1, 3]", '["1", "3"]'):
        assert ids(index.search_like(key, 9, candidates=300)) == wanted[1:]
    nears = index.within(vectors[10], 12)
    assert sorted(ids(nears)) == sorted(KEYS)
    assert sorted(ids(index.within_like((1, 3), 12))) == sorted({*KEYS} - {(1, 3)})
    for asked in (
        {"filter": "tenant_id = 2 AND category <> 'a'"},
        {"where": sa.and_(sa.column("tenant_id") == 2, sa.column("category") != "a")},
    ):
        right = exact(vectors, vectors[10], 10, lambda key: key[0] == 2 and key[1] % 3 > 0)
        assert ids(index.search(vectors[10], candidates=300, **asked)) == right
        assert ids(index.search_like((1, 3), candidates=300, **asked)) == right
    look_codes_up(index.connection)
    assert ids(index.search(vectors[10], candidates=300, filter="tenant_id = 2")) == exact(
        vectors, vectors[10], 10, lambda key: key[0] == 2
    )
    both = index.hybrid(vectors[10], "b", "category", 400, depth=400, configuration="simple")
    assert {hit.id for hit in both} == {*KEYS}
    assert {hit.id for hit in both if hit.word_rank is not None} == {
        key for key in KEYS if key[1] % 3 == 1
    }


@pytest.mark.parametrize("key", [7, (7,), (1, 2, 3), "7", "[7]", "{7, 12", '{"a": 7, "b": 12}'])
def test_a_key_of_another_shape_is_refused(connection, things, key):
    with pytest.raises(InvalidInputError, match=r"is not of 2 values, as \(tenant_id, id\) is"):
        create(connection).search_like(key)


def test_a_key_that_no_row_has(connection, things):
    index = create(connection)
    with pytest.raises(InvalidInputError, match=r"no row with \(tenant_id, id\) = \(7, 12\) and"):
        index.search_like((7, 12))
    with pytest.raises(InvalidInputError, match="invalid input syntax for type integer"):
        index.search_like(("x", 12))


#: Texts that are hard for arrays, JSON and SQL; of one length, and of several.
STRANGE = ['a"', "[", ",", "'", "\\", "{}", " ", "", "é", "$1", "%s", "null", "\n"]


@pytest.mark.parametrize("padded", [True, False])
def test_keys_of_text_and_times(connection, things, vectors, padded):
    """Landmarks read keys in binary form, which are equally long or not."""
    names = [name.ljust(5, "x") if padded else name for name in STRANGE]
    names = [name if name.isascii() or not padded else name.ljust(4, "x") for name in names]
    began = datetime.datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=datetime.UTC)
    keys = [(names[n % 13], began + datetime.timedelta(hours=n)) for n in range(300)]
    connection.execute(
        "CREATE DOMAIN word AS text CHECK (length(VALUE) < 6);"
        "CREATE TABLE words (w word, at timestamptz(6), v vector(8), PRIMARY KEY (w, at))"
    )
    connection.cursor().executemany(
        "INSERT INTO words VALUES (%s, %s, %s)",
        [(*key, Vector(row)) for key, row in zip(keys, vectors, strict=True)],
    )
    index = create(connection, "words", table="words", column="v", access="lists")
    assert index.access == "lists"
    for _ in range(2):
        assert_fresh(index)
        found = index.search(vectors[7], 5, candidates=300, effort=1000)
        order = np.argsort(((vectors - vectors[7]) ** 2).sum(axis=1))
        assert ids(found) == [keys[n] for n in order[:5]]
        assert ids(index.search_like(keys[7], 4, candidates=300)) == ids(found)[1:]
        for path in ("filter", "exact"):
            asked = {"filter": "w IS NOT NULL"} if path == "filter" else {}
            assert ids(index.search(vectors[7], 5, candidates=300, **asked)) == ids(found)
        connection.execute("UPDATE words SET v = v WHERE w <> ''")
        index.rebalance()
    assert operations.check(index, full=True).status == "ok"


def test_rows_in_lists(connection, things, vectors):
    index = create(connection, access="lists")
    assert index.rebalance().rows == 300
    assert ids(index.search(vectors[4], candidates=300, effort=1000)) == exact(vectors, vectors[4])
    made = operations.near_duplicates(index, "twins", max_distance=1.5, radius=12, lists=1000)
    far = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    right = {(*KEYS[i], *KEYS[j]) for i, j in np.argwhere(far <= 1.5) if KEYS[i] < KEYS[j]}
    found = connection.execute("SELECT id_1, id_2, other_id_1, other_id_2 FROM twins").fetchall()
    assert {*found} == right
    assert made.pairs == len(right) > 0


def test_it_is_measured(index):
    result = evaluate(index, queries=20, candidates=[300])
    assert result.points[0].recall == 1.0
    first = draw(index, 20)[0]
    assert json.loads(first.row_id or "") in [list(key) for key in KEYS]


def test_it_is_checked_and_repaired(index):
    assert operations.check(index, full=True).status == "ok"
    assert operations.check(index).status == "ok"
    connection = index.connection
    row = index.row
    connection.execute("ALTER TABLE things DISABLE TRIGGER ALL")
    codes = row.codes.as_string(connection)
    connection.execute(
        f"UPDATE {codes} SET code = ~code WHERE id_1 = 1 AND id_2 < 5;"
        f"DELETE FROM {codes} WHERE id_1 = 2 AND id_2 < 3;"
        "DELETE FROM things WHERE tenant_id = 0 AND id < 4".encode()
    )
    connection.execute("ALTER TABLE things ENABLE TRIGGER ALL")
    found = {one.check: one for one in operations.check(index, full=True).findings}
    assert (found["wrong_codes"].status, found["rows_without_code"].value) == ("broken", 3)
    assert found["codes_without_row"].value == 4
    assert operations.repair(index, full=True).left == ()
    assert_fresh(index)
    assert operations.check(index, full=True).status == "ok"
    assert operations.repair(index, full=True).done == ()


def test_rebind_gets_the_new_names(index, vectors):
    connection = index.connection
    before = ids(index.search(vectors[0], candidates=300))
    connection.execute("ALTER TABLE things RENAME id TO number")
    connection.execute("ALTER TABLE things RENAME tenant_id TO tenant")
    with pytest.raises(InvalidInputError):
        operations.rebind(index, key_columns=["tenant"])
    operations.rebind(index, key_columns=["tenant", "number"])
    assert index.key_columns == ["tenant", "number"]
    assert ids(index.search(vectors[0], candidates=300)) == before
    connection.execute("UPDATE things SET embedding = '[1,2,3,4,5,6,7,8]' WHERE number = 7")
    assert_fresh(index)


def test_its_model_is_swapped(index, vectors):
    connection = index.connection
    store.save(connection, LSH(n_bits=16, random_state=4).fit(vectors).to_model("other"))
    index.swap(model="other", force=True)
    for _ in range(2):
        assert_fresh(index)
        assert ids(index.search(vectors[5], candidates=300)) == exact(vectors, vectors[5])
        index.rollback()
    index.prune()
    index.drop()
    left = "SELECT count(*) FROM pg_type WHERE typname LIKE 'key\\_things\\_idx%'"
    assert connection.execute(left.encode()).fetchone() == (0,)


@pytest.mark.parametrize("key", ["bigint", 'text COLLATE "C"', "numeric"])
def test_training_names_rows_by_their_text(connection, things, vectors, key):
    connection.execute(f"ALTER TABLE things ALTER id TYPE {key}".encode())
    sample = sample_table(
        connection, things, "embedding", rows=4,
        pairs="VALUES ('[1, 7]', '[2, 7]', 1), ('[1,7]', '[0, \"9\"]', -1)",
        graph="SELECT '[1, 7]'::json, 'x' UNION ALL SELECT '[2, 7]', 'x'",
    )  # fmt: skip
    of = {tuple(row): KEYS[n] for n, row in enumerate(vectors.tolist())}
    rows = [of[tuple(row)] for row in sample.X.astype(np.float32).tolist()]
    named = {(rows[a], rows[b], side) for a, b, side in sample.pairs}
    assert named == {((1, 7), (2, 7), 1), ((1, 7), (0, 9), -1)}
    assert {rows[n] for n in np.flatnonzero(sample.graph.toarray().any(axis=1))} == {(1, 7), (2, 7)}
    for known, message in (
        ({"pairs": "VALUES ('[1, 7]', '[9, 9]', 1)"}, r"\(tenant_id, id\) = \[9, "),
        ({"graph": "VALUES ('[9, 9]', 'x')"}, r"\(tenant_id, id\) = \[9, "),
        ({"pairs": "VALUES ('1, 7', '[2, 7]', 1)"}, "invalid input syntax for type json"),
        ({"graph": "VALUES ('[9]', 'x')"}, r"\(tenant_id, id\) = \[9, null\]"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            sample_table(connection, things, "embedding", **known)


def test_commands(on, connection, things, vectors):
    made = ("--table", "things", "--column", "embedding", "--model", "lsh")
    on("index", "create", "mine", "--access", "scan", *made, "--id", "tenant_id, id")
    assert "tenant_id integer, id bigint" in on("index", "show", "mine", "-v").stdout
    connection.execute("ALTER TABLE things ADD title text; UPDATE things SET title = 't' || id")
    wanted = exact(vectors, vectors[10])[1:]
    asked = ("search", "mine", "--like", "[1, 3]", "-k", 9, "--candidates", 300)
    hits = json.loads(on(*asked, "--json", "--columns", "title").stdout)
    assert [hit["id"] for hit in hits] == [list(key) for key in wanted]
    assert [hit["columns"]["title"] for hit in hits] == [f"t{number}" for _, number in wanted]
    lines = on(*asked).stdout.splitlines()
    assert lines[1].startswith(f"{wanted[0][0]}, {wanted[0][1]} ")
    on("search", "mine", "--like", "[1, 3]", "--radius", 3)
    on("index", "check", "mine", "--full")
    connection.execute("ALTER TABLE things RENAME tenant_id TO tenant")
    done = on("index", "repair", "mine", "--id", "tenant,id").stdout
    assert "key '(tenant, id)'" in done
    assert on("index", "repair", "mine", "--full").stdout == ""


def test_statements_of_sqlalchemy(connection, url, things, vectors):
    create(connection)
    look_codes_up(connection)
    # In another order than the key of the index.
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("tenant_id", sa.Integer, primary_key=True),
        sa.Column("category", sa.Text),
        sa.Column("embedding", VECTOR(8)),
    )
    Declared("things_idx", table.c.embedding, model="lsh")
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as session:
        for searched in (table, table.alias("t")):
            near = nearest(searched, searched.c.embedding, vectors[10], 10, candidates=300)
            other = sa.select(searched.c.category).where(searched.c.category == "b")
            for statement, keep in (
                (near, lambda key: True),
                (near.where(searched.c.tenant_id == 2), lambda key: key[0] == 2),
                (near.where(searched.c.category.in_(other)), lambda key: key[1] % 3 == 1),
            ):
                rows = session.execute(statement).all()
                assert [(row.tenant_id, row.id) for row in rows] == exact(
                    vectors, vectors[10], 10, keep
                )
        given = nearest(
            table, table.c.embedding, vectors[10], key=[table.c.id, table.c.tenant_id],
            candidates=300,
        )  # fmt: skip
        assert [(row.tenant_id, row.id) for row in session.execute(given)] == exact(
            vectors, vectors[10]
        )
    engine.dispose()


def test_key_columns_with_the_names_of_arguments(connection, url, things, vectors):
    connection.execute("ALTER TABLE things RENAME id TO distance")
    connection.execute("ALTER TABLE things RENAME tenant_id TO query")
    index = create(connection)
    wanted = exact(vectors, vectors[10])
    assert ids(index.search_like((1, 3), 9, candidates=300)) == wanted[1:]
    columns = [sa.Column(name, sa.Integer, primary_key=True) for name in ("query", "distance")]
    table = sa.Table("things", sa.MetaData(), *columns, sa.Column("embedding", VECTOR(8)))
    near = nearest(table, table.c.embedding, vectors[10], index="things_idx", candidates=300)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as session:
        assert [tuple(row[:2]) for row in session.execute(near)] == wanted
    engine.dispose()


def test_a_key_with_json_in_statements_of_sqlalchemy(connection, url, things, vectors):
    """The text of a string has its quotes, which tell it from a number."""
    connection.execute(
        "ALTER TABLE things ALTER tenant_id TYPE jsonb USING "
        "(ARRAY['\"1\"', '1', '[\"x\"]'])[tenant_id + 1]::jsonb"
    )
    create(connection)
    table = sa.Table(
        "things",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("tenant_id", JSONB, primary_key=True),
        sa.Column("embedding", VECTOR(8)),
    )
    near = nearest(table, table.c.embedding, vectors[10], index="things_idx", candidates=300)
    engine = sa.create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as session:
        found = [(row.tenant_id, row.id) for row in session.execute(near)]
    assert found == [(["1", 1, ["x"]][key[0]], key[1]) for key in exact(vectors, vectors[10])]
    engine.dispose()
