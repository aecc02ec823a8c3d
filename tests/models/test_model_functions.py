"""Functions of a model: pgvector's own index on a learned code, and all that PostgreSQL does."""

import json
from dataclasses import replace

import numpy as np
import psycopg
import pytest
from fixtures.catalog import catalog
from fixtures.house import run
from pgvector import HalfVector, Vector

from pg_hashindex import schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import InUseError
from pg_hashindex.hashers import ITQ, LSH, SGH, Sign, Thermometer
from pg_hashindex.models import codes
from pg_hashindex.models.layers import Layer, affine, normalize, shift
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows
from pg_hashindex.models.quantization import above_cuts

ROWS = np.random.default_rng(7).standard_normal((300, 8)).astype(np.float32)
MODELS = {
    "thermometer": Thermometer(random_state=0).fit(ROWS).to_model("texts", cuts=3),
    "thermometer, cosine": Thermometer(random_state=0, normalize="l2")
    .fit(ROWS)
    .to_model("texts", cuts=3),
    "thermometer, five cuts": Thermometer(random_state=0).fit(ROWS).to_model("texts", cuts=5),
    "itq": ITQ(n_bits=6, random_state=0).fit(ROWS).to_model("texts", cuts=3),
    "itq, cosine": ITQ(n_bits=6, random_state=0, normalize="l2").fit(ROWS).to_model("texts"),
    "lsh, signs": LSH(n_bits=12, random_state=0).fit(ROWS).to_model("texts"),
    "sign": Sign().fit(ROWS).to_model("texts"),
    "only normalize": Model("texts", "byhand", 8, [normalize()]),
    "two affine layers and all others": Model(
        "texts",
        "byhand",
        8,
        [
            normalize(),
            affine(np.random.default_rng(1).standard_normal((9, 8)), np.arange(9) / 9),
            *map(Layer, ("relu", "sin")),
            affine(np.random.default_rng(2).standard_normal((5, 9))),
            *map(Layer, ("tanh", "cos")),
            shift(-np.full(5, 0.7)),
        ],
        cuts=(-0.1, 0.1),
    ),
}
CODE = "hashindex.code_texts(embedding)::bit(24)"
INDEX = f"CREATE INDEX by_code ON items USING hnsw (({CODE}) bit_hamming_ops)"
QUERY = (
    "SELECT id FROM (SELECT id, embedding FROM items ORDER BY "
    f"{CODE} <~> (SELECT hashindex.code_texts(%s::vector)) LIMIT 20) c "
    "ORDER BY embedding <-> %s::vector LIMIT 3"
)


@pytest.fixture
def texts(connection, items):
    """Functions of a thermometer of the rows of items: 8 dimensions with 3 cuts, 24 bits."""
    model = store.save(connection, MODELS["thermometer"])
    connection.execute("SELECT hashindex.create_functions('texts')")
    return model


@pytest.fixture
def indexed(connection, texts):
    connection.execute(INDEX)
    return texts


def one(connection, statement, *values):
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return row[0]


def code(connection, vector, name="texts"):
    return one(connection, f"SELECT hashindex.code_{name}(%s)::text", vector)


def nearest(connection, row):
    return [id_ for (id_,) in connection.execute(QUERY, [Vector(row)] * 2)]


def assert_answers(connection):
    """By the index, unless the planner has none that it may use."""
    exact = np.argsort(((ROWS - ROWS[5]) ** 2).sum(axis=1))
    assert nearest(connection, ROWS[5])[0] == exact[0] + 1


