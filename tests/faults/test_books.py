"""No code is lost or stale after a fault in a build, a swap or a rollback; each says what to do."""

import os
import signal
import threading
import warnings

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from fixtures.checks import assert_fresh, former
from fixtures.faults import eventually
from fixtures.indexes import begin_lists, with_access
from fixtures.landmarks import assert_listed, tables_of
from pg_hashindex.cli import main
from psycopg import sql

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.db.locks import claim
from pg_hashindex.errors import BuildWarning, HashIndexError, InUseError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import build, encoding
from pg_hashindex.index.catalog import read_sets
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks import building, reading, workers

pytestmark = pytest.mark.newest

DOUBLED = "UPDATE items SET embedding = embedding + embedding"


@pytest.fixture
def swapped(connection, items, model, vectors):
    """An index of 300 rows with its former codes beside, which are behind by all keys."""
    store.save(connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    index = begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="scan"
    )
    index.encode()
    index.swap(model="other", force=True)
    connection.execute(DOUBLED)
    return index


def waits_for_lock(session, pid):
    return session.execute(
        "SELECT pid FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'", [pid]
    ).fetchone()


@pytest.mark.parametrize("again", ["exchange", "catch_up"])
def test_two_sessions_never_read_one_log(swapped, url, again):
    beside = former(swapped)
    statement = {
        "exchange": "SELECT hashindex.rollback_index('items_idx')",
        "catch_up": f"SELECT hashindex._catch_up({beside.set_id})",
    }[again]
    # The first takes a part of the log, as when there are more keys than it applies at once.
    swapped.connection.execute(
        sql.SQL("INSERT INTO {} SELECT 1 FROM generate_series(1, 12000)").format(beside.part("log"))
    )
    with connect(url) as first, psycopg.connect(url, autocommit=True) as second:
        with first.transaction():
            first.execute("SELECT hashindex._catch_up(%s)", [beside.set_id])
            thread = threading.Thread(target=second.execute, args=[statement])
            thread.start()
            eventually(lambda: waits_for_lock(swapped.connection, second.info.backend_pid))
        thread.join(60)
        assert not thread.is_alive()
    if again == "catch_up":
        swapped.rollback()
    assert_fresh(swapped)
    assert swapped.model == "lsh"


@pytest.mark.parametrize("verb", [HashIndex.rollback, HashIndex.prune])
def test_who_builds_a_set_is_named(swapped, url, verb):
    with connect(url) as other:
        claim(other, "swap", "items_idx")
        with pytest.raises(InUseError, match="is being built by another session"):
            verb(swapped)
    verb(swapped)
    assert_fresh(swapped)


@pytest.mark.parametrize("verb", [HashIndex.rollback, HashIndex.prune])
def test_a_session_that_encodes_goes_on_beside(swapped, url, monkeypatch, verb):
    """The set that it writes codes of comes out of use, and the other one may be gone."""
    swapped.connection.execute("DELETE FROM hashindex.set_2_codes WHERE id % 10 = 3")
    swapped.connection.execute("DELETE FROM hashindex.set_1_codes WHERE id % 10 = 4")
    encoded = encoding._Encoder._write
    done = []

    def change_first(self, batch):
        if not done:
            done.append(verb)
            with connect(url) as other, warnings.catch_warnings():
                warnings.simplefilter("ignore", BuildWarning)
                verb(HashIndex.open(other, "items_idx"))
                other.execute(DOUBLED)
        return encoded(self, batch)

    monkeypatch.setattr(encoding._Encoder, "_write", change_first)
    # After a prune, triggers write the codes of all rows.
    assert swapped.encode() == (30 if verb is HashIndex.rollback else 0)
    assert done
    assert_fresh(swapped)
    if verb is HashIndex.rollback:
        swapped.rollback()
        assert_fresh(swapped)


