"""pg-hashindex doctor: what it measures is right, and what it cannot look at it refuses."""

import json
import re
import shlex
import time
from pathlib import Path

import jsonschema
import numpy as np
import psycopg
import pytest
from fixtures.commands import fill
from fixtures.databases import run_as_admin
from fixtures.indexes import begin_lists
from pg_hashindex.cli._shared import print_table
from pg_hashindex.cli.doctor import _print_advice
from pgvector import Vector
from psycopg import RawCursor, sql

from pg_hashindex import store
from pg_hashindex.errors import HashIndexError, InvalidInputError
from pg_hashindex.hashers import Thermometer
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality.doctor import _Doctor, diagnose
from pg_hashindex.quality.doctor_catalog import list_columns
from pg_hashindex.quality.doctor_filters import nodes
from pg_hashindex.quality.doctor_findings import Advice
from pg_hashindex.quality.sizes import hnsw_bytes

ROWS, DIMENSION = 600, 8
SCHEMA = Path(__file__).parents[2] / "docs" / "doctor.schema.json"


@pytest.fixture
def run_line(on, slow_machine):
    """Run a command of pg-hashindex as it was printed."""

    def invoke(line):
        program, *arguments = shlex.split(line)
        assert program == "pg-hashindex"
        return on(*arguments)

    return invoke


def report(on, *options, table="docs"):
    found = json.loads(on("doctor", table, "--json", *options).stdout)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    return found


def nearest(points, queries, k):
    distances = np.linalg.norm(points[None] - queries[:, None], axis=2)
    return [set(row) for row in np.argsort(distances, axis=1, kind="stable")[:, :k]]


def test_nothing_is_installed_or_written(on_bare, bare, docs):
    """Nor could it be: the transaction is a read-only one."""
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    state = "SELECT oid, relname, relfilenode, relpages FROM pg_class ORDER BY oid"
    before = bare.execute(state).fetchall()
    report(on_bare, "--filter", "part = 3")
    assert bare.execute(state).fetchall() == before
    assert bare.execute("SELECT to_regnamespace('hashindex')").fetchone() == (None,)
    bare.execute("CREATE SEQUENCE counter")
    with pytest.raises(HashIndexError, match="read-only transaction"):
        diagnose(bare, "docs", "v", filters=["nextval('counter') > id"])


def test_columns_are_listed_and_found(on_bare, bare, docs):
    bare.execute(
        "CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops);"
        "CREATE TABLE two (id int, a halfvec(3), b vector) PARTITION BY RANGE (id);"
        "CREATE TABLE two_1 PARTITION OF two FOR VALUES FROM (0) TO (9);"
        "INSERT INTO two VALUES (1, '[1,2,3]', '[1]'), (2, NULL, '[1,2]'); ANALYZE two;"
        "CREATE TABLE new (v vector); CREATE TABLE plain (a int)"
    )
    found = json.loads(on_bare("doctor", "--json").stdout)
    assert [tuple(one.values())[:4] for one in found] == [
        ("docs", "v", "vector(8)", ROWS), ("new", "v", "vector", None),
        ("two", "a", "halfvec(3)", 2), ("two", "b", "vector", 2),
    ]  # fmt: skip
    assert found[0]["indexes"] == ["docs_hnsw"]
    assert "pg-hashindex doctor TABLE" in on_bare("doctor").stderr
    for table, why in {
        "two": "name a column of two: its columns of vectors are 'a', 'b'",
        "plain": "table plain has no column of vectors",
    }.items():
        assert why in on_bare("doctor", table, code=3).stderr


@pytest.mark.parametrize("locked", ["docs", "two", "two_1"])
def test_listing_waits_for_no_lock(bare, docs, locked):
    bare.execute(
        "CREATE TABLE two (id int, v vector(3)) PARTITION BY RANGE (id);"
        "CREATE TABLE two_1 PARTITION OF two FOR VALUES FROM (0) TO (9)"
    )
    with psycopg.connect(bare.info.dsn) as other:
        other.execute(f"LOCK TABLE ONLY {locked} IN ACCESS EXCLUSIVE MODE".encode())
        bare.execute("SET lock_timeout = '1s'")
        assert [one.table for one in list_columns(bare)] == ["docs", "two"]


def test_facts(on_bare, bare, docs):
    bare.execute("UPDATE docs SET v = NULL WHERE id < 60")
    # Another column out of line does not mean that vectors are TOASTed.
    bare.execute(
        "ALTER TABLE docs ADD story text; ALTER TABLE docs ALTER story SET STORAGE external"
    )
    bare.execute("UPDATE docs SET story = repeat('x', 9000) WHERE id < 60")
    bare.execute("SELECT pg_stat_force_next_flush()")
    found = report(on_bare, "--queries", "600")
    table = found["table"]
    assert table["rows"] == ROWS
    assert table["null_share"] == 0.1
    assert (table["type"], table["dimension"], table["declared"]) == ("vector", 8, True)
    # PostgreSQL keeps a header of 1 byte, not 4, where little follows; pgvector has 4 of its own.
    assert table["vector_bytes"] == 4 * DIMENSION + 5
    assert (table["storage"], table["toasted"]) == ("external", False)
    assert found["queries"] == 540
    sizes = bare.execute(
        "SELECT pg_relation_size('docs'), pg_indexes_size('docs'), "
        "pg_size_bytes(current_setting('shared_buffers'))"
    ).fetchone()
    assert (table["heap_bytes"], table["index_bytes"]) == sizes[:2]
    assert found["memory"]["shared_buffers"] == sizes[2]
    assert found["indexes"] == found["points"] == []
    assert found["worst_recall"] == 1
    (scope,) = found["scopes"]
    assert (scope["metric"], scope["planner"], scope["queries"]) == ("cosine", "exact", 540)
    assert (found["decision"]["kind"], found["advice"]) == ("exact", [])


