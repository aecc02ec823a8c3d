"""Training on labels, pairs and triplets from the command line, and measuring by labels."""

import json
import re

import numpy as np
import pytest
from fixtures.clusters import clustered
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models import codes
from pg_hashindex.quality.code_scores import score_codes

pytestmark = pytest.mark.newest

SOURCE = ("--table", "things", "--column", "v")
#: Rows of one label share a code.
KEPT = ("--candidates", "200")
TRAIN = ("model", "train", "m", *SOURCE, "--bits", "12", "--metric", "l2")
CLICKS = """
    SELECT a.id, b.id, c.id FROM things a, things b, things c
    WHERE a.topic = b.topic AND a.topic <> c.topic AND a.id < b.id
        AND b.id % 40 = 3 AND c.id % 40 = 7
"""


@pytest.fixture
def things(connection):
    """Three copies, with noise, of 400 rows in 8 clusters; a sixth of them without a topic."""
    X, y = clustered()
    X = np.tile(X, (3, 1)) + 0.01 * np.random.default_rng(0).standard_normal((1200, 12))
    connection.execute(
        "CREATE TABLE things (id int PRIMARY KEY, v vector(12), topic text, tags int[])"
    )
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO things VALUES (%s, %s, %s, %s)",
            [
                (i, Vector(x), None if i % 6 == 0 else f"topic {label}", [label, 10 + label % 2])
                for i, (x, label) in enumerate(zip(X, np.tile(y, 3).tolist(), strict=True))
            ],
        )


@pytest.mark.usefixtures("things")
def test_metric_of_a_table(on, connection):
    """The metric of a vector index on the column, otherwise cosine."""
    train = ("model", "train", "m", *SOURCE, "--method", "lsh")

    def metric():
        trained = on(*train, "--bits", "12", "--json")
        return str(json.loads(trained.stdout)["metric"])

    assert metric() == "cosine"
    connection.execute("CREATE INDEX a ON things USING hnsw (v vector_l1_ops)")
    assert metric() == "cosine"
    connection.execute("CREATE INDEX b ON things USING hnsw (v vector_ip_ops)")
    connection.execute("CREATE INDEX c ON things USING hnsw (v vector_l2_ops)")
    assert metric() == "ip"
    connection.execute("DROP INDEX b")
    assert metric() == "l2"


@pytest.mark.parametrize("method", ["sdh", "cghash"])
@pytest.mark.usefixtures("things")
def test_labels_of_a_column(on, connection, method):
    """From a table to an index that knows topics; the codes of cghash have weights."""
    trained = on(*TRAIN, "--method", method, "--labels", "topic", "--json")
    training = json.loads(trained.stdout)["training"]
    assert training["labels"] == {"rows": 1000, "classes": 8}
    assert training["label_precision"]["among"] < 1000
    assert training["label_precision"]["value"] > 0.8
    on("index", "create", "things_idx", "--access", "scan", *SOURCE, "--model", "m", *KEPT)
    measured = json.loads(on("evaluate", "things_idx", "--queries", 50, "--json").stdout)
    assert measured["points"][-1]["recall"] > 0.5
    index = HashIndex.open(connection, "things_idx")
    assert score_codes(index, labels="topic", queries=50)["label"].values["MAP"] > 0.7


@pytest.mark.usefixtures("things")
def test_learned_codes_from_training_to_a_check(on, tmp_path):
    """They travel in a file; drift and wrong codes are looked for beside them."""
    file = tmp_path / "m.model"
    train = (*TRAIN, "--codes", "learned", "--json")
    trained = on(*train, "--method", "sdh", "--labels", "topic", "--param", "n_anchors=8")
    training = json.loads(trained.stdout)["training"]
    # 1,000 rows have a topic, and some of them are held back.
    assert training["learned_codes"] == training["label_precision"]["among"] < 1000
    assert "learned codes" in on("model", "show", "m").stdout
    on("model", "export", "m", file)
    on("model", "drop", "m")
    on("model", "import", file)
    on("index", "create", "things_idx", "--access", "scan", *SOURCE, "--model", "m", *KEPT)
    on("index", "check", "things_idx", "--full")
    assert "only Python reads" in on("model", "export", "m", file, "--sql", code=3).stderr
    assert "methods that do: sdh" in on(*train, "--method", "itq", code=3).stderr


@pytest.mark.usefixtures("things")
def test_copies_of_bits_are_noted(on, connection):
    """LSH cuts a line of rows only at its centre, so it has one distinct bit."""
    connection.execute("ALTER TABLE things ADD flat vector(1)")
    connection.execute("UPDATE things SET flat = ARRAY[id]::vector")
    for column, distinct in (("v", 12), ("flat", 1)):
        train = ("model", "train", "m", "--table", "things", "--column", column, "--bits", 12)
        trained = on(*train, "--method", "lsh", "--metric", "l2", "--cuts", 1, "--json")
        assert json.loads(trained.stdout)["training"]["distinct_bits"] == distinct
        assert (
            "note: 11 of 12 bits are copies of others, or the same for all rows: ask for fewer bits"
            in trained.stderr
        ) == (distinct == 1)
        assert ("copies" in trained.stderr) == (distinct == 1)


