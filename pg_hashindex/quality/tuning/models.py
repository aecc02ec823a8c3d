"""The models to try, and the recall of their codes among all rows, before any index is built.

The full table is read once, to find true neighbours and their ranks by code. This gives the recall
of a scan of all codes for any number of candidates.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...hashers import HASHERS, Sign
from ...index.catalog import IndexRow, Layout
from ...metrics.search import CodeRanks
from ...metrics.truth import NearestRows
from ...models.model import Metric, Model
from ...models.quantization import LEVELS, Levels, Ranking, bits_of
from ...training import train
from .advice import SIGNS, name_codes
from .bench import Bench
from .sample import Budget, blocks

#: Numbers of candidates to choose from.
CANDIDATES = (10, 15, 20, 30, 50, 80, 120, 200, 300, 500, 800, 1200, 2000)

_PROJECTIONS = (64, 128, 256, 512)
# The most training rows: methods that learn from vectors gain nothing from more. Rows are in random
# order.
_TRAINING_ROWS = 20_000
# The part of the remaining time for training.
_TRAINING_SHARE = 0.4
# The most rows of the full table to read, and the most numbers for each second that is left.
_REFERENCE_ROWS = 1_000_000
_READ_A_SECOND = 2_500_000
_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Candidate:
    """A model to be tried, by its name from `name_codes`; ``make`` trains or reads it.

    ``reference`` is its name in the database, if it is stored already.
    """

    name: str
    make: Callable[[], Model]
    reference: str | None = None
    layout: Layout = "table"


def of_table(bench: Bench, seed: int) -> list[Candidate]:
    """Return models to train for a table, the most promising first.

    ``itq`` is the best learned method on embeddings, with as many projections as training takes by
    default, and with half of them, in half of the bytes. ``sign`` and ``lsh`` are plain codes,
    ``pcah`` and ``sgh`` follow; the first three with one and with two bits of each projection.
    Projections are limited to the dimensions if the method needs that.
    """
    d = bench.drawn.X.shape[1]
    fitting = sorted({min(n, d) for n in _PROJECTIONS})
    wanted: list[tuple[str, int, Levels]] = [("itq", min(256, d), 4), ("itq", min(128, d), 4)]
    wanted += [("sign", d, 4), ("sign", d, 2), ("itq", min(128, d), 2)]
    wanted += [("itq", n, levels) for n in reversed(fitting) for levels in LEVELS]
    wanted += [("lsh", 256, 4), ("lsh", 256, 2), ("sgh", 128, 2), ("pcah", min(128, d), 2)]
    wanted += [("lsh", 128, 2), ("lsh", 512, 2), ("lsh", 64, 2)]
    return [_to_train(bench, *one, seed, {}) for one in dict.fromkeys(wanted)]


def of_index(bench: Bench, index: IndexRow) -> list[Candidate]:
    """Return an index's own model, and the same method with other bits and levels.

    If the model learned from labels or the like, or Python evaluates it, only the model itself.
    """
    model = index.loaded_model
    own = Candidate(
        name_codes(index.method, index.n_bits, model.levels),
        lambda: model,
        index.model_name,
        index.layout,
    )
    kind = HASHERS.get(index.method)
    if kind is None or index.network is not None or kind.learns_from or kind.takes_graph:
        return [own]
    parameters = dict(model.parameters)
    parameters.pop("n_bits", None)
    seed = parameters.pop("random_state", None) or 0
    counts = {model.n_projections} | (set() if index.method == "sign" else {*_PROJECTIONS})
    # Methods with weights of bits have only signs.
    levels = LEVELS if model.bit_weights is None else (model.levels,)
    return [own] + [
        _to_train(bench, index.method, n, kept, seed, parameters, index.layout)
        for n in sorted(counts)
        for kept in levels
        if (n, kept) != (model.n_projections, model.levels)
    ]


def _to_train(
    bench: Bench,
    method: str,
    n_projections: int,
    levels: Levels,
    seed: int,
    parameters: dict[str, Any],
    layout: Layout = "table",
) -> Candidate:
    def make() -> Model:
        X = bench.drawn.X[:_TRAINING_ROWS]
        if bench.metric == "cosine":
            # Zero vectors have no neighbours. Training holds back rows of its own.
            X = X[X.any(axis=1)]
        return train(
            X,
            "tuned",
            method,
            n_bits=None if method == "sign" else n_projections,
            levels=levels,
            metric=bench.metric,
            random_state=seed,
            parameters=parameters,
            force=True,
        )

    name = name_codes(method, n_projections * bits_of(levels), levels)
    return Candidate(name, make, None, layout)


@dataclass(frozen=True, eq=False)
class EncodedSample:
    """A model, and the ranks of true neighbours by its codes, in its rankings, the best first.

    ``full`` are ranks among the rows of the full table that were read, ``sample`` among those of
    the scratch table. ``share`` is the part of the table that was read, and so the part of the
    candidates to expect among its rows.
    """

    candidate: Candidate
    model: Model
    train_s: float
    rankings: tuple[Ranking, ...]
    full: CodeRanks
    share: float
    sample: CodeRanks

    @property
    def name(self) -> str:
        """Method and length."""
        return self.candidate.name

    def recall(self, candidates: int, ranking: Ranking, measured: float | None = None) -> float:
        """Return the recall of a scan of the full table, or of an access path that loses some rows.

        ``measured`` is the recall of an access path on the sample; it is assumed to lose the same
        part of a scan's answers on the full table.
        """
        counted = self.full.recall(candidates * self.share, ranking)
        if measured is None:
            return counted
        return counted * min(1.0, measured / max(self.sample.recall(candidates, ranking), 1e-9))

    def least(self, recall: float, ranking: Ranking, choices: Sequence[int]) -> int:
        """Return the least number of candidates whose scan reaches a recall, or the last choice."""
        reaching = (c for c in choices if self.recall(c, ranking) >= recall)
        return next(reaching, choices[-1])

    def cost(self, recall: float, choices: Sequence[int]) -> int:
        """Return about how many candidates reach a recall."""
        best = self.rankings[0]
        least = self.least(recall, best, choices)
        found = self.recall(least, best)
        return least if found >= recall else round(least * (2 - found))


def code_all(
    bench: Bench, candidates: Sequence[Candidate], budget: Budget
) -> tuple[list[EncodedSample], int]:
    """Train models, and find the ranks of true neighbours by their codes.

    Models that cannot be trained in time are left out. The first ones are those of `SIGNS`, unless
    vectors are too long for them. Also returns the number of rows among which ranks were counted.
    """
    X, k = bench.drawn.X, bench.goal.k
    until = bench.seconds_left * (1 - _TRAINING_SHARE)
    made: list[tuple[Candidate, Model, float]] = []

    def make(candidate: Candidate) -> None:
        if bench.seconds_left < until and len(made) > 1:
            raise InvalidInputError("training took too long for more models")
        if candidate.reference is None and candidate.name not in SIGNS:
            rows = min(len(bench.drawn.X), _TRAINING_ROWS)
            bench.say(f"training {candidate.name} on {rows} rows")
        start = time.perf_counter()
        model = candidate.make()
        took = 0.0 if candidate.reference else time.perf_counter() - start
        _check_knows(bench, model)
        made.append((candidate, model, took))

    signs = [Candidate(SIGNS[0], partial(_signs, np.zeros(X.shape[1], np.float32)))]
    if (mean := bench.mean) is not None:
        signs.append(Candidate(SIGNS[1], partial(_signs, mean)))
    for candidate in (*signs, *candidates):
        bench.attempt(candidate.name, partial(make, candidate))
    if bench.seconds_left <= 0:
        bench.left_out += [
            f"{one.name}: the deadline has passed" for one, _, _ in made if one not in signs
        ]
        made.clear()
    if not made:
        return [], 0
    models = [
        (model, bench.metric if candidate.layout == "table" else None)
        for candidate, model, _ in made
    ]
    bench.say("counting places by code")
    in_blocks = np.split(X, range(_BLOCK_ROWS, len(X), _BLOCK_ROWS))
    sample = every = _ranks(bench, models, in_blocks, k)
    part = k
    # Encoding the full table with a network might take hours.
    if not bench.drawn.whole and any(model.network is not None for model, _ in models):
        part = _part(k, len(X) / bench.full)
        every = _ranks(bench, models, in_blocks, part)
    elif not bench.drawn.whole:
        most = min(_REFERENCE_ROWS, bench.seconds_left * _READ_A_SECOND / X.shape[1])
        # The number of rows was an estimate; the number of rows read counts.
        read = min(1.0, max(most, len(X)) / bench.drawn.rows)
        bench.say(f"reading {min(round(max(most, len(X))), bench.full)} rows of the table once")
        part = _part(k, read)
        with closing(blocks(bench.drawn, read, budget.random_state)) as found:
            every = _ranks(bench, models, found, part)
        bench.correct(len(bench.drawn.held_out) + round(every[0].n_rows / read))
    # Keep the ratio of candidates to k, even if less than one neighbour is expected.
    return [
        EncodedSample(
            candidate,
            model,
            took,
            tuple(model.orders(bench.drawn.Q[:1], None)),
            of_full,
            part / k,
            of_sample,
        )
        for (candidate, model, took), of_full, of_sample in zip(made, every, sample, strict=True)
    ], every[0].n_rows


def _signs(mean: NDArray[np.float32]) -> Model:
    """Return the model whose codes ``binary_quantize`` makes of vectors less a mean."""
    # The mean of two rows is what this method learns.
    rows = np.stack([mean - 1, mean + 1])
    return Sign(center="mean").fit(rows).to_model("signs")


def _part(k: int, share: float) -> int:
    """Return how many of k neighbours are expected among a part of the rows, at least one."""
    return max(1, round(k * share))


def _ranks(
    bench: Bench,
    models: Sequence[tuple[Model, Metric | None]],
    rows: Iterable[NDArray[np.float32]],
    k: int,
) -> list[CodeRanks]:
    """Count places among rows that come in blocks; without a metric codes have no numbers."""
    nearest = NearestRows(bench.drawn.Q, k, bench.metric)
    parts: list[list[NDArray[np.uint8]]] = [[] for _ in models]
    numbers: list[list[NDArray[np.float32]]] = [[] for _ in models]
    for block in rows:
        nearest.add(block)
        for (model, metric), part, beside in zip(models, parts, numbers, strict=True):
            packed, of_rows = model.codes_and_numbers(block, metric)
            part.append(packed)
            beside += [] if of_rows is None else [of_rows]
    neighbours, right = nearest.found()
    weights = right * nearest.weights()
    found = []
    for (model, metric), part, beside in zip(models, parts, numbers, strict=True):
        asked = model.orders(bench.drawn.Q, metric)
        together = np.concatenate(beside) if beside else None
        found.append(CodeRanks(asked, np.concatenate(part), neighbours, weights, k, together))
        part.clear()
    return found


def worth_building(bench: Bench, coded: Sequence[EncodedSample]) -> list[EncodedSample]:
    """Order models by the cost of a search, and drop those that others beat.

    A model is beaten if another one needs neither more bits nor more candidates. The index's own
    model is always tried, first.
    """
    choices = bench.choices(CANDIDATES)
    needs = {one.name: one.cost(bench.goal.recall, choices) for one in coded}

    def beats(rival: EncodedSample, one: EncodedSample) -> bool:
        theirs, own = (rival.model.n_bits, needs[rival.name]), (one.model.n_bits, needs[one.name])
        return theirs != own and theirs[0] <= own[0] and theirs[1] <= own[1]

    def order(one: EncodedSample) -> tuple[bool, float]:
        # The rough cost of candidates against that of bits: a candidate's row is read, bits are
        # only counted.
        return one.candidate.reference is None, needs[one.name] + one.model.n_bits / 4

    kept = []
    for one in sorted(coded, key=order):
        rival = next((other for other in coded if beats(other, one)), None)
        if one.candidate.reference is not None or rival is None:
            kept.append(one)
        else:
            bench.left_out.append(
                f"{one.name}: {rival.name} need {needs[rival.name]} candidates, not "
                f"{needs[one.name]}, and no more bits"
            )
    return kept


def _check_knows(bench: Bench, model: Model) -> None:
    if model.network is None:
        return
    for what, rows in (("queries", bench.drawn.Q), ("rows", bench.drawn.X)):
        known = model.network.knows(rows)
        if not known.all():
            raise InvalidInputError(
                f"model {model.name!r} has codes only of the rows that it was trained on, and "
                f"{int((~known).sum())} of {len(known)} {what} are none of them; train it again "
                "with all rows, and ask rows of the table"
            )
