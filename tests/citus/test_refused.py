"""Tables that Citus keeps have no index of pg_hashindex; one that gets there later is found."""

import psycopg
import pytest
from fixtures.citus import MODEL, QUERY, TABLE, exact, one, printed
from fixtures.indexes import begin_lists

from pg_hashindex import encode_column, operations
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.citus

#: How a local table becomes one of Citus's.
KEPT = {
    "distributed": "SELECT create_distributed_table(%s, 'id')",
    "reference": "SELECT create_reference_table(%s)",
    "on one node": "SELECT citus_add_local_table_to_metadata(%s)",
}
OF_TABLE = ("--table", TABLE, "--column", "embedding")
COUNTS = (
    "SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = 'hashindex'::regnamespace)"
    " + (SELECT count(*) FROM pg_proc WHERE pronamespace = 'hashindex'::regnamespace)"
    " + (SELECT count(*) FROM hashindex.index) + (SELECT count(*) FROM hashindex.model)"
)


@pytest.fixture(params=KEPT)
def kept(request, local):
    local.execute(KEPT[request.param].encode(), [TABLE])
    return local


def test_an_index_is_refused_before_anything_is_made(kept, url):
    before = one(kept, COUNTS)
    code, text = printed(
        url, "index", "create", MODEL, "--access", "scan", *OF_TABLE, "--model", MODEL
    )
    assert code == 3
    (line,) = [line for line in text.splitlines() if line.startswith("Error")]
    command = f"pg-hashindex quickstart {TABLE} embedding --access hnsw"
    assert f"{TABLE} is a table that Citus keeps on its nodes" in line
    assert command in line.replace("public.", "")
    with pytest.raises(HashIndexError, match="Citus keeps"):
        begin_lists(kept, MODEL, table=TABLE, column="embedding", model=MODEL)
    created = "SELECT hashindex.create_index(%s, %s, 'embedding', %s, access => 'scan')"
    with pytest.raises(psycopg.errors.WrongObjectType, match="Citus keeps"):
        kept.execute(created, [MODEL, TABLE, MODEL])
    code, text = printed(url, "quickstart", TABLE, "embedding", "--access", "lists", "--yes")
    assert (code, "quickstart --access hnsw" in text) == (3, True), text
    assert one(kept, COUNTS) == before


@pytest.fixture
def indexed(local):
    """An index of a local table, beside Citus."""
    begin_lists(local, MODEL, table=TABLE, column="embedding", model=MODEL).encode()
    return local


def statuses(connection):
    found = operations.check(HashIndex.open(connection, MODEL)).findings
    return {finding.check: finding for finding in found if finding.status != "ok"}


def test_an_index_of_a_local_table(indexed):
    indexed.execute(f"INSERT INTO {TABLE} VALUES (9001, 'a', %s)".encode(), [QUERY])
    index = HashIndex.open(indexed, MODEL)
    assert [hit.id for hit in index.search(QUERY, 5, candidates=2000)] == exact(indexed, 5)
    assert statuses(indexed) == {}


def test_citus_distributes_no_table_that_has_triggers(indexed):
    with pytest.raises(psycopg.Error, match="it has triggers"):
        indexed.execute(KEPT["distributed"].encode(), [TABLE])
    # Writes on workers would not find the index there.
    indexed.execute("SET citus.enable_unsafe_triggers TO on")
    with pytest.raises(psycopg.Error, match="hashindex.index"):
        indexed.execute(KEPT["distributed"].encode(), [TABLE])
    assert statuses(indexed) == {}


def test_a_table_that_was_distributed_without_its_triggers(indexed):
    for event in ("insert", "update", "delete", "truncate"):
        indexed.execute(f"DROP TRIGGER hashindex_{MODEL}_{event} ON {TABLE}".encode())
    indexed.execute(KEPT["distributed"].encode(), [TABLE])
    indexed.execute(f"INSERT INTO {TABLE} VALUES (9001, 'a', %s)".encode(), [QUERY])
    found = indexed.execute(f"SELECT id FROM hashindex.search_{MODEL}(%s, 5)".encode(), [QUERY])
    assert [row[0] for row in found] == exact(indexed, 5)
    (finding,) = statuses(indexed).values()
    assert (finding.check, finding.status) == ("table", "broken")
    assert "Citus keeps on its nodes, so that writes go unseen" in finding.detail
    assert "make it a plain table again" in finding.advice
    for act in (
        lambda index: operations.repair(index),
        lambda index: index.encode(),
        lambda index: index.within(QUERY, 3),
        lambda index: index.swap(model=MODEL, force=True, access="lists"),
    ):
        with pytest.raises(HashIndexError, match="Citus keeps on its nodes"):
            act(HashIndex.open(indexed, MODEL))
    indexed.execute("SELECT undistribute_table(%s)", [TABLE])
    operations.repair(HashIndex.open(indexed, MODEL))
    assert statuses(indexed) == {}
    index = HashIndex.open(indexed, MODEL)
    assert [hit.id for hit in index.search(QUERY, 5, candidates=2000)] == exact(indexed, 5)


def test_a_column_of_codes_is_refused_too(kept):
    kept.execute(f"ALTER TABLE {TABLE} ADD COLUMN code bit(16)".encode())
    with pytest.raises(HashIndexError, match="Citus distributes table .*model functions"):
        encode_column(kept, MODEL, TABLE, "embedding", "code")
