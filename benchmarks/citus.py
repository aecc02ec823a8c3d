"""Compare a learned code in pgvector's HNSW on a Citus cluster with the exact query.

    python benchmarks/citus.py postgresql://.../empty --rows 300000 --shards 8 --workers 2

It needs a database of its own on the coordinator. A run measures one table after the other, each
of as many shards as ``--shards`` says on the first ``--workers`` workers; with 0 it is a plain
table on the coordinator. Each step is saved as soon as it is measured, and a step that is there is
not repeated unless ``--again`` says so; a run that was cut off is run again. The table is dropped
after the last step.

load
    COPY of all rows by 1,000, of 10,000 more by INSERT of 1,000 rows a statement, and of 1,000 more
    one by one.
build
    CREATE INDEX over a function of a thermometer model.
exact, search
    The nearest ten of 100 queries, and the same by codes with several values of ``hnsw.ef_search``.
    Ties count as correct.
writes
    As "load", with the index: 10,000 rows by COPY, as many by INSERT, and 1,000 one by one.

Rows are normalise(x_i + 0.35 (x_j - x_k)) of packages, made block by block from a seed.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, circumstances, machine, read, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_data import between
from retrieval_server import copy_rows

from pg_hashindex import schema, store
from pg_hashindex.db.connection import Connection, connect, create_engine
from pg_hashindex.db.statements import one_row
from pg_hashindex.errors import UnknownModelError
from pg_hashindex.hashers import Thermometer
from pg_hashindex.models import functions
from pg_hashindex.quality.measuring import Answers, ask

OUTPUT = RESULTS / "citus.json"
MODEL = "texts"
QUERIES, WRITTEN, BATCH, SAMPLE = 100, 10_000, 1_000, 8_000
SINGLES, WARM_UP = 1_000, 100
STEPS = ("load", "build", "exact", "search", "writes")
# The coordinator's settings are saved with the figures; workers are to have the same.
SETTINGS = ("server_version", "shared_buffers", "jit", "fsync")
# The seeds of other rows than those of the table.
_ASKED, _MORE = 1_000_001, 1_000_002


Blocks = Iterable[NDArray[np.float32]]


class Rows:
    """Synthetic rows, each block from a seed of its own."""

    def __init__(self) -> None:
        with np.load(DATA_FOLDER / "packages.npz") as archive:
            self._base = archive["X"].astype(np.float32)

    def block(self, seed: int, n: int) -> NDArray[np.float32]:
        rng = np.random.default_rng(seed)
        own = self._base[rng.integers(len(self._base), size=n)]
        return between(own, self._base, n, rng)

    def blocks(self, n: int) -> Iterator[NDArray[np.float32]]:
        for start in range(0, n, BATCH):
            yield self.block(start // BATCH, min(BATCH, n - start))


class Run:
    """One table, and what was measured of it."""

    def __init__(self, connection: Connection, arguments: argparse.Namespace, shards: int) -> None:
        self.connection, self.rows = connection, Rows()
        self.n, self.shards = arguments.rows, shards
        self.workers = arguments.workers if self.shards else 0
        self.efforts, self.candidates = arguments.efforts, arguments.candidates
        self.table = f"items_{self.n}_{self.shards}_{self.workers}"
        self.queries = [Vector(row) for row in self.rows.block(_ASKED, QUERIES)]
        self.truth: Answers | None = None

    # Steps ---------------------------------------------------------------------------------------

    def load(self) -> dict[str, Any]:
        self._execute(f"DROP TABLE IF EXISTS {self.table} CASCADE")
        self._execute(f"CREATE TABLE {self.table} (id bigint PRIMARY KEY, embedding vector(384))")
        if self.shards:
            with self._only_workers():
                self._execute(
                    f"SELECT create_distributed_table('{self.table}', 'id', "
                    f"shard_count => {self.shards}, colocate_with => 'none')"
                )
        copied = self._timed(self._copy, self.rows.blocks(self.n), 1)
        return {"copy": copied, "insert": self._more(self._insert), "single": self._singles()}

    def build(self) -> dict[str, Any]:
        try:
            store.describe(self.connection, MODEL)
        except UnknownModelError:
            model = Thermometer(normalize="l2").fit(self.rows.block(0, SAMPLE))
            store.save(self.connection, model.to_model(MODEL, metric="cosine", cuts=3))
        functions.create(self.connection, MODEL)
        self._execute(f"DROP INDEX IF EXISTS {self.table}_codes")
        began = time.monotonic()
        self._execute(
            f"CREATE INDEX {self.table}_codes ON {self.table} USING hnsw "
            f"(({self._code()}) bit_hamming_ops) WITH (ef_construction = 128)"
        )
        seconds = time.monotonic() - began
        self._execute(f"ANALYZE {self.table}")
        return {"seconds": round(seconds, 1)}

    def exact(self) -> dict[str, Any]:
        return self._shown(self._truth())

    def search(self) -> dict[str, Any]:
        truth, found = self._truth(), {}
        for effort in self.efforts:
            with self.connection.transaction():
                # Citus sends settings of a transaction to the workers.
                self._execute("SET LOCAL citus.propagate_set_commands TO 'local'")
                self._execute(f"SET LOCAL hnsw.ef_search = {effort}")
                answers = self._ask(
                    "SELECT id, embedding <=> %(query)s AS d FROM ("
                    f"SELECT id, embedding FROM {self.table} ORDER BY {self._code()} <~> "
                    f"(SELECT hashindex.code_{MODEL}(%(query)s)) LIMIT {self.candidates}"
                    ") c ORDER BY d LIMIT 10"
                )
            recall = {"recall": round(answers.recall(truth, 10), 4)}
            found[str(effort)] = self._shown(answers) | recall
        return found

    def writes(self) -> dict[str, Any]:
        return {
            "copy": self._more(self._copy),
            "insert": self._more(self._insert),
            "single": self._singles(),
        }

    def drop(self) -> None:
        self._execute(f"DROP TABLE IF EXISTS {self.table}")

    # Parts ---------------------------------------------------------------------------------------

    def is_loaded(self) -> bool:
        return bool(one_row(self.connection, "SELECT to_regclass($1) IS NOT NULL", [self.table])[0])

    def _execute(self, statement: str, values: list[Any] | None = None) -> None:
        self.connection.execute(statement.encode(), values)

    def _code(self) -> str:
        model = store.describe(self.connection, MODEL)
        return f"hashindex.code_{MODEL}(embedding)::bit({model.n_bits})"

    @contextmanager
    def _only_workers(self) -> Iterator[None]:
        """Have new tables on the first workers alone."""
        change = (
            "SELECT citus_set_node_property(nodename, nodeport, 'shouldhaveshards', number <= %s) "
            "FROM (SELECT *, row_number() OVER (ORDER BY nodeport) AS number FROM pg_dist_node "
            "WHERE groupid <> 0) n"
        )
        self._execute(change, [self.workers])
        try:
            yield
        finally:
            self._execute(change, [1_000])

    def _truth(self) -> Answers:
        if self.truth is None:
            self.truth = self._ask(
                f"SELECT id, embedding <=> %(query)s AS d FROM {self.table} ORDER BY d + 0 LIMIT 10"
            )
        return self.truth

    def _ask(self, statement: str) -> Answers:
        return ask(
            lambda query: self.connection.execute(
                statement.encode(), {"query": query[0]}
            ).fetchall(),
            [(query,) for query in self.queries],
            warm_up=20,
        )

    def _shown(self, answers: Answers) -> dict[str, Any]:
        return {"p50_ms": round(answers.p50_ms, 2), "p95_ms": round(answers.p95_ms, 2)}

    def _copy(self, first: int, rows: NDArray[np.float32]) -> None:
        copy_rows(self.connection, self.table, enumerate(rows, first))

    def _insert(self, first: int, rows: NDArray[np.float32]) -> None:
        values = ", ".join(["(%s, %s)"] * len(rows))
        statement = f"INSERT INTO {self.table} (id, embedding) VALUES {values}"
        numbered = enumerate(rows, first)
        self._execute(statement, [value for n, row in numbered for value in (n, Vector(row))])

    def _timed(
        self,
        put: Callable[[int, NDArray[np.float32]], None],
        blocks: Blocks,
        first: int,
    ) -> int:
        """Return the rows a second, without the time to make them."""
        seconds = 0.0
        began_with = first
        for block in blocks:
            began = time.monotonic()
            put(first, block)
            seconds += time.monotonic() - began
            first += len(block)
        return round((first - began_with) / seconds)

    def _more(
        self, put: Callable[[int, NDArray[np.float32]], None], blocks: Blocks | None = None
    ) -> int:
        """Write rows after those of the table, and delete them again."""
        gone = f"DELETE FROM {self.table} WHERE id > {self.n}"
        self._execute(gone)
        more = blocks or [self.rows.block(_MORE + n, BATCH) for n in range(WRITTEN // BATCH)]
        speed = self._timed(put, more, self.n + 1)
        self._execute(gone)
        return speed

    def _singles(self) -> int:
        """Insert rows one by one, each in a transaction of its own."""
        rows = self.rows.block(_MORE, SINGLES)
        # Sessions of all nodes make their plans.
        self._more(self._insert, [row[np.newaxis] for row in rows[:WARM_UP]])
        return self._more(self._insert, [row[np.newaxis] for row in rows])


def measure(run: Run, report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """Take the steps of a table that are missing, and save each."""
    place = {"rows": run.n, "shards": run.shards, "workers": run.workers}
    found = [e for e in report["results"] if e.items() >= place.items()]
    entry = found[0] if found else dict(place)
    if not found:
        report["results"].append(entry)
    missing = [step for step in STEPS if step not in entry]
    if arguments.again or (missing and not run.is_loaded()):
        # The figures belong to a table that is gone.
        entry.clear()
        now = circumstances()
        entry.update(place | {name: now[name] for name in ("commit", "run")})
    for step in STEPS:
        if step not in entry:
            print(f"{run.table}: {step} ...", end=" ", flush=True)
            began = time.monotonic()
            entry[step] = getattr(run, step)()
            print(f"{time.monotonic() - began:.0f} s: {entry[step]}", flush=True)
            write(arguments.output, report)
    run.drop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument("--shards", type=int, nargs="+", default=[0, 8], help="0: a plain table")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="measure steps that are there too")
    parser.add_argument("--efforts", type=int, nargs="+", default=[10, 20, 30, 40, 60, 100])
    parser.add_argument("--candidates", type=int, default=40)
    parser.add_argument("--output", type=type(OUTPUT), default=OUTPUT)
    arguments = parser.parse_args()
    engine = create_engine(arguments.url)
    with engine.begin() as transaction:
        schema.upgrade(transaction)
    engine.dispose()
    report = read(arguments.output) or {"machine": machine(), "results": []}
    with connect(arguments.url) as connection:
        report["server"] = {name: one_row(connection, f"SHOW {name}")[0] for name in SETTINGS}
        for shards in arguments.shards:
            measure(Run(connection, arguments, shards), report, arguments)


if __name__ == "__main__":
    main()
