"""The base of vector stores: it makes their table, and trains their index."""

from collections.abc import Collection
from contextlib import ExitStack, suppress
from typing import Any, ClassVar, Unpack

from ... import training
from ...db.connection import outside_transactions
from ...db.statements import one_row
from ...errors import DuplicateNameError, HashIndexError, InvalidInputError
from ...index.catalog import check_index_name, default_index_name, read_rows
from ...index.handle import HashIndex
from ...index.options import OPTIONS, IndexOptions, checked_options
from ...models import store
from ...models.model import Model
from ...quality.advice import GRAPH_METHOD
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
    ) -> None:
        """Create a table of documents, unless it is there; one of another dimension is refused.

        Parameters
        ----------
        dimension
            The dimension of the embeddings.
        table, schema
            As they are, without quotes.
        """
        with ExitStack() as stack:
            connections = Connections.of(connection)
            if connections is not connection:
                stack.callback(connections.close)
            with connections.lent() as lent:
                name = cls._TABLE if table is None else table
                DocumentTable.create(lent, schema, name, dimension)

    def close(self) -> None:
        """Close the connections that were opened for a URL; else do nothing."""
        self._documents.connections.close()

    def train_index(
        self,
        name: str | None = None,
        *,
        method: str | None = None,
        n_bits: int | None = None,
        cuts: int | None = None,
        rows: int = SAMPLE_ROWS,
        parameters: dict[str, Any] | None = None,
        random_state: int = 0,
        force: bool = False,
        **options: Unpack[IndexOptions],
    ) -> Model:
        """Train a model on the documents, and index them by it.

        Searches and writers do not wait; every store on this table uses the index as soon as
        all documents are encoded.

        Parameters
        ----------
        name
            The name of the index and of the model; by default the table's name with ``_idx``.
        method
            A method that learns from vectors only; by default thermometer for HNSW.
        rows, n_bits, cuts, parameters, random_state, force
            As `pg_hashindex.training.sampling.sample_table` and `pg_hashindex.training.train`.
        **options
            The fields of `pg_hashindex.index.options.IndexOptions`, but for key and metric, which
            are the store's; access is hnsw by default, and lists with tenants or for a method that
            is made for them. If the column of tenants is stored and
            generated as ``metadata ->> 'KEY'``, filters on this key search within the tenant.

        Returns
        -------
        Model
            The saved model; ``training`` has its recall on held-back documents.

        Raises
        ------
        DuplicateNameError
            If the table has an index already; `HashIndex.swap` gives it another model. If an index
            of another table has the name.
        InvalidInputError
            If there are too few documents, or the connection is inside a transaction.
        DatabaseStateError
            If there is an index of that name, of a table that was dropped and recreated.
        """
        documents = self._documents
        free = [option for option in OPTIONS if option not in ("key_columns", "metric")]
        usual = default_index_name(f"{documents.table.name}_idx")
        asked: Any = checked_options(name or usual, options, to=free)
        of_lists = asked.get("tenant") or method not in (None, GRAPH_METHOD)
        access = asked.setdefault("access", "lists" if of_lists else "hnsw")
        by_lists = access in ("lists", "scan")
        why = "an index is trained and encoded in many transactions"
        with documents.connections.lent() as lent, outside_transactions(lent, why):
            table = documents.table.as_sql(lent)
            index = documents.index(lent)
            if index is not None and not index.encoded:
                verb = "encode" if index.is_lists else "drop"
                raise DuplicateNameError(
                    f"index {index.name!r} of table {table} is being built, or its build was cut "
                    f"off: wait for it, or run pg-hashindex index {verb} {index.name}"
                )
            if index is not None:
                raise DuplicateNameError(
                    f"table {table} has index {index.name!r} already; train another model for it, "
                    f"and run: pg-hashindex index swap {index.name} --model MODEL"
                )
            store.check_may_save(lent)
            if name is None:
                declared = "SELECT hashindex._declared_name($1, $2::text::regclass)"
                (name,) = one_row(lent, declared, [usual, table])
            check_index_name(name)
            documents.check_name(lent, name)
            # Before minutes of training.
            for taken in read_rows(lent, "WHERE i.name = $1", [name]):
                raise DuplicateNameError(
                    f"index {name!r} exists already, of {taken.qualified_table}; choose another "
                    "name"
                )
            metric = documents.metric
            drawn = sampling.sample_table(
                lent, table, COLUMN, rows=rows, random_state=random_state, metric=metric
            )
            model = training.train(
                drawn.X,
                name,
                method or (training.METHOD if by_lists else GRAPH_METHOD),
                n_bits=n_bits,
                cuts=cuts,
                metric=metric,
                random_state=random_state,
                parameters=parameters,
                force=force,
            )
            model = store.save(lent, model)
            made = f"{name}:{model.version}"
            try:
                HashIndex.create(
                    lent, name, table=table, column=COLUMN, model=made, key_columns="id",
                    metric=metric, **asked,
                )  # fmt: skip
            except BaseException:
                # It stays with lists that `index encode` continues.
                with suppress(HashIndexError):
                    store.drop(lent, made)
                raise
        return model
