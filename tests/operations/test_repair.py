"""A repair brings an index back into order, says what it did, and leaves alone what is well."""

import numpy as np
import pytest
from fixtures.catalog import contents
from fixtures.checks import assert_fresh, former, other_sets
from fixtures.health import assert_quiet, findings
from fixtures.indexes import indexed, with_access
from fixtures.landmarks import assert_listed, relations, tables_of

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim, release
from pg_hashindex.errors import InUseError, InvalidInputError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.verifying import Verifier
from pg_hashindex.models.layers import Layer
from pg_hashindex.models.model import Model
from pg_hashindex.operations import repairs as repairing

pytestmark = pytest.mark.newest

QUERY = [1.0, -1.0, 2.0, 0.5, 0.25, -0.25, 1.0, -2.0]


def reopened(index):
    return HashIndex.open(index.connection, index.name)


def everything(index):
    """The contents of the database, and the transaction that wrote each code and catalog row."""
    codes = index.codes.as_string(index.connection)
    rows = index.connection.execute(
        f"SELECT xmin::text, ctid::text, t::text FROM {codes} t "
        "UNION ALL SELECT xmin::text, ctid::text, s::text FROM hashindex.index_set s "
        "UNION ALL SELECT xmin::text, oid::text, tgname || tgenabled::text FROM pg_trigger "
        "UNION ALL SELECT xmin::text, oid::text, proname FROM pg_proc "
        "WHERE pronamespace = 'hashindex'::regnamespace".encode()
    ).fetchall()
    return contents(index.connection), sorted(rows)


@pytest.mark.parametrize("access", ["scan", "lists"])
def test_where_all_is_well_nothing_changes(index, access):
    with_access(index, access)
    index.encode()
    before = everything(index)
    for full in (False, True):
        done = operations.repair(reopened(index), full=full)
        assert (done.done, done.left) == ((), ())
        assert everything(index) == before


def test_comments_are_the_user_s(connection, items, model):
    """A repair does not read them, and keeps them where objects are made again."""
    connection.execute("ALTER TABLE items ADD UNIQUE (category, id), ALTER category SET NOT NULL")
    index = indexed(connection, key_columns=["category", "id"])
    connection.execute("SELECT hashindex.create_functions('lsh')")
    named = connection.execute(
        "SELECT o.kind, e.object, e.id FROM hashindex.object o "
        "JOIN hashindex._existing() e USING (kind, name)"
    ).fetchall()
    assert {kind for kind, _, _ in named} == {"function", "table", "trigger", "type"}
    for kind, name, _ in named:
        connection.execute(f"COMMENT ON {kind} {name} IS 'index of others: mine'".encode())
    assert_quiet(index)
    assert operations.repair(index).done == ()
    connection.execute("ALTER FUNCTION hashindex.search_items_idx COST 7")
    assert findings(index)["functions"].status == "broken"
    assert operations.repair(index).done == ("recreated the functions",)
    connection.execute("SELECT hashindex.rebuild_functions()")
    assert_quiet(index)
    for kind, name, number in named:
        catalog = {"function": "pg_proc", "table": "pg_class"}.get(kind, f"pg_{kind}")
        found = connection.execute("SELECT obj_description(%s, %s)", [number, catalog]).fetchone()
        assert found == ("index of others: mine",), name
    assert operations.list_orphans(connection) == []


@pytest.mark.parametrize("verb", ["search", "sync"])
def test_functions_that_are_missing(index, verb):
    before = index.search(QUERY, 20)
    index.connection.execute(f"DROP FUNCTION hashindex.{verb}_items_idx CASCADE".encode())
    index.connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id = 300")
    done = operations.repair(index).done
    assert done[0] == "recreated the functions"
    # Its triggers went with it.
    assert len(done) == (1 if verb != "sync" else 4)
    assert_fresh(index)
    if verb != "sync":
        assert [hit for hit in index.search(QUERY, 20) if hit.id != 300] == [
            hit for hit in before if hit.id != 300
        ][: len(index.search(QUERY, 20))]
    assert index.within(QUERY, 12)
    assert operations.repair(index).done == ()


def test_a_changed_function(index):
    index.connection.execute(
        "CREATE OR REPLACE FUNCTION hashindex.sync_items_idx() RETURNS trigger "
        "LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
    )
    assert operations.repair(index).done == ("recreated the functions",)
    assert len(index.within(QUERY, 12)) == 300