def test_encode_beside_rollbacks_leaves_right_codes(swapped, url):
    errors = []

    def encode():
        try:
            with connect(url) as session, warnings.catch_warnings():
                warnings.simplefilter("ignore", BuildWarning)
                for _ in range(10):
                    HashIndex.open(session, "items_idx").encode()
        except HashIndexError as error:
            errors.append(error)

    thread = threading.Thread(target=encode)
    thread.start()
    for _ in range(4):
        try:
            swapped.rollback()
        except HashIndexError as error:
            errors.append(error)
        swapped.connection.execute(DOUBLED)
    thread.join(60)
    assert all(isinstance(error, InUseError) for error in errors), errors
    assert_fresh(swapped)
    swapped.rollback()
    assert_fresh(swapped)


@pytest.fixture
def small_ranges(monkeypatch):
    """Ranges of some pages, each read in several blocks."""
    monkeypatch.setattr(reading.TableReader, "_fitting", lambda self, pages, rows: 12)
    monkeypatch.setattr(reading, "_BLOCK_ROWS", 20)
    monkeypatch.setattr(reading, "_MOST_ROWS_OF_PAGE", 200)


@pytest.mark.parametrize("fault", ["kill", "terminate"])
@pytest.mark.usefixtures("small_ranges")
def test_the_range_of_a_lost_process_is_read_again_as_a_whole(listed, url, monkeypatch, fault):
    """Some rows of it are deleted meanwhile, so that its blocks end elsewhere."""
    begin, lost = workers.Workers.begin, []

    def lose(self, pass_):
        begin(self, pass_)
        if "round" in pass_.task or lost:
            return pass_
        with psycopg.connect(url) as holder, connect(url) as other:
            (coming,) = read_sets(other, "items_idx", "building")
            holder.execute(sql.SQL("SELECT FROM {} FOR UPDATE").format(coming.part("ranges")))
            find = (
                "SELECT pid FROM pg_stat_activity WHERE application_name = "
                "'pg-hashindex build of items_idx' AND wait_event_type = 'Lock'"
            )
            eventually(lambda: other.execute(find).fetchone(), 60)
            (pid,) = other.execute(find).fetchone()
            (range_,) = (worker.ranges[0] for worker in self._workers)
            other.execute(
                "DELETE FROM items WHERE ctid >= %s::tid AND ctid < %s::tid AND id %% 3 = 0",
                [f"({range_.first},0)", f"({range_.end},0)"],
            )
            if fault == "kill":
                os.kill(self._workers[0].process.pid, signal.SIGKILL)
            other.execute("SELECT pg_terminate_backend(%s)", [pid])
            eventually(lambda: self._workers[0].ended, 60)
            lost.append(range_)
        return pass_

    monkeypatch.setattr(workers.Workers, "begin", lose)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        listed.rebalance(jobs=2)
    assert lost
    assert_listed(listed)
    assert listed.waiting() == 0


def test_a_range_is_written_whole_or_not_at_all(listed, monkeypatch, small_ranges):
    stored = building.ListBuild._each_block
    seen = []

    def watched(self, ranges, read, compute, write):
        def checked(blocks, place):
            seen.append(len(blocks))
            write(blocks, place)

        stored(self, ranges, read, compute, checked)

    monkeypatch.setattr(building.ListBuild, "_each_block", watched)
    listed.rebalance(jobs=1)
    assert max(seen) > 1
    assert_listed(listed)


def encode_again(index):
    with_access(index, "scan")
    with_access(index, "lists")
    index.encode()


def swap_again(index):
    vectors = np.random.default_rng(1).normal(size=(500, 8)).astype(np.float32)
    store.save(index.connection, LSH(n_bits=20, random_state=5).fit(vectors).to_model("other"))
    index.swap(model="other", force=True)


@pytest.mark.parametrize("build", [HashIndex.rebalance, encode_again, swap_again])
def test_rows_that_a_build_has_missed_are_read_again(listed, monkeypatch, build):
    order = building.ListBuild._put_in_order

    def lose(self):
        self._execute("DELETE FROM {staged} WHERE id % 10 = 3")
        order(self)

    monkeypatch.setattr(building.ListBuild, "_put_in_order", lose)
    with pytest.warns(BuildWarning, match="300 rows of .*items.* and were read again"):
        build(listed)
    assert_fresh(listed)
    lists = listed.lists()
    assert (lists.codes, lists.unlisted) == (3000, 0)


