"""Write the tables of README and docs from the committed results: python benchmarks/tables.py."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import common
import functions
import memory_report
import numpy as np
import papers
import retrieval_report
import scale_report
import tenants
from common import RESULTS, ROOT, table
from papers_methods import DEEP

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
# The lines of README's table, by the figures of `retrieval_report.py`.
_IN_A_TENANT = "p50 in a tenant, ms"
SHOWN = {
    "cold p50 at 1/4, ms": "server held to a quarter of table and index: ms, cold start",
    "steady p50 at 1/4, ms": "the same, later",
    "p50 at .95 in memory, ms": "everything in memory: ms",
    "build, s": "build, s",
    "bytes": "MB beside the table",
    "single inserts a second": "inserts per second, single",
    _IN_A_TENANT: "within a tenant of 10,000 rows, recall .98: ms",
}
# The columns of README's table, by the systems of `memory.py`.
BESIDE = {
    "hnsw": "HNSW",
    "hnsw-signs": "`binary_quantize`",
    "hnsw-code": "learned code in HNSW",
    "ours": "index of pg_hashindex",
}
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


def deep() -> str:
    """Write label MAP with all labels and with 1,000, one line for each deep method."""
    found = {
        (r["dataset"], r["method"], r["bits"]): r
        for r in read("hashing")["results"]
        if r["codes"] != "learned"
    }
    shown = {
        f"{words}, {count} labels: {bits} bits": (data, suffix, bits)
        for data, words in (("mnist", "MNIST"), ("usps", "USPS"), ("packages", "packages"))
        for count, suffix in (("10,000", ""), ("1,000", "-1000"))
        for bits in (32, 64)
        if (data, f"{DEEP[0]}{suffix}", bits) in found
    }
    cells = []
    for method in ("itq", "sdh", "bgdh", *DEEP):
        for words, (data, suffix, bits) in shown.items():
            one = found.get((data, method + suffix, bits), {})
            cells.append((method, words, pair({**one, "reference": None}, "MAP_label", 3)))
        costs = [found[key] for key in found if key[1].removesuffix("-1000") == method]
        cells.append((method, "training CPU s", seconds(costs, "train_cpu_s")))
    return pivot("label MAP", cells)


def seconds(results: Iterable[Record], score: str) -> str:
    """Write the mean over bits."""
    found = [result["scores"][score] for result in results if "scores" in result]
    return f"{sum(found) / len(found):.1f}" if found else ""


def paper(*columns: tuple[str, int, str], methods: Container[str] | None = None) -> str:
    """Write a line for each method of a paper; a column has a figure, its bits, and measures.

    With ``methods``, only these have a line.
    """
    cells = []
    for figure, bits, measures in columns:
        found = common.measured_figures()[figure]
        hashed: Record = {}
        for outcome in found["outcomes"]:
            # Codes from training may be those that the hash function gives, and cost the same.
            again = outcome.get("codes") == "learned" or outcome.get("distance") == "spherical"
            same = again and (measures in COSTS or outcome["scores"] == hashed.get("scores"))
            hashed = outcome
            left_out = methods is not None and outcome["method"] not in methods
            if same or left_out or outcome["n_bits"] != bits:
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


def presets(part: str) -> list[Record]:
    return [line for line in read("presets")["results"] if line["part"] == part]


def reference_rows() -> str:
    """Write the largest difference between the programs' settings and the reference, by measure."""
    heads = ["label MAP", "label P@100", "label PH2"]
    heads += [f"{score} of the nearest 2 %" for score in ("MAP", "P@100")]
    found: dict[str, list[Record]] = {}
    for one in presets("reference"):
        if one["codes"] == "hashed":
            found.setdefault(one["method"], []).append(one["difference"])
    return table(
        ["program", *heads],
        [
            [
                method,
                *(
                    f"{max((o[part] for o in found[method]), key=abs):+.4f}"
                    for part in papers.COMPARED
                ),
            ]
            for method in sorted(found)
        ],
    )


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


def no_labels() -> str:
    """Codes of each method among the packages: what they find, and what they cost."""
    whole = read("packages")
    found = {row["system"].removesuffix(", re-rank 200"): row for row in whole["systems"]}
    systems = (
        *("itq 128 bits", "itq 256 bits", "sgh 256 bits", "lsh 256 bits"),
        *("sign 384 bits", "binary_quantize hnsw"),
    )
    return listed(
        (found[system] | {"name": system} for system in systems),
        {
            "59,000 texts, 200 candidates": lambda row: row["name"],
            "recall@10": lambda row: f"{row['recall']:.3f}",
            "p50 ms": lambda row: f"{row['p50_ms']:.1f}",
            "build s": lambda row: f"{row['build_s']:.1f}",
            "bytes a row": lambda row: f"{row['bytes'] / whole['rows']:.0f}",
        },
    )


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


def against_hnsw(data: str, systems: tuple[str, ...]) -> str:
    """Compare landmarks with what pgvector offers, by the figures that are compared."""
    found = against_systems(data)

    def written(what: str, system: str) -> str:
        if what not in found[system]:
            return "unmeasured"
        if what == _IN_A_TENANT:
            return tenants.shown(found[system][what])
        return retrieval_report.figure(found[system][what] / (1e6 if what == "bytes" else 1))

    return pivot(
        "384 dimensions, recall@10 of .95",
        (
            (shown, BESIDE[system], written(what, system))
            for what, shown in SHOWN.items()
            if any(what in found[system] for system in systems)
            for system in systems
        ),
    )


