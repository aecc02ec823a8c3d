"""pg-hashindex quickstart: one command from a table to searches, cut off and run again anywhere."""

import re
import time
from functools import partial

import numpy as np
import psycopg
import pytest
from fixtures.commands import fill
from fixtures.databases import run_as_admin
from pg_hashindex.cli import quickstart as quickstart_module
from pgvector import HalfVector
from psycopg import sql

from pg_hashindex import evaluate, schema, store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.index.landmarks.building import ListBuild
from pg_hashindex.quality import advice, tuning
from pg_hashindex.quality.measuring import Measured, Measuring
from pg_hashindex.training import train

pytestmark = pytest.mark.newest

ROWS, DIMENSION = 1500, 32
START = ("quickstart", "docs", "v")
NAME = "docs_v"


def fill_docs(connection):
    """Make table docs: rows in 30 clusters, as embeddings are."""
    rng = np.random.default_rng(3)
    centres = rng.standard_normal((30, DIMENSION))
    vectors = centres[np.arange(ROWS) % 30] + 0.4 * rng.standard_normal((ROWS, DIMENSION))
    fill(connection, "docs", vectors.astype(np.float32))


@pytest.fixture(scope="session")
def docs_template(make_template):
    """A database with our schema and table docs."""
    return make_template("docs", fill_docs)


@pytest.fixture(scope="session")
def new_template(server, vector_template):
    """A database with pgvector and table docs, without our schema."""
    run_as_admin(server, f"CREATE DATABASE template_new TEMPLATE {vector_template}")
    with connect(server.uri("template_new")) as connection:
        fill_docs(connection)
    return "template_new"


@pytest.fixture
def empty_url(request, make_database):
    """The database of a test: with table docs and our schema, or without either.

    It takes `docs` to have the table, and `nothing` to have the table alone.
    """
    names = request.fixturenames
    template = "docs" if "docs" in names else "vector"
    if "nothing" in names:
        template = "new"
    return make_database(request.getfixturevalue(f"{template}_template"))


@pytest.fixture
def nothing():
    """The schema is not installed."""


@pytest.fixture
def start(run, empty_url, docs, monkeypatch):
    """Run it, measuring with fewer queries than for users."""
    monkeypatch.setattr("pg_hashindex.cli.quickstart._QUERIES", 20)

    def invoke(*options, code=0):
        return run(*START, *options, "--database-url", empty_url, code=code)

    return invoke


@pytest.fixture(autouse=True)
def usually_slow(request):
    """Small tables get a set, unless a test takes `fast`."""
    if "fast" not in request.fixturenames:
        request.getfixturevalue("slow_machine")


@pytest.fixture
def fast():
    """Exact searches of small tables are fast, as they are."""


@pytest.fixture
def docs():
    """The table of the template."""
    return "docs"


def snapshot(connection):
    """Return the relations of our schema and of public, and the indexes' rows."""
    made = connection.execute(
        "SELECT c.oid, c.relname, c.relfilenode FROM pg_class c "
        "WHERE c.relnamespace IN (to_regnamespace('hashindex'), 'public'::regnamespace) ORDER BY 1"
    ).fetchall()
    if connection.execute("SELECT to_regclass('hashindex.index')").fetchone() == (None,):
        return made
    rows = connection.execute("SELECT i.* FROM hashindex.index i").fetchall()
    models = connection.execute("SELECT name, version, checksum FROM hashindex.model").fetchall()
    return made, rows, models


def recall(connection):
    index = HashIndex.open(connection, NAME)
    found = evaluate.evaluate(index, queries=200, candidates=[index.candidates])
    return found.points[0].recall


@pytest.mark.usefixtures("nothing")
def test_from_nothing(start, bare, monkeypatch):
    monkeypatch.setattr("pg_hashindex.cli.quickstart._QUERIES", 100)
    result = start("--access", "lists", "--yes")
    assert "installed schema hashindex" in result.stderr
    assert f"training model {NAME}" in result.stderr
    index = HashIndex.open(bare, NAME)
    # 32 dimensions have 32 projections at the most.
    assert (index.n_bits, len(index.cuts), index.metric, index.access) == (96, 3, "cosine", "lists")
    assert index.waiting() == 0
    assert recall(bare) >= 0.93
    # Its last lines can be pasted.
    statements = re.findall(r"^  (SELECT .*?;)$", result.stdout, re.MULTILINE | re.DOTALL)
    assert len(statements) == 2
    for statement in statements:
        assert len(bare.execute(statement.encode()).fetchall()) == 10
    undo = re.findall(r"^  pg-hashindex (.*?)(?:   #.*)?$", result.stdout, re.MULTILINE)
    assert [line.split()[:2] for line in undo] == [
        ["index", "drop"], ["model", "drop"], ["schema", "downgrade"],
    ]  # fmt: skip