@pytest.mark.parametrize("how", ["DISABLE TRIGGER ALL", "ENABLE REPLICA TRIGGER {}", "DROP"])
def test_triggers_that_were_away(index, how):
    """All codes are checked, since writes went unseen."""
    connection = index.connection
    names = connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass"
    ).fetchall()
    for (name,) in names:
        change = f"ALTER TABLE items {how.format(name)}"
        connection.execute((f"DROP TRIGGER {name} ON items" if how == "DROP" else change).encode())
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
    connection.execute("UPDATE items SET embedding = NULL WHERE id BETWEEN 10 AND 14")
    connection.execute("DELETE FROM items WHERE id BETWEEN 15 AND 20")
    connection.execute("INSERT INTO items VALUES (1001, 'a', '[1,2,3,4,5,6,7,8]')")
    done = "created missing" if how == "DROP" else "enabled"
    assert operations.repair(index).done == (
        f"{done} triggers on public.items",
        "removed 11 codes of rows that are gone or have no vector",
        "removed 9 codes that did not belong to their rows",
        "encoded 10 rows",
    )
    assert_fresh(index)
    connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id > 280")
    assert_fresh(index)
    assert operations.repair(index).done == ()


def test_triggers_that_always_fire_are_left_so(index):
    name = index.connection.execute(
        "SELECT max(tgname) FROM pg_trigger WHERE tgrelid = 'items'::regclass"
    ).fetchone()
    index.connection.execute(f"ALTER TABLE items ENABLE ALWAYS TRIGGER {name[0]}".encode())
    before = everything(index)
    assert operations.repair(index).done == ()
    assert everything(index) == before


def test_codes_that_are_not_those_of_their_rows(index):
    """If a sample finds codes that became wrong unseen, all are compared."""
    connection = index.connection
    connection.execute("ALTER TABLE items DISABLE TRIGGER ALL")
    connection.execute("UPDATE hashindex.set_1_codes SET code = ~code WHERE id % 3 = 0")
    connection.execute("ALTER TABLE items ENABLE TRIGGER ALL")
    done = operations.repair(index)
    assert done.left == ()
    assert done.done == ("removed 100 codes that did not belong to their rows", "encoded 100 rows")
    assert_fresh(index)


@pytest.mark.newest
def test_vectors_that_were_written_again_without_triggers(connection, items, model):
    connection.execute(
        "CREATE TABLE squares (id int PRIMARY KEY, root vector(8), "
        "embedding vector(8) GENERATED ALWAYS AS (root) STORED)"
    )
    connection.execute("INSERT INTO squares SELECT id, embedding FROM items")
    index = indexed(connection, "squares", table="squares")
    connection.execute("ALTER TABLE squares ALTER COLUMN embedding SET EXPRESSION AS (root * root)")
    assert operations.check(index).status == "broken"
    assert operations.repair(index).left == ()
    assert_fresh(index)
    assert operations.check(index).status == "ok"


def test_rows_without_codes_and_codes_without_rows(connection, items, model):
    index = indexed(connection, "i")
    connection.execute(
        "DELETE FROM hashindex.set_1_codes; "
        "INSERT INTO hashindex.set_1_codes (id, code) VALUES (7000, 0::bit(12)), (7001, 0::bit(12))"
    )
    assert operations.repair(index).done == (
        "removed 2 codes of rows that are gone or have no vector",
        "encoded 300 rows",
    )
    assert_fresh(index)


def test_a_missing_code_table(index):
    connection = index.connection
    before = index.search(QUERY, 20)
    connection.execute("DROP TABLE hashindex.set_1_codes")
    # Until then, searches are exact without a table of codes.
    assert index.search(QUERY, 5) == before[:5]
    assert operations.repair(index).done == ("recreated the codes", "encoded 300 rows")
    assert index.search(QUERY, 20) == before
    assert_fresh(index)