def against_systems(data: str) -> dict[str, dict[str, Any]]:
    """Return the figures of each system: those of `memory.py`, whose run has all systems, first."""
    found: dict[str, dict[str, Any]] = {"hnsw": {}, "ours": {}}
    searched = read("tenants").get("runs", {}).get("zipf 300000", {}).get("tenants", {})
    if data == "synthetic-300k" and searched:
        tenant = min(searched.values(), key=lambda one: abs(one["rows"] - 10_000))
        found = {system: {_IN_A_TENANT: tenant[system]} for system in BESIDE if system in tenant}
    for what, theirs, ours, _ in retrieval_report.compare(read(f"retrieval_{data}")["parts"]):
        found["hnsw"][what], found["ours"][what] = theirs, ours
    for system, measured in read(f"memory_{data}").get("systems", {}).items():
        found.setdefault(system, {}).update(
            {
                "cold p50 at 1/4, ms": measured["memory"]["4"]["cold_p50_ms"],
                "steady p50 at 1/4, ms": measured["memory"]["4"]["steady_p50_ms"],
                "p50 at .95 in memory, ms": measured["memory"]["1"]["steady_p50_ms"],
                "build, s": measured["build"]["seconds"],
                "bytes": measured["build"]["bytes"],
                "single inserts a second": measured["writes"]["single"],
            }
        )
    return found


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


def sizes() -> str:
    """Bytes a row of each number of bits and access path."""
    found = read("sizing")
    columns = {"codes, `scan`": "scan", "`lists` add": "landmarks"}
    return pivot(
        "bits",
        (
            (str(size["bits"]), words, f"{size[path] / found['rows']:.0f}")
            for size in found["sizes"]
            for words, path in columns.items()
        ),
    )


def jobs() -> str:
    """Builds by one process and by several, beside pgvector's HNSW."""
    found = read("jobs")
    if not found:
        return NOT_YET
    first, hnsw = found["first_build"], found["hnsw"]
    builds = {
        "first build, 1 process": first,
        **{
            f"built again, {n} process{'es' * (n != '1')}": one
            for n, one in found["rebalance"].items()
        },
        "HNSW, two workers": hnsw,
    }
    return listed(
        ({"name": name, **one} for name, one in builds.items()),
        {
            f"{found['rows']:,} rows, {found['machine']['cpus']} cores": lambda one: one["name"],
            "s": lambda one: f"{one['seconds']:.1f}",
            "CPU s": lambda one: f"{one['cpu_seconds']:.1f}",
            "HNSW's seconds over these": lambda one: f"{hnsw['seconds'] / one['seconds']:.1f}",
        },
    )


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


def ann_benchmarks() -> str:
    """Queries a second of the fastest setting of each system that reaches a recall."""
    found = read("ann_benchmarks").get("results", [])
    lines = []
    for system in dict.fromkeys(one["system"] for one in found):
        own = [one for one in found if one["system"] == system]
        fastest = [
            max((one["queries_per_second"] for one in own if one["recall"] >= least), default=None)
            for least in (0.9, 0.95, 0.99)
        ]
        speeds = ["" if speed is None else f"{speed:,.0f}" for speed in fastest]
        lines.append([system, *speeds, f"{own[0]['build_s']:.0f}", f"{own[0]['index_mb']:.1f}"])
    head = ["system", "queries/s at .90", "at .95", "at .99", "build, s", "index, MB"]
    return table(head, lines) if lines else NOT_YET


def vectordbbench() -> str:
    """Output of the harness for each system, with one setting."""
    found = read("vectordbbench").get("results", [])
    lines = [
        [
            one["system"], f"{one['recall']:.3f}", f"{one['queries_per_second']:,.0f}",
            f"{one['p99_ms']:.1f}", f"{one['load_s']:.0f}",
        ]
        for one in found
    ]  # fmt: skip
    head = ["system", "recall@10", "queries/s, best of 1, 2 and 4 clients", "p99, ms", "load, s"]
    return table(head, lines) if lines else NOT_YET


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


def _precise(found: dict[str, float]) -> str:
    return f"{found['label_precision']:.3f}; {found['p50_ms']:.1f} ms"


TABLES = {
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
        *((f"bgdh_{what}", 32, "MAP@5000") for what in ("mnist_50",)),
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
    "ann-benchmarks": ann_benchmarks,
    "vectordbbench": vectordbbench,
    "reference": reference_rows,
    "function-graphs": function_graphs,
    "function-prices": function_prices,
    "dimensions-storage": dimensions_storage,
    "dimensions-codes": dimensions_codes,
    "dimensions-note": dimensions_note,
    "hashing-32": hashing_32,
    "deep": deep,
    "retrieval-systems": retrieval_systems,
    "memory": memory,
    "no-labels": no_labels,
    "against-hnsw": lambda: against_hnsw("synthetic-300k", tuple(BESIDE)),
    "few-labels": lambda: paper(
        *((f"bgdh_{what}", 32, "MAP@5000") for what in ("50", "250", "mnist_50", "packages_20")),
        ("bgdh_packages_20", 32, COSTS[0]),
        methods=("bgdh", "dpsh", "sdh", "s3plh", "itq"),
    ),
    "jobs": jobs,
    "sizes": sizes,
    "scale": scale,
    "scale-sizes": scale_sizes,
    "tenants": tenant_searches,
}


def with_tables(text: str) -> str:
    """Return a page with the tables of the committed results."""
    return common.with_tables(text, TABLES)


PAGES = (
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "papers").glob("*.md")),
)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
