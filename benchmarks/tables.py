"""Write the tables of README and docs from the committed results: python benchmarks/tables.py."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import common
import functions
import memory_report
import numpy as np
import retrieval_report
import scale_report
import tenants
import wide
from common import RESULTS, ROOT, table

from pg_hashindex.quality import sizes
from pg_hashindex.quality.advice import code_bits

Record = dict[str, Any]
NOT_YET = "Not measured yet."
README_METHODS = (
    *("lsh", "sikh", "pcah", "sh", "itq", "isohash", "sph", "dsh", "bre", "sth", "sth-kernel"),
    *("agh", "dgh", "usplh", "sgh"),
    *("itq-cca", "ssh", "s3plh", "sbre", "ksh", "sdh", "fsdh"),
    *("sadih-l1", "lfh", "lfh-kernel", "cosdish", "cosdish-kernel", "fasth", "cghash"),
)
COSTS = ("training CPU s", "encoding us a row")
RIVALS, PRECISE = "P@50 / 3-NN error", "MAP / PH2"
# README's table: a set, its name in `memory.py` and `tenants.py`, in `functions.py`, in `wide.py`.
README_SETS = {
    "HNSW over vectors": ("hnsw", functions.VECTORS, wide.VECTORS),
    "HNSW over halfvec": ("hnsw-halfvec", functions.HALVES, wide.HALVES),
    "HNSW over signs, `binary_quantize`": ("hnsw-signs", "", ""),
    "HNSW over codes": ("hnsw-code", functions.CODES, wide.CODES),
    "the same, stored in a column": ("", "", wide.STORED),
    "lists": ("ours", functions.LISTS, ""),
}
# Three cuts of 256 projections.
LISTED_BITS = 768
_WIDE = "29,500 x 768: CPU ms"
RETRIEVAL = ("packages", "synthetic-300k", "synthetic-1m", "dims-512", "dims-1536")


def read(name: str) -> Any:
    return common.read(RESULTS / f"{name}.json")


def listed(records: Iterable[Record], columns: Mapping[str, Callable[[Record], str]]) -> str:
    """Write a line for each record; columns have a heading, and what to write."""
    return table([*columns], [[write(one) for write in columns.values()] for one in records])


def pivot(
    head: str, cells: Iterable[tuple[str, str, str]], columns: Sequence[str] | None = None
) -> str:
    """Write cells, each with the names of its line and of its column, in the order of both."""
    lines: dict[str, dict[str, str]] = {}
    for line, column, text in cells:
        lines.setdefault(line, {})[column] = text
    shown = columns or [*dict.fromkeys(column for line in lines.values() for column in line)]
    return table(
        [head, *shown],
        [[line, *(found.get(column, "") for column in shown)] for line, found in lines.items()],
    )


# Methods ------------------------------------------------------------------------------------------


def pair(result: Record, score: str, digits: int) -> str:
    """Write ours / theirs, or ours alone if the reference has none."""
    # A failed run has no scores, and a data set without labels no scores by label.
    found = [(result.get(whose) or {}).get(score) for whose in ("scores", "reference")]
    return " / ".join(f"{value:.{digits}f}" for value in found if value is not None)


def name(result: Record) -> str:
    learned = ", learned codes" if result.get("codes") == "learned" else ""
    spherical = ", spherical distance" if result.get("distance") == "spherical" else ""
    return f"{result['method']}{learned}{spherical}"


def hashing_32() -> str:
    """Write both data sets with labels side by side, one line for each method, without variants."""
    found = {
        (name(result), result["dataset"]): result
        for result in read("hashing")["results"]
        if result["bits"] == 32
    }
    columns = {
        "label MAP": ("MAP_label", 3),
        "MAP of the nearest 2 %": ("MAP_euclid2pct", 3),
        "3-NN error": ("error_3nn", 3),
        "CPU s": ("train_cpu_s", 2),
    }
    return pivot(
        "32 bits",
        (
            (method, f"{data.upper()}: {words}", pair(found.get((method, data), {}), *score))
            for method in README_METHODS
            for data in ("mnist", "usps")
            for words, score in columns.items()
        ),
    )


def paper(*columns: tuple[str, int, str]) -> str:
    """Write a line for each method of a paper; a column has a figure, its bits, and measures."""
    cells = []
    for figure, bits, measures in columns:
        found = common.measured_figures()[figure]
        hashed: Record = {}
        for outcome in found["outcomes"]:
            # Codes from training may be those that the hash function gives, and cost the same.
            again = outcome.get("codes") == "learned" or outcome.get("distance") == "spherical"
            same = again and (measures in COSTS or outcome["scores"] == hashed.get("scores"))
            hashed = outcome
            if same or outcome["n_bits"] != bits:
                continue
            values = [protocol_value(outcome, measure) for measure in measures.split(" / ")]
            words = f"{figure.removeprefix('cghash_rivals_')}, {bits} bits: {measures}"
            cells.append((name(outcome), words, " / ".join(values)))
    return pivot("method", cells)


def protocol_value(outcome: Record, measure: str) -> str:
    """Write a score of a paper's figure, CPU seconds of training, or microseconds of encoding."""
    scores = next(iter(outcome.get("scores", {}).values()), {})
    if not scores:
        return ""
    if measure == "training CPU s":
        return f"{outcome['train_cpu_s']:.2f}"
    if measure == "encoding us a row":
        # The curves end with all rows of the database.
        return f"{1e6 * outcome['encode_cpu_s'] / scores['curve']['at'][-1]:.1f}"
    text = f"{scores[measure]:.3f}"
    deviations = outcome.get("standard_deviation", {}).get("scores")
    if outcome.get("splits", 1) == 1 or not deviations:
        return text
    return f"{text} ± {next(iter(deviations.values()))[measure]:.3f}"


