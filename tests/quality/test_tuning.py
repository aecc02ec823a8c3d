"""The advisor: what it predicts, what it recommends, and that it leaves nothing behind."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from fixtures.catalog import contents
from pgvector import Vector

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim
from pg_hashindex.db.progress import show_progress
from pg_hashindex.errors import HashIndexError, InvalidInputError, MissingRightsError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.tuning import (
    Budget,
    Goal,
    Trial,
    apply,
    frontier,
    recommend,
    running,
    tune_index,
    tune_table,
)
from pg_hashindex.quality.tuning import models as tried_models
from pg_hashindex.quality.tuning.bench import Scratch, scratch
from pg_hashindex.server.data import load_packages

pytestmark = pytest.mark.newest

ROWS, DIMENSION = 1500, 16
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
QUICK = Budget(sample=2000, queries=40, minutes=2)


@pytest.fixture(scope="module")
def clusters():
    rng = np.random.default_rng(5)
    centres = 2 * rng.standard_normal((40, DIMENSION))
    noise = rng.standard_normal((ROWS, DIMENSION))
    return (centres[rng.integers(40, size=ROWS)] + noise).astype(np.float32)


@pytest.fixture
def docs(connection, clusters):
    return load(connection, '"My Docs"', clusters)


def load(connection, table, rows):
    connection.execute(
        f'CREATE TABLE {table} ("Key" text PRIMARY KEY, v vector({rows.shape[1]}))'.encode()
    )
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for number, row in enumerate(rows):
            copy.write_row((f"k{number}", Vector(row)))
    connection.execute(f"ANALYZE {table}".encode())
    return table


def only(monkeypatch, *names):
    """Try no other models, which would take time."""
    every = tried_models.of_table

    def some(*arguments):
        return [one for one in every(*arguments) if one.name in names]

    monkeypatch.setattr(running, "of_table", some)


def trial(recall, p50_ms, n_bytes=0, **more):
    kind = more.pop("kind", "codes")
    return Trial(kind, recall, n_bytes, 1.0, recall, p50_ms, p50_ms, p50_ms, **more)


# What is recommended, without a database.


def test_the_fastest_that_reaches_the_recall_within_the_limits():
    trials = [
        trial(1.0, 50.0, 0, kind="exact"),
        trial(0.99, 9.0, 1_000_000, method="itq", bits=128, access="scan"),
        trial(0.96, 3.0, 5_000_000, method="itq", bits=128, access="landmarks"),
        trial(0.97, 2.0, 90_000_000, kind="pgvector", ef_search=40),
        trial(0.80, 1.0, 5_000_000, method="itq", bits=128, access="landmarks"),
    ]
    for goal, wanted, words in (
        (Goal(0.95), 3, "the best by codes takes 3 ms, 5 MB instead of 90"),
        (Goal(0.95, max_bytes=10_000_000), 2, "within 10 MB"),
        (Goal(0.98), 1, "recall 0.990 in 9 ms"),
        (Goal(0.98, max_bytes=0), 0, "reading all vectors is fast enough"),
        (Goal(1.0), 0, "the only one that reaches recall 1"),
    ):
        chosen, reason = recommend(trials, goal)
        assert chosen is trials[wanted]
        assert words in reason
    for goal, words in (
        (Goal(0.99, max_ms=5), "recall 0.99 within 5 ms: nearest is pgvector's HNSW, ef_search 40"),
        (Goal(0.95, max_ms=0.5), "nothing keeps within that: nearest is pgvector"),
        (Goal(0.95, max_ms=5, max_bytes=10), "nothing keeps within that: nearest is exact"),
    ):
        chosen, reason = recommend(trials, goal)
        assert chosen is None
        assert words in reason
    assert recommend([], Goal(0.9)) == (None, "nothing reaches recall 0.9: nothing was tried")


def test_whether_hnsw_was_tried_is_said():
    codes = trial(0.96, 3.0, method="itq", bits=128, access="scan")
    hnsw = trial(0.97, 9.0, kind="pgvector", ef_search=40)
    signs = trial(0.96, 5.0, 7_000_000, kind="binary_quantize", candidates=80, ef_search=80)
    for others in ([codes], [signs], [codes, signs]):
        assert recommend(others, Goal(0.95))[1].endswith("; not compared with HNSW of the vectors")
    reason = recommend([codes, hnsw, signs], Goal(0.95))[1]
    assert "not compared" not in reason
    assert "pgvector's HNSW takes 9 ms" in reason
    assert "pgvector's binary_quantize takes 5 ms, 7 MB instead of 0" in reason


def test_an_exact_scan_alone_wins_nothing():
    alone = trial(1.0, 507.4, kind="exact")
    chosen, reason = recommend([alone], Goal(0.95))
    assert chosen is alone
    assert reason == (
        "exact scan, in 507 ms: nothing else was measured; give it more time (tune --minutes)"
    )


def test_of_equally_fast_ones_the_smallest():
    trials = [trial(0.97, 2.0, 9_000), trial(0.97, 2.1, 5_000), trial(0.99, 2.4, 10)]
    assert recommend(trials, Goal(0.95))[0] is trials[1]


def test_the_smallest_if_it_is_wanted():
    """Within the limit of time; no index at all only where that is the fastest."""
    exact = trial(1.0, 50.0, 0, kind="exact")
    trials = [exact, trial(0.97, 2.0, 9_000), trial(0.96, 8.0, 5_000), trial(0.9, 1.0, 10)]
    for goal, wanted in (
        (Goal(0.95, smallest=True), 2),
        (Goal(0.95, max_ms=5, smallest=True), 1),
        (Goal(0.98, smallest=True), 0),
    ):
        assert recommend(trials, goal)[0] is trials[wanted]
    assert (
        ": the smallest that reaches recall 0.95" in recommend(trials, Goal(0.95, smallest=True))[1]
    )
    fast = [replace(exact, p50_ms=2.0), *trials[1:]]
    assert recommend(fast, Goal(0.95, smallest=True))[0] is fast[0]


def test_the_small_choice_is_among_the_first():
    """128 projections of 4 levels, half of the default's bytes, while there is time to train."""
    bench = SimpleNamespace(drawn=SimpleNamespace(X=np.zeros((1, 384))))
    tried = [one.name for one in tried_models.of_table(bench, 0)]  # type: ignore[arg-type]
    assert tried[:2] == ["itq 256 x 2 bits", "itq 128 x 2 bits"]
    assert len(tried) == len(set(tried))


