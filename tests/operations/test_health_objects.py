"""Faults of what an index consists of: its table, triggers, functions, access path, swaps."""

import pytest
from fixtures.health import findings, troubles
from fixtures.indexes import create_index, indexed
from fixtures.landmarks import tables_of
from fixtures.roles import denied

from pg_hashindex import operations, store
from pg_hashindex.db.locks import claim, release
from pg_hashindex.errors import MissingRightsError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex

pytestmark = pytest.mark.newest

REBIND = "if it was renamed: pg-hashindex index repair items_idx --{}"
AGAIN = "restore what was, or run pg-hashindex index drop items_idx"

TABLE_FAULTS = {
    "ALTER TABLE items RENAME TO goods": (
        "table public.items is not there any more", REBIND.format("table TABLE")
    ),
    "CREATE SCHEMA shop; ALTER TABLE items SET SCHEMA shop": (
        "table public.items is not there any more", REBIND.format("table TABLE")
    ),
    "ALTER TABLE items RENAME embedding TO vec": (
        'column "embedding" of public.items is not there any more', REBIND.format("column COLUMN")
    ),
    "ALTER TABLE items DROP embedding CASCADE": (
        'column "embedding" of public.items is not there any more', REBIND.format("column COLUMN")
    ),
    "DROP TRIGGER hashindex_items_idx_insert ON items; DROP TRIGGER hashindex_items_idx_update "
    "ON items; DROP TRIGGER hashindex_items_idx_delete ON items; "
    "ALTER TABLE items ALTER embedding TYPE sparsevec(8)": (
        "sparsevec, not vector or halfvec", AGAIN
    ),
    "ALTER TABLE items RENAME id TO number": (
        'key "id" of public.items is not there any more', REBIND.format("id COLUMN")
    ),
    "ALTER TABLE items DROP CONSTRAINT items_pkey": (
        'column "id" of public.items is not a key', AGAIN
    ),
    "ALTER TABLE items ALTER id TYPE text": (
        'key "id" of public.items is of type text, and was of bigint',
        "pg-hashindex index repair items_idx",
    ),
    "CREATE TABLE more () INHERITS (items)": (
        "public.items has tables that inherit from it, so that writes go unseen",
        "make it a plain table again, then run pg-hashindex index repair items_idx --full",
    ),
}  # fmt: skip


def test_the_table(index):
    for statement, (said, advised) in TABLE_FAULTS.items():
        with index.connection.transaction(force_rollback=True):
            index.connection.execute(statement.encode())
            found = findings(index)
            assert found["table"].status == "broken", statement
            assert said in found["table"].detail
            assert advised in (found["table"].advice or "")
            # Nothing is compared that may be something else by now.
            assert "wrong_codes" not in found
            assert operations.check(index, full=True).status == "broken"
    assert troubles(index) == {}


def test_a_table_that_was_dropped(connection, index):
    connection.execute("DROP TABLE items")
    assert findings(index)["table"].detail == "table public.items is not there any more"
    assert "pg-hashindex index drop items_idx" in (findings(index)["table"].advice or "")
    assert "triggers" not in findings(index)


def test_another_table_of_that_name(connection, items, model):
    index = indexed(connection)
    connection.execute("ALTER TABLE items RENAME TO goods")
    connection.execute("CREATE TABLE items (LIKE goods INCLUDING ALL)")
    assert findings(index)["triggers"].value == 4
    assert findings(index)["triggers"].status == "broken"


def test_codes_that_were_dropped(connection, index):
    with connection.transaction(force_rollback=True):
        connection.execute("ALTER TABLE hashindex.set_1_codes DROP code")
        assert "code table hashindex.set_1_codes was changed" in findings(index)["table"].detail
    connection.execute("DROP TABLE hashindex.set_1_codes")
    assert findings(index)["table"].detail == "code table hashindex.set_1_codes is gone"
    assert troubles(index) == {"table": "broken"}


def test_codes_of_another_width(connection, index):
    connection.execute(
        "ALTER TABLE hashindex.set_1_codes ALTER code TYPE bit(5) USING code::bit(5)"
    )
    assert "code table hashindex.set_1_codes was changed" in findings(index)["table"].detail


def test_codes_without_a_primary_key(connection, items, model):
    index = indexed(connection)
    connection.execute("ALTER TABLE hashindex.set_1_codes DROP CONSTRAINT set_1_codes_pkey")
    assert "code table hashindex.set_1_codes was changed" in findings(index)["table"].detail


