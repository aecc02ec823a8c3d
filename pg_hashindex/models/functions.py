"""Functions of a model, and the statements that use them in pgvector's own index.

``hashindex.create_functions`` (``sql/126_functions.sql``) makes them; see docs/functions.md.
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

    @property
    def is_expensive(self) -> bool:
        """Whether a code costs more than a few microseconds, so that it is better stored."""
        return not {"normalize", "shift"}.issuperset(self.model.layer_kinds)


def create(connection: Connection, reference: str) -> ModelFunctions:
    """Make the functions of a model, or make them again.

    Raises
    ------
    UnknownModelError
        If there is no such model.
    DatabaseStateError
        If the model cannot be a function, or another has taken its name.
    """
    with translated_errors():
        prepare_schema(connection)
        (code,) = one_row(connection, "SELECT hashindex.create_functions($1)", [reference])
    return ModelFunctions(store.describe(connection, reference), code)