def test_plain_codes_are_named_where_they_win():
    assert "learning adds nothing" in recommend([trial(1, 1.0, method="lsh")], Goal(0.9))[1]


def test_the_frontier_is_what_nothing_beats():
    trials = [trial(0.9, 1.0, 5), trial(0.9, 1.5, 5), trial(0.95, 2.0, 5), trial(0.8, 2.0, 1)]
    assert frontier(trials) == [trials[3], trials[0], trials[2]]


# The whole of it.


def test_a_table_is_tuned_applied_and_left_as_it_was(connection, docs, monkeypatch):
    only(monkeypatch, "itq 16 bits", "sign 16 x 2 bits", "lsh 64 bits")
    before = contents(connection)
    steps = []
    with show_progress(steps.append):
        advice = tune_table(connection, docs, "v", Goal(0.9), QUICK, metric="l2")
    assert contents(connection) == before
    assert (advice.rows, advice.sample_rows, advice.queries) == (1500, 1460, 40)
    kinds = {(one.kind, one.method, one.access) for one in advice.trials}
    assert kinds >= {("exact", None, None), ("pgvector", None, None), ("codes", "sign", "scan")}
    assert any("are read faster than looked up" in reason for reason in advice.left_out)
    chosen = advice.recommended
    assert chosen is not None
    assert chosen.recall >= 0.9
    assert all(one.recall == one.sample_recall for one in advice.trials)
    assert any(step.startswith("training itq 16 bits") for step in steps)
    assert any(step == "measuring sign 16 x 2 bits by scan" for step in steps)
    # What pgvector has by itself comes first.
    assert [step.partition(" of ")[0] for step in steps[1:6]] == [
        "copying 1460",
        "building pgvector's HNSW",
        "measuring pgvector's HNSW",
        "building pgvector's binary_quantize",
        "measuring pgvector's binary_quantize",
    ]
    assert all(
        one.candidates == one.ef_search for one in advice.trials if one.kind == "binary_quantize"
    )
    assert advice.statements is not None
    of_two_bits = next(one for one in advice.trials if one.method == "sign")
    assert (of_two_bits.bits, of_two_bits.levels) == (32, 4)
    assert of_two_bits.system == "sign 16 x 2 bits, scan"
    made = apply(connection, replace(advice, recommended=of_two_bits), name="two_bits")
    assert (made.n_bits, made.loaded_model.levels) == (32, 4)
    made.drop()
    # Whichever is the fastest: that which has codes is made.
    codes = [one for one in advice.trials if one.kind == "codes"]
    best, reason = recommend(codes, advice.goal)
    made = apply(connection, replace(advice, recommended=best, reason=reason), name="advised")
    assert best is not None
    assert (made.method, made.n_bits, made.ranking) == (best.method, best.bits, best.ranking)
    assert (made.access, made.candidates) == (best.access, best.candidates)
    assert made.summary().codes == 1500
    assert made.key_columns == ["Key"]