def plan(connection, statement, *values):
    connection.execute("SET enable_seqscan = off")
    lines = connection.execute(f"EXPLAIN (COSTS off) {statement}".encode(), values).fetchall()
    return "\n".join(line for (line,) in lines)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_bits_and_numbers_are_those_of_python(connection, name):
    model = store.save(connection, MODELS[name])
    assert one(connection, "SELECT hashindex.create_functions('texts')") == "hashindex.code_texts"
    rows = np.vstack([ROWS[:60], np.zeros((1, 8), np.float32)])
    projections = model.project(rows)
    bits = codes.unpack(model.encode(rows), model.n_bits)
    scale = 1e-5 * np.abs(projections).mean()
    edges = np.abs(above_cuts(projections, model.cuts))
    for cast, value in (("vector", Vector), ("halfvec", HalfVector)):
        found = [
            connection.execute(
                f"SELECT hashindex.project_texts(v), hashindex.code_texts(v)::text "
                f"FROM (SELECT %s::{cast} AS v) x",
                [value(row)],
            ).fetchone()
            for row in rows
        ]
        theirs = np.array([projection.to_numpy() for projection, _ in found])
        same = np.array([[bit == "1" for bit in text] for _, text in found]) == bits
        if cast == "vector":
            np.testing.assert_allclose(theirs, projections, rtol=0, atol=scale)
            assert (same | (edges < scale)).all()
        else:
            np.testing.assert_allclose(theirs, projections, atol=5e-3, rtol=0)
            assert same.mean() > 0.99
    assert 0.2 < bits.mean() < 0.8 or name == "two affine layers and all others"


def test_what_the_functions_are(connection, texts):
    rows = connection.execute(
        "SELECT p.oid::regprocedure::text, p.provolatile, p.proisstrict, p.proparallel, "
        "p.proconfig, p.proowner = n.nspowner, obj_description(p.oid, 'pg_proc') "
        "FROM hashindex.model m JOIN hashindex.object o ON o.model_id = m.id "
        "JOIN hashindex._existing() e ON (e.kind, e.name) = (o.kind, o.name) "
        "JOIN pg_proc p ON p.oid = e.id, pg_namespace n "
        "WHERE n.nspname = 'hashindex' AND m.name = 'texts' ORDER BY 1"
    ).fetchall()
    assert [row[0] for row in rows] == [
        f"hashindex.{name}_texts({kind})"
        for name in ("code", "project")
        for kind in ("halfvec", "vector")
    ]
    assert {row[1:6] for row in rows} == {("i", True, "s", None, True)}
    assert rows[1][6] == "code of a vector by model texts:1, bit(24)"
    # The model may be made functions of again.
    before = catalog(connection)
    connection.execute("SELECT hashindex.create_functions('texts:1')")
    assert catalog(connection) == before


@pytest.mark.parametrize("cache_mode", ["force_custom_plan", "force_generic_plan"])
def test_an_expression_index_is_used(connection, indexed, cache_mode):
    connection.execute(f"SET plan_cache_mode = {cache_mode}".encode())
    statement = QUERY.replace("%s", "$1")
    connection.execute(f"PREPARE nearest(vector) AS {statement}".encode())
    shown = plan(connection, f"EXECUTE nearest('{ROWS[5].tolist()}')")
    assert "Index Scan using by_code" in shown
    # The code of the query is computed once, before the scan.
    assert "InitPlan" in shown
    assert_answers(connection)


def test_an_index_is_built_under_any_path(connection, texts):
    """CREATE INDEX, REINDEX and ANALYZE run with a path of pg_catalog alone."""
    connection.execute(
        "CREATE SCHEMA decoy; CREATE FUNCTION decoy.binary_quantize(vector) RETURNS bit "
        "LANGUAGE sql AS 'SELECT B''0'''; SET search_path = decoy, pg_catalog, public"
    )
    connection.execute(INDEX.replace("items", "public.items"))
    connection.execute("REINDEX INDEX by_code; ANALYZE public.items; SET search_path = ''")
    assert one(
        connection,
        "SELECT hashindex.code_texts(embedding)::text FROM public.items WHERE id = 1",
    ) == "".join("01"[int(bit)] for bit in codes.unpack(texts.encode(ROWS[:1]), 24)[0])


