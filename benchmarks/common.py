"""Common parts of all benchmarks: folders, the machine, files of results, and tables."""

import argparse
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy

from pg_hashindex.papers import Method
from pg_hashindex.papers.figures import FIGURES
from pg_hashindex.quality.scores import SCORING

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
#: The folder that ``pg-hashindex bench paper PAPER --output benchmarks/results/papers`` fills.
PAPERS = RESULTS / "papers"
#: The real data, which a checkout of the repository alone does not have.
DATA_FOLDER = Path(os.environ.get("PG_HASHINDEX_SHARED", ROOT.parent / "shared")) / "data"


def parser(about: str, **numbers: Any) -> argparse.ArgumentParser:
    """Return a parser with options that have a number or a path as their default."""
    made = argparse.ArgumentParser(description=about.splitlines()[0])
    for name, default in numbers.items():
        made.add_argument(f"--{name}", type=type(default), default=default)
    return made


def scratch(name: str) -> Path:
    """Return where trials write."""
    return Path(tempfile.gettempdir()) / name


def machine() -> dict[str, Any]:
    """Describe the machine that the times were taken on."""
    return {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def circumstances() -> dict[str, Any]:
    """Return the commit that is measured, the load before it, and the time."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "commit": commit.stdout.strip(),
        "load": round(os.getloadavg()[0], 2),
        "run": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def made_with(method: Method) -> dict[str, Any]:
    """Return what a score depends on beside its data: a test finds scores of other settings."""
    return {"settings": method.settings(), "scoring": SCORING}


def cpu_seconds(pid: int) -> float:
    """Return the seconds that a process has run, user and system."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def machine_seconds() -> float:
    """Return the CPU seconds that all processes of the machine have run, user and system."""
    user, nice, system, _, _, irq, soft, *_ = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def read(path: Path) -> dict[str, Any]:
    """Read a file; return nothing if there is none."""
    result: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return result


def measured_figures() -> dict[str, dict[str, Any]]:
    """Read the comparisons of the papers that were run, by their names."""
    paths = {name: PAPERS / f"{name}.json" for name, figure in FIGURES.items() if figure.command}
    return {name: read(path) for name, path in paths.items() if path.exists()}


def write(output: Path, report: Any) -> None:
    """Write a file whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(".tmp")
    unfinished.write_text(json.dumps(report, indent=1) + "\n")
    unfinished.replace(output)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table of Markdown."""
    lines = [headings, ["---", *("---:" for _ in headings[1:])], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align the columns of a table: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        first, *others = (
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join([first, *others]).rstrip()


def with_tables(text: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """Return a page with its tables, each between the mark of its name and that of its end."""
    for mark, render in tables.items():
        text = re.sub(
            rf"(<!-- {mark} -->\n).*?(<!-- end -->)",
            lambda match, render=render: f"{match[1]}{render()}\n{match[2]}",
            text,
            flags=re.DOTALL,
        )
    return text
