"""Write the tables of choosing, limits and production from the committed measurements.

Run: python docs/make_tables.py. The figures come from benchmarks/results, like those of the README.
"""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "benchmarks" / "results"
PAGES = tuple(FOLDER / f"{page}.md" for page in ("choosing", "limits", "production"))


def read(name: str) -> Any:
    """Read the results of a benchmark."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(headings: list[str], rows: list[list[str]]) -> str:
    """Write a table whose first column is words, and the others figures."""
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def no_labels() -> str:
    """Codes of each method among the packages: what they find, and what they cost."""
    found = {row["system"]: row for row in read("packages")["systems"]}
    rows = read("packages")["rows"]
    systems = (
        *("itq 128 bits", "itq 256 bits", "sgh 128 bits", "sgh 256 bits", "lsh 256 bits"),
        *("pcah 256 bits", "sign 384 bits"),
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


def searches(data: str) -> dict[str, dict[str, Any]]:
    """Return what was measured of the searches of a data set, by system."""
    return {
        entry["system"]: entry
        for entry in read("retrieval")["systems"]
        if entry["data"] == data and "error" not in entry
    }


def milliseconds(entry: dict[str, Any], target: str) -> str:
    """Write the median of the fastest setting that reaches a recall."""
    point = entry["targets"][target]
    return f"{point['p50_ms']:.2f}" if point else "not reached"


def recalls() -> str:
    """Compare the fastest settings of codes that are scanned, with pgvector's beside."""
    found = searches("packages")
    systems = {
        "itq 128 bits": "itq-128-scan",
        "itq 256 bits": "itq-256-scan",
        "sgh 128 bits": "sgh-128-scan",
        "sign 384 bits": "sign-scan",
        "itq 192 bits, landmarks": "itq-192-landmarks",
        "pgvector's HNSW": "hnsw",
        "exact scan": "exact",
    }
    targets = ("0.90", "0.95", "0.99")
    return table(
        [
            "59,000 texts",
            *(f"ms at a recall of {target}" for target in targets),
            *("build s", "bytes a row"),
        ],
        [
            [
                words,
                *(milliseconds(entry, target) for target in targets),
                f"{entry['build_s']:.1f}",
                f"{entry['bytes'] / entry['rows']:.0f}",
            ]
            for words, system in systems.items()
            for entry in [found[system]]
        ],
    )


def against_hnsw() -> str:
    """Compare landmarks with pgvector's HNSW among many rows."""
    lines = []
    for rows, data in (("300,000", "synthetic-300k"), ("1,000,000", "synthetic-1m")):
        pair = [searches(data)[system] for system in ("hnsw", "itq-192-landmarks")]
        lines += [
            [f"{rows} rows: ms, median", *(milliseconds(entry, "0.95") for entry in pair)],
            ["MB", *(f"{entry['bytes'] / 1e6:.0f}" for entry in pair)],
            ["build s", *(f"{entry['build_s']:.0f}" for entry in pair)],
            ["single inserts/s", *(f"{entry['inserts']['single']:.0f}" for entry in pair)],
        ]
    return table(["at a recall@10 of 0.95", "HNSW", "codes, 192 bits, landmarks"], lines)


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
    paths = ("landmarks", "hnsw", "lookup")

    def a_row(size: int) -> str:
        return f"{size / found['rows']:.0f}"

    return table(
        ["bits", "codes, `scan`", *(f"`{path}` adds" for path in paths)],
        [
            [str(size["bits"]), a_row(size["scan"]), *(a_row(size[path]) for path in paths)]
            for size in found["sizes"]
        ],
    )


TABLES = {
    "recalls": recalls,
    "no-labels": no_labels,
    "against-hnsw": against_hnsw,
    "labels": labels,
    "few-labels": few_labels,
    "sizes": sizes,
}


def with_tables(text: str) -> str:
    """Put every table between its marks."""
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
