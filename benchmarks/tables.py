"""Write the tables of README and docs from the committed results: python benchmarks/tables.py."""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

import memory_report
import numpy as np
import protocols
import retrieval_report

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
README_METHODS = (
    *("lsh", "sikh", "pcah", "sh", "itq", "isohash", "sph", "dsh", "bre", "sth", "sth-kernel"),
    *("agh", "agh-1", "usplh", "sgh"),
    *("itq-cca", "ssh", "s3plh", "s3plh-paper", "sbre", "ksh", "sdh", "sdh-paper", "fsdh"),
    *("sadih-l1", "lfh", "lfh-kernel", "cosdish", "cosdish-kernel", "cghash"),
    *("sadih-l1-all", "sadih-l1-all, learned codes"),
)
GIVEN_GRAPHS = ("-words", "-both")
# The lines of README's table, by the bars of `retrieval_bars.py`.
SHOWN = {
    "cold p50 at 1/4, ms": "server held to a quarter of table and index: ms, cold start",
    "steady p50 at 1/4, ms": "the same, later",
    "p50 at .95 in memory, ms": "everything in memory: ms",
    "p50, filter of 10 %, ms": "a filter that keeps 10 %, recall .98: ms",
    "p50, filter of 10 %, columns, ms": "the same, its column beside the codes",
    "build, s": "build, s",
    "bytes": "MB beside the table",
    "single inserts a second": "inserts per second, single",
}
# The columns of README's table, by the systems of `memory.py`.
BESIDE = {
    "hnsw": "HNSW",
    "hnsw-signs": "`binary_quantize`",
    "hnsw-centred-signs": "centred `binary_quantize`",
    "ours": "pg_hashindex",
}
CITUS_WRITES = {"copy": "COPY", "insert": "INSERT"}
# Rows and workers of 16 cores to extrapolate to; a build is trained on 12 rows for each landmark,
# and has one landmark for 28 rows.
CITUS_SIZES, CITUS_CORES, CITUS_TRAINED = ((10**8, 4), (3 * 10**8, 8), (10**9, 16)), 16, 12 / 28
PRESETS = {"paper": "as in the paper", "default": "default"}
RETRIEVAL = ("packages", "synthetic-300k", "synthetic-1m", "dims-512", "dims-1536")


def table(headings: list[str], rows: list[list[str]]) -> str:
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def packages() -> str:
    return table(
        ["system", "build s", "encoded rows/s", "MB", "recall@10", "p50 ms", "p95 ms"],
        [
            [
                row["system"],
                f"{row['build_s']:.1f}",
                f"{row.get('encoded_rows_a_second', '')}",
                f"{row['bytes'] / 1e6:.1f}",
                f"{row['recall']:.3f}",
                f"{row['p50_ms']:.1f}",
                f"{row['p95_ms']:.1f}",
            ]
            for row in read("packages")["systems"]
        ],
    )


def pair(result: dict[str, Any], score: str, digits: int) -> str:
    """Write ours / theirs, or ours alone if the reference has none."""
    # A failed run has no scores, and a data set without labels no scores by label.
    found = [(result.get(whose) or {}).get(score) for whose in ("scores", "reference")]
    return " / ".join(f"{value:.{digits}f}" for value in found if value is not None)


def name(result: dict[str, Any]) -> str:
    learned = ", learned codes" if result.get("codes") == "learned" else ""
    return f"{result['method']}{learned}"


def hashing_32() -> str:
    """Write both data sets with labels side by side, one line for each method, without variants."""
    lines: dict[str, dict[str, dict[str, Any]]] = {method: {} for method in README_METHODS}
    for result in read("hashing")["results"]:
        if result["bits"] == 32 and result["dataset"] != "sift10k" and name(result) in lines:
            lines[name(result)][result["dataset"]] = result
    columns = (("MAP_label", 3), ("MAP_euclid2pct", 3), ("error_3nn", 3), ("train_cpu_s", 2))
    words = ("label MAP", "MAP of the nearest 2 %", "3-NN error", "CPU s")
    return table(
        ["32 bits", *(f"{data}: {word}" for data in ("MNIST", "USPS") for word in words)],
        [
            [
                method,
                *(
                    pair(by_data.get(data, {}), score, digits)
                    for data in ("mnist", "usps")
                    for score, digits in columns
                ),
            ]
            for method, by_data in lines.items()
        ],
    )


