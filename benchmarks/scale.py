"""Measure tables of a million rows and more, part by part, with pgvector's HNSW beside.

    python benchmarks/scale.py --rows 1e6 1e7 [--parts load build search] [--again]
    python benchmarks/tables.py
    python docs/make_pictures.py

Every number of rows has a database of its own on an embedded server, whose folder is kept between
runs. Each part is saved as soon as it is measured. A part that was measured is left out unless
``--again`` says so, so that a later run continues where an earlier one stopped; a build that was
cut off continues too. A part is cut off after ``--most`` minutes, and none begins that would leave
less than 15 GB of the disk free.

load
    COPY BINARY into a table of halfvec(384), then its key's b-tree, then VACUUM ANALYZE. Rows are
    ``normalise(x_i + 0.35 (x_j - x_k))`` of packages, made block by block, never all at once.
truth
    The true neighbours of 200 queries, by products in float32 with every row, block by block.
build
    ``model train`` and ``index create``: seconds, CPU seconds of client and server, the client's
    peak memory, and that of the server beside shared_buffers.
search
    The cheapest settings with a recall@10 of .95 and .98, as `retrieval.py` finds them.
held
    The same in a memory cgroup of 2 and of 1 GB, as `memory.py` holds a server.
writes
    One row a transaction, and 1,000 a statement.
swap
    The command, to a second model, which is trained first.
hnsw
    CREATE INDEX with 8 GB of maintenance_work_mem and two parallel workers, and of up to a million
    rows also bytes, searches in turns with ours, the server held, and inserts. Of more rows it is
    stopped after the seconds of our build, or at the end of the part, and the share that it had
    done is kept.

The CPU seconds of everything else on the machine stand beside each part.
"""

import argparse
import contextlib
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import scale_report
from common import DATA_FOLDER, RESULTS, circumstances, cpu_seconds, read, scratch, write
from pgvector import Vector
from retrieval import about
from retrieval_data import SEED
from retrieval_held import cheapest_here, cold_start, held_down
from retrieval_measures import (
    ROUNDS,
    WARM_UP,
    Entry,
    Extent,
    Searches,
    answered,
    inserts,
    remove_new_rows,
    setting_of,
)
from retrieval_server import SETTINGS, Database, Session, running
from retrieval_systems import Hnsw, Ours, Ran, System, run_command
from scale_data import BlockTruth, draw_blocks, load_blocks
from scale_watch import Watch

from pg_hashindex import store
from pg_hashindex.server import EmbeddedServer
from pg_hashindex.server.demo import new_database

PARTS = ("load", "truth", "build", "search", "held", "writes", "hnsw", "swap")
TARGETS = (0.95, 0.98)
#: Bytes of memory that the server is held to.
HELD = (2 << 30, 1 << 30)
EXTENT = Extent(queries=200, fresh=3_000, single=500, batches=8, batch=1_000, patience=12)
HNSW_SETTINGS = {"maintenance_work_mem": "8GB"}
#: With more rows HNSW is not built whole.
WHOLE_HNSW = 1_000_000
#: Bytes a row that parts write at the most, and of the log.
WRITTEN = {"load": 1_000, "build": 600, "swap": 900, "hnsw": 1_800}
LOG = 8 << 30
FREE = 15 * 10**9
#: Queries whose CPU time is taken.
CPU_QUERIES = 500
# So long a part needs to end what it began.
_MARGIN_S = 60


class PartCutOffError(Exception):
    """A part took too long."""