@pytest.mark.parametrize("listed_template", ["l2"], indirect=True)
def test_landmarks_that_are_gone(listed):
    connection = listed.connection
    before = listed.search(QUERY, 20, candidates=3000, effort=1000)
    connection.execute(f"DROP TABLE hashindex.{tables_of(listed)[1]}".encode())
    # Until then, searches are exact.
    assert listed.search(QUERY, 20) == before
    assert operations.repair(listed).done == (
        "removed incomplete landmarks",
        "built the landmarks again",
    )
    assert (reopened(listed).access, reopened(listed).state) == ("lists", "used")
    assert_listed(listed)
    assert listed.search(QUERY, 20, candidates=3000, effort=1000) == before
    assert operations.repair(listed).done == ()


@pytest.mark.parametrize("listed_template", ["l2"], indirect=True)
@pytest.mark.parametrize("fault", ["DROP TABLE", "TRUNCATE"])
def test_landmarks_of_the_former_set_that_are_gone(listed, as_role, fault):
    """A rollback then finds a set whose searches rank all codes, for its readers too."""
    connection = listed.connection
    reader = as_role("reader")
    connection.execute("GRANT SELECT ON items TO reader")
    listed.grant("reader")
    before = listed.search(QUERY, 20, candidates=3000, effort=1000)
    _, landmarks = tables_of(listed)
    listed.swap(access="scan", force=True)
    connection.execute(f"{fault} hashindex.{landmarks}".encode())
    assert operations.repair(listed).done == ("removed incomplete landmarks of the former set",)
    assert operations.repair(listed).done == ()
    listed.rollback()
    assert_fresh(reopened(listed))
    assert listed.search(QUERY, 20, candidates=3000) == before
    assert HashIndex.open(reader, "items_idx").search(QUERY, 20, candidates=3000) == before
    listed.prune()
    listed.rebalance()
    assert_listed(reopened(listed))


@pytest.mark.parametrize("listed_template", ["l2"], indirect=True)
@pytest.mark.parametrize("landmark", ["NULL", "99999"])
def test_lists_that_lack_rows(listed, landmark):
    codes, _ = tables_of(listed)
    unlist = f"UPDATE hashindex.{codes} SET landmark = {landmark} WHERE landmark < 10"
    lacking = listed.connection.execute(unlist.encode()).rowcount
    assert lacking
    assert operations.repair(listed).done == (f"listed {lacking} rows that no landmark had",)
    assert_listed(listed)
    assert operations.repair(listed).done == ()


@pytest.mark.parametrize("listed_template", ["l2"], indirect=True)
def test_an_emptied_table_of_landmarks_waits_for_rows(listed):
    connection = listed.connection
    connection.execute(f"TRUNCATE hashindex.{tables_of(listed)[1]}".encode())
    connection.execute("TRUNCATE items")
    assert operations.repair(listed).done == ()
    connection.execute("INSERT INTO items VALUES (1, 'a', '[1,2,3,4,5,6,7,8]')")
    operations.repair(listed)
    assert reopened(listed).access == "lists"
    assert listed.search(QUERY)[0].id == 1
    assert_fresh(listed)


def test_leftovers_of_runs(index):
    """An INVALID index, and a table of landmarks that is no longer needed."""
    connection = index.connection
    before = relations(connection)
    connection.execute(
        "CREATE INDEX by_length ON hashindex.set_1_codes (length(code));"
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'hashindex.by_length'::regclass;"
        "CREATE TABLE hashindex.set_99_staged (id int);"
        "SELECT hashindex._adopt(i, 'hashindex.set_99_staged', 'codes') FROM hashindex.index i"
    )
    assert operations.repair(index).done == (
        "dropped table hashindex.set_99_staged, which a run had left",
        "dropped index hashindex.by_length, which a run had left",
    )
    assert relations(connection) == before


@pytest.fixture
def other(connection, vectors):
    return store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))


def begin_swap(index, model="other"):
    index.connection.execute(
        "SELECT hashindex._begin_swap('items_idx', %s, NULL, NULL, NULL, NULL, false)", [model]
    )


def test_a_swap_that_was_cut_off_is_finished(index, other):
    begin_swap(index)
    # The recall of more bits is better, or the same.
    assert operations.repair(index).done == (
        "finished a set that was being built: codes of other:1 in lists without landmarks",
    )
    now = reopened(index)
    assert (now.model, [row.state for row in other_sets(now)]) == ("other", ["former"])
    assert_fresh(now)
    assert operations.repair(now).done == ()