def hashing() -> str:
    columns = {
        "label MAP": ("MAP_label", 3),
        "label P@50": ("P50_label", 3),
        "label P@100": ("P100_label", 3),
        "label PH2": ("PH2_label", 3),
        "3-NN error": ("error_3nn", 3),
        "MAP of the nearest 2 %": ("MAP_euclid2pct", 3),
        "training CPU s": ("train_cpu_s", 2),
        "peak MB": ("train_peak_mb", 0),
    }
    return table(
        ["data, bits, method", *columns],
        [
            [
                f"{result['dataset']} {result['bits']} {name(result)}",
                *(pair(result, score, digits) for score, digits in columns.values()),
            ]
            for result in read("hashing")["results"]
        ],
    )


def task(result: dict[str, Any]) -> str:
    data = {"mnist": "MNIST"}.get(result["dataset"], result["dataset"])
    return f"{data}, {result['labels']} a {'class' if data == 'MNIST' else 'section'}"


def own_graph(result: dict[str, Any]) -> bool:
    return not result["method"].endswith(GIVEN_GRAPHS)


def with_spread(result: dict[str, Any], score: str) -> str:
    """Write the mean of the seeds and their standard deviation."""
    if "error" in result:
        return "failed"
    if not result:
        return ""
    return f"{result['scores'][score]:.3f} ± {result['standard_deviation'][score]:.3f}"


def seconds(results: list[dict[str, Any]], score: str) -> str:
    """Write the mean over bits."""
    found = [result["scores"][score] for result in results if "scores" in result]
    return f"{sum(found) / len(found):.1f}" if found else ""


def semi_supervised() -> str:
    results = [result for result in read("semi_supervised")["results"] if own_graph(result)]
    bits = sorted({result["bits"] for result in results})
    lines: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for result in results:
        lines.setdefault((task(result), result["method"]), {})[result["bits"]] = result
    return table(
        ["data, labels, method", *(f"{b} bits" for b in bits), "training wall s", "CPU s"],
        [
            [
                f"{words}, {method}",
                *(with_spread(by_bits.get(b, {}), "MAP@5000") for b in bits),
                *(seconds([*by_bits.values()], cost) for cost in ("train_wall_s", "train_cpu_s")),
            ]
            for (words, method), by_bits in lines.items()
        ],
    )


def semi_supervised_32() -> str:
    """Write one line for each method, one column for each data set and number of labels."""
    results = [r for r in read("semi_supervised")["results"] if own_graph(r) and r["bits"] == 32]
    tasks = list(dict.fromkeys(map(task, results)))
    lines: dict[str, dict[str, dict[str, Any]]] = {}
    for result in results:
        lines.setdefault(result["method"], {})[task(result)] = result
    return table(
        ["32 bits", *tasks, "training CPU s"],
        [
            [
                method,
                *(pair(by_task.get(words, {}), "MAP@5000", 3) for words in tasks),
                seconds([*by_task.values()], "train_cpu_s"),
            ]
            for method, by_task in lines.items()
        ],
    )


def given_graphs() -> str:
    """Write one line for each graph, and one for the method's own."""
    found = {
        result["method"]: result
        for result in read("semi_supervised")["results"]
        if result["dataset"] == "packages" and result["bits"] == 32
    }
    lines = {"landmarks": "", "words of names": "-words", "both": "-both"}
    methods = ("bgdh-i", "bgdh-t")
    return table(
        ["packages, 32 bits: graph", *methods, *(f"{method}, CPU s" for method in methods)],
        [
            [
                words,
                *(with_spread(found.get(method + suffix, {}), "MAP@5000") for method in methods),
                *(seconds([found.get(method + suffix, {})], "train_cpu_s") for method in methods),
            ]
            for words, suffix in lines.items()
        ],
    )


def devices() -> str:
    found = read("semi_supervised")["devices"]
    if "speed_up" not in found:
        return f"Devices were not compared: {found.get('skipped', 'not run yet')}."
    rows = {f"{found['threads']} threads": "cpu", found["gpu"]: "cuda"}
    return table(
        [f"{found['method']}, {task(found)}, {found['bits']} bits", "training wall s", "MAP@5000"],
        [
            [words, f"{found[name]['train_wall_s']:.1f}", f"{found[name]['MAP@5000']:.3f}"]
            for words, name in rows.items()
        ],
    )


