"""The base of vector stores: it makes their table, and trains their index."""

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any, ClassVar

from ... import training
from ...db.connection import outside_transactions
from ...errors import DuplicateNameError, InvalidInputError
from ...index.catalog import Access, default_index_name
from ...index.handle import HashIndex
from ...models import store
from ...models.model import Model
from ...training import sampling
from ...training.sampling import SAMPLE_ROWS
from .connections import Connections, Source
from .indexed import IndexedDocuments
from .table import COLUMN, DocumentTable


def refuse_unknown(given: Collection[str], known: Collection[str]) -> None:
    """Refuse unknown options, which would be ignored: a misspelt filter, say."""
    if unknown := sorted(set(given) - set(known)):
        raise InvalidInputError(
            f"unknown options: {', '.join(unknown)}; known are {', '.join(known) or 'none'}"
        )


class DocumentStore:
    """The base of vector stores on a table of documents."""

    _TABLE: ClassVar[str]
    _documents: IndexedDocuments

    @classmethod
    def create_table(
        cls,
        connection: Source,
        dimension: int,
        *,
        table: str | None = None,
        schema: str = "public",
        trust_owner: bool = False,
    ) -> None:
        """Create a table of documents, unless it is there; one of another dimension is refused.

        Parameters
        ----------
        dimension
            The dimension of the embeddings.
        table, schema
            As they are, without quotes.
        trust_owner
            Whether to take a table of another role, which can run code as whoever uses it.
        """
        with ExitStack() as stack:
            connections = Connections.of(connection)
            if connections is not connection:
                stack.callback(connections.close)
            with connections.lent() as lent:
                name = cls._TABLE if table is None else table
                DocumentTable.create(lent, schema, name, dimension, trust_owner=trust_owner)

    def close(self) -> None:
        """Close the connections that were opened for a URL; else do nothing."""
        self._documents.connections.close()

    def train_index(
        self,
        name: str | None = None,
        *,
        method: str = training.METHOD,
        n_bits: int | None = None,
        rows: int = SAMPLE_ROWS,
        parameters: dict[str, Any] | None = None,
        access: Access | None = None,
        tenant: str | None = None,
        random_state: int = 0,
        force: bool = False,
    ) -> Model:
        """Train a model on the documents, and index them by it.

        Searches and writers do not wait; every store on this table uses the index as soon as
        all documents are encoded.

        Parameters
        ----------
        name
            The name of the index and of the model; by default the table's name with ``_idx``.
        method
            A method that learns from vectors only.
        rows, n_bits, parameters, random_state, force
            As `pg_hashindex.training.sampling.sample_table` and `pg_hashindex.training.train`.
        access
            As `pg_hashindex.HashIndex.create`.
        tenant
            The column of tenants, as for `pg_hashindex.HashIndex.create`. If it is stored and
            generated as ``metadata ->> 'KEY'``, filters on this key search within the tenant.

        Returns
        -------
        Model
            The saved model; ``training`` has its recall on held-back documents.

        Raises
        ------
        DuplicateNameError
            If the table has an index already; `operations.swap` gives it another model.
        InvalidInputError
            If there are too few documents, or the connection is inside a transaction.
        DatabaseStateError
            If there is an index of that name, of a table that was dropped and recreated.
        """
        documents = self._documents
        why = "an index is trained and encoded in many transactions"
        with documents.connections.lent() as lent, outside_transactions(lent, why):
            table = documents.table.as_sql(lent)
            index = documents.index(lent)
            if index is not None:
                raise DuplicateNameError(
                    f"table {table} has index {index.name!r} already; train another model for it, "
                    f"and run: pg-hashindex index swap {index.name} --model MODEL"
                )
            store.check_may_save(lent)
            name = name or default_index_name(f"{documents.table.name}_idx")
            documents.check_name(lent, name)
            drawn = sampling.sample_table(lent, table, COLUMN, rows=rows, random_state=random_state)
            model = training.train(
                drawn.X,
                name,
                method,
                n_bits=n_bits,
                metric=documents.metric,
                random_state=random_state,
                parameters=parameters,
                force=force,
            )
            with lent.transaction():
                model = store.save(lent, model)
                made = HashIndex.create(
                    lent,
                    name,
                    table=table,
                    column=COLUMN,
                    model=f"{name}:{model.version}",
                    key_columns="id",
                    access=access,
                    tenant=tenant,
                )
            made.encode()
        return model
