"""Choose defaults on data sets that they have not seen, by rows that training holds back.

    OMP_NUM_THREADS=1 python benchmarks/defaults.py [METHOD ...]

Each candidate learns from training rows of each data set, and ranks these for 500 others; queries
play no part. A candidate's worth on a data set is its mean gain over the program's settings in MAP
(by label, and for methods without labels of the nearest 2 % too), less five times what it lacks: of
the program's label MAP, and beyond 0.02 of its MAP of the nearest 2 % and its precision within
radius 2. For each data set the candidate is taken that is worth most on the others; `left_out` has
what it scores there. `chosen` is worth most on all. Measurements that
`benchmarks/results/defaults.json` already has are not repeated.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from common import DATA_FOLDER, RESULTS, machine, read, write
from hashing import LABEL, NEAREST, read_split
from presets import packages

from pg_hashindex.hashers import HASHERS, PCAH
from pg_hashindex.papers import Measures, Method, Split

BITS = (32, 64)
_QUERIES, _ROWS, _LABELLED, _DIRECTIONS = 500, 5000, 1000, 128
_SLACK, _PRICE = 0.02, 5.0
#: The data sets, those that a method without labels learns from too last.
DATASETS = ("usps", "packages", "packages, several labels", "mnist", "sift10k")

Parameters = dict[str, Any]


def grid(**values: tuple[Any, ...]) -> list[Parameters]:
    """Return all combinations of values."""
    return [dict(zip(values, given, strict=True)) for given in product(*values.values())]


#: What is tried of each method beside its program's settings.
CANDIDATES: dict[str, list[Parameters]] = {
    "usplh": grid(
        eta=(0.0625, 0.125, 0.2),
        decay=(0.1, 0.7),
        n_pseudo=(500, None),
        cut=("mean", "median"),
        inner_pairs=(False, True),
    )
    + grid(
        eta=(0.03125, 0.045, 0.09),
        decay=(0.1, 0.4),
        n_pseudo=(500, None),
        cut=("mean",),
        inner_pairs=(True,),
    )
    + grid(
        eta=(0.03125, 0.045),
        decay=(0.1,),
        n_pseudo=(500,),
        cut=("mean",),
        inner_pairs=(True,),
        boundary=("residual",),
    ),
    "s3plh": [
        {**one, **step}
        for one in grid(eta=(0.01, 0.03, 0.1), balance=(True, False))
        for step in (
            *grid(step_by=("bit",), step=(1.0, 2.0, 4.0, 8.0)),
            {"step_by": "data", "step": 1.0},
        )
    ],
    "sdh": grid(
        width=(0.26, 0.5, 0.7, 1.0),
        ridge=(1e-4, 5e-4),
        start=("random", "spread"),
        normalize=("l2",),
    ),
    "itq": grid(tolerance=(5e-4, 6e-4, 1e-3, 2e-3), extrapolation=(1.0,)),
}


def held_back(data: Path, name: str) -> Split:
    """Return rows of the training of a data set as a data set of their own."""
    several = name.endswith("several labels")
    split = packages(data, 0, several) if name.startswith("packages") else read_split(data, name)
    order = np.random.default_rng(0).permutation(len(split.train))
    queries, rows = order[:_QUERIES], order[_QUERIES : _QUERIES + _ROWS]
    X, y = split.train, split.train_labels
    if name == "mnist":
        # In their main directions, to save time.
        X = PCAH(n_bits=_DIRECTIONS).fit(X[rows]).project(X)
    of_rows, of_queries = (None if y is None else y[part] for part in (rows, queries))
    labelled = np.arange(_LABELLED)
    return Split(
        X[queries],
        X[rows],
        X[rows],
        of_queries,
        of_rows,
        of_rows,
        train_places=np.arange(len(rows)),
        labelled=labelled,
    )


def reference(method: str) -> Parameters:
    """Return the settings that candidates are measured against, whatever the defaults are."""
    kind = HASHERS[method]
    made = kind.paper() if kind.program_parameters is None else kind.program()
    names = {
        *(kind.program_parameters or ()),
        *(name for one in CANDIDATES[method] for name in one),
    }
    return {name: value for name, value in made.get_params().items() if name in names}


def measure(split: Split, method: str, given: Parameters) -> Iterator[Parameters]:
    """Measure one candidate, and yield its scores at each number of bits."""
    truths = [NEAREST] if split.labels is None else [LABEL, NEAREST]
    tried = Method(method, given, labels="labelled" if method == "s3plh" else "all")
    for bits in BITS:
        hasher = tried.make(bits, 0)
        X, y, known = tried.fit_arguments(split, hasher)
        model = hasher.fit(X, y, **known).to_model(method, levels=2)
        codes = model.encode(split.database)
        found = split.score(model, codes, truths, Measures((1,), neighbours=1))
        first = found[truths[0].name].values
        scores = {"nearest": found[NEAREST.name].values["MAP"], "PH2": first["PH2"]}
        if split.labels is not None:
            scores["label"] = first["MAP"]
        yield {"bits": bits, **{name: round(value, 4) for name, value in scores.items()}}


def worth(method: str, found: list[Parameters], known: list[Parameters]) -> float:
    """Return what a candidate's scores on a data set are worth beside those of the program."""
    result = 0.0
    for ours, theirs in zip(found, known, strict=True):
        gains = {
            name: ours[name] - theirs[name] for name in ("label", "nearest", "PH2") if name in ours
        }
        lacks = [max(0.0, -gain - (name != "label") * _SLACK) for name, gain in gains.items()]
        ranked = [gains[name] for name in gains if name == "label" or name == "nearest"]
        if HASHERS[method].learns_from:
            ranked = [gains["label"]]
        result += float(np.mean(ranked)) - _PRICE * sum(lacks)
    return result / len(found)


