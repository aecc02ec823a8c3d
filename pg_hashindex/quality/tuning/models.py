"""The models that are tried: which, in which order, and what their codes know of the full table."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidInputError
from ...hashers import HASHERS
from ...index.catalog import IndexRow, Layout
from ...models.model import Model
from ...models.quantization import LEVELS, Levels, bits_of
from ...training import train
from .bench import Bench
from .code_ranks import CodeRanks
from .code_trials import Coded
from .drawing import Effort, blocks
from .neighbours import NearestRows
from .trials import name_codes

__all__ = ["Candidate", "code_all", "of_index", "of_table"]

_PROJECTIONS = (64, 128, 256, 512)
# Methods that learn from rows alone gain nothing from more; these are in random order.
_TRAINING_ROWS = 20_000
# The part of the time that may go into training.
_TRAINING_SHARE = 0.4
# Rows and numbers that are read of the full table at the most, the latter a second of the budget.
_REFERENCE_ROWS = 1_000_000
_READ_A_SECOND = 2_500_000
_BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Candidate:
    """A model to be tried.

    Attributes
    ----------
    name : str
        As `name_codes` gives it.
    make : callable
        Trains it, or reads it.
    reference : str, optional
        Where it is stored already.
    layout : {"table", "column"}
    """

    name: str
    make: Callable[[], Model]
    reference: str | None = None
    layout: Layout = "table"


def of_table(bench: Bench, seed: int) -> list[Candidate]:
    """Return models to train for a table, the most promising first.

    ``itq`` as the best of those that learn on embeddings, ``sign`` and ``lsh`` as plain codes,
    ``pcah`` and ``sgh``; the first three with one and with two bits of each projection. No more
    projections than dimensions where the method cannot.

    Parameters
    ----------
    bench : Bench
    seed : int
    """
    d = bench.drawn.X.shape[1]
    fitting = sorted({min(n, d) for n in _PROJECTIONS})
    wanted: list[tuple[str, int, Levels]] = [("itq", min(256, d), 4), ("itq", min(128, d), 2)]
    wanted += [("sign", d, 4), ("sign", d, 2), ("itq", min(128, d), 4)]
    wanted += [("itq", n, levels) for n in reversed(fitting) for levels in LEVELS]
    wanted += [("lsh", 256, 4), ("lsh", 256, 2), ("sgh", 128, 2), ("pcah", min(128, d), 2)]
    wanted += [("lsh", 128, 2), ("lsh", 512, 2), ("lsh", 64, 2)]
    return [_to_train(bench, *one, seed, {}) for one in dict.fromkeys(wanted)]


def of_index(bench: Bench, index: IndexRow) -> list[Candidate]:
    """Return an index's own model, and the same method with other bits and levels.

    Parameters
    ----------
    bench : Bench
    index : HashIndex
        Where its model learns from labels and the like, or Python evaluates it, there is no other.
    """
    own = Candidate(
        name_codes(index.method, index.n_bits, index.loaded_model.levels),
        lambda: index.loaded_model,
        f"{index.model}:{index.model_version}",
        index.layout,
    )
    kind = HASHERS.get(index.method)
    if kind is None or index.network is not None or kind.learns_from or kind.takes_graph:
        return [own]
    model = index.loaded_model
    parameters = dict(model.parameters)
    parameters.pop("n_bits", None)
    seed = parameters.pop("random_state", None) or 0
    counts = (
        {model.n_projections} if index.method == "sign" else {*_PROJECTIONS, model.n_projections}
    )
    # Bits that have weights of their own are signs.
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
    n_bits = None if method == "sign" else n_projections
    return Candidate(
        name_codes(method, n_projections * bits_of(levels), levels),
        partial(_trained, bench, method, n_bits, levels, seed, parameters),
        None,
        layout,
    )


def _trained(
    bench: Bench,
    method: str,
    n_bits: int | None,
    levels: Levels,
    seed: int,
    parameters: dict[str, Any],
) -> Model:
    X = bench.drawn.X[:_TRAINING_ROWS]
    if bench.metric == "cosine":
        # Rows of zeros have no neighbours, and training measures by rows of its own.
        X = X[X.any(axis=1)]
    return train(
        X,
        "tuned",
        method,
        n_bits=n_bits,
        levels=levels,
        metric=bench.metric,
        random_state=seed,
        parameters=parameters,
        force=True,
    )


def code_all(
    bench: Bench, candidates: Sequence[Candidate], effort: Effort
) -> tuple[list[Coded], int]:
    """Train models, and count which places true neighbours take by their codes.

    Parameters
    ----------
    bench : Bench
    candidates : sequence of Candidate
        Those that cannot be trained, or not in time, are left out.
    effort : Effort

    Returns
    -------
    list of Coded
    int
        Rows of the full table that places were counted among.
    """
    until = bench.seconds_left * (1 - _TRAINING_SHARE)
    made: list[tuple[Candidate, Model, float]] = []

    def make(candidate: Candidate) -> None:
        if bench.seconds_left < until and made:
            raise InvalidInputError("training took too long for more models")
        rows = min(len(bench.drawn.X), _TRAINING_ROWS)
        bench.say(f"training {candidate.name} on {rows} rows")
        start = time.perf_counter()
        model = candidate.make()
        took = 0.0 if candidate.reference else time.perf_counter() - start
        _check_knows(bench, model)
        made.append((candidate, model, took))

    for candidate in candidates:
        bench.attempt(candidate.name, partial(make, candidate))
    if bench.seconds_left <= 0:
        bench.left_out += [f"{candidate.name}: the time was up" for candidate, _, _ in made]
        made.clear()
    if not made:
        return [], 0
    models = [model for _, model, _ in made]
    X, k, rows = bench.drawn.X, bench.goal.k, bench.scale.full
    bench.say("counting places by code")
    packed = [model.encode(X) for model in models]
    sample = _ranks(bench, models, _in_blocks(X), k, packed)
    if bench.scale.whole:
        every, part = sample, k
    elif any(model.network is not None for model in models):
        # To encode the full table with a network might take hours.
        part = _part(k, len(X) / rows)
        every = _ranks(bench, models, _in_blocks(X), part, packed)
    else:
        seconds = 60 * effort.minutes
        most = int(min(_REFERENCE_ROWS, seconds * _READ_A_SECOND / X.shape[1]))
        most = max(most, len(X))
        # How many rows there are was an estimate: what is asked of the reader is what counts.
        read = min(1.0, most / bench.drawn.rows)
        bench.say(f"reading {min(most, rows)} rows of the table once")
        part = _part(k, read)
        with closing(blocks(bench.drawn, read, effort.random_state)) as found:
            every = _ranks(bench, models, found, part)
        bench.correct(len(bench.drawn.held_out) + round(every[0].n_rows / read))
    # As many candidates for each neighbour as for k, also where less than one is expected.
    share = part / k
    return [
        Coded(model, candidate.reference, candidate.layout, took, own, of_full, share, of_sample)
        for (candidate, model, took), own, of_full, of_sample in zip(
            made, packed, every, sample, strict=True
        )
    ], every[0].n_rows


def _part(k: int, share: float) -> int:
    """Return how many of k neighbours are expected among a part of the rows, at least one."""
    return max(1, round(k * share))


def _in_blocks(X: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(X), _BLOCK_ROWS):
        yield X[start : start + _BLOCK_ROWS]


def _ranks(
    bench: Bench,
    models: Sequence[Model],
    rows: Iterable[NDArray[np.float32]],
    k: int,
    packed: Sequence[NDArray[np.uint8]] | None = None,
) -> list[CodeRanks]:
    """Count places among rows that come in blocks; their codes are computed where not given."""
    nearest = NearestRows(bench.drawn.Q, k, bench.metric)
    parts: list[list[NDArray[np.uint8]]] = [[] for _ in models]
    for block in rows:
        nearest.add(block)
        if packed is None:
            for part, model in zip(parts, models, strict=True):
                part.append(model.encode(block))
    numbers, right = nearest.found()
    weights = right * nearest.weights()
    found = []
    for place, model in enumerate(models):
        own = np.concatenate(parts[place]) if packed is None else packed[place]
        parts[place].clear()
        found.append(CodeRanks(model, bench.drawn.Q, own, numbers, weights, k))
    return found


def _check_knows(bench: Bench, model: Model) -> None:
    if model.network is None:
        return
    for what, rows in (("queries", bench.drawn.Q), ("rows", bench.drawn.X)):
        known = model.network.knows(rows)
        if not known.all():
            raise InvalidInputError(
                f"model {model.name!r} has codes of the rows that it was trained on alone, and "
                f"{int((~known).sum())} of {len(known)} {what} are none of them; train it anew "
                "with all rows, and ask rows of the table"
            )