def test_codes_that_went_before_an_exchange_are_made_again(swapped, monkeypatch):
    balance = encoding.balance

    def lose(index, throttle, *given, **more):
        swapped.connection.execute("DELETE FROM hashindex.set_1_codes WHERE id % 10 = 3")
        return balance(index, throttle, *given, **more)

    monkeypatch.setattr(encoding, "balance", lose)
    with pytest.warns(BuildWarning, match="30 rows of .*items.* and were read again"):
        swapped.rollback()
    assert_fresh(swapped)


def test_a_rebalance_that_is_in_use_ends_well_beside_a_reader(listed, url):
    before = tables_of(listed)
    with connect(url) as reader, reader.transaction():
        reader.execute("SELECT * FROM hashindex.search_items_idx('[1,2,3,4,5,6,7,8]')")
        with pytest.warns(BuildWarning, match="is still read .* prune items_idx drops it"):
            listed.rebalance()
    assert tables_of(listed) != before
    assert_fresh(listed)
    assert_fresh(former(listed))
    assert listed.prune() == 1
    assert not listed.connection.execute(
        "SELECT FROM hashindex.index i, hashindex._objects_of(i) o WHERE NOT o.in_use"
    ).fetchall()


def run(url, *arguments):
    return CliRunner().invoke(main, arguments, env={"PG_HASHINDEX_DATABASE_URL": url})


CREATE = ("index", "create", "items_idx", "--table", "items", "--column", "embedding")
LISTS = (*CREATE, "--model", "lsh", "--access", "lists")


@pytest.mark.usefixtures("items", "model")
def test_a_creation_that_was_cut_off_goes_on_when_it_is_run_again(connection, url):
    begin_lists(
        connection, "items_idx", table="items", column="embedding", model="lsh", access="lists"
    )
    other = run(url, *CREATE, "--model", "lsh", "--access", "scan")
    assert other.exit_code == 3
    assert "continue it by pg-hashindex index encode items_idx" in other.output
    done = run(url, *LISTS)
    assert done.exit_code == 0, done.output
    assert_fresh(HashIndex.open(connection, "items_idx"))
    assert run(url, *LISTS).exit_code == 3


@pytest.mark.usefixtures("items", "model")
def test_an_index_whose_measurement_fails_is_created_all_the_same(url, monkeypatch):
    def fail(*given, **more):
        raise InUseError("no")

    monkeypatch.setattr(build, "measure", fail)
    done = run(url, *LISTS)
    assert done.exit_code == 0, done.output
    assert "was not measured: no; measure it by: pg-hashindex tune items_idx" in done.output


@pytest.mark.parametrize("full", [False, True])
def test_rows_without_a_vector_do_not_count_among_those_without_a_code(swapped, full):
    swapped.connection.execute("INSERT INTO items (id) SELECT n FROM generate_series(1001, 9000) n")
    swapped.connection.execute("DELETE FROM hashindex.set_2_codes WHERE id <= 100")
    found = {one.check: one for one in operations.check(swapped, full=full).findings}
    assert found["rows_without_code"].status == "broken"
    assert found["rows_without_code"].detail.startswith("100 of 300 rows")


def test_a_full_check_looks_at_the_books_of_former_codes(swapped):
    books = {one.check: one for one in operations.check(swapped, full=True).findings}["books"]
    assert (books.status, books.value) == ("ok", 0)
    swapped.connection.execute("DELETE FROM hashindex.set_1_log WHERE id = 7")
    swapped.connection.execute("DELETE FROM hashindex.set_1_codes WHERE id IN (7, 8)")
    books = {one.check: one for one in operations.check(swapped, full=True).findings}["books"]
    assert (books.status, books.value) == ("warning", 1)
    assert books.advice == "pg-hashindex index encode items_idx"
    with pytest.warns(BuildWarning, match="1 rows of .*items.* and were read again"):
        swapped.encode()
    swapped.rollback()
    assert_fresh(swapped)
