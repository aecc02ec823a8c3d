"""CSQ from a table's labels to an index whose rows have the codewords of their classes."""

import json

import numpy as np
import pytest
from fixtures.clusters import clustered
from fixtures.deep import SMALL
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.hashers import make_hasher
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.training import train

pytest.importorskip("torch")

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("one_torch_thread")]

X, LABELS = clustered()
#: Labels that a vector does not tell: a quarter of the rows of the table have any.
TOPICS = np.where(
    np.random.default_rng(5).random(400) < 0.25,
    np.random.default_rng(6).integers(8, size=400),
    LABELS,
)
PARAMETERS = SMALL["csq"]
BITS = 16


def hasher(y, **params):
    given = SMALL["csq"] | {"n_bits": BITS, "random_state": 0} | params
    return make_hasher("csq", **given).fit(X[: len(y)], y)


def test_a_model_has_the_codewords_by_the_numbers_of_classes():
    fitted = hasher(LABELS[:300] * 10)
    model = fitted.to_model("m")
    assert [*model.class_codes] == [str(10 * n) for n in range(8)]
    bits = np.array([[int(bit) for bit in code] for code in model.class_codes.values()])
    assert (bits == fitted.class_codes_).all()
    assert fitted.to_model("m", levels=4).class_codes == {}


def test_training_names_the_classes():
    names = tuple("abcdefgh")
    given = {"y": LABELS, "n_bits": BITS, "parameters": PARAMETERS, "force": True}
    named = train(X, "m", "csq", classes=names, **given)
    assert [*named.class_codes] == list(names)
    numbered = train(X, "m", "csq", **given)
    assert [*numbered.class_codes.values()] == [*named.class_codes.values()]
    assert [*numbered.class_codes] == [str(n) for n in range(8)]
    assert train(X, "m", "itq", n_bits=8, force=True).class_codes == {}


def precision(connection, queries, n=30):
    """Return the part of the candidates of queries, by codes alone, that has their label."""
    found = [
        connection.execute(
            "SELECT avg((d.topic = %s)::integer) FROM hashindex.candidates_docs_idx(%s, %s) c "
            "JOIN docs d USING (id)",
            [f"topic '{LABELS[query]}'", Vector(X[query]), n],
        ).fetchone()[0]
        for query in queries
    ]
    return float(np.mean(found))


def test_from_a_table_to_candidates(connection, on):
    connection.execute(
        "CREATE TABLE docs (id bigint PRIMARY KEY, topic text, embedding vector(12))"
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO docs VALUES (%s, %s, %s)",
            [(n, f"topic '{TOPICS[n]}'", Vector(X[n])) for n in range(350)],
        )
    given = [
        argument
        for name, value in PARAMETERS.items()
        for argument in ("--param", f"{name}={json.dumps(value)}")
    ]
    place = ["--table", "docs", "--column", "embedding"]
    on("model", "train", "topics", "--method", "csq", "--bits", BITS, *place, "--labels", "topic",
       "--metric", "l2", "--force", *given)  # fmt: skip
    model = store.load(connection, "topics")
    assert [*model.class_codes] == [f"topic '{n}'" for n in range(8)]
    assert model.network is None

    queries = range(350, 400)
    on("index", "create", "docs_idx", *place, "--model", "topics")
    before = precision(connection, queries)
    on("index", "drop", "docs_idx", "--yes")
    on("index", "create", "docs_idx", *place, "--model", "topics", "--labels", "topic")
    after = precision(connection, queries)
    assert after > before + 0.05, (before, after)

    # A row that is inserted gets its class's codeword, whatever its vector.
    connection.execute("INSERT INTO docs VALUES (1000, 'topic ''3''', %s)", [Vector(X[0])])
    code = "SELECT code::text FROM hashindex.docs_idx_codes WHERE id = %s"
    assert connection.execute(code, [1000]).fetchone() == (model.class_codes["topic '3'"],)
    connection.execute("INSERT INTO docs VALUES (1001, NULL, %s)", [Vector(X[0])])
    packed = codes.to_postgres(model.encode(X[:1]), BITS)
    assert connection.execute(code, [1001]).fetchone() == (packed[0].to_text(),)
    assert HashIndex.open(connection, "docs_idx").row.label_column == "topic"
