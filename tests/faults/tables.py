"""Table items of the fault tests: its rows and models, a writer, and what must hold of them."""

import contextlib
import itertools
import threading
import time

import numpy as np
import psycopg
from fixtures.checks import catch_up
from fixtures.known import code_texts, stored_codes
from pgvector import Vector
from psycopg import RawCursor, sql

from pg_hashindex import schema, store
from pg_hashindex.db.connection import connect, create_engine
from pg_hashindex.errors import HashIndexError
from pg_hashindex.hashers import LSH
from pg_hashindex.index.catalog import read_sets
from pg_hashindex.index.handle import HashIndex, list_indexes
from pg_hashindex.models.model import Model
from pg_hashindex.models.network import known_rows

ROWS = 1_200
DIMENSION = 8
BITS = 12
#: The rows of the table, and vectors that writers take: those that models know are among them.
RNG = np.random.default_rng(20)
VECTORS = RNG.standard_normal((ROWS, DIMENSION)).astype(np.float32)
OTHERS = RNG.standard_normal((50, DIMENSION)).astype(np.float32)


def models():
    """Return three models that SQL evaluates, and one that has codes of known rows alone."""
    lsh, other, third = (LSH(n_bits=BITS, random_state=seed).fit(VECTORS) for seed in (3, 4, 5))
    return {
        "lsh": lsh.to_model("lsh"),
        "other": other.to_model("other"),
        "third": third.to_model("third"),
        "known": Model(
            "known", "byhand", DIMENSION, (), network=known_rows(VECTORS, lsh.encode(VECTORS), BITS)
        ),
    }


def install(url):
    """Make the schema, the models and the table."""
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("CREATE EXTENSION IF NOT EXISTS vector")
    engine = create_engine(url)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    with connect(url) as connection:
        for model in models().values():
            store.save(connection, model)
        make_items(connection)


def make_items(connection):
    """Make table items."""
    connection.execute(
        f"CREATE TABLE items (id bigint PRIMARY KEY, category text, embedding vector({DIMENSION}))"
    )
    with connection.cursor() as cursor, cursor.copy("COPY items FROM STDIN") as copy:
        for number, vector in enumerate(VECTORS):
            copy.write_row((number + 1, "abc"[number % 3], Vector(vector)))
    connection.execute("ANALYZE items")


class Beside(HashIndex):
    """An index with a set that is not in use, in place of the one that is."""

    @property
    def metadata(self):
        return self._row


def indexes(connection):
    """Return every index, and again with each set of lists beside the one in use.

    One that is being built is there from when its codes are in order.
    """
    found = list_indexes(connection)
    for index in list(found):
        for row in read_sets(connection, index.name, "building", "ready", "former"):
            begun = row.state != "building" or _is_in_order(row)
            if row.is_lists and row.set_id != index.metadata.set_id and begun:
                found.append(Beside(connection, index.name, row))
    return found


def _is_in_order(row):
    """Return whether a build has codes; a crash empties the staged ones, and it begins again."""
    refresh = f"SELECT to_regproc('hashindex.refresh_{row.set_id}') IS NOT NULL"
    if row.connection.execute(refresh.encode()).fetchone() != (True,):
        return False
    staged = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(row.part("staged"))
    return row.connection.execute(staged).fetchone() == (True,)


def check_codes(index):
    """Every code is one that the model in Python gives its row, and no other row has one.

    Returns
    -------
    codes : int
    missing : int
        Rows with a vector that have none.
    """
    model = index.loaded_model
    row = index.metadata
    if row.state == "building" and not _is_in_order(row):
        # No code is there yet.
        return 0, sum(vector is not None for _, vector in stored_codes(index).values())
    catch_up(index)
    logged = logged_keys(index)
    stored = [
        (key, code, vector)
        for key, (code, vector) in stored_codes(index).items()
        if (code is not None or vector is not None) and key not in logged and None not in logged
    ]
    left_over = [key for key, _, vector in stored if vector is None]
    assert not left_over, f"{index.name}: codes without a row or a vector: {left_over[:10]}"
    if not stored:
        return 0, 0
    vectors = np.stack([vector for _, _, vector in stored if vector is not None])
    fresh = code_texts(model.encode(vectors), model.n_bits)
    wrong = [
        (key, code, right)
        for (key, code, _), right in zip(stored, fresh, strict=True)
        if code is not None and code != right
    ]
    assert not wrong, f"{index.name}: stale codes (key, code, fresh): {wrong[:10]}"
    there = sum(code is not None for _, code, _ in stored)
    return there, len(stored) - there


def logged_keys(index):
    """Return the keys that a build of codes beside those in use is still to apply."""
    index = index.metadata
    if index.state == "used":
        return set()
    log = sql.SQL("SELECT * FROM {}").format(index.part("log"))
    rows = index.connection.execute(log).fetchall()
    # The last column marks a log that has passed its limit.
    return {None if None in key else index.key.read(tuple(key)) for *key, _ in rows}


