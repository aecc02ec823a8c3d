"""Sets of pgvector by Python and by commands: built while the table is in use."""

import json
import time
from contextlib import contextmanager
from threading import Thread

import psycopg
import pytest
from fixtures.faults import eventually
from test_sets import docs, search  # noqa: F401 (a fixture)

from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim, release
from pg_hashindex.db.sql_files import query
from pg_hashindex.db.work import claimed_work
from pg_hashindex.errors import (
    DatabaseStateError,
    InUseError,
    InvalidInputError,
    LowerRecallError,
)
from pg_hashindex.index import sets
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import advice, tuning

TABLE = {"table": "docs", "column": "embedding"}


def make_twin(connection):
    """Make a table of the same name in another schema, with an index of the same name."""
    connection.execute("CREATE SCHEMA other; CREATE TABLE other.docs (LIKE docs INCLUDING ALL)")
    connection.execute("CREATE INDEX docs_hnsw ON other.docs USING hnsw (embedding vector_l2_ops)")


@contextmanager
def killed(monkeypatch):
    """Stop a build in the block as SIGKILL does: nothing is tidied up."""

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(sets, "_run", stopped)
        patch.setattr(sets, "_give_up", lambda *_: None)
        yield


def refused_swap(connection):
    """Return an index of vectors, with a ready set of codes that say nothing beside its own."""
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    connection.execute("SELECT hashindex.train('poor', 'docs', 'embedding', 'sign')")
    connection.execute("ALTER TABLE docs ADD zero bit(32) DEFAULT 0::bit(32)")
    with pytest.raises(LowerRecallError, match="stays beside"):
        index.swap(model="poor", code_column="zero")
    assert index.set == "vectors as halfvec in hnsw"
    return index


def relations(connection):
    rows = connection.execute(
        "SELECT indexname FROM pg_indexes WHERE tablename = 'docs' ORDER BY 1"
    ).fetchall()
    return [name for (name,) in rows]


def test_create_swap_rollback_prune_rename_drop(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE)
    assert index.set == "codes of docs:1 in hnsw"
    assert relations(connection) == ["docs_hnsw", "docs_pkey"]
    assert len(index.search(docs[0], 20)) == 20
    assert len(index.search(docs[0], 20, filter="account = 3")) == 20
    done = index.swap(model="none")
    assert done.in_use
    assert done.set == "vectors as halfvec in hnsw"
    assert relations(connection) == ["docs_hnsw", "docs_hnsw_2", "docs_pkey"]
    assert index.rollback() == "codes of docs:1 in hnsw"
    assert index.prune() == 1
    assert relations(connection) == ["docs_hnsw", "docs_pkey"]
    renamed = index.rename("blue")
    assert len(renamed.search(docs[0])) == 10
    renamed.drop()
    assert relations(connection) == ["docs_pkey"]


def test_a_swap_with_a_lower_recall_is_not_taken(connection, docs):  # noqa: F811
    assert refused_swap(connection).swap(force=True).in_use


