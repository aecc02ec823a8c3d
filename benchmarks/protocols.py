"""Run the papers' figures by `pg-hashindex bench paper`, and keep what the pages show.

    OMP_NUM_THREADS=1 python benchmarks/protocols.py [FIGURE ...]

Comparisons go to `benchmarks/results/protocol_FIGURE.json`: their command, and what it prints as
JSON, with every third point of the curves. A run that was stopped continues where it was.
`docs/make_pictures.py papers` draws them. Other figures go to `FIGURE.json` there, and to
`docs/pictures`.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from common import DATA_FOLDER, ROOT, machine, scratch

from pg_hashindex.papers.protocols import FIGURES

RESULTS = ROOT / "benchmarks/results"
#: The figures without methods whose pictures the pages show.
PICTURED = ("sgh_map_usps", "cghash_retrieved_mnist", "cghash_retrieved_usps")


def measured() -> dict[str, dict[str, Any]]:
    """Read the comparisons that were run."""
    paths = {figure: RESULTS / f"protocol_{figure}.json" for figure in FIGURES}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def run(name: str, data: Path) -> Path:
    """Run a figure, and return the file that keeps its results."""
    figure = FIGURES[name]
    output = scratch("protocols")
    words = ["bench", "paper", figure.paper, "--figure", name, "--data", data, "--output", output]
    subprocess.run([sys.executable, "-m", "pg_hashindex", *words], check=True)
    results = json.loads((output / f"{name}.json").read_text())
    if figure.kind != "hash":
        if name in PICTURED:
            _keep_picture(output / f"{name}.png")
        path = RESULTS / f"{name}.json"
        path.write_text(json.dumps({"data": figure.data, **results}, indent=1) + "\n")
        return path
    found = {
        "data": figure.data,
        "command": figure.command,
        "machine": machine(),
        "outcomes": [_thinned(outcome) for outcome in results],
    }
    path = RESULTS / f"protocol_{name}.json"
    path.write_text(_text(found))
    return path


def _keep_picture(path: Path) -> None:
    """Put a picture among those of the documents, in 48 colours."""
    from PIL import Image

    target = ROOT / f"docs/pictures/paper-{path.name}"
    Image.open(path).convert("RGB").quantize(48).save(target, "PNG", optimize=True)


def _thinned(outcome: dict[str, Any]) -> dict[str, Any]:
    """Keep four digits of scores, and every third point of curves."""
    for deviation in outcome.get("standard_deviation", {}).get("scores", {}).values():
        deviation.update({name: round(value, 4) for name, value in deviation.items()})
    for scores in outcome.get("scores", {}).values():
        curve = scores.pop("curve")
        kept = sorted({*range(0, len(curve["at"]), 3), len(curve["at"]) - 1})
        scores.update({name: round(value, 4) for name, value in scores.items()})
        scores["curve"] = {
            part: [round(values[place], 4) for place in kept] for part, values in curve.items()
        }
    return outcome


def _text(found: dict[str, Any]) -> str:
    """Write one line for each outcome."""
    head = json.dumps({name: value for name, value in found.items() if name != "outcomes"})
    lines = ",\n".join(json.dumps(outcome) for outcome in found["outcomes"])
    return f'{head[:-1]}, "outcomes": [\n{lines}\n]}}\n'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=", ".join(FIGURES))
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    args = parser.parse_args()
    if unknown := set(args.figures) - set(FIGURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(FIGURES)}")
    for figure in args.figures or FIGURES:
        print(f"wrote {run(figure, args.data)}", flush=True)


if __name__ == "__main__":
    main()