def cuts() -> str:
    """Candidates that hold the true ten, by the number of cuts."""
    return pivot(
        "data, metric",
        (
            (f"{one['data']}, {one['metric']}", f"{n} cut{'s' * (n != '1')}", f"{a:,} / {b:,}")
            for one in read("cuts")["results"]
            for n, (a, b) in one["cuts"].items()
        ),
    )


def faiss_codes() -> str:
    """Recall of codes beside those of Faiss."""
    return pivot(
        "code",
        (
            cell
            for one in read("faiss_codes")["results"]
            if "192" not in one["code"]
            for cell in (
                (one["code"], "bytes", str(one["bytes"])),
                *((one["code"], f"N={n}", f"{recall:.3f}") for n, recall in one["recall"].items()),
            )
        ),
    )


# Searches -----------------------------------------------------------------------------------------


def retrieved() -> list[Record]:
    """Read the measured searches next to pgvector, as far as there are any."""
    return [found for data in RETRIEVAL if (found := read(f"retrieval_{data}"))]


def retrieval_systems() -> str:
    _, *columns = retrieval_report.COLUMNS
    rows = [
        [f"{whole['data']}, {row['system']}", *(row[column] for column in columns)]
        for whole in retrieved()
        for row in retrieval_report.systems(whole)
        if row["system"] != "ours-1-cut"
    ]
    return table(["data, system", *columns], rows) if rows else NOT_YET


