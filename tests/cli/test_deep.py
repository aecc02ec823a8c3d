"""Deep methods on the command line, from a table to an index that is searched."""

import json
import re

import numpy as np
import pytest
from fixtures.checks import assert_fresh
from fixtures.clusters import clustered
from fixtures.deep import SMALL
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.models import codes
from pg_hashindex.quality.code_scores import score_codes

pytest.importorskip("torch")

pytestmark = [pytest.mark.newest, pytest.mark.usefixtures("one_torch_thread")]

X, LABELS = clustered()
TAGS = "SELECT thing, tag FROM tags"
TABLE = ("--table", "things", "--column", "v", "--labels", "topic")
CREATE = (
    "index",
    "create",
    "i",
    "--access",
    "scan",
    "--table",
    "things",
    "--column",
    "v",
    "--model",
    "m",
)


def training(method, *options, **params):
    """Return the command that trains a small model of 12 bits."""
    given = [f"{name}={json.dumps(value)}" for name, value in {**SMALL[method], **params}.items()]
    return [
        *("model", "train", "m", "--method", method, "--bits", 12, "--seed", 3, "--force"),
        *("--metric", "l2"),
        *options,
        *(argument for one in given for argument in ("--param", one)),
    ]


@pytest.fixture
def things(connection):
    """400 rows, 100 of which have a topic; two tags a row, most of them of the row's topic."""
    connection.execute("CREATE TABLE things (id int PRIMARY KEY, v vector(12), topic text)")
    connection.execute("CREATE TABLE tags (thing int, tag text)")
    rng = np.random.default_rng(0)
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s)",
            [
                (i, Vector(x), f"topic {label}" if i < 100 else None)
                for i, (x, label) in enumerate(zip(X, LABELS.tolist(), strict=True))
            ],
        )
        cursor.executemany(
            "INSERT INTO tags VALUES (%s, %s)",
            [
                (i, f"{label if rng.random() < 0.9 else rng.integers(8)}{rng.choice(list('ab'))}")
                for i, label in enumerate(LABELS)
                for _ in range(2)
                if i != 7
            ],
        )


def vectors_of(connection):
    rows = connection.execute(
        "SELECT t.v, c.code::text FROM things t JOIN hashindex.set_1_codes c USING (id) ORDER BY id"
    ).fetchall()
    return np.stack([vector.to_numpy() for vector, _ in rows]), [code for _, code in rows]


@pytest.mark.usefixtures("things")
def test_an_inductive_model_is_encoded_in_sql(on, connection, monkeypatch):
    monkeypatch.setattr(
        "click.testing._NamedTextIOWrapper.isatty", lambda self: self.name == "<stderr>"
    )
    options = (*TABLE, "--graph-query", TAGS, "--param", "device=cpu")
    trained = on(*training("bgdh", *options, "--json", hidden=[16, 8], validation=0.1))
    # The bar is on stderr alone: what is on stdout is JSON.
    stored = json.loads(trained.stdout)
    assert re.search(r"training: 100%.* graph=\S+, labels=[^\s,]+", trained.stderr)
    assert "note: 1 of 3" in trained.stderr
    assert stored["parameters"]["hidden"] == [16, 8]
    assert not {"device", "progress"} & set(stored["parameters"])
    assert set(stored["training"]["losses"]) == {"graph", "labels", "held-back MAP"}
    assert stored["training"]["graph"]["objects"] == 16
    assert stored["evaluated_in"] == "sql"
    assert set(stored["layer_kinds"]) == {"shift", "affine", "relu"}
    shown = on("model", "show", "m").stdout
    assert re.search(r"^losses +graph 0\.\d+, held-back MAP [01]\.\d+, labels 0\.\d+$", shown, re.M)
    assert re.search(r"^graph +edges \d+, isolated_rows 1, objects 16, rows 3\d\d$", shown, re.M)
    assert re.search(r"^evaluated in +SQL$", shown, re.M)

    on(*CREATE)
    index, model = HashIndex.open(connection, "i"), store.load(connection, "m")
    connection.execute("INSERT INTO things VALUES (1000, %s)", [Vector(X[0] + X[1])])
    assert_fresh(index)
    vectors, stored_codes = vectors_of(connection)
    bits = np.array([list(code) for code in stored_codes]) == "1"
    differing = bits != codes.unpack(model.encode(vectors), 12)
    projections = np.abs(model.project(vectors))
    assert len(vectors) == 401
    assert (projections[differing] < 1e-4 * projections.mean()).all()
    assert json.loads(on("search", "i", "--like", 1000, "-k", 3, "--json").stdout)
    assert score_codes(index, labels="topic", queries=50)["label"].values["MAP"] > 0.7