def protocol_lines(figure: str, measure: str) -> list[list[str]]:
    """Write a measure against bits, a line for each method of a paper's figure."""
    found = protocols.measured()[figure]
    lines: dict[str, dict[int, str]] = {}
    for outcome in found["outcomes"]:
        scores = next(iter(outcome.get("scores", {}).values()), {})
        value = f"{scores[measure]:.3f}" if scores else ""
        lines.setdefault(outcome["method"], {})[outcome["n_bits"]] = value
    bits = sorted({outcome["n_bits"] for outcome in found["outcomes"]})
    head = [f"{found['data']}, {measure}", *(f"{n} bits" for n in bits)]
    return [head, *([method, *by_bits.values()] for method, by_bits in lines.items())]


def protocol_table(figure: str, measure: str) -> str:
    head, *rows = protocol_lines(figure, measure)
    return table(head, rows)


def chosen() -> str:
    """Write what was chosen on training rows held back."""
    rows = [
        [
            found["data"],
            f"{outcome['n_bits']}",
            outcome["method"],
            ", ".join(f"{key} = {value}" for key, value in outcome["chosen"].items()),
            "; ".join(f"{line['MAP']:.3f}" for line in outcome["tried"]),
        ]
        for found in protocols.measured().values()
        for outcome in found["outcomes"]
        if outcome.get("chosen")
    ]
    return table(["data", "bits", "method", "chosen", "MAP of all values, in their order"], rows)


def retrieved() -> list[dict[str, Any]]:
    """Read the measured searches next to pgvector, as far as there are any."""
    names = (f"retrieval_{data}" for data in RETRIEVAL)
    return [read(name) for name in names if (RESULTS / f"{name}.json").exists()]


def retrieval() -> str:
    found = retrieved()
    if not found:
        return "Not measured yet."
    return table(
        ["data, figure", "HNSW", "ours", "ratio", "bar", "beyond", "result"],
        [
            [f"{whole['data']}, {what}", *others]
            for whole in found
            for what, *others in retrieval_report.bars(whole)
        ],
    )


def retrieval_systems() -> str:
    found = retrieved()
    if not found:
        return "Not measured yet."
    _, *columns = retrieval_report.COLUMNS
    return table(
        ["data, system", *columns],
        [
            [f"{whole['data']}, {row['system']}", *(row[column] for column in columns)]
            for whole in found
            for row in retrieval_report.systems(whole)
        ],
    )


def memory() -> str:
    """Write a picture, a table and the bars of each data set that was measured."""
    return (
        "\n\n".join(
            "\n\n".join(
                [
                    f"### {memory_report.title(whole)}",
                    f"![p50 against memory](pictures/memory-{whole['data']}.svg)",
                    table(
                        list(memory_report.COLUMNS),
                        [list(row) for row in memory_report.rows(whole)],
                    ),
                    *memory_report.winners(whole),
                    table(["against", *memory_report.BAR_COLUMNS], memory_report.bars(whole)),
                ]
            )
            for whole in memory_report.measured()
        )
        or "Not measured yet."
    )


def near_duplicates() -> str:
    return table(
        ["data", "rows", "pairs", "found", "bits", "seconds", "exact join, s"],
        [
            [
                data,
                f"{row['rows']:,}",
                f"{row['pairs']:,}",
                f"{row['found']:.3f}" if row["sampled_pairs"] else "",
                str(row["radius"]),
                f"{row['seconds']:.0f}",
                f"{row['exact_s']:,.0f}",
            ]
            for data, row in read("near_duplicates")["results"].items()
        ],
    )


def size() -> str:
    return table(
        ["`pg-hashindex ...`", "seconds", "peak MB"],
        [
            [f"`{e['command']}`", f"{e['seconds']:.0f}", str(e["peak_mb"])]
            for e in read("size")["commands"]
        ],
    )


def no_labels() -> str:
    """Codes of each method among the packages: what they find, and what they cost."""
    found = {row["system"]: row for row in read("packages")["systems"]}
    rows = read("packages")["rows"]
    systems = (
        *("itq 128 bits", "itq 256 bits", "sgh 128 bits", "sgh 256 bits", "lsh 256 bits"),
        *("pcah 256 bits", "sign 384 bits", "binary_quantize hnsw"),
    )
    return table(
        ["59,000 texts, 200 candidates", "recall@10", "p50 ms", "build s", "bytes a row"],
        [
            [
                system,
                f"{row['recall']:.3f}",
                f"{row['p50_ms']:.1f}",
                f"{row['build_s']:.1f}",
                f"{row['bytes'] / rows:.0f}",
            ]
            for system in systems
            for row in [found[f"{system}, re-rank 200"]]
        ],
    )


