"""Write the README's tables from the committed results: python benchmarks/readme_tables.py."""

import json
import re
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = REPOSITORY / "benchmarks" / "results"
README = REPOSITORY / "README.md"


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


def hashing() -> str:
    def pair(result: dict[str, Any], score: str, digits: int) -> str:
        # A failed run has no scores, a data set without labels none by labels.
        ours, theirs = ((result.get(whose) or {}).get(score) for whose in ("scores", "reference"))
        return " / ".join("" if v is None else f"{v:.{digits}f}" for v in (ours, theirs))

    def name(result: dict[str, Any]) -> str:
        learned = ", learned codes" if result.get("codes") == "learned" else ""
        return f"{result['dataset']} {result['method']} {result['bits']}{learned}"

    return table(
        ["data, method, bits", "label MAP", "MAP of the nearest 2 %", "training CPU s"],
        [
            [
                name(result),
                pair(result, "MAP_label", 3),
                pair(result, "MAP_euclid2pct", 3),
                pair(result, "train_cpu_s", 2),
            ]
            for result in read("hashing")["results"]
        ],
    )


TABLES = {"packages": packages, "hashing": hashing}


def with_tables(text: str) -> str:
    for name, render in TABLES.items():
        text = re.sub(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)",
            lambda match, render=render: f"{match[1]}{render()}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text()))
