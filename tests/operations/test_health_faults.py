"""Every fault of the codes and of the model is found, and called by its name."""

import numpy as np
import pytest
from fixtures.code_indexes import fill, save_signs
from fixtures.faults import eventually
from fixtures.health import findings, index_with_profile, set_code, troubles
from fixtures.indexes import indexed
from psycopg.errors import ReadOnlySqlTransaction
from psycopg.types.json import Jsonb

from pg_hashindex import operations, store
from pg_hashindex.errors import DatabaseStateError, UnknownIndexError
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest


def take_codes(index, where):
    index.connection.execute(f"DELETE FROM hashindex.set_1_codes WHERE {where}".encode())


def test_rows_without_code(index):
    take_codes(index, "id = 5")
    # Rows without a vector need none.
    index.connection.execute("UPDATE items SET embedding = NULL WHERE id BETWEEN 100 AND 150")
    for full in (False, True):
        found = findings(index, full=full)["rows_without_code"]
        assert (found.status, found.value) == ("warning", 1)
        assert found.detail.startswith("1 of ")
        assert found.advice == "pg-hashindex index encode items_idx"
    # Above a tenth.
    take_codes(index, "id BETWEEN 1 AND 40")
    for full in (False, True):
        assert findings(index, full=full)["rows_without_code"].status == "broken"
    assert index.encode() == 40
    assert troubles(index) == {}


def test_codes_without_row(index):
    connection = index.connection
    connection.execute("ALTER TABLE items DISABLE TRIGGER USER")
    connection.execute("DELETE FROM items WHERE id IN (7, 8)")
    connection.execute("UPDATE items SET embedding = NULL WHERE id IN (17, 18, 19)")
    connection.execute("ALTER TABLE items ENABLE TRIGGER USER")
    for full in (False, True):
        found = findings(index, full=full)
        assert found["codes_without_row"].status == "warning"
        assert found["codes_without_row"].value == 5
        assert found["rows_without_code"].status == "ok"
    operations.repair(index)
    assert troubles(index) == {}


def test_a_row_of_another_dimension_has_a_wrong_code(connection, lsh_model):
    """No trigger lets it in; in a column of any dimension it may come all the same."""
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, embedding vector)")
    connection.execute(
        "INSERT INTO items VALUES (1, '[1,2,3,4,5,6,7,8]'), (2, '[1,1,1,1,1,1,1,1]')"
    )
    index = index_with_profile(connection, lsh_model, np.eye(8, dtype=np.float32))
    connection.execute("ALTER TABLE items DISABLE TRIGGER USER")
    connection.execute("UPDATE items SET embedding = '[1,2]' WHERE id = 2")
    connection.execute("ALTER TABLE items ENABLE TRIGGER USER")
    for full in (False, True):
        found = findings(index, full=full)["wrong_codes"]
        assert (found.status, found.value) == ("broken", 0.5)


def test_a_vector_too_large_for_the_model(connection, lsh_model):
    fill(connection, "items", np.ones((3, 8), np.float32))
    index = index_with_profile(connection, lsh_model, np.eye(8, dtype=np.float32))
    connection.execute("ALTER TABLE items DISABLE TRIGGER USER")
    connection.execute(
        "UPDATE items SET embedding = array_fill(3e38::float4, ARRAY[8])::vector WHERE id = 2"
    )
    connection.execute("ALTER TABLE items ENABLE TRIGGER USER")
    found = findings(index)
    for name in ("wrong_codes", "projection_drift"):
        assert found[name].status == "warning"
        assert "cannot be evaluated" in found[name].detail
    assert found["bits"].status == "ok"


def test_a_bit_that_is_the_same_for_all(index):
    set_code(index, "code | B'000010000000'")
    found = findings(index)
    assert (found["bits"].status, found["bits"].value) == ("warning", 0)
    assert found["bits"].detail.startswith("bit 4 tells the least: it is 1 in 100.0 % of codes")
    assert found["correlation"].status == "ok"
    assert found["wrong_codes"].status == "broken"


def test_copies_of_bits(index):
    for sign, copied in (("", "get_bit(code, 2)"), ("-", "1 - get_bit(code, 2)")):
        set_code(index, f"set_bit(code, 7, {copied})")
        found = findings(index)["correlation"]
        assert (found.status, found.value) == ("warning", pytest.approx(1))
        assert f"2 and 7 ({sign}1.000)" in found.detail


def test_codes_that_more_rows_share_than_a_search_looks_at(index):
    set_code(index, "B'110011001100'")
    found = findings(index)["duplicates"]
    assert (found.status, found.value) == ("warning", 1)
    assert "300 rows the most common" in found.detail
    assert "100.0 % with more than the 200 candidates" in found.detail
    assert findings(index.configure(candidates=300))["duplicates"].status == "ok"


def test_drifted_rows(connection, items, vectors, lsh_model):
    index = index_with_profile(connection, lsh_model, vectors)
    connection.execute(
        "UPDATE items SET embedding = embedding + '[2,2,0,0,0,0,0,0]' WHERE id <= 200"
    )
    assert troubles(index) == {"projection_drift": "warning", "bit_drift": "warning"}
    assert operations.check(index).status == "warning"
    for name in ("projection_drift", "bit_drift"):
        found = findings(index, full=True)[name]
        assert found.value is not None
        assert found.value > 0.1
        assert "index swap items_idx --model MODEL" in (found.advice or "")