def searches(data: str) -> dict[str, list[str]]:
    """Return what was measured of the searches of a data set, by system: ms, MB, build s, inserts.

    Nothing where it was not measured yet.
    """
    if not (RESULTS / f"retrieval_{data}.json").exists():
        return {}
    found = read(f"retrieval_{data}")
    parts = found["parts"]
    return {
        system: [
            f"{median(r[system]['p50_ms'] for r in parts['search']['rounds']):.2f}",
            f"{median(b['bytes'] for b in built) / 1e6:.0f}",
            f"{median(b['seconds'] for b in built):.0f}",
            f"{parts['inserts']['systems'].get(system, {}).get('single', 0):.0f}",
        ]
        for system, built in parts["build"]["systems"].items()
    }


def recalls() -> str:
    """Compare codes of 256 projections, with landmarks, with pgvector's HNSW."""
    found = searches("packages")
    systems = {
        "itq 256 bits, 4 levels": "ours",
        "itq 256 bits": "ours-2-levels",
        "pgvector's HNSW": "hnsw",
    }
    if not found:
        return "Not measured yet."
    return table(
        ["59,000 texts", "ms at a recall of 0.95", "MB", "build s"],
        [[words, *found[system][:3]] for words, system in systems.items() if system in found],
    )


def against_hnsw(data: str, systems: tuple[str, ...]) -> str:
    """Compare landmarks with what pgvector offers, by the figures that have a bar."""
    found = against_systems(data)
    return table(
        ["384 dimensions, recall@10 of .95", *(BESIDE[system] for system in systems)],
        [
            [
                shown,
                *(
                    retrieval_report.figure(found[system][what] / (1e6 if what == "bytes" else 1))
                    if what in found[system]
                    else "unmeasured"
                    for system in systems
                ),
            ]
            for what, shown in SHOWN.items()
            if any(what in found[system] for system in systems)
        ],
    )


def against_systems(data: str) -> dict[str, dict[str, float]]:
    """Return the figures of each system: those of `memory.py`, whose run has all systems, first."""
    found: dict[str, dict[str, float]] = {}
    for bar in read(f"retrieval_{data}")["bars"]:
        for system in ("hnsw", "ours"):
            found.setdefault(system, {})[bar["what"]] = bar[system]
    for whole in memory_report.measured():
        if whole["data"] != data:
            continue
        for system, measured in whole["systems"].items():
            found.setdefault(system, {}).update(
                {
                    "cold p50 at 1/4, ms": measured["memory"]["4"]["cold_p50_ms"],
                    "steady p50 at 1/4, ms": measured["memory"]["4"]["steady_p50_ms"],
                    "p50 at .95 in memory, ms": measured["memory"]["1"]["steady_p50_ms"],
                    "build, s": measured["build"]["seconds"],
                    "bytes": measured["build"]["bytes"],
                    "single inserts a second": measured["writes"]["single"],
                    "rows by 100 a second": measured["writes"]["batches"],
                }
            )
    return found


def labels() -> str:
    """Compare what methods win by labels with what they give up, beside some without."""
    found = {
        (r["dataset"], r["method"]): r["scores"]
        for r in read("hashing")["results"]
        if r["bits"] == 32 and r["codes"] != "learned"
    }
    columns = (("MAP_label", 3), ("error_3nn", 3), ("MAP_euclid2pct", 3), ("train_cpu_s", 2))
    methods = ("sadih-l1", "sdh", "ksh", "itq-cca", "s3plh", "cghash", "itq", "sgh")
    return table(
        [
            "MNIST, 32 bits",
            *("MAP by label", "3-NN error", "MAP of the nearest 2 %", "training CPU s"),
        ],
        [
            [method, *(f"{found['mnist', method][score]:.{digits}f}" for score, digits in columns)]
            for method in methods
        ],
    )


