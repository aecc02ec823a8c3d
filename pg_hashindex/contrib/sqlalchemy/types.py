"""The type of code columns, and the functions that make codes, for statements of SQLAlchemy 2."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from numpy.typing import NDArray
from pgvector import Bit, Vector
from pgvector.sqlalchemy import BIT, VECTOR
from sqlalchemy.sql.expression import ColumnElement

from ...errors import InvalidInputError


class HashCode(BIT):
    """Codes of a model: pgvector's ``BIT``, compared by their Hamming distance.

    Values are text of 0 and 1, or `pgvector.Bit`; results are text.

    Parameters
    ----------
    n_bits
        Bits of a code; any number of them in expressions.
    """

    cache_ok = True

    def __init__(self, n_bits: int | None = None) -> None:
        super().__init__(n_bits, varying=n_bits is None)
        self.n_bits = n_bits

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        """Check a code's length, since a cast in PostgreSQL would cut or pad it."""
        text = value.to_text() if isinstance(value, Bit) else value
        if isinstance(text, str) and self.n_bits not in (None, len(text)):
            raise InvalidInputError(f"code {text} has {len(text)} bits, expected {self.n_bits}")
        return super().process_bind_param(text, dialect)

    class Comparator(BIT.Comparator):
        """Comparisons of codes."""

        def hamming_distance(self, other: object, /) -> ColumnElement[int]:
            """Return ``bit_count(a # b)``, the number of bits that differ.

            Unlike for pgvector's ``<~>``, PostgreSQL never uses an approximate index on the column.

            Parameters
            ----------
            other
                A code of as many bits: a column, an expression, or a value.
            """
            # An attribute of the ORM has its column as an expression.
            given = getattr(other, "expression", other)
            code = given if isinstance(given, ColumnElement) else sa.literal(given, HashCode())
            differing = self.expr.op("#", return_type=HashCode())(code)
            return sa.func.bit_count(differing, type_=sa.BigInteger())

    comparator_factory = Comparator


def encode(model: str, vector: "_Vectors") -> sa.Function[Any]:
    """Return SQL for the code of vectors: ``hashindex.encode``.

    Parameters
    ----------
    model
        ``name`` or ``name:version``.
    vector : ColumnElement, array-like (dimension,) or pgvector.Vector
        A column or expression of type ``vector``, or one vector.

    Returns
    -------
    sqlalchemy.Function
        An expression of type `HashCode`.
    """
    return sa.func.hashindex.encode(model, _as_vector(vector), type_=HashCode())


def project(model: str, vector: "_Vectors") -> sa.Function[Any]:
    """Return SQL for the projection of vectors, one number per bit: ``hashindex.project``.

    Parameters
    ----------
    model, vector
        As `encode`.

    Returns
    -------
    sqlalchemy.Function
        An expression of type ``VECTOR``.
    """
    return sa.func.hashindex.project(model, _as_vector(vector), type_=VECTOR())


_Vectors = sa.SQLColumnExpression[Any] | Sequence[float] | NDArray[Any] | Vector


def _as_vector(vector: _Vectors) -> Any:
    if isinstance(vector, sa.SQLColumnExpression):
        return sa.cast(vector, VECTOR())
    return sa.literal(vector, VECTOR())
