"""Trained deep models in a database: what was learned is what is stored, and searched by."""

import numpy as np
import pytest
from fixtures.checks import assert_fresh
from fixtures.clusters import clustered
from fixtures.deep import SMALL
from fixtures.indexes import begin_lists
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import HASHERS
from pg_hashindex.models import codes
from pg_hashindex.training import train

pytest.importorskip("torch")
pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("one_torch_thread")]

X, LABELS = clustered()
NEW = X[:20] + X[20:40]


@pytest.fixture
def things(connection):
    """The rows under ids from 0, and their class."""
    connection.execute("CREATE TABLE things (id int PRIMARY KEY, v vector(12), topic int)")
    insert(connection, X, LABELS, 0)


def insert(connection, rows, labels, first):
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s)",
            [
                (first + i, Vector(row), int(label))
                for i, (row, label) in enumerate(zip(rows, labels, strict=True))
            ],
        )


def trained(rows, method, **parameters):
    """Return a small model of 12 bits; BGDH from a tag for each half of each class, too."""
    classes = np.resize(LABELS, len(rows))
    y = np.where(np.arange(len(rows)) < 100, classes, -1)
    tags = np.eye(16)[2 * classes + np.arange(len(rows)) % 2]
    return train(
        rows,
        "m",
        method,
        y=y,
        graph=tags if HASHERS[method].takes_graph else None,
        n_bits=12,
        metric="cosine",
        random_state=2,
        force=True,
        parameters={**SMALL[method], **parameters},
    )


def index_of(connection, name="i"):
    return begin_lists(connection, name, table="things", column="v", model="m")


@pytest.mark.parametrize("method", ["bgdh", "dpsh"])
@pytest.mark.usefixtures("things")
def test_layers_are_evaluated_in_sql(connection, method):
    """The same bits as in Python, save where rounding decides; triggers encode new rows."""
    model = store.save(connection, trained(X, method))
    index = index_of(connection)
    assert model.network is None
    index.encode()
    insert(connection, NEW, LABELS[:20], 1000)
    assert_fresh(index)
    rows = connection.execute("SELECT v, hashindex.encode('m', v)::text FROM things").fetchall()
    given = np.stack([vector.to_numpy() for vector, _ in rows])
    in_sql = np.array([list(code) for _, code in rows]) == "1"
    differing = in_sql != codes.unpack(model.encode(given), 12)
    projections = np.abs(model.project(given))
    assert len(given) == 420
    assert (projections[differing] < 1e-4 * projections.mean()).all()
    assert index.search(NEW[3], 1)[0].id == 1003