def test_what_a_run_has_left_is_replaced(connection, docs, monkeypatch):  # noqa: F811
    from pg_hashindex.index import sets

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sets, "_run", stopped)
    with pytest.raises(KeyboardInterrupt):
        HashIndex.create(connection, "docs", **TABLE, model="none")
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)
    monkeypatch.setattr(sets, "_give_up", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        HashIndex.create(connection, "docs", **TABLE, model="none")
    assert connection.execute("SELECT state FROM hashindex.index_set").fetchone() == ("building",)
    monkeypatch.undo()
    connection.execute("CREATE INDEX docs_hnsw ON docs (account)")
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    assert len(index.search(docs[0])) == 10


def test_commands(connection, docs, on):  # noqa: F811
    shown = json.loads(
        on("index", "create", "docs", "--table", "docs", "--column", "embedding", "--json").stdout
    )
    assert shown["set"] == "codes of docs:1 in hnsw"
    assert "docs" in on("index", "show").stdout
    assert "MB" in on("index", "show", "docs").stdout
    assert (
        json.loads(on("index", "configure", "docs", "--candidates", "77", "--json").stdout)[
            "candidates"
        ]
        == 77
    )
    assert "in_use" in on("index", "swap", "docs", "--access", "ivfflat", "--json").stdout
    on("index", "rollback", "docs")
    on("index", "prune", "docs")
    on("index", "rename", "docs", "blue")
    on("index", "drop", "blue", "--yes")


def troubles(connection, name="docs"):
    rows = connection.execute(
        "SELECT check_name, status FROM hashindex.health(%s, true) WHERE status <> 'ok'", [name]
    ).fetchall()
    return dict(rows)


CHANGES = {
    "a dropped index": ("DROP INDEX docs_hnsw", {"index": "warning"}),
    "a renamed table": ("ALTER TABLE docs RENAME TO papers", {"table": "broken"}),
    "a renamed column": ("ALTER TABLE docs RENAME embedding TO v", {"table": "broken"}),
    "a renamed key": ("ALTER TABLE docs RENAME id TO doc_id", {"table": "broken"}),
    "another schema": (
        "CREATE SCHEMA other; ALTER TABLE docs SET SCHEMA other", {"table": "broken"},
    ),
    "a dropped function": ("DROP FUNCTION hashindex.search_docs", {"functions": "broken"}),
    "a table that is written again": ("CLUSTER docs USING docs_pkey", {}),
    "an index that is built again": ("REINDEX INDEX CONCURRENTLY docs_hnsw", {}),
    "an empty table": ("TRUNCATE docs", {}),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_named_and_repaired(connection, docs, on, change):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    assert troubles(connection) == {}
    statement, expected = CHANGES[change]
    for one in statement.split("; "):
        connection.execute(one.encode())
    if change == "an empty table":
        assert search(connection, docs[0]) == []
        return
    assert troubles(connection) == expected
    if expected == {"table": "broken"}:
        with pytest.raises(psycopg.Error, match="pg-hashindex index repair docs"):
            search(connection, docs[0])
    if expected in ({}, {"index": "warning"}):
        assert len(search(connection, docs[0], 50)) == 50
    assert on("index", "check", "docs", code=1 if expected else 0).output
    on("index", "repair", "docs")
    assert troubles(connection) == {}
    index = HashIndex.open(connection, "docs")
    assert [hit.id for hit in index.search(docs[7], 1)] == [8]


@pytest.mark.parametrize("store", [False, True])
def test_renamed_columns_beside_codes(connection, docs, on, store):  # noqa: F811
    """The column of codes, where it is the user's, and the vectors."""
    if store:
        HashIndex.create(connection, "docs", **TABLE, store=True)
    else:
        on("model", "train", "codes", "--table", "docs", "--column", "embedding")
        connection.execute("ALTER TABLE docs ADD COLUMN c bit(96)")
        on("model", "encode", "codes", "--table", "docs", "--column", "embedding", "--into", "c")
        HashIndex.create(connection, "docs", **TABLE, model="codes", code_column="c")
    codes, _ = connection.execute("SELECT code_column, id FROM hashindex.index_set").fetchone()
    connection.execute(f"ALTER TABLE docs RENAME {codes} TO other".encode())
    connection.execute("ALTER TABLE docs RENAME embedding TO v")
    assert troubles(connection)["table"] == "broken"
    on("index", "repair", "docs")
    assert troubles(connection).keys() <= {"dead_rows"}
    assert search(connection, docs[7], 1)[0][0] == 8


def test_a_renamed_tenant_is_not_guessed(connection, docs, on):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE, tenant="account")
    connection.execute("ALTER TABLE docs RENAME account TO customer")
    assert troubles(connection) == {"table": "broken"}
    assert 'tenant column "account"' in on("index", "repair", "docs", code=3).output
    connection.execute("UPDATE hashindex.index SET tenant_column = 'customer' WHERE name = 'docs'")
    on("index", "repair", "docs")
    assert troubles(connection) == {}
    found = search(connection, docs[7], 3, tenant=8)
    assert len(found) == 3


def test_an_index_of_the_users_that_is_dropped(connection, docs, on):  # noqa: F811
    connection.execute(
        "CREATE INDEX mine ON docs USING hnsw ((embedding::halfvec(32)) halfvec_cosine_ops)"
    )
    assert HashIndex.create(connection, "docs", **TABLE, model="none").relation == "mine"
    connection.execute("DROP INDEX mine")
    assert troubles(connection) == {"index": "warning"}
    on("index", "repair", "docs")
    assert troubles(connection) == {}
    assert relations(connection) == ["docs_hnsw", "docs_pkey"]


def test_our_index_under_another_name_stays_ours(connection, docs, on):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    connection.execute("ALTER INDEX docs_hnsw RENAME TO other")
    assert troubles(connection) == {"index": "warning"}
    on("index", "repair", "docs")
    assert troubles(connection) == {}
    on("index", "drop", "docs", "--yes")
    assert relations(connection) == ["docs_pkey"]


def test_a_table_that_is_renamed_after_a_restore(connection, docs, on):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    # As a restore leaves it: the table has another oid then.
    connection.execute("UPDATE hashindex.index_set SET table_oid = 1")
    on("index", "repair", "docs")
    connection.execute("ALTER TABLE docs RENAME TO papers")
    assert "the table is public.papers now" in on("index", "repair", "docs").output


def test_a_name_that_several_tables_have_is_not_guessed(connection, docs, on):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    make_twin(connection)
    connection.execute("ALTER TABLE docs RENAME TO papers")
    assert "several tables have" in on("index", "repair", "docs", code=3).output


def test_a_column_of_another_type_is_named(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE, model="none")
    connection.execute("TRUNCATE docs; ALTER TABLE docs ALTER embedding TYPE text")
    assert troubles(connection)["dimension"] == "broken"


def test_work_on_lists_is_refused_for_sets(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE)
    for call in (index.encode, index.rebalance, lambda: index.grant("postgres")):
        with pytest.raises(InvalidInputError, match="is kept by pgvector"):
            call()
    for statement, why in (
        ("code_of('docs', '1')", "is kept by pgvector"),
        ("grant_reader('docs', 'postgres')", "is kept by pgvector"),
        ("near_duplicates('docs', 0.1, 3)", "searches codes of docs:1 in hnsw, and"),
    ):
        with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=why):
            connection.execute(f"SELECT hashindex.{statement}".encode())