def few_labels() -> str:
    """MAP by label within the first 5,000 rows, where few rows are labelled."""
    found = {
        (r["dataset"], r["labels"], r["method"]): r["scores"]
        for r in read("semi_supervised")["results"]
        if r["bits"] == 32
    }
    methods = {
        "bgdh, inductive": "bgdh-i",
        "bgdh, inductive, words of names as the graph": "bgdh-i-words",
        "bgdh, transductive": "bgdh-t",
        "bgdh, transductive, words of names as the graph": "bgdh-t-words",
        "dpsh": "dpsh",
        "sdh": "sdh",
        "s3plh": "s3plh",
        "itq, no labels": "itq",
    }
    tasks = (("mnist", 50), ("mnist", 250), ("packages", 20))

    def cell(task: tuple[str, int], method: str, score: str, digits: int) -> str:
        scores = found.get((*task, method))
        return f"{scores[score]:.{digits}f}" if scores else ""

    return table(
        [
            *("MAP@5000 by label, 32 bits", "MNIST, 50 a class", "MNIST, 250 a class"),
            *("packages, 20 a section", "training CPU s, packages"),
        ],
        [
            [
                words,
                *(cell(task, method, "MAP@5000", 3) for task in tasks),
                cell(tasks[-1], method, "train_cpu_s", 1),
            ]
            for words, method in methods.items()
        ],
    )


def sizes() -> str:
    """Bytes a row of each number of bits and access path."""
    found = read("sizing")
    paths = ("landmarks",)

    def a_row(size: int) -> str:
        return f"{size / found['rows']:.0f}"

    return table(
        ["bits", "codes, `scan`", *(f"`{path}` adds" for path in paths)],
        [
            [str(size["bits"]), a_row(size["scan"]), *(a_row(size[path]) for path in paths)]
            for size in found["sizes"]
        ],
    )


def column_of(entry: dict[str, Any]) -> str:
    return f"{entry['type']}({entry['dimension']})"


def dimensions_storage() -> str:
    """Return the cost of each storage of a column, at each number of dimensions."""
    return table(
        [
            *("column, storage", "MB in rows", "MB out of line", "insert, us a row"),
            *("exact query, ms", "100 rows by key, ms"),
        ],
        [
            [f"`{column_of(e)}`, {e['storage']}", *(["refused: a row is too large"] + [""] * 4)]
            if "refused" in e
            else [
                f"`{column_of(e)}`, {e['storage']}",
                *(f"{e[size] / 1e6:.1f}" for size in ("heap_bytes", "toast_bytes")),
                f"{e['insert_cpu_us_a_row']:.0f}",
                f"{e['exact_cpu_ms']:.1f}",
                f"{e['compare_100_cpu_ms']:.2f}",
            ]
            for e in read("dimensions")["storage"]
        ],
    )