def test_written_rows_are_found(connection, indexed):
    """By INSERT, COPY, upsert and DELETE, without any trigger."""
    far = np.full(8, 9, np.float32)
    connection.execute("INSERT INTO items (id, embedding) VALUES (901, %s)", [Vector(far)])
    with connection.cursor().copy("COPY items (id, embedding) FROM STDIN") as copy:
        copy.write_row((902, Vector(far + 0.1)))
    connection.execute(
        "INSERT INTO items (id, embedding) VALUES (1, %s) "
        "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
        [Vector(far + 0.2)],
    )
    connection.execute("SET enable_seqscan = off")
    assert nearest(connection, far) == [901, 902, 1]
    connection.execute("DELETE FROM items WHERE id = 901")
    assert nearest(connection, far)[:2] == [902, 1]


def test_a_generated_column(connection, texts):
    connection.execute(
        "ALTER TABLE items ADD code bit(24) "
        "GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED;"
        "CREATE INDEX by_column ON items USING hnsw (code bit_hamming_ops)"
    )
    connection.execute("UPDATE items SET embedding = %s WHERE id = 9", [Vector(ROWS[0])])
    row = connection.execute("SELECT code = %s FROM items WHERE id = 9", [None])
    same = "SELECT count(*) FROM items WHERE code <> hashindex.code_texts(embedding)"
    assert one(connection, same) == 0
    assert row.fetchone() == (None,)
    statement = "SELECT id FROM items ORDER BY code <~> (SELECT hashindex.code_texts(%s)) LIMIT 5"
    assert "by_column" in plan(connection, statement, Vector(ROWS[0]))
    assert {1, 9} <= {id_ for (id_,) in connection.execute(statement.encode(), [Vector(ROWS[0])])}
    # And with no index at all.
    assert (
        one(
            connection,
            "SELECT min(bit_count(code # (SELECT hashindex.code_texts(%s)))) FROM items",
            Vector(ROWS[3]),
        )
        == 0
    )


def test_codes_in_the_table_rank_by_labels_and_by_weights(connection, items):
    """As docs/labels.md has it: by all codes; and with the weights of the model's bits."""
    weights = np.arange(1, 13, dtype=np.float32)
    model = store.save(connection, replace(MODELS["lsh, signs"], bit_weights=weights))
    connection.execute(
        "SELECT hashindex.create_functions('texts');"
        "ALTER TABLE items ADD code bit(12) "
        "GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED"
    )
    differs = codes.unpack(model.encode(ROWS), 12) != codes.unpack(model.encode(ROWS[5:6]), 12)
    counts, query = differs.sum(axis=1), Vector(ROWS[5])
    plain = (
        "SELECT id FROM items ORDER BY bit_count(code # (SELECT hashindex.code_texts(%s))) LIMIT 60"
    )
    found = [id_ - 1 for (id_,) in connection.execute(plain, [query])]
    assert counts[found].tolist() == sorted(counts)[:60]
    weighted = (
        "SELECT id FROM (SELECT id, code # (SELECT hashindex.code_texts(%s)) AS differs FROM items "
        "ORDER BY bit_count(code # (SELECT hashindex.code_texts(%s))) LIMIT 300) c "
        "ORDER BY (SELECT sum(w.weight * get_bit(c.differs, w.n::int - 1)) "
        "FROM unnest(%s::real[]) WITH ORDINALITY w(weight, n)) LIMIT 10"
    )
    stored = one(connection, "SELECT bit_weights::real[] FROM hashindex.model")
    found = [id_ - 1 for (id_,) in connection.execute(weighted, [query, query, stored])]
    assert (differs @ weights)[found].tolist() == sorted(differs @ weights)[:10]


def test_a_partitioned_table(connection, texts):
    connection.execute(
        "CREATE TABLE parts (id bigint, embedding vector(8)) PARTITION BY RANGE (id);"
        "CREATE TABLE p1 PARTITION OF parts FOR VALUES FROM (0) TO (150);"
        "CREATE TABLE p2 PARTITION OF parts FOR VALUES FROM (150) TO (999);"
        "INSERT INTO parts SELECT id, embedding FROM items;" + INDEX.replace("items", "parts")
    )
    statement = QUERY.replace("items", "parts")
    shown = plan(connection, statement, *[Vector(ROWS[5])] * 2)
    assert shown.count("Index Scan using p") == 2
    assert connection.execute(statement.encode(), [Vector(ROWS[5])] * 2).fetchone() == (6,)