def test_dead_rows(on_bare, bare, docs):
    bare.execute("DELETE FROM docs WHERE id < 300")
    bare.execute("SELECT pg_stat_force_next_flush()")
    found = report(on_bare)
    assert found["table"]["dead_share"] == 0.5
    assert "VACUUM (ANALYZE) docs;" in found["advice"][0]["commands"]
    bare.execute("VACUUM docs")
    bare.execute("SELECT pg_stat_force_next_flush()")
    table = report(on_bare)["table"]
    assert table["dead_share"] == 0
    assert table["last_vacuum"]


def test_recall_by_brute_force(on_bare, bare, docs, points, tmp_path):
    """IVFFlat with one probe answers from one list alone: its recall is known by counting."""
    bare.execute("CREATE INDEX docs_ivf ON docs USING ivfflat (v vector_l2_ops) WITH (lists = 20)")
    queries = np.random.default_rng(9).standard_normal((40, DIMENSION)).astype(np.float32)
    np.save(tmp_path / "queries.npy", queries)
    right = nearest(points, queries, 10)
    found = report(on_bare, "--queries-from", tmp_path / "queries.npy")
    assert [(p["value"], p["current"]) for p in found["points"]] == [
        (1, True), (3, False), (10, False),
    ]  # fmt: skip
    with bare.transaction():
        bare.execute("SET LOCAL enable_seqscan = off")
        for point in found["points"]:
            bare.execute(f"SET LOCAL ivfflat.probes = {point['value']}")
            hits = 0
            returned = 0
            for query, wanted in zip(queries, right, strict=True):
                rows = bare.execute(
                    "SELECT id FROM docs ORDER BY v <-> %s LIMIT 10", [Vector(query)]
                ).fetchall()
                hits += len(wanted & {row[0] for row in rows})
                returned += len(rows)
            assert point["recall"] == pytest.approx(hits / 400, abs=1e-4)
            assert point["returned"] == pytest.approx(returned / 40, abs=0.01)
            assert point["wanted"] == 10
    assert found["points"][0]["recall"] < 0.9
    assert found["worst_recall"] == found["points"][0]["recall"]
    assert found["decision"]["kind"] == "keep"
    (command,) = found["decision"]["commands"]
    assert command.startswith("SET ivfflat.probes = ")


def test_a_row_is_not_its_own_answer(on_bare, bare, points):
    """Each of 3 rows has two others, and a search finds both."""
    fill(bare, "docs", points[:3])
    bare.execute("CREATE INDEX ON docs USING hnsw (v vector_cosine_ops)")
    found = report(on_bare)
    assert found["queries"] == 3
    assert {point["wanted"] for point in found["points"]} == {2}
    assert {point["recall"] for point in found["points"]} == {1}
    assert found["scopes"][0]["metric"] == "cosine"


def test_queries_of_a_table(on_bare, bare, docs):
    bare.execute("CREATE TABLE log AS SELECT v FROM docs WHERE id < 7")
    assert report(on_bare, "--queries-from", "log")["queries"] == 7
    assert report(on_bare, "--queries-from", "SELECT v FROM log", "--queries", "5")["queries"] == 5
    for wrong, why in {
        "SELECT id FROM docs": "a log of queries has one column",
        "SELECT v FROM docs WHERE false": "returns no vector",
        "SELECT '[1,2]'::vector": "one of 2 dimensions",
        "nothing.npy": "cannot read arrays",
        "DELETE FROM docs": "is not a table",
    }.items():
        result = on_bare("doctor", "docs", "v", "--queries-from", wrong, code=3)
        assert why in result.stderr
        assert "Traceback" not in result.stderr


def test_filters(on_bare, bare, docs, points):
    """HNSW thins answers out: of 40 elements a tenth are in a part; iterative scans continue."""
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    found = report(on_bare, "--filter", "part = 3", "--filter", "part IN (1, 2) -- two")
    assert [scope["rows"] for scope in found["scopes"]] == [None, 60, 120]
    first = [point for point in found["points"] if point["filter"] == "part = 3"]
    assert [(p["value"], p["iterative"], p["current"]) for p in first] == [
        (40, False, True), (40, True, False), (400, True, False),
    ]  # fmt: skip
    assert first[0]["returned"] < 8
    assert first[0]["recall"] < 0.8
    assert first[2]["returned"] == 10
    assert first[2]["recall"] > 0.95
    assert found["worst_recall"] == min(p["recall"] for p in found["points"] if p["current"])


def test_a_filter_that_matches_nothing(on_bare, docs):
    result = on_bare("doctor", "docs", "v", "--filter", "part = 99")
    assert "no query has a neighbour where part = 99" in result.stderr


NOT_FILTERS = [
    ("part = 1; DROP TABLE docs", "syntax error"),
    ("true)) LIMIT 0; DROP TABLE docs; SELECT ((1", "multiple commands"),
    ("true)); DROP TABLE docs; --", "syntax error"),
    ("part", "must be type boolean"),
    ("nothing = 1", 'column "nothing" does not exist'),
    ("", "syntax error"),
    ("part = 1 ORDER BY 1", "syntax error"),
    ("part = '%s'", "invalid input syntax"),
    ("count(*) > 1", "aggregate functions are not allowed"),
]


@pytest.mark.newest
def test_filters_that_are_not_conditions(on_bare, bare, docs):
    for filter_, why in NOT_FILTERS:
        result = on_bare("doctor", "docs", "v", "--filter", filter_, code=3)
        assert f"filter {filter_!r} cannot be used on docs" in result.stderr
        assert why in result.stderr, filter_
        assert bare.execute("SELECT count(*) FROM docs").fetchone() == (ROWS,), filter_


