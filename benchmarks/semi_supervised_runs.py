"""The trainings of `semi_supervised.py` as its files keep them, and their means over seeds."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from common import read

Run = dict[str, Any]
#: Data set, labels a class, method, bits, seed.
Key = tuple[str, int, str, int, int]

NAMES = ("dataset", "labels", "method", "bits", "seed")
SCORE = "MAP@5000"
COSTS = ("train_wall_s", "train_cpu_s", "encode_wall_s")


def key(run: Run) -> Key:
    """Return the identity of a training."""
    return run["dataset"], run["labels"], run["method"], run["bits"], run["seed"]


def parts_of(output: Path) -> list[Path]:
    """Find the files of processes that share the work."""
    return sorted(output.parent.glob(f"{output.stem}.part*.json"))


def part_path(output: Path, number: int, parts: int) -> Path:
    """Return the file of one of several processes."""
    return output.with_name(f"{output.stem}.part{number}of{parts}.json")


def read_runs(
    paths: Iterable[Path], made: Mapping[tuple[str, str], Mapping[str, Any]]
) -> dict[Key, Run]:
    """Read the trainings that were done as they would be now.

    ``paths``: Where two files have the same training, that of the later one counts.
    ``made``: Of each data set and method, what `made_with` returns; others are left out.
    """
    found: dict[Key, Run] = {}
    for path in paths:
        for run in read(path).get("runs", []):
            now = made.get((run["dataset"], run["method"]))
            if now is not None and now.items() <= run.items():
                found[key(run)] = run
    return found


def means(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Compute means over seeds by data set, number of labels, method and number of bits."""
    groups: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run)[:-1], []).append(run)
    return [_mean(group) for group in groups.values()]


def _mean(runs: list[Run]) -> dict[str, Any]:
    result = {name: runs[0][name] for name in NAMES[:-1]}
    result["seeds"] = sorted(run["seed"] for run in runs)
    if errors := [run["error"] for run in runs if "error" in run]:
        return result | {"error": errors[0]}
    values = {
        name: np.array([(run | run["scores"])[name] for run in runs])
        for name in (*runs[0]["scores"], *COSTS)
    }
    return result | {
        "labelled_rows": round(float(np.mean([run["labelled_rows"] for run in runs]))),
        "threads": sorted({run["threads"] for run in runs}),
        "scores": {name: round(float(value.mean()), 4) for name, value in values.items()},
        "standard_deviation": {n: round(float(value.std()), 4) for n, value in values.items()},
        "longest_wall_s": round(float(values["train_wall_s"].max()), 2),
    }
