"""Score the hashers as the papers do, next to the scores of the original authors' programs.

    python benchmarks/hashing.py [--data ../shared/data] [--output benchmarks/results/hashing.json]

The splits and the reference are those of `reference_scores.csv`: 1,000 balanced queries, the rest
as database, 10,000 balanced training rows; rows divided by 255; MAP over the whole ranking, ties in
database order. The 100 queries of sift10k are rows of its base: the other 9,900 are the database
and the training rows. Of packages, whose labels are sections, 1,000 drawn rows are queries, 20,000
others the database, and 10,000 of these the training rows. Methods that draw random numbers are run
with several seeds: the table gives means, the JSON the spread too.
"""

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import semi_supervised_data
from common import DATA_FOLDER, RESULTS, machine, made_with, read, write
from hashing_entrants import BITS, ENTRANTS, Entrant
from numpy.typing import NDArray

from pg_hashindex.errors import HashIndexError
from pg_hashindex.hashers import HASHERS
from pg_hashindex.papers import Measures, Outcome, Split, Truth, compare, load_split

REFERENCES = {"mnist": "mnist70k_q1000_tr10k", "usps": "usps11k_q1000_tr10k"}
LABEL, NEAREST = Truth("label"), Truth("nearest-fraction", 0.02)
MEASURES = Measures(k=(50, 100))
# Names of a measure in the reference and here.
SCORES = {
    "MAP_label": (LABEL, "MAP"),
    "P100_label": (LABEL, "P@100"),
    "PH2_label": (LABEL, "PH2"),
    "MAP_euclid2pct": (NEAREST, "MAP"),
    "P100_euclid2pct": (NEAREST, "P@100"),
    "P50_label": (LABEL, "P@50"),
    "error_3nn": (LABEL, "3-NN error"),
}
COMPARED = tuple(SCORES)[:5]
COSTS = ("train_wall_s", "train_cpu_s")


def read_split(data: Path, name: str) -> Split:
    """Read a data set; sift10k has no labels, and its queries are held out of its base."""
    if name == "packages":
        X, y, _ = semi_supervised_data.read(data, name)
        order = np.random.default_rng(0).permutation(len(X))
        numbers = {
            "query": order[:1_000],
            "database": order[1_000:21_000],
            "train": order[1_000:11_000],
            **dict.fromkeys(("anchors", "labelled"), np.arange(1_000)),
        }
        return Split.of(X, y, numbers=numbers)
    if name != "sift10k":
        return load_split(data / f"{name}.npz", data / f"{name}_split.npz")
    with np.load(data / "sift10k.npz") as archive:
        base, queries = archive["base"].astype(np.float32), archive["neighbours"][:, 0]
    others = np.setdiff1d(np.arange(len(base)), queries)
    return Split.of(base, numbers={"query": queries, "database": others, "train": others})


def reference(data: Path) -> dict[tuple[str, str, int], dict[str, float]]:
    """Read the scores of the authors' programs, by data set, method and bits."""
    with (data / "reference_scores.csv").open() as file:
        return {
            (row["dataset"], row["method"], int(row["bits"])): {
                measure: float(row[measure]) for measure in (*COMPARED, *COSTS)
            }
            for row in csv.DictReader(file)
        }


