"""Measure a name: what its search costs over the statement by hand, filters, builds and writers.

    python benchmarks/names.py [--rows 300000] [--queries 200]

Each part is saved in ``names.json`` as soon as it is measured; a later run continues after the
parts that are there (``--again`` measures all again). Take a quiet machine.

price
    CPU milliseconds of ``search_NAME`` and of the statement that a careful user writes by hand for
    the same set, at the same ``ef_search`` and number of candidates, in turns.
filters
    Filters that keep .5 to 50 % of the rows, given as filters and as a row policy: recall, and CPU
    of the name beside the exact query and an iterative scan by hand.
builds
    The longest INSERT of a writer during create, swap and rollback, and the WAL of the build; the
    first search of a new connection, and its memory.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, circumstances, cpu_seconds, parser, read, table, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval import about
from retrieval_data import ROUNDING, DataSet, Truth, draw
from retrieval_measures import TURN, WARM_UP, answered
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, Session, database, running

from pg_hashindex.index.handle import HashIndex
from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.quality.measuring import Answers

Entry = dict[str, Any]
K = 10
#: Rows of a thousand that a filter keeps: ``part < share``.
SHARES = (5, 10, 20, 50, 100, 200, 500)
_EF = (20, 30, 40, 60, 80, 120)
#: The options of each set that is measured.
SETS: dict[str, dict[str, Any]] = {"vectors": {"model": "none"}, "codes": {}}
# A search of the exact kind uses no index of pgvector's.
_EXACT = {"enable_indexscan": "off", "max_parallel_workers_per_gather": "0"}


class Contender:
    """A search that runs in turns with others; its answers, and its CPU time."""

    def __init__(
        self, name: str, statement: str, settings: dict[str, Any], role: str = "", **about: Any
    ) -> None:
        self.name, self.statement, self.settings, self.about = name, statement, settings, about
        self.role = role
        self.keys: dict[int, list[list[Any]]] = {}
        self.cpu = 0.0

    @contextlib.contextmanager
    def opened(self, base: Database) -> Iterator[Callable[..., Any]]:
        """Open a session of its own, and prepare the statement."""
        with base.session() as session:
            session.set(self.settings)
            if self.role:
                session.connection.execute(f"SET ROLE {self.role}".encode())
            self.pid = session.connection.info.backend_pid
            yield session.ask(self.statement)


def in_turns(
    base: Database, contenders: Sequence[Contender], recall: Callable[[list[list[Any]]], float]
) -> list[Entry]:
    """Run all queries by each contender, a few at a time, and return recall and CPU of each."""
    queries = [Vector(query) for query in base.drawn.queries]
    with contextlib.ExitStack() as stack:
        searches = [stack.enter_context(each.opened(base)) for each in contenders]
        for search in searches:
            answered(search, queries[:WARM_UP])
        # All of a turn ask the same queries; each is the first in turn.
        for turn, start in enumerate([*range(0, len(queries), TURN)] * 2):
            for place in np.roll(range(len(contenders)), turn):
                each = contenders[place]
                before = cpu_seconds(each.pid)
                each.keys[start], _ = answered(searches[place], queries[start : start + TURN])
                each.cpu += cpu_seconds(each.pid) - before
    return [
        {
            "name": each.name,
            **each.about,
            "recall": round(recall([key for s in sorted(each.keys) for key in each.keys[s]]), 4),
            "short": sum(len(key) < K for keys in each.keys.values() for key in keys),
            "cpu_ms": round(1e3 * each.cpu / (2 * len(queries)), 4),
        }
        for each in contenders
    ]


def by_hand(session: Session, name: str, candidates: int, where: str = "TRUE") -> str:
    """Write the search of a set as a careful user does; ef_search is the session's."""
    code, column, dimension, model = session.connection.execute(
        "SELECT m.n_bits, s.code_column, s.dimension, m.name FROM hashindex.index_set s "
        "LEFT JOIN hashindex.model m ON m.id = s.model_id "
        "WHERE s.index_name = %s AND s.state = 'used'",
        [name],
    ).fetchone()  # type: ignore[misc]
    if model is None:
        half = f"halfvec({dimension})"
        ranking = f"embedding::{half} <=> $1::vector::{half}"
    else:
        function = f"hashindex.code_{model}"
        ranked = column or f"{function}(embedding)::bit({code})"
        ranking = f"{ranked} <~> (SELECT {function}($1)::bit({code}))"
    return (
        f"SELECT id, distance FROM (SELECT id, embedding <=> $1::vector AS distance FROM items "
        f"WHERE {where} ORDER BY {ranking} LIMIT {candidates}) c ORDER BY distance LIMIT {K}"
    )


