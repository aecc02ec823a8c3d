"""Write the tables of choosing, limits and production from the committed measurements.

Run: python docs/make_tables.py. The figures come from benchmarks/results, like those of the README.
"""

import json
import re
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).parent
RESULTS = FOLDER.parent / "benchmarks" / "results"
PAGES = tuple(FOLDER / f"{page}.md" for page in ("choosing", "limits", "production"))
NOT_YET = "Not measured yet."


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
        return NOT_YET
    return table(
        ["59,000 texts", "ms at a recall of 0.95", "MB", "build s"],
        [[words, *found[system][:3]] for words, system in systems.items()],
    )


def against_hnsw() -> str:
    """Compare landmarks with pgvector's HNSW among many rows."""
    lines = []
    for rows, data in (("300,000", "synthetic-300k"), ("1,000,000", "synthetic-1m")):
        if found := searches(data):
            figures = (f"{rows} rows: ms, median", "MB", "build s", "single inserts/s")
            pairs = zip(found["hnsw"], found["ours"], strict=True)
            lines += [[words, *pair] for words, pair in zip(figures, pairs, strict=True)]
    if not lines:
        return NOT_YET
    return table(["at a recall@10 of 0.95", "HNSW", "256 bits, 4 levels, landmarks"], lines)


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
