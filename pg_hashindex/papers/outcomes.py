"""Train, encode and score methods on one data set."""

import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import HashIndexError, InvalidInputError
from ..hashers import Hasher, make_hasher
from ..hashers.supervision.labels import Labels
from ..metrics.ranking import spherical_ranking
from ..models.quantization import Levels, Ranking
from ..models.vectors import SparseRows
from ..quality.scores import Measures, Scores
from .methods import Method
from .splits import Split, Truth
from .validation import HeldBack

if TYPE_CHECKING:
    from .results import Results

#: Codes of the database: made by the hash function, or by training.
Protocol = Literal["hashed", "learned"]
#: What codes are ranked by: a ranking of searches, or the distance of the paper on SpH.
Distance = Ranking | Literal["spherical"]


@dataclass(frozen=True)
class Outcome:
    """The result of a method at one number of bits.

    Attributes
    ----------
    n_bits
        Projections of a row; a code has as many bits, with 4 levels twice as many.
    error
        Why there are no scores.
    codes
        "hashed" if the hash function made the codes of the database, as for queries; "learned" if
        training made them, since the method learned from the database. With a transductive method,
        codes of queries are "learned" too.
    distance
        "weighted" if the method learned weights of bits, "asymmetric" for 4 levels; "spherical" in
        a second outcome of `sph`, by the distance of its paper. Measures within a radius use
        Hamming distance.
    train_wall_s, train_cpu_s
        Seconds of ``fit``; CPU seconds are those of all threads.
    train_peak_bytes
        The peak of memory that Python and NumPy allocated during ``fit`` with the first seed
        (tracemalloc). It does not count the training rows, files of scratch arrays, or memory of C
        libraries. Tracing takes a few percent of the time of ``fit``, and about a hundredth of a
        second for very short runs.
    encode_wall_s, encode_cpu_s
        Seconds of encoding the database.
    scores
        By the name of the truth.
    parameters
        The method's parameters in the model, as JSON values.
    levels : {2, 4}
        Levels that codes keep of each projection.
    seeds
        How many seeds, from ``seed`` on, the figures are means of.
    standard_deviation
        The deviation among the seeds, by the names of the figures: ``train_wall_s`` and so on, and
        ``scores`` by truth and measure; empty for one seed.
    chosen
        The parameters that were chosen on training rows held back.
    tried
        All values that were tried for them, with their ``MAP`` on those rows, or their ``error``.
    splits
        How many splits, each with a seed of its own, the figures are means of. Where different
        values of a parameter were chosen on them, ``chosen`` and ``parameters`` list these, and
        ``tried`` has those of all splits.
    """

    method: str
    n_bits: int
    seed: int
    error: str | None = None
    codes: Protocol = "hashed"
    distance: Distance = "hamming"
    ties: str = "order"
    train_rows: int = 0
    train_wall_s: float = 0.0
    train_cpu_s: float = 0.0
    train_peak_bytes: int = 0
    encode_wall_s: float = 0.0
    encode_cpu_s: float = 0.0
    scores: Mapping[str, Scores] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    levels: Levels = 2
    seeds: int = 1
    standard_deviation: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    tried: Sequence[Mapping[str, Any]] = ()
    splits: int = 1

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Outcome":
        """Read what `as_dict` wrote."""
        scores = {
            truth: Scores.from_dict(found) for truth, found in values.get("scores", {}).items()
        }
        return cls(**{**values, "scores": scores})

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; if the method failed, only the error."""
        if self.error is not None:
            return {
                "method": self.method,
                "n_bits": self.n_bits,
                "seed": self.seed,
                "error": self.error,
            }
        result = asdict(replace(self, scores={}))
        del result["error"]
        result["scores"] = {truth: scores.as_dict() for truth, scores in self.scores.items()}
        return result


_WARM_UP_ROWS = 500


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
    results: "Results | None" = None,
) -> Iterator[Outcome]:
    """Train each method at each number of bits, encode the queries and the database, and score.

    With the first seed each method is trained twice, to measure times and then memory, unless
    ``memory`` is false. If a method
    learned from the rows of the database and keeps their codes, a second outcome has the database
    with these codes. With 2 levels `sph` has a second outcome too, ranked by the distance of its
    paper. A transductive method, which has codes only for its training rows, learns from
    all rows of the database and from the queries, without labels; it has one outcome, with the
    codes from training. Parameters with several values to choose from are chosen at each number of
    bits, by the first truth and with the first seed.

    Parameters
    ----------
    random_state
        Seed of every training.
    seeds
        Train each method with so many seeds, from ``random_state`` on; `average` joins them.
    memory
        Measure memory, by a second training with the first seed.
    results
        Outcomes to add to; those it has are not measured again.

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

    def outcomes() -> Iterator[Outcome]:
        _warm_up(split)
        for method in methods:
            for n_bits in bits:
                chosen = method
                tried: list[dict[str, Any]] = []
                for seed in range(random_state, random_state + seeds):
                    outcome = Outcome(
                        method.name, n_bits, seed, ties=measures.ties, levels=method.levels
                    )
                    if results is not None and (known := results.known(method, n_bits, seed)):
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
                        found = list(
                            _run(
                                split,
                                chosen,
                                outcome,
                                truths,
                                measures,
                                with_memory=memory and seed == random_state,
                            )
                        )
                    # Whatever error a method raises, compare the others.
                    except Exception as error:
                        yield replace(outcome, error=_reason(error))
                        break
                    if results is not None:
                        results.add(method, n_bits, seed, found)
                    yield from found

    # The checks above refuse what cannot work before the first outcome is asked for.
    return outcomes()


