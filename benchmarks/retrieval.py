"""Compare pg_hashindex with pgvector's HNSW in memory: speed at a recall, filters, builds, writes.

    python benchmarks/retrieval.py [--data packages synthetic-300k] [--only search filters]
    python benchmarks/tables.py

One embedded server has one database for each data set, which holds all systems. Each part is saved
as soon as it is measured, one file for each data set; a later run replaces the parts that it
measures.

build
    Ours by the command line: ``model train`` and ``index create``, which encodes and makes the
    landmarks, from the start of the first process to the end of the last. HNSW by CREATE INDEX.
    Ours are built three times with different seeds, and so is HNSW of 300,000 rows. Bytes count
    everything that a build adds.
search
    Everything is in memory; `memory.py` measures where it is not. For each system the cheapest
    setting of recall@10 .95 is found: for each number of candidates the least effort that reaches
    it. Ties count as correct. The best settings are timed in turns of 25 queries, in separate
    sessions, prepared, with binary parameters. Every build is measured so.
filters
    Filters that let 10 and 50 % of the rows through, recall@10 .98. The columns have b-trees, which
    the planner may choose. HNSW searches with iterative scans in strict and in relaxed order.
inserts
    One row a transaction, and 100 a statement, on a table that has only one system and its primary
    key.

Synthetic rows are ``normalise(x_i + 0.35 (x_j - x_k))`` of packages; for queries x_i is one of the
1,000 packages that are in no table. New queries are made in the same way. The rows of 512 and 1,536
dimensions, which PostgreSQL keeps out of line, come from `retrieval_data.clustered`.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import DATA_FOLDER, RESULTS, circumstances, machine, read, scratch, write
from retrieval_data import FILTERS, SEED, Truth, draw
from retrieval_measures import QUICK, Entry, Extent, Searches, inserts, remove_new_rows
from retrieval_report import HNSW, OURS, lines
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, database, running
from retrieval_systems import SYSTEMS, Ours, System
from threadpoolctl import threadpool_info

DATA = ("packages", "synthetic-300k", "synthetic-1m", "dims-512", "dims-1536")
PARTS = ("build", "search", "filters", "inserts")
#: Recall@10 of searches, and of those with a filter.
TARGET, FILTERED_TARGET = 0.95, 0.98
BUILDS = 3


class Run:
    """All parts of one data set."""

    def __init__(
        self,
        database: Database,
        extent: Extent,
        systems: Sequence[System],
        parts: Sequence[str],
        builds: int,
    ) -> None:
        self.database, self.extent, self.parts = database, extent, parts
        self.builds = builds
        self.truth = Truth(database.drawn, extent.k)
        self.systems = systems
        self.built: set[str] = set()

    def results(self) -> Iterator[tuple[str, Entry]]:
        """Yield each part when it is measured."""
        builds: dict[str, list[Entry]] = {}
        rounds: list[dict[str, Entry]] = []
        searches = Searches(self.database, self.truth, self.extent)
        for seed in range(self.builds):
            for system in self.systems:
                if seed == 0 or isinstance(system, Ours) or self._builds_hnsw_again():
                    self._drop(system)
                    builds.setdefault(system.name, []).append(self._build(system, seed))
            self.database.settle()
            yield "build", {"systems": builds}
            if "search" in self.parts:
                rounds.append(searches.cheapest(self.systems, TARGET))
                yield "search", {"target": TARGET, "rounds": rounds}
        if "filters" in self.parts:
            yield "filters", self._filters()
        if "inserts" in self.parts:
            yield "inserts", {"systems": self._inserts()}

    def _builds_hnsw_again(self) -> bool:
        return self.database.drawn.name == "synthetic-300k"

    def _build(self, system: System, seed: int) -> Entry:
        self.database.execute("CHECKPOINT")
        self.built.add(system.name)
        return system.build(self.database, seed).as_json()

    def _drop(self, system: System) -> None:
        if system.name in self.built:
            system.drop(self.database)
            self.built.remove(system.name)

    def _filters(self) -> Entry:
        systems = [system for system in self.systems if system.name in (HNSW, OURS)]
        shares = {
            str(share): Searches(self.database, self.truth, self.extent, share).cheapest(
                systems, FILTERED_TARGET
            )
            for share in FILTERS
        }
        return {"target": FILTERED_TARGET, "shares": shares}

    def _inserts(self) -> dict[str, Entry]:
        for column in FILTERS.values():
            self.database.execute(f"DROP INDEX IF EXISTS items_{column}")
        found = {}
        for system in [s for s in self.systems if s.name in (HNSW, OURS)]:
            for other in self.systems:
                if other is not system:
                    self._drop(other)
            if system.name not in self.built:
                self._build(system, 0)
            self.database.settle()
            found[system.name] = inserts(self.database, self.extent)
            self._drop(system)
            # Last, since deleting rows from an HNSW index takes minutes.
            remove_new_rows(self.database)
        return found


def about(opened: Database) -> dict[str, Any]:
    """Describe the machine that the times were taken on."""
    with opened.session() as session:
        return machine() | {
            "blas_threads": max([1, *(pool["num_threads"] for pool in threadpool_info())]),
            "postgresql": session.connection.info.parameter_status("server_version"),
            "pgvector": session.value(
                "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
            ),
        }


def measure(args: argparse.Namespace, data: str) -> None:
    """Measure one data set, and save each part."""
    output = args.output / f"retrieval_{data}.json"
    began = circumstances()
    extent = args.extent
    drawn = draw(args.folder, data, extent.queries, extent.fresh, extent.rows)
    with running(args.settings) as server, database(server, drawn) as opened:
        facts = {
            "data": data,
            "rows": len(drawn.rows),
            "dimension": drawn.rows.shape[1],
            "queries": len(drawn.queries),
            "seed": SEED,
            "machine": about(opened),
            "server": args.settings,
        }
        systems = [SYSTEMS[name] for name in args.systems]
        run = Run(opened, extent, systems, args.only, args.builds)
        for part, entry in run.results():
            parts = read(output).get("parts", {}) | {part: began | entry}
            write(output, facts | {"parts": parts})
            print(f"{time.strftime('%H:%M:%S')} {data}: {part}", flush=True)


def show(args: argparse.Namespace) -> None:
    """Print the saved results of the data sets."""
    for data in args.data:
        output = args.output / f"retrieval_{data}.json"
        if whole := read(output):
            print(f"\n{output}")
            for line in lines(whole):
                print(line)


def common_parser(
    about: str, data: Sequence[str], systems: Sequence[str], quick: str
) -> argparse.ArgumentParser:
    """Return the options that `memory.py` takes too."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="folder of packages.npz")
    parser.add_argument("--output", type=Path, help="folder of the results")
    parser.add_argument("--data", nargs="+", choices=data, default=list(data))
    parser.add_argument("--systems", nargs="+", choices=systems, default=list(systems))
    parser.add_argument("--report", action="store_true", help="only show saved results")
    parser.add_argument("--quick", action="store_true", help=f"{quick}, another folder")
    return parser


