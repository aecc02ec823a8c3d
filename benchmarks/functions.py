"""Measure functions of models: a code's price, and pgvector's HNSW over codes beside vectors.

    python benchmarks/functions.py [--data synthetic-300k] [--builds 3] [--buffers 128MB 4GB]

Results are saved in ``functions_DATA.json`` as soon as they are measured; a later run continues
after the parts that are there (``--again`` measures all again). Take a quiet machine.

price
    CPU microseconds that the server takes for a code of each model, for rows of 384 and of 1,536
    dimensions (TOASTed), less those of reading the row.
graphs
    For each build, the graphs over vectors, over `thermometer` codes and over halfvec, all with
    ``ef_construction = 128``, and an index of pg_hashindex: seconds, bytes, and recall@10, wall
    (p50) and CPU milliseconds of queries at settings of rising cost, all in turns. The table
    interpolates CPU and wall at recall .95 and .97, and divides.
shapes
    With ``--shapes``: the graph over codes with other ``m`` and ``ef_construction``.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import (
    DATA_FOLDER,
    RESULTS,
    circumstances,
    cpu_seconds,
    parser,
    read,
    scratch,
    table,
    write,
)
from pgvector import Vector
from retrieval import about
from retrieval_data import DataSet, Truth, draw
from retrieval_measures import TURN, WARM_UP, answered
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, Session, database, running
from retrieval_systems import GRAPH, CodeHnsw, Hnsw, Line, Ours, Setting, System

from pg_hashindex import store
from pg_hashindex.hashers import ITQ, Hasher, Thermometer

TARGETS = (0.95, 0.97)
VECTORS, CODES, HALVES, LISTS = "vectors", "thermometer", "halfvec", "lists"
# Candidates and effort.
_LISTS = (
    (30, 32), (40, 48), (45, 64), (50, 80), (60, 96), (75, 128), (100, 160), (100, 224), (150, 320)
)  # fmt: skip
#: ``m`` and ``ef_construction`` of graphs over codes.
SHAPES = ((8, 128), (12, 128), (16, 64), (16, 128), (24, 128))
_EF_SEARCH = (20, 30, 40, 60, 80, 120, 160, 200)

Entry = dict[str, Any]


class Vectors(Hnsw):
    """pgvector's HNSW over the vectors."""

    def lines(self) -> Sequence[Line]:
        return [[Setting({"hnsw.ef_search": ef}) for ef in _EF_SEARCH]]


class Codes(CodeHnsw):
    """pgvector's HNSW over codes; ef_search rows are re-ranked."""

    def lines(self) -> Sequence[Line]:
        return [[Setting({"hnsw.ef_search": ef}, {"candidates": ef}) for ef in _EF_SEARCH]]

    def _options(self, rows: int) -> Any:
        return self.shape or GRAPH

    #: The options of the graph, where they are not those of README.
    shape = ""


class Lists(Ours):
    """An index of pg_hashindex; more candidates and effort together."""

    def lines(self) -> Sequence[Line]:
        return [[Setting(arguments={"candidates": n, "effort": p}) for n, p in _LISTS]]


def price(drawn: DataSet) -> Entry:
    """Return the CPU microseconds of a code of each model for rows of 384 and 1,536 dimensions."""
    wide = draw(DATA_FOLDER, "dims-1536", 10, most=4_000)
    found: Entry = {}
    with running(SETTINGS | {"shared_buffers": "1GB"}) as server:
        for rows in (drawn.rows[:20_000], wide.rows):
            with database(server, DataSet.of("price", rows, rows[:1], rows[:0], _rng())) as opened:
                found[str(rows.shape[1])] = _prices(opened)
    return found


def _rng() -> np.random.Generator:
    return np.random.default_rng(0)


