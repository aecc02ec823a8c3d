"""Does doctor decide as measuring all sets does? Six real tables, each at two sizes of memory.

    python benchmarks/decisions.py [--queries 200] [--only digits]

For each table every set is built, brought to recall@10 of .95 on queries that are not of the table,
and searched in turns. A decision holds if its set takes at most 1.25 times the CPU of the best one
among those whose bytes fit the memory given, or if no other fits; ``exact`` holds where it answers
in 5 ms. Doctor decides with several seeds. Each table is saved as soon as it is measured; a later
run continues (``--again`` measures all again). About 30 minutes.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psycopg
from common import DATA_FOLDER, RESULTS, circumstances, cpu_seconds, parser, read, table, write
from numpy.typing import NDArray
from pgvector import HalfVector, Vector
from retrieval_server import SETTINGS, served

from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.db.statements import one_row
from pg_hashindex.errors import HashIndexError
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.models.model import Metric

Entry = dict[str, Any]
K, GOAL, TURN, SEEDS = 10, 0.95, 25, (0, 1, 2)
#: How much longer than the best set a decision may take, and the ms that are fast enough.
WITHIN, FAST_MS = 1.25, 5.0
_EFFORTS = (10, 15, 20, 30, 40, 60, 80, 120, 200, 400)
_LISTS = (4, 8, 16, 32, 64, 128, 256)
#: Options of each set; its kind is doctor's word.
SETS: dict[str, dict[str, Any]] = {
    # The first, since it rewrites the table with all of its indexes.
    "stored codes": {"store": True},
    "vectors": {"model": "none"},
    "codes": {},
    # By another model: PostgreSQL takes any index over an equal expression.
    "codes in IVFFlat": {"access": "ivfflat", "model": "other"},
    "lists": {"access": "lists"},
}


@dataclass
class Case:
    """A table: its rows and queries, how it is made, and options of doctor.

    Attributes
    ----------
    tenants
        The tenant of each row and of each query; None without.
    options
        Of doctor.
    """

    rows: NDArray[np.float32]
    queries: NDArray[np.float32]
    metric: Metric = "cosine"
    type: str = "vector"
    tenants: tuple[NDArray[np.int_], NDArray[np.int_]] | None = None
    key: str = "id"
    partitions: int = 0
    policy: bool = False
    options: list[str] = field(default_factory=list)
    without: tuple[str, ...] = ()


def as_float32(X: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows as vectors have them."""
    return np.asarray(X, np.float32)


def _packages() -> NDArray[np.float32]:
    with np.load(DATA_FOLDER / "packages.npz") as archive:
        return as_float32(archive["X"])


def _digits() -> NDArray[np.float32]:
    with np.load(DATA_FOLDER / "mnist.npz") as archive:
        return as_float32(archive["X"]) / np.float32(255)