def arguments() -> argparse.Namespace:
    parser = common_parser(__doc__, DATA, tuple(SYSTEMS), f"{QUICK.rows} rows, one build")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="parts to measure; builds always run",
    )
    parser.add_argument("--builds", type=int, help=f"how often to build  [default: {BUILDS}]")
    args = parser.parse_args()
    args.extent, args.settings = (QUICK, QUICK_SETTINGS) if args.quick else (Extent(), SETTINGS)
    args.builds = args.builds or (1 if args.quick else BUILDS)
    args.output = args.output or (scratch("retrieval_quick") if args.quick else RESULTS)
    return args


def refuse(args: argparse.Namespace) -> None:
    """End the program where it cannot do its work."""
    if not (args.folder / "packages.npz").exists():
        sys.exit(f"{args.folder} has no packages.npz; name the folder with --folder")


def measure_all(
    args: argparse.Namespace, measure: Callable[[argparse.Namespace, str], None]
) -> list[str]:
    """Measure every data set; print what goes wrong, and return the data sets that failed."""
    failed = []
    for data in args.data:
        try:
            measure(args, data)
        # A failure with one data set must not end hours of work on others.
        except Exception:
            traceback.print_exc()
            failed.append(data)
    return failed


def main() -> None:
    args = arguments()
    failed = []
    if not args.report:
        refuse(args)
        failed = measure_all(args, measure)
    show(args)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
