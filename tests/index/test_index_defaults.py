"""Defaults of a new index: its access path, and the candidates of its searches."""

import json
from math import ceil

import numpy as np
import pytest
from fixtures.indexes import begin_lists
from pgvector import Vector
from psycopg.types.json import Jsonb

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import LSH

pytestmark = pytest.mark.newest

ROWS = 10_000


@pytest.fixture
def many_template(make_template):
    """Table many: v has 10,000 vectors of 4 dimensions, unit the same ones at length 1."""

    def fill(connection):
        rows = np.random.default_rng(2).standard_normal((ROWS, 4)).astype(np.float32)
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        connection.execute("CREATE TABLE many (id int PRIMARY KEY, v vector(4), unit vector(4))")
        with connection.cursor() as cursor, cursor.copy("COPY many FROM STDIN") as copy:
            for number, (row, unit) in enumerate(zip(rows, units, strict=True)):
                copy.write_row((number, Vector(row), Vector(unit)))
        connection.execute("ANALYZE many")
        model = LSH(n_bits=12, random_state=3).fit(units)
        taught = {"supervision": "labels", "recall": {"candidates": 31, "among": 5000}}
        store.save(connection, model.to_model("lsh"))
        store.save(connection, model.to_model("taught", training=taught))

    return make_template("many", fill)


@pytest.fixture
def many(make_database, many_template):
    with connect(make_database(many_template)) as connection:
        yield connection


def create(connection, **options):
    named = {"table": "many", "column": "v", "model": "lsh", **options}
    return begin_lists(connection, "many_idx", **named)


def usual_candidates(connection, **options):
    """Return the candidates of an index whose lists are not measured."""
    create(connection, **options)
    (found,) = connection.execute(
        "SELECT hashindex._usual_candidates(i, m) FROM hashindex.index i, hashindex.index_set s, "
        "hashindex.model m WHERE i.name = s.index_name AND m.id = s.model_id"
    ).fetchone()
    connection.execute("SELECT hashindex.drop_index('many_idx')")
    return found


def measured(connection, name, training):
    """Save a model that says this of its training."""
    hasher = LSH(n_bits=12, random_state=3).fit(np.eye(4, dtype=np.float32))
    store.save(connection, hasher.to_model(name, training=training, cuts=3))
    return name


@pytest.mark.parametrize(
    ("recall", "expected"),
    [
        ({"candidates": 31, "among": 20_000}, 31),
        # Twice as many rows.
        ({"candidates": 31, "among": 5_000}, ceil(31 * 2**0.2)),
        ({"candidates": 200, "among": 5_000}, ceil(200 * 2**0.2)),
        ({"candidates": 1, "among": 20_000}, 10),
        # A file may say anything.
        ({"candidates": -5, "among": -1}, ceil(10 * 10_000**0.2)),
        ({"candidates": 10**400, "among": 10**400}, 200),
        ({"candidates": "31", "among": 5_000}, 200),
        ({"candidates": None, "among": 5_000}, 200),
        ({"candidates": 31}, 200),
        ([31], 200),
        ("31", 200),
        (None, 200),
    ],
    ids=str,
)
def test_candidates_are_those_that_training_measured(many, recall, expected):
    many.execute(
        "INSERT INTO hashindex.model (name, version, method, dimension, n_bits, metric, cuts, "
        "parameters, training, checksum, layers) "
        "SELECT 'm', 1, method, dimension, n_bits, metric, cuts, parameters, %s, checksum, "
        "layers FROM hashindex.model WHERE name = 'lsh'",
        [Jsonb({"recall": recall}, dumps=json.dumps)],
    )
    assert usual_candidates(many, model="m", access="scan") == expected


def test_candidates_of_another_order_were_not_measured(many):
    training = {"recall": {"candidates": 31, "among": 20_000}}
    usual = measured(many, "usual", training)

    assert usual_candidates(many, access="scan", model=usual) == 31
    assert usual_candidates(many, access="scan", model=usual, metric="cosine") == 200
    assert usual_candidates(many, access="scan", model="taught") == 200


def test_more_answers_need_more_candidates(many):
    index = create(many, access="scan").configure(candidates=30)
    index.encode()
    query = np.array([0.3, -0.1, 0.2, 0.5], np.float32)
    for k in (1, 10):
        assert index.search(query, k) == index.search(query, k, candidates=30)
    for options in ({}, {"filter": "id >= 0"}):
        found = index.search(query, 50, **options)
        assert found == index.search(query, 50, candidates=150, **options)
        assert found != index.search(query, 50, candidates=50, **options)
    most = "SELECT hashindex._candidates_for(%s, %s)"
    assert many.execute(most, [2**31 - 1, 2**31 - 1]).fetchone() == (2**31 - 1,)
