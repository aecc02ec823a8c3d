"""Score the hashers as the papers do, beside what the original authors' programs score.

    python benchmarks/hashing.py [--data ../shared/data] [--output benchmarks/results/hashing.json]

The splits and the reference are those of `reference_scores.csv`: 1,000 balanced queries, the rest
as database, 10,000 balanced training rows; rows divided by 255; MAP over the whole ranking, ties in
database order. SGH takes the first 300 of the split's anchors. Methods that draw random numbers
are run with several seeds: the table gives means, the JSON the spread too.
"""

import argparse
import csv
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from pg_hashindex import metrics
from pg_hashindex.hashers import make_hasher

ROOT = Path(__file__).resolve().parent.parent

DATASETS = {"mnist": "mnist70k_q1000_tr10k", "usps": "usps11k_q1000_tr10k"}
SEEDS = {"sgh": 5, "itq": 5, "lsh": 20, "pcah": 1}
BITS = (32, 64)
SCORES = ("MAP_label", "P100_label", "PH2_label", "MAP_euclid2pct", "P100_euclid2pct")
# How far from the reference a score may be, and which part of its CPU seconds training may take.
BARS = {"sgh": 0.01, "itq": 0.02, "lsh": 0.02, "pcah": 0.02}
BARRED = ("MAP_label", "MAP_euclid2pct")
CPU_PART = {"sgh": 1 / 3}


class Split:
    """One data set, split and with its ground truth."""

    def __init__(self, data: Path, name: str) -> None:
        with np.load(data / f"{name}.npz") as archive:
            X, y = archive["X"].astype(np.float32) / 255, archive["y"]
        with np.load(data / f"{name}_split.npz") as split:
            self.queries, self.database = X[split["query"]], X[split["database"]]
            self.train = X[split["train"]]
            self.anchors = self.train[split["anchors"][:300]]
            self.by_label = metrics.same_label(y[split["query"]], y[split["database"]])
        self.by_distance = metrics.nearest_fraction(self.queries, self.database, 0.02)

    def run(self, method: str, bits: int, seed: int) -> dict[str, float]:
        """Train, encode and score once."""
        params = {"anchors": self.anchors} if method == "sgh" else {}
        hasher = make_hasher(method, n_bits=bits, random_state=seed, **params)
        wall, cpu = time.perf_counter(), time.process_time()
        hasher.fit(self.train)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        codes = hasher.encode(self.queries), hasher.encode(self.database)
        return {
            "MAP_label": metrics.mean_average_precision(*codes, self.by_label),
            "P100_label": metrics.precision_at_k(*codes, self.by_label, 100),
            "PH2_label": metrics.precision_within_radius(*codes, self.by_label, 2),
            "MAP_euclid2pct": metrics.mean_average_precision(*codes, self.by_distance),
            "P100_euclid2pct": metrics.precision_at_k(*codes, self.by_distance, 100),
            "train_wall_s": wall,
            "train_cpu_s": cpu,
        }


def reference(data: Path) -> dict[tuple[str, str, int], dict[str, float]]:
    """Read the scores of the authors' programs, by data set, method and bits."""
    measures = (*SCORES, "train_wall_s", "train_cpu_s")
    with (data / "reference_scores.csv").open() as file:
        return {
            (row["dataset"], row["method"].lower(), int(row["bits"])): {
                measure: float(row[measure]) for measure in measures
            }
            for row in csv.DictReader(file)
        }


def results(data: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield one result for each data set, method and number of bits."""
    known = reference(data)
    for name in args.datasets:
        split = Split(data, name)
        # The first training in a process also loads libraries and starts their threads.
        split.run("sgh", 8, 0)
        for method in args.methods:
            for bits in args.bits:
                n_seeds = min(SEEDS[method], args.seeds or SEEDS[method])
                runs = [split.run(method, bits, seed) for seed in range(n_seeds)]
                yield result(name, method, bits, runs, known[DATASETS[name], method, bits])


def result(
    name: str, method: str, bits: int, runs: list[dict[str, float]], known: dict[str, float]
) -> dict[str, Any]:
    """Put the mean of the runs beside the reference, and hold it against the bars."""
    values: dict[str, NDArray[np.float64]] = {
        measure: np.array([run[measure] for run in runs]) for measure in runs[0]
    }
    mean = {measure: round(float(value.mean()), 4) for measure, value in values.items()}
    difference = {measure: round(mean[measure] - known[measure], 4) for measure in SCORES}
    met = {measure: abs(difference[measure]) <= BARS[method] for measure in BARRED}
    if method in CPU_PART:
        met["train_cpu_s"] = mean["train_cpu_s"] <= CPU_PART[method] * known["train_cpu_s"]
    return {
        "dataset": name,
        "method": method,
        "bits": bits,
        "seeds": len(runs),
        "scores": mean,
        "standard_deviation": {m: round(float(value.std()), 4) for m, value in values.items()},
        "farthest_from_reference": {
            m: round(float(np.abs(values[m] - known[m]).max()), 4) for m in SCORES
        },
        "reference": known,
        "difference": difference,
        "bars_met": met,
    }


def line(entry: dict[str, Any]) -> str:
    """Format one result as three lines of the table."""
    key = f"{entry['dataset']:6}{entry['method']:6}{entry['bits']:4}"
    scores, known, difference = entry["scores"], entry["reference"], entry["difference"]
    times = "{:9.2f}{:8.2f}"
    verdict = "ok" if all(entry["bars_met"].values()) else f"MISSED {entry['bars_met']}"
    return "\n".join(
        (
            key
            + f"  {'ours':10}"
            + "".join(f"{scores[m]:17.4f}" for m in SCORES)
            + times.format(scores["train_wall_s"], scores["train_cpu_s"]),
            " " * 16
            + f"  {'reference':10}"
            + "".join(f"{known[m]:17.4f}" for m in SCORES)
            + times.format(known["train_wall_s"], known["train_cpu_s"]),
            " " * 16
            + f"  {'difference':10}"
            + "".join(f"{difference[m]:+17.4f}" for m in SCORES)
            + f"   {verdict}",
        )
    )


def machine() -> dict[str, Any]:
    """Describe what the seconds were taken on."""
    return {
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shared = Path(os.environ.get("PG_HASHINDEX_SHARED", ROOT.parent / "shared"))
    parser.add_argument("--data", type=Path, default=shared / "data")
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks/results/hashing.json")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=list(DATASETS))
    parser.add_argument("--methods", nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--bits", nargs="+", type=int, choices=BITS, default=list(BITS))
    parser.add_argument("--seeds", type=int, help="at most this many seeds for each method")
    args = parser.parse_args()
    if not (args.data / "reference_scores.csv").exists():
        sys.exit(f"{args.data} has no reference_scores.csv; name the folder with --data")

    print(" " * 28 + "".join(f"{measure:>17}" for measure in SCORES) + "   wall s   cpu s")
    entries = []
    for entry in results(args.data, args):
        print(line(entry), flush=True)
        entries.append(entry)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"machine": machine(), "results": entries}
    args.output.write_text(json.dumps(report, indent=1) + "\n")
    missed = [entry for entry in entries if not all(entry["bars_met"].values())]
    print(f"{len(entries) - len(missed)} of {len(entries)} within their bars; {args.output}")


if __name__ == "__main__":
    main()
