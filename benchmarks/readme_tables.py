"""Write the tables of the pages from the committed results: python benchmarks/readme_tables.py."""

import json
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
README_METHODS = (
    *("lsh", "sikh", "pcah", "sh", "itq", "agh", "agh-1", "usplh", "sgh"),
    *("itq-cca", "s3plh", "ksh", "sdh", "fsdh", "sadih-l1", "cghash"),
    *("sadih-l1-all", "sadih-l1-all, learned codes"),
)


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
    """Write ours / theirs; ours alone where the reference has none."""
    # A failed run has no scores, a data set without labels none by labels.
    found = [(result.get(whose) or {}).get(score) for whose in ("scores", "reference")]
    return " / ".join(f"{value:.{digits}f}" for value in found if value is not None)


def name(result: dict[str, Any]) -> str:
    learned = ", learned codes" if result.get("codes") == "learned" else ""
    return f"{result['method']}{learned}"


def hashing_32() -> str:
    """Both data sets with labels side by side, one line for each method; variants are elsewhere."""
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


TABLES = {"packages": packages, "hashing-32": hashing_32, "hashing": hashing}
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
