"""Measure the methods beside their authors' programs, and what their settings do.

    OMP_NUM_THREADS=1 python benchmarks/papers.py NAME [KEY=VALUE,...] [--quick]
    python benchmarks/tables.py

The figures of the papers are made by `pg-hashindex bench paper`. NAME is one of these tables:

- hashing: all methods by the protocol of `reference_scores.csv`, beside the scores of the authors'
  programs: 1,000 queries, 10,000 training rows; MAP over the whole ranking, ties in row order. The
  100 queries of sift10k are rows of its base: the other 9,900 are the database and trained on.
- presets: `part=changes` has the preset `paper` or `program`, it with one default at a time, and
  the default; `part=reference` the programs' settings beside the reference; `part=tasks` SADIH and
  SDH where classes are unequal, labels wrong or several, or bits few.
- defaults: candidates for defaults, trained on training rows and ranking 500 others. A candidate's
  worth on a data set is its mean gain over the program in MAP (by label, or without labels of the
  nearest 2 %), less five times what it lacks: of the program's label MAP, and beyond .02 of its MAP
  of the nearest 2 % and its PH2. For each data set the candidate is taken that is worth most on the
  others (`left_out`); `chosen` is worth most on all.

`KEY=VALUE,...` takes only some, such as dataset=usps method=itq,lsh bits=32. Each measurement is
saved at once in benchmarks/results, and what is there is not measured again, unless settings have
changed.
"""

import argparse
import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import papers_data as data_of
import papers_methods as methods_of
from common import DATA_FOLDER, RESULTS, machine, made_with, read, scratch, write

from pg_hashindex.hashers import HASHERS, Hasher
from pg_hashindex.papers import Measures, Method, Outcome, Split, Truth, average, compare

Record = dict[str, Any]
REFERENCES = {"mnist": "mnist70k_q1000_tr10k", "usps": "usps11k_q1000_tr10k"}
LABEL, NEAREST = Truth("label"), Truth("nearest-fraction", 0.02)
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
COSTS = ("train_wall_s", "train_cpu_s", "encode_wall_s", "encode_cpu_s")
QUICK_ROWS = 2_000


@dataclass(frozen=True)
class Part:
    """One line of results: a method on rows that may depend on the seed."""

    key: Record
    method: Method
    split: Callable[[int], Split]
    seeds: Sequence[int] = (0,)
    theirs: Record | None = None
    #: Whether each seed has rows of its own, or chooses parameters by itself.
    each: bool = False

    def outcomes(self, measures: Measures) -> Iterator[Outcome]:
        """Train and score with all seeds."""
        runs = self.seeds if self.each else self.seeds[:1]
        for seed in runs:
            split = self.split(seed)
            truths = [LABEL, NEAREST] if split.labels is not None else [NEAREST]
            yield from compare(
                split,
                [self.method],
                [self.key["bits"]] if "bits" in self.key else [32, 64],
                truths=truths,
                measures=measures,
                random_state=seed,
                seeds=len(self.seeds) // len(runs),
                memory=not self.each,
            )

    def lines(self, measures: Measures) -> Iterator[Record]:
        """Return the means over seeds, a line for each kind of codes and distance."""
        found = list(self.outcomes(measures))
        for mean in average(found):
            key = self.key | {"codes": mean.codes}
            # In the reference, the hash function makes the codes of the database.
            theirs = self.theirs if mean.codes == "hashed" else None
            if mean.error is not None:
                yield key | {"error": mean.error, "reference": theirs}
                continue
            seeds = [o for o in found if (o.codes, o.distance) == (mean.codes, mean.distance)]
            runs = [values(one) for one in seeds]
            table = {name: np.array([run[name] for run in runs]) for name in runs[0]}
            scores = {name: round(float(column.mean()), 4) for name, column in table.items()}
            if not self.each:
                scores["train_peak_mb"] = round(mean.train_peak_bytes / 1e6, 4)
            line = {
                "distance": mean.distance,
                "train_rows": mean.train_rows,
                "seeds": len(runs),
                "scores": scores,
                "standard_deviation": {n: round(float(c.std()), 4) for n, c in table.items()},
                "reference": theirs,
                **made_with(self.method),
            }
            if theirs is not None:
                line["difference"] = {n: round(scores[n] - theirs[n], 4) for n in COMPARED}
            if self.method.choices:
                line["chosen"] = [one.chosen for one in seeds]
            yield key | line