@pytest.mark.usefixtures("things")
def test_a_key_of_nothing(on, tmp_path):
    """--id says what pairs, triplets and graphs name: without them it would be ignored."""
    np.savez(tmp_path / "f.npz", X=clustered()[0], t=[[0, 1, 2]])
    from_file = ("--from", tmp_path / "f.npz", "--triplets", "t")
    train = ("model", "train", "m", "--bits", 8, "--id", "id", "--method")
    for arguments in (
        ("lsh", *SOURCE),
        ("sdh", *SOURCE, "--labels", "topic"),
        ("cghash", *from_file),
    ):
        refused = on(*train, *arguments, code=2)
        assert "--id is the key for --pairs, --triplets, --graph-query and" in refused.stderr


@pytest.mark.usefixtures("things")
def test_several_labels_a_row(on):
    trained = on(*TRAIN, "--method", "sdh", "--labels", "tags", "--verbose")
    assert "label precision" in trained.stdout
    assert "classes 10" in trained.stdout
    assert re.search(r"^bit weights +all the same$", trained.stdout, re.MULTILINE)


@pytest.mark.usefixtures("things")
def test_clicks(on, connection):
    """Triplets by key, from a query; the weights they give order what a search keeps."""
    trained = on(*TRAIN, "--method", "cghash", "--triplets", CLICKS, "--json")
    training = json.loads(trained.stdout)["training"]
    clicks = connection.execute(f"SELECT count(*) FROM ({CLICKS}) t".encode()).fetchone()
    assert clicks == (training["triplets"],)
    assert training["objective"]["last"] < 0.5 * training["objective"]["first"]
    shown = on("model", "show", "m").stdout
    assert re.search(r"^bit weights +learned$", shown, re.MULTILINE)

    on("index", "create", "things_idx", "--access", "scan", *SOURCE, "--model", "m", *KEPT)
    index, model = HashIndex.open(connection, "things_idx"), store.load(connection, "m")
    assert model.bit_weights is not None
    rounded = np.round(model.bit_weights / model.bit_weights.max() * 15)
    rows = connection.execute("SELECT v FROM things ORDER BY id").fetchall()
    vectors = np.stack([v.to_numpy() for (v,) in rows])
    bits = codes.unpack(model.encode(vectors), 12).astype(int)
    distances = (bits != bits[5]) @ rounded
    found = [hit.id for hit in index.search(vectors[5], 300, candidates=300)]
    # Which of equal distances are kept is left open.
    assert sorted(distances[found]) == sorted(distances)[:300]


@pytest.mark.usefixtures("things")
def test_arrays_of_a_file(on, tmp_path):
    X, y = clustered()
    np.savez(tmp_path / "f.npz", X=X, y=y, near=[[0, 1, 1], [2, 3, -1]], t=[[0, 1, 2]])
    train = ("model", "train", "f", "--from", tmp_path / "f.npz", "--bits", 8, "--force")
    on(*train, "--method", "s3plh", "--labels", "y", "--pairs", "near")
    on(*train, "--method", "cghash", "--labels", "y", "--triplets", "t")
    missing = on(*train, "--method", "sdh", "--labels", "z", code=3)
    assert "no array 'z'" in missing.stderr


REFUSED = [
    (["--method", "sdh"], "sdh learns from labels; give some"),
    (["--method", "cghash"], "cghash learns from labels or triplets or pairs; give some"),
    (["--method", "sdh", "--labels", "nothing"], "no column 'nothing'"),
    (["--method", "sdh", "--triplets", CLICKS], "sdh does not learn from triplets; those"),
    (["--method", "itq", "--labels", "topic"], "itq does not learn from labels; those"),
    (["--method", "cghash", "--triplets", CLICKS, "--id", "nothing"], '"nothing"'),
    (["--method", "cghash", "--triplets", "SELECT 1, 2"], "3 columns, got 2"),
    (["--method", "cghash", "--triplets", "SELECT 1, 2, 99999"], "99999"),
    (["--method", "cghash", "--triplets", "SELECT 1, 1, 2"], "different rows"),
    (["--method", "cghash", "--triplets", "SELECT"], "columns"),
    (
        ["--method", "cghash", "--triplets", "DROP TABLE things"],
        "query that begins with SELECT",
    ),
    (["--method", "s3plh", "--pairs", "SELECT 1, 2, 0"], "1 for neighbours or -1"),
    (["--method", "cghash", "--labels", "topic", "--param", "C=0"], "C must be"),
]


@pytest.mark.usefixtures("things")
def test_refused(on):
    for arguments, message in REFUSED:
        result = on(*TRAIN, *arguments, code=3)
        assert message in result.stderr, arguments
        assert "Traceback" not in result.stderr, arguments
    assert json.loads(on("model", "show", "--json").stdout) == []
