"""The soak of `reliability.py`: clients of pgbench, readers that check, an operator who swaps."""

import multiprocessing
import re
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from reliability_clients import (
    QUERIES,
    SCRIPTS,
    Soaked,
    check_answers,
    check_old_snapshots,
    operate,
    pgbench,
    read_from_python,
)
from retrieval_data import between
from retrieval_server import load, running

from pg_hashindex import store
from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import ITQ, LSH
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.server import EmbeddedServer, demo

#: Seconds before and after a swap in which a statement counts as near it.
BESIDE = 0.25


def soak(seconds: float, rows: int = 20_000) -> Soaked:
    """Run the soak for these minutes, on its own server."""
    # With the settings that PostgreSQL has by default.
    with running({}) as server:
        url = _prepare(server, rows)
        result = Soaked(seconds, rows)
        folder = Path(tempfile.mkdtemp(prefix="pg_hashindex-soak-"))
        try:
            _run(server, url, result, folder)
        finally:
            shutil.rmtree(folder)
        _check_codes(url, result)
    return result


def _prepare(server: EmbeddedServer, rows: int) -> str:
    url = demo.new_database(server, "soak")
    with np.load(Path(demo.__file__).parent / "data" / "packages.npz") as archive:
        sample = archive["X"].astype(np.float32)
    rng = np.random.default_rng(0)
    vectors, queries = (between(sample, sample, n, rng) for n in (rows, QUERIES))
    with connect(url) as connection:
        load(connection, vectors, first=1)
        load(connection, queries, "queries")
        store.save(connection, ITQ(n_bits=128, random_state=0).fit(vectors[:5000]).to_model("itq"))
        store.save(connection, LSH(n_bits=192, random_state=0).fit(vectors[:5000]).to_model("lsh"))
        HashIndex.create(
            connection, "items", table="items", column="embedding", model="itq", metric="cosine",
            access="scan",
        )  # fmt: skip
        connection.execute("VACUUM ANALYZE")
    return url


def _run(server: EmbeddedServer, url: str, result: Soaked, folder: Path) -> None:
    end = time.monotonic() + result.seconds
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    operator = context.Process(target=operate, args=(url, result.seconds, theirs))
    # Fork before starting threads, since a forked process loses them.
    operator.start()
    threads = [
        threading.Thread(target=work, args=(url, end, result))
        for work in (check_answers, check_old_snapshots, read_from_python)
    ]
    for thread in threads:
        thread.start()
    bench = pgbench(server, url, result, folder)
    sizes = [_rss(operator.pid)]
    exchanges: list[tuple[float, float]] = []
    while operator.is_alive():
        while ours.poll(0.1):
            try:
                _note(ours.recv(), result, exchanges)
            except EOFError:
                break
        sizes.append(_rss(operator.pid))
        if not ours.poll() and not operator.is_alive():
            break
    operator.join()
    _, errors = bench.communicate(timeout=120)
    for thread in threads:
        thread.join()
    result.client_errors = [
        line for line in errors.splitlines() if "error" in line.lower() or "aborted" in line
    ]
    if bench.returncode and not result.client_errors:
        result.client_errors.append(f"pgbench ended with {bench.returncode}: {errors[-500:]}")
    used = [size for size in sizes if size]
    # Encode once first, so that the memory of NumPy and the libraries is there.
    settled = used[len(used) // 5 :]
    result.rss_mb = {
        "start": round(settled[0], 1),
        "peak": round(max(settled), 1),
        "end": round(settled[-1], 1),
    }
    _times(folder, result, exchanges)


def _rss(pid: int | None) -> float:
    try:
        return float(psutil.Process(pid).memory_info().rss / 1e6)
    except psutil.Error:
        return 0.0


def _note(event: tuple[str, Any], result: Soaked, exchanges: list[tuple[float, float]]) -> None:
    match event:
        case ("exchange", (began, took)):
            exchanges.append((began, took))
            result.exchange_ms.append(round(1000 * took, 2))
        case ("error", text):
            result.operator_errors.append(text)
        case (what, _):
            setattr(result, what, getattr(result, what) + 1)


def _times(folder: Path, result: Soaked, exchanges: list[tuple[float, float]]) -> None:
    """Read the log of pgbench: client, number, microseconds, script, and time of the end."""
    names = list(SCRIPTS)
    lines = [
        line.split()
        for file in folder.glob("pgbench_log.*")
        for line in file.read_text().splitlines()
        if re.match(r"\d+ \d+ \d+ \d+ \d+ \d+$", line)
    ]
    took = np.array([float(line[2]) for line in lines]) / 1000
    script = np.array([int(line[3]) for line in lines])
    ended = np.array([int(line[4]) + int(line[5]) / 1e6 for line in lines])
    near = np.zeros(len(lines), bool)
    for began, length in exchanges:
        near |= (ended > began - BESIDE) & (ended - took / 1000 < began + length + BESIDE)
    for place, name in enumerate(names):
        mine = script == place
        result.scripts[name] = {
            "number": int(mine.sum()),
            "median_ms": round(float(np.median(took[mine])), 2) if mine.any() else 0.0,
            "longest_ms": round(float(took[mine].max(initial=0)), 1),
            "beside_exchanges": int((mine & near).sum()),
            "longest_beside_ms": round(float(took[mine & near].max(initial=0)), 1),
        }


def _check_codes(url: str, result: Soaked) -> None:
    """Check at the end that rows have the codes that Python gives them, and no others exist."""
    from faults.tables import check_codes, check_lists, indexes

    with connect(url) as connection:
        for index in indexes(connection):
            there, missing = check_codes(index)
            check_lists(index)
            result.codes_checked += there
            result.codes_lost += missing
