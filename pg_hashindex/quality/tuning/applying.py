"""Apply a recommendation: configure an index, or save a model and create an index."""

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace

from ...db.connection import Connection, outside_transactions
from ...db.owners import prepare_schema
from ...db.server_errors import translated_errors
from ...db.statements import execute
from ...errors import HashIndexError, InvalidInputError, MissingRightsError, UnknownIndexError
from ...index.catalog import check_index_name
from ...index.handle import HashIndex
from ...index.landmarks.memory import DEFAULT_MEMORY
from ...models import store
from ...models.model import check_model_name
from .advice import Advice, Trial, name_codes

_MAY_INDEX = (
    "SELECT quote_ident(current_user), has_table_privilege(t, 'TRIGGER'), t::text "
    "FROM CAST($1::text AS regclass) t"
)


def check_free(connection: Connection, name: str, table: str | None = None) -> None:
    """Refuse, before tuning, a name or table that `apply` could not use."""
    check_model_name(name)
    check_index_name(name)
    if table is not None:
        with translated_errors():
            prepare_schema(connection)
            row = execute(connection, _MAY_INDEX, [table]).fetchone()
        if row is not None and not row[1]:
            raise MissingRightsError(
                f"role {row[0]} may not make the triggers that an index of {row[2]} needs; its "
                f"owner grants that with: GRANT TRIGGER ON {row[2]} TO {row[0]}"
            )
    try:
        HashIndex.open(connection, name)
    except UnknownIndexError:
        return
    raise InvalidInputError(
        f"index {name!r} exists already: choose another name, or tune that index by its name"
    )


def apply(
    connection: Connection,
    advice: Advice,
    *,
    name: str | None = None,
    memory: str | int = DEFAULT_MEMORY,
) -> HashIndex:
    """Store advice as the defaults of the index it is about, or create the index it describes.

    If an index was tuned, the best settings with its own model are stored, even if something else
    is recommended. Rows without a code are encoded and the access path is built first; until then
    searches work as before. If a table was tuned, the recommended model is saved and the index
    created.

    An interruption leaves an index that can be finished; the message, or a note of the exception,
    says how.

    Parameters
    ----------
    connection
        Not inside a transaction.
    name
        The name of the new model and index; required if a table was tuned.
    memory
        As for `HashIndex.encode`.

    Raises
    ------
    InvalidInputError
        If no trial that can be applied reaches the goal, or the name is missing.
    HashIndexError
        As `HashIndex.create` and `HashIndex.encode`.
    """
    chosen = advice.applicable
    if chosen is None:
        raise InvalidInputError(f"there is nothing to apply: {advice.reason}")
    if advice.index is None and not name:
        raise InvalidInputError("a name is needed for the model and the index to be made")
    with outside_transactions(connection, "applying commits step by step"):
        if advice.index is None:
            index = _create(connection, advice, chosen, name or "")
            state, words = (
                "is there, and has not all of its codes and paths",
                ["encode", index.name],
            )
        else:
            index = HashIndex.open(connection, advice.index)
            state, words = "searches as before", ["configure", advice.index, *chosen.options]
        with _telling(
            f"index {index.name!r} {state}; finish with: pg-hashindex index {shlex.join(words)}"
        ):
            if advice.index is None:
                # No search uses the new index yet.
                index.configure(**chosen.configuration)
            index.configure(access=chosen.access).encode(memory=memory)
            index.configure(**chosen.configuration)
        return HashIndex.open(connection, index.name)


@contextlib.contextmanager
def _telling(what: str) -> Iterator[None]:
    """Add to an error what is left of the work."""
    try:
        yield
    except HashIndexError as error:
        raise type(error)(f"{error}; {what}") from error
    except BaseException as error:
        error.add_note(what)
        raise


def _create(connection: Connection, advice: Advice, chosen: Trial, name: str) -> HashIndex:
    model = advice.models[name_codes(chosen.method or "", chosen.bits or 0, chosen.levels or 2)]
    saved = store.save(connection, replace(model, name=name))
    reference = f"{saved.name}:{saved.version}"
    try:
        return HashIndex.create(
            connection,
            name,
            table=advice.table,
            column=advice.column,
            key_columns=advice.key_columns,
            model=reference,
            metric=advice.metric,
            access=chosen.access,
        )
    except BaseException as error:
        # Ctrl-C comes here too.
        if not connection.closed:
            try:
                store.drop(connection, reference)
            except HashIndexError as left:
                error.add_note(f"model {reference} is left: {left}")
        raise
