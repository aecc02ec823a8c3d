"""Readers of an index learn nothing that the table does not show them."""

import pytest
from fixtures.indexes import begin_lists, with_access
from fixtures.roles import denied

from pg_hashindex import operations, store
from pg_hashindex.db.server_errors import warning_of
from pg_hashindex.errors import DatabaseStateError, MissingRightsError
from pg_hashindex.hashers import LSH, SGH
from pg_hashindex.index.handle import HashIndex

QUERY = "[1,2,3,4,5,6,7,8]"
SEARCH = f"SELECT array_agg(id ORDER BY distance) FROM hashindex.search_items_idx('{QUERY}')"


@pytest.fixture
def anchored(keeper, vectors):
    """A model whose layers hold rows that it was trained on."""
    store.save(keeper, SGH(n_bits=8, n_anchors=32).fit(vectors).to_model("anchored"))
    return "anchored"


def create(keeper, name="items_idx", **more):
    options = {"table": "items", "column": "embedding", "model": "lsh"} | more
    begin_lists(keeper, name, **options).encode()  # type: ignore[arg-type]
    return HashIndex.open(keeper, name)


def rights_faults(index):
    found = [
        f for f in operations.check(index).findings if f.check == "rights" and f.status != "ok"
    ]
    return "; ".join(f"{f.detail} {f.advice}" for f in found)


def test_a_right_to_the_rows_that_ends(keeper, connection, as_role):
    """A reader of codes needs the tenants too, which the codes tell."""
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    index = create(keeper, tenant="category")
    codes = index.codes.as_string(keeper)
    reader.execute(f"SELECT id, code, tenant FROM {codes}".encode())
    assert rights_faults(index) == ""
    connection.execute("REVOKE SELECT ON items FROM reader")
    connection.execute("GRANT SELECT (id, embedding) ON items TO reader")
    assert "reader" in rights_faults(index)
    with pytest.raises(DatabaseStateError, match='may not read columns "id", "embedding" and "cat'):
        index.grant("reader")
    index.revoke("reader")
    assert rights_faults(index) == ""
    with denied():
        reader.execute(f"SELECT code FROM {codes}".encode())


def test_a_revoked_right_stays_revoked(keeper, connection, as_role, vectors):
    """Through builds, rebalances, swaps, repairs; and a right that was granted stays too."""
    revoked, granted = as_role("revoked"), as_role("granted")
    connection.execute("GRANT SELECT ON items TO revoked, granted")
    index = create(keeper)
    store.save(keeper, LSH(n_bits=8, random_state=5).fit(vectors).to_model("other"))
    index.revoke("revoked")

    def hold():
        HashIndex.open(granted, "items_idx").within([1.0] * 8, 8)
        with pytest.raises(MissingRightsError):
            HashIndex.open(revoked, "items_idx").within([1.0] * 8, 8)
        codes = HashIndex.open(keeper, "items_idx").codes.as_string(keeper)
        granted.execute(f"TABLE {codes}".encode())
        with denied():
            revoked.execute(f"SELECT code FROM {codes}".encode())

    hold()
    for access in ("lists", "scan"):
        with_access(index, access)  # type: ignore[arg-type]
        hold()
        if access == "lists":
            HashIndex.open(keeper, "items_idx").rebalance()
            hold()
    index = HashIndex.open(keeper, "items_idx")
    index.swap(model="other", force=True)
    hold()
    index.rollback()
    hold()
    HashIndex.open(keeper, "items_idx").prune()
    operations.repair(HashIndex.open(keeper, "items_idx"), full=True)
    hold()


def test_default_privileges_grant_nothing(keeper, connection, as_role):
    """They are for the administrator's own tables, as for a role that may read all of these."""
    snoop = as_role("snoop")
    connection.execute("ALTER DEFAULT PRIVILEGES FOR ROLE keeper GRANT SELECT ON TABLES TO snoop")
    index = create(keeper, access="lists")
    tables = [
        row[0]
        for row in keeper.execute(
            "SELECT o.object FROM hashindex.index i, hashindex._objects_of(i) o "
            "WHERE o.kind = 'table'"
        )
    ]
    assert len(tables) == 2
    for table in tables:
        with denied():
            snoop.execute(f"TABLE {table}".encode())
    assert rights_faults(index) == ""
    for table in (*tables, "hashindex.recall_history"):
        keeper.execute(f"GRANT SELECT ON {table} TO snoop".encode())
        assert "snoop may read" in rights_faults(index)
        keeper.execute(f"REVOKE SELECT ON {table} FROM snoop".encode())
    assert rights_faults(index) == ""


