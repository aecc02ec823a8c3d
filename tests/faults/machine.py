"""A state machine: two sessions that write and search, and one that encodes, builds and swaps.

Everything runs in one thread, statement by statement, so that what is seen at each moment is
known: nobody waits for a lock for longer than a moment, and then the transaction has failed.
"""

import math
from typing import Any, ClassVar

import numpy as np
import psycopg
from faults.tables import check_codes, check_lists, check_search, indexes
from fixtures.known import stored_codes
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from numpy.typing import NDArray
from pgvector import Vector
from psycopg.pq import TransactionStatus

from pg_hashindex import store
from pg_hashindex.catalog import Access, Layout
from pg_hashindex.database import Connection, connect
from pg_hashindex.errors import DatabaseStateError, InUseError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import HashIndex
from pg_hashindex.model import Model
from pg_hashindex.network import known_rows

DIMENSION, BITS = 4, 16
# Vectors of small integers, so that ties are many; the last ones no model of known rows knows.
VECTORS = np.random.default_rng(8).integers(-3, 4, (60, DIMENSION)).astype(np.float32)
N_KNOWN = 50
START = 120
KEYS = st.integers(1, START + 40)
PLACES = st.one_of(st.none(), st.integers(0, len(VECTORS) - 1))
SESSIONS = st.sampled_from(["one", "two"])

# What a transaction may run into beside others.
REFUSED = (
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.InFailedSqlTransaction,
    # Of keys that the other one has written, and this one does not see.
    psycopg.errors.UniqueViolation,
)


def machine_models() -> dict[str, Model]:
    """Return two models of each kind."""
    made = {}
    for seed, (in_sql, in_python) in enumerate((("lsh", "known"), ("other", "known_other"))):
        hasher = LSH(n_bits=BITS, random_state=seed).fit(VECTORS)
        known = np.unique(VECTORS[:N_KNOWN], axis=0)
        made[in_sql] = hasher.to_model(in_sql)
        network = known_rows(known, hasher.encode(known), BITS)
        made[in_python] = Model(in_python, "byhand", DIMENSION, (), network=network)
    return made