def _prices(opened: Database) -> Entry:
    rows = opened.drawn.rows
    kinds: dict[str, tuple[Hasher, int]] = {
        "thermometer, 1 cut": (Thermometer(normalize="l2"), 1),
        "thermometer, 3 cuts": (Thermometer(normalize="l2"), 3),
        "itq, 256 x 3 cuts": (ITQ(n_bits=256, normalize="l2", n_iter=2, random_state=0), 3),
    }
    expressions = {"binary_quantize": "binary_quantize(embedding)"}
    with opened.session() as session:
        for place, (name, (hasher, cuts)) in enumerate(kinds.items()):
            model = hasher.fit(rows).to_model(f"m{place}", metric="cosine", cuts=cuts)
            store.save(session.connection, model)
            function = session.value("SELECT hashindex.create_functions(%s)", [f"m{place}"])
            expressions[name] = f"{function}(embedding)"
        session.connection.execute("SET max_parallel_workers_per_gather = 0")
        read_alone = _microseconds(session, "embedding", len(rows))
        return {
            name: round(_microseconds(session, expression, len(rows)) - read_alone, 2)
            for name, expression in expressions.items()
        }


def _microseconds(session: Session, expression: str, rows: int) -> float:
    """Return the CPU microseconds of an expression for a row: the least of four scans."""
    pid, taken = session.connection.info.backend_pid, []
    for _ in range(5):
        before = cpu_seconds(pid)
        session.value(f"SELECT count({expression}) FROM items")
        taken.append(cpu_seconds(pid) - before)
    return 1e6 * min(taken[1:]) / rows


def curves(opened: Database, truth: Truth, systems: Sequence[System]) -> Entry:
    """Return by system, for each ef_search, recall and milliseconds; all in turns."""
    queries = [Vector(query) for query in opened.drawn.queries]
    asked: list[tuple[System, Setting, Any, int]] = []
    with contextlib.ExitStack() as stack:
        for system in systems:
            for setting in system.lines()[0]:
                session = stack.enter_context(opened.session())
                session.set(setting.session)
                search = session.ask(system.statement(10, setting))
                answered(search, queries[:WARM_UP])
                asked.append((system, setting, search, session.connection.info.backend_pid))
        # The greatest ef_search of each, so that what fits in shared_buffers is there.
        for system in systems:
            answered([search for of, _, search, _ in asked if of is system][-1], queries)
        keys: list[dict[int, list[list[Any]]]] = [{} for _ in asked]
        walls: list[list[float]] = [[] for _ in asked]
        cpus = [0.0] * len(asked)
        starts = range(0, len(queries), TURN)
        for turn in range(len(starts)):
            for place, (_, _, search, pid) in enumerate(asked):
                # Other queries than the setting before, which has read the pages of its own.
                start = starts[(turn + place) % len(starts)]
                before = cpu_seconds(pid)
                keys[place][start], wall = answered(search, queries[start : start + TURN])
                cpus[place] += cpu_seconds(pid) - before
                walls[place] += wall
    result: Entry = {system.name: [] for system in systems}
    for place, (system, setting, _, _) in enumerate(asked):
        found = [answer for start in starts for answer in keys[place][start]]
        result[system.name].append({
            "setting": setting.label,
            "recall": round(truth.recall(found), 5),
            "p50_ms": round(float(np.median(walls[place])), 4),
            "cpu_ms": round(1e3 * cpus[place] / len(queries), 4),
        })  # fmt: skip
    return result


def shapes(opened: Database, truth: Truth) -> Entry:
    """Return seconds, bytes and points of graphs over codes with other options."""
    found: Entry = {}
    for m, effort in SHAPES:
        system = Codes(CODES)
        system.index, system.shape = "items_shape", f" WITH (m = {m}, ef_construction = {effort})"
        system.drop(opened)
        built = system.build(opened, 0).as_json()
        opened.settle()
        points = curves(opened, truth, [system])[CODES]
        found[system.shape.strip()] = {"built": built, "points": points}
        system.drop(opened)
    return found


def at_recall(points: Sequence[Entry], target: float, what: str) -> float:
    """Interpolate milliseconds at a recall; NaN if no setting reaches it."""
    recalls = np.maximum.accumulate([point["recall"] for point in points])
    if recalls[-1] < target:
        return float("nan")
    return float(np.interp(target, recalls, [point[what] for point in points]))


def mean_at(builds: Sequence[Entry], buffers: str, name: str, target: float, what: str) -> float:
    """Return the mean of milliseconds at a recall over all builds."""
    curves = [build["curves"][buffers][name] for build in builds if buffers in build["curves"]]
    return float(np.mean([at_recall(points, target, what) for points in curves]))


