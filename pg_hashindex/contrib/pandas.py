"""Answers as data frames of pandas; needs the extra ``pandas``."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import InvalidInputError
from ..index.search import Hit

if TYPE_CHECKING:
    import pandas

__all__ = ["to_frame"]


def to_frame(hits: Sequence[Hit]) -> "pandas.DataFrame":
    """Put the answers of a search into a frame, in their order.

    Returns
    -------
    pandas.DataFrame
        Columns ``id`` (int64 where keys are integers, else object; keys of several columns are
        tuples) and ``distance`` (float64).
        Without answers the frame has both columns, ``id`` as object.

    Raises
    ------
    InvalidInputError
        If pandas is not installed.
    """
    try:
        import pandas
    except ImportError as error:
        raise InvalidInputError("frames need pandas: pip install 'pg_hashindex[pandas]'") from error
    ids = [hit.id for hit in hits]
    integers = bool(ids) and all(type(key) is int for key in ids)
    return pandas.DataFrame(
        {
            "id": pandas.Series(ids, dtype="int64" if integers else "object"),
            "distance": pandas.Series([hit.distance for hit in hits], dtype="float64"),
        }
    )
