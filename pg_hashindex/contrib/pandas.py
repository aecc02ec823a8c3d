"""Answers as data frames; needs the extra ``pandas``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidInputError
from ..index.search import Hit

if TYPE_CHECKING:
    import pandas

__all__ = ["check_pandas", "to_frame"]

_INTEGERS = frozenset({"smallint", "integer", "bigint"})


def check_pandas() -> None:
    """Find out before the search whether its answers can become a frame.

    Raises
    ------
    InvalidInputError
        If pandas is not installed.
    """
    try:
        import pandas  # noqa: F401
    except ImportError as error:
        raise InvalidInputError(
            "as_frame=True needs pandas: pip install 'pg_hashindex[pandas]'"
        ) from error


def to_frame(hits: Sequence[Hit], id_type: str) -> pandas.DataFrame:
    """Put answers into a frame, in their order.

    Parameters
    ----------
    hits : sequence of Hit
    id_type : str
        The type of keys, as PostgreSQL names it.

    Returns
    -------
    pandas.DataFrame
        Columns ``id`` (int64 where keys are integers, else object) and ``distance`` (float64);
        also without any rows.
    """
    import pandas

    ids = pandas.Series(
        [hit.id for hit in hits], dtype="int64" if id_type in _INTEGERS else "object"
    )
    distances = pandas.Series([hit.distance for hit in hits], dtype="float64")
    return pandas.DataFrame({"id": ids, "distance": distances})