def test_fail_under(on_bare, bare, docs):
    command = ["doctor", "docs", "v", "--fail-under"]
    on_bare(*command, "1")  # exact searches
    bare.execute("CREATE INDEX docs_ivf ON docs USING ivfflat (v vector_l2_ops) WITH (lists = 20)")
    missed = on_bare(*command, "0.99", code=1)
    assert re.search(r"recall is 0\.\d+, below the required 0\.99\n$", missed.stderr)
    assert "recall@10" in missed.stdout
    on_bare(*command, "0.05")
    bare.execute(
        sql.SQL("ALTER DATABASE {} SET ivfflat.probes = 20").format(
            sql.Identifier(bare.info.dbname)
        )
    )
    assert "probes 20 (now)" in on_bare(*command, "1").stdout
    for wrong in ("nan", "-0.1", "1.1", "inf", "much"):
        assert "Invalid value for '--fail-under'" in on_bare(*command, wrong, code=2).stderr


def test_out_of_time(on_bare, bare, docs):
    """A recall that could not be measured does not pass."""
    command = ["doctor", "docs", "v"]
    for timeout in ("0", "-1", "nan", "inf"):
        assert "timeout is" in on_bare(*command, "--timeout", timeout, code=3).stderr
    slow = "pg_sleep(0.02) IS NOT NULL"
    result = on_bare(*command, "--filter", slow, "--timeout", "4", "--fail-under", "0", code=1)
    assert f"no exact query where {slow} ended" in result.stderr
    assert "recall was not measured in time" in result.stderr


@pytest.mark.parametrize("option", ["-k", "--queries"])
def test_numbers_out_of_range(on_bare, docs, option):
    for wrong in ("0", "-1", str(2**40)):
        result = on_bare("doctor", "docs", "v", option, wrong, code=3)
        assert f"is {wrong}; it must be 1 to" in result.stderr


def test_kinds_of_indexes(on_bare, bare, docs):
    """Over a cast, over signs with a re-rank, and over some rows."""
    bare.execute("CREATE INDEX half ON docs USING hnsw ((v::halfvec(8)) halfvec_cosine_ops)")
    bare.execute(
        "CREATE INDEX signs ON docs USING hnsw "
        "((binary_quantize(v - '[.1,0,0,0,0,0,0,0]'::vector)::bit(8)) bit_hamming_ops)"
    )
    bare.execute("CREATE INDEX third ON docs USING hnsw (v vector_l2_ops) WHERE part = 3")
    found = report(on_bare, "--filter", "part = 3")
    assert [index["metric"] for index in found["indexes"]] == ["cosine", None, "l2"]
    first = {(p["index"], p["filter"]): p for p in found["points"] if p["current"]}
    assert first["half", None]["recall"] > 0.9
    # Codes of 8 bits tell little; re-ranking 400 of 600 rows makes up for it.
    assert first["signs", None]["recall"] < 0.9
    widest = [p for p in found["points"] if (p["index"], p["filter"]) == ("signs", None)][-1]
    assert widest["value"] == 400
    assert widest["recall"] > 0.9
    # All of its 60 rows have ten neighbours among them.
    assert first["third", None]["recall"] > 0.95
    assert first["third", "part = 3"]["recall"] > 0.95
    conditions = {scope["condition"] for scope in found["scopes"]}
    assert conditions == {None, "part = 3"}


def test_an_index_that_is_not_valid(on_bare, bare, docs):
    bare.execute("CREATE INDEX broken ON docs USING hnsw (v vector_l2_ops)")
    bare.execute("UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'broken'::regclass")
    result = on_bare("doctor", "docs", "v")
    assert "index broken is not valid" in result.stderr
    assert "not valid" in result.stdout


def test_high_dimensions(on_bare, bare):
    """Above 2,000 pgvector has no index of a vector; it is kept out of line."""
    vectors = np.random.default_rng(2).standard_normal((60, 2100)).astype(np.float32)
    fill(bare, "docs", vectors)
    found = report(on_bare)
    table = found["table"]
    assert table["toasted"]
    assert table["toast_bytes"] > 60 * 4 * 2100
    assert table["pages_a_row"] > 2
    assert "toast" in [advice["kind"] for advice in found["advice"]]
    bare.execute("CREATE INDEX half ON docs USING hnsw ((v::halfvec(2100)) halfvec_l2_ops)")
    assert report(on_bare)["worst_recall"] > 0.9


def test_vectors_out_of_line_are_brought_into_their_rows(on_bare, bare):
    """By the commands of the advice; after them there is none."""
    vectors = np.random.default_rng(2).standard_normal((60, 1536)).astype(np.float32)
    fill(bare, "docs", vectors)
    found = report(on_bare)
    advice = next(one for one in found["advice"] if one["kind"] == "toast")
    assert "takes two to four times as long" in advice["text"]
    assert "SET STORAGE MAIN" in advice["commands"][0]
    for command in advice["commands"]:
        bare.execute(command.partition(";")[0])
    bare.execute("ANALYZE docs")
    bare.execute("SELECT pg_stat_force_next_flush()")
    again = report(on_bare)
    assert (again["table"]["storage"], again["table"]["toasted"]) == ("main", False)
    assert again["table"]["pages_a_row"] < found["table"]["pages_a_row"]
    assert "toast" not in [one["kind"] for one in again["advice"]]
    # 700 dimensions in half precision stay in their rows by themselves.
    fill(bare, "small", vectors[:, :700])
    bare.execute("CREATE INDEX near ON small USING hnsw (v vector_ip_ops) WITH (m = 8)")
    (advice,) = (one for one in report(on_bare, table="small")["advice"] if one["kind"] == "toast")
    assert advice["commands"][1].startswith("ALTER TABLE small ALTER COLUMN v TYPE halfvec(700);")
    for command in advice["commands"]:
        bare.execute(command.partition(";")[0])
    (definition,) = bare.execute(
        "SELECT indexdef FROM pg_indexes WHERE tablename = 'small' AND indexdef LIKE '%hnsw%'"
    ).fetchone()
    assert definition.endswith("USING hnsw (v halfvec_ip_ops) WITH (m='8')")


