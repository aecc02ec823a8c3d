"""Documents as they go into the table, checked, and as they come out of it."""

import json
from typing import Any, NamedTuple

from numpy.typing import ArrayLike
from pgvector import HalfVector, Vector

from ...errors import InvalidInputError

__all__ = ["Entry", "Row", "as_json"]


class Entry(NamedTuple):
    """A document to be written, with its vector."""

    id: str
    content: str
    metadata: dict[str, Any]
    embedding: ArrayLike

    def checked(self) -> tuple[str, str, str]:
        """Return the id, the text and the metadata as JSON.

        Raises
        ------
        InvalidInputError
            If PostgreSQL cannot store one of them.
        """
        of_this = f"of document {self.id!r}"
        for what, value in (("an id", self.id), (f"the text {of_this}", self.content)):
            if not isinstance(value, str):
                raise InvalidInputError(f"{what} must be text, got {value!r}")
            as_json(what, value)
        if not isinstance(self.metadata, dict):
            raise InvalidInputError(
                f"the metadata {of_this} must be a dictionary, got {self.metadata!r}"
            )
        return self.id, self.content, as_json(f"the metadata {of_this}", self.metadata)


class Row(NamedTuple):
    """A document as it was read; its vector where that was asked for."""

    id: str
    content: str
    metadata: dict[str, Any]
    embedding: Vector | HalfVector | None


def as_json(what: str, value: Any) -> str:
    """Write a value as JSON that PostgreSQL can store.

    Parameters
    ----------
    what : str
        For the message.
    value : Any

    Raises
    ------
    InvalidInputError
        If there is no such JSON.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{what} has half of a surrogate pair: {error}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"{what} cannot be stored as JSON: {error}") from None
    # A backslash that stands for itself is written twice.
    if "\\u0000" in text.replace("\\\\", ""):
        raise InvalidInputError(f"{what} has the character NUL, which PostgreSQL cannot store")
    return text