def test_an_index_gets_its_defaults(connection, docs):
    rows = np.random.default_rng(0).standard_normal((500, DIMENSION)).astype(np.float32)
    model = store.save(connection, LSH(n_bits=96, random_state=0).fit(rows).to_model("m"))
    index = HashIndex.create(connection, "docs_idx", table=docs, column="v", model="m")
    before = contents(connection)
    advice = tune_index(index, Goal(0.95), QUICK)
    assert contents(connection) == before
    assert advice.index == "docs_idx"
    own = [one for one in advice.trials if one.own]
    assert {(one.method, one.bits) for one in own} == {("lsh", model.n_bits)}
    tried = {(one.bits, one.levels) for one in advice.trials if one.kind == "codes"}
    assert tried > {(96, 2)}
    # Two bits of each of its projections, with numbers beside them, are worth a trial.
    assert (192, 4) in tried
    chosen = advice.applicable
    assert chosen in own
    assert chosen is not None
    assert chosen.recall >= 0.95
    made = apply(connection, advice)
    assert (made.ranking, made.candidates) == (chosen.ranking, chosen.candidates)
    assert made.waiting() == 0
    impossible = replace(advice, goal=Goal(1.0, max_ms=1e-6))
    with pytest.raises(InvalidInputError, match="nothing to apply"):
        apply(connection, impossible)


def test_queries_from_a_log(connection, docs, monkeypatch):
    only(monkeypatch, "sign 16 bits")
    log = 'SELECT v FROM "My Docs" ORDER BY "Key" -- the log'
    budget = replace(QUICK, queries_from=log, queries=25)
    advice = tune_table(connection, docs, "v", Goal(0.5, k=3), budget)
    assert (advice.queries, advice.sample_rows) == (25, 1500)


def rows_of(name):
    """5,000 unit rows of a data set."""
    if name == "packages":
        X = load_packages().embedding
    else:
        path = SHARED / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} is not there")
        with np.load(path) as arrays:
            X = arrays["base" if name == "sift10k" else "X"].astype(np.float32)
    X = X[np.random.default_rng(1).permutation(len(X))][:5000]
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True), np.float32)


@pytest.mark.slow
@pytest.mark.newest
@pytest.mark.parametrize("data", ["packages", "sift10k", "usps"])
def test_the_full_table_shows_what_was_estimated(connection, monkeypatch, data):
    """A sample of two thirds of the rows, against the whole table."""
    X = rows_of(data)
    queries = X[:200]
    load(connection, "packages", X[500:])
    load(connection, "log", queries)
    only(monkeypatch, "itq 128 bits")
    # Its estimates are not compared here.
    monkeypatch.setattr(running, "try_pgvector", lambda bench: None)
    monkeypatch.setattr(running, "_LEAST_FOR_PATHS", 1000)
    budget = Budget(sample=3000, queries=200, queries_from="SELECT v FROM log", minutes=2)
    advice = tune_table(connection, "packages", "v", Goal(0.95), budget, metric="cosine")
    assert (advice.rows, advice.sample_rows) == (4500, 3000)
    # A quarter of the lists that 3000 rows have.
    assert any(one.startswith("landmarks with more than 37 probes") for one in advice.left_out)
    assert {one.probes for one in advice.trials} == {None, 8, 16, 32}
    best = [
        next(one for one in advice.trials if one.access == access and one.recall >= least)
        for access, least in (("scan", 0.9), ("landmarks", 0.8))
    ]
    near = np.sort(queries @ X[500:].T, axis=1)[:, -10]
    for chosen in best:
        made = apply(connection, replace(advice, recommended=chosen), name="check")
        assert made.access == chosen.access
        found = [
            np.mean([1 - hit.distance >= least - 1e-6 for hit in made.search(query)])
            for query, least in zip(queries, near, strict=True)
        ]
        # So many lists are a larger part of those that a sample has.
        within = 0.02 if chosen.access == "scan" else 0.04
        assert chosen.recall == pytest.approx(np.mean(found), abs=within), chosen.label
        summary, model = made.summary(), store.describe(connection, "check")
        taken = summary.code_bytes + summary.access_bytes + model.size_bytes
        assert chosen.bytes == pytest.approx(taken, rel=0.2)
        made.drop()