def memory() -> str:
    """Write a picture of each data set that was measured, and a line for each system."""
    parts = []
    for whole in memory_report.measured():
        cells = []
        for key, system in memory_report.systems(whole).items():
            only = "" if system["search"]["reached"] else f", {system['search']['recall']:.3f} only"
            line, build, writes = memory_report.NAMES[key] + only, system["build"], system["writes"]
            cells += [
                (line, "build, s", f"{build['seconds']:.0f}"),
                (line, "MB", f"{build['bytes'] / 1e6:.0f}"),
            ]
            for _, found in memory_report.by_share(system):
                times = "failed"
                if "error" not in found:
                    times = f"{found['cold_p50_ms']:.2f}, {found['steady_p50_ms']:.2f}"
                cells.append((line, f"in {found['limit_bytes'] / 1e6:.0f} MB: ms", times))
            cells += [
                (line, "inserts/s", f"{writes['single']:,.0f}"),
                (line, "by 100/s", f"{writes['batches']:,.0f}"),
            ]
        parts += [
            f"### {memory_report.title(whole)}",
            f"![p50 against memory](pictures/memory-{whole['data']}.svg)",
            pivot("system", cells),
        ]
    return "\n\n".join(parts) or NOT_YET


def readme() -> str:
    """Write a line for each set of 300,000 x 384 rows; of 768, if the same code measured them."""
    marks = read("figures")
    codes = [marks.get(part, {}).get("code") for part in ("functions", "wide pypi768")]
    graphs = read("functions_synthetic-300k")["graphs"]
    held = read("memory_synthetic-300k")["systems"]
    within = read("tenants")["runs"]["zipf 300000"]["tenants"].values()
    tenant = min(within, key=lambda one: abs(one["rows"] - 10_000))
    real = read("wide")["pypi768"] if codes[0] == codes[1] else {}
    cells = []
    for line, (system, graph, name) in README_SETS.items():
        if graph:
            ms = functions.mean_at(graphs, "4GB", graph, 0.95, "p50_ms")
            seconds = np.mean([one["built"][graph]["seconds"] for one in graphs])
            cells.append((line, "ms, whole in `shared_buffers`", f"{ms:.2f}"))
            cells.append((line, "build, s", f"{seconds:,.0f}"))
        if name and real:
            cells.append((line, _WIDE, f"{wide.at_recall(real, name, 0.95):.2f}"))
        if system:
            one = held[system]
            for share, words in (("2", "half"), ("4", "a quarter")):
                ms = one["memory"][share]["steady_p50_ms"]
                cells.append((line, f"server held to {words}: ms", retrieval_report.figure(ms)))
            if not graph:
                cells.append((line, "build, s", f"{one['build']['seconds']:,.0f}"))
            cells.append((line, "MB", f"{one['build']['bytes'] / 1e6:,.0f}"))
            cells.append((line, "inserts/s", f"{one['writes']['single']:,.0f}"))
        if system in tenant:
            cells.append((line, "tenant of 10,000: ms", tenants.shown(tenant[system])))
    shown = (
        "ms, whole in `shared_buffers`", *([_WIDE] if real else []), "server held to half: ms",
        "server held to a quarter: ms", "tenant of 10,000: ms", "build, s", "MB", "inserts/s",
    )  # fmt: skip
    return pivot("300,000 x 384, recall@10 .95", cells, shown)


def function_graphs() -> str:
    """Compare graphs over vectors, over codes and over halfvec, by the mean of all builds."""
    builds = read("functions_synthetic-300k")["graphs"]
    names = {
        functions.VECTORS: "HNSW over vectors",
        functions.CODES: "over codes",
        functions.HALVES: "over halfvec",
        functions.LISTS: "index of pg_hashindex",
    }
    cells = []
    for buffers in ("128MB", "4GB"):
        for target in functions.TARGETS:
            line = f"shared_buffers {buffers[:-2]} {buffers[-2:]}, recall {target}: ms"
            cells += [
                (line, column, f"{functions.mean_at(builds, buffers, name, target, 'p50_ms'):.2f}")
                for name, column in names.items()
            ]
    for what, words, unit in (("seconds", "build, s", 1.0), ("bytes", "MB", 1e6)):
        cells += [
            (words, column, f"{np.mean([one['built'][name][what] for one in builds]) / unit:.0f}")
            for name, column in names.items()
        ]
    return pivot("300,000 x 384", cells)