def results(data: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the results of each data set, method and number of bits."""
    known = reference(data)
    for name in args.datasets:
        split = read_split(data, name)
        for entrant in ENTRANTS.values():
            if entrant.name not in args.methods or entrant.hasher not in HASHERS:
                continue
            for bits in entrant.bits.get(name, ()):
                if bits in args.bits:
                    theirs = known.get((REFERENCES.get(name, ""), entrant.reference, bits))
                    made = made_with(entrant.method)
                    for outcomes in runs(split, entrant, bits, args.seeds):
                        yield result(name, outcomes, theirs) | made


def runs(split: Split, entrant: Entrant, bits: int, most: int | None) -> Iterator[list[Outcome]]:
    """Run all seeds, and yield the outcomes of each protocol and distance."""
    truths = [NEAREST] if split.labels is None else [LABEL, NEAREST]
    try:
        found = list(
            compare(
                entrant.split(split),
                [entrant.method],
                [bits],
                truths=truths,
                measures=MEASURES,
                seeds=min(entrant.seeds, most or entrant.seeds),
            )
        )
    # An unknown parameter must not end a run of hours.
    except HashIndexError as error:
        found = [Outcome(entrant.name, bits, 0, error=str(error))]
    kinds: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in found:
        kinds.setdefault((outcome.codes, outcome.distance), []).append(outcome)
    yield from kinds.values()


def values(outcome: Outcome) -> dict[str, float]:
    """Return all measurements by their names in the JSON."""
    scores = {
        name: outcome.scores[truth.name].values[measure]
        for name, (truth, measure) in SCORES.items()
        if truth.name in outcome.scores
    }
    costs = (*COSTS, "encode_wall_s", "encode_cpu_s")
    return {**scores, **{name: getattr(outcome, name) for name in costs}}


def result(
    dataset: str, outcomes: list[Outcome], theirs: dict[str, float] | None
) -> dict[str, Any]:
    """Return the means over seeds with the reference."""
    first = outcomes[0]
    key = {"dataset": dataset, "method": first.method, "bits": first.n_bits, "codes": first.codes}
    # In the reference, the hash function makes the codes of the database.
    known = theirs if first.codes == "hashed" else None
    if errors := [outcome.error for outcome in outcomes if outcome.error is not None]:
        return {**key, "error": errors[0], "reference": known}
    measured = [values(outcome) for outcome in outcomes]
    seeds: dict[str, NDArray[np.float64]] = {
        name: np.array([run[name] for run in measured]) for name in measured[0]
    }
    mean = {name: round(float(value.mean()), 4) for name, value in seeds.items()}
    mean["train_peak_mb"] = round(first.train_peak_bytes / 1e6, 4)
    entry = {
        **key,
        "distance": first.distance,
        "train_rows": first.train_rows,
        "seeds": len(outcomes),
        "scores": mean,
        "standard_deviation": {n: round(float(value.std()), 4) for n, value in seeds.items()},
        "reference": known,
    }
    if known is None:
        return entry
    return entry | {
        "difference": {name: round(mean[name] - known[name], 4) for name in COMPARED},
        "farthest_from_reference": {
            name: round(float(np.abs(seeds[name] - known[name]).max()), 4) for name in COMPARED
        },
    }


def identical(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Find methods with identical scores, which have learned the same codes.

    A comparison of such methods says nothing, however good each of them looks.
    """
    groups: dict[tuple[Any, ...], list[str]] = {}
    for entry in entries:
        if "error" not in entry:
            # Full digits of all seeds, which do not agree by chance.
            scores = tuple(entry["scores"].get(name) for name in SCORES)
            key = (entry["dataset"], entry["bits"], entry.get("codes", "hashed"), scores)
            groups.setdefault(key, []).append(entry["method"])
    return [
        {"dataset": dataset, "bits": bits, "codes": codes, "methods": methods}
        for (dataset, bits, codes, _), methods in groups.items()
        if len(methods) > 1
    ]


def kept(output: Path, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return results of an earlier run that this run did not repeat."""

    def key(entry: dict[str, Any]) -> tuple[Any, ...]:
        spherical = entry.get("distance") == "spherical"
        names = ("dataset", "method", "bits")
        return (*(entry[name] for name in names), entry.get("codes", "hashed"), spherical)

    new = set(map(key, entries))
    return [entry for entry in read(output).get("results", []) if key(entry) not in new]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    datasets = ("mnist", "usps", "sift10k", "packages")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    parser.add_argument("--output", type=Path, default=RESULTS / "hashing.json")
    parser.add_argument("--datasets", nargs="+", choices=datasets, default=datasets)
    parser.add_argument("--methods", nargs="+", choices=ENTRANTS, default=list(ENTRANTS))
    parser.add_argument("--bits", nargs="+", type=int, choices=BITS, default=BITS)
    parser.add_argument("--seeds", type=int, help="at most this many seeds for each method")
    parser.add_argument(
        "--keep", action="store_true", help="keep results of other methods and data sets"
    )
    args = parser.parse_args()
    if not (args.data / "reference_scores.csv").exists():
        sys.exit(f"{args.data} has no reference_scores.csv; name the folder with --data")
    missing = sorted({ENTRANTS[name].hasher for name in args.methods} - set(HASHERS))
    if missing:
        print(f"left out, not registered: {', '.join(missing)}")

    entries: list[dict[str, Any]] = []
    for entry in results(args.data, args):
        print(json.dumps(entry), flush=True)
        # Each is saved at once: a run may take an hour.
        entries = (kept(args.output, [entry]) if args.keep or entries else []) + [entry]
        found = {"machine": machine(), "results": entries, "identical": identical(entries)}
        write(args.output, found)
    for group in identical(entries):
        print(
            f"SAME CODES {group['dataset']} {group['bits']} {group['codes']}: "
            + ", ".join(group["methods"])
        )
    print(args.output)


if __name__ == "__main__":
    main()