def show(report: Entry) -> None:
    """Print the prices, and ratios to the other graphs, by the mean of all builds."""
    for dimension, prices in report.get("price", {}).items():
        print(f"{dimension} dimensions, us:", prices)
    builds = report.get("graphs", [])
    for buffers in sorted({buffers for build in builds for buffers in build["curves"]}):
        rows = []
        for target in TARGETS:
            for what in ("cpu_ms", "p50_ms"):
                names = (VECTORS, CODES, HALVES, LISTS)
                mean = {name: mean_at(builds, buffers, name, target, what) for name in names}
                ratios = [mean[CODES] / mean[name] for name in (VECTORS, HALVES)]
                ratios.append(mean[LISTS] / mean[VECTORS])
                numbers = [f"{number:.2f}" for number in [*mean.values(), *ratios]]
                rows.append([f"{what} at {target}", *numbers])
        print(f"\nshared_buffers {buffers}, {len(builds)} builds")
        columns = ["", *names, "codes/vectors", "codes/halfvec", "lists/vectors"]
        print(table(columns, rows))
    for shape, entry in report.get("shapes", {}).items():
        times = [f"{at_recall(entry['points'], target, 'cpu_ms'):.2f}" for target in TARGETS]
        print(shape, entry["built"]["seconds"], entry["built"]["bytes"], *times)
    for build in builds:
        print({name: (each["seconds"], each["bytes"]) for name, each in build["built"].items()})


def main() -> None:
    options = parser(__doc__ or "", data="synthetic-300k", builds=3, rows=0, output=RESULTS)
    options.add_argument("--buffers", nargs="+", default=["128MB", "4GB"])
    options.add_argument("--shapes", action="store_true", help="try other options of the graph")
    options.add_argument("--again", action="store_true", help="measure all parts again")
    options.add_argument(
        "--quick", action="store_true", help="10,000 rows, one build, another folder"
    )
    args = options.parse_args()
    if args.quick:
        args.rows, args.builds, args.buffers = 10_000, 1, ["128MB"]
        args.output, args.again = scratch("functions_quick"), True
    settings = QUICK_SETTINGS if args.quick else SETTINGS
    output = args.output / f"functions_{args.data}.json"
    report = {} if args.again else read(output)
    drawn = draw(DATA_FOLDER, args.data, 100 if args.quick else 500, most=args.rows or None)

    def save(part: str, entry: Any) -> None:
        report[part] = entry
        report.setdefault("runs", []).append({"part": part} | circumstances())
        write(output, report)

    if "price" not in report:
        save("price", price(drawn))
    if len(report.get("graphs", [])) < args.builds or (args.shapes and "shapes" not in report):
        with running(settings) as server, database(server, drawn) as opened:
            report |= {"data": args.data, "rows": len(drawn.rows), "machine": about(opened)}
            report["server"] = settings | {"shared_buffers": args.buffers}
            truth = Truth(drawn, 10)
            dimension = drawn.rows.shape[1]
            graphs = (
                Vectors(VECTORS, "vector", dimension),
                Codes(CODES),
                Vectors(HALVES, "vector", dimension, half=True),
            )
            # All stand in the table, so each has an index of its own name.
            for graph in graphs:
                graph.index = f"items_{graph.name}"
            systems: list[System] = [*graphs, Lists(LISTS)]
            for seed in range(len(report.get("graphs", [])), args.builds):
                build: Entry = {"built": {}, "curves": {}}
                for system in systems:
                    system.drop(opened)
                    build["built"][system.name] = system.build(opened, seed).as_json()
                opened.settle()
                for buffers in args.buffers:
                    opened.restart(settings | {"shared_buffers": buffers})
                    build["curves"][buffers] = curves(opened, truth, systems)
                save("graphs", [*report.get("graphs", []), build])
            if args.shapes and "shapes" not in report:
                for system in systems:
                    system.drop(opened)
                save("shapes", shapes(opened, truth))
    show(report)


if __name__ == "__main__":
    main()