@pytest.mark.parametrize("access", ["hnsw", "lists"])
def test_words_and_vectors_of_a_tenant(connection, docs, access):  # noqa: F811
    connection.execute(
        "ALTER TABLE docs ADD body text; UPDATE docs SET body = 'row ' || id || ' of ' || account"
    )
    connection.execute("SELECT hashindex.train('texts', 'docs', 'embedding')")
    index = HashIndex.create(
        connection, "docs", **TABLE, model="texts", access=access, tenant="account"
    )
    for given, tenants in (({"tenant": 7}, {7}), ({"all_tenants": True}, set(range(50)))):
        found = index.hybrid(docs[0], "of 7", "body", k=12, **given)
        assert len(found) == 12
        assert {hit.id % 50 for hit in found} <= tenants
    with pytest.raises(InvalidInputError, match="names none"):
        index.hybrid(docs[0], "of 7", "body")
    assert [hit.id % 50 for hit in index.search(docs[0], 5, tenant=7)] == [7] * 5
    assert len(index.search(docs[0], 70, all_tenants=True)) == 70


def test_a_build_that_waits_names_the_process(connection, docs, url, on, monkeypatch):  # noqa: F811
    monkeypatch.setattr("pg_hashindex.index.sets._WAIT_SECONDS", 0.2)
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()"
    with psycopg.connect(url) as writer:
        writer.execute("UPDATE docs SET account = 3 WHERE id = 7")
        pid = writer.info.backend_pid

        def end():
            eventually(lambda: connection.execute(waiting).rowcount > 0)
            time.sleep(0.6)
            writer.rollback()

        ending = Thread(target=end)
        ending.start()
        made = on("index", "create", "docs", "--table", "docs", "--column", "embedding",
                  "--model", "none")  # fmt: skip
        ending.join()
    assert f"waits for the transaction of process {pid}" in made.output


def test_codes_are_proposed_where_vectors_outgrow_memory(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE, model="none")
    advice = "SELECT advice FROM hashindex.health('docs') WHERE check_name = 'memory'"
    assert connection.execute(advice).fetchone() == (None,)
    connection.execute("SET effective_cache_size = '1MB'")
    assert "index swap docs --model" in connection.execute(advice).fetchone()[0]
    assert troubles(connection) == {}


def test_a_build_ends_soon_after_its_client(connection, docs, monkeypatch):  # noqa: F811
    """The server would finish it, for an hour perhaps, and refuse the command that is run again."""
    seen, show = [], "SHOW client_connection_check_interval"
    run = sets._run

    def watched(session, statements, table):
        seen.append(session.execute(show).fetchone()[0])
        run(session, statements, table)

    monkeypatch.setattr(sets, "_run", watched)
    HashIndex.create(connection, "docs", table="docs", column="embedding", model="none")
    assert seen == ["500ms"]
    assert connection.execute(show).fetchone() == ("0",)