def test_triggers(connection, index):
    name = "hashindex_items_idx_update"
    for statement, said in (
        (f"DROP TRIGGER {name} ON items", "is missing"),
        (f"ALTER TABLE items DISABLE TRIGGER {name}", "is disabled"),
        # It fires for what is replicated alone.
        (f"ALTER TABLE items ENABLE REPLICA TRIGGER {name}", "is disabled"),
    ):
        with connection.transaction(force_rollback=True):
            connection.execute(statement.encode())
            assert troubles(index) == {"triggers": "broken"}
            assert findings(index)["triggers"].detail.startswith(f"{name} on public.items {said}")
    connection.execute(f"ALTER TABLE items ENABLE ALWAYS TRIGGER {name}".encode())
    assert troubles(index) == {}


def test_functions(connection, index):
    for function in ("search_items_idx", "sync_items_idx"):
        with connection.transaction(force_rollback=True):
            connection.execute(f"DROP FUNCTION hashindex.{function} CASCADE".encode())
            found = findings(index)
            assert (found["functions"].status, found["functions"].value) == ("broken", 1)
            assert function in found["functions"].detail
            # With their function the triggers went.
            assert found["triggers"].status == ("broken" if function.startswith("sync") else "ok")


def test_a_first_build_that_was_left(connection, other, items, model):
    index = create_index(connection, access="lists")
    found = findings(index)["other_set"]
    assert found.status == "warning"
    assert found.detail.startswith("beside it is a set in state building: codes of lsh:1 in lists")
    assert "finish it: pg-hashindex index encode items_idx" in (found.advice or "")
    claim(other, "swap", "items_idx")
    assert findings(index)["other_set"].status == "ok"
    release(other, "swap", "items_idx")
    assert findings(index)["other_set"].status == "warning"
    index.encode()
    assert "other_set" not in findings(index)


def test_landmarks_that_are_gone(listed):
    connection = listed.connection
    codes, landmarks = tables_of(listed)
    with connection.transaction(force_rollback=True):
        connection.execute(f"DELETE FROM hashindex.{landmarks}".encode())
        assert findings(listed)["access"].detail.startswith("there are no landmarks")
        assert findings(listed)["access"].status == "warning"
    (hnsw,) = connection.execute(
        "SELECT x.indexrelid::regclass::text FROM pg_index x "
        "WHERE x.indrelid = %s::regclass AND NOT x.indisprimary",
        [f"hashindex.{landmarks}"],
    ).fetchone() or ("",)
    with connection.transaction(force_rollback=True):
        connection.execute(f"DROP INDEX {hnsw}".encode())
        assert "the HNSW over landmarks is gone" in findings(listed)["access"].detail
    with connection.transaction(force_rollback=True):
        connection.execute(f"DROP INDEX hashindex.{codes}_landmark_idx".encode())
        assert "the b-tree over the landmarks of codes" in findings(listed)["access"].detail
    connection.execute(f"DROP TABLE hashindex.{landmarks}".encode())
    assert findings(listed)["access"].status == "broken"


def test_lists(listed):
    connection = listed.connection
    # 12 bits do not tell 3,000 rows apart.
    assert troubles(listed) == {"duplicates": "warning"}
    listed = listed.configure(candidates=3000)
    for full in (False, True):
        assert troubles(listed, full=full) == {}
    summary = listed.lists()
    assert f"{summary.landmarks} landmarks" in findings(listed)["lists"].detail
    told = f"{summary.mean:.0f} codes each, {summary.longest} at most"
    assert told in findings(listed, full=True)["lists"].detail

    codes, _ = tables_of(listed)
    with connection.transaction(force_rollback=True):
        connection.execute(
            f"UPDATE hashindex.{codes} SET landmark = 1 WHERE landmark < 40".encode()
        )
        found = findings(listed)["lists"]
        assert "in lists much longer than the others" in found.detail
        assert "index rebalance items_idx" in (found.advice or "")
        assert troubles(listed) == {"lists": "warning"}
    with connection.transaction(force_rollback=True):
        connection.execute(
            f"UPDATE hashindex.{codes} SET landmark = NULL WHERE landmark % 3 = 0".encode()
        )
        found = findings(listed)["landmarks"]
        assert "codes are in no list" in found.detail
        assert "index encode items_idx" in (found.advice or "")
        assert troubles(listed) == {"landmarks": "warning"}
    connection.execute(f"UPDATE hashindex.{codes} SET landmark = 99999 WHERE landmark = 7".encode())
    for full in (False, True):
        found = findings(listed, full=full)["lists"]
        assert (found.status, found.advice) == ("broken", "pg-hashindex index repair items_idx")
        assert "codes are in no existing list" in found.detail


