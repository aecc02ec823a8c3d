"""The goal, the trials, and the advice: a recommendation, its reason, and how to apply it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ...errors import InvalidInputError
from ...index.catalog import Access
from ...index.search import as_count
from ...models.model import Metric, Model
from ...models.quantization import Levels, Ranking, bits_of

#: Codes of pg_hashindex, pgvector's HNSW over vectors or over their signs, or no index.
Kind = Literal["codes", "pgvector", "binary_quantize", "centred_binary_quantize", "exact"]

#: The kinds of signs: of the vectors, and of the vectors less their mean.
SIGNS: tuple[Kind, ...] = ("binary_quantize", "centred_binary_quantize")

#: The kinds without codes, in words.
SYSTEMS = {
    "pgvector": "pgvector's HNSW",
    "binary_quantize": "pgvector's binary_quantize",
    "centred_binary_quantize": "pgvector's binary_quantize, centred",
    "exact": "exact scan",
}

# Medians that differ by less than this part count as equal; sizes decide then.
_SAME_TIME = 1.1
_SAME_MS = 0.05

_PLAIN = ("sign", "lsh")

# Fields of an Advice that are read by themselves, or not printed.
_PARTS = ("goal", "trials", "recommended", "models", "left_out")


@dataclass(frozen=True)
class Goal:
    """The goal of tuning.

    Attributes
    ----------
    recall
        Above 0, at most 1.
    k
        The answers of a query.
    max_ms
        The most milliseconds that the median query may take.
    max_bytes
        The most bytes that may be added to the table.
    smallest
        Whether to recommend the fewest bytes, instead of the least time.
    """

    recall: float
    k: int = 10
    max_ms: float | None = None
    max_bytes: int | None = None
    smallest: bool = False

    def check(self) -> None:
        """Refuse values out of range."""
        if not 0 < self.recall <= 1:
            raise InvalidInputError(f"recall must be above 0 and at most 1, got {self.recall}")
        as_count("k", self.k)
        if self.max_ms is not None and not self.max_ms > 0:
            raise InvalidInputError(f"max_ms must be above 0, got {self.max_ms}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise InvalidInputError(f"max_bytes must be 0 or more, got {self.max_bytes}")

    def allows(self, trial: "Trial") -> bool:
        """Return whether a trial keeps the limits of time and bytes."""
        return (self.max_ms is None or trial.p50_ms <= self.max_ms) and (
            self.max_bytes is None or trial.bytes <= self.max_bytes
        )

    @property
    def best(self) -> str:
        """The kind of trial to recommend, in words."""
        return "the smallest" if self.smallest else "the fastest"

    @property
    def limits(self) -> str:
        """The limits in words, after a blank; empty if there are none."""
        words = [] if self.max_ms is None else [f"{self.max_ms:g} ms"]
        words += [] if self.max_bytes is None else [f"{self.max_bytes / 1e6:g} MB"]
        return f" within {' and '.join(words)}" if words else ""


@dataclass(frozen=True)
class Trial:
    """One way to search: measured on the sample, and estimated for the full table.

    If the sample is the whole table, both are the same.

    Attributes
    ----------
    method, bits, levels
        The method of the model, the bits of a code, and the levels of a projection.
    own
        Whether the model is the index's own, so that `HashIndex.configure` is enough.
    access, ranking, candidates, probes
        As in `HashIndex.configure`; kinds of signs have only candidates.
    ef_search
        ``hnsw.ef_search`` of pgvector's HNSW.
    p50_ms, p95_ms
        Times of the whole statement, as the client sees it: prepared, with the vector in binary.
    bytes
        Added to the table: codes, access path and model, or pgvector's index.
    build_s
        Seconds to train, encode and build it.
    sample_recall, sample_p50_ms
        As measured on the sample.
    """

    kind: Kind
    recall: float
    bytes: int
    build_s: float
    sample_recall: float
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    sample_p50_ms: float = 0.0
    method: str | None = None
    bits: int | None = None
    levels: Levels | None = None
    own: bool = False
    access: Access | None = None
    ranking: Ranking | None = None
    candidates: int | None = None
    probes: int | None = None
    ef_search: int | None = None

    @property
    def system(self) -> str:
        """The codes and indexes to be built, in words."""
        if self.kind != "codes":
            return SYSTEMS[self.kind]
        codes = name_codes(self.method or "", self.bits or 0, self.levels or 2)
        return f"{codes}, {self.access}"

    @property
    def configuration(self) -> dict[str, Any]:
        """The arguments of `HashIndex.configure`."""
        names = ("access", "ranking", "candidates", "probes")
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    @property
    def options(self) -> list[str]:
        """The options of ``pg-hashindex index configure``."""
        chosen = self.configuration.items()
        return [word for name, value in chosen for word in (f"--{name}", str(value))]

    @property
    def setting(self) -> str:
        """The settings of the search, in words."""
        parts: list[str] = [] if self.ranking is None else [self.ranking]
        for name in ("candidates", "probes", "ef_search"):
            value = getattr(self, name)
            parts += [] if value is None else [f"{name} {value}"]
        return ", ".join(parts)

    @property
    def label(self) -> str:
        """Both."""
        return f"{self.system}, {self.setting}" if self.setting else self.system


def name_codes(method: str, bits: int, levels: Levels) -> str:
    """Name codes by method and bits: ``itq 128 bits``, with 4 levels ``itq 64 x 2 bits``."""
    each = bits_of(levels)
    return f"{method} {bits} bits" if each == 1 else f"{method} {bits // each} x {each} bits"


@dataclass(frozen=True, eq=False)
class Advice:
    """The result of tuning: the trials and the recommendation.

    Attributes
    ----------
    table, column, key_columns
        The table as SQL writes it.
    metric : {"l2", "cosine", "ip"}
    index
        The index that was tuned.
    rows, sample_rows, reference_rows, queries
        The numbers of rows: of the table, of the scratch table, and of those among which ranks by
        code were counted; and the number of queries.
    recommended
        None if nothing reaches the goal.
    left_out
        Things that were not tried, and why.
    models
        The models trained here, by their names from `name_codes`.
    statements
        How to apply the recommendation: SQL for pgvector's indexes, commands of pg-hashindex for
        codes.
    """

    goal: Goal
    table: str
    column: str
    key_columns: list[str]
    metric: Metric
    index: str | None
    rows: int
    sample_rows: int
    reference_rows: int
    queries: int
    trials: list[Trial]
    recommended: Trial | None
    reason: str
    left_out: list[str] = field(default_factory=list)
    models: dict[str, Model] = field(default_factory=dict)
    statements: str | None = None

    @property
    def applicable(self) -> Trial | None:
        """The trial that `apply` makes: the recommended, or the best of the index's own model."""
        if self.index is None:
            found = self.recommended
            return found if found is not None and found.kind == "codes" else None
        return recommend([trial for trial in self.trials if trial.own], self.goal)[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without the models."""
        values = {name: value for name, value in vars(self).items() if name != "models"}
        shown = frontier(self.trials)
        return values | {
            "goal": asdict(self.goal),
            "trials": [_described(trial) | {"frontier": trial in shown} for trial in self.trials],
            "recommended": None if self.recommended is None else _described(self.recommended),
        }


def _described(trial: Trial) -> dict[str, Any]:
    return {"label": trial.label} | asdict(trial)


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other trial beats in recall, median time and bytes, by recall."""

    def costs(trial: Trial) -> tuple[float, float, float]:
        return -trial.recall, trial.p50_ms, trial.bytes

    def beaten(trial: Trial) -> bool:
        own = costs(trial)
        return any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in map(costs, trials)
        )

    return sorted((trial for trial in trials if not beaten(trial)), key=costs, reverse=True)