def test_halfvec(on_bare, bare, points):
    fill(bare, "docs", points, "halfvec")
    bare.execute("CREATE INDEX ON docs USING hnsw (v halfvec_ip_ops)")
    found = report(on_bare)
    assert found["table"]["vector_bytes"] == 2 * DIMENSION + 5
    assert found["scopes"][0]["metric"] == "ip"
    assert found["worst_recall"] > 0.5


def test_a_partitioned_table(on_bare, bare, points):
    """It is looked at as a whole."""
    bare.execute(
        f"CREATE TABLE docs (id int, v vector({DIMENSION})) PARTITION BY RANGE (id);"
        "CREATE TABLE docs_1 PARTITION OF docs FOR VALUES FROM (0) TO (300);"
        "CREATE TABLE docs_2 PARTITION OF docs FOR VALUES FROM (300) TO (600);"
        "CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)"
    )
    with bare.cursor() as cursor, cursor.copy("COPY docs FROM STDIN") as copy:
        for number, vector in enumerate(points):
            copy.write_row((number, Vector(vector)))
    found = report(on_bare)
    assert (found["table"]["kind"], found["table"]["rows"]) == ("partitioned table", ROWS)
    (both,) = bare.execute(
        "SELECT sum(pg_relation_size(c))::bigint FROM unnest('{docs_1,docs_2}'::regclass[]) c"
    ).fetchone()
    assert found["table"]["heap_bytes"] == both
    (index,) = found["indexes"]
    assert index["bytes"] > 0
    assert found["points"][0]["recall"] > 0.9


def test_a_materialised_view_and_a_view(on_bare, bare, docs):
    bare.execute("CREATE MATERIALIZED VIEW kept AS SELECT * FROM docs")
    on_bare("doctor", "kept", "v")
    bare.execute("CREATE VIEW seen AS SELECT * FROM docs")
    result = on_bare("doctor", "seen", "v", code=3)
    assert "seen is a view: give the table behind it" in result.stderr


def test_a_foreign_table(on_bare, bare):
    bare.execute(
        "CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing;"
        "CREATE FOREIGN TABLE docs (id int, v vector(8)) SERVER far"
    )
    result = on_bare("doctor", "docs", "v", code=3)
    assert "docs is a foreign table: its rows and indexes are on another server" in result.stderr


UNREADABLE = [
    ("nowhere", "v", "'nowhere' is not a table"),
    ("docs", "w", "table docs has no column 'w'; its columns of vectors: 'v'"),
    ("docs", "id", "column 'id' of docs is of type integer, not vector or halfvec"),
    ("plain", "w", "table plain has no column 'w'; it has no column of vectors"),
    ("plain", "a", "is of type integer, not vector or halfvec"),
    ("empty", "v", "empty has no row with a vector in column 'v'"),
    ("nulls", "v", "nulls has no row with a vector in column 'v'"),
    ("mixed", "v", "holds vectors of dimensions 2, 3, which pgvector cannot compare"),
    ("docs; DROP TABLE docs", "v", "is not a table"),
]


@pytest.mark.newest
def test_unreadable_objects(on_bare, bare, docs):
    bare.execute(
        "CREATE TABLE plain (a int); CREATE TABLE empty (v vector(3));"
        "CREATE TABLE nulls (v vector(3));"
        "INSERT INTO nulls SELECT NULL FROM generate_series(1, 9);"
        "CREATE TABLE mixed (v vector); INSERT INTO mixed VALUES ('[1,2]'), ('[1,2,3]')"
    )
    for table, column, why in UNREADABLE:
        result = on_bare("doctor", table, column, code=3)
        assert why in result.stderr, table
        assert "Traceback" not in result.stderr, table
        assert [line for line in result.stderr.splitlines() if line.startswith("Error: ")] == [
            result.stderr.splitlines()[-1]
        ], table


def test_a_column_without_dimension(on_bare, bare, points):
    fill(bare, "docs", points)
    bare.execute("ALTER TABLE docs ALTER COLUMN v TYPE vector")
    bare.execute("CREATE INDEX cast_ivf ON docs USING ivfflat ((v::vector(8)) vector_l2_ops)")
    found = report(on_bare)
    assert not found["table"]["declared"]
    assert found["points"]


def test_one_row(on_bare, bare, points):
    fill(bare, "docs", points[:1])
    result = on_bare("doctor", "docs", "v")
    assert "no query has a neighbour: nothing was compared" in result.stderr


def test_a_role_without_rights(run, server, bare, docs, empty_url):
    run_as_admin(server, "CREATE ROLE stranger LOGIN")
    theirs = empty_url.replace("postgres@", "stranger@")
    command = ["doctor", "docs", "v", "--database-url", theirs]
    try:
        refused = run(*command, code=3)
        assert "GRANT SELECT ON docs TO stranger" in refused.stderr
        bare.execute("GRANT SELECT (v) ON docs TO stranger")
        # Places of rows are not columns that could be granted.
        assert "GRANT SELECT ON docs TO stranger" in run(*command, code=3).stderr
        bare.execute("GRANT SELECT ON docs TO stranger")
        run(*command, "--filter", "part = 1")
    finally:
        bare.execute("DROP OWNED BY stranger")
        run_as_admin(server, "DROP ROLE stranger")


def test_a_locked_table(on_bare, bare, docs, empty_url):
    """As VACUUM FULL holds it."""
    with psycopg.connect(empty_url) as other:
        other.execute("LOCK TABLE docs IN ACCESS EXCLUSIVE MODE")
        refused = on_bare("doctor", "docs", "v", code=3).stderr
        assert "docs is locked, as by VACUUM FULL or ALTER TABLE" in refused
        assert f"process {other.info.backend_pid}: LOCK TABLE docs" in refused
    on_bare("doctor", "docs", "v")


def test_without_pgvector(run, make_database):
    result = run(
        "doctor", "t", "v", "--database-url", make_database("template0"),
        code=3,
    )  # fmt: skip
    assert "CREATE EXTENSION vector" in result.stderr