def dimensions_search() -> str:
    """HNSW and ours, with vectors out of line and in their rows."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for e in read("dimensions")["search"]:
        found.setdefault((column_of(e), e["system"]), {})[e["storage"]] = e
    return table(
        ["column, system", "recall", "EXTERNAL, ms", "MAIN, ms", "MB", "setting"],
        [
            [
                f"`{column}`, {system}",
                f"{by['MAIN']['recall']:.3f}",
                *(f"{by[storage]['cpu_ms']:.2f}" for storage in ("EXTERNAL", "MAIN")),
                f"{by['MAIN']['bytes'] / 1e6:.1f}",
                by["MAIN"]["setting"],
            ]
            for (column, system), by in found.items()
        ],
    )


def dimensions_codes() -> str:
    """The candidates that each code needs for a recall."""
    lines: dict[int, list[str]] = {}
    headings: dict[str, None] = {}
    for e in read("dimensions")["codes"]:
        headings[f"{e['projections']} x {e['levels'] // 2} bits"] = None
        needed = e["candidates"]
        lines.setdefault(e["dimension"], []).append(f"{needed['0.95']} / {needed['0.99']}")
    return table(
        ["dimensions", *headings],
        [[f"{dimension:,}", *cells] for dimension, cells in lines.items()],
    )


def dimensions_note() -> str:
    """How the run of dimensions was made."""
    found = read("dimensions")
    rows = found["storage"][0]["rows"]
    said = f"; {found['note']}" if found["note"] else ""
    return f"Of {rows:,} rows and {found['machine']['cpus']} cores{said}."


def hybrid() -> str:
    """Recall of searches by vector, by words, and by both."""
    kinds = {
        "text": "two rare words of the description, in descriptions",
        "name": "the family's name, in names",
    }
    found = read("hybrid")["words"]
    return table(
        ["words", *(f"{system}: recall@10, nDCG@10" for system in found["text"])],
        [
            [title, *(f"{one['recall']:.3f}, {one['ndcg']:.3f}" for one in found[kind].values())]
            for kind, title in kinds.items()
        ],
    )


def learned_codes() -> str:
    """Hashed beside learned codes of the rows of an index."""
    found = read("learned_codes")
    scores = {"MAP": "label MAP", "P@100": "label precision@100", "recall@10": "recall@10"}
    return table(
        ["data, bits", *(f"{title}: hashed, learned" for title in scores.values())],
        [
            [
                f"{hashed['data']} {hashed['bits']}",
                *(f"{hashed[score]:.3f}, {learned[score]:.3f}" for score in scores),
            ]
            for hashed, learned in zip(found[::2], found[1::2], strict=True)
        ],
    )


def presets(part: str) -> list[dict[str, Any]]:
    return [line for line in read("presets")["results"] if line["part"] == part]


def preset_changes() -> str:
    """Label MAP of the papers' settings, with one of our defaults at a time, and of the default."""
    lines: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
    for line in presets("changes"):
        if line["codes"] == "hashed":
            found = lines.setdefault((line["method"], line["change"]), {})
            found[line["dataset"], line["bits"]] = line["MAP"]
    columns = [("mnist", 32), ("mnist", 64), ("usps", 32), ("usps", 64)]
    return table(
        ["method, settings", *(f"{data.upper()}, {bits} bits" for data, bits in columns)],
        [
            [
                f"{method}, {PRESETS.get(change, f'paper with `{change}`')}",
                *(f"{found[column]:.3f}" if column in found else "" for column in columns),
            ]
            for (method, change), found in sorted(lines.items(), key=lambda line: line[0][0])
        ],
    )


def sadih_tasks() -> str:
    """Label MAP of SADIH and SDH, side by side, where SADIH may help."""
    lines: dict[tuple[str, str, int], dict[str, str]] = {}
    for line in presets("tasks"):
        if line["codes"] == "hashed":
            found = lines.setdefault((line["dataset"], line["task"], line["bits"]), {})
            found[line["method"]] = f"{line['MAP']:.3f} ± {line['spread']:.3f}"
    methods = ["sdh", "sdh, spread start", "sadih l1", "sadih l21"]
    return table(
        ["data, classes, bits", *methods],
        [
            [f"{data}, {task}, {bits}", *(found.get(method, "") for method in methods)]
            for (data, task, bits), found in sorted(lines.items())
        ],
    )


def sadih_lengths() -> str:
    """MAP and P@100 of SADIH by number of bits, the codes of the database hashed or learned."""
    lines: dict[tuple[str, str, str], dict[int, str]] = {}
    for line in presets("lengths"):
        found = lines.setdefault((line["dataset"], line["method"], line["codes"]), {})
        found[line["bits"]] = f"{line['MAP']:.3f} / {line['P@100']:.3f}"
    bits = sorted({line["bits"] for line in presets("lengths")})
    return table(
        ["MAP / P@100", *(f"{b} bits" for b in bits)],
        [
            [f"{data}, {method}, {codes} codes", *(found.get(b, "") for b in bits)]
            for (data, method, codes), found in sorted(lines.items())
        ],
    )


def citus_entries() -> list[dict[str, Any]]:
    """Return what was measured whole, the most rows first."""
    if not (RESULTS / "citus.json").exists():
        return []
    found = [entry for entry in read("citus")["results"] if "writes" in entry]
    return sorted(found, key=lambda e: (-e["rows"], e["shards"] > 0, e["workers"], e["shards"]))