def test_a_table_that_grew_or_shrank_tenfold(listed):
    for trained, status in ((300, "warning"), (310, "ok"), (29_000, "ok"), (30_000, "warning")):
        listed.connection.execute("UPDATE hashindex.index_set SET trained_rows = %s", [trained])
        found = findings(listed)["landmarks"]
        assert (found.status, found.value) == (status, pytest.approx(3000 / trained))
        advised = "index rebalance items_idx" in (found.advice or "")
        assert advised == (status == "warning")
    # No search of an empty table is slow.
    listed.connection.execute("TRUNCATE items")
    assert troubles(listed) == {}


def test_a_swap_that_was_left(connection, other, index, vectors):
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("the other"))
    connection.execute(
        "SELECT hashindex._begin_swap('items_idx', 'the other', NULL, NULL, NULL, NULL, false)"
    )
    found = findings(index)["other_set"]
    assert found.status == "warning"
    assert "a set in state building: codes of the other:1 in lists" in found.detail
    assert "no session builds it" in found.detail
    assert "finish it: pg-hashindex index encode items_idx" in (found.advice or "")
    assert "repair items_idx --undo" in (found.advice or "")
    claim(other, "swap", "items_idx")
    assert findings(index)["other_set"].status == "ok"
    release(other, "swap", "items_idx")
    assert findings(index)["other_set"].status == "warning"


def test_bloat(connection, items, model):
    index = indexed(connection)
    connection.execute(
        "INSERT INTO hashindex.set_1_codes (id, code) "
        "SELECT -n, 0::bit(12) FROM generate_series(1, 250000) n"
    )
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id < 0")
    found = findings(index)["bloat"]
    assert found.status == "warning"
    assert found.detail.startswith("hashindex.set_1_codes takes ")
    assert (found.advice or "").startswith("VACUUM hashindex.set_1_codes")
    connection.execute("VACUUM hashindex.set_1_codes")
    assert findings(index)["bloat"].status == "ok"


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_a_reader_checks(connection, as_role, items, model, access):
    index = indexed(connection, access=access)
    reader = as_role("checker")
    connection.execute("GRANT SELECT ON items TO checker")
    connection.execute("SELECT hashindex.grant_reader('items_idx', 'checker')")
    for full in (False, True):
        assert troubles(HashIndex.open(reader, "items_idx"), full=full) == {}
    with denied():
        reader.execute(f"DELETE FROM hashindex.{tables_of(index)[0]}".encode())
    connection.execute("REVOKE SELECT ON items FROM checker")
    with pytest.raises(MissingRightsError, match="permission denied for table items;"):
        operations.check(HashIndex.open(reader, "items_idx"))
    connection.execute("GRANT SELECT ON items TO checker")
    index.revoke("checker")
    with pytest.raises(MissingRightsError, match="permission denied for table set_1_"):
        operations.check(HashIndex.open(reader, "items_idx"))


def test_rows_that_the_caller_does_not_see(connection, as_role, index):
    """All is reported of a tenant's rows, and codes of others are not taken for left over."""
    tenant = as_role("tenant")
    connection.execute("GRANT SELECT ON items TO tenant")
    connection.execute("SELECT hashindex.grant_reader('items_idx', 'tenant')")
    connection.execute(
        "ALTER TABLE items ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY own ON items USING (category = 'a')"
    )
    connection.execute("DELETE FROM hashindex.set_1_codes WHERE id IN (1, 2, 4)")
    found = findings(HashIndex.open(tenant, "items_idx"))
    # Rows 1, 4, 7, ... are of category a.
    assert found["rows_without_code"].value == 2
    assert found["rows_without_code"].detail.startswith("2 of 100 rows")
    assert "row security hides rows from you" in found["rows_without_code"].detail
    assert found["codes_without_row"].status == "ok"
    assert found["codes_without_row"].value is None
    assert findings(index)["rows_without_code"].value == 3
