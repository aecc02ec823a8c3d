"""Compare pg_hashindex with all that pgvector offers where the data does not fit into memory.

    python benchmarks/memory.py [--data synthetic-300k] [--systems hnsw ours] [--memory 1 2 4 8]
    python benchmarks/tables.py
    python docs/make_pictures.py

One system at a time has a database of its own, a copy of the loaded one. Everything is saved as
soon as it is measured, one file for each data set; a later run replaces what it measures.

build
    CREATE INDEX with 4 GB of maintenance_work_mem and two parallel workers; ours by ``model train``
    and ``index create``. Builds, writes and VACUUM have all the memory of the machine.
search
    The cheapest settings with a recall@10 of .95 by 500 queries, as `retrieval.py` finds them: for
    each number of candidates the least effort; the best one where none reaches it. HNSW over signs
    (``binary_quantize``) re-ranks its candidates; HNSW over halfvec answers as it finds.
writes
    One row a transaction, and 100 a statement.
memory
    The server in a memory cgroup of 1/1, 1/2, 1/4 and 1/8 of table + HNSW over the vectors, with a
    quarter of that as shared_buffers, and io_method = sync: stop, sync, caches of the operating
    system dropped, start.
    The settings found are tried, and the fastest is taken, as `tune` would there. After another
    start follow up to 1,500 queries that are new, for 12 seconds: cold is the first 50,
    steady the last 300, or the second half where there are fewer. Then eight clients ask. It takes
    root and memory cgroups. Shares of less than 96 MiB are left out, since a server needs that.
churn
    Every fifth row is deleted, then VACUUM; it is stopped after ``--patience`` seconds.

Data: packages; ``normalise(x_i + 0.35 (x_j - x_k))`` of packages; and rows in clusters with a
spectrum that decays (`retrieval_data.clustered`), 200,000 of 1,536 dimensions and 100,000 of 3,072,
which are halfvec: pgvector's indexes take a vector of up to 2,000.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
from common import RESULTS, circumstances, read, scratch, write
from memory_report import DATA, lines
from retrieval import TARGET, about, common_parser, measure_all
from retrieval_data import FILTERS, SEED, DataSet, Truth, draw
from retrieval_held import (
    LEAST_MEMORY,
    MemoryGroup,
    NoCgroupsError,
    cheapest_here,
    cold_start,
    held_down,
)
from retrieval_measures import Entry, Extent, Searches, churn, inserts, remove_new_rows
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, copied, database, running
from retrieval_systems import System, compared

SHARES = (1, 2, 4, 8)
EXTENT = Extent(queries=500, fresh=3_000, patience=12)
QUICK = Extent(rows=5_000, queries=60, fresh=200, single=20, batches=5, patience=1)


class Run:
    """One data set.

    ``original``: It has the table alone.
    """

    def __init__(self, original: Database, args: argparse.Namespace) -> None:
        self.original, self.args = original, args
        drawn = original.drawn
        self.output: Path = args.output / f"memory_{drawn.name}.json"
        self.truth = Truth(drawn, args.extent.k)
        self.whole: dict[str, Any] = {
            "data": drawn.name,
            "rows": len(drawn.rows),
            "dimension": drawn.rows.shape[1],
            "type": drawn.type,
            "seed": SEED,
            "target": TARGET,
            "machine": about(original),
            "server": args.settings,
            "table_bytes": original.value("SELECT pg_table_size('items')"),
            "systems": read(self.output).get("systems", {}),
        }

    def run(self) -> None:
        """Measure the systems; HNSW comes first, since its size is what memory is shares of."""
        for system in compared(self.original.drawn.type, self.whole["dimension"]).values():
            if system.name in self.args.systems:
                with copied(self.original) as copy:
                    self._measure(copy, system)

    def _measure(self, copy: Database, system: System) -> None:
        extent = self.args.extent
        entry: Entry = circumstances()
        known = self.whole["systems"].get(system.name, {}).get("memory", {})
        entry["build"] = system.build(copy, 0).as_json()
        copy.settle()
        searches = Searches(copy, self.truth, extent)
        points, tried = searches.finalists(system, TARGET)
        timed = searches.in_turns([(system, point) for point in points], 1)
        best = min(timed, key=lambda point: float(point["p50_ms"]))
        entry["search"] = best | {
            "reached": best["recall"] >= TARGET,
            "tried": [{key: p[key] for key in ("setting", "recall", "p50_ms")} for p in tried],
        }
        entry["writes"] = inserts(copy, extent)
        remove_new_rows(copy)
        entry["memory"] = known
        self._save(system, entry, "build, search, writes")
        try:
            for share, limit in self._limits().items():
                entry["memory"] |= {share: self._held(copy, system, points, limit)}
                self._save(system, entry, f"1/{share} of memory")
        finally:
            copy.restart(self.args.settings)
        entry["churn"] = churn(copy, self.args.patience)
        self._save(system, entry, "churn")

    def _limits(self) -> dict[str, int]:
        """Return the bytes of each share that a server can run in; in trials there is one."""
        data = self.whole["table_bytes"] + self.whole["systems"]["hnsw"]["build"]["bytes"]
        shares = {str(share): data // share for share in self.args.memory}
        large = {share: limit for share, limit in shares.items() if limit >= LEAST_MEMORY}
        return large or {next(iter(shares)): LEAST_MEMORY}

    def _held(self, copy: Database, system: System, points: list[Entry], limit: int) -> Entry:
        extent = self.args.extent
        try:
            if len(points) > 1:
                with held_down(copy, limit, self.args.settings):
                    points = [cheapest_here(copy, system, points, extent)]
            with held_down(copy, limit, self.args.settings):
                found = cold_start(copy, system, points[0], extent)
        except psycopg.OperationalError as error:
            # The operating system may have ended a server that needed more.
            found = {"error": str(error).strip()}
        return {"limit_bytes": limit} | found

    def _save(self, system: System, entry: Entry, what: str) -> None:
        self.whole["systems"][system.name] = entry
        write(self.output, self.whole)
        now = time.strftime("%H:%M:%S")
        print(f"{now} {self.whole['data']}, {system.name}: {what}", flush=True)


def measure(args: argparse.Namespace, data: str) -> None:
    """Measure one data set."""
    extent = args.extent
    most = min(args.rows or sys.maxsize, extent.rows or sys.maxsize)
    drawn: DataSet = draw(args.folder, data, extent.queries, extent.fresh, most)
    with running(args.settings) as server, database(server, drawn) as opened:
        # Nothing here has filters.
        for column in FILTERS.values():
            opened.execute(f"DROP INDEX items_{column}")
        Run(opened, args).run()


def arguments() -> argparse.Namespace:
    names = tuple(compared("vector", 1))
    parser = common_parser(__doc__, DATA, names, f"{QUICK.rows} rows, few queries")
    parser.add_argument(
        "--memory", nargs="+", type=int, default=list(SHARES), help="1/N of table + HNSW"
    )
    parser.add_argument("--rows", type=int, help="rows at most")
    parser.add_argument(
        "--patience", type=float, default=150, help="seconds until VACUUM is stopped"
    )
    args = parser.parse_args()
    args.extent, args.settings = (QUICK, QUICK_SETTINGS) if args.quick else (EXTENT, SETTINGS)
    args.output = args.output or (scratch("memory_quick") if args.quick or args.rows else RESULTS)
    return args


def refuse(args: argparse.Namespace) -> None:
    """End the program where it cannot do its work, before hours of it."""
    try:
        MemoryGroup(LEAST_MEMORY).close()
    except NoCgroupsError as error:
        sys.exit(f"memory cannot be limited here: {error}")
    for data in args.data:
        if not data.startswith("clustered") and not (args.folder / "packages.npz").exists():
            sys.exit(f"{args.folder} has no packages.npz; name the folder with --folder")
        known = read(args.output / f"memory_{data}.json").get("systems", {})
        if "hnsw" not in (*args.systems, *known):
            sys.exit(f"{data} needs --systems hnsw first: memory is a share of table + HNSW")


def main() -> None:
    args = arguments()
    failed = []
    if not args.report:
        refuse(args)
        failed = measure_all(args, measure)
    for data in args.data:
        if whole := read(args.output / f"memory_{data}.json"):
            print("\n".join(["", *lines(whole)]))
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
