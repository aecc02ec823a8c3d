"""Functions of a model, and the statements that use them in pgvector's own index.

``hashindex.create_functions`` (``sql/126_functions.sql``) makes them; see docs/functions.md.
"""

import re
from dataclasses import dataclass

from ..db.connection import Connection
from ..db.owners import prepare_schema
from ..db.server_errors import translated_errors
from ..db.statements import one_row
from ..errors import InvalidInputError
from . import store
from .model import check_model_name
from .store import StoredModel

#: Rows that a search for up to 15 answers fetches by code and compares exactly, by default.
CANDIDATES = 60


def candidates_for(k: int) -> int:
    """Return how many rows a search for k answers compares exactly by default: four for each."""
    return max(CANDIDATES, 4 * k)


@dataclass(frozen=True)
class ModelFunctions:
    """The functions of a model, by the name of ``code_NAME`` as SQL writes it."""

    model: StoredModel
    code: str

    @property
    def is_expensive(self) -> bool:
        """Whether a code costs more than a few microseconds, so that it is better stored."""
        return not {"normalize", "shift"}.issuperset(self.model.layer_kinds)


def code_function(reference: str) -> tuple[str, str]:
    """Return a reference with its version, and the name of its function ``code_NAME``.

    A bare name is version 1, whose function has that name whatever is trained later.

    Raises
    ------
    InvalidInputError
        If it is not ``name`` or ``name:version``.
    """
    name, _, version = str(reference).partition(":")
    check_model_name(name)
    if not re.fullmatch("([1-9][0-9]{0,8})?", version):
        raise InvalidInputError(f"model {reference!r} is not a name or name:version")
    version = version or "1"
    return f"{name}:{version}", f"code_{name}" if version == "1" else f"code_{name}_{version}"


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