@pytest.mark.parametrize("options", [["--access", "lists"], ["--writes", "50"], []])
@pytest.mark.usefixtures("nothing")
def test_undone(start, bare, run, empty_url, options):
    before = snapshot(bare)
    printed = start(*options, "--yes").stdout
    for line in re.findall(r"^  pg-hashindex (.*?)(?:   #.*)?$", printed, re.MULTILINE):
        run(*line.split(), "--database-url", empty_url)
    assert snapshot(bare) == before


def test_twice(start, bare):
    start("--access", "lists", "--name", "mine", "--yes")
    assert HashIndex.open(bare, "mine").model == "mine"
    before = snapshot(bare)
    # No question: there is nothing to do, though it would be HNSW's table.
    again = start("--name", "mine")
    assert "index mine is up to date" in again.stderr
    assert "Continue?" not in again.stderr
    assert snapshot(bare) == before


@pytest.mark.usefixtures("nothing")
def test_asks_before_it_changes_anything(start, bare):
    before = snapshot(bare)
    result = start("--access", "lists", code=1)  # without a terminal
    assert "1. install schema hashindex" in result.stderr
    assert "2. train model docs_v: itq, 96 bits, distance cosine" in result.stderr
    assert "Continue? [y/N]" in result.stderr
    assert "distance cosine (assumed; --metric sets it)\n" in result.stderr
    assert "assumed" not in start("--access", "lists", "--metric", "cosine", code=1).stderr
    assert snapshot(bare) == before


@pytest.mark.parametrize("metric", ["cosine", "l2", "ip"])
def test_codes_in_pgvectors_index(start, bare, metric):
    """The printed statements search, and the printed lines undo all of it."""
    before = snapshot(bare)
    asked = start("--metric", metric, "--writes", "50", code=1).stderr
    assert "making an index by codes in HNSW: 50 rows are written a second" in asked
    assert "not lists: slower searches" in asked
    assert f"train model docs_v: thermometer, about 96 bits, distance {metric}\n" in asked
    assert snapshot(bare) == before
    made = start("--metric", metric, "--writes", "50", "--yes")
    index = HashIndex.open(bare, NAME)
    assert index.set == "codes of docs_v:1 in hnsw"
    assert recall(bare) >= 0.9
    statements = re.findall(r"^  (SELECT .*?;)$", made.stdout, re.MULTILINE | re.DOTALL)
    assert len(statements) == 2
    for statement in statements:
        assert len(bare.execute(statement.encode()).fetchall()) == 10
    there = snapshot(bare)
    again = start("--metric", metric)
    assert f"index {NAME} is up to date" in again.stderr
    assert "Continue?" not in again.stderr
    assert snapshot(bare) == there
    other = "l2" if metric != "l2" else "ip"
    assert f"with --metric {metric}: give" in start("--metric", other, code=3).stderr


@pytest.mark.parametrize("killed", [False, True])
def test_a_build_that_was_cut_off(start, bare, monkeypatch, killed):
    """The same command ends it, by the model that is there."""

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pg_hashindex.index.sets._run", cut)
        if killed:
            patch.setattr("pg_hashindex.index.sets._give_up", lambda *_: None)
        start("--writes", "50", "--yes", code=None)
    (model,) = store.list_models(bare)
    start("--writes", "50", "--yes")
    assert [one.checksum for one in store.list_models(bare)] == [model.checksum]
    assert HashIndex.open(bare, NAME).encoded


@pytest.mark.parametrize(
    ("options", "set_", "why"),
    [
        (["--access", "lists"], "codes in lists", "--access says so"),
        (["--memory", "64kB"], "codes in lists", "more than memory of 64kB"),
    ],
)
def test_reasons_for_a_set(start, options, set_, why):
    said = start(*options, code=1).stderr
    assert f"making an index by {set_}: " in said
    assert why in said
    assert "not exact: " in said
    assert "Continue?" in said