# What is left behind.


@pytest.mark.parametrize("failure", [RuntimeError("oh"), KeyboardInterrupt()])
def test_nothing_is_left_of_a_run_that_was_cut_off(connection, docs, monkeypatch, failure):
    only(monkeypatch, "sign 16 bits")
    before = contents(connection)

    def fail(message):
        if message.startswith("measuring sign"):
            assert contents(connection) != before
            raise failure

    with pytest.raises(type(failure)), show_progress(fail):
        tune_table(connection, docs, "v", Goal(0.9), QUICK)
    assert contents(connection) == before


def test_ctrl_c_in_a_query(connection, docs, monkeypatch):
    """The server is told to stop, and the session goes on to clean up."""
    before = contents(connection)

    def hang(*arguments):
        threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
        connection.execute("SELECT pg_sleep(20)")

    monkeypatch.setattr(running, "code_all", hang)
    # If tests run side by side, their processes ignore it.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            tune_table(connection, docs, "v", Goal(0.9), QUICK)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert contents(connection) == before


def test_the_next_run_drops_what_a_killed_one_left(url, connection):
    before = contents(connection)
    with connect(url) as killed:
        left = Scratch(killed, "hashindex_tune_0123456789ab")
        assert claim(killed, "tune", left.schema)
        left.create()
        with scratch(connection) as other:
            # It is alive still.
            assert other.schema != left.schema
            assert left.schema in str(contents(connection)["schemas"])
    for _ in range(100):
        # The server sees the end of a session only after a moment.
        with scratch(connection):
            pass
        if contents(connection) == before:
            break
        time.sleep(0.05)
    assert contents(connection) == before


def test_needs_a_connection_outside_of_transactions(connection, docs):
    with connection.transaction(), pytest.raises(InvalidInputError, match="outside a transaction"):
        tune_table(connection, docs, "v", Goal(0.9), QUICK)


_REFUSED = [
    (lambda c: tune_table(c, "docs", "v", Goal(0)), "recall must be above 0 and at most 1, got 0"),
    (lambda c: tune_table(c, "docs", "v", Goal(1.1)), "got 1.1"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9, k=0)), "k is 0"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9, max_ms=0)), "max_ms must be above 0"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9, max_bytes=-1)), "max_bytes must be 0 or more"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(sample=0)), "sample is 0"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(minutes=0)), "minutes must be above"),
    (lambda c: tune_table(c, "none", "v", Goal(0.9)), "none"),
    (lambda c: tune_table(c, "docs", "w", Goal(0.9)), "no column 'w'"),
    (lambda c: tune_table(c, "empty", "v", Goal(0.9)), "no row with a vector"),
    (lambda c: tune_table(c, "keyless", "v", Goal(0.9)), "no primary key"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(queries=30)), "30 rows .* 30 are to"),
    (lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(queries=25)), "5 rows are too few"),
    (
        lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(sample=20, queries=2)),
        "draw a sample of 1000",
    ),
    (
        lambda c: tune_table(
            c, "docs", "v", Goal(0.9), Budget(queries_from="SELECT '[1,2,3]'::vector")
        ),
        "one of 3 dimensions, and the rows have 2",
    ),
    (
        lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(queries_from="SELECT 1 AS x")),
        "of type vector or halfvec; this has x int4",
    ),
    (
        lambda c: tune_table(c, "docs", "v", Goal(0.9), Budget(queries_from="TABLE log")),
        "returns no vector",
    ),
    (lambda c: HashIndex.open(c, "none"), "index 'none' does not exist"),
]


