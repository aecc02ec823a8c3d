"""Train, encode and score methods on one data set."""

import time
import tracemalloc
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import HashIndexError
from ...hashers import Hasher, make_hasher
from ...hashers._common.supervision import Labels, SparseRows
from ...index.catalog import Ranking
from .methods import Method
from .outcomes import Outcome, Protocol
from .scores import Measures, score
from .splits import Split
from .truth import Truth

__all__ = ["compare"]

_WARM_UP_ROWS = 500


def compare(
    split: Split,
    methods: Sequence[Method],
    bits: Sequence[int],
    *,
    truths: Sequence[Truth],
    measures: Measures | None = None,
    random_state: int = 0,
) -> Iterator[Outcome]:
    """Train each method at each number of bits, encode the queries and the database, and score.

    Each is trained twice, once for the times and once for the memory.

    Where a method learned from the rows of the database itself and keeps their codes, a second
    outcome has the database with these codes. A transductive method, which gives codes to the rows
    of its training alone, learns from all rows of the database and from the queries, unlabelled;
    it has one outcome, with the codes that training left.

    Parameters
    ----------
    split : Split
    methods : sequence of Method
    bits : sequence of int
    truths : sequence of Truth
    measures : Measures, optional
    random_state : int
        Seed of every training.

    Yields
    ------
    Outcome
        As they are ready. A method that fails has one that says why; the others go on.

    Raises
    ------
    InvalidInputError
        Before any work, if there is no such method or parameter, or a truth or measure does not
        fit the data.
    """
    measures = measures or Measures()
    measures.check(len(split.database))
    for method in methods:
        method.make(1, random_state)
    for truth in truths:
        split.relevant(truth)
    return _outcomes(split, methods, bits, truths, measures, random_state)


def _outcomes(
    split: Split,
    methods: Sequence[Method],
    bits: Sequence[int],
    truths: Sequence[Truth],
    measures: Measures,
    random_state: int,
) -> Iterator[Outcome]:
    _warm_up(split)
    for method in methods:
        for n_bits in bits:
            outcome = Outcome(
                method.name, n_bits, random_state, ties=measures.ties, levels=method.levels
            )
            try:
                found = list(_run(split, method, outcome, truths, measures))
            # Whatever goes wrong in one method, the others are to be compared all the same.
            except Exception as error:
                found = [replace(outcome, error=_reason(error))]
            yield from found


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text if isinstance(error, HashIndexError) else f"{type(error).__name__}: {text}"


def _warm_up(split: Split) -> None:
    """Train once for nothing: the first time loads libraries and starts their threads."""
    with suppress(HashIndexError):
        make_hasher("sgh", n_bits=8, random_state=0).fit(split.train[:_WARM_UP_ROWS])


def _run(
    split: Split,
    method: Method,
    outcome: Outcome,
    truths: Sequence[Truth],
    measures: Measures,
) -> Iterator[Outcome]:
    hasher = method.make(outcome.n_bits, outcome.seed)
    transductive = hasher.transductive
    X, y = (method.transductive_data if transductive else method.training_data)(split)
    trained = _train(hasher, X, y, outcome)
    again = method.make(outcome.n_bits, outcome.seed)
    trained = replace(trained, train_peak_bytes=_peak_memory(again, X, y))
    model = hasher.to_model(method.hasher, levels=method.levels)
    query_codes = model.encode(split.queries)
    ranked_by, weights = model.ranking_codes(split.queries)
    plain: Ranking = "hamming" if weights is None else "weighted"
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
    # Training leaves signs.
    if not transductive and model.levels == 2:
        protocols["learned"] = _learned(split, method, hasher, y, hashed)
    for protocol, codes in protocols.items():
        if codes is not None:
            scores = score(
                query_codes,
                codes,
                split,
                truths,
                measures,
                ranked_by=ranked_by,
                weights=weights,
            )
            yield replace(encoded, codes=protocol, scores=scores)


def _train(
    hasher: Hasher,
    X: NDArray[np.floating],
    y: NDArray[np.integer] | SparseRows | None,
    outcome: Outcome,
) -> Outcome:
    wall, cpu = time.perf_counter(), time.process_time()
    hasher.fit(X, y)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return replace(outcome, train_rows=len(X), train_wall_s=wall, train_cpu_s=cpu)


def _peak_memory(
    hasher: Hasher, X: NDArray[np.floating], y: NDArray[np.integer] | SparseRows | None
) -> int:
    """Return the bytes that training allocates at most; tracing them slows it down."""
    already = tracemalloc.is_tracing()
    if not already:
        tracemalloc.start()
    tracemalloc.reset_peak()
    held = tracemalloc.get_traced_memory()[0]
    try:
        hasher.fit(X, y)
        return tracemalloc.get_traced_memory()[1] - held
    finally:
        if not already:
            tracemalloc.stop()


def _learned(
    split: Split,
    method: Method,
    hasher: Hasher,
    y: NDArray[np.integer] | SparseRows | None,
    hashed: NDArray[np.uint8],
) -> NDArray[np.uint8] | None:
    """Return the codes that training left for the database, if it was all trained on."""
    learned = getattr(hasher, "codes_", None)
    places = split.train_places
    if method.train_on == "database":
        places = np.arange(len(split.database))
    if learned is None or places is None or len(places) < len(split.database):
        return None
    if y is not None and "labels" in hasher.learns_from:
        places = places[Labels.read(y, y.shape[0]).labelled]
    if len(learned) != len(places):
        return None
    # Rows without a label have no learned code: theirs stay hashed.
    result = hashed.copy()
    result[places] = learned
    return result
