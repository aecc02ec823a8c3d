"""Measure what it costs writers that triggers run as the administrator.

    python benchmarks/writes.py [--rows 20000] [--rounds 7]

Each way to insert is timed in turn, round by round, on a table without an index and on two with
one: whose trigger function is SECURITY DEFINER, as it is made, and the same one altered to SECURITY
INVOKER. Times are those of the server's process that inserts, user and system, from Linux; a
round's ratio is of times that stand beside each other, and the table holds medians.
"""

import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import RESULTS, cpu_seconds, machine, parser, table, write
from pgvector import Vector
from retrieval_server import QUICK_SETTINGS, load, running

from pg_hashindex import store
from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.hashers import make_hasher
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.server.demo import new_database

DIMENSION, BITS = 384, 128
KINDS = ("no index", "invoker", "definer")
#: Rows of a statement, and statements of a round.
WAYS = {"one row": (1, 500), "100 rows": (100, 10)}


def drawn(rows: int, seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return unit rows around 200 centres."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((200, DIMENSION))
    X = centres[random.integers(200, size=rows)] + random.standard_normal((rows, DIMENSION))
    unit: np.ndarray[Any, np.dtype[np.float32]] = X / np.linalg.norm(X, axis=1, keepdims=True)
    return unit.astype(np.float32)


def set_up(connection: Connection, access: str, rows: int) -> None:
    """Make and fill a table of each kind."""
    X = drawn(rows, 1)
    model = make_hasher("itq", n_bits=BITS, random_state=0).fit(X[:8_000]).to_model("m")
    store.save(connection, model)
    for number, kind in enumerate(KINDS):
        load(connection, X, f"items{number}")
        if kind == "no index":
            continue
        index = HashIndex.create(
            connection,
            f"i{number}",
            table=f"items{number}",
            column="embedding",
            model="m",
            access="scan",
        )
        if access != "scan":
            index.swap(access=access, force=True)  # type: ignore[arg-type]
            index.prune()
        if kind == "invoker":
            connection.execute(
                f"ALTER FUNCTION hashindex.sync_i{number}() SECURITY INVOKER".encode()
            )


def insert(connection: Connection, table: str, batches: Sequence[Sequence[Any]]) -> float:
    """Return the CPU seconds of inserts of ids and vectors, which are then taken away again."""
    pid = connection.info.backend_pid
    statement = f"INSERT INTO {table} SELECT * FROM unnest(%s::bigint[], %s::vector[])".encode()
    before = cpu_seconds(pid)
    for ids, vectors in batches:
        connection.execute(statement, [ids, vectors], prepare=True)
    took = cpu_seconds(pid) - before
    connection.execute(f"DELETE FROM {table} WHERE id >= 1000000".encode())
    connection.execute(f"VACUUM {table}".encode())
    return took


def measure(connection: Connection, rounds: int) -> list[dict[str, Any]]:
    """Time every way on every kind of table, one after another, again and again."""
    found = []
    for way, (rows, statements) in WAYS.items():
        X = [Vector(row) for row in drawn(rows * statements, 2)]
        starts = range(0, len(X), rows)
        batches = [
            (list(range(1_000_000 + i, 1_000_000 + i + rows)), X[i : i + rows]) for i in starts
        ]
        times: dict[str, list[float]] = {kind: [] for kind in KINDS}
        for turn in range(rounds + 1):
            for number in np.roll(range(len(KINDS)), turn):
                took = insert(connection, f"items{number}", batches)
                # The first round makes the plans.
                if turn:
                    times[KINDS[number]].append(took / len(X) * 1e6)
        ratios = [d / i for d, i in zip(times["definer"], times["invoker"], strict=True)]
        found.append(
            {
                "way": way,
                "cpu_us_a_row": {kind: round(statistics.median(times[kind]), 1) for kind in KINDS},
                "definer_to_invoker": round(statistics.median(ratios), 3),
                "ratios": [round(ratio, 3) for ratio in sorted(ratios)],
            }
        )
    return found


def main() -> None:
    """Print the table, and write it as JSON."""
    args = parser(__doc__, rows=20_000, rounds=7, output=RESULTS / "writes.json").parse_args()
    results = []
    with running(QUICK_SETTINGS) as server:
        for access in ("scan", "lists"):
            with connect(new_database(server, access)) as session:
                set_up(session, access, args.rows)
                results += [{"access": access} | one for one in measure(session, args.rounds)]
    head = ["access", "insert", "no index, us of CPU a row", "invoker", "definer"]
    lines = [
        [
            one["access"],
            one["way"],
            *map(str, [*one["cpu_us_a_row"].values(), one["definer_to_invoker"]]),
        ]
        for one in results
    ]
    print(table([*head, "definer / invoker"], lines))
    write(args.output, {"machine": machine(), "rows": args.rows, "results": results})


if __name__ == "__main__":
    main()