def test_a_swap_that_was_cut_off_is_undone(index, other):
    before = contents(index.connection)
    begin_swap(index)
    assert operations.repair(index, undo=True).done == (
        "gave up a set that was not in use: codes of other:1 in lists without landmarks",
    )
    assert contents(index.connection) == before
    assert operations.repair(index, undo=True).done == ()


def fill(index):
    """Add rows, of which no number of candidates that is tried reaches all."""
    index.connection.execute(
        "INSERT INTO items (id, embedding) SELECT n, array_agg(random() - 0.5)::vector "
        "FROM generate_series(1001, 6000) n, generate_series(1, 8) d GROUP BY n"
    )
    index.configure(candidates=2000)


def test_a_swap_that_would_lower_recall_is_left(index):
    weights = np.zeros((12, 8), np.float32)
    poor = Model("poor", "byhand", 8, (Layer("affine", weights, np.ones(12, np.float32)),))
    store.save(index.connection, poor)
    fill(index)
    begin_swap(index, "poor")
    found = operations.repair(index)
    assert len(found.left) == 1
    assert "recall falls" in found.left[0]
    assert reopened(index).model == "lsh"
    operations.repair(index, undo=True)
    assert operations.repair(index).left == ()


def test_the_codes_of_before_are_brought_into_order_too(index, other):
    connection = index.connection
    index.swap(model="other", force=True)
    connection.execute("ALTER TABLE items DISABLE TRIGGER ALL")
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
    done = operations.repair(reopened(index)).done
    assert "removed 9 codes of the former set that did not belong to their rows" in done
    assert "removed 9 codes that did not belong to their rows" in done
    assert_fresh(reopened(index))
    assert_fresh(former(index))


def test_a_repair_that_is_cut_off_at_any_step_can_be_run_again(index, other, monkeypatch):
    connection = index.connection

    class CutOffError(Exception):
        pass

    def cut_off_after(steps):
        left = [steps]
        whole = repairing.retry_while_locked

        def step(*arguments, **options):
            if not left[0]:
                raise CutOffError
            left[0] -= 1
            return whole(*arguments, **options)

        return step

    for steps in (0, 1, 3, 5, 9, 12):
        index = reopened(index)
        if steps == 0:
            begin_swap(index)
        connection.execute(
            "ALTER TABLE items DISABLE TRIGGER ALL;DROP FUNCTION hashindex.search_items_idx"
        )
        old, new = ("embedding", "v") if index.column_name == "embedding" else ("v", "embedding")
        connection.execute(
            f"UPDATE items SET {old} = subvector({old} || {old}, 2, 8) WHERE id < 99".encode()
        )
        connection.execute(f"ALTER TABLE items RENAME {old} TO {new}".encode())
        with monkeypatch.context() as patch:
            patch.setattr(repairing, "retry_while_locked", cut_off_after(steps))
            try:
                operations.rebind(index, column=new)
            except CutOffError:
                assert steps < 12
        operations.rebind(reopened(index), column=new)
        for row in (reopened(index), *other_sets(index)):
            assert_fresh(row)
        assert operations.repair(reopened(index)).done == ()
        assert len(reopened(index).search(QUERY, 20)) == 20