def function_prices() -> str:
    """Write the CPU microseconds of a code of each model."""
    prices = read("functions_synthetic-300k")["price"]
    return pivot(
        "CPU us of a call",
        (
            (model, f"{dimension} dimensions" + ", TOASTed" * (dimension == "1536"), f"{us:.1f}")
            for dimension, of_models in prices.items()
            for model, us in of_models.items()
        ),
    )


def set_sizes() -> str:
    """Megabytes of each set of a million rows, by the formulas that doctor decides with."""
    rows, lines = 1_000_000, []
    for dimension in (384, 768, 1536, 3072):
        bits = code_bits(dimension)
        cells: dict[str, float | None] = {
            "vectors in the table": rows * (4 * dimension + 8),
            "HNSW over vectors": (
                sizes.hnsw_bytes(rows, "vector", dimension)
                if dimension <= sizes.HNSW_DIMENSIONS["vector"] else None
            ),
            "over halfvec": sizes.hnsw_bytes(rows, "halfvec", dimension),
            "over codes": sizes.hnsw_bytes(rows, "bit", bits),
            "codes in IVFFlat": sizes.ivfflat_bytes(rows, "bit", bits),
            "lists": sizes.lists_bytes(rows, LISTED_BITS),
        }  # fmt: skip
        written = ["none" if size is None else f"{size / 1e6:,.0f}" for size in cells.values()]
        lines.append([f"{dimension:,}", f"{bits:,}", *written])
    return table(["dimensions", "bits of a code", *cells], lines)


def column_of(entry: Record) -> str:
    return f"{entry['type']}({entry['dimension']})"


def dimensions_storage() -> str:
    """Return the cost of vectors out of line and in their rows, at each number of dimensions."""
    columns: dict[str, Callable[[Record], str]] = {
        "insert, us a row": lambda e: f"{e['insert_cpu_us_a_row']:.0f}",
        "exact query, ms": lambda e: f"{e['exact_cpu_ms']:.1f}",
        "100 rows by key, ms": lambda e: f"{e['compare_100_cpu_ms']:.2f}",
    }
    return pivot(
        "column",
        (
            (f"`{column_of(e)}`", f"{e['storage']}: {words}", write(e))
            for e in read("dimensions")["storage"]
            if e["storage"] in ("EXTERNAL", "MAIN")
            for words, write in columns.items()
        ),
    )


def dimensions_codes() -> str:
    """The candidates that each code needs for a recall."""
    return pivot(
        "dimensions",
        (
            (
                f"{e['dimension']:,}",
                f"{e['projections']} x {e['cuts']} bits",
                f"{e['candidates']['0.95']} / {e['candidates']['0.99']}",
            )
            for e in read("dimensions")["codes"]
        ),
    )


def dimensions_note() -> str:
    """How the run of dimensions was made."""
    found = read("dimensions")
    rows = found["storage"][0]["rows"]
    said = f"; {found['note']}" if found["note"] else ""
    return f"Of {rows:,} rows and {found['machine']['cpus']} cores{said}."


def scale() -> str:
    """All that was measured of a million rows and more."""
    whole = read("scale")
    head = [f"{rows / 1e6:g} million" for rows in scale_report.parts_by_rows(whole)]
    return table(["rows", *head], scale_report.table(whole)) if head else NOT_YET


def scale_sizes() -> str:
    """Measured figures, and expected ones for more rows."""
    head = [f"{rows / 1e6:g} million" for rows in scale_report.SIZES]
    return table(["rows", *head], scale_report.extrapolated(read("scale")))


def tenant_searches() -> str:
    """Milliseconds of a search within a tenant, by the tenant's rows."""
    entry = read("tenants").get("runs", {}).get("zipf 300000", {})
    if not entry:
        return NOT_YET
    head, *rows = tenants.table_rows(entry)
    return table(head, rows)


