"""Compare graphs over vectors, halfvecs and codes of wide vectors, all in shared_buffers.

    python benchmarks/wide.py [--data pypi768] [--queries 200]

The real vectors have 768 dimensions; with 1,536 and 3,072, products of pairs of their numbers
follow these (`retrieval_data.with_products`). A name with ``-halfvec`` has a column of that type:
up to 1,000 dimensions of it stay in the row. All graphs have ``ef_construction = 128``. Each data
set is saved in ``wide.json`` once it is measured: seconds of the build, bytes, and recall@10 and
CPU milliseconds at rising ``ef_search``, in turns. Take a quiet machine.
"""

import time
from typing import Any

import functions
from common import DATA_FOLDER, RESULTS, circumstances, parser, read, scratch, table, write
from names import Contender, K, in_turns
from retrieval_data import DataSet, Truth, draw
from retrieval_server import QUICK_SETTINGS, SETTINGS, Database, database, running
from retrieval_systems import GRAPH

from pg_hashindex.index.handle import HashIndex

Entry = dict[str, Any]
RECALLS = (0.95, 0.96, 0.98)
_EF = (20, 30, 40, 60, 80, 120)
STORED, CODES, VECTORS, HALVES = "codes, stored", "codes", "vectors", "halfvec"


def systems(drawn: DataSet) -> list[str]:
    """Return what is compared. A stored column writes the table again, with all of its indexes."""
    return [STORED, CODES, *([VECTORS] if drawn.type == "vector" else []), HALVES]


def build(base: Database, system: str) -> Entry:
    """Make the graph of a system; return the seconds, and the bytes with a stored column."""
    start = time.perf_counter()
    with base.session() as session:
        before = session.value("SELECT pg_table_size('items')")
        if system in (STORED, CODES):
            name = "stored" if system == STORED else "codes"
            HashIndex.create(
                session.connection, name, table="items", column="embedding", store=system == STORED
            )
            relation = f"{name}_hnsw"
        else:
            half = system == HALVES and base.drawn.type != HALVES
            kind = "halfvec" if half else base.drawn.type
            column = f"(embedding::halfvec({base.drawn.rows.shape[1]}))" if half else "embedding"
            relation = f"items_{kind}"
            session.connection.execute(
                f"CREATE INDEX {relation} ON items USING hnsw "
                f"({column} {kind}_cosine_ops){GRAPH}".encode()
            )
        seconds = round(time.perf_counter() - start, 1)
        size = session.value("SELECT pg_relation_size(%s::regclass)", [relation])
        size += session.value("SELECT pg_table_size('items')") - before
    return {"seconds": seconds, "bytes": size}


def contender(drawn: DataSet, system: str, effort: int) -> Contender:
    """Return the search of a system, by a name or as a user of pgvector writes it."""
    if system in (STORED, CODES):
        name = "stored" if system == STORED else "codes"
        return Contender(
            system, f"SELECT * FROM hashindex.search_{name}($1, {K}, {effort})", {}, effort=effort
        )
    cast = f"::halfvec({drawn.rows.shape[1]})" if system == HALVES else ""
    statement = f"SELECT id FROM items ORDER BY embedding{cast} <=> $1::vector{cast} LIMIT {K}"
    return Contender(system, statement, {"hnsw.ef_search": effort}, effort=effort)


def measure(drawn: DataSet, settings: dict[str, str]) -> Entry:
    """Build the graphs of a data set in one table, and search by them in turns."""
    with running(settings) as server, database(server, drawn) as base:
        found: Entry = {"rows": len(drawn.rows), "dimensions": drawn.rows.shape[1]}
        found["type"], compared = drawn.type, systems(drawn)
        found["built"] = {system: build(base, system) for system in compared}
        base.settle()
        searches = [contender(drawn, system, effort) for effort in _EF for system in compared]
        found["points"] = in_turns(base, searches, Truth(drawn, K).recall)
    return found


def at_recall(found: Entry, system: str, recall: float) -> float:
    """Interpolate CPU milliseconds at a recall; NaN if it is not reached."""
    points = [point for point in found["points"] if point["name"] == system]
    return functions.at_recall(points, recall, "cpu_ms")


def lines(report: Entry) -> list[list[str]]:
    """Return a line for each system of each data set."""
    return [
        [
            f"{found['type']}({found['dimensions']}), {system}",
            *(f"{at_recall(found, system, recall):.2f}" for recall in RECALLS),
            f"{built['seconds']:.0f}",
            f"{built['bytes'] / 1e6:.0f}",
        ]
        for found in report.values()
        for system, built in found["built"].items()
    ]


HEADINGS = ("", *(f"CPU ms at {recall}" for recall in RECALLS), "build, s", "MB")


def main() -> None:
    options = parser(__doc__ or "", data="pypi768", queries=200, output=RESULTS / "wide.json")
    options.add_argument("--quick", action="store_true", help="few rows, another file")
    args = options.parse_args()
    if args.quick:
        args.output = scratch("wide_quick.json")
    rows = 2_000 if args.quick else None
    drawn = draw(DATA_FOLDER, args.data, 50 if args.quick else args.queries, most=rows)
    report = read(args.output)
    report[args.data] = measure(drawn, QUICK_SETTINGS if args.quick else SETTINGS)
    report[args.data] |= circumstances()
    write(args.output, report)
    print(table(HEADINGS, lines(report)))


if __name__ == "__main__":
    main()