def test_a_rollback_that_waits_for_a_prune(connection, docs, url):  # noqa: F811
    """The set that it would return to is gone then; the one in use stays."""
    index = HashIndex.create(connection, "docs", **TABLE)
    index.swap(model="none")
    failures = []

    def roll_back(session):
        try:
            session.execute("SELECT hashindex.rollback_index('docs')")
        except psycopg.Error as error:
            failures.append(error)

    waiting = "SELECT FROM pg_locks WHERE pid = %s AND NOT granted"
    with connect(url) as returning:
        pid = [returning.info.backend_pid]
        thread = Thread(target=roll_back, args=[returning])
        with connection.transaction():
            connection.execute("SELECT hashindex.prune_index('docs')")
            thread.start()
            eventually(lambda: connection.execute(waiting, pid).rowcount > 0)
        thread.join(30)
    (failure,) = failures
    assert "was dropped meanwhile" in str(failure)
    assert HashIndex.open(connection, "docs").set == "vectors as halfvec in hnsw"


def test_a_set_that_is_being_built_is_not_pruned(connection, docs, url):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    with connect(url) as building, claimed_work(building, "swap", "docs"):
        building.execute(
            "SELECT hashindex._begin_swap('docs', 'none', NULL, NULL, NULL, NULL, false)"
        )
        with pytest.raises(psycopg.errors.ObjectInUse, match="another session is building a set"):
            connection.execute("SELECT hashindex.prune_index('docs')")
    assert connection.execute("SELECT hashindex.prune_index('docs')").fetchone() == (1,)


def test_the_table_of_another_is_not_taken_for_a_renamed_one(connection, docs, on):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    make_twin(connection)
    connection.execute("DROP TABLE docs")
    assert "is gone" in on("index", "repair", "docs", code=3).output


def test_lists_that_are_being_built_keep_their_name(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    connection.execute(
        "SELECT hashindex._begin_swap('docs', NULL, 'lists', NULL, NULL, NULL, false)"
    )
    with pytest.raises(psycopg.errors.ObjectInUse, match='lists of index "docs" are being built'):
        connection.execute("SELECT hashindex.rename_index('docs', 'papers')")


def test_another_set_is_not_exchanged_for_the_one_that_is_ready(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, store=True)
    connection.execute("ALTER TABLE docs ADD zero bit(32) DEFAULT 0::bit(32)")
    connection.execute("SELECT hashindex.train('poor', 'docs', 'embedding', 'sign')")
    with pytest.raises(LowerRecallError):
        index.swap(model="poor", store=False, code_column="zero")
    with pytest.raises(InUseError, match="has a ready set beside") as said:
        index.swap(store=False, force=True)
    assert "index swap docs --force" in str(said.value)


def test_searches_of_a_renamed_table_by_any_function(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    connection.execute("ALTER TABLE docs RENAME TO papers")
    query = str(docs[0].tolist())
    for call in ("search('docs', %s::vector)", "candidates('docs', %s::vector)",
                 "explain_search('docs', %s::vector)"):  # fmt: skip
        with pytest.raises(psycopg.errors.UndefinedTable, match='of index "docs" does not') as said:
            connection.execute(f"SELECT hashindex.{call}".encode(), [query])
        assert "index repair docs" in said.value.diag.message_hint


def test_a_plan_is_of_pgvectors_sets(connection, docs):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE, access="lists")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="runs several statements"):
        connection.execute("SELECT hashindex.explain_search('docs', %s::vector)", [str([0.0] * 32)])


def test_names_that_look_like_parameters(connection, docs):  # noqa: F811
    connection.execute('ALTER TABLE docs RENAME embedding TO "v$1"')
    connection.execute('ALTER TABLE docs RENAME id TO "$2"')
    index = HashIndex.create(connection, "docs", table="docs", column="v$1")
    assert len(index.search(docs[0], 20)) == 20


