"""Training a model: fit on most rows, and measure on the rows held back."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..db.progress import is_shown
from ..errors import InvalidInputError
from ..hashers import HASHERS, Preset, make_hasher
from ..hashers.base import Hasher
from ..hashers.numerics.rows import BlockSource, RowSource
from ..hashers.numerics.threads import one_blas_thread
from ..hashers.parameters import TooManyBitsError
from ..hashers.supervision.labels import Labels, Supervision
from ..metrics import precision_at_k
from ..metrics.search import CodeRanks
from ..metrics.truth import NearestRows
from ..models import codes
from ..models.codes import RowCodes
from ..models.model import MAX_BITS, Metric, Model, check_model_name
from ..models.network import known_rows
from ..models.vectors import SparseRows, as_rows, have_directions

#: The method that finds the most of the true neighbours of embeddings; see docs/methods.md.
METHOD = "itq"
#: The fewest rows that a model learns from, unless it is forced to.
LEAST_ROWS = 1000

# Most rows to hold back, besides a tenth of all and of each label: enough to measure recall to 1 %.
_HELD_BACK_ROWS = 500
_RECALL_K = 10
# Candidates are counted until they hold this part of the true neighbours, and this many at the
# most. It is above the .95 that searches are to find, since lists of landmarks lose some too.
_RECALL = 0.98
_MOST_CANDIDATES = 200
# Rows whose distances from all queries are held at a time.
_BLOCK_ROWS = 4096
_PRECISION_K = 50
# Rows that recall is measured among, if rows are read in blocks.
_MEASURED_ROWS = 50_000


@one_blas_thread()
def train(
    X: NDArray[Any] | BlockSource,
    name: str,
    method: str = METHOD,
    *,
    y: ArrayLike | None = None,
    pairs: ArrayLike | None = None,
    triplets: ArrayLike | None = None,
    graph: ArrayLike | SparseRows | None = None,
    graph_features: ArrayLike | None = None,
    n_bits: int | None = None,
    cuts: int | None = None,
    codes: RowCodes = "hashed",
    metric: Metric = "l2",
    random_state: int = 0,
    preset: Preset = "default",
    parameters: dict[str, Any] | None = None,
    force: bool = False,
) -> Model:
    """Fit a hasher, and measure its model on rows that it did not see.

    Parameters
    ----------
    X : floating (n, d), or callable
        The rows; or, for methods that learn from rows alone, a function without arguments that
        returns a fresh iterator of blocks (n_i, d) at every call.
    name
        Name of the model.
    method
        A key of ``HASHERS``.
    y, pairs, triplets, graph, graph_features : array-like, optional
        Supervision, for methods that learn from it; see `Hasher.fit`.
    n_bits
        Bits of a code, one for each projection and cut. By default as many projections as
        `default_bits` says, each with its cuts.
    cuts : int, 1 to 8, optional
        Cuts of each projection; several are for methods whose codes rank by distance. By default
        they have 3, if ``n_bits`` are a multiple of 3; thermometer measures how many are best.
        Codes that rank labels, and all others, have 1, at 0.
    codes
        With "learned" the model keeps the codes that training gave to its labelled rows, for
        `encode_column`. An index hashes every row.
    metric : {"l2", "cosine", "ip"}
        ``cosine`` has the hasher scale rows to unit length, unless ``parameters`` says otherwise.
    preset
        The parameters to begin with: ours, those of the method's paper, or those of its authors'
        program.
    parameters
        Parameters of the method; they win over the preset.
    force
        Allow fewer rows than max(1000, 10 n_bits).

    Returns
    -------
    Model
        It has a ``profile`` of up to 20,000 of the rows that it was fitted on. Its ``training``
        holds ``rows``, ``held_back_rows``, ``seconds``, ``share_of_ones`` (least, mean and greatest
        over the bits), ``distinct_bits`` (see `distinct_bits`), the number of ``learned_codes``
        that it keeps, the kinds of ``supervision`` if there was any, and ``recall``: the fewest
        candidates, at most 200, among which the held-back rows find .98 of their true neighbours,
        as an index with a table of codes and no access path counts them, and the part that they
        find. With labels it also holds ``label_precision`` of the labelled ones, by Hamming
        distance with the learned weights of bits as they are. Both rank all rows, or 50,000 if rows
        come in blocks. If `held_back` finds no rows, both are left out. A transductive method,
        which only has codes for training rows, also learns from the rows held back, but not from
        their labels.

    Raises
    ------
    InvalidInputError
        If a parameter or the rows cannot be used, or the rows are too few.
    """
    known: dict[str, Any] = {"labels": y, "pairs": pairs, "triplets": triplets, "graph": graph}
    known["graph_features"] = graph_features
    supervision = [what for what, value in known.items() if value is not None]
    cuts = _cuts_of_bits(method, n_bits) if cuts is None else cuts
    hasher = hasher_for(
        method,
        supervision,
        n_bits=n_bits,
        cuts=cuts,
        codes=codes,
        metric=metric,
        random_state=random_state,
        preset=preset,
        parameters=parameters,
    )
    check_model_name(name)
    if callable(X):
        X, seen, hidden = _fit_in_blocks(RowSource(X), hasher, random_state, force, known)
        labels = None
    else:
        X, seen, hidden, labels = _fit(as_rows(X), hasher, random_state, force, known)
    model = hasher.to_model(name, metric=metric, cuts=cuts or hasher.chosen_cuts(metric))
    if codes == "learned":
        assert labels is not None  # noqa: S101
        rows = np.intersect1d(seen, labels.labelled)
        learned: NDArray[np.uint8] = vars(hasher)["codes_"]
        model = replace(model, learned=known_rows(X[rows], learned, model.n_bits))
    measured = _measure(model, X, seen, hidden, labels)
    if supervision:
        measured["supervision"] = ", ".join(supervision)
    return replace(model, training={**model.training, **measured})


def hasher_for(
    method: str = METHOD,
    known: Collection[str] = (),
    *,
    n_bits: int | None = None,
    cuts: int | None = None,
    codes: RowCodes = "hashed",
    metric: Metric = "l2",
    random_state: int = 0,
    preset: Preset = "default",
    parameters: dict[str, Any] | None = None,
) -> Hasher:
    """Return the hasher that `train` fits, before any row is read.

    Parameters
    ----------
    method, n_bits, cuts, codes, metric, random_state, preset, parameters
        As for `train`.
    known
        The supervision that there will be.

    Raises
    ------
    InvalidInputError
        If a parameter cannot be used, or as `check_method_takes`.
    """
    cuts = _cuts_of_bits(method, n_bits) if cuts is None else cuts
    given = dict(parameters or {})
    if doubled := sorted({"n_bits", "random_state", "name", "preset"} & set(given)):
        raise InvalidInputError(
            f"{', '.join(doubled)} cannot be given in parameters; use the arguments n_bits, "
            "random_state and preset (--bits, --seed, --preset)"
        )
    if n_bits is not None:
        if cuts is not None and (cuts < 1 or n_bits % cuts):
            raise InvalidInputError(f"{n_bits} bits cannot be divided among {cuts} cuts")
        given["n_bits"] = n_bits // (cuts or 1)
    given["random_state"] = random_state
    if metric == "cosine":
        given.setdefault("normalize", "l2")
    if is_shown() and method in HASHERS and "progress" in HASHERS[method].parameter_names():
        given.setdefault("progress", True)
    hasher = make_hasher(method, preset=preset, **given)
    hasher.check_parameters()
    if cuts is not None:
        hasher.check_cuts(cuts)
    if codes == "learned":
        _check_learns_codes(hasher)
    check_method_takes(method, known)
    return hasher


def _cuts_of_bits(method: str, n_bits: Any) -> int | None:
    """Return the cuts of codes of ``n_bits`` bits; None if these do not determine them."""
    if n_bits is None or method not in HASHERS or method == "thermometer":
        return None
    divides = isinstance(n_bits, Integral) and int(n_bits) in range(3, MAX_BITS + 1, 3)
    return 3 if divides and HASHERS[method].takes_cuts() else 1


def _check_learns_codes(hasher: Hasher) -> None:
    if not hasher.learns_codes:
        learning = ", ".join(name for name, kind in HASHERS.items() if kind.learns_codes)
        raise InvalidInputError(
            f"{hasher.method} learns no codes of its rows that a model could keep; methods that "
            f"do: {learning}"
        )


def _fit(
    X: NDArray[Any], hasher: Hasher, random_state: int, force: bool, known: Mapping[str, Any]
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp], Labels | None]:
    """Fit on the rows that are not held back; return all rows, both parts and the labels."""
    settled = _settle_bits(len(X), X.shape[1], hasher, force)
    supervision = Supervision.read(len(X), *known.values())
    hidden = held_back(len(X), supervision, random_state)
    seen = np.setdiff1d(np.arange(len(X)), hidden)
    if hasher.transductive:
        # It can only encode rows that it has seen.
        labels = supervision.labels
        rows = X
        kept = replace(supervision, labels=None if labels is None else labels.hidden(hidden))
    else:
        rows, kept = X[seen], supervision.restricted_to(seen)
    y = None if kept.labels is None else kept.labels.indicator
    _fit_bits(
        hasher,
        settled,
        rows,
        y,
        pairs=kept.pairs,
        triplets=kept.triplets,
        graph=kept.graph,
        graph_features=kept.graph_features,
    )
    return X, seen, hidden, supervision.labels


def _fit_bits(hasher: Hasher, settled: bool, *rows: Any, **known: Any) -> None:
    """Fit; if no ``n_bits`` was given, learn the bits that the rows have, as `Hasher.fit` does."""
    while True:
        try:
            hasher.fit(*rows, **known)
            return
        except TooManyBitsError as error:
            if not settled or error.most < 1:
                raise
            hasher.n_bits = error.most


def _fit_in_blocks(
    source: RowSource, hasher: Hasher, random_state: int, force: bool, known: Mapping[str, Any]
) -> tuple[NDArray[Any], NDArray[np.intp], NDArray[np.intp]]:
    """Fit on the rows that are not held back; return rows to measure by, and their two parts."""
    if given := [what for what, value in known.items() if value is not None]:
        raise InvalidInputError(
            f"{' and '.join(given)} cannot be used with rows in blocks; train on an array"
        )
    if hasher.transductive:
        raise InvalidInputError(
            f"{hasher.method} only encodes its training rows, which it holds in memory; train it "
            "on an array"
        )
    settled = _settle_bits(source.n_rows, source.dimension, hasher, force)
    hidden = held_back(source.n_rows, Supervision.read(source.n_rows), random_state)
    seen = np.setdiff1d(np.arange(source.n_rows), hidden)
    _fit_bits(hasher, settled, source.restricted_to(seen).blocks)
    rng = np.random.default_rng(random_state)
    among = np.sort(rng.permutation(seen)[:_MEASURED_ROWS])
    X = source.rows(np.concatenate([hidden, among]))
    return X, np.arange(len(hidden), len(X)), np.arange(len(hidden))


def default_bits(hasher: Hasher, n_rows: int, dimension: int) -> int:
    """Return the projections that a hasher is to learn from rows if none are asked for.

    As many as its method's default, but at most one for ten rows. ``sign`` and ``thermometer`` have
    one for each dimension.
    """
    most = hasher.default_bits(dimension)
    if hasher.method in ("sign", "thermometer"):
        return most
    return max(1, min(most, n_rows // 10))


def _settle_bits(n_rows: int, dimension: int, hasher: Hasher, force: bool) -> bool:
    """Choose the number of bits if none is given, and refuse too few rows for it.

    Returns whether it has set ``n_bits`` of the hasher.
    """
    fewer = default_bits(hasher, n_rows, dimension)
    settled = hasher.n_bits is None and fewer < hasher.default_bits(dimension)
    if settled:
        hasher.n_bits = fewer
    n_bits = hasher.n_bits or hasher.default_bits(dimension)
    # A mean is learned from all rows, however many there are of them.
    least = LEAST_ROWS if hasher.method == "thermometer" else max(LEAST_ROWS, 10 * n_bits)
    if n_rows < least and not force:
        raise InvalidInputError(
            f"{n_rows} rows are too few to learn {n_bits} projections from: with fewer than "
            f"{least} a model is bad without any sign of it; train on more rows, learn fewer bits, "
            "or force it"
        )
    return settled


def check_method_takes(method: str, known: Collection[str]) -> None:
    """Refuse supervision that a method does not learn from, or the lack of what it needs."""
    for what in known:
        taking = [name for name, kind in HASHERS.items() if kind.takes(what)]
        if method not in taking:
            what = "a graph" if what.startswith("graph") else what
            raise InvalidInputError(
                f"{method} does not learn from {what}; those that do: {', '.join(taking) or 'none'}"
            )
    needed = HASHERS[method].learns_from if method in HASHERS else ()
    if needed and not set(needed) & set(known):
        raise InvalidInputError(
            f"{method} learns from {' or '.join(needed)}; give some (--{', --'.join(needed)})"
        )


def held_back(n_rows: int, known: Supervision, random_state: int) -> NDArray[np.intp]:
    """Draw rows to measure by, which training does not see, intp (m,).

    At most 500 rows and at most a tenth of all; no rows that pairs or triplets name, and at most a
    tenth of the rows of each label, so none of a label with fewer than ten.
    """
    order = np.random.default_rng(random_state).permutation(n_rows)
    order = order[~np.isin(order, known.related_rows())]
    if known.labels is not None:
        order = order[~_to_be_seen(known.labels, order)]
    return order[: min(_HELD_BACK_ROWS, n_rows // 10)]


def _to_be_seen(labels: Labels, order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Mark the rows of an order that come after the first tenth of the rows of a label."""
    n_rows_of = np.bincount(labels.indicator.indices, minlength=labels.n_classes)
    # Each column lists its rows in this order.
    columns = labels.indicator[order].tocsc()
    columns.sort_indices()
    lengths = np.diff(columns.indptr)
    rank = np.arange(len(columns.indices)) - np.repeat(columns.indptr[:-1], lengths)
    result = np.zeros(len(order), dtype=bool)
    result[columns.indices[rank >= np.repeat(n_rows_of // 10, lengths)]] = True
    return result


def distinct_bits(packed: NDArray[np.uint8], n_bits: int) -> int:
    """Count the bits of codes that are not copies of others.

    Bits that are equal for all rows, or opposite for all, count once; a bit with the same value in
    all rows does not count.
    """
    found = set()
    for byte in range(packed.shape[1]):
        bits = codes.unpack(packed[:, byte : byte + 1], min(8, n_bits - 8 * byte))
        # As differences from the first row, opposite bits become equal, and constant bits zero.
        columns = codes.pack((bits ^ bits[0]).T)
        found |= {hashlib.sha256(column.tobytes()).digest() for column in columns if column.any()}
    return len(found)


def _measure(
    model: Model,
    X: NDArray[Any],
    seen: NDArray[np.intp],
    hidden: NDArray[np.intp],
    labels: Labels | None,
) -> dict[str, Any]:
    hidden = hidden[have_directions(X[hidden], model.metric)]
    seen_codes = model.row_codes(X[seen])
    ones = codes.unpack(seen_codes, model.n_bits).mean(axis=0)
    measured: dict[str, Any] = {
        "held_back_rows": len(hidden),
        "distinct_bits": distinct_bits(seen_codes, model.n_bits),
        "share_of_ones": {
            "least": round(float(ones.min()), 4),
            "mean": round(float(ones.mean()), 4),
            "greatest": round(float(ones.max()), 4),
        },
    }
    if len(hidden) and len(seen) > _RECALL_K:
        # An index hashes every row.
        hashed = seen_codes if model.learned is None else model.encode(X[seen])
        candidates, recall = _enough(model, X[hidden], X[seen], hashed)
        measured["recall"] = {
            "k": _RECALL_K,
            "candidates": candidates,
            "among": len(seen),
            "value": round(recall, 4),
        }
    if model.learned is not None:
        measured["learned_codes"] = len(model.learned.arrays["codes"])
    if labels is not None:
        measured["labels"] = {"rows": len(labels.labelled), "classes": labels.n_classes}
        asked = np.isin(hidden, labels.labelled)
        among = np.isin(seen, labels.labelled)
        same = labels.same(hidden[asked], seen[among])
        # At most the rows that share a label with each of them, else precision could not reach 1.
        k = min(_PRECISION_K, int(same.sum(axis=1).min(initial=_PRECISION_K)))
        if asked.any() and k:
            precision = precision_at_k(
                model.encode(X[hidden[asked]]),
                seen_codes[among],
                same,
                k,
                weights=model.bit_weights,
            )
            measured["label_precision"] = {
                "k": k,
                "among": int(among.sum()),
                "value": round(float(precision), 4),
            }
    return measured


def _enough(
    model: Model,
    queries: NDArray[Any],
    rows: NDArray[Any],
    packed: NDArray[np.uint8],
) -> tuple[int, float]:
    """Return how many candidates hold enough of the true neighbours of queries, and what part."""
    nearest = NearestRows(queries, _RECALL_K, model.metric)
    for start in range(0, len(rows), _BLOCK_ROWS):
        nearest.add(rows[start : start + _BLOCK_ROWS])
    neighbours, right = nearest.found()
    weights = right * nearest.weights()
    order = model.order(queries, model.metric)
    ranks = CodeRanks(order, packed, neighbours, weights, _RECALL_K)
    recall = 0.0
    for candidates in range(_RECALL_K, min(_MOST_CANDIDATES, len(rows)) + 1):
        recall = ranks.recall(candidates)
        if recall >= _RECALL:
            break
    return candidates, recall