def _images(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 512 descriptors of each digit: random features of its pixels, as a fixed layer."""
    weights = np.random.default_rng(0).standard_normal((rows.shape[1], 512)).astype(np.float32)
    return np.maximum(rows @ weights / 28, 0)


def _zipf(n: int, seed: int) -> NDArray[np.int_]:
    """Return tenants of n rows: 40, whose sizes fall as 1 / rank."""
    share = 1 / np.arange(1, 41)
    return np.random.default_rng(seed).choice(40, n, p=share / share.sum())


def _halfvec_text() -> Case:
    X = _packages()
    return Case(X[:-1000], X[-1000:], type="halfvec")


def _composite_key() -> Case:
    X = _packages()
    tenants = _zipf(len(X) - 1000, 0), _zipf(1000, 1)
    told = ["--tenant", "tenant"]
    return Case(X[:-1000], X[-1000:], tenants=tenants, key="tenant, id", options=told)


def _images_l2() -> Case:
    X = _images(_digits())
    return Case(X[:59_500], X[-1000:], metric="l2")


def _digits_l2() -> Case:
    X = _digits()
    return Case(X[:-1000], X[-1000:], metric="l2")


def _partitions() -> Case:
    X = _packages()
    return Case(X[:-1000], X[-1000:], partitions=12, key="id, part", without=("lists",))


def _policies() -> Case:
    with np.load(DATA_FOLDER / "pypi768.npz") as archive:
        X = as_float32(archive["X"])
    tenants = _zipf(len(X) - 1000, 2) % 3, _zipf(1000, 3) % 3
    return Case(X[:-1000], X[-1000:], tenants=tenants, policy=True, options=["--role", "reader"])


CASES: dict[str, Callable[[], Case]] = {
    "halfvec text": _halfvec_text,
    "composite key": _composite_key,
    "images l2": _images_l2,
    "digits l2": _digits_l2,
    "partitions": _partitions,
    "policies": _policies,
}


def load(connection: Connection, case: Case) -> None:
    """Make and fill table ``items``."""
    kind = f"{case.type}({case.rows.shape[1]})"
    columns = "id bigint NOT NULL, tenant integer NOT NULL, part integer NOT NULL"
    whole = f"CREATE TABLE items ({columns}, embedding {kind}, PRIMARY KEY ({case.key}))"
    connection.execute(f"{whole}{' PARTITION BY HASH (part)' * bool(case.partitions)}".encode())
    for part in range(case.partitions):
        values = f"(MODULUS {case.partitions}, REMAINDER {part})"
        made = f"CREATE TABLE items_{part} PARTITION OF items FOR VALUES WITH {values}"
        connection.execute(made.encode())
    tenants = case.tenants[0] if case.tenants else np.zeros(len(case.rows), int)
    wrapped = HalfVector if case.type == "halfvec" else Vector
    with (
        connection.cursor() as cursor,
        cursor.copy("COPY items FROM STDIN (FORMAT binary)") as copy,
    ):
        copy.set_types(["int8", "int4", "int4", case.type])
        for place, (tenant, row) in enumerate(zip(tenants.tolist(), case.rows, strict=True)):
            copy.write_row((place, tenant, place % 997, wrapped(row)))
    if case.tenants:
        connection.execute("CREATE INDEX ON items (tenant)")
    if case.policy:
        for statement in (
            "CREATE ROLE reader",
            "GRANT USAGE ON SCHEMA hashindex TO reader",
            "GRANT SELECT ON items TO reader",
            "CREATE POLICY own ON items USING (tenant = current_setting('app.tenant', true)::int)",
            "ALTER TABLE items ENABLE ROW LEVEL SECURITY",
        ):
            connection.execute(statement.encode())
    connection.execute("VACUUM ANALYZE items")


class Search:
    """Searches of one set with one setting, in a session of their own."""

    def __init__(self, uri: str, case: Case, statement: str, **settings: Any) -> None:
        self.case, self.connection = case, connect(uri)
        self.settings = settings
        if case.policy:
            self.connection.execute("SET ROLE reader")
        self.statement = statement.encode()
        self.cpu, self.asked = 0.0, 0

    def ask(self, places: Sequence[int]) -> list[list[float]]:
        """Return the distances found for these queries."""
        case, found = self.case, []
        before = cpu_seconds(self.connection.info.backend_pid)
        for place in places:
            given: list[Any] = [Vector(case.queries[place])]
            if case.tenants is not None:
                tenant = int(case.tenants[1][place])
                if case.policy:
                    self.connection.execute(
                        "SELECT set_config('app.tenant', %s, false)", [str(tenant)]
                    )
                else:
                    given.append(tenant)
            rows = self.connection.execute(self.statement, given, prepare=True).fetchall()
            found.append([row[-1] for row in rows])
        self.cpu += cpu_seconds(self.connection.info.backend_pid) - before
        self.asked += len(places)
        return found

    @property
    def milliseconds(self) -> float:
        return 1e3 * self.cpu / self.asked

    def restart(self) -> None:
        """Forget what was measured."""
        self.cpu, self.asked = 0.0, 0


def truth(case: Case, n: int) -> list[float]:
    """Return the distance of the tenth row of each query, with what rounding adds."""
    furthest = np.empty(n)
    for place, query in enumerate(case.queries[:n]):
        rows = case.rows
        if case.tenants is not None:
            rows = rows[case.tenants[0] == case.tenants[1][place]]
        if case.metric == "l2":
            distances = np.linalg.norm(rows - query, axis=1)
        else:
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
            distances = 1 - rows @ query / lengths
        furthest[place] = np.partition(distances, K - 1)[K - 1]
    return [*(furthest * (1 + 1e-5) + 1e-6)]


def recall(found: Sequence[Sequence[float]], furthest: Sequence[float]) -> float:
    """Return the share of the ten nearest that was found."""
    return float(
        np.mean([sum(d <= most for d in ds) / K for ds, most in zip(found, furthest, strict=True)])
    )


def settings_of(kind: str, partitions: int) -> Iterator[tuple[int, int]]:
    """Yield candidates and effort, the cheapest first as a rule."""
    if kind in ("lists", "codes in IVFFlat"):
        yield from ((n, lists) for lists in _LISTS for n in (30, 60, 120))
    elif partitions:
        # Each part finds as many rows as the effort says.
        yield from ((n, n // share) for n in _EFFORTS for share in (5, 3, 2, 1))
    else:
        yield from ((n, n) for n in _EFFORTS)


def searched(case: Case, name: str, settings: str = "") -> str:
    """Write a search of a set."""
    tenant = ", tenant => %s" if case.tenants is not None and not case.policy else ""
    return f"SELECT * FROM hashindex.search_{name}(%s, {K}{settings}{tenant})"


def reached(
    uri: str, case: Case, kind: str, name: str, furthest: Sequence[float]
) -> tuple[Search | None, list[Entry]]:
    """Return the cheapest search of a set that reaches the goal, and all that was tried."""
    best, tried = None, []
    n = len(furthest)
    for candidates, effort in settings_of(kind, case.partitions):
        statement = searched(case, name, f", {candidates}, {effort}")
        search = Search(uri, case, statement, candidates=candidates, effort=effort)
        search.ask(range(min(20, n)))
        search.restart()
        value = recall(search.ask(range(n)), furthest)
        tried.append(
            {
                "candidates": candidates,
                "effort": effort,
                "recall": round(value, 4),
                "cpu_ms": round(search.milliseconds, 3),
            }
        )
        if value >= GOAL and (best is None or search.milliseconds < best.milliseconds):
            if best is not None:
                best.connection.close()
            best = search
            if kind not in ("lists", "codes in IVFFlat") and not case.partitions:
                break
        elif best is not None and search.milliseconds > 2 * best.milliseconds:
            break
        else:
            search.connection.close()
    return best, tried


def exact_search(uri: str, case: Case) -> Search:
    operator = {"l2": "<->", "cosine": "<=>"}[case.metric]
    where = "WHERE tenant = %s " if case.tenants is not None and not case.policy else ""
    # Parameters stand in the order query, tenant.
    statement = (
        f"WITH q AS MATERIALIZED (SELECT %s::{case.type} AS q) "
        f"SELECT id, (embedding {operator} (SELECT q FROM q)) + 0 AS distance FROM items {where}"
        f"ORDER BY distance LIMIT {K}"
    )
    search = Search(uri, case, statement)
    search.connection.execute("SET max_parallel_workers_per_gather = 0")
    return search


def decide(uri: str, case: Case, memory: int, seed: int) -> Entry:
    """Return what doctor decides, and how long it took."""
    arguments = [
        "doctor", "items", "embedding", "--json", "--database-url", uri, "--metric", case.metric,
        "--memory", f"{memory // 10**6}MB", "--seed", str(seed), *case.options,
    ]  # fmt: skip
    start = time.perf_counter()
    command = [sys.executable, "-m", "pg_hashindex", *arguments]
    environment = os.environ | ({"PGOPTIONS": "-c app.tenant=0"} if case.policy else {})
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if result.returncode not in (0, 1):
        raise SystemExit(f"doctor failed: {result.stderr}")
    said = json.loads(result.stdout)
    (taken,) = [one for one in said["sets"] if one["taken"]]
    seconds = round(time.perf_counter() - start, 1)
    text = (said["decision"] or {}).get("text", "")
    return {"seed": seed, "set": taken["name"], "seconds": seconds, "text": text}


def measure(name: str, n: int) -> Entry:
    """Decide, then build all sets of a table and measure them."""
    case = CASES[name]()
    found: Entry = {"rows": len(case.rows), "dimension": int(case.rows.shape[1])} | circumstances()
    furthest = truth(case, n)
    with served(SETTINGS) as uri, connect(uri) as connection:
        load(connection, case)
        (size,) = one_row(
            connection,
            "SELECT coalesce(sum(pg_table_size(relid)), pg_table_size('items')) "
            "FROM pg_partition_tree('items')",
        )
        found["table_bytes"] = int(size)
        halves = 2 * len(case.rows) * (case.rows.shape[1] + 200)
        memories = {"much": 8 * 10**9, "little": int(0.25 * found["table_bytes"] + 0.6 * halves)}
        for label, memory in memories.items():
            decisions = [decide(uri, case, memory, seed) for seed in SEEDS]
            found[label] = {"memory": memory, "decisions": decisions}
            print(name, label, [one["set"] for one in decisions], decisions[0]["text"], flush=True)
        found["sets"] = _measured(connection, uri, case, furthest)
    for label, memory in memories.items():
        _judge(found, found[label], memory - found["table_bytes"] / 4)
    return found


def _measured(connection: Connection, uri: str, case: Case, furthest: Sequence[float]) -> Entry:
    sets: Entry = {}
    contenders = {"exact": exact_search(uri, case)}
    connection.execute(
        "SELECT hashindex.train('other', 'items', 'embedding', metric => %s, seed => 1)",
        [case.metric],
    )
    for kind, options in SETS.items():
        if kind in case.without:
            continue
        called = kind.replace(" ", "_").lower()
        if case.tenants is not None and not case.policy:
            options = options | {"tenant": "tenant"}
        start = time.perf_counter()
        index = HashIndex.create(
            connection, called, table="items", column="embedding", metric=case.metric, **options
        )
        seconds = time.perf_counter() - start
        connection.execute("VACUUM ANALYZE items")
        if case.policy and index.is_lists:
            # They are refused otherwise: codes tell what is in rows that policies hide.
            index.grant("reader", reveal_codes=True)
        n_bytes = index.relation_bytes()
        if index.is_lists:
            sizes = (
                "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' "
                "AND relname ^@ format('set_%s_', $1::bigint)"
            )
            (n_bytes,) = one_row(connection, sizes, [index.set_id])
        best, tried = reached(uri, case, kind, called, furthest)
        sets[kind] = {"build_s": round(seconds, 1), "bytes": int(n_bytes), "tried": tried}
        with contextlib.suppress(HashIndexError, psycopg.Error):
            # The promise of the set with its own settings, and recall of held-out queries.
            (promised,) = one_row(connection, "SELECT hashindex.recall($1)", [called])
            own = Search(uri, case, searched(case, called))
            held = recall(own.ask(range(len(furthest))), furthest)
            sets[kind] |= {"promised": round(promised, 4), "held_out": round(held, 4)}
            own.connection.close()
        if best is not None:
            contenders[kind] = best
            sets[kind] |= best.settings
    sets["exact"] = {"bytes": 0}
    answers: dict[str, dict[int, list[list[float]]]] = {kind: {} for kind in contenders}
    for search in contenders.values():
        search.ask(range(5))
        search.restart()
    kinds = [*contenders]
    for turn, start in enumerate([*range(0, len(furthest), TURN)] * 2):
        for place in np.roll(range(len(kinds)), turn):
            kind = kinds[place]
            if kind == "exact" and turn >= 4:
                continue
            answers[kind][start] = contenders[kind].ask(
                range(start, min(start + TURN, len(furthest)))
            )
    for kind, search in contenders.items():
        ds = [d for start in sorted(answers[kind]) for d in answers[kind][start]]
        sets[kind] |= {
            "cpu_ms": round(search.milliseconds, 3),
            "recall": round(recall(ds, furthest[: len(ds)]), 4),
        }
        print("  ", kind, {k: v for k, v in sets[kind].items() if k != "tried"}, flush=True)
    return sets


def _judge(found: Entry, decided: Entry, left: float) -> None:
    """Say whether the decision holds."""
    fitting = {
        k: s["cpu_ms"]
        for k, s in found["sets"].items()
        if "cpu_ms" in s and (k == "exact" or s["bytes"] <= left)
    }
    best = min(fitting, key=fitting.__getitem__)
    decided["best"], decided["fits"] = best, sorted(fitting)
    kinds = {one["set"] for one in decided["decisions"]}
    decided["same"] = len(kinds) == 1
    kind = decided["decisions"][0]["set"]
    taken = found["sets"].get(kind, {}).get("cpu_ms")
    decided["ratio"] = None if taken is None else round(taken / fitting[best], 3)
    decided["holds"] = decided["same"] and (
        (kind == "exact" and fitting["exact"] <= FAST_MS)
        or (kind in fitting and decided["ratio"] <= WITHIN)
    )


def main() -> None:
    options = parser(__doc__, queries=200, only="")
    options.add_argument("--again", action="store_true")
    given = options.parse_args()
    output = RESULTS / "decisions.json"
    report = {} if given.again else read(output)
    for name in CASES:
        if name in report or (given.only and given.only != name):
            continue
        report[name] = measure(name, given.queries)
        write(output, report)
    rows = [
        [
            name,
            label,
            entry[label]["decisions"][0]["set"],
            entry[label]["best"],
            str(entry[label]["ratio"]),
            str(entry[label]["holds"]),
        ]
        for name, entry in report.items()
        for label in ("much", "little")
    ]
    print(table(["table", "memory", "doctor", "best", "ratio", "holds"], rows))


if __name__ == "__main__":
    main()