def recommend(trials: Sequence[Trial], goal: Goal) -> tuple[Trial | None, str]:
    """Choose the fastest trial that reaches a goal, or the smallest, and say why.

    Among trials whose medians differ by less than a tenth, the one with the fewest bytes is chosen.
    The exact scan, which adds nothing, is the smallest only if no index is faster.

    Returns
    -------
    Trial or None
        None where nothing reaches the goal.
    str
        The reason, a sentence.
    """
    reaching = [trial for trial in trials if trial.recall >= goal.recall and goal.allows(trial)]
    if not reaching:
        return None, _unreached(trials, goal)
    least = min(trial.p50_ms for trial in reaching)
    near = [trial for trial in reaching if trial.p50_ms <= least * _SAME_TIME + _SAME_MS]
    if goal.smallest and all(trial.kind != "exact" for trial in near):
        near = [trial for trial in reaching if trial.kind != "exact"]
    chosen = min(near, key=lambda trial: (trial.bytes, trial.p50_ms))
    if all(trial.kind == "exact" for trial in trials):
        return chosen, (
            f"{chosen.label}, in {_rounded(chosen.p50_ms)} ms: nothing else was measured; give it "
            "more time (tune --minutes)"
        )
    reason = _why(chosen, reaching, goal)
    if chosen.kind in ("codes", *SIGNS) and all(trial.kind != "pgvector" for trial in trials):
        reason += "; not compared with HNSW of the vectors"
    return chosen, reason