class Machine(RuleBasedStateMachine):
    """The rules; subclasses say on which database, with which layout and models."""

    url: ClassVar[str]
    layout: ClassVar[Layout]
    model_names: ClassVar[tuple[str, str]]
    counts: ClassVar[dict[str, int]]

    def __init__(self) -> None:
        super().__init__()
        self.sessions = {name: connect(self.url) for name in ("one", "two")}
        self.operator: Connection = connect(self.url)
        for session in (*self.sessions.values(), self.operator):
            session.execute("SET lock_timeout TO '30ms'; SET deadlock_timeout TO '10ms'")
        self.operator.execute("DROP TABLE IF EXISTS items")
        self.operator.execute(
            f"CREATE TABLE items (id bigint PRIMARY KEY, note text, embedding vector({DIMENSION}))"
        )
        self.operator.cursor().executemany(
            "INSERT INTO items VALUES (%s, 'x', %s)",
            [(n + 1, Vector(VECTORS[n % len(VECTORS)])) for n in range(START)],
        )
        self.counts["examples"] += 1

    def teardown(self) -> None:
        for session in self.sessions.values():
            session.rollback()
            session.close()
        if not self.operator.closed:
            try:
                if self.index is not None:
                    self._complete()
            finally:
                if self.index is not None:
                    HashIndex.open(self.operator, "items_idx").drop()
                self.operator.execute("DROP TABLE items")
                left = self.operator.execute(
                    "SELECT relname FROM pg_class WHERE relname LIKE '%items%'"
                ).fetchall()
                assert left == []
                self.operator.close()

    index: HashIndex | None = None
    #: Whether all rows have been encoded once.
    encoded = False

    @initialize(encoded=st.booleans())
    def create(self, encoded: bool) -> None:
        self.index = HashIndex.create(
            self.operator, "items_idx", table="items", column="embedding",
            model=self.model_names[0], layout=self.layout,
        )  # fmt: skip
        if encoded:
            self.index.encode()
        self.encoded = encoded

    # Writers -------------------------------------------------------------------------------------

    def _write(self, name: str, statement: str, values: list[Any] | None = None) -> None:
        session = self.sessions[name]
        self.counts["writes"] += 1
        try:
            session.execute(statement.encode(), values)
        except REFUSED:
            self.counts["refused"] += 1
            self._end(name)

    def _end(self, name: str) -> None:
        self.sessions[name].execute("ROLLBACK")

    def _inside(self, name: str) -> bool:
        return self.sessions[name].info.transaction_status != TransactionStatus.IDLE

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def insert(self, name: str, key: int, place: int | None) -> None:
        self._write(
            name, "INSERT INTO items VALUES (%s, 'i', %s) ON CONFLICT DO NOTHING",
            [key, vector(place)],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def upsert(self, name: str, key: int, place: int | None) -> None:
        self._write(
            name,
            "INSERT INTO items VALUES (%s, 'u', %s) ON CONFLICT (id) "
            "DO UPDATE SET embedding = excluded.embedding",
            [key, vector(place)],
        )

    @rule(name=SESSIONS, first=KEYS, n=st.integers(1, 30), place=st.integers(0, len(VECTORS) - 1))
    def copy(self, name: str, first: int, n: int, place: int) -> None:
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
    def update_vectors(self, name: str, key: int, n: int, place: int | None) -> None:
        self._write(
            name, "UPDATE items SET embedding = %s WHERE id BETWEEN %s AND %s",
            [vector(place), key, key + n],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, n=st.integers(0, 50))
    def update_notes(self, name: str, key: int, n: int) -> None:
        self._write(
            name, "UPDATE items SET note = note || '.' WHERE id BETWEEN %s AND %s", [key, key + n]
        )

    @rule(name=SESSIONS, key=KEYS)
    def update_keys(self, name: str, key: int) -> None:
        self._write(
            name, "UPDATE items SET id = id + 1000000 WHERE id BETWEEN %s AND %s + 3 "
            "AND NOT EXISTS (SELECT FROM items o WHERE o.id = items.id + 1000000)", [key, key],
        )  # fmt: skip

    @rule(name=SESSIONS, key=KEYS, n=st.integers(0, 20))
    def delete(self, name: str, key: int, n: int) -> None:
        self._write(name, "DELETE FROM items WHERE id BETWEEN %s AND %s", [key, key + n])

    @rule(name=SESSIONS, key=KEYS, place=PLACES)
    def merge(self, name: str, key: int, place: int | None) -> None:
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
    def write_in_one_statement(self, name: str, key: int, place: int | None) -> None:
        self._write(
            name,
            "WITH gone AS (DELETE FROM items WHERE id = %s RETURNING id) "
            "INSERT INTO items SELECT coalesce(max(i.id), 0) + 1, 'w', %s FROM items i",
            [key, vector(place)],
        )

    @rule(name=SESSIONS, seldom=st.integers(0, 4))
    def truncate(self, name: str, seldom: int) -> None:
        # More often, it would leave little to look at.
        if seldom == 4:
            self._write(name, "TRUNCATE items")

    # Transactions --------------------------------------------------------------------------------

    @rule(
        name=SESSIONS, level=st.sampled_from(["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
    )
    def begin(self, name: str, level: str) -> None:
        if not self._inside(name):
            self.sessions[name].execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            # Its snapshot is of now.
            self._write(name, "SELECT count(*) FROM items")

    @rule(name=SESSIONS)
    def savepoint(self, name: str) -> None:
        if self._inside(name):
            self.sessions[name].execute("SAVEPOINT s")

    @rule(name=SESSIONS)
    def roll_back_to_savepoint(self, name: str) -> None:
        if self._inside(name):
            try:
                self.sessions[name].execute("ROLLBACK TO SAVEPOINT s")
            except psycopg.errors.InvalidSavepointSpecification:
                self._end(name)

    @rule(name=SESSIONS, keep=st.booleans())
    def end(self, name: str, keep: bool) -> None:
        if self._inside(name):
            try:
                self.sessions[name].execute("COMMIT" if keep else "ROLLBACK")
            except psycopg.errors.SerializationFailure:
                self.counts["refused"] += 1

    # The operator --------------------------------------------------------------------------------

    def _operate(self, act: Any) -> None:
        self.counts["operations"] += 1
        try:
            act(HashIndex.open(self.operator, "items_idx"))
        except (InUseError, DatabaseStateError) as error:
            # Locks of open transactions, and swaps in another state than this one asks for.
            # There are no landmarks of an empty table.
            words = ("previous", "before", "swap", "landmarks of index")
            expected = any(word in str(error) for word in words)
            if not expected and not any(map(self._inside, self.sessions)):
                raise
            self.counts["told"] += 1

    @rule(batch_rows=st.integers(1, 60), name=SESSIONS, key=KEYS, place=PLACES, gone=st.booleans())
    def encode(self, batch_rows: int, name: str, key: int, place: int | None, gone: bool) -> None:
        """A writer comes between reading a page and writing its codes."""
        evaluate = Model.encode
        came = False

        def encode(model: Model, X: Any) -> Any:
            nonlocal came
            if not came:
                came = True
                if gone:
                    self.delete(name, key, 3)
                else:
                    self.upsert(name, key, place)
            return evaluate(model, X)

        Model.encode = encode  # type: ignore[method-assign]

        def act(index: HashIndex) -> None:
            index.encode(batch_rows=batch_rows)
            # Here, for otherwise it has failed.
            self.encoded = True

        try:
            self._operate(act)
        finally:
            Model.encode = evaluate  # type: ignore[method-assign]

    @rule(access=st.sampled_from(["scan", "lookup", "hnsw", "landmarks"]), build=st.booleans())
    def configure(self, access: Access, build: bool) -> None:
        if access == "landmarks" and self.layout == "column":
            return

        def act(index: HashIndex) -> None:
            configured = index.configure(access=access)
            if build:
                configured.encode()

        self._operate(act)

    @rule(access=st.sampled_from([None, "scan", "lookup", "landmarks"]), which=st.integers(0, 1))
    def swap(self, access: Access | None, which: int) -> None:
        if access == "landmarks" and self.layout == "column":
            access = None
        self._operate(
            lambda index: index.swap(self.model_names[which], access=access, force=True, queries=3)
        )

    @rule()
    def rollback(self) -> None:
        self._operate(lambda index: index.rollback())

    @rule()
    def prune(self) -> None:
        self._operate(lambda index: index.prune())

    @precondition(lambda self: self.layout == "table")
    @rule()
    def rebalance(self) -> None:
        def act(index: HashIndex) -> None:
            if index.access == "landmarks":
                index.rebalance()

        self._operate(act)

    # What holds ----------------------------------------------------------------------------------

    @rule(name=SESSIONS, place=st.integers(0, N_KNOWN - 1), k=st.integers(1, 15))
    def search(self, name: str, place: int, k: int) -> None:
        """As brute force over what the session sees, its own writes too."""
        self.counts["searches"] += 1
        try:
            self._search(self.sessions[name], VECTORS[place], k)
        except (DatabaseStateError, *REFUSED) as error:
            if not isinstance(error.__cause__ or error, REFUSED):
                raise
            self.counts["refused"] += 1
            self._end(name)

    def _search(self, session: Connection, query: NDArray[np.float32], k: int) -> None:
        index = HashIndex.open(session, "items_idx")
        # The function is that of now, whatever catalog the session sees.
        now = HashIndex.open(self.operator, "items_idx")
        rows = [
            (key, code, math.dist(stored, query))
            for key, (code, stored) in stored_codes(index).items()
            if stored is not None
        ]
        found = index.search(
            query, k, candidates=len(rows) + 1, probes=1000 if now.access == "landmarks" else None
        )
        distances = {key: distance for key, _, distance in rows}
        answers = np.array([hit.distance for hit in found])
        np.testing.assert_allclose([distances[hit.id] for hit in found], answers, atol=1e-6)
        # Among rows with a code; where the codes are newer than the snapshot, among all rows.
        wanted = [
            np.array(
                sorted(distance for _, code, distance in rows if code is not None or every)[:k]
            )
            for every in (False, True)
        ]
        assert any(
            len(each) == len(answers) and np.allclose(answers, each, rtol=1e-5, atol=1e-6)
            for each in wanted
        ), f"found {answers}, wanted {wanted}"
        self.counts["rows"] += len(rows)

    @rule()
    def check(self) -> None:
        """Codes are right at any moment, and where triggers encode, all there since `encode`."""
        try:
            for index in indexes(self.operator):
                there, missing = check_codes(index)
                self.counts["rows"] += there
                if self.encoded and index.encoded_in == "sql" and index.swap_state != "next":
                    assert missing == 0
                check_lists(index)
        except psycopg.errors.LockNotAvailable:
            # Of somebody who truncates.
            assert any(map(self._inside, self.sessions))

    def _complete(self) -> None:
        for name in self.sessions:
            assert self.sessions[name].closed
        for index in indexes(self.operator):
            index.encode()
        for index in indexes(self.operator):
            there, missing = check_codes(index)
            assert missing == 0
            assert index.building is None or there == 0
            check_lists(index)
            self.counts["rows"] += there
        check_search(HashIndex.open(self.operator, "items_idx"), VECTORS[:2])


def vector(place: int | None) -> Vector | None:
    """Return one of the vectors."""
    return None if place is None else Vector(VECTORS[place])


def install_models(url: str) -> None:
    """Store the models."""
    with connect(url) as connection:
        for model in machine_models().values():
            store.save(connection, model)