def test_vectors_where_they_fit(start, bare):
    start("--yes")
    assert HashIndex.open(bare, NAME).set == "vectors as halfvec in hnsw"
    assert store.list_models(bare) == []
    assert recall(bare) >= 0.93
    assert "is up to date" in start().stderr


def test_an_index_that_is_there_is_taken(start, bare):
    bare.execute("CREATE INDEX theirs ON docs USING hnsw (v vector_cosine_ops)")
    said = start("--yes").stderr
    assert "making an index by theirs, which is there: it fits into memory and reaches" in said
    relations = bare.execute("SELECT relation FROM hashindex.index_set").fetchall()
    assert relations == [("theirs",)]


@pytest.mark.usefixtures("fast")
def test_an_access_that_is_named_wins_over_exact_search(start, bare):
    said = start("--access", "hnsw", code=1).stderr
    assert "not exact: --access says so" in said


@pytest.mark.usefixtures("fast")
def test_a_small_table_needs_no_index(run, bare, empty_url):
    fill(bare, "small", np.random.default_rng(1).standard_normal((200, 8)).astype(np.float32))
    before = snapshot(bare)
    said = run("quickstart", "small", "v", "--yes", "--database-url", empty_url).stderr
    assert "small needs no index: an exact search of 200 rows takes" in said
    assert snapshot(bare) == before


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("--id", "nothing", "docs has no column 'nothing': check --id"),
        ("--tenant", "nothing", "docs has no column 'nothing': check --tenant"),
        ("--metric", "l1", "CREATE INDEX CONCURRENTLY ON docs USING hnsw (v vector_l1_ops)"),
    ],
)
def test_options_are_refused_before_training(start, bare, option, value, why):
    before = snapshot(bare)
    assert why in start(option, value, "--access", "lists", "--yes", code=3).stderr
    assert snapshot(bare) == before


def test_sessions_that_the_server_ends_while_a_model_is_trained(start, bare, monkeypatch):
    name = sql.Identifier(bare.info.dbname)
    bare.execute(sql.SQL("ALTER DATABASE {} SET idle_session_timeout = '300ms'").format(name))
    train_ = quickstart_module.train_code

    def slowly(*given, **options):
        time.sleep(1)
        return train_(*given, **options)

    monkeypatch.setattr(quickstart_module, "train_code", slowly)
    start("--writes", "50", "--yes")
    with connect(bare.info.dsn) as session:
        assert HashIndex.open(session, NAME).encoded


@pytest.mark.parametrize("kind", ["hnsw", "lists"])
def test_slower_than_the_exact_query(start, bare, monkeypatch, kind):
    monkeypatch.setattr(advice, "SAME_MS", -1e6)
    said = start("--access", kind, "--yes", code=1).stderr
    assert "and the exact query, without any index," in said
    assert "this table needs no index" in said


def test_partitions_and_halves(run, bare, empty_url):
    """With an HNSW beside, whose metric is taken."""
    bare.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, v halfvec(16)) PARTITION BY RANGE (id);"
        "CREATE TABLE first PARTITION OF docs FOR VALUES FROM (0) TO (600);"
        "CREATE TABLE other PARTITION OF docs FOR VALUES FROM (600) TO (1200)"
    )
    vectors = np.random.default_rng(1).standard_normal((1200, 16)).astype(np.float32)
    with bare.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for number, vector in enumerate(vectors):
            copy.write_row((number, HalfVector(vector)))
    bare.execute("ANALYZE docs; CREATE INDEX ON docs USING hnsw (v halfvec_l2_ops)")
    made = run(*START, "--yes", "--recall", "0.8", "--database-url", empty_url)
    assert "distance l2" in made.stderr
    assert "partitions: 2; a search reads an index of each" in made.stderr
    assert len(HashIndex.open(bare, NAME).search(vectors[7], 20)) == 20
    assert "is up to date" in run(*START, "--recall", "0.8", "--database-url", empty_url).stderr


