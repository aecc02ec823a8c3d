"""The cost of starting and training: CPU seconds of commands, and recall by rows and rounds.

    python benchmarks/start.py [--data ../shared/data] [--output benchmarks/results/start.json]

Starting is the CPU time of whole processes, the median of 9, beside `import numpy, psycopg` in the
same run. Training is `model train` of ITQ on a table of 59,000 package descriptions, alone and
beside one process that keeps a core busy. The curve is recall@10 within 20, 30 and 50 candidates
of ITQ with 256 x 3 bits, by the rows that it is fitted on and by its rounds. About 10 minutes.
"""

import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, parser, write
from packages import SETTINGS
from retrieval_server import load, served

from pg_hashindex.db.connection import connect
from pg_hashindex.hashers import make_hasher
from pg_hashindex.metrics.search import recall_of

TIMES = 9
PEER = "import numpy, psycopg"
ROWS, QUERIES, K = 59_000, 500, 10
FITTED_ON = (1_000, 2_500, 5_000, 10_000, 20_000, 50_000)
ROUNDS = (5, 10, 15, 50)
CANDIDATES = (20, 30, 50)
TRAIN = (
    "model train {} --method itq --bits 192 --cuts 1 --table items --column embedding "
    "--metric cosine"
)
CREATE = "index create items_idx --table items --column embedding --model alone0 --access scan"
TOOL = [str(Path(sys.executable).with_name("pg-hashindex"))]
BUSY = "while True: pass"


def environment(uri: str) -> dict[str, str]:
    return {**os.environ, "PG_HASHINDEX_DATABASE_URL": uri}


def cpu_seconds(command: list[str], uri: str) -> float:
    """Run a command and return the CPU seconds of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment(uri), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def starting(uri: str) -> list[dict[str, Any]]:
    commands = {
        PEER: [sys.executable, "-c", PEER],
        "import pg_hashindex": [sys.executable, "-c", "import pg_hashindex"],
        "--help": [*TOOL, "--help"],
        "search": [*TOOL, "search", "items_idx", "--like", "1"],
    }
    taken: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(TIMES):  # In turns: each meets the same machine.
        for name, command in commands.items():
            taken[name].append(cpu_seconds(command, uri))
    peer = statistics.median(taken[PEER])
    return [
        {"what": name, "cpu_s": median, "ratio": median / peer}
        for name, median in ((name, statistics.median(times)) for name, times in taken.items())
    ]


def training(uri: str) -> dict[str, float]:
    """Return wall seconds of `model train`, alone and beside a busy core."""

    def wall(name: str) -> float:
        began = time.perf_counter()
        command = [*TOOL, *TRAIN.format(name).split()]
        subprocess.run(command, env=environment(uri), capture_output=True, check=True)
        return time.perf_counter() - began

    alone = min(wall(f"alone{i}") for i in range(3))
    with subprocess.Popen([sys.executable, "-c", BUSY]) as busy:
        try:
            beside = min(wall(f"beside{i}") for i in range(3))
        finally:
            busy.kill()
    return {"alone_s": alone, "beside_a_busy_core_s": beside}


def curve(X: np.ndarray) -> list[dict[str, Any]]:
    rows, queries = X[:ROWS], X[ROWS : ROWS + QUERIES]
    truth = np.argpartition(-(queries @ rows.T), K, axis=1)[:, :K]
    drawn = np.random.default_rng(0).permutation(ROWS)
    settings = [(n, 15) for n in FITTED_ON] + [(20_000, n) for n in ROUNDS if n != 15]
    found = []
    for fitted_on, rounds in settings:
        hasher = make_hasher("itq", n_bits=256, n_iter=rounds, random_state=0)
        began = time.process_time()
        model = hasher.fit(rows[drawn[:fitted_on]]).to_model("m", metric="cosine", cuts=3)
        spent = time.process_time() - began
        order = model.order(queries, "cosine")
        distances = order.distances(slice(None), model.encode(rows))
        entry: dict[str, Any] = {"rows": fitted_on, "rounds": rounds, "cpu_s": spent}
        for n in CANDIDATES:
            nearest = np.argpartition(distances, n, axis=1)[:, :n]
            same = nearest[:, :, None] == truth[:, None, :]
            entry[f"recall_{n}"] = recall_of(same.sum(axis=(1, 2)), truth.shape[1])
        found.append(entry)
    return found


def show(entries: list[dict[str, Any]]) -> None:
    print("  ".join(f"{name:>20}" for name in entries[0]))
    for entry in entries:
        values = (f"{v:.3f}" if isinstance(v, float) else str(v) for v in entry.values())
        print("  ".join(f"{value:>20}" for value in values), flush=True)


def main() -> None:
    """Print the tables, and write them as JSON."""
    args = parser(__doc__, data=DATA_FOLDER, output=RESULTS / "start.json").parse_args()
    with np.load(args.data / "packages.npz") as archive:
        X = archive["X"].astype(np.float32)
    X = X[np.random.default_rng(0).permutation(len(X))]
    report: dict[str, Any] = {"recall": curve(X)}
    show(report["recall"])
    with served(SETTINGS) as uri:
        with connect(uri) as connection:
            load(connection, X[:ROWS])
        report["training"] = [training(uri)]
        show(report["training"])
        create = [*TOOL, *CREATE.split()]
        subprocess.run(create, env=environment(uri), capture_output=True, check=True)
        report["starting"] = starting(uri)
        show(report["starting"])
    write(args.output, report)


if __name__ == "__main__":
    main()