class Run:
    """All parts of one number of rows."""

    def __init__(self, server: EmbeddedServer, rows: int, args: argparse.Namespace) -> None:
        self.rows, self.args = rows, args
        new = EXTENT.single + EXTENT.batches * EXTENT.batch
        drawn = draw_blocks(args.folder, rows, EXTENT.queries, EXTENT.fresh, new)
        self.database = Database(server, f"scale_{rows}", drawn)
        self.ours = Ours("ours")
        self.theirs = Hnsw("hnsw", "halfvec", drawn.rows.shape[1])

    def run(self) -> None:
        """Measure the parts that are asked for, and save each."""
        asked = [part for part in PARTS if part in self.args.parts]
        if self.args.again:
            self._forget(asked)
        for part in asked:
            known = self._parts().get(part, {})
            if known and not known.get("cut_off"):
                continue
            self._refuse(part)
            before, cut_off = circumstances(), None
            try:
                with at_most(60 * self.args.most):
                    entry = getattr(self, part)()
            except PartCutOffError as error:
                cut_off = error
                entry = self._parts().get(part, {}) | {"cut_off": True}
            self._save(part, before | entry)
            if cut_off is not None:
                raise cut_off

    def truth(self) -> Entry:
        (self.args.data / f"truth_{self.rows}.npy").unlink(missing_ok=True)
        start = time.perf_counter()
        self._truth()
        return {"seconds": round(time.perf_counter() - start, 1)}

    def load(self) -> Entry:
        new_database(self.database.server, self.database.name)
        with Watch(self.database) as watch:
            load_blocks(self.database)
        self.database.settle()
        size = self.database.value("SELECT pg_table_size('items')")
        return watch.figures | {"table_bytes": size}

    def build(self) -> Entry:
        before = self._parts().get("build", {})
        if not before.get("cut_off"):
            self.ours.drop(self.database)
            empty = sum(self.ours.sizes(self.database).values())
            before = {"empty_bytes": empty, "runs": []}
        commands = self.ours.commands(self.rows, 0)
        commands["create"] += f" --memory {self.args.memory}"
        with self.database.session() as session:
            if session.value("SELECT count(*) FROM hashindex.index WHERE name = 'ours'"):
                commands = {"encode": f"index encode ours --memory {self.args.memory}"}
            elif session.value("SELECT count(*) FROM hashindex.model WHERE name = 'ours'"):
                del commands["train"]
        for name, command in commands.items():
            with Watch(self.database) as watch:
                try:
                    ran = run_command(command, self.database.uri)
                except PartCutOffError:
                    ran = None
            of_command = {"command": name} | watch.figures | figures(ran)
            before["runs"].append(of_command | ({} if ran else {"cut_off": True}))
            self._save("build", before | {"cut_off": True})
            if ran is None:
                raise PartCutOffError("the build was cut off; run it again to continue")
        self.database.settle()
        taken = sum(self.ours.sizes(self.database).values()) - before["empty_bytes"]
        summed = {
            name: round(sum(run[name] for run in before["runs"]), 2)
            for name in ("seconds", "client_cpu_s", "server_cpu_s", "others_cpu_s")
        }
        most = {
            name: max(run[name] for run in before["runs"] if name in run)
            for name in ("client_peak_mb", "server_peak_mb")
        }
        return before | summed | most | {"bytes": taken, "cut_off": False}

    def search(self) -> Entry:
        return self._searched([self.ours])

    def held(self) -> Entry:
        return {"memory": self._held(self.ours, self._parts()["search"]["systems"]["ours"])}

    def writes(self) -> Entry:
        try:
            with Watch(self.database) as watch:
                found = inserts(self.database, EXTENT, ())
        finally:
            remove_new_rows(self.database)
            self.database.settle()
        return watch.figures | found

    def swap(self) -> Entry:
        train = self.ours.commands(self.rows, 1)["train"].replace("train ours", "train second")
        trained = self._command(train)
        swapped = self._command("index swap ours --model second --force", good=range(256))
        if swapped["exit_code"] == 0:
            run_command("index prune ours", self.database.uri)
            with self.database.session() as session:
                store.drop(session.connection, "ours")
        return swapped | {"train": trained}

    def hnsw(self) -> Entry:
        self.hnsw_drop()
        most = 60 * self.args.most - _MARGIN_S
        if self.rows > WHOLE_HNSW:
            most = min(most, self._parts()["build"]["seconds"])
        entry: Entry = {}
        try:
            with Watch(self.database) as watch:
                built = self._build_hnsw(most, watch)
            entry = {"build": built | watch.figures}
            if built["finished"]:
                self.database.settle()
                entry["build"]["bytes"] = sum(self.theirs.sizes(self.database).values())
                self._save("hnsw", entry | {"cut_off": True})
                entry["search"] = self._searched(
                    [self.theirs, self.ours], self._parts()["search"]["systems"]
                )
                self._save("hnsw", entry | {"cut_off": True})
                entry["memory"] = self._held(self.theirs, entry["search"]["systems"]["hnsw"])
                self._save("hnsw", entry | {"cut_off": True})
                entry["writes"] = self._written_without_ours()
        finally:
            self.hnsw_drop()
        return entry

    def hnsw_drop(self) -> None:
        self.theirs.drop(self.database)
        self.database.execute("CHECKPOINT")

    def _command(self, command: str, good: Sequence[int] = (0,)) -> Entry:
        with Watch(self.database) as watch:
            ran = run_command(command, self.database.uri, good)
        return watch.figures | figures(ran)

    def _truth(self) -> BlockTruth:
        saved = self.args.data / f"truth_{self.rows}.npy"
        return BlockTruth(self.database.drawn, EXTENT.k, saved)

    def _searched(self, systems: Sequence[System], known: Mapping[str, Entry] = {}) -> Entry:
        """Return the cheapest setting of each system and recall, timed in turns.

        ``known``: What this returned of systems before: their finalists are not looked for again.
        """
        searches = Searches(self.database, self._truth(), EXTENT)
        found: Entry = {system.name: {} for system in systems}
        with Watch(self.database) as watch:
            for target in TARGETS:
                points = {
                    s: known.get(s.name, {}).get(str(target), {}).get("finalists")
                    or searches.finalists(s, target)[0]
                    for s in systems
                }
                contenders = [(s, point) for s in systems for point in points[s]]
                timed = searches.in_turns(contenders, 1)
                of_system: dict[System, list[Entry]] = {s: [] for s in systems}
                for (system, _), point in zip(contenders, timed, strict=True):
                    of_system[system].append(point)
                best = [(s, min(of_system[s], key=lambda p: float(p["p50_ms"]))) for s in systems]
                # Timed again, since the fastest of many was also lucky.
                for (system, _), point in zip(
                    best, searches.in_turns(best, 2 * ROUNDS), strict=True
                ):
                    found[system.name][str(target)] = point | {
                        "cpu_ms": self._cpu_ms(system, point),
                        "reached": point["recall"] >= target,
                        "finalists": points[system],
                    }
        return {"systems": found} | watch.figures

    def _cpu_ms(self, system: System, point: Entry) -> float:
        """Return the mean milliseconds of CPU of the server's process for a query."""
        vectors = [Vector(query) for query in self.database.drawn.fresh[:CPU_QUERIES]]
        with self.database.session() as session:
            session.set(point["session"])
            ask = session.ask(system.statement(EXTENT.k, setting_of(point)))
            pid = session.connection.info.backend_pid
            answered(ask, vectors[:WARM_UP])
            before = cpu_seconds(pid)
            answered(ask, vectors)
            return round(1000 * (cpu_seconds(pid) - before) / len(vectors), 3)

    def _held(self, system: System, found: Entry) -> Entry:
        """Return the searches of a system in less memory, by bytes and recall."""
        result: Entry = {}
        try:
            for limit in HELD:
                for target in map(str, TARGETS):
                    points = found[target]["finalists"]
                    try:
                        if len(points) > 1:
                            with held_down(self.database, limit, SETTINGS):
                                points = [cheapest_here(self.database, system, points, EXTENT)]
                        with held_down(self.database, limit, SETTINGS):
                            measured = cold_start(self.database, system, points[0], EXTENT)
                    except psycopg.OperationalError as error:
                        # The operating system may have ended a server that needed more.
                        measured = {"error": str(error).strip()}
                    result.setdefault(str(limit), {})[target] = measured
        finally:
            self.database.restart(SETTINGS)
        return result

    def _build_hnsw(self, most: float, watch: Watch) -> Entry:
        """Build HNSW, and stop it after ``most`` seconds; return how far it came, and when."""
        statement = self.theirs.create().encode()
        progress: list[list[float]] = []
        with self.database.session() as building, self.database.session() as watching:
            building.set(HNSW_SETTINGS)
            failed: list[psycopg.Error] = []

            def create() -> None:
                try:
                    building.connection.execute(statement)
                except psycopg.Error as error:
                    failed.append(error)

            thread = threading.Thread(target=create)
            start, before = time.perf_counter(), watch.server_cpu()
            thread.start()
            try:
                while thread.is_alive() and (taken := time.perf_counter() - start) < most:
                    if not progress or taken > 1.2 * progress[-1][0]:
                        cpu = watch.server_cpu() - before
                        share = self._share_done(watching)
                        progress.append([round(taken, 1), share, round(cpu, 1)])
                    thread.join(0.5)
                share = self._share_done(watching)
            finally:
                pid = building.connection.info.backend_pid
                watching.value("SELECT pg_cancel_backend(%s)", [pid])
                thread.join()
        if failed and not isinstance(failed[0], psycopg.errors.QueryCanceled):
            raise failed[0]
        return {
            "finished": not failed,
            "share": share if failed else 1.0,
            "progress": progress,
        }

    def _share_done(self, session: Session) -> float:
        done = session.value(
            "SELECT tuples_done FROM pg_stat_progress_create_index "
            "WHERE datname = current_database()"
        )
        return round((done or 0) / self.rows, 5)

    def _written_without_ours(self) -> Entry:
        """Return the rates of inserts while our triggers are off, which HNSW alone takes."""
        self.database.execute("ALTER TABLE items DISABLE TRIGGER USER")
        try:
            return inserts(self.database, EXTENT, ())
        finally:
            remove_new_rows(self.database)
            self.database.execute("ALTER TABLE items ENABLE TRIGGER USER")

    def _parts(self) -> dict[str, Any]:
        found = read(self.args.output).get("sizes", {}).get(str(self.rows), {})
        return dict(found.get("parts", {}))

    def _forget(self, parts: Sequence[str]) -> None:
        whole = read(self.args.output)
        known = whole.get("sizes", {}).get(str(self.rows), {"parts": {}})["parts"]
        for part in parts:
            known.pop(part, None)
        write(self.args.output, whole)

    def _save(self, part: str, entry: Entry) -> None:
        whole = read(self.args.output) | {
            "dimension": 384,
            "type": "halfvec",
            "seed": SEED,
            "machine": about(self.database),
            "server": SETTINGS,
            "hnsw": HNSW_SETTINGS,
        }
        sizes = whole.setdefault("sizes", {})
        sizes.setdefault(str(self.rows), {"parts": {}})["parts"][part] = entry
        write(self.args.output, whole)
        print(f"{time.strftime('%H:%M:%S')} {self.rows:,} rows: {part}", flush=True)

    def _refuse(self, part: str) -> None:
        """End the program if the disk would be full, or the part before is missing."""
        free = shutil.disk_usage(self.args.data).free
        needed = self.rows * WRITTEN[part] + LOG if part in WRITTEN else 0
        if free - needed < FREE:
            sys.exit(
                f"{part} of {self.rows:,} rows may write {needed / 1e9:.0f} GB, and "
                f"{self.args.data} has {free / 1e9:.0f} GB; 15 GB must be left"
            )
        if part in ("truth", "load"):
            return
        parts = self._parts()
        if "load" not in parts or (part != "build" and "bytes" not in parts.get("build", {})):
            sys.exit(f"{part} of {self.rows:,} rows needs the parts load and build first")
        if not self.database.value("SELECT EXISTS (SELECT FROM items WHERE id = 0)"):
            sys.exit(f"rows of {self.database.name} were deleted; load it again")


