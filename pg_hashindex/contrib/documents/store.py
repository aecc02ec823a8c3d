"""The base of vector stores: it makes their table, and trains their index."""

from collections.abc import Collection
from contextlib import ExitStack
from typing import Any, ClassVar, Unpack, get_args

from ... import training
from ...db.connection import outside_transactions
from ...db.statements import one_row
from ...errors import DuplicateNameError, InvalidInputError
from ...index.catalog import default_index_name
from ...index.handle import HashIndex
from ...index.options import OPTIONS, IndexOptions, checked_options
from ...models import functions, store
from ...models.functions import ModelFunctions
from ...models.model import Model
from ...quality.advice import GRAPH_METHOD, Kind, kind_of
from ...training import sampling
from ...training.sampling import SAMPLE_ROWS
from .connections import Connections, Source
from .indexed import Graph, IndexedDocuments
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
        kind: Kind | None = None,
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
        kind : {"function", "index"}, optional
            Whether the model becomes a SQL function, and pgvector's HNSW takes its codes, or
            pg_hashindex keeps an index: for many writes, tenants, or a graph that is larger than
            memory. By default the function, unless another method, or an
            option of an index, is given.
        method
            A method that learns from vectors only; by default thermometer for a function.
        rows, n_bits, cuts, parameters, random_state, force
            As `pg_hashindex.training.sampling.sample_table` and `pg_hashindex.training.train`.
        **options
            The fields of `pg_hashindex.index.options.IndexOptions`, for an index of pg_hashindex,
            but for key and metric, which are the store's. If the column of tenants is stored and
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
            If there are too few documents, the connection is inside a transaction, or the kind does
            not take an option.
        DatabaseStateError
            If there is an index of that name, of a table that was dropped and recreated.
        """
        documents = self._documents
        free = [option for option in OPTIONS if option not in ("key_columns", "metric")]
        asked: Any = checked_options(name or documents.table.name, options, to=free)
        given = [option for option, value in asked.items() if value]
        if kind is None:
            kind = "index" if given else kind_of(method or GRAPH_METHOD)
        if kind not in get_args(Kind) or (kind == "function" and given):
            raise InvalidInputError(
                f"kind is {kind!r}; it must be function or index"
                + (f", and {given[0]} is of an index" if given else "")
            )
        why = "an index is trained and encoded in many transactions"
        with documents.connections.lent() as lent, outside_transactions(lent, why):
            table = documents.table.as_sql(lent)
            index = documents.index(lent)
            if isinstance(index, Graph):
                raise DuplicateNameError(
                    f"table {table} has index {index.name!r} of pgvector already"
                    f"{'' if index.valid else ', whose build is under way or was cut off'}; drop "
                    "it first, or make another one in SQL"
                )
            if index is not None:
                raise DuplicateNameError(
                    f"table {table} has index {index.name!r} already; train another model for it, "
                    f"and run: pg-hashindex index swap {index.name} --model MODEL"
                )
            store.check_may_save(lent)
            if name is None:
                named = "SELECT hashindex._declared_name($1, $2::text::regclass)"
                own = default_index_name(f"{documents.table.name}_idx")
                (name,) = one_row(lent, named, [own, table])
            documents.check_name(lent, name)
            if kind == "function":
                documents.check_relation(lent, name)
            metric = documents.metric
            drawn = sampling.sample_table(
                lent, table, COLUMN, rows=rows, random_state=random_state, metric=metric
            )
            model = training.train(
                drawn.X,
                name,
                method or (GRAPH_METHOD if kind == "function" else training.METHOD),
                n_bits=n_bits,
                cuts=cuts,
                metric=metric,
                random_state=random_state,
                parameters=parameters,
                force=force,
            )
            with lent.transaction():
                model = store.save(lent, model)
                reference = f"{name}:{model.version}"
                made: HashIndex | ModelFunctions
                if kind == "function":
                    made = functions.create(lent, reference)
                else:
                    made = HashIndex.create_lists(
                        lent, name, table=table, column=COLUMN, model=reference,
                        key_columns="id", **asked,
                    )  # fmt: skip
            if isinstance(made, ModelFunctions):
                documents.make_graph(lent, name, made)
            else:
                made.encode()
        return model
