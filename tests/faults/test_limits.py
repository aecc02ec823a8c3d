"""Roles with lock_timeout and statement_timeout, and writers who may have to try again."""

import re
import threading

import numpy as np
import psycopg
import pytest
from faults.scenarios import (
    LISTED,
    PLAIN,
    after,
    change_access,
    create,
    disorder,
    encode,
    prune,
    rebalance,
    rollback_from,
    swap,
)
from faults.tables import OTHERS, ROWS, check_all
from fixtures.faults import MOMENTS, name_of, record
from pgvector import Vector

from pg_hashindex.db import locks
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index import encoding

WORK = {
    "encode": (create("lsh"), encode),
    "lists": (PLAIN, change_access("lists")),
    "swap": (PLAIN, swap("other")),
    "swap-to-landmarks": (PLAIN, swap("other", "lists")),
    "rebalance": (after(LISTED, disorder), rebalance),
}


@pytest.fixture(scope="module")
def ready(fault_server, installed):
    """Return a database's template before some work."""
    fault_server.up()
    made = {}

    def prepare(work):
        if work not in made:
            url = fault_server.database(installed)
            WORK[work][0](url)
            made[work] = name_of(url)
        return made[work]

    return prepare


def problem_of(step, url):
    """Take a step; return what it fails with."""
    try:
        step(url)
    except HashIndexError as error:
        return str(error)
    return None


MODES = ["ROW EXCLUSIVE", "SHARE", "ACCESS EXCLUSIVE"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "mode"),
    [
        (work, MODES[(number + n) % 3])
        for number, work in enumerate(WORK)
        for n in range(min(3, max(1, MOMENTS // 2)))
    ],
)
def test_lock_timeout(fault_server, ready, database, monkeypatch, work, mode):
    """Somebody holds a lock on the table: it goes on, or says so; later it ends."""
    monkeypatch.setattr(encoding, "_PATIENCE", 0.2)
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    url = database(ready(work))
    fault_server.admin(f"ALTER DATABASE {name_of(url)} SET lock_timeout TO '50ms'")
    with psycopg.connect(url) as other:
        other.execute(f"LOCK TABLE items IN {mode} MODE".encode())
        other.execute("SELECT FROM items LIMIT 1")
        problem = problem_of(WORK[work][1], url)
        assert problem is None or re.search("lock timeout|transactions|locked", problem), problem
        other.rollback()
    checked = check_all(url, complete=False)
    WORK[work][1](url)
    checked += check_all(url, complete=True)
    record("lock_timeout", operations=2, faults=int(problem is not None), rows=checked)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_statement_timeout(fault_server, ready, database, work):
    """Each run gets a little further, or none does until the limit is raised."""
    url = database(ready(work))
    faults, checked = 0, 0
    for limit in (1, 5, 50, 250, 1_000, 4_000, 16_000, 64_000):
        fault_server.admin(f"ALTER DATABASE {name_of(url)} SET statement_timeout TO {limit}")
        problem = problem_of(WORK[work][1], url)
        if problem is None:
            break
        # If the deadline passes as a statement ends, PostgreSQL cancels the next without a reason.
        assert re.search("statement timeout|due to user request", problem), problem
        faults += 1
        fault_server.admin(f"ALTER DATABASE {name_of(url)} RESET statement_timeout")
        checked += check_all(url, complete=False)
    fault_server.admin(f"ALTER DATABASE {name_of(url)} RESET statement_timeout")
    assert problem is None
    checked += check_all(url, complete=True)
    record("statement_timeout", operations=faults + 1, faults=faults, rows=checked)


class Transactions(threading.Thread):
    """Somebody who writes in transactions of a level, and tries again as one has to there."""

    def __init__(self, url, level, seed):
        super().__init__(daemon=True)
        self.url, self.level, self.seed = url, level, seed
        self.done, self.again = 0, 0
        self.problem = None
        self.ends = threading.Event()
        self.start()

    def run(self):
        rng = np.random.default_rng(self.seed)
        try:
            with connect(self.url) as session:
                while not self.ends.is_set():
                    writes = [
                        (int(rng.integers(4)), int(rng.integers(1, ROWS)), int(rng.integers(50)))
                        for _ in range(rng.integers(1, 5))
                    ]
                    self._until_it_works(session, writes)
        except BaseException as error:
            self.problem = error

    def _until_it_works(self, session, writes):
        while not self.ends.is_set():
            try:
                with session.transaction():
                    session.execute(f"SET TRANSACTION ISOLATION LEVEL {self.level}".encode())
                    session.execute("SELECT count(*) FROM items WHERE id < 10")
                    for what, key, vector in writes:
                        self._write(session, what, key, Vector(OTHERS[vector]))
                self.done += 1
                return
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                self.again += 1

    def _write(self, session, what, key, vector):
        match what:
            case 0:
                session.execute("DELETE FROM items WHERE id = %s", [key])
            case 1:
                session.execute(
                    "INSERT INTO items VALUES (%s, 't', %s) ON CONFLICT (id) "
                    "DO UPDATE SET embedding = excluded.embedding",
                    [key, vector],
                )
            case 2:
                session.execute("UPDATE items SET embedding = %s WHERE id = %s", [vector, key])
            case _:
                session.execute("UPDATE items SET category = 't' WHERE id = %s", [key])


@pytest.mark.slow
def test_writers_fail_by_serialization_alone(fault_server, installed, database):
    """Anything else would end a writer; what they try again goes through."""
    fault_server.up()
    url = database(installed)
    writers = [
        Transactions(url, level, seed)
        for seed, level in enumerate(("REPEATABLE READ", "SERIALIZABLE", "REPEATABLE READ"))
    ]
    steps = [
        create("lsh"),
        encode,
        swap("other"),
        rollback_from("other"),
        swap_back_and_prune("other"),
        change_access("lists"),
        prune,
        change_access("scan"),
    ]
    for step in steps:
        step(url)
    for writer in writers:
        writer.ends.set()
    for writer in writers:
        writer.join(30)
        assert writer.problem is None, writer.problem
        assert writer.done
    encode(url)
    checked = check_all(url, complete=True)
    record(
        "writers who try again",
        operations=sum(writer.done for writer in writers) + len(steps),
        faults=sum(writer.again for writer in writers),
        rows=checked,
    )


def swap_back_and_prune(other):
    def step(url):
        prune(url)
        swap(other)(url)
        prune(url)

    return step