def _unreached(trials: Sequence[Trial], goal: Goal) -> str:
    wanted = f"nothing reaches recall {goal.recall:g}{goal.limits}"
    if not trials:
        return f"{wanted}: nothing was tried"
    allowed = [trial for trial in trials if goal.allows(trial)]
    if allowed:
        nearest = max(allowed, key=lambda trial: trial.recall)
        return f"{wanted}: nearest is {_figures(nearest)}"
    recalled = [trial for trial in trials if trial.recall >= goal.recall] or list(trials)

    def excess(trial: Trial) -> float:
        of_time = trial.p50_ms / goal.max_ms if goal.max_ms else 1.0
        of_bytes = trial.bytes / max(goal.max_bytes, 1) if goal.max_bytes is not None else 1.0
        return max(of_time, 1.0) * max(of_bytes, 1.0)

    return (
        f"{wanted}, and nothing keeps within that: nearest is {_figures(min(recalled, key=excess))}"
    )


def _figures(trial: Trial) -> str:
    return (
        f"{trial.label}, with recall {trial.recall:.3f} in {_rounded(trial.p50_ms)} ms "
        f"and {trial.bytes / 1e6:.3g} MB"
    )


def _rounded(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.2g}"


def _why(chosen: Trial, reaching: Sequence[Trial], goal: Goal) -> str:
    which = "the only one" if len(reaching) == 1 else goal.best
    words = (
        f"{chosen.label}: {which} that reaches recall {goal.recall:g}{goal.limits}, with recall "
        f"{chosen.recall:.3f} in {_rounded(chosen.p50_ms)} ms"
    )
    if chosen.kind == "exact":
        return f"{words}; reading all vectors is fast enough here, and needs no index"
    if chosen.kind == "codes" and chosen.method in _PLAIN:
        words += "; plain codes win, learning adds nothing here"
    rivals: tuple[Kind, ...] = ("codes",)
    if chosen.kind == "codes":
        rivals = ("pgvector", *SIGNS)
    for kind in rivals:
        others = [trial for trial in reaching if trial.kind == kind]
        if others:
            rival = min(others, key=lambda trial: trial.p50_ms)
            words += (
                f"; {SYSTEMS.get(kind, 'the best by codes')} takes {_rounded(rival.p50_ms)} ms, "
                f"{rival.bytes / 1e6:.3g} MB instead of {chosen.bytes / 1e6:.3g}, and "
                f"{rival.build_s:.3g} s to build instead of {chosen.build_s:.3g}"
            )
    return words


def read_advice(path: Path) -> Advice:
    """Read the output of ``pg-hashindex tune --json``.

    Returns
    -------
    Advice
        The advice without models and without the list of things left out.

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or holds anything else.
    """
    try:
        return _advice(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    # ValueError if the file is not JSON or not text; our own errors are ValueErrors too.
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        raise InvalidInputError(
            f"{path} is not what pg-hashindex tune --json prints: {reason}"
        ) from error


def _advice(printed: Any) -> Advice:
    # The simple fields first, since their errors say best that the file is something else.
    simple = _fields(Advice, "it", printed)
    trials, chosen = printed.get("trials"), printed.get("recommended")
    if not isinstance(trials, list):
        raise InvalidInputError("it has no list of trials")
    return Advice(
        goal=Goal(**_fields(Goal, "goal", printed.get("goal"))),
        trials=[Trial(**_fields(Trial, f"trial {n}", one)) for n, one in enumerate(trials)],
        recommended=None if chosen is None else Trial(**_fields(Trial, "recommended", chosen)),
        **simple,
    )


def _fields(kind: type, what: str, printed: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that are not lists of objects, or objects."""
    if not isinstance(printed, dict):
        raise InvalidInputError(f"{what} is not an object")
    found = {}
    for name, hint in get_type_hints(kind).items():
        if name in _PARTS:
            continue
        if name not in printed:
            raise InvalidInputError(f"{what} has no {name!r}")
        if not _fits(printed[name], hint):
            raise InvalidInputError(f"{name!r} of {what} is {str(printed[name])[:40]!r}")
        found[name] = printed[name]
    return found


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is Literal:
        # True equals 1, but is not a number.
        return any(type(value) is type(one) and value == one for one in get_args(hint))
    if hint is float:
        # Not NaN, not infinite, and within the range of float64.
        return type(value) in (int, float) and abs(value) < 1e300
    if get_origin(hint) is list:
        return type(value) is list and all(_fits(one, get_args(hint)[0]) for one in value)
    return type(value) is hint