def test_a_halfvec_column(connection, texts):
    connection.execute(
        "CREATE TABLE halves (id bigint, embedding halfvec(8));"
        "INSERT INTO halves SELECT id, embedding FROM items;" + INDEX.replace("items", "halves")
    )
    statement = QUERY.replace("items", "halves").replace("%s::vector", "%s::halfvec")
    assert "by_code" in plan(connection, statement, *[HalfVector(ROWS[5])] * 2)
    assert connection.execute(statement.encode(), [HalfVector(ROWS[5])] * 2).fetchone() == (6,)


def test_row_security_applies_as_on_any_table(connection, indexed, as_role):
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY few ON items USING (category = 'a' AND id > 1)"
    )
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    reader.execute("SET enable_seqscan = off; SET hnsw.iterative_scan = relaxed_order")
    found = nearest(reader, ROWS[0])
    assert len(found) == 3
    assert all(id_ % 3 == 1 and id_ > 1 for id_ in found)


def test_writers_need_no_right(connection, indexed, as_role):
    """An index expression is computed with the rights of whoever writes."""
    writer = as_role("writer")
    connection.execute("GRANT INSERT ON items TO writer")
    writer.execute("INSERT INTO items (id, embedding) VALUES (999, %s)", [Vector(ROWS[0])])


@pytest.mark.parametrize("name", ["thermometer", "thermometer, cosine", "sign"])
def test_writers_need_no_right_on_the_schema_of_pgvector(connection, items, as_role, name):
    """The body was parsed when it was made: no name of pgvector's is looked up in a write."""
    model = store.save(connection, MODELS[name])
    connection.execute(
        "ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;"
        "SELECT hashindex.create_functions('texts');"
        f"CREATE INDEX ON items USING hnsw ((hashindex.code_texts(embedding)::bit({model.n_bits}))"
        " bit_hamming_ops);"
        "CREATE SCHEMA apart; ALTER EXTENSION vector SET SCHEMA apart"
    )
    writer = as_role("writer")
    connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON items TO writer")
    row = str(ROWS[0].tolist())
    writer.execute("INSERT INTO items (id, embedding) VALUES (901, %s)", [row])
    writer.execute("UPDATE items SET embedding = %s WHERE id = 1", [row])
    writer.execute(
        "INSERT INTO items (id, embedding) VALUES (2, %s) "
        "ON CONFLICT (id) DO UPDATE SET embedding = excluded.embedding",
        [row],
    )
    with writer.cursor().copy("COPY items (id, embedding) FROM STDIN") as copy:
        copy.write_row((902, row))


def test_no_function_of_others_is_called(connection, items, as_role):
    """A literal without a type would call a function that takes text before pgvector's own."""
    stranger = as_role("stranger")
    connection.execute("GRANT CREATE ON SCHEMA public TO stranger")
    trap = "LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''captured''; END'"
    stranger.execute(
        f"CREATE FUNCTION public.inner_product(vector, text) RETURNS float8 {trap};"
        f"CREATE FUNCTION public.inner_product(vector, varchar) RETURNS float8 {trap};"
        f"CREATE FUNCTION public.binary_quantize(text) RETURNS bit {trap};"
        f"CREATE FUNCTION public.l2_normalize(text) RETURNS vector {trap}".encode()
    )
    for place, name in enumerate(MODELS):
        model = store.save(connection, replace(MODELS[name], name=f"m{place}"))
        connection.execute("SELECT hashindex.create_functions(%s)", [model.name])
        assert len(code(connection, Vector(ROWS[0]), model.name)) == model.n_bits


@pytest.mark.newest
def test_long_vectors_are_read_once(connection):
    """By a subquery, whose bits are those of the plain expression."""
    rows = np.random.default_rng(4).standard_normal((40, 600)).astype(np.float32)
    model = Thermometer(random_state=0, normalize="l2").fit(rows).to_model("m", cuts=3)
    store.save(connection, model)
    connection.execute("SELECT hashindex.create_functions('m')")
    bits = codes.unpack(model.encode(rows), model.n_bits)
    found = [code(connection, Vector(row), "m") for row in rows]
    assert np.mean([[bit == "1" for bit in text] for text in found] == bits) > 0.9999
    definition = one(
        connection, "SELECT pg_get_functiondef('hashindex.code_m(vector)'::regprocedure)"
    )
    assert definition.count("l2_normalize") == 1