def citus_reaching(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the search of the fewest probes that has recall .95, or else the best recall."""
    searches = [entry["search"][probes] for probes in sorted(entry["search"], key=int)]
    return next((search for search in searches if search["recall"] >= 0.95), searches[-1])


def citus() -> str:
    lines = []
    for entry in citus_entries():
        search = citus_reaching(entry)
        many = "s" if entry["shards"] > 1 else ""
        shards = f"{entry['shards']} shard{many} on {entry['workers']}"
        lines.append(
            [
                f"{entry['rows']:,}, {shards if entry['shards'] else 'plain'}",
                f"{entry['exact']['p50_ms']:.0f}",
                f"{search['p50_ms']:.1f} at {search['recall']:.3f}",
                f"{entry['build']['seconds']:.0f}",
                *(f"{entry['load'][how]:,} / {entry['writes'][how]:,}" for how in CITUS_WRITES),
            ]
        )
    head = ["rows, shards on workers", "exact p50, ms", "landmarks p50, ms", "build, s"]
    writes = (f"{how}, rows a second: without / with the index" for how in CITUS_WRITES.values())
    return table([*head, *writes], lines) if lines else "Not measured yet."


def citus_sizes() -> str:
    """Extrapolate from the most rows that were measured at several numbers of shards."""
    found = [entry for entry in citus_entries() if entry["shards"]]
    spread = [e for e in found if len({o["shards"] for o in found if o["rows"] == e["rows"]}) > 1]
    if not spread:
        return "Not measured yet."
    largest = found[0]
    n, build = largest["rows"], largest["build"]
    core_seconds = build["seconds"] * read("citus")["machine"]["cpus"] / n
    same = [entry for entry in spread if entry["rows"] == spread[0]["rows"]]
    times = [citus_reaching(entry)["p50_ms"] for entry in same]
    slope, start = np.polyfit([entry["shards"] for entry in same], times, 1)
    lines = []
    for rows, workers in CITUS_SIZES:
        shards = 2 * workers
        a_node, whole = rows / workers / n / 1e9, rows / n / 1e9
        lines.append(
            [
                f"{rows / 1e6:,.0f} million",
                str(workers),
                str(shards),
                f"{a_node * build['code_bytes'] + whole * build['landmark_bytes']:.0f}",
                f"{a_node * build['vector_bytes']:.0f}",
                f"{rows * core_seconds / (workers * CITUS_CORES) / 3600:.1f}",
                f"{rows * CITUS_TRAINED * 4 * 384 / 1e9:.0f}",
                f"{start + slope * shards:.0f}",
            ]
        )
    head = ["rows", "workers", "shards", "memory of a worker, GB", "vectors of a worker, GB"]
    head += ["build, hours", "memory of the building client, GB", "search p50, ms"]
    fitted = f"Here a = {start:.1f} ms and b = {slope:.2f} ms a shard"
    costs = f"building takes {1e3 * core_seconds:.2f} ms of a core for a row"
    code, landmarks = (f"{build[part] / n:.0f}" for part in ("code_bytes", "landmark_bytes"))
    stored = f"a row's code {code} bytes on its node, and its part of the landmarks {landmarks}"
    return f"{table(head, lines)}\n\n{fitted}, {costs}, {stored} on each."


TABLES = {
    "citus": citus,
    "citus-sizes": citus_sizes,
    "preset-changes": preset_changes,
    "sadih-tasks": sadih_tasks,
    "sadih-lengths": sadih_lengths,
    "sgh-mnist": lambda: protocol_table("sgh_mnist", "P@1000"),
    "sgh-usps": lambda: protocol_table("sgh_usps", "P@100"),
    "sgh-sift10k": lambda: protocol_table("sgh_sift10k", "P@100"),
    "chosen": chosen,
    "hybrid": hybrid,
    "learned-codes": learned_codes,
    "dimensions-storage": dimensions_storage,
    "dimensions-search": dimensions_search,
    "dimensions-codes": dimensions_codes,
    "dimensions-note": dimensions_note,
    "packages": packages,
    "hashing-32": hashing_32,
    "hashing": hashing,
    "semi-supervised-32": semi_supervised_32,
    "semi-supervised": semi_supervised,
    "given-graphs": given_graphs,
    "devices": devices,
    "retrieval": retrieval,
    "retrieval-systems": retrieval_systems,
    "memory": memory,
    "size": size,
    "recalls": recalls,
    "no-labels": no_labels,
    "near-duplicates": near_duplicates,
    "against-hnsw": lambda: against_hnsw("synthetic-300k", tuple(BESIDE)),
    "against-hnsw-million": lambda: against_hnsw("synthetic-1m", ("hnsw", "ours")),
    "labels": labels,
    "few-labels": few_labels,
    "sizes": sizes,
}
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))


def with_tables(text: str) -> str:
    for mark, render in TABLES.items():
        text = re.sub(
            rf"(<!-- {mark} -->\n).*?(<!-- end -->)",
            lambda match, render=render: f"{match[1]}{render()}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text()))