def test_inside_a_transaction(bare, docs):
    with bare.transaction(), pytest.raises(InvalidInputError, match="outside a transaction"):
        diagnose(bare, "docs", "v")


def test_settings_are_as_before(bare, docs, monkeypatch):
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    bare.execute("SET hnsw.ef_search = 77; SET statement_timeout = '77s'; SET enable_sort = on")
    bare.execute("SET idle_in_transaction_session_timeout = '500ms'")
    # As long as a model trains.
    pauses = iter([1])
    monkeypatch.setattr(
        "pg_hashindex.quality.doctor.tell", lambda *_, **__: time.sleep(next(pauses, 0))
    )
    found = diagnose(bare, "docs", "v", filters=["part = 1"], sample=5)
    assert [p.value for p in found.points if p.current] == [77, 77]
    for name in ("hnsw.ef_search", "statement_timeout", "enable_sort", "lock_timeout"):
        expected = {"hnsw.ef_search": "77", "statement_timeout": "77s", "lock_timeout": "0"}
        assert bare.execute(f"SHOW {name}").fetchone() == (expected.get(name, "on"),)
    with pytest.raises(HashIndexError):
        diagnose(bare, "docs", "v", filters=["1 / (part - part) = 1"])
    assert bare.execute("SHOW hnsw.ef_search").fetchone() == ("77",)


@pytest.mark.usefixtures("slow_machine")
def test_larger_than_memory(on_bare, bare, docs, monkeypatch):
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    bare.execute(
        sql.SQL("ALTER DATABASE {} SET effective_cache_size = '64kB'").format(
            sql.Identifier(bare.info.dbname)
        )
    )
    said = on_bare("doctor", "docs", "v").stdout
    # It ends with one sentence and one command.
    *_, command = said.splitlines()
    sentence = " ".join(said.rpartition("\n\n")[2].split())
    assert sentence.startswith("Take codes in lists, about ")
    assert "more than memory of 64kB less the table's hot part; nothing fits, and" in sentence
    assert command == "  pg-hashindex quickstart docs v"
    assert max(map(len, said.splitlines())) <= 100
    # A fast exact search needs no index.
    monkeypatch.setattr("pg_hashindex.quality.advice._FAST_MS", 1000)
    *_, sentence = on_bare("doctor", "docs", "v").stdout.splitlines()
    assert re.match("Take no index: .* ms, which is fast enough", sentence)


@pytest.mark.usefixtures("slow_machine")
def test_one_table_of_sets_and_one_that_is_taken(on_bare, bare, docs):
    found = report(on_bare)
    names = [one["name"] for one in found["sets"]]
    assert names == ["exact", "vectors", "codes", "codes in IVFFlat", "lists"]
    assert [one["name"] for one in found["sets"] if one["taken"]] == ["vectors"]
    assert all(one["taken"] == (one["why_not"] == "") for one in found["sets"])
    assert found["decision"]["commands"] == ["pg-hashindex quickstart docs v"]
    # The index that is kept is not called unused.
    bare.execute("CREATE INDEX a ON docs USING hnsw (v vector_cosine_ops)")
    bare.execute("CREATE INDEX b ON docs USING hnsw ((v::halfvec(8)) halfvec_cosine_ops)")
    found = report(on_bare)
    (kept,) = [one["name"] for one in found["sets"] if one["taken"]]
    assert found["decision"]["text"].startswith(f"Keep {kept}: ")
    (unused,) = [one["text"] for one in found["advice"] if one["kind"] == "unused"]
    assert f"used {kept} " not in unused


def test_writes_memory_and_tenants_are_facts(on_bare, bare, docs, slow_machine):
    said = report(on_bare, "--writes", "200")["decision"]
    assert said["kind"] == "lists"
    assert said["commands"] == ["pg-hashindex quickstart docs v --writes 200"]
    said = report(on_bare, "--tenant", "part", "--memory", "1GB")
    assert (said["tenant"]["tenants"], said["tenant"]["largest"]) == (10, 60)
    assert said["decision"]["text"].startswith("Take no index: the largest part has 60 rows")
    refused = on_bare("doctor", "docs", "v", "--tenant", "team", code=3)
    assert "docs has no column 'team': check --tenant" in refused.stderr


def test_policies_that_compare_no_tenant(on_bare, bare, docs):
    bare.execute(
        "ALTER TABLE docs ADD published boolean DEFAULT true, ADD deleted date;"
        "ALTER TABLE docs ENABLE ROW LEVEL SECURITY"
    )
    for condition in ("published", "deleted IS NULL"):
        bare.execute(f"CREATE POLICY own ON docs USING ({condition})".encode())
        assert report(on_bare)["tenant"] is None
        bare.execute("DROP POLICY own ON docs")


def test_a_tenant_without_a_btree(on_bare, bare, docs, slow_machine):
    options = ("--tenant", "part", "--memory", "1GB")
    (command,) = report(on_bare, *options)["decision"]["commands"]
    assert command == "CREATE INDEX CONCURRENTLY ON docs (part);"
    bare.execute(command.encode())
    assert report(on_bare, *options)["decision"]["commands"] == []


def test_l1_leads_to_an_index_of_pgvectors(on_bare, bare, docs, slow_machine):
    said = report(on_bare, "--metric", "l1")["decision"]
    assert "no index of pg_hashindex searches by l1" in said["text"]
    (command,) = said["commands"]
    bare.execute(command.encode())
    assert report(on_bare, "--metric", "l1")["decision"]["kind"] == "keep"


