"""Measure the presets beside the defaults, one change at a time; and where SADIH helps.

    OMP_NUM_THREADS=1 python benchmarks/presets.py [--parts changes reference tasks lengths]

- changes: for each method whose defaults depart from its paper or its authors' program, the preset
  `paper` or `program`, the preset with one of our defaults at a time, and the default; the splits
  of `hashing.py`. What a paper chooses by cross-validation is chosen so.
- reference: each row of `reference_scores.csv` beside the preset `program`, or `paper` where the
  program has no settings of its own.
- tasks: SADIH and SDH where classes are unequal, labels wrong or several, or bits few.
- lengths: SADIH with P1 as in its paper, 8 to 128 bits, the database with the codes of the
  training.

Results are kept: what `benchmarks/results/presets.json` already has is not measured again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from common import DATA_FOLDER, RESULTS, machine, made_with, read, write
from hashing import COMPARED, MEASURES, NEAREST, REFERENCES, SCORES, read_split, reference
from hashing_entrants import ENTRANTS, Entrant, on_database

from pg_hashindex.hashers import HASHERS, Hasher, Preset
from pg_hashindex.papers import Method, Split, Truth, average, compare

LABEL = Truth("label")
# Parameters that only change together.
TOGETHER = {"s3plh": [("step", "step_by")], "cghash": [("max_triplets", "max_rows")]}
SEEDS = {"sdh": 3, "itq": 5, "bgdh": 2}
MOST_SEEDS = 5
LENGTHS = (8, 16, 32, 64, 96, 128)


class Results:
    """Measurements, kept in a file after each line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: list[dict[str, Any]] = read(path).get("results", [])

    def add(
        self,
        key: dict[str, Any],
        split: Callable[[int], Split],
        method: Method,
        seeds: int,
        theirs: Mapping[str, float] | None = None,
    ) -> None:
        """Measure over seeds, unless it is known; beside the scores of the authors' program."""
        made = made_with(method)
        measured = [line for line in self.lines if key.items() <= line.items()]
        if measured and all(made.items() <= line.items() for line in measured):
            return
        self.lines = [line for line in self.lines if line not in measured]
        outcomes = [
            outcome
            for seed in range(seeds)
            for outcome in compare(
                split(seed),
                [method],
                [key["bits"]],
                truths=[LABEL, NEAREST],
                measures=MEASURES,
                random_state=seed,
                memory=False,
            )
        ]
        for one in average(outcomes):
            if one.error is not None:
                raise RuntimeError(one.error)
            scores = one.scores[LABEL.name].values
            deviation = one.standard_deviation.get("scores", {}).get(LABEL.name)
            line = {
                **key,
                **made,
                "codes": one.codes,
                "seeds": seeds,
                "MAP": round(scores["MAP"], 4),
            }
            line["spread"] = round(deviation["MAP"], 4) if deviation else 0.0
            line |= {name: round(scores[name], 4) for name in ("P@100", "PH2")}
            line["nearest MAP"] = round(one.scores[NEAREST.name].values["MAP"], 4)
            if theirs is not None:
                found = {part: one.scores[SCORES[part][0].name].values for part in COMPARED}
                line["difference"] = {
                    part: round(found[part][SCORES[part][1]] - theirs[part], 4) for part in COMPARED
                }
            if method.choices:
                line["chosen"] = [o.chosen for o in outcomes if o.codes == one.codes]
            line["train_cpu_s"] = round(one.train_cpu_s, 4)
            self.lines.append(line)
            print(json.dumps(line), flush=True)
        write(self.path, {"machine": machine(), "results": self.lines})


def changes(kind: type[Hasher]) -> Iterator[tuple[str, Preset, dict[str, Any]]]:
    """Yield each preset, it with one default at a time, and the default, as parameters."""
    ours = kind().get_params()
    known: dict[Preset, Mapping[str, Any] | None] = {
        "paper": kind.paper_parameters,
        "program": kind.program_parameters,
    }
    for preset, parameters in known.items():
        if not parameters:
            continue
        groups = [*TOGETHER.get(kind.method, [])]
        groups += [(name,) for name in parameters if not any(name in group for group in groups)]
        yield preset, preset, {}
        for group in groups if len(groups) > 1 else []:
            changed = {name: ours[name] for name in group}
            words = ", ".join(f"{name}={value!r}" for name, value in changed.items())
            yield f"{preset} with `{words}`", preset, changed
    yield "default", "default", {}


