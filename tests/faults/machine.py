"""A state machine: two sessions that write and search, and one that encodes, builds and swaps.

Everything runs in one thread, statement by statement, so that what is seen at each moment is
known: no session waits long for a lock, and after such a wait the transaction has failed.
"""

import contextlib
import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import psycopg
from faults.machine_writers import (
    KEYS,
    N_KNOWN,
    PLACES,
    REFUSED,
    SESSIONS,
    VECTORS,
    Writers,
)
from faults.tables import check_codes, check_lists, check_search, indexes
from fixtures.indexes import create_index
from fixtures.known import stored_codes
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from pg_hashindex import operations, store
from pg_hashindex.db.connection import connect
from pg_hashindex.errors import DatabaseStateError, InUseError, LowerRecallError
from pg_hashindex.hashers import LSH
from pg_hashindex.index import build, sets
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.index.landmarks.building import ListBuild
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

BITS = 16


def machine_models():
    """Return two models; "lsh" has learned codes, with every bit the other way."""
    lsh, other = (
        LSH(n_bits=BITS, random_state=seed).fit(VECTORS).to_model(name)
        for seed, name in enumerate(("lsh", "other"))
    )
    known = np.unique(VECTORS[:N_KNOWN], axis=0)
    return replace(lsh, learned=known_rows(known, ~lsh.encode(known), BITS)), other


def rebalance_lists(index):
    if (index.access, index.state) == ("lists", "used"):
        index.rebalance()


#: Steps of a build.
STEPS = [(ListBuild, step) for step in ("_read_rows", "_put_in_order", "_finished", "_finish")]


#: Errors of sets in another state than what was asked for is of.
TOLD = (
    "has this set already",
    "has no former set",
    "set beside the one in use",
    "is being swapped to another set",
    "keeps its set",
    "has no set in use yet",
)


class KilledError(BaseException):
    """The operator's process is gone."""