def test_a_table_without_a_key(run, bare, empty_url):
    bare.execute("CREATE TABLE docs (id int, v vector(4))")
    bare.execute("INSERT INTO docs SELECT n, ARRAY[n, 1, 2, 3] FROM generate_series(1, 1200) n")
    said = run(*START, "--yes", "--database-url", empty_url, code=3).stderr
    assert "docs has no key, columns that are unique and NOT NULL" in said


RELATED = {
    "partitioned table": "CREATE TABLE docs (LIKE kept INCLUDING ALL) PARTITION BY RANGE (id);"
    "ALTER TABLE docs ATTACH PARTITION kept DEFAULT",
    "partition": "CREATE TABLE all_docs (LIKE kept INCLUDING ALL) PARTITION BY RANGE (id);"
    "ALTER TABLE kept RENAME TO docs; ALTER TABLE all_docs ATTACH PARTITION docs DEFAULT",
    "inheriting table": "ALTER TABLE kept RENAME TO docs; CREATE TABLE child () INHERITS (docs)",
}


@pytest.mark.parametrize("kind", RELATED)
def test_a_table_that_is_not_plain_is_kept_by_pgvector(run, bare, empty_url, kind):
    """Before a model is trained; and where an index would be made instead."""
    fill(bare, "kept", np.random.default_rng(1).standard_normal((1010, 16)).astype(np.float32))
    bare.execute(RELATED[kind].encode())
    said = run(*START, "--access", "lists", "--yes", "--database-url", empty_url, code=3).stderr
    assert f"docs is a {kind}, and an index keeps the codes of one plain table" in said
    assert "as quickstart --access hnsw does" in said
    assert bare.execute("SELECT to_regnamespace('hashindex') IS NULL").fetchone() == (True,)
    said = run(*START, "--yes", "--database-url", empty_url).stderr
    assert "making an index by the vectors as halfvec in HNSW" in said


def test_more_than_2000_dimensions(run, bare, empty_url):
    vectors = np.random.default_rng(1).standard_normal((1010, 2010)).astype(np.float32)
    fill(bare, "docs", vectors)
    asked = run(*START, "--writes", "50", "--database-url", empty_url, code=1).stderr
    assert "thermometer, about 6030 bits" in asked
    result = run(*START, "--access", "lists", "--database-url", empty_url, code=1)
    assert "itq, 303 bits" in result.stderr