def run_changes(results: Results, data: Path, datasets: list[str], methods: list[str]) -> None:
    for name in datasets:
        split = read_split(data, name)
        fixed: dict[str, Any] = {"anchors": split.train[split.anchors[:1000]], "normalize": "l2"}
        for method in methods:
            parameters = fixed if method in ("sdh", "sadih") else {}
            labels = "labelled" if method in ("s3plh", "bgdh") else "all"
            losses = [{"loss": "l1"}, {"loss": "l21"}] if method == "sadih" else [{}]
            for loss in losses:
                for change, preset, given in changes(HASHERS[method]):
                    for bits in (32, 64) if change in (preset, "default") else (32,):
                        words = " ".join([method, *loss.values()])
                        key = {"part": "changes", "dataset": name, "method": words, "bits": bits}
                        tried = Method(
                            method,
                            {**parameters, **given, **loss},
                            words,
                            labels=labels,
                            preset=preset,
                        )
                        key["change"] = change
                        seeds = SEEDS.get(method, 1)
                        results.add(key, lambda _, split=split: split, tried, seeds)


def run_reference(results: Results, data: Path, datasets: list[str]) -> None:
    # The program's settings come after the defaults.
    entrants = {one.reference: one for one in ENTRANTS.values() if one.reference}
    entrants["SGH_full"] = replace(entrants["SGH"], seeds=1, on_database=True)
    for name in datasets:
        split = read_split(data, name)
        for (whole, theirs, bits), scores in reference(data).items():
            if whole == REFERENCES[name]:
                entrant = as_program(entrants[theirs])
                key = {"part": "reference", "dataset": name, "method": theirs, "bits": bits}
                rows = entrant.split(split)
                tried = replace(entrant.method.with_anchors(rows), name=theirs)
                seeds = min(entrant.seeds, MOST_SEEDS)
                results.add(key, lambda _, rows=rows: rows, tried, seeds, scores)


def as_program(entrant: Entrant) -> Entrant:
    """Return an entrant with the preset `paper` instead of the default."""
    return replace(entrant, preset="paper") if entrant.preset == "default" else entrant


def thinned(split: Split, seed: int) -> Split:
    """Thin the training rows: classes keep from all of their rows to a tenth, geometrically."""
    rng = np.random.default_rng(seed)
    y = split.train_labels
    classes = rng.permutation(np.unique(y))
    share = dict(zip(classes, np.geomspace(1, 0.1, len(classes)), strict=True))
    kept = rng.random(len(y)) < np.array([share[label] for label in y])
    return replace(split, train=split.train[kept], train_labels=y[kept], train_places=None)


def noisy(split: Split, seed: int, share: float) -> Split:
    """Give a share of the training rows a label drawn at random."""
    rng = np.random.default_rng(seed)
    y = np.array(split.train_labels)
    wrong = rng.random(len(y)) < share
    y[wrong] = rng.choice(np.unique(y), wrong.sum())
    return replace(split, train_labels=y, train_places=None)


def packages(data: Path, seed: int, several: bool) -> Split:
    """Sections of packages; or sections and the first words of names that 100 or more share."""
    with np.load(data / "packages.npz") as archive:
        X, sections, names = (archive[part] for part in ("X", "section", "name"))
    order = np.random.default_rng(seed).permutation(len(X))
    y: Any = np.unique(sections, return_inverse=True)[1]
    if several:
        first = [name.split("-")[0] for name in names.tolist()]
        words = {w: i for i, (w, n) in enumerate(Counter(first).most_common()) if n >= 100}
        known = np.flatnonzero([word in words for word in first])
        lines = np.concatenate([np.arange(len(y)), known])
        columns = np.concatenate([y, y.max() + 1 + np.array([words[first[k]] for k in known])])
        shape = (len(y), y.max() + 1 + len(words))
        y = scipy.sparse.csr_array((np.ones(len(lines), np.int8), (lines, columns)), shape=shape)
    numbers = {"query": order[:1000], "database": order[1000:21_000], "train": order[1000:11_000]}
    return Split.of(X.astype(np.float32), y, numbers=numbers)