@pytest.mark.usefixtures("things")
def test_no_index_by_a_transductive_model(on, connection):
    options = (*TABLE, "--graph-query", TAGS)
    trained = on(*training("bgdh", *options, variant="transductive", batch_contexts=2048), "-v")
    assert re.search(r"^evaluated in +Python$", trained.stdout, re.M)
    assert "network of kind rows" in trained.stdout
    # It learns from the rows that are held back, too, but for their labels.
    assert re.search(r"^graph +edges \d+, .* rows 400$", trained.stdout, re.M)
    assert re.search(r"^label precision +.*value 0\.\d+$", trained.stdout, re.M)
    refused = on(*CREATE, code=3).stderr
    assert "model encode m:1 --table public.things --column v --into code" in refused
    assert list_indexes(connection) == []


@pytest.mark.slow
@pytest.mark.newest
def test_a_network_for_images(on, connection):
    rng = np.random.default_rng(0)
    images = rng.random((4, 64))[np.arange(60) % 4] + 0.1 * rng.random((60, 64))
    connection.execute("CREATE TABLE things (id int PRIMARY KEY, v vector(64), topic int)")
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s)",
            [(i, Vector(image), i % 4) for i, image in enumerate(images)],
        )
    options = {"features": "cnn-f", "image_shape": [8, 8, 1], "input_size": 39}
    small = {"rounds": 2, "supervised_steps": 1, "graph_steps": 1, "pretrain": 2, "batch_rows": 16}
    trained = on(*training("bgdh", *TABLE, **options, **small, learning_rate=1e-4), "-v")
    assert "network of kind torch" in trained.stdout
    assert re.search(r"^parameters .*image_shape \[8, 8, 1\]", trained.stdout, re.M)
    assert "model encode m:1" in on(*CREATE, code=3).stderr


PAIRS = """
SELECT a.id, b.id, a.topic = b.topic FROM things a, things b
WHERE a.id < 100 AND b.id < 100 AND a.id % 10 = 0 AND b.id > a.id
"""


@pytest.mark.usefixtures("things")
def test_pairs_and_a_graph_of_another_column(on, connection):
    """Pairs in place of labels; a vector of two dimensions says which rows are joined."""
    connection.execute("ALTER TABLE things ADD side halfvec(2)")
    connection.execute("UPDATE things SET side = format('[%s, 1]', id % 2)::halfvec")
    rows = ("--table", "things", "--column", "v")
    beside = ("--graph-column", "side")
    # Rows of one side are equal; the others are at a distance of 1.
    shape = {"radius": 0.5, "graph": "neighbours", "edge_weights": "binary"}
    trained = on(*training("bgdh", *rows, "--pairs", PAIRS, *beside, "--json", **shape))
    graph = json.loads(trained.stdout)["training"]["graph"]
    assert graph["objects"] == graph["rows"] >= 360
    assert graph["isolated_rows"] == 0
    # With a rows on one side and b on the other there are a (a - 1) + b (b - 1) edges.
    assert graph["edges"] in {
        a * (a - 1) + b * (b - 1) for a in range(160, 201) for b in [graph["rows"] - a]
    }


REFUSED = [
    (("--graph-column", "topic"), "column 'topic' of things is of type text, not vector"),
    (("--graph-column", "none"), "has no column 'none'"),
    (("--graph-column", "w"), "399 of 400 rows have no vector in column 'w'"),
    (("--param", "radius=0.001"), "radius=0.001 joins no object with two rows"),
    (("--param", "radius=1000"), "edges, too many to tell rows apart"),
    (("--pairs", "SELECT 1, 5000, 1"), "name a row with id = 5000, but things has none"),
    (("--param", "hidden=64"), "hidden must be the sizes of 1 hidden layer or more, as a list"),
    (("--param", "hidden=64,32"), "as a list, got '64,32'"),
    (("--param", "validation=0.9"), "a number from 0 to 0.5, got 0.9"),
    (("--param", "features=cnn-f"), "needs image_shape: height, width and channels"),
    (("--param", "device=tpu9"), "device 'tpu9' cannot be used"),
    (("--graph-query", "SELECT id, id FROM things"), "no object is joined with two rows"),
    (("--graph-query", "SELECT 5000, 1"), "a row with id = 5000, but things has none"),
    (("--graph-query", "SELECT 1, 2 WHERE false"), "no edges"),
]


@pytest.mark.usefixtures("things")
def test_refused_in_a_line(on, connection):
    connection.execute("ALTER TABLE things ADD w vector(3)")
    connection.execute("UPDATE things SET w = '[1, 2, 3]' WHERE id = 3")
    for options, message in REFUSED:
        refused = on(*training("bgdh", *TABLE), *options, code=3)
        assert message in refused.stderr, options
        assert refused.stderr.splitlines()[-1].startswith("Error: "), options
    assert json.loads(on("model", "show", "--json").stdout) == []