def _text(given: Parameters) -> str:
    return json.dumps(given, sort_keys=True)


def choose(method: str, lines: list[Parameters]) -> Parameters:
    """Return the candidate that is worth most, for each data set by the others, and by all."""
    scores: dict[str, dict[str, list[Parameters]]] = {}
    for line in lines:
        if line["method"] == method:
            scores.setdefault(line["dataset"], {})[_text(line["parameters"])] = line["scores"]
    program = _text(reference(method))
    ours = HASHERS[method]().get_params()
    given = ({name: ours[name] for name in one} for one in CANDIDATES[method])
    default = next(
        _text(one)
        for one, now in zip(CANDIDATES[method], given, strict=True)
        # Whether rows are scaled is a matter of the data.
        if one == now | {"normalize": one.get("normalize")} or one == now
    )
    candidates = [_text(given) for given in CANDIDATES[method]]
    worths = {
        name: {one: worth(method, found[one], found[program]) for one in candidates}
        for name, found in scores.items()
    }

    def best(names: list[str]) -> str:
        return max(candidates, key=lambda one: np.mean([worths[name][one] for name in names]))

    left_out = []
    for name, found in scores.items():
        # Both labels of packages are of the same rows.
        others = [other for other in scores if other.split(",")[0] != name.split(",")[0]]
        taken = best(others)
        left_out.append(
            {
                "dataset": name,
                "parameters": json.loads(taken),
                "scores": found[taken],
                "default": found[default],
                "program": found[program],
                "best": found[best([name])],
            }
        )
    return {"method": method, "chosen": json.loads(best(list(scores))), "left_out": left_out}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", metavar="METHOD", help=", ".join(CANDIDATES))
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    parser.add_argument("--output", type=Path, default=RESULTS / "defaults.json")
    args = parser.parse_args()
    lines: list[Parameters] = read(args.output).get("results", [])
    for method in args.methods or CANDIDATES:
        for name in DATASETS if not HASHERS[method].learns_from else DATASETS[:-1]:
            split = held_back(args.data, name)
            for given in [reference(method), *CANDIDATES[method]]:
                key = {"method": method, "dataset": name, "parameters": given}
                if any(all(line[part] == key[part] for part in key) for line in lines):
                    continue
                lines.append({**key, "scores": list(measure(split, method, given))})
                print(json.dumps(lines[-1]), flush=True)
            write(args.output, {"machine": machine(), "results": lines})
    chosen = [choose(method, lines) for method in {line["method"]: None for line in lines}]
    write(args.output, {"machine": machine(), "chosen": chosen, "results": lines})


if __name__ == "__main__":
    main()
