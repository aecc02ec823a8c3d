"""Making a recommendation true: an index configured, or a model saved and an index created."""

from dataclasses import replace

from .. import store
from ..database import Connection
from ..errors import HashIndexError, InvalidInputError, UnknownIndexError
from ..index import HashIndex
from .advice import Advice
from .trials import Trial

__all__ = ["apply", "check_free"]


def check_free(connection: Connection, name: str) -> None:
    """Refuse the name of an index that exists already, before the work.

    Raises
    ------
    InvalidInputError
    """
    try:
        HashIndex.open(connection, name)
    except UnknownIndexError:
        return
    raise InvalidInputError(
        f"index {name!r} exists already: choose another name, or tune that index by its name"
    )


def apply(
    connection: Connection, advice: Advice, *, name: str | None = None, progress: bool = False
) -> HashIndex:
    """Store advice as the defaults of the index it is about, or create the index it describes.

    Of an index that was tuned, what it can be configured to is stored: the best of its own model,
    also where something else is recommended. Then rows that wait are encoded and the access path is
    built. Of a table, the recommended model is saved and the index created.

    Parameters
    ----------
    connection : psycopg.Connection
        Not inside a transaction.
    advice : Advice
    name : str, optional
        Of the new model and index; needed where a table was tuned.
    progress : bool
        Whether to draw bars on stderr.

    Returns
    -------
    HashIndex

    Raises
    ------
    InvalidInputError
        If nothing that can be made reaches the goal, or the name is missing.
    HashIndexError
        As `HashIndex.create` and `HashIndex.encode`.
    """
    chosen = advice.applicable
    if chosen is None:
        raise InvalidInputError(f"there is nothing to apply: {advice.reason}")
    if advice.index is not None:
        index = HashIndex.open(connection, advice.index)
    elif name is None:
        raise InvalidInputError("a name is needed for the model and the index to be made")
    else:
        index = _create(connection, advice, chosen, name)
    index.configure(
        access=chosen.access,
        ranking=chosen.ranking,
        candidates=chosen.candidates,
        probes=chosen.probes,
    ).encode(progress=progress)
    return HashIndex.open(connection, index.name)


def _create(connection: Connection, advice: Advice, chosen: Trial, name: str) -> HashIndex:
    model = advice.models[chosen.method or "", chosen.bits or 0]
    saved = store.save(connection, replace(model, name=name))
    reference = f"{saved.name}:{saved.version}"
    try:
        return HashIndex.create(
            connection,
            name,
            table=advice.table,
            column=advice.column,
            id_column=advice.id_column,
            model=reference,
            metric=advice.metric,
        )
    except HashIndexError:
        store.drop(connection, reference)
        raise
