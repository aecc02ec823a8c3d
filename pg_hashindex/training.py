"""Training a model on a table or a file: draw a sample, fit, and measure on rows held back."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import sql
from tqdm import tqdm

from . import codes
from .database import Connection, prepare, translated_errors
from .errors import InvalidInputError
from .hashers import make_hasher
from .metrics import recall_at_k
from .model import UNREADABLE, Metric, Model, check_model_name
from .vectors import as_rows

__all__ = ["SAMPLE_ROWS", "load_rows", "sample_table", "train"]

#: Rows that training draws unless told otherwise.
SAMPLE_ROWS = 100_000

# Beyond this many rows a sample of pages costs far less than a look at every row.
_LARGE_TABLE = 1_000_000
_FETCH_ROWS = 10_000

# The held-back part: at most a tenth of the rows, and no more queries than tell 1 % apart.
_HELD_BACK_ROWS = 500
_RECALL_K = 10
_RECALL_CANDIDATES = 200


def sample_table(
    connection: Connection,
    table: str,
    column: str,
    *,
    rows: int = SAMPLE_ROWS,
    random_state: int = 0,
    progress: bool = False,
) -> NDArray[np.float32]:
    """Draw vectors from a table, in the database.

    Parameters
    ----------
    connection : psycopg.Connection
    table : str
        As SQL writes it.
    column : str
        A column of type ``vector``, by its bare name.
    rows : int
        How many at the most; all of a smaller table. Of tables above a million rows whole pages
        are sampled, which is fast, but not quite uniform where neighbours on a page are alike.
    random_state : int
        Seed of the draw; an unchanged table gives the same rows.
    progress : bool
        Whether to draw a bar on stderr.

    Returns
    -------
    float32 (n, d)

    Raises
    ------
    InvalidInputError
        If there is no such table or column, it holds no vectors, or vectors of several dimensions.
    """
    if rows < 1:
        raise InvalidInputError(f"the sample must have 1 row or more, got {rows}")
    with translated_errors():
        prepare(connection)
        with connection.transaction():
            source, total = _source(connection, table, column)
            share = 1.1 * rows / max(total, 1)
            with tqdm(
                total=min(rows, total),
                unit="row",
                unit_scale=True,
                desc="reading",
                disable=not progress,
            ) as bar:
                vectors = _sample(connection, source, column, rows, total, share, random_state, bar)
                while len(vectors) < rows and share < 1:
                    # Short by chance, or because many rows have no vector.
                    share *= max(2.0, 1.2 * rows / max(len(vectors), 1))
                    bar.reset()
                    vectors = _sample(
                        connection, source, column, rows, total, share, random_state, bar
                    )
    if not vectors:
        raise InvalidInputError(
            f"{table} has no row with a vector in column {column!r}; load the rows first"
        )
    dimensions = sorted({len(vector) for vector in vectors})
    if len(dimensions) > 1:
        raise InvalidInputError(
            f"column {column!r} of {table} holds vectors of dimensions "
            f"{', '.join(map(str, dimensions))}; a model takes one"
        )
    return np.stack(vectors)


def _sample(
    connection: Connection,
    source: sql.Identifier,
    column: str,
    rows: int,
    total: int,
    share: float,
    random_state: int,
    bar: Any,
) -> list[NDArray[np.float32]]:
    """Read the vectors of a share of the rows; of all where it is 1 or more."""
    method = sql.SQL("SYSTEM" if total > _LARGE_TABLE else "BERNOULLI")
    sample = (
        sql.SQL("")
        if share >= 1
        else sql.SQL(" TABLESAMPLE {} ({}) REPEATABLE ({})").format(
            method, sql.Literal(100 * share), sql.Literal(random_state)
        )
    )
    vectors: list[NDArray[np.float32]] = []
    rng = np.random.default_rng(random_state)
    with connection.cursor(name="pg_hashindex_sample") as cursor:
        cursor.itersize = _FETCH_ROWS
        cursor.execute(
            sql.SQL("SELECT {0} FROM {1}{2} WHERE {0} IS NOT NULL").format(
                sql.Identifier(column), source, sample
            ),
            binary=True,
        )
        for seen, (vector,) in enumerate(cursor):
            # The table may be far larger than its statistics say: keep a uniform part of what
            # comes, never all of it.
            if seen < rows:
                vectors.append(vector.to_numpy())
            elif (place := int(rng.integers(seen + 1))) < rows:
                vectors[place] = vector.to_numpy()
            bar.update()
    return vectors


def _source(connection: Connection, table: str, column: str) -> tuple[sql.Identifier, int]:
    """Find the table, check the column, and estimate the rows."""
    row = connection.execute(
        """
        SELECT n.nspname, c.relname, c.relkind, c.reltuples::bigint, format_type(a.atttypid, NULL)
        FROM pg_class c
        JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_attribute a
            ON a.attrelid = c.oid AND a.attname = %s AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.oid = %s::regclass
        """,
        [column, table],
    ).fetchone()
    assert row is not None  # noqa: S101
    schema_name, name, kind, estimate, column_type = row
    if kind not in ("r", "p", "m"):
        raise InvalidInputError(f"{table} is neither a table nor a materialised view")
    if column_type is None:
        raise InvalidInputError(f"table {table} has no column {column!r}")
    if column_type.rpartition(".")[2] != "vector":
        raise InvalidInputError(
            f"column {column!r} of {table} is of type {column_type}, not vector"
        )
    source = sql.Identifier(schema_name, name)
    if estimate < _FETCH_ROWS:
        # Never analysed, or small: then counting is cheap, or the only way to know.
        counted = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(source)).fetchone()
        estimate = counted[0] if counted else 0
    return source, estimate


def load_rows(path: Path, *, rows: int = SAMPLE_ROWS, random_state: int = 0) -> NDArray[Any]:
    """Read vectors from a ``.npy`` or ``.npz`` file.

    Parameters
    ----------
    path : Path
        An archive must have an array ``X``, or a single array of two dimensions.
    rows : int
        How many at the most, drawn without replacement.
    random_state : int

    Returns
    -------
    floating (n, d)

    Raises
    ------
    InvalidInputError
        If the file is not there, not of NumPy, needs pickle, or holds no such array.
    """
    try:
        # Opened here, since NumPy leaves a damaged archive open.
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            array = loaded if isinstance(loaded, np.ndarray) else _vectors_in(loaded, path)
    except InvalidInputError:
        raise
    except UNREADABLE as error:
        raise InvalidInputError(f"cannot read vectors from {path}: {error}") from error
    return _at_most(as_rows(array), rows, random_state)


def _vectors_in(archive: Any, path: Path) -> NDArray[Any]:
    names = ["X"] if "X" in archive.files else _matrices(archive)
    if len(names) != 1:
        raise InvalidInputError(
            f"{path} holds the arrays {', '.join(archive.files)}; the vectors must be called X, or "
            "be the only array of two dimensions"
        )
    array: NDArray[Any] = archive[names[0]]
    return array


def _matrices(archive: Any) -> list[str]:
    return [name for name in archive.files if archive[name].ndim == 2]


def _at_most(X: NDArray[Any], rows: int, random_state: int) -> NDArray[Any]:
    if len(X) <= rows:
        return X
    chosen = np.random.default_rng(random_state).choice(len(X), rows, replace=False)
    return X[np.sort(chosen)]


def train(
    X: NDArray[Any],
    name: str,
    method: str,
    *,
    n_bits: int | None = None,
    metric: Metric = "l2",
    random_state: int = 0,
    parameters: dict[str, Any] | None = None,
    force: bool = False,
) -> Model:
    """Fit a hasher, and measure what it learned on rows that it did not see.

    Parameters
    ----------
    X : floating (n, d)
    name : str
        Of the model.
    method : str
        A key of ``HASHERS``.
    n_bits : int, optional
        Needed by every method but ``sign``.
    metric : {"l2", "cosine", "ip"}
        ``cosine`` has the hasher scale rows to unit length, unless ``parameters`` says otherwise.
    random_state : int
    parameters : dict, optional
        The method's own.
    force : bool
        Train on fewer rows than max(1000, 10 n_bits) all the same.

    Returns
    -------
    Model
        With ``training`` holding ``rows``, ``held_back_rows``, ``seconds``, ``share_of_ones``
        (least, mean and greatest over the bits) and ``recall`` of the held-back rows as queries
        among the others.

    Raises
    ------
    InvalidInputError
        If a parameter or the rows cannot be used, or the rows are too few.
    """
    given = dict(parameters or {})
    if doubled := sorted({"n_bits", "random_state"} & set(given)):
        raise InvalidInputError(
            f"{', '.join(doubled)} cannot be a parameter of the method: bits and seed are given "
            "as such"
        )
    if n_bits is not None:
        given["n_bits"] = n_bits
    given["random_state"] = random_state
    if metric == "cosine":
        given.setdefault("normalize", "l2")
    if "n_bits" not in given and method != "sign":
        raise InvalidInputError(f"method {method!r} needs a number of bits; try 128")
    check_model_name(name)
    hasher = make_hasher(method, **given)
    hasher.check_parameters()
    X = as_rows(X)
    least = max(1000, 10 * int(n_bits or X.shape[1]))
    if len(X) < least and not force:
        raise InvalidInputError(
            f"{len(X)} rows are too few to learn {n_bits or X.shape[1]} bits from: a model needs "
            f"{least}, or it is bad without any sign of it; train on more rows, learn fewer bits, "
            "or force it"
        )
    held_back = _held_back(len(X), random_state)
    seen = np.delete(X, held_back, axis=0)
    model = hasher.fit(seen).to_model(name, metric=metric)
    return hasher.to_model(name, metric=metric, training=_measure(model, seen, X[held_back]))


def _held_back(rows: int, random_state: int) -> NDArray[np.intp]:
    count = min(_HELD_BACK_ROWS, rows // 10)
    return np.random.default_rng(random_state).permutation(rows)[:count]


def _measure(model: Model, seen: NDArray[Any], held_back: NDArray[Any]) -> dict[str, Any]:
    seen_codes = model.encode(seen)
    ones = codes.unpack(seen_codes, model.n_bits).mean(axis=0)
    measured: dict[str, Any] = {
        "held_back_rows": len(held_back),
        "share_of_ones": {
            "least": round(float(ones.min()), 4),
            "mean": round(float(ones.mean()), 4),
            "greatest": round(float(ones.max()), 4),
        },
    }
    if len(held_back) and len(seen) > _RECALL_K:
        recall = recall_at_k(
            held_back,
            seen,
            model.encode(held_back),
            seen_codes,
            k=_RECALL_K,
            candidates=_RECALL_CANDIDATES,
            metric=model.metric,
        )
        measured["recall"] = {
            "k": _RECALL_K,
            "candidates": _RECALL_CANDIDATES,
            "among": len(seen),
            "value": round(float(recall), 4),
        }
    return measured
