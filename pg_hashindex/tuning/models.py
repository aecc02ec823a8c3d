"""The models that are tried: which, in which order, and what their codes know of the full table."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..catalog import Layout
from ..errors import InvalidInputError
from ..hashers import HASHERS
from ..index import HashIndex
from ..model import Model
from ..training import train
from .bench import Bench
from .code_ranks import CodeRanks
from .code_trials import Coded
from .drawing import Effort, blocks
from .neighbours import NearestRows

__all__ = ["Candidate", "code_all", "of_index", "of_table"]

_BITS = (64, 128, 256, 512)
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
        Method and bits.
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
    ``pcah`` and ``sgh``; no more bits than dimensions where the method cannot.

    Parameters
    ----------
    bench : Bench
    seed : int
    """
    d = bench.drawn.X.shape[1]
    fitting = sorted({min(bits, d) for bits in _BITS})
    wanted: list[tuple[str, int]] = [("itq", bits) for bits in fitting if bits in (128, d)]
    wanted += [("sign", d), *(("itq", bits) for bits in fitting)]
    wanted += [("lsh", 256), ("lsh", 128), ("sgh", 128), ("pcah", min(128, d))]
    wanted += [("lsh", 512), ("lsh", 64)]
    return [
        Candidate(
            f"{method} {bits} bits",
            partial(_trained, bench, method, None if method == "sign" else bits, seed, {}),
        )
        for method, bits in dict.fromkeys(wanted)
    ]


def of_index(bench: Bench, index: HashIndex) -> list[Candidate]:
    """Return an index's own model, and the same method with other numbers of bits.

    Parameters
    ----------
    bench : Bench
    index : HashIndex
        Where its model learns from labels and the like, or Python evaluates it, there is no other.
    """
    own = Candidate(
        f"{index.method} {index.n_bits} bits",
        lambda: index.loaded_model,
        f"{index.model}:{index.model_version}",
        index.layout,
    )
    kind = HASHERS.get(index.method)
    if kind is None or index.network is not None or kind.learns_from or kind.takes_graph:
        return [own]
    parameters = dict(index.loaded_model.parameters)
    parameters.pop("n_bits", None)
    seed = parameters.pop("random_state", None) or 0
    others = [] if index.method == "sign" else [bits for bits in _BITS if bits != index.n_bits]
    return [own] + [
        Candidate(
            f"{index.method} {bits} bits",
            partial(_trained, bench, index.method, bits, seed, parameters),
            None,
            index.layout,
        )
        for bits in others
    ]


def _trained(
    bench: Bench, method: str, bits: int | None, seed: int, parameters: dict[str, Any]
) -> Model:
    X = bench.drawn.X
    if bench.metric == "cosine":
        # Rows of zeros have no neighbours, and training measures by rows of its own.
        X = X[X.any(axis=1)]
    return train(
        X,
        "tuned",
        method,
        n_bits=bits,
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
        bench.say(f"training {candidate.name} on {len(bench.drawn.X)} rows")
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