STEPS = {
    "schema": (schema, "upgrade"),
    "train": (store, "save"),
    "create": (HashIndex, "create"),
    "encode": (ListBuild, "_put_in_order"),
    "measure": (tuning, "tune"),
    "configure": (HashIndex, "configure"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("step", "when"), [("schema", "before"), *((s, "after") for s in STEPS)])
@pytest.mark.usefixtures("nothing")
def test_cut_off(start, bare, monkeypatch, step, when):
    """Wherever it is cut off, the same command brings it to the same end.

    Before a step is after the one before it.
    """
    where, name = STEPS[step]
    whole = getattr(where, name)

    reached = []

    def cut(*arguments, **options):
        reached.append(step)
        if when == "after":
            whole(*arguments, **options)
        raise KeyboardInterrupt

    # However slow the machine is.
    monkeypatch.setattr(advice, "SAME_MS", 1e6)
    # 20 candidates are enough, so that the last step has something to do.
    options = ("--access", "lists", "--yes", "--recall", "0.5")
    with monkeypatch.context() as patch:
        patch.setattr(where, name, cut)
        start(*options, code=None)
    assert reached
    models = None
    if bare.execute("SELECT to_regclass('hashindex.model')").fetchone() != (None,):
        models = {model.checksum for model in store.list_models(bare)}
    start(*options)
    (index,) = list_indexes(bare)
    assert (index.name, index.candidates, index.waiting()) == (NAME, 20, 0)
    (model,) = store.list_models(bare)
    # A trained model is not trained again.
    assert not models or models == {model.checksum}
    assert "is up to date" in start(*options).stderr


@pytest.mark.parametrize(
    ("recall", "chosen", "said"),
    [
        # Lists are what is missing.
        (lambda effort, _: 0.5 + effort / 512, (320, 20), None),
        (lambda _, kept: min(0.9, 0.5 + kept / 4000), (80, 1600), "the codes of model docs_v:1"),
    ],
)  # fmt: skip
def test_the_best_setting_is_kept(start, bare, monkeypatch, recall, chosen, said):
    """Not the last one tried; where none reaches the recall, a remedy is printed."""

    def measure(self, candidates, done, *, effort):
        found = recall(effort, candidates)
        assert HashIndex.open(bare, NAME).effort == 80  # nothing is configured in between
        milliseconds = 0.001 * effort + 0.0005 * candidates
        return Measured(
            candidates, found, milliseconds, milliseconds, NAME, "docs_v:1", "lists",
            effort, 10, 9, found,
        )  # fmt: skip

    monkeypatch.setattr(HashIndex, "create", partial(HashIndex.create, effort=80))
    monkeypatch.setattr(Measuring, "measure", measure)
    result = start("--access", "lists", "--yes", code=0 if said is None else 1)
    index = HashIndex.open(bare, NAME)
    assert (index.effort, index.candidates) == chosen
    if said is not None:
        assert "recall 0.95 is not reached: " in result.stderr
        assert said in result.stderr
        assert "to reach it: " in result.stderr
    else:
        assert f"searches keep {chosen[1]} candidates of {chosen[0]} lists from" in result.stderr


def test_effort_of_an_index_that_is_complete_stays(start, bare, monkeypatch):
    """Times differ from run to run: as long as it reaches the goal, no other one is taken."""
    start("--access", "lists", "--yes")
    usual = HashIndex.open(bare, NAME).configure(effort=80).candidates
    found = {}

    def measure(self, candidates, done=None, *, effort=None):
        recall = found.get(effort, float(candidates >= usual))
        return Measured(
            candidates, recall, 0.01 * (effort or 80), 9.0, NAME, "docs_v:1", "lists",
            effort, 10, 9, recall,
        )  # fmt: skip

    monkeypatch.setattr(Measuring, "measure", measure)
    assert "is up to date" in start("--access", "lists").stderr
    index = HashIndex.open(bare, NAME)
    assert (index.effort, index.candidates) == (80, usual)
    found[80] = 0.5
    assert "of 112 lists from now on" in start("--access", "lists").stderr


def test_an_index_with_other_settings(start, bare):
    start("--access", "lists", "--yes")
    before = snapshot(bare)
    for option, value, has in [
        ("--metric", "l2", "cosine"),
        ("--tenant", "part", "left out"),
        ("--id", "part", "id"),
    ]:
        refused = start(option, value, "--yes", code=3)
        assert f"index '{NAME}' is there already, with {option} {has}: give" in refused.stderr
    assert "is up to date" in start("--metric", "cosine", "--id", "id").stderr
    assert snapshot(bare) == before


def test_tenants(start, bare):
    assert "docs has no column 'team'" in start("--tenant", "team", "--yes", code=3).stderr
    made = start("--tenant", "part", "--access", "lists", "--yes")
    assert HashIndex.open(bare, NAME).tenant_column == "part"
    assert "with landmarks within each part" in made.stderr
    statements = re.findall(r"^  (SELECT .*?;)$", made.stdout, re.MULTILINE | re.DOTALL)
    assert "tenant => (SELECT part FROM docs LIMIT 1)" in statements[0]
    assert len(statements) == 2
    for statement in statements:
        assert len(bare.execute(statement.encode()).fetchall()) == 10
    assert "is up to date" in start("--tenant", "part").stderr
    refused = start("--tenant", "id", "--yes", code=3).stderr
    assert "is there already, with --tenant part: give" in refused


def test_tenants_of_a_policy(start, bare):
    """Lists that are chosen for tenants are made within them, as by the command of doctor."""
    bare.execute("ALTER TABLE docs ADD team int NOT NULL DEFAULT 1")
    bare.execute("UPDATE docs SET team = 2 WHERE id % 5 = 0")
    bare.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
    bare.execute("CREATE POLICY own ON docs USING (team = current_setting('app.team')::int)")
    bare.execute("VACUUM ANALYZE docs")
    said = start("--yes").stderr
    assert "the largest team has 1200 rows" in said
    assert "row security: on" in said
    assert "tenants: team (a policy), 2 of at most 1200" in said
    assert HashIndex.open(bare, NAME).tenant_column == "team"
    assert "making an index" not in start().stderr


def test_run_again_under_a_policy_on_the_tenant(start, bare):
    start("--access", "lists", "--yes")
    bare.execute("ALTER TABLE docs ENABLE ROW LEVEL SECURITY")
    bare.execute("CREATE POLICY own ON docs USING (part = current_setting('app.part')::int)")
    bare.execute("VACUUM ANALYZE docs")
    assert "is up to date" in start().stderr


def test_a_model_of_an_index_that_was_dropped_is_not_taken_for_vectors(start, run, bare, empty_url):
    start("--access", "lists", "--yes")
    run("index", "drop", NAME, "--yes", "--database-url", empty_url)
    assert "the vectors as halfvec in HNSW" in start("--access", "hnsw", "--yes").stderr
    assert HashIndex.open(bare, NAME).model_name == "none"


def test_no_model_is_left_where_the_session_ends(start, bare, monkeypatch):
    def end(connection, *rest, **options):
        connection.close()
        raise DatabaseStateError("the connection is lost")

    monkeypatch.setattr(HashIndex, "create", end)
    start("--access", "lists", "--yes", code=3)
    assert store.list_models(bare) == []


def test_a_key_that_begins_with_the_tenant(start, bare):
    bare.execute("ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD PRIMARY KEY (part, id)")
    bare.execute("VACUUM ANALYZE docs")
    assert "--tenant part if searches stay within one" in start("--access", "hnsw", "--yes").stderr


def test_halfvec_and_names_to_be_quoted(run, bare, empty_url):
    vectors = np.random.default_rng(1).standard_normal((1200, 16)).astype(np.float32)
    bare.execute('CREATE SCHEMA "My Shop"')
    fill(bare, '"My Shop"."The Docs"', vectors, "halfvec")
    result = run(
        "quickstart", '"My Shop"."The Docs"', "v", "--access", "lists",
        "--yes",
        "--database-url", empty_url,
    )  # fmt: skip
    assert HashIndex.open(bare, "the_docs_v").waiting() == 0
    for statement in re.findall(r"^  (SELECT .*?;)$", result.stdout, re.MULTILINE | re.DOTALL):
        assert len(bare.execute(statement.encode()).fetchall()) == 10
    again = run(
        "quickstart", '"My Shop"."The Docs"', "v",
        "--database-url", empty_url,
    )  # fmt: skip
    assert "is up to date" in again.stderr


def test_a_name_that_is_taken(start, bare, run, empty_url):
    start("--access", "lists", "--yes")
    fill(bare, "others", np.random.default_rng(1).standard_normal((50, 4)).astype(np.float32))
    others = ["quickstart", "others", "v", "--access", "lists", "--yes"]
    taken = run(*others, "--name", NAME, "--database-url", empty_url, code=3)
    assert f"there is an index '{NAME}', of" in taken.stderr
    HashIndex.open(bare, NAME).drop()
    taken = run(*others, "--name", NAME, "--database-url", empty_url, code=3)
    assert f"there is a model '{NAME}' of 32 dimensions" in taken.stderr


def test_a_server_that_only_reads(start, bare):
    before = snapshot(bare)
    bare.execute(
        sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(
            sql.Identifier(bare.info.dbname)
        )
    )
    result = start("--access", "lists", "--yes", code=3)
    assert "sessions only read here" in result.stderr
    assert snapshot(bare) == before


@pytest.mark.usefixtures("nothing")
def test_roles_without_rights(run, server, bare, docs, empty_url):
    """Each refusal says what to grant; once all of it is granted, it goes through."""
    run_as_admin(
        server,
        "CREATE ROLE newcomer LOGIN",
        "CREATE ROLE holder",
        "GRANT newcomer TO holder",
    )
    bare.execute("GRANT CREATE ON SCHEMA public TO holder; ALTER TABLE docs OWNER TO holder")
    database = bare.info.dbname
    arguments = [*START, "--access", "lists", "--yes", "--database-url"]
    arguments.append(empty_url.replace("postgres@", "newcomer@"))
    before = snapshot(bare)
    try:
        for grant in (
            "GRANT SELECT ON docs TO newcomer",
            f"GRANT CREATE ON DATABASE {database} TO newcomer",
            "GRANT UPDATE, TRIGGER ON docs TO newcomer",
        ):
            refused = run(*arguments, code=3)
            assert grant in refused.stderr
            assert snapshot(bare) == before
            bare.execute(grant.encode())
        direct = [*START, "--yes", *arguments[-2:]]
        assert "may not make an index of docs, only its owner" in run(*direct, code=3).stderr
        run_as_admin(server, "REVOKE newcomer FROM holder")
        refused = run(*arguments, code=3)
        assert "table docs belongs to role holder, which can run code as newcomer" in refused.stderr
        assert "connect as role holder" in refused.stderr
        assert snapshot(bare) == before
        bare.execute("ALTER TABLE docs OWNER TO newcomer")
        run(*arguments)
    finally:
        with connect(empty_url.replace("postgres@", "newcomer@")) as session:
            for index in list_indexes(session):
                index.drop()
        bare.execute("ALTER TABLE docs OWNER TO postgres")
        bare.execute("DROP OWNED BY newcomer, holder CASCADE")
        run_as_admin(server, "DROP ROLE newcomer", "DROP ROLE holder")


def test_a_foreign_schema(run, server, bare, docs, empty_url):
    run_as_admin(server, "CREATE ROLE newcomer LOGIN")
    try:
        bare.execute("GRANT ALL ON docs TO newcomer")
        theirs = empty_url.replace("postgres@", "newcomer@")
        refused = run(*START, "--access", "lists", "--yes", "--database-url", theirs, code=3)
        assert "a superuser grants that with: GRANT postgres TO newcomer" in refused.stderr
    finally:
        bare.execute("DROP OWNED BY newcomer")
        run_as_admin(server, "DROP ROLE newcomer")


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("TRUNCATE docs", "docs has no row with a vector"),
        ("ALTER TABLE docs DROP COLUMN id", "docs has no key, columns that are unique and NOT"),
        (
            "ALTER TABLE docs DROP CONSTRAINT docs_pkey, ADD UNIQUE (part, id), "
            "ALTER part SET NOT NULL",
            "docs has no primary key: give --id part,id, or other columns that are unique",
        ),
        ("ALTER TABLE docs RENAME v TO w", "its columns of vectors: 'w'"),
        (
            "ALTER TABLE docs RENAME TO d; CREATE MATERIALIZED VIEW docs AS SELECT * FROM d",
            "docs is a materialised view",
        ),
    ],
)
def test_tables_that_cannot_be_indexed(start, bare, statement, why):
    bare.execute(statement.encode())
    before = snapshot(bare)
    result = start("--access", "lists", "--yes", code=3)
    assert why in result.stderr.splitlines()[-1]
    assert snapshot(bare) == before


