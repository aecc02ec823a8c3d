"""The command of the advisor."""

import json
import shlex
from collections.abc import Callable

import numpy as np
import pytest
from click.testing import Result
from pg_hashindex.quality.tuning.advice import Advice
from pgvector import Vector
from psycopg import RawCursor

from pg_hashindex import store
from pg_hashindex.errors import DatabaseStateError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import encoding
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.plots import draw_frontier
from pg_hashindex.quality.tuning import Goal, Trial, models, running

pytestmark = pytest.mark.newest

Run = Callable[..., Result]
QUICK = ("--queries", "30", "--minutes", "2")


@pytest.fixture
def docs(connection, monkeypatch):
    """A table, and few models to try on it."""
    rows = np.random.default_rng(2).standard_normal((1200, 8)).astype(np.float32)
    connection.execute("CREATE TABLE docs (id int PRIMARY KEY, v vector(8))")
    with connection.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for number, row in enumerate(rows):
            copy.write_row((number, Vector(row)))
    every = models.of_table

    def some(*arguments):
        return [one for one in every(*arguments) if one.name == "lsh 64 bits"]

    monkeypatch.setattr(running, "of_table", some)
    return "docs"


def test_a_table(on, docs, connection, tmp_path):
    source = ("tune", "--table", docs, "--column", "v")
    plot = tmp_path / "frontier.svg"
    result = on(*source, "--recall", "0.9", "--plot", plot, *QUICK)
    heading, *_ = result.stdout.splitlines()
    assert heading.split() == [
        "system", "setting", "recall@10", "p50", "ms", "p95", "ms", "MB", "build", "s",
    ]  # fmt: skip
    assert result.stdout.splitlines()[-1].startswith("recommended: ")
    assert "\n*" in result.stdout
    assert "training lsh 64 bits on 1170 rows" in result.stderr
    assert "measured on 1200 rows, from 1170 of them and 30 queries" in result.stderr
    assert "wrote" in result.stderr
    # Letters are drawn as shapes; what they spell stands beside them.
    for words in (b"<!-- exact scan -->", b"<!-- recommended -->", b"<!-- recall"):
        assert words in plot.read_bytes()
    found = connection.execute("SELECT count(*) FROM hashindex.model").fetchone()
    assert found == (0,)


def test_json(on, docs):
    source = ("tune", "--table", docs, "--column", "v", "-k", "5", "--json", *QUICK)
    printed = json.loads(on(*source, "--recall", "0.9", "--max-bytes", "100000000").stdout)
    limits = {"max_ms": None, "max_bytes": 100_000_000, "smallest": False}
    assert printed["goal"] == {"recall": 0.9, "k": 5} | limits
    assert printed["recommended"]["recall"] >= 0.9
    assert printed["applied"] is None
    assert (printed["rows"], printed["sample_rows"], printed["queries"]) == (1200, 1170, 30)
    fields = {"label", "frontier", "recall", "p50_ms", "p95_ms", "bytes", "build_s", "kind"}
    assert all(fields <= set(trial) for trial in printed["trials"])
    kinds = {"codes", "pgvector", "binary_quantize", "exact"}
    assert {trial["kind"] for trial in printed["trials"]} == kinds
    assert printed["statements"]
    assert sum(trial["frontier"] for trial in printed["trials"]) >= 1


def test_nothing_reaches_it(on, docs):
    source = ("tune", "--table", docs, "--column", "v", "--recall", "1", "--max-ms", "1e-6")
    result = on(*source, *QUICK, code=1)
    assert "nothing reaches recall 1 within 1e-06 ms" in result.stdout
    assert "nearest is" in result.stdout
    applied = on(*source, *QUICK, "--apply", "--name", "made", code=1)
    assert "nothing is applied" in applied.stderr


def test_apply_to_an_index(on, docs, connection):
    rows = np.random.default_rng(0).standard_normal((500, 8)).astype(np.float32)
    store.save(connection, LSH(n_bits=64, random_state=0).fit(rows).to_model("m"))
    index = HashIndex.create(connection, "docs_idx", table=docs, column="v", model="m")
    index.configure(candidates=17)
    result = on("tune", "docs_idx", "--recall", "0.5", *QUICK, "--apply")
    assert "index docs_idx now searches by lsh 64 bits, scan" in result.stderr
    now = HashIndex.open(connection, "docs_idx")
    assert f"candidates {now.candidates}" in result.stderr
    assert now.candidates != 17
    assert now.waiting() == 0


def test_apply_to_a_table(on, docs, connection, monkeypatch):
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", *QUICK, "--apply")
    # On so few rows it is chance which is fastest.
    chosen = Trial("codes", 0.9, 0, 1.0, 0.9, method="lsh", bits=64, access="scan", candidates=30)
    monkeypatch.setattr(running, "recommend", lambda trials, goal: (chosen, "the test says so"))
    result = on(*source, "--name", "made")
    assert "index made now searches by lsh 64 bits, scan" in result.stderr
    made = HashIndex.open(connection, "made")
    assert (made.model, made.method, made.candidates) == ("made", "lsh", 30)
    assert made.summary().codes == 1200
    assert "exists already" in on(*source, "--name", "made", code=3).stderr


def test_limits_of_bytes_and_memory(on, docs, monkeypatch):
    """The former reaches the recommendation, the latter the build of what is applied."""
    seen = []

    def encode(self, memory=None):
        seen.append(memory)

    monkeypatch.setattr(HashIndex, "encode", encode)
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", *QUICK)
    chosen = Trial("codes", 0.9, 0, 1.0, 0.9, method="lsh", bits=64, access="scan", candidates=30)
    wanted = []

    def recommend(trials, goal):
        wanted.append(goal.smallest)
        return chosen, "the test says so"

    monkeypatch.setattr(running, "recommend", recommend)
    on(*source, "--smallest", "--memory", "300MB", "--apply", "--name", "made")
    assert wanted == [True]
    assert seen[-1] == 300 << 20
    assert "memory is '1 mile'" in on(*source, "--memory", "1 mile", code=2).stderr


