"""Compare pg_hashindex with pgvector: time to build, size, speed at a recall, inserts, filters.

    python benchmarks/retrieval.py [--data packages sift10k] [--systems exact hnsw itq-128-scan]
    python benchmarks/readme_tables.py

One embedded server. Each system is built by itself on the table, measured, and dropped before the
next. All searches are prepared statements over one connection, the query vector a binary parameter.
Recall@10 counts ties as correct and is taken over all queries; p50 and p95 over 200 queries or
more, after a warm-up. Of the settings that reach a recall the fastest is timed once more, and that
time counts. Queries a second are those of two clients of pgbench, which takes the vectors from a
table. Inserts come last: single rows, and 100 a statement; they are deleted again.

A row passes the filters of 1, 10 and 50 % where its column ``bucket``, ``tenth`` or ``half``, each
with a b-tree, is 0. pgvector searches with its iterative scans; the planner may choose the b-tree.

Synthetic rows are ``normalise(x_i + 0.35 (x_j - x_k))`` of packages; for queries x_i is one of the
1,000 packages that are in no table.

Each system is written down at once; what is there with the same settings is not measured again.
Ratios are of one run: the report says where a bar compares results of two.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hashing import ROOT, machine
from pgvector import Vector
from retrieval_data import ROWS, SEED, Truth, draw
from retrieval_measures import Entry, Extent, measure
from retrieval_ours import OURS
from retrieval_report import Key, heading, line, lines, report, save_plot
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, database, running
from retrieval_systems import PGVECTOR, System
from retrieval_timing import median_ms
from semi_supervised_runs import as_json, read, write
from threadpoolctl import threadpool_info

OUTPUT = ROOT / "benchmarks/results/retrieval.json"
SYSTEMS = {system.name: system for system in (*PGVECTOR, *OURS)}
QUERIES = 1_000
QUICK_ROWS, QUICK_QUERIES = 3_000, 50
QUICK = Extent(single=50, batches=5, seconds=1)


def conditions(args: argparse.Namespace, system: System) -> dict[str, Any]:
    """Return all that a result depends on; earlier ones of other conditions do not count."""
    found: dict[str, Any] = as_json(
        {
            "described": system.describe(),
            "rows": args.rows,
            "queries": args.queries,
            "seed": SEED,
            "extent": vars(args.extent),
            "server": args.settings,
        }
    )
    return found


def read_entries(output: Path) -> dict[Key, Entry]:
    """Read all results that are there."""
    entries = read(output).get("systems", [])
    return {(e["data"], e["system"]): e for e in entries if e["system"] in SYSTEMS}


def plan(args: argparse.Namespace, found: dict[Key, Entry]) -> dict[str, list[System]]:
    """List the systems that are still to be measured, by data set."""

    def known(data: str, system: System) -> bool:
        entry = found.get((data, system.name), {"error": "not measured"})
        return "error" not in entry and entry["conditions"] == conditions(args, system)

    systems = [SYSTEMS[name] for name in args.systems]
    return {
        data: [s for s in systems if data in s.data and (args.fresh or not known(data, s))]
        for data in args.data
    }


def results(args: argparse.Namespace, found: dict[Key, Entry]) -> Iterator[Entry]:
    """Yield the results of the plan as they come."""
    pending = {data: systems for data, systems in plan(args, found).items() if systems}
    if not pending:
        return
    run = time.strftime("%Y-%m-%d %H:%M:%S")
    with running(args.settings) as server:
        for data, systems in pending.items():
            drawn = draw(args.folder, data, args.queries, args.rows)
            truth = Truth(drawn, args.extent.k)
            with database(server, drawn) as opened:
                facts = {
                    "run": run,
                    "machine": about(opened),
                    "rows": len(drawn.rows),
                    "dimension": drawn.rows.shape[1],
                    "queries": len(drawn.queries),
                    "metric": drawn.metric,
                }
                for system in systems:
                    entry = measure(opened, truth, system, args.extent)
                    yield facts | entry | {"conditions": conditions(args, system)}


def about(opened: Database) -> dict[str, Any]:
    """Describe what the seconds were taken on, and how long a statement takes that does nothing."""
    query, nothing = Vector(opened.drawn.queries[0]), opened.ask("SELECT $1::vector IS NULL")
    pgvector = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    return machine() | {
        "blas_threads": max([1, *(pool["num_threads"] for pool in threadpool_info())]),
        "postgresql": opened.connection.info.parameter_status("server_version"),
        "pgvector": opened.value(pgvector),
        "round_trip_ms": round(median_ms(lambda: nothing(query), 200), 4),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared = Path(os.environ.get("PG_HASHINDEX_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--folder", type=Path, default=shared / "data", help="of the data sets")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--data", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--queries", type=int, default=QUERIES, help="at the most")
    parser.add_argument("--fresh", action="store_true", help="do again what is there already")
    parser.add_argument("--report", action="store_true", help="measure nothing; show what is there")
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_ROWS} rows, and a file of its own"
    )
    args = parser.parse_args()
    args.rows = QUICK_ROWS if args.quick else None
    args.queries = min(args.queries, QUICK_QUERIES) if args.quick else args.queries
    args.extent = QUICK if args.quick else Extent()
    args.settings = QUICK_SETTINGS if args.quick else SETTINGS
    scratch = Path(tempfile.gettempdir()) / "retrieval_quick.json"
    args.output = args.output or (scratch if args.quick else OUTPUT)
    return args


def main() -> None:
    args = arguments()
    if not (args.folder / "packages.npz").exists():
        sys.exit(f"{args.folder} has no packages.npz; name the folder with --folder")
    found = read_entries(args.output)
    if not args.report:
        print(heading())
        for entry in results(args, found):
            print(line(entry), flush=True)
            found[entry["data"], entry["system"]] = entry
            write(args.output, report(found, list(SYSTEMS)))
    whole = report(found, list(SYSTEMS))
    if not args.report:
        write(args.output, whole)
    print()
    for text in lines(whole):
        print(text)
    print(args.output)
    if whole["systems"]:
        save_plot(whole["systems"], args.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
