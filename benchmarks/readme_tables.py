"""Write the tables of the pages from the committed results: python benchmarks/readme_tables.py."""

import json
import re
from pathlib import Path
from typing import Any

import retrieval_report

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
README_METHODS = (
    *("lsh", "sikh", "pcah", "sh", "itq", "agh", "agh-1", "usplh", "sgh"),
    *("itq-cca", "s3plh", "ksh", "sdh", "fsdh", "sadih-l1", "cghash"),
    *("sadih-l1-all", "sadih-l1-all, learned codes"),
)
GIVEN_GRAPHS = ("-words", "-both")
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


def size() -> str:
    return table(
        ["`pg-hashindex ...`", "seconds", "peak MB"],
        [
            [f"`{e['command']}`", f"{e['seconds']:.0f}", str(e["peak_mb"])]
            for e in read("size")["commands"]
        ],
    )


TABLES = {
    "packages": packages,
    "hashing-32": hashing_32,
    "hashing": hashing,
    "semi-supervised-32": semi_supervised_32,
    "semi-supervised": semi_supervised,
    "given-graphs": given_graphs,
    "devices": devices,
    "retrieval": retrieval,
    "retrieval-systems": retrieval_systems,
    "size": size,
}
PAGES = (REPOSITORY / "README.md", REPOSITORY / "docs" / "results.md")


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