def test_unseen_writes_are_recorded_until_compared(index, monkeypatch):
    """Triggers are there again, but the run was cut off before it looked at the codes."""
    connection = index.connection
    connection.execute("ALTER TABLE items DISABLE TRIGGER ALL")
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id < 10")
    with monkeypatch.context() as patch:
        patch.setattr(Verifier, "verify", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operations.repair(index)
        connection.execute("UPDATE items SET embedding = '[1,2,3,4,5,6,7,8]' WHERE id > 290")
        with pytest.raises(ZeroDivisionError):
            operations.repair(index)
    assert "codes have not been compared" in findings(index)["triggers"].detail
    assert operations.repair(index).done == (
        "removed 9 codes that did not belong to their rows",
        "encoded 9 rows",
    )
    assert_fresh(index)
    assert operations.repair(index).done == ()
    # So it is where another column was chosen.
    connection.execute("ALTER TABLE items ADD other vector(8)")
    connection.execute("UPDATE items SET other = subvector(embedding || embedding, 2, 8)")
    with monkeypatch.context() as patch:
        patch.setattr(Verifier, "verify", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operations.rebind(index, column="other")
    operations.repair(reopened(index))
    assert reopened(index).column_name == "other"
    assert_fresh(reopened(index))


def test_two_repairs_at_once(index, url):
    with connect(url) as session:
        claim(session, "repair", "items_idx")
        with pytest.raises(InUseError, match="is being repaired by another session"):
            operations.repair(index)
        release(session, "repair", "items_idx")
        assert operations.repair(index).done == ()


def test_inside_of_a_transaction(index):
    with index.connection.transaction(), pytest.raises(InvalidInputError, match="transaction"):
        operations.repair(index)


@pytest.mark.parametrize("listed_template", ["l2"], indirect=True)
@pytest.mark.parametrize(
    "fault",
    [
        "DROP TABLE hashindex.{codes}",
        "ALTER TABLE hashindex.{codes} DROP CONSTRAINT {codes}_pkey",
        "ALTER TABLE hashindex.{codes} ALTER code TYPE bit(5) USING code::bit(5)",
        "DROP INDEX hashindex.{landmarks}_centre_idx",
        "DROP INDEX hashindex.{codes}_landmark_idx",
        "DELETE FROM hashindex.{codes} WHERE id < 30",
    ],
)
def test_repair_fixes_all_that_check_reports(listed, fault):
    """Faults of lists with landmarks; the tests above repair others, with their messages."""

    def faults():
        rows = listed.connection.execute(
            "SELECT check_name, status FROM hashindex.health('items_idx')"
        ).fetchall()
        return {(name, status) for name, status in rows if status != "ok"}

    before = faults()
    assert not any(status == "broken" for _, status in before)
    codes, landmarks = tables_of(listed)
    listed.connection.execute(fault.format(codes=codes, landmarks=landmarks).encode())
    assert faults() - before
    done = operations.repair(listed)
    assert done.done
    assert done.left == ()
    assert faults() <= before


@pytest.mark.parametrize(
    "change",
    [
        "DROP category, ADD category text GENERATED ALWAYS AS ('new' || id % 3) STORED",
        "ALTER category TYPE text USING 'new' || id % 3",
    ],
)
def test_tenants_that_the_table_computes_again(connection, items, model, change):
    """It fires no trigger."""
    index = indexed(connection, tenant="category")
    connection.execute(f"ALTER TABLE items {change}".encode())
    found = findings(index, full=True)["tenant_column"]
    assert (found.status, found.advice) == ("broken", "pg-hashindex index repair items_idx --full")
    operations.repair(index, full=True)
    assert len(reopened(index).search(QUERY, 10, tenant="new1")) == 10
    assert_quiet(index)


@pytest.mark.parametrize("kind", ["missing", "gone"])
def test_missing_or_orphaned_codes_cause_a_full_check(index, kind):
    """Writes went unseen, so codes of changed vectors may be wrong, too few for a sample."""
    connection = index.connection
    connection.execute("SET session_replication_role = replica")
    connection.execute(
        "UPDATE items SET embedding = (SELECT array_agg(-x) FROM unnest(embedding::real[]) x)"
        "::vector WHERE id IN (7, 77)"
    )
    if kind == "missing":
        connection.execute("INSERT INTO items VALUES (1001, 'a', '[1,2,3,4,5,6,7,8]')")
    else:
        connection.execute("UPDATE items SET embedding = NULL WHERE id = 200")
    connection.execute("RESET session_replication_role")
    done = operations.repair(index).done
    assert "removed 2 codes that did not belong to their rows" in done
    assert_fresh(index)
    assert operations.repair(index).done == ()


def test_a_repair_that_is_cut_off_looks_at_all_codes_the_next_time(connection, index, monkeypatch):
    """The signs of unseen writes are gone by then."""
    connection.execute("SET session_replication_role = replica")
    connection.execute("UPDATE items SET embedding = '[8,7,6,5,4,3,2,1]' WHERE id = 7")
    connection.execute("UPDATE items SET embedding = NULL WHERE id = 200")
    connection.execute("RESET session_replication_role")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Verifier, "verify", _interrupt)
        operations.repair(index)
    assert operations.repair(index).done == (
        "removed 1 codes that did not belong to their rows",
        "encoded 1 rows",
    )
    assert_fresh(index)


def _interrupt(*_):
    raise KeyboardInterrupt
