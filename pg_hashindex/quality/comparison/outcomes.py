"""Train, encode and score methods on one data set, and what comes out."""

import time
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import HashIndexError
from ...hashers import Hasher, make_hasher
from ...hashers._common.supervision import Labels, SparseRows
from ...index.catalog import Ranking
from ...models.quantization import Levels
from .methods import Method
from .scores import Measures, Scores, score
from .splits import Split, Truth

__all__ = ["Outcome", "Protocol", "compare"]

#: Codes of the database: from the hash function, or as training left them.
Protocol = Literal["hashed", "learned"]


@dataclass(frozen=True)
class Outcome:
    """How one method did at one number of bits.

    Attributes
    ----------
    method : str
    n_bits : int
        Projections of a row; a code has as many bits, with 4 levels twice as many.
    seed : int
    error : str, optional
        Why there are no scores.
    codes : {"hashed", "learned"}
        Where the codes of the database come from: the hash function, like those of queries, or
        what training left for them, which takes a database that was trained on. Of a transductive
        method those of queries too are "learned".
    distance : {"hamming", "asymmetric", "weighted"}
        "weighted" where the method learned what each bit counts, "asymmetric" for 4 levels; within
        a radius bits count the same all the same.
    ties : {"order", "average"}
    train_rows : int
    train_wall_s, train_cpu_s : float
        Of ``fit`` alone. CPU seconds are those of all threads.
    train_peak_bytes : int
        The most memory that ``fit`` held at a time of what Python and NumPy allocate
        (tracemalloc), without the training rows given to it; files of scratch arrays and the
        working memory of C libraries are not in it. Counting costs ``fit`` a few percent of its
        seconds, more (about a hundredth of a second) only where it takes hundredths.
    encode_wall_s, encode_cpu_s : float
        Of encoding the database.
    scores : dict of str to Scores
        By the name of the truth.
    parameters : dict
        What the model records of the method's parameters, as JSON values.
    levels : {2, 4}
        Levels that codes keep of each projection.
    """

    method: str
    n_bits: int
    seed: int
    error: str | None = None
    codes: Protocol = "hashed"
    distance: Ranking = "hamming"
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

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values; of a method that failed, only why."""
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