def price(base: Database, truth: Truth) -> Entry:
    """Return CPU of each name and of its statement by hand, for several numbers of candidates."""
    found: Entry = {}
    for name in SETS:
        with base.session() as session:
            usual = session.value(
                "SELECT candidates FROM hashindex.index_set WHERE index_name = %s", [name]
            )
            contenders = []
            for candidates in (usual, 40, 100):
                asked = "$1" if candidates is usual else f"$1, {K}, {candidates}"
                contenders += [
                    Contender(
                        "by hand",
                        by_hand(session, name, candidates),
                        {"hnsw.ef_search": max(candidates, K)},
                        candidates=candidates,
                    ),
                    Contender(
                        "by name",
                        f"SELECT * FROM hashindex.search_{name}({asked})",
                        {},
                        candidates=candidates,
                    ),
                ]
        found[name] = in_turns(base, contenders, truth.recall)
        for hand, own in zip(found[name][::2], found[name][1::2], strict=True):
            own["ratio"] = round(own["cpu_ms"] / hand["cpu_ms"], 3)
    return found


def part_of(ids: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the part, 0 to 999, of rows: what filters are about."""
    return ids * 7919 % 1000


class Filtered:
    """The exact answers among the rows of some parts."""

    def __init__(self, drawn: DataSet, truth: Truth, share: int) -> None:
        self._truth = truth
        ids = np.arange(len(drawn.rows))
        passing = ids[part_of(ids) < share]
        nearest = NearestRows(drawn.queries, K, "cosine")
        for start in range(0, len(passing), 16_384):
            nearest.add(drawn.rows[passing[start : start + 16_384]])
        near = passing[nearest.found()[0]]
        distances = np.sort(truth.distances(np.arange(len(near)), near), axis=1)[:, :K]
        self._exact = Answers([*(distances + ROUNDING)], [])

    def recall(self, found: list[list[Any]]) -> float:
        """Return recall@k of keys, which a filtered search gives as text."""
        distances = [
            self._truth.distances(np.array([query]), np.array(keys, np.intp)[None])[0]
            if keys
            else np.empty(0)
            for query, keys in enumerate(found)
        ]
        return Answers(distances, []).recall(self._exact, K)


def filters(base: Database, truth: Truth) -> Entry:
    """Return recall and CPU under filters and policies, beside the exact query and a scan."""
    found: Entry = {}
    with base.session() as session:
        for statement in (
            "CREATE ROLE names_reader",
            "GRANT USAGE ON SCHEMA hashindex TO names_reader",
            "GRANT SELECT ON items TO names_reader",
            "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY parts ON items USING (part < current_setting('names.share')::integer)",
        ):
            session.connection.execute(statement.encode())
    for share in SHARES:
        where = f"part < {share}"
        right = Filtered(base.drawn, truth, share)
        for name in SETS:
            with base.session() as session:
                scan = by_hand(session, name, 40, where)
            scan = scan.replace("SELECT id, distance FROM (", "WITH c AS MATERIALIZED (", 1)
            scan = scan.replace(") c ORDER BY", ") SELECT id, distance FROM c ORDER BY", 1)
            exact = (
                f"SELECT id, embedding <=> $1::vector AS distance FROM items WHERE {where} "
                f"ORDER BY embedding <=> $1::vector LIMIT {K}"
            )
            iterative = {"hnsw.iterative_scan": "relaxed_order", "hnsw.ef_search": 40}
            search = f"SELECT * FROM hashindex.search_{name}($1"
            results = in_turns(
                base,
                [
                    Contender("exact", exact, _EXACT),
                    Contender("iterative scan", scan, iterative | {"enable_seqscan": "off"}),
                    Contender("by name", f"{search}, filter => '{where}')", {}),
                    Contender("policy", f"{search})", {"names.share": share}, "names_reader"),
                ],
                right.recall,
            )
            found.setdefault(name, {})[str(share / 10)] = results
    with base.session() as session:
        for statement in (
            "DROP POLICY parts ON items",
            "ALTER TABLE items DISABLE ROW LEVEL SECURITY",
            "DROP OWNED BY names_reader",
            "DROP ROLE names_reader",
        ):
            session.connection.execute(statement.encode())
    return found


class Writer(threading.Thread):
    """A writer that inserts and deletes one row, again and again, and times each INSERT."""

    def __init__(self, base: Database) -> None:
        super().__init__()
        self._base, self._ended = base, threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        # No query's, whose neighbours it would leave among dead rows.
        vector = Vector(self._base.drawn.new_rows[0])
        with self._base.session() as session:
            while not self._ended.is_set():
                start = time.perf_counter()
                session.connection.execute(
                    "INSERT INTO items (id, tenth, half, embedding) VALUES (-1, 0, 0, %s)",
                    [vector],
                )
                self.waits.append(1e3 * (time.perf_counter() - start))
                session.connection.execute("DELETE FROM items WHERE id = -1")
                time.sleep(0.002)

    def __enter__(self) -> "Writer":
        self.start()
        time.sleep(1)
        self.waits.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def builds(base: Database) -> Entry:
    """Return waits of a writer and WAL of builds, and what a first search costs."""
    found: Entry = {}

    def measured(name: str, work: Callable[[Session], Any]) -> None:
        with base.session() as session, Writer(base) as writer:
            before = session.value("SELECT pg_current_wal_insert_lsn()")
            start = time.perf_counter()
            work(session)
            seconds = time.perf_counter() - start
            wal = session.value("SELECT pg_current_wal_insert_lsn() - %s::pg_lsn", [before])
        found[name] = {
            "seconds": round(seconds, 1),
            "inserts": len(writer.waits),
            "longest_ms": round(max(writer.waits), 1),
            "p99_ms": round(float(np.percentile(writer.waits, 99)), 1),
            "wal_bytes": int(wal),
        }
        print(name, found[name], flush=True)

    def create(session: Session) -> None:
        HashIndex.create(
            session.connection, "waits", table="items", column="embedding", candidates=40, effort=40
        )

    def swap(session: Session) -> None:
        HashIndex.open(session.connection, "waits").swap(model="none", force=True)

    measured("nothing", lambda _: time.sleep(10))
    measured("create", create)
    with base.session() as session:
        found["bytes"] = session.value("SELECT pg_relation_size('waits_hnsw')")
    measured("swap", swap)
    measured("rollback", lambda s: HashIndex.open(s.connection, "waits").rollback())
    measured("prune", lambda s: HashIndex.open(s.connection, "waits").prune())
    with base.session() as session:
        HashIndex.open(session.connection, "waits").drop()
    base.settle()
    for name in SETS:
        found[f"first search, {name}"] = first_search(base, name)
    return found


def first_search(base: Database, name: str) -> Entry:
    """Return milliseconds of the first and the third search of connections, and their memory."""
    vectors = [Vector(query) for query in base.drawn.queries[:3]]
    taken, memory = [], []
    for _ in range(20):
        with base.session() as session:
            session.value("SELECT count(*) FROM items WHERE id = 1")
            size = session.value("SELECT sum(total_bytes) FROM pg_backend_memory_contexts")
            waits = []
            for vector in vectors:
                start = time.perf_counter()
                session.value(f"SELECT count(*) FROM hashindex.search_{name}(%s)", [vector])
                waits.append(1e3 * (time.perf_counter() - start))
            grown = session.value("SELECT sum(total_bytes) FROM pg_backend_memory_contexts") - size
        taken.append(waits)
        memory.append(float(grown))
    first, _, third = np.median(taken, axis=0)
    return {
        "first_ms": round(float(first), 2),
        "third_ms": round(float(third), 2),
        "memory_bytes": int(np.median(memory)),
    }


def show(report: Entry) -> None:
    """Print the tables."""
    for name, points in report.get("price", {}).items():
        lines = [
            [
                f"{own['candidates']}",
                *(f"{e['recall']:.4f}" for e in (hand, own)),
                *(f"{e['cpu_ms']:.2f}" for e in (hand, own)),
                f"{own['ratio']:.2f}",
            ]
            for hand, own in zip(points[::2], points[1::2], strict=True)
        ]
        heads = ["candidates", "recall by hand", "by name", "CPU ms by hand", "by name", "ratio"]
        print(f"\n{name}\n{table(heads, lines)}")
    for name, shares in report.get("filters", {}).items():
        lines = [
            [f"{share} %", *(f"{e['recall']:.3f} {e['cpu_ms']:.2f} ({e['short']})" for e in found)]
            for share, found in shares.items()
        ]
        heads = ["filter keeps", "exact", "iterative scan", "by name", "policy"]
        print(f"\n{name}: recall, CPU ms (answers that are short)\n{table(heads, lines)}")
    for name, entry in report.get("builds", {}).items():
        print(name, entry)


def main() -> None:
    options = parser(__doc__ or "", rows=300_000, queries=200, output=RESULTS / "names.json")
    options.add_argument("--again", action="store_true", help="measure all parts again")
    options.add_argument("--quick", action="store_true", help="few rows, another file")
    args = options.parse_args()
    settings = QUICK_SETTINGS if args.quick else SETTINGS
    if args.quick:
        args.rows, args.queries, args.output = 20_000, 50, args.output.with_name("names_quick.json")
    report = {} if args.again or args.quick else read(args.output)
    drawn = draw(DATA_FOLDER, "synthetic-300k", args.queries, most=args.rows)

    def save(part: str, entry: Any) -> None:
        report[part] = entry
        report.setdefault("runs", []).append({"part": part} | circumstances())
        write(args.output, report)

    if {"price", "filters", "builds"} - set(report):
        with running(settings) as server, database(server, drawn) as base:
            report |= {"rows": len(drawn.rows), "machine": about(base), "server": settings}
            with base.session() as session:
                session.connection.execute(
                    b"ALTER TABLE items ADD COLUMN part integer GENERATED ALWAYS AS "
                    b"((id * 7919 % 1000)::integer) STORED"
                )
                session.connection.execute(b"CREATE INDEX items_part ON items (part)")
            truth = Truth(drawn, K)
            for name, own in SETS.items():
                with base.session() as session:
                    HashIndex.create(
                        session.connection, name, table="items", column="embedding", **own
                    )
            base.settle()
            for part, measure in (("price", price), ("filters", filters)):
                if part not in report:
                    save(part, measure(base, truth))
                    show({part: report[part]})
            if "builds" not in report:
                save("builds", builds(base))
    show(report)
    print(f"load {os.getloadavg()[0]:.2f}")


if __name__ == "__main__":
    main()
