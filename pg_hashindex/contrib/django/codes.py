"""Codes by the functions of a model, and pgvector's index on them."""

from typing import Any

from django.db.models import Func, Value
from pgvector.django import BitField, HnswIndex
from psycopg import sql

from ...errors import InvalidInputError
from ...index.search import as_query
from ...models.functions import code_function
from .indexes import refuse_vendor


def _function(model: str) -> str:
    """Return the name of a model's function as SQL writes it."""
    return sql.Identifier("hashindex", code_function(model)[1]).as_string(None)


class HashCode(Func):  # type: ignore[misc]
    """The code of vectors by a function of a model, for pgvector's ``HammingDistance``.

    With ``bits`` it is what a `HashCodeIndex` of a field is on; without, the code of a query, which
    is computed once a statement.

    Parameters
    ----------
    expression : str, expression, array-like (dimension,) or pgvector.Vector
        A field of vectors or an expression, or one vector.
    model
        ``name``, which is its version 1, or ``name:version``.
    bits
        The length of a code; needed for a field.

    Raises
    ------
    InvalidInputError
        If the model is not ``name`` or ``name:version``, or a field has no bits.
    """

    def __init__(
        self, expression: Any, *, model: str, bits: int | None = None, **extra: Any
    ) -> None:
        code_function(model)
        if isinstance(expression, str):
            if bits is None:
                raise InvalidInputError(
                    f"the code of field {expression!r} needs bits, the length of a code"
                )
        elif not hasattr(expression, "resolve_expression"):
            expression = Value(as_query(expression, None).to_text())
            # Django hashes these, and a vector has no hash.
            self._constructor_args = ((expression,), {"model": model, "bits": bits, **extra})
        self.model, self.bits = model, bits
        extra.setdefault("output_field", BitField(length=bits))
        super().__init__(expression, **extra)

    def as_sql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Write the call, cast to the length, or in a subquery."""
        call = f"{_function(self.model).replace('%', '%%%%')}(%(expressions)s)"
        if self.bits is not None:
            template = f"({call})::bit({int(self.bits)})"
        else:
            # Without a type, both vector and halfvec would fit.
            template = f"(SELECT {call.replace('(expressions)s', '(expressions)s::vector')})"
        return super().as_sql(compiler, connection, template=template, **context)


class HashCodeIndex(HnswIndex):
    """An HNSW index of pgvector on the codes of a field of vectors, for ``Meta.indexes``.

    A function of the model makes the codes: a migration before it has `CreateModelFunctions`.
    ``fields`` is one field, a ``VectorField`` or ``HalfVectorField`` of pgvector.django.

    Parameters
    ----------
    model
        ``name``, which is its version 1, or ``name:version``.
    bits
        The length of a code.
    ef_construction
        As for pgvector's ``HnswIndex``, whose options, such as ``m`` and ``condition``, it takes.

    Raises
    ------
    InvalidInputError
        If it is declared on expressions or several fields, or the model cannot be one.
    """

    def __init__(
        self, *expressions: Any, model: str, bits: int, ef_construction: int = 128, **options: Any
    ) -> None:
        fields = options.get("fields", ())
        if expressions or len(fields) != 1:
            raise InvalidInputError(f"an index on codes is on one field, got {list(fields)}")
        code_function(model)
        self.model, self.bits = model, bits
        super().__init__(ef_construction=ef_construction, **options)

    def deconstruct(self) -> Any:
        """Return what a migration writes."""
        path, _, kwargs = super().deconstruct()
        path = path.replace(".django.codes.", ".django.")
        return path, (), {**kwargs, "model": self.model, "bits": self.bits}

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **options: Any) -> Any:
        """Return SQL that makes the index."""
        refuse_vendor(schema_editor.connection, f"index {self.name!r} of {model._meta.label}")
        made = super().create_sql(model, schema_editor, using=using, **options)
        code = f"{_function(self.model)}({made.parts['columns']})"
        made.parts["columns"] = f"(({code})::bit({int(self.bits)})) bit_hamming_ops"
        return made
