"""Results of a comparison, and their means over seeds and splits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from ..quality.scores import Scores

#: Codes of the database: made by the hash function, or by training.
Codes = Literal["hashed", "learned"]
#: The order of codes: by differing bits, by weights of bits, or by the distance of SpH's paper.
Distance = Literal["hamming", "weighted", "spherical"]


@dataclass(frozen=True)
class Outcome:
    """The result of a method at one number of bits.

    Attributes
    ----------
    n_bits
        Bits of a code.
    error
        Why there are no scores.
    codes
        "hashed" if the hash function made the codes of the database, as for queries; "learned" if
        training made them, since the method learned from the database. With a transductive method,
        codes of queries are "learned" too.
    distance
        "weighted" if the method learned weights of bits; "spherical" in a second outcome of `sph`,
        by the distance of its paper. Measures within a radius use Hamming distance.
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
    codes: Codes = "hashed"
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
    seeds: int = 1
    standard_deviation: Mapping[str, Any] = field(default_factory=dict)
    chosen: Mapping[str, Any] = field(default_factory=dict)
    tried: Sequence[Mapping[str, Any]] = ()
    splits: int = 1

    @property
    def database_rows(self) -> int:
        """How many rows were encoded: the curves end there."""
        return int(next(iter(self.scores.values())).curve.at[-1])

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
            return {name: getattr(self, name) for name in ("method", "n_bits", "seed", "error")}
        result = asdict(replace(self, scores={}))
        del result["error"]
        result["scores"] = {truth: scores.as_dict() for truth, scores in self.scores.items()}
        return result


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


def _kind(outcome: Outcome) -> tuple[Codes, Distance]:
    return outcome.codes, outcome.distance


_COSTS = ("train_wall_s", "train_cpu_s", "encode_wall_s", "encode_cpu_s")


def _mean(outcomes: Sequence[Outcome]) -> Outcome:
    first = outcomes[0]
    if len(outcomes) == 1:
        return first
    costs = {name: [getattr(outcome, name) for outcome in outcomes] for name in _COSTS}
    means: dict[str, Any] = {name: float(np.mean(values)) for name, values in costs.items()}
    scores = {t: Scores.spread([outcome.scores[t] for outcome in outcomes]) for t in first.scores}
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