def label_precision() -> str:
    """Write label precision and milliseconds, by the rows that had labels and the method."""
    lines = []
    measured = common.read(RESULTS / "labels.json")["data"]
    for labels, title in (("few", "50 labels each"), ("most", "all others labelled")):
        for method in ("sadih", "cghash", "bgdh"):
            cells = []
            for data in ("packages", "mnist"):
                (found,) = (
                    m for m in measured[data]["models"]
                    if (m["method"], m["labels"]) == (method, labels)
                )  # fmt: skip
                cells += [_precise(found[way]) for way in ("candidates", "bit_count", "hnsw")]
            lines.append([f"{method}, {title}", *cells])
    cosine = [_precise(measured[data]["cosine"]) for data in ("packages", "mnist")]
    lines.insert(0, ["cosine distance, all rows", cosine[0], "", "", cosine[1], "", ""])
    ways = ("`candidates` of a name", "`bit_count` of all", "HNSW of the column")
    headings = [f"{data}: {way}" for data in ("packages", "digits") for way in ways]
    return common.table(["", *headings], lines)


def decisions() -> str:
    """Return doctor's decisions for six tables, and their time over the best that fits."""
    lines = []
    for name, found in read("decisions").items():
        cells = []
        for label in ("much", "little"):
            decided = found[label]
            taken = decided["decisions"][0]["set"]
            better = "" if taken == decided["best"] else f"; {decided['best']} 1"
            cells.append(f"{taken} {decided['ratio']:.2f}{better}")
        lines.append([f"{name}, {found['rows']:,} x {found['dimension']}", *cells])
    return common.table(["table", "everything fits", "halfvecs do not fit"], lines)


def _precise(found: dict[str, float]) -> str:
    return f"{found['label_precision']:.3f}; {found['p50_ms']:.1f} ms"


TABLES = {
    "decisions": decisions,
    "labels": label_precision,
    "cuts": cuts,
    "faiss-codes": faiss_codes,
    "sgh": lambda: paper(
        *(("sgh_mnist", bits, "P@1000") for bits in (32, 128, 256)),
        *((f"sgh_{data}", 128, "P@100") for data in ("usps", "sift10k")),
        ("sgh_mnist", 128, COSTS[0]),
    ),
    "cghash": lambda: paper(
        *((f"cghash_rivals_{data}", 32, RIVALS) for data in ("usps", "mnist", "packages")),
        ("cghash_rivals_usps", 32, COSTS[0]),
    ),
    "bgdh": lambda: paper(
        *((f"bgdh_{what}", 32, "MAP@5000") for what in ("500", "250", "50", "packages")),
        *((f"bgdh_mnist_{labels}", 32, "MAP@5000") for labels in (500, 250, 50)),
        ("bgdh_packages_20", 32, "MAP@5000"),
        ("bgdh_50", 32, COSTS[0]),
    ),
    "sadih": lambda: paper(
        *((f"sadih_{data}", bits, "MAP") for data in ("usps", "packages") for bits in (8, 32)),
        ("sadih_usps", 32, COSTS[0]),
    ),
    "s3plh": lambda: paper(
        *((f"s3plh_{data}", bits, PRECISE) for data in ("mnist", "usps") for bits in (32, 64)),
        *(("usplh_sift10k", bits, PRECISE) for bits in (32, 64)),
        ("s3plh_mnist", 32, COSTS[0]),
    ),
    "function-graphs": function_graphs,
    "function-prices": function_prices,
    "dimensions-storage": dimensions_storage,
    "dimensions-codes": dimensions_codes,
    "dimensions-note": dimensions_note,
    "hashing-32": hashing_32,
    "retrieval-systems": retrieval_systems,
    "memory": memory,
    "readme": readme,
    "set-sizes": set_sizes,
    "scale": scale,
    "scale-sizes": scale_sizes,
    "tenants": tenant_searches,
}


def with_tables(text: str) -> str:
    """Return a page with the tables of the committed results."""
    return common.with_tables(text, TABLES)


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
