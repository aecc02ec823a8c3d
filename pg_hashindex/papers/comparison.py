"""Train, encode and score methods on one data set."""

import json
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HashIndexError, InvalidInputError
from ..hashers import HASHERS, Hasher, Preset, make_hasher
from ..hashers.supervision.labels import Labels
from ..metrics.ranking import spherical_ranking
from ..models.vectors import SparseRows
from ..quality.scores import Measures
from .loading import load_splits
from .methods import Method, default_methods
from .outcomes import Codes, Distance, Outcome, average
from .results import Results
from .splits import Split, Truth
from .validation import HeldBack

#: Takes a line on what was done.
Tell = Callable[[str], object]
_WARM_UP_ROWS = 500
_SUPERVISION = ("labelled", "graph", "graph_features", "triplets", "pairs")


def _silent(line: str) -> None:
    pass


@dataclass(frozen=True)
class Comparison:
    """Options of ``bench hash``: methods, rows and measures.

    Parameters
    ----------
    methods
        Hashers by the names of their lines; by default all that can learn from the data.
    parameters, choices
        By these names: parameters, and values to choose from, as `Method` takes them.
    preset
        Methods whose defaults differ from it have a second line with it.
    truths, fraction
        What is relevant; by default labels where there are some, else that part of the rows.
    seeds, splits
        Trainings on one split, or splits, each with a seed of its own from ``random_state`` on.
    rows
        What `load_splits` is to take beside the files.
    """

    methods: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    choices: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    preset: Preset = "default"
    bits: Sequence[int] = (32,)
    truths: Sequence[Truth] = ()
    fraction: float = 0.02
    measures: Measures = field(default_factory=Measures)
    seeds: int = 1
    splits: int = 1
    random_state: int = 0
    rows: Mapping[str, Any] = field(default_factory=dict)

    def run(
        self,
        data: Path,
        split: Path | None = None,
        *,
        kept: Path | None = None,
        tell: Tell = _silent,
    ) -> list[Outcome]:
        """Compare the methods on the rows of a file.

        Parameters
        ----------
        data, split
            As `load_splits` takes them.
        kept
            A file of measurements to add to; those it has are not measured again.

        Returns
        -------
        list of Outcome
            Means over seeds or splits.

        Raises
        ------
        InvalidInputError
            As `load_splits` and `compare` do; or a method of ``parameters`` or ``choices`` is not
            compared, or no method learns from a part of ``rows``.
        """
        if self.splits > 1 and self.seeds > 1:
            raise InvalidInputError(
                "give either splits, of which each has its own seed, or seeds of one split"
            )
        outcomes: list[Outcome] = []
        methods: list[Method] = []
        drawn = load_splits(
            data, split, splits=self.splits, random_state=self.random_state, **self.rows
        )
        for number, one in enumerate(drawn):
            if not number:
                tell(
                    f"{len(one.queries)} queries, {len(one.database)} database rows, "
                    f"{len(one.train)} training rows, {one.train.shape[1]} dimensions, "
                    f"{'no ' if one.labels is None else ''}labels"
                )
                methods = self.methods_of(one)
                if methods[0].labels == "labelled" and one.labelled is not None:
                    tell(f"the labels of {len(one.labelled)} training rows are known")
            if self.splits > 1:
                tell(f"split {number + 1} of {self.splits}")
            nearest, seed = Truth("nearest-fraction", self.fraction), self.random_state + number
            truths = self.truths or [nearest if one.labels is None else Truth("label")]
            if any(truth.file for truth in truths) and not isinstance(
                self.rows.get("queries"), Path
            ):
                raise InvalidInputError("a file of the truth is of the queries of a file: name it")
            how = {"file": split, "seed": seed, **self.rows}
            results = Results(kept, data, how, truths, self.measures) if kept else None
            outcomes += compare(
                one,
                methods,
                self.bits,
                truths=truths,
                measures=self.measures,
                random_state=seed,
                seeds=self.seeds,
                # Means keep the peak of the first seed.
                memory=not number,
                results=results,
                tell=tell,
            )
        return average(outcomes, splits=self.splits)

    def methods_of(self, split: Split) -> list[Method]:
        """Return the methods that are compared on a split."""
        named = self.methods or {name: name for name in default_methods(split, self.bits)}
        few = any(self.rows.get(part) is not None for part in ("labelled", "protocol"))
        found = []
        for name, hasher in named.items():
            for preset in self._presets(hasher):
                shown = name if preset == "default" else f"{name} ({preset})"
                found.append(
                    Method(
                        hasher,
                        self.parameters.get(name, {}),
                        shown,
                        labels="labelled" if few and split.labelled is not None else "all",
                        preset=preset,
                        choices=self.choices.get(shown, {}),
                    )
                )
        lines = [method.name for method in found]
        for given, known in ((self.parameters, [*named]), (self.choices, lines)):
            if strangers := [name for name in given if name not in known]:
                raise InvalidInputError(
                    f"a parameter is for {strangers[0]!r}, which is not compared; compared are "
                    + ", ".join(known)
                )
        for part in _SUPERVISION:
            what = "labels" if part == "labelled" else part
            useful = any(HASHERS[method.hasher].takes(what) for method in found)
            if self.rows.get(part) is not None and not useful:
                raise InvalidInputError(
                    f"{part} has no effect: none of the methods compared learns from it; compared "
                    f"are {', '.join(lines)}"
                )
        return found

    def _presets(self, hasher: str) -> list[Preset]:
        """Return the default, and the preset that was asked for if it differs from the default."""
        kind = type(make_hasher(hasher))
        if self.preset == "paper" and self.methods:
            # Refuse a method that was named and has no paper.
            kind.paper()
        known = {"paper": kind.paper_parameters, "program": kind.program_parameters}
        return ["default", self.preset] if known.get(self.preset) else ["default"]

    @property
    def options(self) -> str:
        """The options of ``bench hash`` that ask for it, as far as the figures of papers do."""
        labelled = self.rows.get("labelled")
        words = [] if labelled is None else ["--labelled"]
        words += [] if labelled in (None, "labelled") else [str(labelled)]
        names = (n if n == hasher else f"{n}={hasher}" for n, hasher in self.methods.items())
        words += ["--methods", ",".join(names)]
        for name, given in self.parameters.items():
            words += [f"--param {name}.{key}={_text(value)}" for key, value in given.items()]
        for name, values in self.choices.items():
            words += [f"--validate {name}.{k}={','.join(map(_text, v))}" for k, v in values.items()]
        words += ["--bits", _listed(self.bits)]
        words += [f"--truth {truth.kind}" for truth in self.truths]
        words += ["--top", _listed(self.measures.top)] if self.measures.top else []
        words += ["-k", _listed(self.measures.k)]
        return " ".join([*words, *([f"--seeds {self.seeds}"] if self.seeds > 1 else [])])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def compare(
    split: Split,
    methods: Sequence[Method],
    bits: Sequence[int],
    *,
    truths: Sequence[Truth],
    measures: Measures | None = None,
    random_state: int = 0,
    seeds: int = 1,
    memory: bool = True,
    results: Results | None = None,
    tell: Tell = _silent,
) -> Iterator[Outcome]:
    """Train each method at each number of bits, encode the queries and the database, and score.

    With the first seed each method is trained twice, to measure times and then memory, unless
    ``memory`` is false. If a method learned from the rows of the database and keeps their codes, a
    second outcome has the database with these codes. `sph` has a second outcome too,
    ranked by the distance of its paper. A transductive method, which has codes only for its
    training rows, learns from all rows of the database and from the queries, without labels; it has
    one outcome, with the codes from training. Parameters with several values to choose from are
    chosen at each number of bits, by the first truth and with the first seed.

    Parameters
    ----------
    random_state
        Seed of every training.
    seeds
        Train each method with this number of seeds, from ``random_state`` on; `average` joins them.
    memory
        Measure memory, by a second training with the first seed.
    results
        Outcomes to add to; those it has are not measured again.
    tell
        Takes a line on each training.

    Yields
    ------
    Outcome
        Outcomes, as they are ready. If a method fails, its outcome has the error, and the others
        continue.

    Raises
    ------
    InvalidInputError
        Before any work, if there is no such method or parameter, a truth or measure does not fit
        the data, or the split lacks what a method is to learn from.
    """
    if seeds < 1:
        raise InvalidInputError(f"seeds must be 1 or more, got {seeds}")
    measures = measures or Measures()
    measures.check(len(split.database))
    methods = [method.with_anchors(split) for method in methods]
    for method in methods:
        method.make(1, random_state)
        for variant in method.variants() if method.choices else ():
            variant.make(bits[0], random_state).check_parameters()
    for truth in truths:
        split.relevant(truth)
    held_back = {
        method.name: HeldBack.of(split, method, truths[0], random_state)
        for method in methods
        if method.choices
    }

    def trained(method: Method, n_bits: int) -> Iterator[Outcome]:
        chosen = method
        tried: list[dict[str, Any]] = []
        for seed in range(random_state, random_state + seeds):
            what = f"{method.name}, {n_bits} bits"
            outcome = Outcome(method.name, n_bits, seed, ties=measures.ties)
            if results is not None and (known := results.known(method, n_bits, seed)):
                tell(f"{what}: known from {results.path}")
                chosen = method.with_chosen(known[0].chosen)
                tried = list(map(dict, known[0].tried))
                yield from known
                continue
            try:
                if method.choices and seed == random_state:
                    rows = held_back[method.name]
                    chosen, tried = rows.choose(method, n_bits, measures, random_state)
                values = {key: chosen.parameters[key] for key in method.choices}
                outcome = replace(outcome, chosen=values, tried=tried)
                first = memory and seed == random_state
                found = list(_run(split, chosen, outcome, truths, measures, with_memory=first))
            # Whatever error a method raises, compare the others.
            except Exception as error:
                tell(f"{what}: failed")
                yield replace(outcome, error=_reason(error))
                return
            said = "".join(f", {key} = {value}" for key, value in values.items())
            rows_and_time = f"{found[0].train_rows} rows in {found[0].train_wall_s:.1f} s"
            tell(f"{what}{said}: trained on {rows_and_time}")
            if results is not None:
                results.add(method, n_bits, seed, found)
            yield from found

    def outcomes() -> Iterator[Outcome]:
        _warm_up(split)
        for method in methods:
            for n_bits in bits:
                yield from trained(method, n_bits)

    # The checks above refuse what cannot work before the first outcome is asked for.
    return outcomes()


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, HashIndexError) else f"{type(error).__name__}: {text}"