def test_indexes_of_single_partitions_are_named(on_bare, bare):
    bare.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, v vector(2), w vector(2)) PARTITION BY RANGE (id);"
        "CREATE TABLE docs_0 PARTITION OF docs FOR VALUES FROM (0) TO (100);"
        "INSERT INTO docs SELECT n, ARRAY[n, 1]::vector, ARRAY[n, 1]::vector "
        "FROM generate_series(0, 99) n; CREATE INDEX ON docs_0 USING hnsw (w vector_l2_ops)"
    )
    told = "partitions have vector indexes of their own"
    assert told not in on_bare("doctor", "docs", "v").stderr
    bare.execute("CREATE INDEX part ON docs_0 USING hnsw (v vector_l2_ops)")
    assert told in on_bare("doctor", "docs", "v").stderr
    bare.execute("CREATE INDEX docs_v ON ONLY docs USING hnsw (v vector_l2_ops)")
    bare.execute("ALTER INDEX docs_v ATTACH PARTITION part")
    assert told not in on_bare("doctor", "docs", "v").stderr


def test_indexes_of_partitions_are_dropped_at_once(on_bare, bare):
    bare.execute(
        "CREATE TABLE docs (id int, v vector(3)) PARTITION BY RANGE (id);"
        "CREATE TABLE docs_1 PARTITION OF docs FOR VALUES FROM (0) TO (999);"
        "INSERT INTO docs SELECT n, ARRAY[n, 1, 2]::vector FROM generate_series(1, 300) n;"
        "CREATE INDEX one ON docs USING hnsw (v vector_l2_ops);"
        "CREATE INDEX two ON docs USING ivfflat (v vector_l2_ops); ANALYZE docs"
    )
    commands = [c for one in report(on_bare)["advice"] for c in one["commands"]]
    dropped = [command for command in commands if command.startswith("DROP INDEX")]
    assert dropped
    for command in dropped:
        bare.execute(command.encode())


@pytest.mark.parametrize("kind", ["lists", "codes", "codes in IVFFlat"])
def test_the_commands_of_a_decision_make_its_set(on, run_line, connection, kind):
    """Also where a name searches vectors, and has no model to swap with."""
    vectors = np.random.default_rng(2).standard_normal((1200, 32)).astype(np.float32)
    fill(connection, "docs", vectors)
    HashIndex.create(connection, "named", table="docs", column="v", model="none")
    sizes = {one["name"]: one["bytes"] for one in report(on)["sets"]}
    (table,) = connection.execute("SELECT pg_table_size('docs')").fetchone()
    memory = f"{(sizes['codes in IVFFlat'] + table // 4) // 1000 + 20}kB"
    options = {"lists": ["--writes", "200"], "codes": ["--writes", "50"]}
    said = report(on, *options.get(kind, ["--memory", memory]))["decision"]
    assert said["kind"] == kind
    for command in said["commands"]:
        run_line(command)
    index = HashIndex.open(connection, "named")
    assert (index.is_lists, index.access) == (
        kind == "lists", {"lists": index.access, "codes": "hnsw"}.get(kind, "ivfflat"),
    )  # fmt: skip
    assert index.model_name == "named:1"


def test_an_index_that_is_not_complete_is_not_measured(on, connection, items, model, slow_machine):
    begin_lists(connection, "i", table="items", column="embedding", model="lsh", candidates=200)
    found = json.loads(on("doctor", "items", "embedding", "--json").stdout)
    (name,) = found["names"]
    assert name["recall"] is None
    assert any("index i is not complete" in note for note in found["notes"])


def test_fail_under_sees_names(on, connection, items, model):
    HashIndex.create(connection, "i", table="items", column="embedding", model="lsh", candidates=10)
    command = ("doctor", "items", "embedding", "--fail-under", "0.99")
    assert "below the required 0.99" in on(*command, code=1).stderr


def test_fail_under_fails_where_a_name_was_not_measured(on, connection, items, model):
    HashIndex.create(connection, "i", table="items", column="embedding", model="lsh")
    connection.execute("DROP FUNCTION hashindex.search_i")
    command = ("doctor", "items", "embedding", "--fail-under", "0")
    assert "index i was not measured" in on(*command, code=1).stderr


def test_commands_are_broken_where_they_may_be(capsys):
    table = "shop.documents_of_the_shop"
    _print_advice(
        Advice(
            "toast", "Vectors are out of line.",
            (f"ALTER TABLE {table} ALTER COLUMN embedding TYPE halfvec(768);  -- rewrites it",),
        )
    )  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert lines[2:] == [
        "  -- rewrites it",
        f"  ALTER TABLE {table} ALTER COLUMN embedding TYPE halfvec(768);",
    ]


def test_commands_are_not_broken_in_quoted_names(capsys):
    statement = (
        'CREATE INDEX ON "Sales Department"."Quarterly  Order Items of the Year" ("Tenant Id")'
    )
    _print_advice(Advice("btree", "An index helps.", (statement,)))
    assert capsys.readouterr().out.splitlines()[-1] == f"  {statement}"


def test_tables_fit_a_terminal(capsys):
    print_table(["name", "where", "n"], [["index_" * 9, "part " * 20, 1]], most=60)
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 60
    assert printed.count("part") == 20
    # A word is broken where no space is.
    assert printed.replace("\n", "").replace(" ", "").count("index_") >= 4


def test_a_role_sees_what_its_policies_show(on_bare, server, bare, docs):
    run_as_admin(server, "CREATE ROLE seller")
    try:
        bare.execute(
            "GRANT SELECT ON docs TO seller; ALTER TABLE docs ENABLE ROW LEVEL SECURITY;"
            "CREATE POLICY own ON docs USING (part = current_setting('app.part', true)::int)"
        )
        refused = on_bare("doctor", "docs", "v", "--role", "seller", code=3).stderr
        assert "that row security lets role seller see: give --role, or set by" in refused
        name = sql.Identifier(bare.info.dbname)
        bare.execute(sql.SQL("ALTER DATABASE {} SET app.part = '3'").format(name))
        found = report(on_bare, "--role", "seller")
        assert found["queries"] == 60
        assert (found["tenant"]["column"], found["tenant"]["source"]) == ("part", "a policy")
        assert (found["tenant"]["tenants"], found["tenant"]["largest"]) == (10, 60)
        assert "row security" in on_bare("doctor", "docs", "v").stdout
        # Searches by a name find the role's rows alone, too.
        on_bare("schema", "upgrade")
        HashIndex.create(bare, "named", table="docs", column="v", model="none", access="hnsw")
        (name,) = report(on_bare, "--role", "seller")["names"]
        assert name["recall"] == 1
        bare.execute("REVOKE USAGE ON SCHEMA hashindex FROM PUBLIC")
        found = report(on_bare, "--role", "seller")
        assert found["names"] == []
        assert any("indexes of pg_hashindex are not shown" in note for note in found["notes"])
    finally:
        bare.execute("DROP OWNED BY seller")
        run_as_admin(server, "DROP ROLE seller")