def test_only_the_administrator_makes_functions(connection, texts, as_role):
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role("reader").execute("SELECT hashindex.create_functions('texts')")


@pytest.mark.parametrize("form", ["plain", "custom"])
def test_dump_and_restore(server, connection, indexed, url, make_database, tmp_path, form):
    """The functions are restored before the index and the column that use them."""
    connection.execute(
        "ALTER TABLE items ADD code bit(24) "
        "GENERATED ALWAYS AS (hashindex.code_texts(embedding)) STORED"
    )
    dump, restored = tmp_path / "dump", make_database("template0")
    run(server, "pg_dump", f"--format={form}", "--file", dump, url)
    if form == "plain":
        run(server, "psql", "-v", "ON_ERROR_STOP=1", "-q", "-f", dump, restored)
    else:
        run(server, "pg_restore", "--exit-on-error", "--jobs=2", "--dbname", restored, dump)
    with connect(restored) as again:
        assert "by_code" in plan(again, QUERY, *[Vector(ROWS[5])] * 2)
        assert_answers(again)
        with pytest.raises(InUseError, match=r"index public\.by_code depends"):
            store.drop(again, "texts")
        again.execute("ALTER TABLE items DROP code; DROP INDEX by_code")
        store.drop(again, "texts")
        assert one(again, "SELECT to_regproc('hashindex.code_texts') IS NULL")


def test_dropping_a_model_in_use_is_refused(connection, indexed):
    message = 'a function of model "texts:1" is in use: index public.by_code depends .*first'
    with pytest.raises(InUseError, match=message):
        store.drop(connection, "texts")
    assert_answers(connection)
    connection.execute("DROP INDEX by_code")
    store.drop(connection, "texts")
    left = "SELECT count(*) FROM pg_proc WHERE proname IN ('code_texts', 'project_texts')"
    assert one(connection, left) == 0


def test_a_new_version_has_functions_of_its_own(connection, indexed):
    before = code(connection, Vector(ROWS[0]))
    newer = store.save(connection, replace(MODELS["thermometer, five cuts"], name="texts"))
    assert newer.version == 2
    made = one(connection, "SELECT hashindex.create_functions('texts')")
    assert made == "hashindex.code_texts_2"
    assert code(connection, Vector(ROWS[0])) == before
    assert len(code(connection, Vector(ROWS[0]), "texts_2")) == 40
    # Only what belongs to the version goes with it.
    store.drop(connection, "texts:2")
    assert one(connection, "SELECT to_regproc('hashindex.code_texts_2') IS NULL")
    assert_answers(connection)


def test_a_name_that_another_model_has_taken(connection, texts):
    store.save(connection, replace(MODELS["sign"], name="texts_2"))
    connection.execute("SELECT hashindex.create_functions('texts_2')")
    store.save(connection, MODELS["itq"])
    message = r'function hashindex\.\w+_texts_2\(\S+\) exists already, and was not made .*"texts:2"'
    with pytest.raises(psycopg.errors.DuplicateFunction, match=message):
        connection.execute("SELECT hashindex.create_functions('texts')")
    store.drop(connection, "texts:2")
    assert len(code(connection, Vector(ROWS[0]), "texts_2")) == 8


