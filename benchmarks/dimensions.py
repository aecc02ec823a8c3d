"""Measure what vectors of many dimensions cost, by where PostgreSQL keeps them, and by which codes.

    python benchmarks/dimensions.py [--rows 30000] [--note "beside other work"]

storage
    The same rows in tables whose column has each storage: bytes in the rows and out of line
    (TOAST); the server's CPU time to insert a row, for the exact query on one process, and to
    compare 100 rows drawn by key.
search
    pgvector's HNSW and ours (256 projections, landmarks) at the cheapest setting with a
    recall@10 of .95, with the vectors as pgvector keeps them (EXTERNAL), and again, the same
    indexes, after the table was rewritten with storage MAIN. HNSW indexes a vector of more than
    2,000 dimensions as halfvec; it takes no halfvec of more than 4,000.
codes
    The fewest candidates with a recall@10 of .95 and .99, for ITQ with 128 to 512 projections and
    1 or 3 cuts.

Rows come from `retrieval_data.clustered`. CPU times are those of the server's process.
"""

import argparse
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from common import RESULTS, cpu_seconds, machine, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_data import SEED, DataSet, Truth, clustered
from retrieval_measures import Extent, Searches, setting_of
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, Session, database, running
from retrieval_systems import Hnsw, Line, Ours, Setting, System

from pg_hashindex.hashers import make_hasher

OUTPUT = RESULTS / "dimensions.json"
#: Dimensions, the column's type, and the share of ``--rows`` that is drawn.
CASES = (
    (512, "vector", 1.0),
    (768, "vector", 1.0),
    (1536, "vector", 1.0),
    (1536, "halfvec", 1.0),
    (3072, "vector", 1.0),
    (3072, "halfvec", 1.0),
    (4200, "halfvec", 0.3),
)
STORAGES = ("EXTERNAL", "EXTENDED", "MAIN", "PLAIN")
TARGET, K = 0.95, 10
QUERIES, EXACT_QUERIES, COMPARED = 300, 10, 100
PROJECTIONS, RECALLS = (128, 256, 512), (0.95, 0.99)
TRAINED = 10_000
_INSERTED = 500
_HNSW_MOST = 4_000

Entry = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A data set in a database, and the type of its column."""

    database: Database
    kind: str

    @property
    def dimension(self) -> int:
        """The dimensions of the vectors."""
        return int(self.database.drawn.rows.shape[1])

    @property
    def name(self) -> dict[str, Any]:
        """The keys that its entries begin with."""
        return {
            "dimension": self.dimension,
            "type": self.kind,
            "rows": len(self.database.drawn.rows),
        }


class OursOf(Ours):
    """Ours, with few candidates: those of high dimensions are dear."""

    def lines(self) -> Sequence[Line]:
        """Return the settings to try."""
        return [
            [
                Setting(arguments={"candidates": kept, "effort": effort})
                for effort in (4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192)
            ]
            for kept in (200, 100, 50, 30, 20, 15)
        ]

    def commands(self, rows: int, seed: int) -> dict[str, str]:
        """Return the commands that build it, by step."""
        commands = super().commands(rows, seed)
        return commands | {"train": f"{commands['train']} --sample {TRAINED}"}


def drawn(dimension: int, rows: int) -> DataSet:
    """Draw rows and queries in clusters."""
    rng = np.random.default_rng(SEED)
    made = clustered(rows + QUERIES, dimension, rng)
    return DataSet.of(f"dims-{dimension}", made[:rows], made[rows:], made[:0], rng)


def cpu_ms(session: Session, work: Callable[[], object]) -> float:
    """Return the milliseconds of CPU that the server's process takes."""
    pid = session.connection.info.backend_pid
    before = cpu_seconds(pid)
    work()
    return 1000 * (cpu_seconds(pid) - before)


