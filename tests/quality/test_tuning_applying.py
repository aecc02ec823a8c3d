"""Advice that is applied, that fails on the way, or that is refused beforehand."""

import numpy as np
import psycopg
import pytest
from fixtures.catalog import contents

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.progress import show_progress
from pg_hashindex.errors import (
    DatabaseStateError,
    HashIndexError,
    InvalidInputError,
    MissingRightsError,
)
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.tuning import (
    Advice,
    Budget,
    Goal,
    Trial,
    apply,
    models,
    running,
    tune_index,
    tune_table,
)
from pg_hashindex.quality.tuning.applying import check_free
from pg_hashindex.quality.tuning.bench import Scratch

pytestmark = pytest.mark.newest

QUICK = Budget(sample=2000, queries=20, minutes=2)


@pytest.fixture
def docs(connection):
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(4))")
    connection.execute(
        "INSERT INTO docs SELECT i, ARRAY[random(), random(), random(), random()]::vector "
        "FROM generate_series(1, 200) i"
    )
    return "docs"


def lsh():
    rows = np.random.default_rng(0).standard_normal((500, 4)).astype(np.float32)
    return LSH(n_bits=64, random_state=0).fit(rows).to_model("m")


@pytest.fixture
def index(connection, docs):
    store.save(connection, lsh())
    made = HashIndex.create(connection, "docs_idx", table=docs, column="v", model="m")
    made.encode()
    return made.configure(candidates=17, ranking="hamming")


def advice(index, **more):
    settings = {"access": "scan", "ranking": "asymmetric", "candidates": 30} | more
    chosen = Trial(
        "codes", 0.95, 0, 1.0, 0.95, method="lsh", bits=64, own=index is not None, **settings
    )
    return Advice(
        Goal(0.9), "docs", "v", ["id"], "l2", index, 200, 180, 180, 20, [chosen], chosen, "", [],
        {"lsh 64 bits": lsh()},
    )  # fmt: skip


def test_searches_go_as_before_until_the_path_is_built(connection, index, monkeypatch):
    wanted = advice("docs_idx", access="landmarks", probes=8)

    def fail(*arguments, **more):
        raise DatabaseStateError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr("pg_hashindex.index.build._build_landmarks", fail)
        with pytest.raises(
            DatabaseStateError,
            match="the disk is full; index 'docs_idx' searches as before; finish with: "
            "pg-hashindex index configure docs_idx --access landmarks --ranking asymmetric "
            "--candidates 30 --probes 8$",
        ):
            apply(connection, wanted)
    now = HashIndex.open(connection, "docs_idx")
    assert (now.access, now.ranking, now.candidates) == ("scan", "hamming", 17)
    done = apply(connection, wanted)
    assert (done.access, done.ranking, done.candidates, done.probes) == (
        "landmarks", "asymmetric", 30, 8,
    )  # fmt: skip


@pytest.mark.parametrize("failure", [DatabaseStateError("oh"), KeyboardInterrupt()])
def test_leftovers_of_a_new_index_are_named(connection, docs, monkeypatch, failure):
    def fail(*arguments, **more):
        raise failure

    with monkeypatch.context() as patched:
        patched.setattr("pg_hashindex.index.encoding.encode_missing", fail)
        with pytest.raises(type(failure)) as caught:
            apply(connection, advice(None), name="new-one")
    words = str(caught.value) + str(getattr(caught.value, "__notes__", ""))
    assert "index 'new-one' is there" in words
    assert "pg-hashindex index encode new-one" in words
    made = HashIndex.open(connection, "new-one")
    assert (made.ranking, made.candidates) == ("asymmetric", 30)
    made.encode()
    assert made.waiting() == 0


@pytest.mark.parametrize("failure", [DatabaseStateError("oh"), KeyboardInterrupt()])
def test_no_model_is_left_of_an_index_that_is_not_created(connection, docs, monkeypatch, failure):
    before = contents(connection)

    def fail(*arguments, **more):
        raise failure

    monkeypatch.setattr(HashIndex, "create", fail)
    with pytest.raises(type(failure)):
        apply(connection, advice(None), name="new")
    assert contents(connection) == before


