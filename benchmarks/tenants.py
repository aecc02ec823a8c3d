"""Search within one tenant of many: one index with tenants, and what pgvector offers instead.

    python benchmarks/tenants.py [--rows 300000]
    python benchmarks/tables.py

The rows are those of `retrieval.py`. Each belongs to a tenant, at random: 2,000 tenants of 3 rows
to a quarter of all, by the law of Zipf. For some tenants, from small to large, each system searches
for ten neighbours among the tenant's rows, at the cheapest setting that finds .98 of them, in turns
of 25 queries with the others:

ours
    One index with ``--tenant``, built by the command line.
hnsw
    One HNSW over all rows, with iterative scans in strict or relaxed order, whichever is faster.
hnsw-signs, hnsw-code
    The same over ``binary_quantize`` and over codes of a `thermometer`, whose best are re-ranked.
exact
    The exact query, by a b-tree on the tenant.
partition
    An HNSW over a table of this tenant's rows, as of a LIST partition.
alone
    An index of pg_hashindex over such a table, without tenants.

Each part is saved when it is measured. Another run of the same data replaces it.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from common import DATA_FOLDER, RESULTS, aligned, cpu_seconds, machine, parser, read, write
from numpy.typing import NDArray
from pgvector import Vector
from retrieval_data import ROUNDING, ROWS, draw
from retrieval_measures import TURN, WARM_UP, answered, percentiles
from retrieval_server import SETTINGS, Session, copy_rows, running
from retrieval_systems import run_command

from pg_hashindex.db.connection import connect
from pg_hashindex.metrics.search import recall_of
from pg_hashindex.metrics.truth import NearestRows
from pg_hashindex.quality.measuring import Prepared
from pg_hashindex.server.demo import new_database

SEED = 20
K, TARGET, QUERIES, ROUNDS = 10, 0.98, 200, 2
TENANTS, LARGEST, SMALLEST = 2_000, 0.25, 3
#: Sizes of the tenants that are searched.
SEARCHED = (30, 300, 1_000, 10_000, 30_000, 100_000)
INSERTS = 1_000
#: Seconds after which the queries of one system end.
SLOWEST = 5
#: Seconds of a query beyond which a setting has lost, and the queries that are run all the same: of
#: settings that are tried, of the best one, and of each before its time counts.
LOST, TRIED, ASKED, STARTED = 0.05, 20, 50, 3
#: Recall that a dearer setting has to add, once one has lost.
GAIN = 0.01

#: Candidates and effort, from cheap to dear.
_OURS = (
    (20, 16), (20, 32), (25, 48), (30, 64), (40, 80), (50, 112), (60, 160), (80, 224), (120, 320),
    (200, 500),
)  # fmt: skip
_EF = (10, 20, 30, 40, 60, 80, 100, 140, 200, 280, 400, 600, 1000)
# An iterative scan continues by itself where ef_search was too small.
_EF_SCANS = (20, 60, 120, 200, 400, 700, 1000)
# Candidates that an HNSW over codes re-ranks.
_RE_RANKED = (40, 100, 200, 400, 800)
_HNSW_ONLY = "SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off"
_BTREE_ONLY = "SET enable_seqscan = off; SET enable_indexscan = off"

Entry = dict[str, Any]
# A system's settings, from cheap to dear: statements for the session, and the search.
Line = Sequence[tuple[str, str, str]]


class Tried(NamedTuple):
    """A setting, its recall, and the seconds of a query."""

    setting: tuple[str, str, str]
    recall: float
    seconds: float

    @property
    def worth(self) -> tuple[bool, float]:
        """Greater for a better setting."""
        reached = self.recall >= TARGET
        return reached, -self.seconds if reached else self.recall


def sizes_of(rows: int) -> NDArray[np.intp]:
    """Return the rows of each tenant, largest first."""
    ranks = np.arange(1, TENANTS + 1)
    low, high = 0.5, 4.0
    for _ in range(60):
        power = (low + high) / 2
        sizes = np.maximum(SMALLEST, (LARGEST * rows * ranks**-power).astype(np.intp))
        low, high = (power, high) if sizes.sum() > rows else (low, power)
    sizes[1] += rows - sizes.sum()
    return sizes


class Bench:
    """One data set in one database."""

    def __init__(self, session: Session, uri: str, data: Path, rows: int) -> None:
        self.session, self.uri = session, uri
        name = "synthetic-300k" if rows <= ROWS["synthetic-300k"] else "synthetic-1m"
        self.drawn = draw(data, name, QUERIES, most=rows)
        sizes = sizes_of(len(self.drawn.rows))
        self.sizes = sizes
        rng = np.random.default_rng(SEED)
        self.tenants = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
        self.tenants = np.append(
            self.tenants, rng.integers(len(sizes), size=len(self.drawn.rows) - len(self.tenants))
        )
        self.vectors = [Vector(query) for query in self.drawn.queries]

    def load(self) -> None:
        """Make and fill the table."""
        d = self.drawn.rows.shape[1]
        self.run(
            f"CREATE TABLE items (id bigint PRIMARY KEY, tenant integer NOT NULL, "
            f"embedding vector({d}))"
        )
        rows = zip(range(len(self.tenants)), self.tenants.tolist(), self.drawn.rows, strict=False)
        copy_rows(self.session.connection, "items", rows, ["tenant"])
        self.run("CREATE INDEX items_tenant ON items (tenant)")
        self.run("VACUUM ANALYZE items")

    def run(self, statement: str) -> None:
        """Run a statement."""
        self.session.connection.execute(statement.encode())

    def build(self, index: str, options: str, table: str = "items") -> Entry:
        """Build an index of pg_hashindex; return seconds, the client's CPU, and bytes."""
        before = self._bytes()
        ran = run_command(
            f"index create {index} --table {table} --column embedding --model codes {options}",
            self.uri,
        )
        self.run("VACUUM ANALYZE")
        return {
            "seconds": round(ran.seconds, 2),
            "cpu_s": round(ran.cpu_s, 2),
            "bytes": self._bytes() - before,
        }

    def hnsw(
        self, table: str = "items", of: str = "embedding vector_cosine_ops", options: str = ""
    ) -> Entry:
        """Build an HNSW; return seconds and bytes."""
        start = time.perf_counter()
        self.run(f"CREATE INDEX ON {table} USING hnsw ({of}) {options}")
        taken = time.perf_counter() - start
        size = self.session.value(
            "SELECT pg_relation_size(max(indexrelid)) FROM pg_index WHERE indrelid = %s::regclass",
            [table],
        )
        return {"seconds": round(taken, 2), "bytes": size}

    def codes(self) -> dict[str, str]:
        """Return the expressions of codes in an HNSW, by the names of `memory.py`'s systems."""
        bits = self.drawn.rows.shape[1]
        return {
            "hnsw-signs": f"binary_quantize(embedding)::bit({bits})",
            "hnsw-code": f"hashindex.code_cuts(embedding)::bit({3 * bits})",
        }

    def _bytes(self) -> int:
        return int(
            self.session.value(
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
                "WHERE relnamespace = 'hashindex'::regnamespace AND relkind = 'r'"
            )
        )

    def inserts(self) -> Entry:
        """Insert rows one by one, of tenants as they are; return rows a second and CPU."""
        first = int(self.session.value("SELECT max(id) + 1 FROM items"))
        rng = np.random.default_rng(SEED + 1)
        owners = rng.choice(self.tenants, INSERTS)
        with connect(self.uri) as connection:
            insert = Session(connection).ask("INSERT INTO items VALUES ($1, $2, $3) RETURNING id")
            pid = connection.info.backend_pid
            for place in range(INSERTS):
                if place == 3:
                    start, before = time.perf_counter(), cpu_seconds(pid)
                insert(first + place, int(owners[place]), Vector(self.drawn.new_rows[place]))
            taken, cpu = time.perf_counter() - start, cpu_seconds(pid) - before
        self.run(f"DELETE FROM items WHERE id >= {first}")
        self.run("VACUUM ANALYZE")
        return {
            "a_second": round((INSERTS - 3) / taken, 1),
            "cpu_us": round(1e6 * cpu / (INSERTS - 3), 1),
        }

    def searched(self) -> list[int]:
        """Return tenants of many sizes, small ones first."""
        found = {int(np.abs(np.log(self.sizes / size)).argmin()): None for size in SEARCHED}
        return [*found]

    def search(self, tenant: int) -> Entry:
        """Compare the systems within a tenant."""
        size = int((self.tenants == tenant).sum())
        entry: Entry = {"rows": size}
        table = f"part_{tenant}"
        self.run(f"DROP TABLE IF EXISTS {table}")
        self.run(f"CREATE TABLE {table} AS SELECT * FROM items WHERE tenant = {tenant}")
        self.run(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
        entry["partition_build"] = self.hnsw(table)
        entry["alone_build"] = self.build(f"alone_{tenant}", "", table)
        lines = self._lines(tenant, table)
        truth = self._truth(tenant)
        best: dict[str, Tried] = {}
        for name, line in lines:
            tried = self._first(line, truth)
            if name not in best or tried.worth > best[name].worth:
                best[name] = tried
        timed = self._in_turns([tried.setting for tried in best.values()])
        for (name, tried), times in zip(best.items(), timed, strict=True):
            recall = self._tried(tried.setting, truth, ASKED).recall
            entry[name] = {"setting": tried.setting[2], "recall": round(recall, 4), **times}
        self.run(f"SELECT hashindex.drop_index('alone_{tenant}')")
        self.run(f"DROP TABLE {table}")
        return entry

    def _lines(self, tenant: int, table: str) -> list[tuple[str, Line]]:
        distance = "embedding <=> $1"
        near = f"SELECT id, {distance} AS distance FROM items WHERE tenant = {tenant}"
        strict = f"{near} ORDER BY {distance} LIMIT {K}"
        relaxed = f"WITH n AS MATERIALIZED ({strict}) SELECT * FROM n ORDER BY distance + 0"
        access = self.session.value(
            "SELECT access FROM hashindex.index WHERE name = %s", [f"alone_{tenant}"]
        )

        def ours(function: str, rest: str, probed: bool) -> Line:
            return [
                (
                    "",
                    f"SELECT id, distance FROM hashindex.search_{function}($1, {K}, "
                    f"candidates => {kept}{f', effort => {effort}' if probed else ''}{rest})",
                    f"candidates={kept} effort={effort}",
                )
                for kept, effort in _OURS
            ]

        def scans(order: str, statement: str) -> list[Line]:
            return [
                [
                    (
                        f"{_HNSW_ONLY}; SET hnsw.iterative_scan = {order}; "
                        f"SET hnsw.ef_search = {ef}; SET hnsw.max_scan_tuples = {most}",
                        statement,
                        f"{order} ef_search={ef} max_scan_tuples={most}",
                    )
                    for ef in _EF_SCANS
                ]
                for most in (20_000, 100_000)
            ]

        def over_codes(code: str) -> Line:
            best = (
                f"SELECT id, {distance} AS distance FROM (SELECT id, embedding FROM items "
                f"WHERE tenant = {tenant} ORDER BY {code} <~> "
                f"(SELECT {code.replace('embedding', '$1::vector')}) LIMIT {{}}) best "
                f"ORDER BY distance LIMIT {K}"
            )
            return [
                (
                    f"{_HNSW_ONLY}; SET hnsw.iterative_scan = relaxed_order; "
                    f"SET hnsw.ef_search = {kept}; SET hnsw.max_scan_tuples = 100000",
                    best.format(kept),
                    f"candidates={kept} max_scan_tuples=100000",
                )
                for kept in _RE_RANKED
            ]

        partition = [
            (
                f"{_HNSW_ONLY}; SET hnsw.ef_search = {ef}",
                f"SELECT id, {distance} AS distance FROM {table} ORDER BY {distance} LIMIT {K}",
                f"ef_search={ef}",
            )
            for ef in _EF
        ]
        exact = f"{near} ORDER BY ({distance}) + 0 LIMIT {K}"
        return [
            ("ours", ours("items", f", tenant => {tenant}", True)),
            *(("hnsw", line) for line in scans("strict_order", strict)),
            *(("hnsw", line) for line in scans("relaxed_order", relaxed)),
            *((name, over_codes(code)) for name, code in self.codes().items()),
            ("exact", [(_BTREE_ONLY, exact, "")]),
            ("partition", partition),
            ("alone", ours(f"alone_{tenant}", "", access == "lists")),
        ]

    def _truth(self, tenant: int) -> list[NDArray[np.float64]]:
        own = self.drawn.rows[self.tenants[: len(self.drawn.rows)] == tenant]
        nearest = NearestRows(self.drawn.queries, min(K, len(own)), "cosine")
        nearest.add(own)
        places = nearest.found()[0][:, : min(K, len(own))]
        Q = self.drawn.queries.astype(np.float64)
        Q /= np.linalg.norm(Q, axis=1)[:, None]
        X = own.astype(np.float64)
        X /= np.linalg.norm(X, axis=1)[:, None]
        return [*(np.sort(1 - np.einsum("qkd,qd->qk", X[places], Q), axis=1) + ROUNDING)]

    def _first(self, line: Line, truth: Sequence[NDArray[np.float64]]) -> Tried:
        """Return the first setting that reaches the recall, else the best."""
        best: Tried | None = None
        for setting in line:
            tried = self._tried(setting, truth, TRIED)
            if tried.recall >= TARGET:
                return tried
            if best is not None and tried.seconds > LOST and tried.recall < best.recall + GAIN:
                return best
            if best is None or tried.recall > best.recall:
                best = tried
        assert best is not None
        return best

    def _tried(
        self, setting: tuple[str, str, str], truth: Sequence[NDArray[np.float64]], least: int
    ) -> Tried:
        """Ask all queries, or the first of them if the setting is slow."""
        with self._asked(setting) as search:
            answered(search, self.vectors[:STARTED])
            right: list[int] = []
            start = time.perf_counter()
            for vector, exact in zip(self.vectors, truth, strict=True):
                distances = np.array([row[1] for row in search(vector)])
                right.append(int((distances <= exact[-1]).sum()))
                taken = time.perf_counter() - start
                if len(right) >= least and taken > LOST * len(right):
                    break
        wanted = [len(exact) for exact in truth[: len(right)]]
        return Tried(setting, recall_of(right, wanted), taken / len(right))

    @contextmanager
    def _asked(self, setting: tuple[str, str, str]) -> Iterator[Prepared]:
        with connect(self.uri) as connection:
            session = Session(connection)
            if setting[0]:
                connection.execute(setting[0].encode())
            yield session.ask(setting[1])

    def _in_turns(self, settings: Sequence[tuple[str, str, str]]) -> list[Entry]:
        taken: list[list[float]] = [[] for _ in settings]
        cpu = [0.0 for _ in settings]
        with ExitStack() as stack:
            searches, pids = [], []
            for setting in settings:
                connection = stack.enter_context(connect(self.uri))
                session = Session(connection)
                if setting[0]:
                    connection.execute(setting[0].encode())
                searches.append(session.ask(setting[1]))
                pids.append(connection.info.backend_pid)
            for search in searches:
                answered(search, self.vectors[:WARM_UP], SLOWEST)
            for start in [*range(0, QUERIES, TURN)] * ROUNDS:
                for place, search in enumerate(searches):
                    if sum(taken[place]) > 1_000 * SLOWEST:
                        continue
                    before = cpu_seconds(pids[place])
                    _, milliseconds = answered(search, self.vectors[start : start + TURN])
                    cpu[place] += cpu_seconds(pids[place]) - before
                    taken[place] += milliseconds
        return [
            percentiles(ms) | {"cpu_ms": round(1000 * used / len(ms), 3)}
            for ms, used in zip(taken, cpu, strict=True)
        ]


def measure(data: Path, output: Path, rows: int) -> None:
    """Measure one data set, part by part."""
    key = f"zipf {rows}"
    report = read(output)
    report["machine"] = machine()
    entry: Entry = {}
    report.setdefault("runs", {})[key] = entry

    def save(part: str, value: Any) -> None:
        entry[part] = value
        write(output, report)
        print(key, part, value, flush=True)

    with running(SETTINGS) as server:
        uri = new_database(server, "tenants")
        with connect(uri) as connection:
            bench = Bench(Session(connection), uri, data, rows)
            bench.load()
            run_command(
                "model train codes --table items --column embedding --metric cosine --seed 20", uri
            )
            save("plain_build", bench.build("items", ""))
            save("plain_inserts", bench.inserts())
            connection.execute("SELECT hashindex.drop_index('items')")
            save("build", bench.build("items", "--tenant tenant"))
            save("inserts", bench.inserts())
            save("hnsw_build", bench.hnsw())
            connection.execute(
                "SELECT hashindex.train('cuts', 'items', 'embedding', 'thermometer', cuts => 3, "
                "seed => 20),"
                " hashindex.create_functions('cuts')"
            )
            for name, code in bench.codes().items():
                of = f"({code}) bit_hamming_ops"
                save(f"{name}_build", bench.hnsw("items", of, "WITH (ef_construction = 128)"))
            for tenant in bench.searched():
                save("tenants", entry.get("tenants", {}) | {str(tenant): bench.search(tenant)})


def lines(report: Entry) -> Iterator[str]:
    """Write the table of all runs."""
    for key, entry in report.get("runs", {}).items():
        yield key
        yield from aligned(table_rows(entry))


def table_rows(entry: Entry) -> list[list[str]]:
    """Return p50 of each system by the tenant's rows, and what ours is over each."""
    systems = ("ours", "hnsw", "hnsw-signs", "hnsw-code", "partition", "alone", "exact")
    searched = sorted(entry.get("tenants", {}).values(), key=lambda t: t["rows"])
    systems = tuple(name for name in systems if any(name in found for found in searched))
    rows = [["rows", *systems]]
    for found in searched:
        cells = [shown(found[system]) for system in systems]
        rows.append([f"{found['rows']:,}", *cells])
    return rows


def shown(point: Entry) -> str:
    """Write p50 of a system, and its recall where that is below what was asked for."""
    missed = f" ({point['recall']:.2f})".replace("(0", "(") if point["recall"] < TARGET else ""
    return f"{point['p50_ms']:.2f}{missed}"


def main() -> int:
    """Run the benchmark."""
    arguments = parser(__doc__, folder=DATA_FOLDER, output=RESULTS / "tenants.json")
    arguments.add_argument("--rows", type=int, nargs="+", default=[300_000])
    arguments.add_argument("--report", action="store_true", help="only show saved results")
    given = arguments.parse_args()
    for rows in [] if given.report else given.rows:
        measure(given.folder, given.output, rows)
    print(*lines(read(given.output)), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