def test_refused_without_traces(connection):
    connection.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, v vector(2)); CREATE TABLE keyless (v vector(2));"
        "CREATE TABLE empty (id int PRIMARY KEY, v vector(2)); CREATE TABLE log (v vector(2));"
        "INSERT INTO docs SELECT i, ARRAY[i, 1]::vector FROM generate_series(1, 30) i;"
        "INSERT INTO keyless SELECT v FROM docs"
    )
    before = contents(connection)
    for call, message in _REFUSED:
        with pytest.raises(HashIndexError, match=message):
            call(connection)
        assert contents(connection) == before, message


def test_missing_rights_are_named(connection, docs):
    connection.execute('CREATE ROLE advised_reader; GRANT SELECT ON "My Docs" TO advised_reader')
    connection.execute("GRANT USAGE ON SCHEMA hashindex TO advised_reader")
    connection.execute("SET ROLE advised_reader")
    try:
        with pytest.raises(MissingRightsError, match="GRANT CREATE ON DATABASE .* advised_reader"):
            tune_table(connection, docs, "v", Goal(0.9), QUICK)
    finally:
        connection.execute("RESET ROLE")
        connection.execute("DROP OWNED BY advised_reader; DROP ROLE advised_reader")


def test_hnsw_that_takes_too_long_is_left_out(connection, docs, monkeypatch):
    only(monkeypatch, "sign 16 x 2 bits")
    monkeypatch.setattr(running, "_HNSW_SHARE", 1e-5)
    advice = tune_table(connection, docs, "v", Goal(0.9), QUICK)
    assert {one.kind for one in advice.trials} == {"exact", "codes"}
    assert "pgvector's HNSW: to build it takes more than 0 s" in advice.left_out
    row = connection.execute("SHOW statement_timeout").fetchone()
    assert row == ("0",)
    codes = [one for one in advice.trials if one.kind == "codes"]
    assert "not compared with HNSW" in recommend(codes, advice.goal)[1]


def test_a_graph_is_built_in_memory(connection):
    """By one process then; a session that gives more keeps its settings."""
    shown = "SELECT current_setting('maintenance_work_mem'), current_setting({})"
    workers = "'max_parallel_maintenance_workers'"
    before = connection.execute(shown.format(workers)).fetchone()
    with connection.transaction():
        running._give_memory(connection, 300 * 2**20)
        assert connection.execute(shown.format(workers)).fetchone() == ("300MB", "0")
    assert connection.execute(shown.format(workers)).fetchone() == before
    with connection.transaction():
        connection.execute("SET LOCAL maintenance_work_mem = '400MB'")
        running._give_memory(connection, 300 * 2**20)
        assert connection.execute(shown.format(workers)).fetchone() == ("400MB", before[1])


def test_late_trials_are_left_out(connection, docs):
    advice = tune_table(connection, docs, "v", Goal(1.0), replace(QUICK, minutes=1e-6))
    assert [one.kind for one in advice.trials] == ["exact"]
    assert advice.recommended is advice.trials[0]
    assert "pgvector's HNSW: the deadline has passed" in advice.left_out


def test_signs_are_centred_where_the_data_asks_for_it(connection, monkeypatch):
    """Plain signs of vectors on one side of 0 are all alike."""
    only(monkeypatch)
    rows = np.random.default_rng(2).standard_normal((1500, 32)).astype(np.float32)
    for table, shift in (("around", 0), ("beyond", 9)):
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v vector(32))".encode())
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {table} VALUES (%s, %s)".encode(),
                [(i, Vector(row + shift)) for i, row in enumerate(rows)],
            )
    advice = tune_table(connection, "around", "v", Goal(0.9), QUICK, metric="l2")
    kinds = {one.kind for one in advice.trials}
    assert "binary_quantize" in kinds
    assert "centred_binary_quantize" not in kinds
    assert any("lie around 0 as they are" in reason for reason in advice.left_out)
    # The sample is a part of the table, so recall among all rows is counted by codes of Python.
    budget = replace(QUICK, sample=1000, queries=40)
    advice = tune_table(connection, "beyond", "v", Goal(0.9), budget, metric="l2")
    found = {(one.kind, one.candidates): one for one in advice.trials}
    plain = found["binary_quantize", 80]
    centred = found["centred_binary_quantize", 80]
    assert plain.recall < 0.2 < 0.4 < centred.recall
    assert centred.recall == pytest.approx(centred.sample_recall, abs=0.2)
    assert centred.system == "pgvector's binary_quantize, centred"