def _warm_up(split: Split) -> None:
    """Train once before measuring: the first time loads libraries and starts their threads."""
    with suppress(HashIndexError):
        make_hasher("sgh", n_bits=8, random_state=0).fit(split.train[:_WARM_UP_ROWS])


def _run(
    split: Split,
    method: Method,
    outcome: Outcome,
    truths: Sequence[Truth],
    measures: Measures,
    *,
    with_memory: bool,
) -> Iterator[Outcome]:
    hasher = method.make(outcome.n_bits, outcome.seed)
    transductive = hasher.transductive
    X, y, known = method.fit_arguments(split, hasher)
    wall, cpu = time.perf_counter(), time.process_time()
    hasher.fit(X, y, **known)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    trained = replace(outcome, train_rows=len(X), train_wall_s=wall, train_cpu_s=cpu)
    if with_memory:
        again = method.make(outcome.n_bits, outcome.seed)
        peak = _peak_memory(lambda: again.fit(X, y, **known))
        trained = replace(trained, train_peak_bytes=peak)
    model = hasher.to_model(method.hasher)
    plain: Distance = "hamming" if model.bit_weights is None else "weighted"
    wall, cpu = time.perf_counter(), time.process_time()
    hashed = model.encode(split.database)
    encoded = replace(
        trained,
        encode_wall_s=time.perf_counter() - wall,
        encode_cpu_s=time.process_time() - cpu,
        distance=plain,
        parameters=dict(model.parameters),
    )
    made: dict[Codes, NDArray[np.uint8] | None] = {"learned" if transductive else "hashed": hashed}
    if not transductive:
        made["learned"] = _learned(split, hasher, y, hashed)
    for name, codes in made.items():
        if codes is not None:
            scores = split.score(model, codes, truths, measures)
            yield replace(encoded, codes=name, scores=scores)
    if method.hasher == "sph":
        scores = split.score(model, hashed, truths, measures, spherical_ranking)
        yield replace(encoded, distance="spherical", scores=scores)


def _peak_memory(train: Callable[[], object]) -> int:
    """Return the peak of bytes that training allocates; tracing slows it down."""
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0]
    try:
        train()
        return tracemalloc.get_traced_memory()[1] - held
    finally:
        if not already:
            tracemalloc.stop()


def _learned(
    split: Split,
    hasher: Hasher,
    y: NDArray[np.integer] | SparseRows | None,
    hashed: NDArray[np.uint8],
) -> NDArray[np.uint8] | None:
    """Return the codes of the database from training, if the method learned from all of it."""
    learned = getattr(hasher, "codes_", None)
    places = split.train_places
    if learned is None or places is None or len(places) < len(split.database):
        return None
    if y is not None and "labels" in hasher.learns_from:
        places = places[Labels.read(y, y.shape[0]).labelled]
    if len(learned) != len(places):
        return None
    # Rows without a label have no learned code, and keep their hashed one.
    result = hashed.copy()
    result[places] = learned
    return result