@pytest.mark.slow
def test_candidates_of_a_rare_filter(connection):
    """As many rows are visited as hold the candidates that are wanted."""
    connection.execute(
        "CREATE TABLE points (id int PRIMARY KEY, v vector(3), part int);"
        "INSERT INTO points SELECT n, ARRAY[sin(n), cos(n * 7), n / 60000.0]::vector, n % 600"
        " FROM generate_series(1, 60000) n; ANALYZE points"
    )
    HashIndex.create(connection, "points", table="points", column="v", model="none")
    query = (
        "SELECT id FROM hashindex.candidates('points', '[0.1,0.2,0.9]', 90, filter => 'part = 3')"
    )
    assert len(connection.execute(query.encode()).fetchall()) >= 80


def test_tune_raises_the_lists_of_ivfflat(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, model="none", access="ivfflat")
    index = index.configure(candidates=20, effort=1)
    # pgvector's lists differ from build to build: one alone may hold .99.
    tuned = tuning.tune(index, 0.999, queries=100)
    assert tuned.own.recall < 0.999
    assert tuned.cause is None
    assert any(point.effort > 1 for point in tuned.points)
    assert tuning.apply(index, tuned).row.effort == tuned.best.effort


@pytest.mark.parametrize(("model", "said"), [("none", "the vectors themselves"), (None, "bits")])
def test_the_remedy_of_a_set(connection, docs, model, said):  # noqa: F811
    row = HashIndex.create(connection, "docs", **TABLE, model=model, metric="l2").row
    remedy = advice.remedy(row, advice.ModelFacts(), [], 0.95, None, 1.0)
    assert said in remedy
    assert (model is None) == ("--metric l2" in remedy)


def test_a_build_that_was_cut_off_is_not_to_be_encoded(connection, docs, on, monkeypatch):  # noqa: F811
    HashIndex.create(connection, "docs", **TABLE)
    with killed(monkeypatch):
        HashIndex.open(connection, "docs").swap(model="none")
    state = "SELECT count(*) FROM hashindex.index_set WHERE state = 'building'"
    assert connection.execute(state.encode()).fetchone() == (1,)
    said = on("index", "show", "docs").stderr
    assert "index repair docs --undo" in said
    assert "encode" not in said
    on("index", "repair", "docs", "--undo")
    assert connection.execute(state.encode()).fetchone() == (0,)


def test_repair_says_that_a_first_set_is_given_up(connection, docs, on, monkeypatch):  # noqa: F811
    with killed(monkeypatch):
        HashIndex.create(connection, "docs", **TABLE)
    assert "gave up its first set" in on("index", "repair", "docs").output
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


def test_a_former_set_that_lost_its_index_does_not_come_back(connection, docs):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE)
    index.swap(model="none", force=True)
    connection.execute("DROP INDEX docs_hnsw")
    with pytest.raises(DatabaseStateError, match="has lost its index docs_hnsw"):
        index.rollback()
    assert index.prune() == 1


def test_no_number_of_jobs_is_refused_after_work(connection, docs):  # noqa: F811
    for jobs in (0, "4"):
        with pytest.raises(InvalidInputError, match="jobs must be 1 to 64"):
            HashIndex.create(connection, "docs", **TABLE, jobs=jobs)
    assert connection.execute("SELECT count(*) FROM hashindex.index").fetchone() == (0,)


def test_a_column_that_is_not_filled_is_refused_before_a_build(connection, docs, monkeypatch):  # noqa: F811
    index = HashIndex.create(connection, "docs", **TABLE, model="none")
    connection.execute("ALTER TABLE docs ADD other vector(32)")
    monkeypatch.setattr(sets, "_build_relation", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(DatabaseStateError, match="3000 rows of public.docs"):
        index.swap(column="other")
    states = connection.execute("SELECT state FROM hashindex.index_set").fetchall()
    assert states == [("used",)]


def test_a_claim_is_taken_once(connection, url, docs):  # noqa: F811
    """Also of an index that is not there yet, which has no row to wait for."""
    claim(connection, "swap", "docs")
    with connect(url) as other:
        made = other.execute(
            query("locks.claim").replace("$1", "'swap'").replace("$2", "'docs'").replace("$3", "7")
        )
        assert made.fetchall() == []
    release(connection, "swap", "docs")


def test_settings_of_the_session_stay(connection, docs):  # noqa: F811
    connection.execute("SET maintenance_work_mem = '1MB'; SET lock_timeout = '7s'")
    HashIndex.create(connection, "docs", **TABLE, jobs=1)
    settings = "SELECT current_setting('maintenance_work_mem'), current_setting('lock_timeout')"
    assert connection.execute(settings).fetchone() == ("1MB", "7s")
