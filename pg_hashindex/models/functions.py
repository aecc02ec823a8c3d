"""Functions of a model.

``hashindex.create_functions`` (``sql/126_functions.sql``) makes them; see docs/methods.md.
"""

from dataclasses import dataclass

from ..db.connection import Connection
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.statements import one_row
from . import store
from .store import StoredModel


@dataclass(frozen=True)
class ModelFunctions:
    """The functions of a model, by the name of ``code_NAME`` as SQL writes it."""

    model: StoredModel
    code: str


def create(
    connection: Connection, reference: str, *, reveal_anchors: bool = False
) -> ModelFunctions:
    """Make the functions of a model, or make them again.

    With ``reveal_anchors`` also of a model whose anchors are rows, which all roles may read then.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    DatabaseStateError
        If the model cannot be a function, or another has taken its name.
    """
    with translated_errors():
        prepare_schema(connection)
        (code,) = one_row(
            connection, "SELECT hashindex.create_functions($1, $2)", [reference, reveal_anchors]
        )
    return ModelFunctions(store.describe(connection, reference), code)