def test_a_connection_that_is_not_in_autocommit_mode(url, index, monkeypatch):
    monkeypatch.setattr(running, "of_index", lambda *arguments: [])
    with psycopg.connect(url) as own:
        opened = HashIndex.open(own, "docs_idx")
        own.commit()
        tuned = tune_index(opened, Goal(0.9), QUICK)
        assert tuned.index == "docs_idx"
        made = apply(own, advice("docs_idx"))
        assert made.candidates == 30
        own.commit()
        with pytest.raises(InvalidInputError, match="step by step: call it outside a transaction"):
            own.execute("SELECT 1")
            apply(own, advice("docs_idx"))
        own.rollback()
        assert own.autocommit is False


def test_two_runs_that_sweep_the_same(connection):
    before = contents(connection)
    left = Scratch(connection, "hashindex_tune_0123456789ab")
    left.create()
    left.drop()
    left.drop()
    assert contents(connection) == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("n" * 41, "is not 1 to 40 letters"),
        ("my idx!", "is not 1 to 40 letters"),
        ("a:b", "cannot name a model"),
        ("", "cannot name a model"),
        ("docs_idx", "exists already"),
    ],
)
def test_names_that_no_index_can_have(connection, index, name, message):
    with pytest.raises(InvalidInputError, match=message):
        check_free(connection, name, "docs")


def test_a_role_that_may_not_make_triggers(url, connection, docs):
    connection.execute('CREATE ROLE "Tuning Role"; GRANT SELECT ON docs TO "Tuning Role"')
    connection.execute('GRANT USAGE ON SCHEMA hashindex TO "Tuning Role"')
    connection.execute('GRANT SELECT ON ALL TABLES IN SCHEMA hashindex TO "Tuning Role"')
    try:
        with connect(url) as limited:
            limited.execute('SET ROLE "Tuning Role"')
            with pytest.raises(MissingRightsError, match='GRANT TRIGGER ON docs TO "Tuning Role"$'):
                check_free(limited, "new", "docs")
            with pytest.raises(MissingRightsError, match='CREATE ON DATABASE .* TO "Tuning Role"'):
                tune_table(limited, "docs", "v", Goal(0.9), QUICK)
        connection.execute('GRANT TRIGGER ON docs TO "Tuning Role"')
        with connect(url) as limited:
            limited.execute('SET ROLE "Tuning Role"')
            check_free(limited, "new", "docs")
    finally:
        connection.execute('DROP OWNED BY "Tuning Role"; DROP ROLE "Tuning Role"')


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        ("CREATE TEMPORARY TABLE t (id int PRIMARY KEY, v vector(4))", "is a temporary table"),
        (
            "CREATE TABLE t (id int PRIMARY KEY, v vector(4)); CREATE TABLE u () INHERITS (t)",
            "has tables that inherit from it",
        ),
        (
            "CREATE DOMAIN embedding AS vector(4);CREATE TABLE t (id int PRIMARY KEY, v embedding)",
            "of type public.embedding, not vector",
        ),
        ("CREATE TABLE t (id int PRIMARY KEY, v vector)", "holds vectors of dimensions 4, 5"),
    ],
)
def test_tables_that_cannot_be_indexed(connection, monkeypatch, statements, message):
    connection.execute(statements.encode())
    connection.execute(
        "INSERT INTO t SELECT i, ARRAY[i, 1, 2, 3]::vector FROM generate_series(1, 200) i"
    )
    if "5" in message:
        connection.execute("INSERT INTO t VALUES (0, '[1,2,3,4,5]')")
    steps = []
    monkeypatch.setattr(models, "train", lambda *arguments, **more: steps.append("train"))
    with pytest.raises(HashIndexError, match=message), show_progress(steps.append):
        tune_table(connection, "t", "v", Goal(0.9), QUICK)
    assert steps == ["drawing rows of t"]