def test_the_statements_for_codes_make_them(on, docs, connection, monkeypatch):
    chosen = Trial(
        "codes", 0.9, 0, 1.0, 0.9, method="lsh", bits=64, access="landmarks",
        ranking="asymmetric", candidates=30, probes=8,
    )  # fmt: skip
    monkeypatch.setattr(running, "recommend", lambda trials, goal: (chosen, "the test says so"))
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", "--json", *QUICK)
    *commands, search = json.loads(on(*source).stdout)["statements"].split("; ")
    for command in commands:
        program, *words = shlex.split(command.replace("NAME", "made"))
        assert program == "pg-hashindex"
        on(*words)
    made = HashIndex.open(connection, "made")
    assert (made.access, made.candidates, made.probes) == ("landmarks", 30, 8)
    query = Vector(np.ones(8, np.float32))
    found = RawCursor(connection).execute(search.replace("NAME", "made").encode(), [query])
    assert len(found.fetchall()) == 10


@pytest.mark.parametrize("failure", [DatabaseStateError("the disk is full"), KeyboardInterrupt()])
def test_results_are_not_lost_where_applying_fails(
    on, docs, connection, monkeypatch, tmp_path, failure
):
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", *QUICK, "--apply")
    chosen = Trial("codes", 0.9, 0, 1.0, 0.9, method="lsh", bits=64, access="scan", candidates=30)
    monkeypatch.setattr(running, "recommend", lambda trials, goal: (chosen, "the test says so"))

    encode = encoding.encode_missing

    def fail(index, *arguments, **more):
        if index.name in ("one", "two"):
            raise failure
        return encode(index, *arguments, **more)

    plot = tmp_path / "frontier.svg"
    code = 130 if isinstance(failure, KeyboardInterrupt) else 3
    with monkeypatch.context() as patched:
        patched.setattr(encoding, "encode_missing", fail)
        shown = on(*source, "--name", "one", "--plot", plot, code=code)
        printed = on(*source, "--name", "two", "--json", code=code)
    assert shown.stdout.splitlines()[-1] == "recommended: the test says so"
    assert "finish with: pg-hashindex index encode one" in shown.stderr
    assert plot.exists()
    assert json.loads(printed.stdout)["applied"] is None
    on("index", "encode", "one")
    made = HashIndex.open(connection, "one")
    assert (made.candidates, made.summary().codes) == (30, 1200)


def test_a_name_that_no_index_can_have(on, docs):
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", "--apply")
    result = on(*source, "--name", "n" * 41, code=3)
    assert "is not 1 to 40 letters" in result.stderr
    assert "drawing" not in result.stderr


def test_how_to_have_hnsw(on, docs, monkeypatch):
    def by_pgvector(trials, goal):
        return next(one for one in trials if one.kind == "pgvector"), "the test says so"

    monkeypatch.setattr(running, "recommend", by_pgvector)
    source = ("tune", "--table", docs, "--column", "v", "--recall", "0.5", *QUICK)
    assert (
        'to apply it: CREATE INDEX CONCURRENTLY ON "public"."docs" USING hnsw '
        '("v" "public"."vector_cosine_ops"); SET hnsw.ef_search = 10; '
        'SELECT "id" FROM "public"."docs" ORDER BY "v" OPERATOR("public".<=>) $1 LIMIT 10'
    ) in on(*source).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "either the name of an index or --table"),
        (("i", "--table", "t", "--column", "v"), "either the name of an index or --table"),
        (("--table", "t"), "belong together"),
        (("i", "--metric", "l2"), "--metric is for --table"),
        (("i", "--name", "n"), "--name is for --table"),
        (("--table", "t", "--column", "v", "--apply"), "needs the --name"),
    ],
)
def test_wrong_usage(on, arguments, message):
    assert message in on("tune", *arguments, "--recall", "0.9", code=2).stderr


def test_refused(on, docs, tmp_path):
    source = ("tune", "--table", docs, "--column", "v")
    for arguments, message in (
        (("tune", "none", "--recall", "0.9"), "index 'none' does not exist"),
        ((*source, "--recall", "1.5"), "recall must be above 0 and at most 1, got 1.5"),
        ((*source, "--recall", "0.9", "--plot", tmp_path / "x.xyz"), "does not end in"),
        ((*source, "--recall", "0.9", "--queries", "5000"), "5000 are to be held out"),
    ):
        assert message in on(*arguments, code=3).stderr


def test_the_figure_shows_what_was_tried():
    trials = [
        Trial("exact", 1.0, 0, 0.0, 1.0, 9.0, 9.5),
        Trial("pgvector", 0.97, 9, 1.0, 0.97, 1.0, 1.5, ef_search=40),
        Trial("pgvector", 0.96, 9, 1.0, 0.96, 2.0, 2.5, ef_search=20),
    ]
    advice = Advice(
        Goal(0.95), "docs", "v", ["id"], "l2", None, 100, 90, 90, 10, trials, trials[1], "", [], {}
    )
    (panel,) = draw_frontier(advice).axes
    lines = {line.get_label(): line.get_xydata() for line in panel.get_lines()}
    assert lines["exact scan"].tolist() == [[1.0, 9.0]]
    # The other one is slower and finds less.
    assert lines["pgvector's HNSW"].tolist() == [[0.97, 1.0]]
    assert lines["recommended"].tolist() == [[0.97, 1.0]]