@pytest.mark.reads
@pytest.mark.parametrize(
    "name", ['It\'s "A" $$ {ext} %s', "ä" * 27, "with", "a(b) RETURNS c DEFAULT d"]
)
def test_names(connection, name):
    store.save(connection, replace(MODELS["thermometer"], name=name))
    made = one(connection, "SELECT hashindex.create_functions(%s)", name)
    found = one(connection, f"SELECT {made.replace('%', '%%')}(%s)::text", Vector(ROWS[0]))
    assert found == "".join(
        "01"[int(bit)] for bit in codes.unpack(MODELS["thermometer"].encode(ROWS[:1]), 24)[0]
    )
    store.drop(connection, name)
    assert one(connection, "SELECT count(*) FROM pg_proc WHERE proname ~ '^code_texts'") == 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            SGH(n_bits=4, n_anchors=20, random_state=0).fit(ROWS).to_model("m"),
            "anchors are rows .* every role can read the body",
        ),
        (
            Model("m", "byhand", 8, (), network=known_rows(ROWS[:4], np.zeros((4, 1), "u1"), 8)),
            "evaluated in Python, not in SQL",
        ),
        (Model("m", "byhand", 3000, [affine(np.ones((1400, 3000)))]), "more than 4000000 weights"),
        (replace(MODELS["sign"], name="m" * 56), "longer than the 63 bytes"),
    ],
    ids=["anchors", "network", "large", "long name"],
)
def test_models_that_cannot_be_functions(connection, model, message):
    store.save(connection, model)
    with pytest.raises(psycopg.Error, match=f"cannot be a function: .*{message}"):
        connection.execute("SELECT hashindex.create_functions(%s)", [model.name])
    assert one(connection, "SELECT count(*) FROM pg_proc WHERE proname ~ '^code_texts'") == 0


def test_unusual_vectors(connection, texts):
    assert one(connection, "SELECT hashindex.code_texts(NULL::vector) IS NULL")
    assert code(connection, Vector(np.full(8, 3e38))) == "1" * 24
    assert code(connection, Vector(np.full(8, -3e38))) == "0" * 24
    for value in ("[1,2,3]", str([1.0] * 9)):
        with pytest.raises(psycopg.errors.DataException, match="expected 8 dimensions, not"):
            connection.execute("SELECT hashindex.code_texts(%s::vector)", [value])
    with pytest.raises(psycopg.errors.DataException, match="NaN"):
        connection.execute("SELECT hashindex.code_texts('[NaN,1,1,1,1,1,1,1]'::vector)")


@pytest.mark.newest
@pytest.mark.parametrize(("dimension", "cuts"), [(1, 3), (5333, 3), (16_000, 1)])
def test_few_and_many_dimensions(connection, dimension, cuts):
    rows = np.random.default_rng(3).standard_normal((20, dimension)).astype(np.float32)
    model = Thermometer(random_state=0).fit(rows).to_model("m", cuts=cuts)
    store.save(connection, model)
    connection.execute("SELECT hashindex.create_functions('m')")
    # Kept in its page or TOASTed.
    connection.execute("CREATE TABLE t (v vector)")
    connection.execute("INSERT INTO t VALUES (%s)", [Vector(rows[0])])
    bits = codes.unpack(model.encode(rows[:1]), model.n_bits)[0]
    found = one(connection, "SELECT hashindex.code_m(v)::text FROM t")
    assert found == "".join("01"[int(bit)] for bit in bits)


def test_upgrade_and_repair_keep_them(connection, indexed, url):
    before = catalog(connection)
    # A function that an earlier release made otherwise.
    connection.execute("SET check_function_bodies = off")
    body = one(connection, "SELECT prosrc FROM pg_proc WHERE oid = 'hashindex.code_texts(vector)'"
                           "::regprocedure")  # fmt: skip
    connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex.code_texts(v vector) RETURNS bit LANGUAGE plpgsql "
        "IMMUTABLE STRICT PARALLEL SAFE AS "
        + psycopg.sql.quote(body.replace("BEGIN", "BEGIN -- as it was"))
    )
    engine = create_engine(url)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    assert catalog(connection) == before
    assert connection.execute("SELECT * FROM hashindex.orphans()").fetchall() == []
    assert connection.execute("SELECT * FROM hashindex._strangers()").fetchall() == []