class Machine(Writers):
    """All rules; subclasses say with which models."""

    model_names: ClassVar[tuple[str, str]]

    def teardown(self):
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
    def create(self, encoded):
        self._create()
        if encoded:
            HashIndex.open(self.operator, "items_idx").encode()
        self.encoded = encoded

    def _create(self):
        self.index = create_index(self.operator, model=self.model_names[0])
        self.encoded = False
        check_search(self.index, VECTORS[:2])

    # The operator --------------------------------------------------------------------------------

    def _operate(self, act):
        self.counts["operations"] += 1
        try:
            act(HashIndex.open(self.operator, "items_idx"))
        except (InUseError, DatabaseStateError, LowerRecallError) as error:
            # Locks of open transactions, and sets in another state than this one asks for.
            expected = any(words in str(error) for words in TOLD)
            if not expected and not any(map(self._inside, self.sessions)):
                raise
            self.counts["told"] += 1

    @rule(batch_rows=st.integers(1, 60), name=SESSIONS, key=KEYS, place=PLACES, gone=st.booleans())
    def encode(self, batch_rows, name, key, place, gone):
        """A writer comes between reading a page and writing its codes."""
        evaluate = Model.encode
        came = False

        def encode(model, X):
            nonlocal came
            if not came:
                came = True
                if gone:
                    self.delete(name, key, 3)
                else:
                    self.upsert(name, key, place)
            return evaluate(model, X)

        Model.encode = encode  # type: ignore[method-assign]

        def act(index):
            index.encode(batch_rows=batch_rows)
            # The model before the swap may never have been encoded.
            with contextlib.suppress(psycopg.errors.LockNotAvailable):
                self.encoded = all(check_codes(i)[1] == 0 for i in indexes(self.operator))

        try:
            self._operate(act)
        finally:
            Model.encode = evaluate  # type: ignore[method-assign]

    @rule(access=st.sampled_from([None, "scan", "lists"]), which=st.integers(0, 1))
    def swap(self, access, which):
        self._operate(
            lambda index: index.swap(model=self.model_names[which], access=access, force=True)
        )

    @rule()
    def take(self):
        """The set that was built and found less."""
        self._operate(lambda index: index.swap(force=True))

    @rule()
    def rollback(self):
        self._operate(lambda index: index.rollback())

    @rule()
    def prune(self):
        self._operate(lambda index: index.prune())

    @rule()
    def rebalance(self):
        self._operate(rebalance_lists)

    @rule(step=st.sampled_from(STEPS))
    def kill_a_rebalance(self, step):
        """Triggers log what is written until a command continues it, or gives it up."""
        self._kill(step, rebalance_lists)

    @rule(
        step=st.sampled_from([*STEPS, (sets, "finish_swap"), (build, "_use")]),
        access=st.sampled_from([None, "scan", "lists"]),
        which=st.integers(0, 1),
    )
    def kill_a_swap(self, step, access, which):
        self._kill(
            step,
            lambda index: index.swap(model=self.model_names[which], access=access, force=True),
        )

    def _kill(self, step, act):
        original = getattr(*step)

        def kill(*_, **__):
            raise KilledError

        setattr(*step, kill)
        try:
            with contextlib.suppress(KilledError):
                self._operate(act)
        finally:
            setattr(*step, original)

    @rule()
    def give_up(self):
        def act(index):
            # The index goes with its first set.
            if index.state == "used":
                operations.repair(index, undo=True)

        self._operate(act)

    @rule()
    def make_again(self):
        """Searches are exact until it is encoded."""

        def act(index):
            index.drop()
            self._create()

        self._operate(act)

    @rule(
        name=SESSIONS,
        act=st.sampled_from(["encode", "lists", "swap", "swap", "rollback"]),
        key=KEYS,
        place=st.integers(0, N_KNOWN - 1),
    )
    def work_beside_a_snapshot(self, name, act, key, place):
        """A transaction begins before the operator's work, and searches and writes after it."""
        for each in self.sessions:
            self._end(each)
        self.begin(name, "REPEATABLE READ")
        match act:
            case "encode":
                self._operate(lambda index: index.encode())
            case "lists":
                self.swap("lists", key % 2)
            case "swap":
                self.swap(None, key % 2)
            case _:
                self.rollback()
        self.search(name, place, 10)
        self.delete(name, key, 20)
        if self._inside(name):
            self.search(name, place, 10)
        self.end(name, True)

    # Invariants ----------------------------------------------------------------------------------

    @rule(name=SESSIONS, place=st.integers(0, N_KNOWN - 1), k=st.integers(1, 15))
    def search(self, name, place, k):
        """As brute force over what the session sees, its own writes too."""
        self.counts["searches"] += 1
        try:
            self._search(self.sessions[name], VECTORS[place], k)
        except (DatabaseStateError, *REFUSED) as error:
            # A build has made triggers, or dropped them.
            altered = "was altered since this transaction began" in str(error)
            if not altered and not isinstance(error.__cause__ or error, REFUSED):
                raise
            self.counts["refused"] += 1
            self._end(name)

    def _search(self, session, query, k):
        index = HashIndex.open(session, "items_idx")
        # The function is the current one, whatever catalog the session sees.
        now = HashIndex.open(self.operator, "items_idx")
        seen = stored_codes(index)
        rows = [
            (key, code, math.dist(stored, query))
            for key, (code, stored) in seen.items()
            if stored is not None
        ]
        found = index.search(
            query, k, candidates=len(seen) + 1, effort=1000 if now.access == "lists" else None
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
            if every or index.encoded
        ]
        if not self.encoded:
            # Rows that waited in what the operator has returned to.
            here = stored_codes(HashIndex(session, now.name))
            coded = [math.dist(v, query) for code, v in here.values() if code and v is not None]
            wanted.append(np.array(sorted(coded)[:k]))
        assert any(
            len(each) == len(answers) and np.allclose(answers, each, rtol=1e-5, atol=1e-6)
            for each in wanted
        ), f"found {answers}, wanted {wanted}"
        self.counts["rows"] += len(rows)

    @rule()
    def check(self):
        """Codes are right at any moment, and where triggers encode, all there since `encode`."""
        try:
            for index in indexes(self.operator):
                there, missing = check_codes(index)
                self.counts["rows"] += there
                if self.encoded:
                    assert missing == 0
                check_lists(index)
        except psycopg.errors.LockNotAvailable:
            # The lock of somebody who truncates.
            assert any(map(self._inside, self.sessions))

    def _complete(self):
        for name in self.sessions:
            assert self.sessions[name].closed
        index = HashIndex.open(self.operator, "items_idx")
        try:
            index.encode()
        except LowerRecallError:
            # A swap that was cut off was forced, which who continues it does not know.
            index.encode()
        for index in indexes(self.operator):
            there, missing = check_codes(index)
            assert missing == 0
            assert index.state != "building"
            check_lists(index)
            self.counts["rows"] += there
        check_search(HashIndex.open(self.operator, "items_idx"), VECTORS[:2])


def install_models(url):
    """Store the models."""
    with connect(url) as connection:
        for model in machine_models():
            store.save(connection, model)