def values(outcome: Outcome) -> Record:
    """Return all measurements by their names in the JSON."""
    scores = {
        name: outcome.scores[truth.name].values[measure]
        for name, (truth, measure) in SCORES.items()
        if measure in getattr(outcome.scores.get(truth.name), "values", ())
    }
    return scores | {name: getattr(outcome, name) for name in COSTS}


def reference() -> dict[tuple[str, str, int], Record]:
    """Read the scores of the authors' programs, by data set, method and bits."""
    with (DATA_FOLDER / "reference_scores.csv").open() as file:
        return {
            (row["dataset"], row["method"], int(row["bits"])): {
                measure: float(row[measure]) for measure in (*COMPARED, *COSTS[:2])
            }
            for row in csv.DictReader(file)
        }


def hashing(quick: int | None) -> Iterator[Part]:
    known = reference()
    for data in ("mnist", "usps", "sift10k", "packages"):
        split = data_of.read_split(data, quick)
        for entrant in methods_of.ENTRANTS.values():
            rows = data_of.on_database(split) if entrant.on_database else split
            for bits in entrant.bits.get(data, ()):
                theirs = known.get((REFERENCES.get(data, ""), entrant.reference, bits))
                key = {"dataset": data, "method": entrant.name, "bits": bits}
                seeds = range(entrant.seeds)
                yield Part(key, entrant.method, lambda _, rows=rows: rows, seeds, theirs)


# Parameters that only change together.
TOGETHER = {"s3plh": [("step", "step_by")], "cghash": [("max_triplets", "max_rows")]}
SEEDS = {"sdh": 3, "itq": 5, "bgdh": 5}
VARIANTS = {
    "sdh": ("sdh", {}),
    "sdh, spread start": ("sdh", {"start": "spread"}),
    "sadih l1": ("sadih", {"loss": "l1"}),
    "sadih l21": ("sadih", {"loss": "l21"}),
}


def presets(quick: int | None) -> Iterator[Part]:
    for data in ("usps", "mnist"):
        split = data_of.read_split(data, quick)
        yield from changes(data, split)
        yield from beside_reference(data, split)
        yield from tasks(data, quick)
    yield from tasks("packages", quick)


def changes(data: str, split: Split) -> Iterator[Part]:
    fixed = {"anchors": "split", "n_anchors": 1000, "normalize": "l2"}
    for method in ("itq", "usplh", "s3plh", "sdh", "sadih", "cghash", "bgdh"):
        parameters = fixed if method in ("sdh", "sadih") else {}
        labels = "labelled" if method in ("s3plh", "bgdh") else "all"
        for loss in ({"loss": "l1"}, {"loss": "l21"}) if method == "sadih" else ({},):
            name = " ".join([method, *loss.values()])
            for change, preset, given in changed(HASHERS[method]):
                tried = Method(method, {**parameters, **given, **loss}, name, labels, preset=preset)
                for bits in (32, 64) if change in (preset, "default") else (32,):
                    key = {"part": "changes", "dataset": data, "method": name, "bits": bits}
                    seeds = range(SEEDS.get(method, 1))
                    yield Part(key | {"change": change}, tried, lambda _: split, seeds, each=True)


def changed(kind: type[Hasher]) -> Iterator[tuple[str, Any, Record]]:
    """Yield each preset, it with one default at a time, and the default, as parameters."""
    ours = kind().get_params()
    known = {"paper": kind.paper_parameters, "program": kind.program_parameters}
    for preset, parameters in known.items():
        if not parameters:
            continue
        groups = [*TOGETHER.get(kind.method, [])]
        groups += [(name,) for name in parameters if not any(name in group for group in groups)]
        yield preset, preset, {}
        for group in groups if len(groups) > 1 else []:
            values = {name: ours[name] for name in group}
            words = ", ".join(f"{name}={value!r}" for name, value in values.items())
            yield f"{preset} with `{words}`", preset, values
    yield "default", "default", {}


