"""Clients of the soak of `reliability.py`: pgbench, an operator, and readers that check."""

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pg_hashindex.db.connection import Connection, connect
from pg_hashindex.index import catalog, sets
from pg_hashindex.index.catalog import Access, IndexRow
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.server import EmbeddedServer

CLIENTS = 4
QUERIES = 500
K = 10
#: Scripts of pgbench: name, weight, statement. Keys above the first rows come and go.
SCRIPTS = {
    "search": (
        6,
        "\\set i random(0, {queries} - 1)\n"
        "SELECT id FROM hashindex.search_items("
        "(SELECT q.embedding FROM queries q WHERE q.id = :i), 10);\n",
    ),
    "insert": (
        2,
        "\\set i random(0, {queries} - 1)\n\\set k random({rows} + 1, {rows} + 4000)\n"
        "INSERT INTO items SELECT :k, q.embedding FROM queries q WHERE q.id = :i "
        "ON CONFLICT (id) DO NOTHING;\n",
    ),
    "update": (
        1,
        "\\set i random(0, {queries} - 1)\n\\set k random(1, {rows})\n"
        "UPDATE items SET embedding = (SELECT q.embedding FROM queries q WHERE q.id = :i) "
        "WHERE id = :k;\n",
    ),
    "delete": (1, "\\set k random({rows} + 1, {rows} + 4000)\nDELETE FROM items WHERE id = :k;\n"),
}


@dataclass
class Soaked:
    """Results of the soak."""

    seconds: float
    rows: int
    #: By script: its runs and longest milliseconds, overall and near a swap.
    scripts: dict[str, dict[str, float]] = field(default_factory=dict)
    client_errors: list[str] = field(default_factory=list)
    reader_errors: list[str] = field(default_factory=list)
    operator_errors: list[str] = field(default_factory=list)
    checked: int = 0
    wrong: int = 0
    python_searches: int = 0
    swaps: int = 0
    rollbacks: int = 0
    prunes: int = 0
    exchange_ms: list[float] = field(default_factory=list)
    rss_mb: dict[str, float] = field(default_factory=dict)
    codes_checked: int = 0
    codes_lost: int = 0


def operate(url: str, seconds: float, pipe: Any) -> None:
    """Swap back and forth, roll back, and prune, with other access paths in turn."""
    retry_while_locked, change, changed = catalog.retry_while_locked, IndexRow.change, sets._changed
    exchanging = False

    def timed(connection: Connection, change: Callable[[], Any], **options: Any) -> Any:
        began = 0.0

        def once() -> Any:
            nonlocal began
            began = time.time()
            return change()

        made = retry_while_locked(connection, once, **options)
        took = time.time() - began
        if exchanging:
            pipe.send(("exchange", (began, took)))
        return made

    def noted(statement: str, run: Callable[[], Any]) -> Any:
        nonlocal exchanging
        exchanging = "_exchange_set" in statement or "rollback_index" in statement
        try:
            return run()
        finally:
            exchanging = False

    def noted_change(row: IndexRow, statement: Any, *given: Any, **options: Any) -> Any:
        return noted(statement, lambda: change(row, statement, *given, **options))

    def noted_changed(connection: Connection, table: str, statement: Any, name: str) -> Any:
        return noted(statement, lambda: changed(connection, table, statement, name))

    catalog.retry_while_locked = sets.retry_while_locked = timed  # type: ignore[assignment]
    IndexRow.change, sets._changed = noted_change, noted_changed  # type: ignore[method-assign]
    end = time.monotonic() + seconds
    paths: list[Access] = ["scan", "lists"]
    number = 0
    try:
        with connect(url) as connection:
            while time.monotonic() < end:
                index = HashIndex.open(connection, "items")
                model = "lsh" if index.model == "itq" else "itq"
                number += 1
                index.swap(model=model, access=paths[number % len(paths)], force=True)
                pipe.send(("swaps", None))
                for _ in range(number % 3):
                    time.sleep(0.3)
                    index.rollback()
                    pipe.send(("rollbacks", None))
                time.sleep(0.3)
                index.prune()
                pipe.send(("prunes", None))
    except Exception as error:
        pipe.send(("error", f"{type(error).__name__}: {error}"))
    pipe.close()


def pgbench(
    server: EmbeddedServer, url: str, result: Soaked, folder: Path
) -> subprocess.Popen[str]:
    command = [str(server.bin_dir / "pgbench"), "--no-vacuum", "--protocol=prepared", "--log"]
    command += [f"--client={CLIENTS}", "--jobs=2", f"--time={round(result.seconds)}"]
    for name, (weight, script) in SCRIPTS.items():
        path = folder / f"{name}.sql"
        path.write_text(script.format(queries=QUERIES, rows=result.rows))
        command.append(f"--file={path}@{weight}")
    return subprocess.Popen(
        [*command, url], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def check_answers(url: str, end: float, result: Soaked) -> None:
    """With all codes as candidates, answers equal the exact search of the same snapshot."""
    _checking(url, end, result, wait=0.0, seed=1)


def check_old_snapshots(url: str, end: float, result: Soaked) -> None:
    """Check the same with snapshots that are older than a swap."""
    _checking(url, end, result, wait=3.0, seed=2)


def _checking(url: str, end: float, result: Soaked, *, wait: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    try:
        with connect(url) as session:
            while time.monotonic() < end:
                query = int(rng.integers(QUERIES))
                with session.transaction():
                    session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    exact = session.execute(_EXACT, [query, K]).fetchall()
                    time.sleep(min(wait * rng.random(), max(0.0, end - time.monotonic())))
                    found = session.execute(_FULL, [query, K]).fetchall()
                result.checked += 1
                result.wrong += not _same(exact, found)
                time.sleep(0.05)
    except Exception as error:
        result.reader_errors.append(f"{type(error).__name__}: {error}")


_EXACT = (
    "SELECT e.distance FROM hashindex.exact_search('items', "
    "(SELECT q.embedding FROM queries q WHERE q.id = %s), %s) e"
)
_FULL = (
    "SELECT s.distance FROM hashindex.search_items("
    "(SELECT q.embedding FROM queries q WHERE q.id = %s), %s, 1000000, 1000) s"
)


def _same(exact: list[tuple[float]], found: list[tuple[float]]) -> bool:
    return len(exact) == len(found) and bool(
        np.allclose([d for (d,) in exact], [d for (d,) in found], atol=1e-6)
    )


def read_from_python(url: str, end: float, result: Soaked) -> None:
    """Search from Python with a handle that was opened once."""
    rng = np.random.default_rng(3)
    try:
        with connect(url) as session:
            index = HashIndex.open(session, "items")
            rows = session.execute("SELECT embedding FROM queries ORDER BY id").fetchall()
            while time.monotonic() < end:
                hits = index.search(rows[rng.integers(len(rows))][0], K)
                result.python_searches += 1
                result.wrong += len(hits) != K
                time.sleep(0.02)
    except Exception as error:
        result.reader_errors.append(f"{type(error).__name__}: {error}")