def figures(ran: Ran | None) -> Entry:
    """Return what is saved of a command: nothing if it was cut off."""
    if ran is None:
        return {}
    return {
        "seconds": round(ran.seconds, 2),
        "client_cpu_s": round(ran.cpu_s, 2),
        "client_peak_mb": round(ran.peak_bytes / 1e6),
        "exit_code": ran.exit_code,
        **({} if ran.exit_code == 0 else {"said": ran.said}),
    }


@contextlib.contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise PartCutOffError in this thread after some seconds."""

    def cut_off(number: int, frame: FrameType | None) -> None:
        raise PartCutOffError(f"cut off after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, cut_off)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="folder of packages.npz")
    parser.add_argument("--data", type=Path, default=scratch("scale"), help="folder of the server")
    parser.add_argument("--output", type=Path, default=RESULTS / "scale.json")
    parser.add_argument("--rows", nargs="+", type=float, default=[1e6, 1e7])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--again", action="store_true", help="measure parts that are there too")
    parser.add_argument("--memory", default="2GB", help="memory of the client's builds")
    parser.add_argument("--most", type=float, default=38, help="minutes of a part  [default: 38]")
    parser.add_argument("--report", action="store_true", help="only show saved results")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if not args.report:
        if not (args.folder / "packages.npz").exists():
            sys.exit(f"{args.folder} has no packages.npz; name the folder with --folder")
        args.data.mkdir(parents=True, exist_ok=True)
        with running(SETTINGS, args.data) as server:
            for rows in args.rows:
                Run(server, int(rows), args).run()
    print("\n".join(scale_report.lines(read(args.output))))


if __name__ == "__main__":
    main()