def average(outcomes: Iterable[Outcome], *, splits: int = 1) -> list[Outcome]:
    """Join the outcomes of several seeds: means of times, scores and curves, and their deviation.

    Parameters
    ----------
    outcomes
        As `compare` yields them.
    splits
        How many splits they are of, each with a seed of its own.

    Returns
    -------
    list of Outcome
        One for each method, number of bits, way to make codes and distance; with the error, if a
        seed failed.
    """
    groups: dict[tuple[Any, ...], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault((outcome.method, outcome.n_bits), []).append(outcome)
    result = []
    for group in groups.values():
        if failed := [outcome for outcome in group if outcome.error is not None]:
            result.append(failed[0])
            continue
        for kind in dict.fromkeys(map(_kind, group)):
            mean = _mean([outcome for outcome in group if _kind(outcome) == kind])
            result.append(replace(mean, splits=splits))
    return result


def _kind(outcome: Outcome) -> tuple[Protocol, Distance]:
    return outcome.codes, outcome.distance


_COSTS = ("train_wall_s", "train_cpu_s", "encode_wall_s", "encode_cpu_s")


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    first = outcomes[0]
    if len(outcomes) == 1:
        return first
    costs: dict[str, Any] = {
        name: [getattr(outcome, name) for outcome in outcomes] for name in _COSTS
    }
    means: dict[str, Any] = {name: float(np.mean(values)) for name, values in costs.items()}
    scores = {
        truth: Scores.spread([outcome.scores[truth] for outcome in outcomes])
        for truth in first.scores
    }
    chosen = {key: _same([outcome.chosen[key] for outcome in outcomes]) for key in first.chosen}
    tried = _same([outcome.tried for outcome in outcomes])
    if tried is not first.tried:
        tried = [line for outcome in outcomes for line in outcome.tried]
    return replace(
        first,
        seeds=len(outcomes),
        chosen=chosen,
        tried=tried,
        parameters={**first.parameters, **chosen},
        scores={truth: mean for truth, (mean, _) in scores.items()},
        standard_deviation={name: float(np.std(values)) for name, values in costs.items()}
        | {"scores": {truth: deviation for truth, (_, deviation) in scores.items()}},
        **means,
    )


def _same(values: Sequence[Any]) -> Any:
    """Return the value that all of them are, or else all of them."""
    return values[0] if all(value == values[0] for value in values) else values


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
    model = hasher.to_model(method.hasher, levels=method.levels)
    plain: Ranking = "hamming" if model.bit_weights is None else "weighted"
    wall, cpu = time.perf_counter(), time.process_time()
    hashed = model.encode(split.database)
    encoded = replace(
        trained,
        encode_wall_s=time.perf_counter() - wall,
        encode_cpu_s=time.process_time() - cpu,
        distance=plain if model.levels == 2 else "asymmetric",
        parameters=dict(model.parameters),
    )
    protocols: dict[Protocol, NDArray[np.uint8] | None] = {
        "learned" if transductive else "hashed": hashed
    }
    # Codes from training are signs.
    if not transductive and model.levels == 2:
        protocols["learned"] = _learned(split, hasher, y, hashed)
    for protocol, codes in protocols.items():
        if codes is not None:
            scores = split.score(model, codes, truths, measures)
            yield replace(encoded, codes=protocol, scores=scores)
    if method.hasher == "sph" and model.levels == 2:
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