def beside_reference(data: str, split: Split) -> Iterator[Part]:
    # The program's settings come after the defaults.
    entrants = {one.reference: one for one in methods_of.ENTRANTS.values() if one.reference}
    entrants["SGH_full"] = replace(entrants["SGH"], seeds=1, on_database=True)
    for (whole, theirs, bits), scores in reference().items():
        if whole == REFERENCES[data]:
            entrant = entrants[theirs]
            rows = data_of.on_database(split) if entrant.on_database else split
            method = replace(entrant.method.with_anchors(split), name=theirs)
            if entrant.preset == "default":
                method = replace(method, preset="paper")
            key = {"part": "reference", "dataset": data, "method": theirs, "bits": bits}
            seeds = range(min(entrant.seeds, 5))
            yield Part(key, method, lambda _, rows=rows: rows, seeds, scores, each=True)


def tasks(data: str, quick: int | None) -> Iterator[Part]:
    found: list[tuple[str, Callable[[int], Split], tuple[int, ...]]] = []
    if data == "packages":
        for words, several in (("sections", False), ("sections and first words", True)):
            found.append(
                (words, lambda s, m=several: data_of.packages(s, several=m, quick=quick), (16, 32))
            )
    else:
        rows = data_of.smaller(data_of.read_split(data, quick))
        found = [
            ("thinned to 1:10", lambda seed: data_of.thinned(rows, seed), (8, 16, 32)),
            ("40 % wrong labels", lambda seed: data_of.noisy(rows, seed, 0.4), (16,)),
            ("20 % wrong labels", lambda seed: data_of.noisy(rows, seed, 0.2), (16,)),
            ("as it is", lambda _: rows, (8, 12, 16)),
        ]
    for task, split, bits in found:
        for n_bits in bits:
            for name, (method, given) in VARIANTS.items():
                key = {"part": "tasks", "dataset": data, "task": task, "bits": n_bits}
                tried = Method(method, {"normalize": "l2", **given}, name)
                yield Part(key | {"method": name}, tried, split, (0, 1), each=True)


# Defaults -----------------------------------------------------------------------------------------


def program_of(method: str) -> Record:
    """Return the settings that candidates are measured against, whatever the defaults are."""
    kind = HASHERS[method]
    made = kind.paper() if kind.program_parameters is None else kind.program()
    tried = {name for one in methods_of.CANDIDATES[method] for name in one}
    names = {*(kind.program_parameters or ()), *tried}
    return {name: value for name, value in made.get_params().items() if name in names}


def defaults(quick: int | None) -> Iterator[Part]:
    sets = ("usps", "packages", "packages, several labels", "mnist", "sift10k")
    for method in methods_of.CANDIDATES:
        for data in sets[:-1] if HASHERS[method].learns_from else sets:
            for given in (program_of(method), *methods_of.CANDIDATES[method]):
                labels = "labelled" if method == "s3plh" else "all"
                key = {"method": method, "dataset": data, "parameters": given}
                tried = Method(method, given, labels=labels)
                yield Part(key, tried, lambda _, d=data: data_of.held_back(d, quick), each=True)


def worth(method: str, found: list[Record], program: list[Record]) -> float:
    """Return what a candidate's scores on a data set are worth beside those of the program."""
    result = 0.0
    for ours, theirs in zip(found, program, strict=True):
        gains = {n: ours[n] - theirs[n] for n in ("label", "nearest", "PH2") if n in ours}
        lacks = [max(0.0, -gain - (name != "label") * 0.02) for name, gain in gains.items()]
        ranked = [gains[name] for name in gains if name == "label" or name == "nearest"]
        if HASHERS[method].learns_from:
            ranked = [gains["label"]]
        result += float(np.mean(ranked)) - 5.0 * sum(lacks)
    return result / len(found)