def smaller(split: Split) -> Split:
    """Keep 500 queries, the training rows, and 10,000 others of a large database."""
    split = replace(split, queries=split.queries[::2], query_labels=split.query_labels[::2])
    if len(split.database) < 20_000:
        return split
    others = np.setdiff1d(np.arange(len(split.database)), split.train_places)
    kept = np.concatenate([split.train_places, others[:: len(others) // 10_000]])
    return replace(
        split,
        database=split.database[kept],
        labels=split.labels[kept],
        train_places=np.arange(len(split.train_places)),
    )


VARIANTS = {
    "sdh": ("sdh", {}),
    "sdh, spread start": ("sdh", {"start": "spread"}),
    "sadih l1": ("sadih", {"loss": "l1"}),
    "sadih l21": ("sadih", {"loss": "l21"}),
}


def run_tasks(results: Results, data: Path, datasets: list[str]) -> None:
    tasks: list[tuple[str, str, Callable[[int], Split], tuple[int, ...]]] = []
    for name in datasets:
        if name == "packages":
            for words, several in (("sections", False), ("sections and first words", True)):
                tasks.append((name, words, lambda s, m=several: packages(data, s, m), (16, 32)))
            continue
        whole = smaller(read_split(data, name))
        tasks += [
            (name, "thinned to 1:10", lambda s, w=whole: thinned(w, s), (8, 16, 32)),
            (name, "40 % wrong labels", lambda s, w=whole: noisy(w, s, 0.4), (16,)),
            (name, "20 % wrong labels", lambda s, w=whole: noisy(w, s, 0.2), (16,)),
            (name, "as it is", lambda _, w=whole: w, (8, 12, 16)),
        ]
    for name, task, split, lengths in tasks:
        for bits in lengths:
            for words, (method, parameters) in VARIANTS.items():
                key = {"part": "tasks", "dataset": name, "task": task, "bits": bits}
                tried = Method(method, {"normalize": "l2", **parameters}, words)
                results.add(key | {"method": words}, split, tried, 2)


def run_lengths(results: Results, data: Path, datasets: list[str]) -> None:
    of_text = {"hash_function": "encoder", "balance": False, "start": "random"}
    for name in datasets:
        split = on_database(smaller(read_split(data, name)))
        for loss in ("l1", "l21"):
            for bits in LENGTHS:
                for given in (of_text,) if loss == "l21" else (of_text, {}):
                    words = f"sadih {loss}" + (" (P1)" if given else "")
                    key = {"part": "lengths", "dataset": name, "method": words, "bits": bits}
                    tried = Method("sadih", {"loss": loss, "normalize": "l2", **given}, words)
                    results.add(key, lambda _, split=split: split, tried, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ("changes", "reference", "tasks", "lengths")
    methods = ("itq", "usplh", "s3plh", "sdh", "sadih", "cghash", "bgdh")
    datasets = ("usps", "mnist", "packages")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER)
    parser.add_argument("--output", type=Path, default=RESULTS / "presets.json")
    parser.add_argument("--parts", nargs="+", choices=parts, default=parts)
    parser.add_argument("--datasets", nargs="+", choices=datasets, default=datasets)
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods)
    args = parser.parse_args()
    results = Results(args.output)
    images = [name for name in args.datasets if name != "packages"]
    if "changes" in args.parts:
        run_changes(results, args.data, images, args.methods)
    if "reference" in args.parts:
        run_reference(results, args.data, images)
    if "tasks" in args.parts:
        run_tasks(results, args.data, args.datasets)
    if "lengths" in args.parts:
        run_lengths(results, args.data, images)


if __name__ == "__main__":
    main()