def test_row_security_that_is_enabled_later(keeper, connection, as_role):
    as_role("early")
    as_role("told")
    connection.execute("GRANT SELECT ON items TO early, told")
    index = create(keeper)
    assert rights_faults(index) == ""
    connection.execute("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    index.grant("told", reveal_codes=True)
    fault = rights_faults(index)
    assert "role early may read the codes, and row security of public.items hides rows" in fault
    assert "index grant items_idx early --revoke" in fault
    assert "told" not in fault
    # New codes go only to roles that were granted them in spite of it.
    with_access(index, "lists")
    assert rights_faults(index) == ""


def test_readers_read_the_models_of_their_index(keeper, connection, as_role, vectors):
    """And no other: not by name, by id, by the search of another index, or by a leaky function."""
    reader = as_role("reader")
    store.save(keeper, LSH(n_bits=8, random_state=5).fit(vectors).to_model("other"))
    keeper.execute("CREATE TABLE secret AS TABLE items; ALTER TABLE secret ADD PRIMARY KEY (id)")
    create(keeper, "secret_idx", table="secret", model="other")
    connection.execute("GRANT SELECT ON items TO reader")
    connection.execute("GRANT CREATE ON SCHEMA public TO reader")
    create(keeper)
    assert store.load(reader, "lsh").n_bits == 12
    assert reader.execute("SELECT name FROM hashindex.readable_model").fetchall() == [("lsh",)]
    reader.execute(f"SELECT hashindex.encode('lsh', '{QUERY}')")
    for statement in (
        f"SELECT hashindex.encode('other', '{QUERY}')",
        "SELECT layers FROM hashindex.model",
        "SELECT data FROM hashindex.model_part",
        "SELECT hashindex._layers_of(m.id) FROM hashindex.model m WHERE m.name = 'other'",
    ):
        with denied():
            reader.execute(statement.encode())
    with pytest.raises(MissingRightsError, match='role "reader" may not read model "other"'):
        store.load(reader, "other")
    reader.execute(
        "CREATE FUNCTION leak(hashindex.layer[], text) RETURNS boolean COST 0.0001 "
        "LANGUAGE plpgsql AS $$BEGIN RAISE NOTICE 'saw %', $2; RETURN true; END$$"
    )
    seen = []
    reader.add_notice_handler(lambda notice: seen.append(notice.message_primary or ""))
    reader.execute("SELECT FROM hashindex.readable_model m WHERE leak(m.layers, m.name)")
    assert seen == ["saw lsh"]
    HashIndex.open(keeper, "items_idx").revoke("reader")
    assert reader.execute("SELECT FROM hashindex.readable_model").fetchall() == []


def test_anchors_are_rows(keeper, connection, as_role, anchored):
    """No role gets them by itself; searches are exact until a grant says that they are revealed."""
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    index = create(keeper, model=anchored)
    exact = keeper.execute(
        f"SELECT array_agg(id ORDER BY d) FROM (SELECT id, embedding <-> '{QUERY}' AS d FROM items "
        "WHERE embedding IS NOT NULL ORDER BY d LIMIT 10) r"
    ).fetchone()
    assert reader.execute(SEARCH).fetchone() == exact
    with pytest.raises(MissingRightsError):
        store.load(reader, anchored)
    with pytest.raises(DatabaseStateError, match="as anchors.*--reveal-codes"):
        index.grant("reader")
    index.grant("reader", reveal_codes=True)
    assert store.load(reader, anchored).n_bits == 8
    HashIndex.open(reader, "items_idx").within([1.0] * 8, 8)
    assert rights_faults(index) == ""


def test_a_swap_to_a_model_with_anchors(keeper, connection, as_role, anchored):
    """It says whose searches become exact, and keeps those that anchors were revealed to."""
    reader, told = as_role("reader"), as_role("told")
    connection.execute("GRANT SELECT ON items TO reader, told")
    index = create(keeper)
    index.grant("told", reveal_codes=True)
    warnings = []
    keeper.add_notice_handler(lambda notice: warnings.append(warning_of(notice)))
    index.swap(model=anchored, force=True)
    assert "codes will search by exact distance: reader; model" in "".join(filter(None, warnings))
    store.load(told, anchored)
    with pytest.raises(MissingRightsError):
        store.load(reader, anchored)
    assert len(HashIndex.open(reader, "items_idx").search([1.0] * 8)) == 10