def choose(method: str, lines: list[Record]) -> Record:
    """Return the candidate that is worth most, for each data set by the others, and by all."""
    scores: dict[str, dict[str, list[Record]]] = {}
    for line in lines:
        if line["method"] == method:
            scores.setdefault(line["dataset"], {})[_text(line["parameters"])] = line["scores"]
    program, ours = _text(program_of(method)), HASHERS[method]().get_params()
    # Whether rows are scaled is a matter of the data.
    fixed = {"normalize"}
    default = next(
        _text(one)
        for one in methods_of.CANDIDATES[method]
        if all(ours[name] == value for name, value in one.items() if name not in fixed)
    )
    candidates = [_text(given) for given in methods_of.CANDIDATES[method]]
    worths = {
        data: {one: worth(method, found[one], found[program]) for one in candidates}
        for data, found in scores.items()
    }

    def best(names: Sequence[str]) -> str:
        return max(candidates, key=lambda one: np.mean([worths[name][one] for name in names]))

    left_out = []
    for data, found in scores.items():
        # Both labels of packages are of the same rows.
        taken = best([name for name in scores if name.split(",")[0] != data.split(",")[0]])
        of_data = {"scores": taken, "default": default, "program": program, "best": best([data])}
        left_out.append(
            {"dataset": data, "parameters": json.loads(taken)}
            | {name: found[one] for name, one in of_data.items()}
        )
    return {"method": method, "chosen": json.loads(best([*scores])), "left_out": left_out}


def _text(given: Record) -> str:
    return json.dumps(given, sort_keys=True)


# Running ------------------------------------------------------------------------------------------

FIRST = Measures((50, 100))
#: Parts and measures of each table.
TABLES: dict[str, tuple[Callable[[int | None], Iterator[Part]], Measures]] = {
    "hashing": (hashing, FIRST),
    "presets": (presets, FIRST),
    "defaults": (defaults, Measures((1,))),
}


def scores_of_candidate(part: Part, measures: Measures) -> Record:
    """Return the scores of a candidate for defaults at each number of bits."""
    scores = []
    for outcome in part.outcomes(measures):
        found = {name: one.values for name, one in outcome.scores.items()}
        first = found.get(LABEL.name, found[NEAREST.name])
        one = {"nearest": found[NEAREST.name]["MAP"], "PH2": first["PH2"]}
        if LABEL.name in found:
            one["label"] = first["MAP"]
        scores.append({"bits": outcome.n_bits} | {n: round(value, 4) for n, value in one.items()})
    return part.key | {"scores": scores}


def run_table(name: str, only: Mapping[str, Sequence[str]], quick: int | None) -> Path:
    """Measure what a table lacks, and save each line."""
    make_parts, measures = TABLES[name]
    path = scratch(f"{name}_quick.json") if quick else RESULTS / f"{name}.json"
    lines: list[Record] = read(path).get("results", [])
    for part in make_parts(quick):
        if any(str(part.key.get(key)) not in values for key, values in only.items()):
            continue
        same = [line for line in lines if all(line.get(k) == v for k, v in part.key.items())]
        if same and all(current(line, part.method) for line in same):
            continue
        place = lines.index(same[0]) if same else len(lines)
        scored = [scores_of_candidate(part, measures)] if name == "defaults" else None
        new = scored or list(part.lines(measures))
        lines[place : place + len(same)] = new
        for line in new:
            print(json.dumps(line), flush=True)
        write(path, read(path) | {"machine": machine(), "results": lines})
    if name == "defaults" and not only and not quick:
        chosen = [choose(method, lines) for method in methods_of.CANDIDATES]
        write(path, read(path) | {"chosen": chosen})
    return path


def current(line: Record, method: Method) -> bool:
    """Whether a line was measured as it would be now."""
    made = made_with(method)
    return "error" not in line and all(line.get(key, value) == value for key, value in made.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=[*TABLES], metavar="NAME")
    parser.add_argument("only", nargs="*", metavar="KEY=VALUE,...")
    parser.add_argument("--quick", action="store_true", help="on 2,000 rows, into another file")
    args = parser.parse_args()
    only = {key: words.split(",") for key, _, words in (o.partition("=") for o in args.only)}
    path = run_table(args.name, only, QUICK_ROWS if args.quick else None)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