def test_downgrade(connection, indexed, url):
    engine = create_engine(url)
    with pytest.raises(InUseError, match="by_code"), engine.begin() as transaction:
        schema.downgrade(transaction, drop_models=True)
    assert_answers(connection)
    connection.execute("DROP INDEX by_code")
    with engine.begin() as transaction:
        schema.downgrade(transaction, drop_models=True)
    engine.dispose()
    assert one(connection, "SELECT to_regnamespace('hashindex') IS NULL")


@pytest.mark.newest
def test_they_are_no_members_of_the_extension(server, empty_url, make_database, tmp_path):
    """A dump takes them along; DROP EXTENSION takes them away, unless they are in use."""
    with psycopg.connect(empty_url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION pg_hashindex")
    with connect(empty_url) as session:
        session.execute("CREATE TABLE items (id bigint, embedding vector(8))")
        session.cursor().executemany(
            "INSERT INTO items VALUES (%s, %s)",
            [(n + 1, Vector(row)) for n, row in enumerate(ROWS)],
        )
        store.save(session, MODELS["thermometer"])
        session.execute("SELECT hashindex.create_functions('texts')")
        session.execute(INDEX)
        session.execute("SELECT hashindex.leave_extension()")
        session.execute("SELECT hashindex.join_extension()")
        member = (
            "SELECT count(*) FROM pg_depend WHERE deptype = 'e' AND classid = 'pg_proc'::regclass "
            "AND objid = 'hashindex.code_texts(vector)'::regprocedure"
        )
        assert one(session, member) == 0
        dump, restored = tmp_path / "dump", make_database("template0")
        run(server, "pg_dump", "--format=custom", "--file", dump, empty_url)
        run(server, "pg_restore", "--exit-on-error", "--dbname", restored, dump)
        with connect(restored) as again:
            assert_answers(again)
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="by_code|depend"):
            session.execute("DROP EXTENSION pg_hashindex")
        session.execute("DROP INDEX by_code; DROP EXTENSION pg_hashindex")
        assert one(session, "SELECT count(*) FROM pg_proc WHERE proname ~ '^code_texts'") == 0


def test_the_printed_statement_runs(connection, items, on):
    """The functions' names are printed, and the statement that makes an index over them."""
    model = MODELS["thermometer, cosine"]
    store.save(connection, model)
    code, project, create = on("model", "functions", "texts").stdout.splitlines()
    for function in (code, project):
        assert one(
            connection,
            f"SELECT count(*) FROM pg_proc WHERE oid = to_regprocedure('{function}(vector)')",
        )
    found = json.loads(on("model", "functions", "texts", "--json").stdout)
    assert found == {
        "code": code,
        "project": project,
        "bits": model.n_bits,
        "create_index": create,
    }
    for placeholder, name in (("NAME", "docs"), ("TABLE", "items"), ("COLUMN", "embedding")):
        create = create.replace(f"'{placeholder}'", f"'{name}'")
    connection.execute(create.encode())
    search = "SELECT id FROM hashindex.search_docs(%s, 10)"
    found = connection.execute(search.encode(), [Vector(ROWS[5])]).fetchall()
    assert len(found) == 10
    assert found[0] == (6,)


@pytest.mark.newest
@pytest.mark.parametrize("metric", ["cosine", "l2"])
def test_anchors_that_all_roles_may_read(connection, items, metric):
    """A kernel model is a function where its anchors may be read, with the codes of the model."""
    normalize = "l2" if metric == "cosine" else None
    model = SGH(n_bits=8, n_anchors=20, random_state=0, normalize=normalize).fit(ROWS).to_model("m")
    store.save(connection, replace(model, metric=metric))
    with pytest.raises(psycopg.Error, match="every role can read the body"):
        connection.execute("SELECT hashindex.create_functions('m')")
    connection.execute("SELECT hashindex.create_functions('m', reveal_anchors => true)")
    bits = codes.unpack(model.encode(ROWS[:50]), model.n_bits)
    found = [code(connection, Vector(row), "m") for row in ROWS[:50]]
    assert np.mean([[bit == "1" for bit in text] for text in found] == bits) > 0.99
    connection.execute(
        "CREATE INDEX ON items USING hnsw ((hashindex.code_m(embedding)::bit(8)) bit_hamming_ops)"
    )