def a_query(session: Session, statement: str, queries: Sequence[Vector]) -> float:
    """Return the CPU milliseconds of a query, the first of them not counted."""
    ask = session.ask(statement)
    for query in queries[:5]:
        ask(query)
    taken = cpu_ms(session, lambda: [ask(query) for query in queries])
    return round(taken / len(queries), 3)


def storage(case: Case, name: str) -> Entry:
    """Measure a copy of the table whose column has a storage."""
    found: Entry = case.name | {"storage": name}
    queries = [Vector(query) for query in case.database.drawn.queries]
    with case.database.session() as session:
        execute = session.connection.execute
        session.set({"max_parallel_workers_per_gather": 0})
        execute(b"DROP TABLE IF EXISTS kept")
        execute(b"CREATE TABLE kept (LIKE items)")
        execute(f"ALTER TABLE kept ALTER COLUMN embedding SET STORAGE {name}".encode())
        # A value that is out of line already would be copied as it is.
        fresh = f"(embedding::vector + array_fill(0, ARRAY[{case.dimension}])::vector)::{case.kind}"
        insert = f"INSERT INTO kept (id, tenth, half, embedding) SELECT id, tenth, half, {fresh} "
        try:
            execute(f"{insert} FROM items WHERE id < {_INSERTED}".encode())
        except psycopg.errors.ProgramLimitExceeded as error:
            return found | {"refused": str(error).split(",")[0]}
        taken = cpu_ms(
            session, lambda: execute(f"{insert} FROM items WHERE id >= {_INSERTED}".encode())
        )
        rows = found["rows"] - _INSERTED
        found["insert_cpu_us_a_row"] = round(1000 * taken / rows, 1)
        execute(b"ALTER TABLE kept ADD PRIMARY KEY (id)")
        execute(b"VACUUM ANALYZE kept")
        sizes = execute(
            b"SELECT pg_relation_size(oid), pg_total_relation_size(reltoastrelid) FROM pg_class "
            b"WHERE oid = 'kept'::regclass"
        ).fetchone()
        assert sizes is not None
        found["heap_bytes"], found["toast_bytes"] = sizes
        # Statements sort by the selected distance, so that it is computed once.
        order = f"embedding <=> $1::vector::{case.kind} AS distance FROM kept"
        exact = f"SELECT id, {order} ORDER BY distance LIMIT {K}"
        found["exact_cpu_ms"] = a_query(session, exact, queries[:EXACT_QUERIES])
        keys = f"ARRAY(SELECT (random() * {rows})::bigint FROM generate_series(1, {COMPARED}))"
        by_key = f"SELECT id, {order} WHERE id = ANY ({keys}) ORDER BY distance LIMIT {K}"
        found["compare_100_cpu_ms"] = a_query(session, by_key, queries)
        execute(b"DROP TABLE kept")
    return found


def search(case: Case, extent: Extent) -> list[Entry]:
    """Measure HNSW and ours at a recall, with vectors out of line and in their rows."""
    base = case.database
    systems: list[System] = [OursOf("ours")]
    if case.dimension <= _HNSW_MOST:
        systems.append(Hnsw("hnsw", case.kind, case.dimension))
    built = {system.name: system.build(base, SEED).as_json() for system in systems}
    base.settle()
    searches = Searches(base, Truth(base.drawn, K), extent)
    queries = [Vector(query) for query in base.drawn.queries]
    best = searches.cheapest(systems, TARGET)
    found = []
    for kept in ("EXTERNAL", "MAIN"):
        if kept == "MAIN":
            # VACUUM FULL writes the rows again, and builds HNSW again.
            base.execute("ALTER TABLE items SET (toast_tuple_target = 8160)")
            base.execute("ALTER TABLE items ALTER COLUMN embedding SET STORAGE MAIN")
            base.execute("VACUUM FULL items")
            base.settle()
        points = searches.in_turns([(system, best[system.name]) for system in systems], 1)
        for system, point in zip(systems, points, strict=True):
            setting = setting_of(point)
            with base.session() as session:
                session.set(setting.session)
                statement = system.statement(K, setting)
                if isinstance(system, Hnsw):
                    # The distance would be read from the table once more.
                    statement = f"SELECT id FROM ({statement}) found"
                taken = min(a_query(session, statement, queries) for _ in range(2))
            found.append(
                case.name
                | {"storage": kept, "system": system.name, "setting": point["setting"]}
                | {name: point[name] for name in ("recall", "p50_ms", "p95_ms")}
                | {"cpu_ms": taken, "bytes": built[system.name]["bytes"]}
                | {"build_s": built[system.name]["seconds"]}
            )
    return found