def test_an_index_is_measured_by_its_name(connection, items, model, on):
    index = HashIndex.create(
        connection, "named", table="items", column="embedding", model="none", access="hnsw"
    )
    found = json.loads(on("doctor", "items", "embedding", "--json").stdout)
    (name,) = found["names"]
    assert (name["name"], name["set"]) == ("named", index.set)
    assert name["recall"] > 0.9
    assert name["p50_ms"] > 0
    taken = [one["name"] for one in found["sets"] if one["taken"]]
    assert taken == [f"named ({index.set})"]
    assert found["decision"]["text"].startswith("Keep named: its recall is ")
    assert not [one for one in found["advice"] if one["kind"] == "unused"]


@pytest.mark.parametrize("dimension", [384, 700])
def test_the_size_of_hnsw_is_foreseen(bare, dimension):
    vectors = np.random.default_rng(1).standard_normal((400, dimension)).astype(np.float32)
    fill(bare, "docs", vectors)
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    (size,) = bare.execute("SELECT pg_relation_size('docs_hnsw')").fetchone()
    assert hnsw_bytes(400, "vector", dimension) == pytest.approx(size, rel=0.1)


def test_a_search_is_compiled_only_if_the_users_would_be(bare, docs, monkeypatch):
    """JIT takes 100 ms and more at each execution: settings that choose a plan do not call for it.

    Before PostgreSQL 18 a re-rank's sort that is switched off costs 1e10 more.
    """
    bare.execute(
        "CREATE INDEX signs ON docs USING hnsw ((binary_quantize(v)::bit(8)) bit_hamming_ops);"
        "CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)"
    )
    bare.execute("SET jit = on; SET jit_above_cost = 100000; SET jit_optimize_above_cost = -1")
    limits = "SELECT current_setting('jit')::boolean, current_setting('jit_above_cost')::float8"
    seen = {}
    ask = _Doctor._ask

    def spy(doctor, statement, asked, *rest, **more):
        ((plan,),) = RawCursor(bare).execute(
            sql.SQL("EXPLAIN (ANALYZE, FORMAT JSON) ") + statement, [asked[0].vector]
        )
        ((on, limit),) = bare.execute(limits).fetchall()
        indexes = {n["Index Name"] for n in nodes(plan[0]["Plan"]) if "Index Name" in n}
        name = " ".join(sorted(indexes)) or "exact"
        seen[name] = on and plan[0]["Plan"]["Total Cost"] > limit
        assert "JIT" not in plan[0]
        assert bare.execute("SHOW jit_optimize_above_cost").fetchone() == ("-1",)
        ask(doctor, statement, asked, *rest, **more)

    monkeypatch.setattr(_Doctor, "_ask", spy)
    diagnose(bare, "docs", "v", sample=5)
    assert seen == {"exact": False, "signs": False, "docs_hnsw": False}
    # Who has all statements compiled gets that measured.
    bare.execute("SET jit_above_cost = 0")
    monkeypatch.setattr("pg_hashindex.quality.doctor._WARM_UP", 0)
    limit_now = []

    def look(doctor, statement, asked, *rest, **more):
        ((plan,),) = RawCursor(bare).execute(
            sql.SQL("EXPLAIN (FORMAT JSON) ") + statement, [asked[0].vector]
        )
        ((on, limit),) = bare.execute(limits).fetchall()
        limit_now.append(on and plan[0]["Plan"]["Total Cost"] > limit)
        ask(doctor, statement, asked, *rest, **more)

    monkeypatch.setattr(_Doctor, "_ask", look)
    diagnose(bare, "docs", "v", sample=5)
    assert limit_now
    assert all(limit_now)


def test_a_filter_that_lacks_a_btree(on_bare, bare, monkeypatch):
    vectors = np.random.default_rng(3).standard_normal((600, 500)).astype(np.float32)
    fill(bare, "docs", vectors)
    bare.execute('ALTER TABLE docs ADD kind varchar(9), ADD "On Sale" date')
    bare.execute("ALTER TABLE docs ADD text int, ADD note text")
    bare.execute("UPDATE docs SET kind = 'k' || id % 50, \"On Sale\" = '2026-01-01', note = 'a'")
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops); ANALYZE docs")
    # However fast this machine is.
    monkeypatch.setattr("pg_hashindex.quality.advice._WORTH_MS", 0)
    monkeypatch.setattr("pg_hashindex.quality.advice._FASTER", 100)
    lacking = {
        "kind = 'k7'": ["kind"],
        "\"On Sale\" > '2025-05-05' AND kind = 'k3' AND coalesce(kind, ' = part') <> ''": [
            "kind",
            '"On Sale"',
        ],
        "kind IN ('k1', 'k2') -- two": ["kind"],
        # The cast of its constant names a type, as a column of this table is named.
        "note = 'a'": ["note"],
        "kind = 'k1' OR part = 3": [],
        "part + 1 = 3": [],
        "id = part": [],
        "id = 3": [],  # the primary key
    }
    options = [word for filter_ in lacking for word in ("--filter", filter_)]
    found = report(on_bare, *options)
    scopes = {scope["filter"]: scope["unindexed"] for scope in found["scopes"]}
    assert scopes == {None: [], **lacking}
    advice = [one for one in found["advice"] if one["kind"] == "btree"]
    assert advice[0]["commands"] == ["CREATE INDEX CONCURRENTLY ON docs (kind);"]
    assert "reads the whole table for 12 rows" in advice[0]["text"]
    # Exact search is all that the filter needs then.
    assert not [
        one for one in found["advice"] if one["text"].startswith("Where kind = 'k7', docs_")
    ]
    bare.execute(advice[0]["commands"][0].encode())
    bare.execute("SET enable_seqscan = off")
    again = report(on_bare, "--filter", "kind = 'k7'")
    assert again["scopes"][1]["unindexed"] == []
    assert "btree" not in [one["kind"] for one in again["advice"]]