def test_drift_is_unknown_without_a_profile(index):
    found = findings(index)
    for name in ("projection_drift", "bit_drift"):
        assert (found[name].status, found[name].value) == ("unknown", None)
        assert "no profile of its training rows" in found[name].detail
    assert operations.check(index).status == "ok"


def test_a_damaged_profile(connection, items, model):
    """Only the owner can write one; the check ends in words all the same."""
    indexed(connection)
    connection.execute("ALTER TABLE hashindex.model DISABLE TRIGGER USER")
    connection.execute("UPDATE hashindex.model SET profile = '{}'")
    with pytest.raises(DatabaseStateError, match="model 'lsh' is damaged: not a profile"):
        store.load(connection, "lsh")
    assert store.describe(connection, "lsh").profile_rows is None
    profiles = (7, {"rows": 3}, {"rows": 0, "edges": [7], "counts": [7]}, {"rows": 9, "edges": {}})
    for profile in profiles:
        connection.execute("UPDATE hashindex.model SET profile = %s", [Jsonb(profile)])
        for full in (False, True):
            # A handle reads its model once.
            found = operations.check(HashIndex.open(connection, "items_idx"), full=full)
            assert len(found.findings) == 14
            for finding in found.findings:
                damaged = finding.check in ("projection_drift", "bit_drift")
                if damaged:
                    assert "model 'lsh:1' is damaged: not a profile" in finding.detail
                if finding.check != "wrong_codes":
                    assert finding.status == ("warning" if damaged else "ok")


def test_an_index_that_does_not_exist(connection, index):
    index.drop()
    with pytest.raises(UnknownIndexError, match='"items_idx" does not exist'):
        operations.check(index)


def test_a_check_writes_nothing(connection, index):
    connection.execute("SET default_transaction_read_only = on")
    for full in (False, True):
        assert operations.check(index, full=full).status == "ok"
        with connection.transaction():
            assert operations.check(index, full=full).status == "ok"
    with pytest.raises(ReadOnlySqlTransaction):
        set_code(index, "code")


def vacuum(connection):
    """Until all see all pages: a session that starts, in any database, can hold that back."""

    def is_visible():
        connection.execute("VACUUM items")
        return connection.execute(
            "SELECT relallvisible = relpages FROM pg_class WHERE oid = 'items'::regclass"
        ).fetchone()[0]

    eventually(is_visible)


def test_a_table_of_many_pages_is_looked_at_by_samples(connection):
    """A row to a page: 150 MB, which are not all read."""
    save_signs(connection, 24)
    connection.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, embedding vector(24), filler text); "
        "ALTER TABLE items ALTER filler SET STORAGE PLAIN"
    )
    connection.execute(
        "INSERT INTO items SELECT n, ARRAY(SELECT sin(n * d * d) FROM generate_series(1, 24) d)"
        "::vector, repeat('x', 7000) FROM generate_series(1, 18000) n"
    )
    index = indexed(connection, model="signs")
    assert troubles(index) == {}
    assert "that were drawn" in findings(index)["rows_without_code"].detail
    connection.execute("ALTER TABLE items DISABLE TRIGGER USER")
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id % 20 = 7")
    connection.execute(
        "INSERT INTO hashindex.set_1_codes (id, code) "
        "SELECT -n, n::bit(24) FROM generate_series(1, 900) n"
    )
    connection.execute("ALTER TABLE items ENABLE TRIGGER USER")
    found = findings(index)["rows_without_code"]
    assert found.status == "warning"
    # 5 % of the 2,000 or more that are drawn: five standard deviations are half of it.
    assert found.value == pytest.approx(900, rel=0.5)
    assert found.detail.startswith("about ")
    assert findings(index)["codes_without_row"].value == pytest.approx(900, rel=0.5)
    # Keys of pages that all can see are read without the rows, and all compared.
    vacuum(connection)
    found = findings(index)
    assert (found["rows_without_code"].value, found["codes_without_row"].value) == (900, 900)
    assert found["rows_without_code"].detail.startswith("900 of 18000 rows:")
    # Rows without a vector need no code: half of those that have one are not found.
    connection.execute(
        "ALTER TABLE items DISABLE TRIGGER USER; "
        "UPDATE items SET embedding = NULL WHERE id > 9000; "
        "DELETE FROM hashindex.set_1_codes WHERE id < 0 OR id > 9000 OR id % 2 = 0; "
        "ALTER TABLE items ENABLE TRIGGER USER"
    )
    vacuum(connection)
    found = findings(index)["rows_without_code"]
    (missing,) = connection.execute(
        "SELECT count(*) FROM items i WHERE embedding IS NOT NULL "
        "AND NOT EXISTS (SELECT FROM hashindex.set_1_codes c WHERE c.id = i.id)"
    ).fetchone()
    assert (found.status, found.value) == ("broken", pytest.approx(missing, rel=0.2))
    assert found.detail.startswith(f"about {found.value:.0f} of ")
