"""doctor and quickstart on tables that are hardly filled, oddly named, or have indexes already."""

import re

import numpy as np
import psycopg
import pytest
from fixtures.commands import fill

from pg_hashindex import store
from pg_hashindex.hashers import Thermometer
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import advice
from pg_hashindex.quality.doctor import diagnose
from pg_hashindex.quality.sizes import hnsw_bytes

pytestmark = pytest.mark.newest


def test_rows_without_a_vector_do_not_count(bare):
    """They are at the head of the table, as after a column was added."""
    bare.execute(
        "CREATE TABLE filling (id int PRIMARY KEY, v vector(3));"
        "INSERT INTO filling SELECT n, CASE WHEN n > 18000 THEN ARRAY[n, 1, n % 7]::vector END "
        "FROM generate_series(1, 20000) n; ANALYZE filling"
    )
    found = diagnose(bare, "filling", "v", sample=30, codes=False)
    assert found.queries == 30
    assert found.table.null_share == pytest.approx(0.9, abs=0.03)
    assert found.table.rows == 20_000
    facts = advice.facts_of(found, 0.95)
    assert facts.rows == pytest.approx(2000, rel=0.3)


def test_a_name_by_another_metric_does_not_answer(connection, items):
    """Not for the recall that is wanted, and not for the set."""
    model = (
        Thermometer()
        .fit(np.random.default_rng(0).standard_normal((100, 8)))
        .to_model("far", metric="l2")
    )
    store.save(connection, model)
    HashIndex.create(connection, "far", table="items", column="embedding", model="far")
    found = diagnose(connection, "items", "embedding", sample=10, codes=False, metric="cosine")
    assert "index far searches by l2, and is measured by it" in found.notes
    assert found.names[0].recall is not None
    assert found.worst_recall is not None
    assert not any("far --" in command for command in found.decision.commands)
    # Without an index of pgvector's, the metric is that of a name.
    found = diagnose(connection, "items", "embedding", sample=10, codes=False)
    assert (found.metric, found.metric_assumed) == ("l2", False)
    assert found.names[0].recall is not None


def test_an_index_of_another_column_is_not_of_this_one(bare, points):
    fill(bare, "docs", points)
    bare.execute(
        "ALTER TABLE docs ADD title vector(8);"
        "CREATE INDEX ON docs USING hnsw (title vector_l2_ops) WHERE v IS NOT NULL;"
        "CREATE INDEX ON docs USING hnsw ((title::halfvec(8)) halfvec_l2_ops) WHERE v IS NOT NULL"
    )
    found = diagnose(bare, "docs", "v", sample=5, codes=False)
    assert found.indexes == []
    assert (found.metric, found.metric_assumed) == ("cosine", True)


@pytest.mark.usefixtures("slow_machine")
def test_quickstart_by_a_role_whose_name_needs_quotes(bare, empty_url, run, points):
    role = "Me-@project.iam"
    name = psycopg.sql.Identifier(role)
    fill(bare, "docs", points)
    bare.execute(
        psycopg.sql.SQL(
            "CREATE ROLE {0} LOGIN; ALTER TABLE docs OWNER TO {0}; "
            "GRANT CREATE ON DATABASE {1} TO {0}; GRANT CREATE ON SCHEMA public TO {0}"
        ).format(name, psycopg.sql.Identifier(bare.info.dbname))
    )
    url = empty_url.replace("postgres@", role.replace("@", "%40") + "@")
    try:
        run("quickstart", "docs", "v", "--access", "hnsw", "--yes", "--database-url", url)
    finally:
        bare.execute(
            psycopg.sql.SQL(
                "REASSIGN OWNED BY {0} TO postgres; DROP OWNED BY {0}; DROP ROLE {0}"
            ).format(name)
        )


@pytest.mark.usefixtures("slow_machine")
def test_quickstart_where_nothing_can_be_compared(bare, empty_url, run):
    bare.execute(
        "CREATE TABLE one (id int PRIMARY KEY, v vector(3)); INSERT INTO one VALUES (1, '[1,2,3]')"
    )
    start = ("quickstart", "one", "v", "--yes", "--database-url", empty_url)
    refused = run(*start, code=3)
    assert "was measured (no query has a neighbour" in refused.stderr
    done = run(*start, "--access", "hnsw")
    assert "has fewer than two rows with a vector to compare" in done.stderr
    assert "Undo all of it" in done.stdout


@pytest.mark.usefixtures("slow_machine")
def test_halfvecs_where_the_vectors_have_an_index(bare, empty_url, run, points, monkeypatch):
    """A set of vectors would take that index, which does not fit into memory."""
    fill(bare, "docs", points)
    bare.execute("CREATE INDEX full_hnsw ON docs USING hnsw (v vector_cosine_ops)")
    between = hnsw_bytes(len(points), "halfvec", 8) + 1
    assert bare.execute("SELECT pg_relation_size('full_hnsw')").fetchone()[0] > between
    monkeypatch.setattr(advice.Facts, "left", property(lambda _: between))
    start = ("quickstart", "docs", "v", "--access", "hnsw", "--yes", "--database-url", empty_url)
    refused = run(*start, code=3)
    statement = (
        "CREATE INDEX CONCURRENTLY ON public.docs USING hnsw ((v::halfvec(8)) halfvec_cosine_ops) "
        "WITH (ef_construction = 128);"
    )
    assert statement.replace("public.", "") in refused.stderr.replace("public.", "")
    bare.execute(statement.encode())
    run(*start)
    assert HashIndex.open(bare, "docs_v").set == "vectors as halfvec in hnsw"


@pytest.mark.parametrize("key", ["uid uuid", "k int, n int"])
@pytest.mark.usefixtures("slow_machine")
def test_quickstart_prints_searches_of_any_key(bare, empty_url, run, points, key):
    """Answers have the key's own names, but for those that searches take for something else."""
    fill(bare, "docs", points, "halfvec")
    names = ", ".join(column.split()[0] for column in key.split(", "))
    bare.execute(
        f"CREATE TABLE keyed ({key}, v halfvec(8), PRIMARY KEY ({names}));"
        "INSERT INTO keyed SELECT "
        f"{'gen_random_uuid()' if names == 'uid' else 'id, 1'}, v FROM docs".encode()
    )
    made = run("quickstart", "keyed", "v", "--access", "hnsw", "--yes", "--database-url", empty_url)
    statements = re.findall(r"^  (SELECT .*?;)$", made.stdout, re.MULTILINE | re.DOTALL)
    assert len(statements) == 2
    for statement in statements:
        assert len(bare.execute(statement.encode()).fetchall()) == 10