def check_lists(index):
    """With landmarks, each row that has a code is listed under one of them."""
    cursor = RawCursor(index.connection)
    row = index.metadata
    if row.trained_rows is None:
        return
    missing = cursor.execute(
        sql.SQL(
            "SELECT {code_key} FROM {codes} c "
            "WHERE NOT EXISTS (SELECT FROM {landmarks} l WHERE l.landmark = c.landmark)"
        ).format(**row.names, codes=row.codes, landmarks=row.part("landmarks"))
    ).fetchall()
    assert not missing, f"{index.name}: rows that are in no list: {missing[:10]}"


def check_search(index, queries):
    """With every row a candidate, the answers are those of NumPy among the rows with a code.

    Until the index is encoded, and where fewer than 10 rows have a code, they are among all rows.
    """
    stored = stored_codes(index).items()
    every = [(key, code, vector) for key, (code, vector) in stored if vector is not None]
    rows = [(key, vector) for key, code, vector in every if code is not None]
    if not index.encoded or len(rows) < 10:
        rows = [(key, vector) for key, _, vector in every]
    effort = 1000 if index.access == "lists" else None
    # pgvector's HNSW gives 1000 at the most, and with relaxed order more as it goes on.
    for query in queries:
        found = index.search(query, 10, candidates=len(rows) + 1_000, effort=effort)
        if not rows:
            assert found == []
            continue
        distances = np.linalg.norm(
            np.stack([vector for _, vector in rows]).astype(np.float64) - query, axis=1
        )
        wanted = np.sort(distances)[:10]
        np.testing.assert_allclose([hit.distance for hit in found], wanted, rtol=1e-5, atol=1e-6)
        by_key = {key: distance for (key, _), distance in zip(rows, distances, strict=True)}
        assert len({hit.id for hit in found}) == len(found)
        np.testing.assert_allclose([by_key[hit.id] for hit in found], wanted, rtol=1e-5, atol=1e-6)


def check_all(url, *, complete):
    """Check every index of a database; return how many codes were looked at."""
    count = 0
    with connect(url) as connection:
        for index in indexes(connection):
            there, missing = check_codes(index)
            count += there
            if complete:
                assert missing == 0, f"{index.name}: {missing} rows without a code"
            check_lists(index)
            if index.metadata.state == "used":
                check_search(index, OTHERS[:2])
    return count


class Writer:
    """Somebody who writes to items, and knows what was committed."""

    def __init__(self, url, seed):
        self.rows = {}
        #: Writes under way when the connection was cut: each may be there or not.
        self.unsure = set()
        self.operations = 0
        self.problem = None
        #: Held, nothing is written.
        self.pause = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, args=(url, seed), daemon=True)
        self._thread.start()

    def stop(self):
        """Let it end."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        # Cut off with the server, or a lock was not to be had; anything else a writer would see.
        if self.problem is not None:
            state = self.problem.sqlstate or ""
            assert isinstance(self.problem, psycopg.OperationalError), self.problem
            assert state in {"", "57P01", "57P02", "57P03"}, self.problem

    def _write(self, url, seed):
        rng = np.random.default_rng(seed)
        numbers = itertools.count(ROWS + 1)
        with contextlib.suppress(psycopg.OperationalError, HashIndexError), connect(url) as session:
            while not self._stop.is_set():
                time.sleep(0.002)
                key = next(numbers) if rng.random() < 0.5 else int(rng.integers(1, ROWS))
                vector = int(rng.integers(len(OTHERS)))
                gone = rng.random() < 0.2
                self.unsure = {key}
                try:
                    with self.pause:
                        if gone:
                            session.execute("DELETE FROM items WHERE id = %s", [key])
                        else:
                            session.execute(
                                "INSERT INTO items VALUES (%s, 'w', %s) ON CONFLICT (id) "
                                "DO UPDATE SET embedding = excluded.embedding",
                                [key, Vector(OTHERS[vector])],
                            )
                except psycopg.Error as error:
                    self.problem = error
                    return
                self.rows[key] = None if gone else vector
                self.unsure = set()
                self.operations += 1

    def lost(self, url):
        """Count committed writes that are not there."""
        expected = {n + 1: vector for n, vector in enumerate(VECTORS)}
        for key, place in self.rows.items():
            expected[key] = None if place is None else OTHERS[place]
        with connect(url) as session:
            found = dict(session.execute("SELECT id, embedding FROM items").fetchall())
        lost = 0
        for key in {*expected, *found} - self.unsure:
            wanted, there = expected.get(key), found.get(key)
            if wanted is None or there is None:
                lost += not (wanted is None and there is None)
            else:
                lost += not np.array_equal(wanted, there.to_numpy())
        return lost