def codes(data: DataSet) -> Iterator[Entry]:
    """Count the candidates that each code needs, in NumPy."""
    X, Q = data.rows, data.queries
    truth = np.argpartition(-(Q @ X.T), K, axis=1)[:, :K]
    for projections in PROJECTIONS:
        hasher = make_hasher("itq", n_bits=projections, normalize="l2", random_state=0)
        hasher.fit(X[: min(TRAINED, len(X))])
        for cuts in (1, 3):
            model = hasher.to_model("m", metric="cosine", cuts=cuts)
            order = model.order(Q, "cosine")
            distances = order.distances(slice(None), model.encode(X))
            yield {
                "dimension": X.shape[1],
                "rows": len(X),
                "projections": projections,
                "cuts": cuts,
                "candidates": {str(recall): needed(distances, truth, recall) for recall in RECALLS},
            }


def needed(distances: NDArray[Any], truth: NDArray[np.intp], recall: float) -> int:
    """Return the fewest candidates among which this share of the true neighbours is."""
    own = np.take_along_axis(distances, truth, axis=1)
    # Ties are taken in the middle.
    ordered = np.sort(distances, axis=1)
    ranks = [
        (np.searchsorted(all_, one, "left") + np.searchsorted(all_, one, "right") + 1) // 2
        for all_, one in zip(ordered, own, strict=True)
    ]
    return int(np.quantile(np.concatenate(ranks), recall, method="higher"))


@contextlib.contextmanager
def opened(dimension: int, kind: str, rows: int, settings: dict[str, str]) -> Iterator[Case]:
    """Start a server with one data set, and stop it afterwards."""
    with running(settings) as server, database(server, drawn(dimension, rows)) as base:
        if kind == "halfvec":
            base.execute(f"ALTER TABLE items ALTER COLUMN embedding TYPE halfvec({dimension})")
            base.settle()
        yield Case(base, kind)


def main() -> None:
    """Print what is measured, and write it as JSON after each case."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--quick", action="store_true", help="few rows; writes nothing")
    parser.add_argument("--note", default="", help="what else the machine did; kept in the JSON")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    args = parser.parse_args()
    rows = 1_500 if args.quick else args.rows
    settings = QUICK_SETTINGS if args.quick else SETTINGS | {"shared_buffers": "2GB"}
    extent = Extent(queries=60 if args.quick else QUERIES)
    report: Entry = {"machine": machine(), "note": args.note, "k": K, "target": TARGET}
    report |= {"storage": [], "search": [], "codes": []}
    done: set[int] = set()
    start = time.perf_counter()
    for dimension, kind, share in CASES:
        with opened(dimension, kind, int(share * rows), settings) as case:
            if dimension not in done:
                done.add(dimension)
                report["codes"] += shown(codes(case.database.drawn))
            report["storage"] += shown(storage(case, name) for name in STORAGES)
            report["search"] += shown(search(case, extent))
        report["seconds"] = round(time.perf_counter() - start)
        if not args.quick:
            write(args.output, report)


def shown(entries: Iterator[Entry] | list[Entry]) -> list[Entry]:
    """Print each entry when it is there."""
    kept = []
    for entry in entries:
        print("  ".join(f"{name} {value}" for name, value in entry.items()), flush=True)
        kept.append(entry)
    return kept


if __name__ == "__main__":
    main()