def test_a_metric_that_nothing_tells(on_bare, bare, docs):
    command = ["doctor", "docs", "v"]
    assert "cosine (assumed; --metric sets it)" in on_bare(*command).stdout
    assert "assumed" not in on_bare(*command, "--metric", "cosine").stdout
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    found = report(on_bare)
    assert (found["metric"], found["metric_assumed"]) == ("l2", False)


def test_findings_are_reported_as_they_come(on_bare, bare, docs):
    """With the share that is done, which ends at all of it."""
    bare.execute("CREATE INDEX docs_hnsw ON docs USING hnsw (v vector_l2_ops)")
    said = on_bare("doctor", "docs", "v", "--filter", "part = 3").stderr
    for finding in (
        r"exact search by l2: p50 [\d.]+ ms",
        r"docs_hnsw, ef_search 40 \(now\): recall [\d.]+, p50 [\d.]+ ms",
        r"docs_hnsw, ef_search 400, iterative where part = 3: recall 1, p50 [\d.]+ ms",
        r"thermometer: \d+ candidates of \d+ rows",
    ):
        assert re.search(finding + r" \(\d+% done\)\n", said)
    shares = [int(share) for share in re.findall(r"\((\d+)% done\)", said)]
    assert shares == sorted(shares)
    assert shares[-1] == 100
    assert "recall" not in on_bare("-q", "doctor", "docs", "v").stderr


@pytest.mark.usefixtures("slow_machine")
def test_codes_are_tried_without_an_index(on_bare, bare):
    """By the candidates that they need in the table."""
    rng = np.random.default_rng(4)
    # All on one side of 0: plain signs say nothing.
    vectors = (20 + rng.standard_normal((1500, 64))).astype(np.float32)
    fill(bare, "docs", vectors)
    found = report(on_bare, "--metric", "l2")
    codes = {one["code"]: one for one in found["codes"]}
    assert [*codes] == ["thermometer", "itq"]
    assert codes["thermometer"]["candidates"] < 150
    assert codes["thermometer"]["rows"] == 1500
    assert codes["thermometer"]["bits"] in range(64, 8 * 64 + 1, 64)
    bare.execute(
        "CREATE INDEX signs ON docs USING hnsw ((binary_quantize(v)::bit(64)) bit_hamming_ops)"
    )
    found = report(on_bare, "--metric", "l2")
    assert found["decision"]["kind"] == "vectors"
    reasons = {one["name"]: one["why_not"] for one in found["sets"]}
    assert reasons["signs"] == "below the recall"
    assert found["decision"]["commands"][0].endswith(" --metric l2")
    shown = on_bare("doctor", "docs", "v", "--metric", "l2").stdout
    assert re.search(r"thermometer +\d+ re-ranked +[\d.]+", shown)


@pytest.mark.usefixtures("slow_machine")
def test_tables_that_quickstart_refuses(on_bare, bare, docs):
    """The doctor says so, and does not end in that command."""
    small = "ALTER DATABASE {} SET effective_cache_size = '64kB'"
    bare.execute(sql.SQL(small).format(sql.Identifier(bare.info.dbname)))
    bare.execute(
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM docs;"
        "CREATE TABLE pairs (a int, b int, v vector(8), UNIQUE (a, b));"
        "INSERT INTO pairs SELECT id, part, v FROM docs;"
        "CREATE TABLE keyed (LIKE pairs INCLUDING ALL); INSERT INTO keyed SELECT * FROM pairs;"
        "ALTER TABLE keyed ALTER a SET NOT NULL, ALTER b SET NOT NULL;"
        "CREATE INDEX ON kept USING hnsw (v vector_l2_ops);"
        "CREATE INDEX ON pairs USING hnsw (v vector_l2_ops);"
        "CREATE INDEX ON keyed USING hnsw (v vector_l2_ops)"
    )
    for table, why in {
        "kept": "kept is a materialised view, which has no triggers: index the table behind it",
        "pairs": "pairs has no key, columns that are unique and NOT NULL",
    }.items():
        said = " ".join(on_bare("doctor", table, "v").stdout.split())
        assert f"this table cannot have a pg_hashindex index: {why}" in said
        assert "pg-hashindex" not in said
        refused = on_bare("quickstart", table, "v", "--yes", code=3).stderr
        assert why in refused
    said = on_bare("doctor", "keyed", "v").stdout
    assert "pg-hashindex quickstart keyed v --id a,b\n" in said


def test_codes_of_another_length_than_the_model_are_named(connection, items):
    store.save(connection, Thermometer(random_state=0).fit(np.eye(8)).to_model("texts"))
    connection.execute(
        "SELECT hashindex.create_functions('texts');"
        "CREATE INDEX short ON items USING hnsw"
        " ((hashindex.code_texts(embedding)::bit(16)) bit_hamming_ops)"
    )
    first, *_ = diagnose(connection, "items", "embedding").advice
    assert (first.kind, first.level) == ("codes", "broken")
    assert "public.short has bit(16), and codes of model texts:1 have 24 bits." in first.text
    assert first.commands == ("DROP INDEX CONCURRENTLY public.short; then make it with ::bit(24)",)
