"""Two sessions of a state machine that write to table items, in transactions or without."""

from typing import ClassVar

import numpy as np
import psycopg
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pgvector import Vector
from psycopg.pq import TransactionStatus

from pg_hashindex.db.connection import connect

DIMENSION = 4
# Vectors of small integers, so that ties are many; the last ones no model of known rows knows.
VECTORS = np.random.default_rng(8).integers(-3, 4, (60, DIMENSION)).astype(np.float32)
N_KNOWN = 50
START = 120
KEYS = st.integers(1, START + 40)
PLACES = st.one_of(st.none(), st.integers(0, len(VECTORS) - 1))
SESSIONS = st.sampled_from(["one", "two"])

# Errors that a transaction may meet beside others.
REFUSED = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InFailedSqlTransaction,
    # Keys that the other one has written, and this one does not see.
    psycopg.errors.UniqueViolation,
)

_COLUMNS = (
    f"(id bigint UNIQUE, note text, embedding vector({DIMENSION}), "
    "part integer NOT NULL DEFAULT 7, PRIMARY KEY ({keys}))"
)


class Writers(RuleBasedStateMachine):
    """The rules of those who write; subclasses say on which database."""

    url: ClassVar[str]
    #: The primary key, by which the index knows rows.
    keys: ClassVar[str] = "id"
    counts: ClassVar[dict[str, int]]

    def __init__(self):
        super().__init__()
        self.sessions = {name: connect(self.url) for name in ("one", "two")}
        self.operator = connect(self.url)
        for session in (*self.sessions.values(), self.operator):
            session.execute("SET lock_timeout TO '30ms'; SET deadlock_timeout TO '10ms'")
        self.operator.execute("DROP TABLE IF EXISTS items")
        columns = _COLUMNS.replace("{keys}", self.keys)
        self.operator.execute(f"CREATE TABLE items {columns}".encode())
        self.operator.cursor().executemany(
            "INSERT INTO items VALUES (%s, 'x', %s)",
            [(n + 1, Vector(VECTORS[n % len(VECTORS)])) for n in range(START)],
        )
        self.counts["examples"] += 1

    def _write(self, name, statement, values=None):
        session = self.sessions[name]
        self.counts["writes"] += 1
        try:
            session.execute(statement.encode(), values)
        except REFUSED:
            self.counts["refused"] += 1
            self._end(name)

    def _end(self, name):
        self.sessions[name].execute("ROLLBACK")

    def _inside(self, name):
        return self.sessions[name].info.transaction_status != TransactionStatus.IDLE

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def insert(self, name, key, place):
        self._write(
            name, "INSERT INTO items VALUES (%s, 'i', %s) ON CONFLICT DO NOTHING",
            [key, vector(place)],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def upsert(self, name, key, place):
        self._write(
            name,
            "INSERT INTO items VALUES (%s, 'u', %s) ON CONFLICT (id) "
            "DO UPDATE SET embedding = excluded.embedding",
            [key, vector(place)],
        )

    @rule(name=SESSIONS, first=KEYS, n=st.integers(1, 30), place=st.integers(0, len(VECTORS) - 1))
    def copy(self, name, first, n, place):
        self.counts["writes"] += 1
        try:
            with self.sessions[name].cursor() as cursor:
                cursor.execute("SELECT coalesce(max(id), 0) + %s FROM items", [first])
                (start,) = cursor.fetchone() or (0,)
                with cursor.copy("COPY items (id, note, embedding) FROM STDIN") as target:
                    for number in range(n):
                        target.write_row(
                            (start + number, "c", vector((place + number) % len(VECTORS)))
                        )
        except REFUSED:
            self.counts["refused"] += 1
            self._end(name)

    @rule(name=SESSIONS, key=KEYS, n=st.integers(0, 20), place=PLACES)
    def update_vectors(self, name, key, n, place):
        self._write(
            name, "UPDATE items SET embedding = %s WHERE id BETWEEN %s AND %s",
            [vector(place), key, key + n],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, n=st.integers(0, 50))
    def update_notes(self, name, key, n):
        self._write(
            name, "UPDATE items SET note = note || '.' WHERE id BETWEEN %s AND %s", [key, key + n]
        )

    @rule(name=SESSIONS, key=KEYS)
    def update_keys(self, name, key):
        self._write(
            name, "UPDATE items SET id = id + 1000000 WHERE id BETWEEN %s AND %s + 3 "
            "AND NOT EXISTS (SELECT FROM items o WHERE o.id = items.id + 1000000)", [key, key],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, n=st.integers(0, 20))
    def delete(self, name, key, n):
        self._write(name, "DELETE FROM items WHERE id BETWEEN %s AND %s", [key, key + n])

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def merge(self, name, key, place):
        self._write(
            name,
            "MERGE INTO items i USING (SELECT k AS id FROM generate_series(%s::int, %s + 4) k) s "
            "ON i.id = s.id "
            "WHEN MATCHED AND s.id %% 3 = 0 THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET embedding = %s "
            "WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'm', %s)",
            [key, key, vector(place), vector(place)],
        )

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def write_in_one_statement(self, name, key, place):
        self._write(
            name,
            "WITH gone AS (DELETE FROM items WHERE id = %s RETURNING id) "
            "INSERT INTO items SELECT coalesce(max(i.id), 0) + 1, 'w', %s FROM items i",
            [key, vector(place)],
        )

    @rule(name=SESSIONS, seldom=st.integers(0, 4))
    def truncate(self, name, seldom):
        # More often, it would leave little to look at.
        if seldom == 4:
            self._write(name, "TRUNCATE items")

    # Transactions --------------------------------------------------------------------------------

    @rule(
        name=SESSIONS, level=st.sampled_from(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
    )
    def begin(self, name, level):
        if not self._inside(name):
            self.sessions[name].execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            # Its snapshot is fresh.
            self._write(name, "SELECT count(*) FROM items")

    @rule(name=SESSIONS)
    def savepoint(self, name):
        if self._inside(name):
            self.sessions[name].execute("SAVEPOINT s")

    @rule(name=SESSIONS)
    def roll_back_to_savepoint(self, name):
        if self._inside(name):
            try:
                self.sessions[name].execute("ROLLBACK TO SAVEPOINT s")
            except psycopg.errors.InvalidSavepointSpecification:
                self._end(name)

    @rule(name=SESSIONS, keep=st.booleans())
    def end(self, name, keep):
        if self._inside(name):
            try:
                self.sessions[name].execute("COMMIT" if keep else "ROLLBACK")
            except psycopg.errors.SerializationFailure:
                self.counts["refused"] += 1


def vector(place):
    """Return one of the vectors."""
    return None if place is None else Vector(VECTORS[place])