def test_a_locked_table(start, empty_url):
    with psycopg.connect(empty_url) as other:
        other.execute("LOCK TABLE docs IN ACCESS EXCLUSIVE MODE")
        assert (
            "docs is locked, as by VACUUM FULL"
            in start("--access", "lists", "--yes", code=3).stderr
        )


def test_usage(start):
    for wrong in ("nan", "2", "-1"):
        assert "Invalid value for '--recall'" in start("--recall", wrong, code=2).stderr
    assert "--recall must be above 0" in start("--recall", "0", code=2).stderr
    assert "memory is '1 mile'" in start("--memory", "1 mile", code=2).stderr


def test_lists_for_little_memory_are_built_with_enough(start, bare):
    start("--access", "lists", "--yes", "--memory", "64MB")
    assert HashIndex.open(bare, NAME).access == "lists"


def test_a_recall_out_of_reach(start, bare, monkeypatch):
    """The message suggests options; the index stays."""
    monkeypatch.setattr("pg_hashindex.quality.tuning.CANDIDATES", (10,))
    monkeypatch.setattr("pg_hashindex.quality.code_fits.train", partial(train, n_bits=2))
    monkeypatch.setattr("pg_hashindex.quality.tuning._COUNTS", (10,))
    result = start("--access", "lists", "--yes", "--recall", "1", code=1)
    assert re.search(
        r"recall 1 is not reached: \d+ candidates of \d+ lists? find 0\.\d+, and", result.stderr
    )
    assert "to reach it: take more bits: pg-hashindex model train docs_v" in result.stderr
    assert HashIndex.open(bare, NAME).waiting() == 0
