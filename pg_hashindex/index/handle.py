"""The handle of an index: a connection and a name."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Self, Unpack

from psycopg.pq import TransactionStatus

from ..db.connection import Connection, prepare
from ..db.keys import as_text
from ..db.server_errors import translated_errors
from ..db.statements import Steps, execute, run
from ..db.throttle import Throttle
from ..errors import InvalidInputError
from . import build, sets
from .catalog import (
    IndexRow,
    IndexSummary,
    ListSummary,
    read_row,
    read_rows,
)
from .landmarks.memory import DEFAULT_MEMORY, as_bytes
from .options import IndexOptions, checked_options, options_changed_by
from .search import Hit, HybridHit, Searches


class HashIndex(Searches[list[Hit], list[HybridHit]]):
    """An index: its name, on a connection.

    The index's row in the catalog is read when it is needed, so the handle follows a swap, a
    repair, or a `configure` of another session. Fields of the row are attributes of the handle:
    ``index.model``, ``index.access`` and so on; each access queries the database.

    Made by `create` or `open`, not by hand.
    """

    _run: Any = staticmethod(run)

    def __init__(self, connection: Connection, name: str, row: IndexRow | None = None) -> None:
        self.connection = connection
        self.name = name
        # Searches use this row of the catalog until one of them fails.
        self._row = row

    def __repr__(self) -> str:
        return f"HashIndex({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashIndex) and (self.connection, self.name) == (
            other.connection,
            other.name,
        )

    def __hash__(self) -> int:
        return hash((self.connection, self.name))

    @classmethod
    def open(cls, connection: Connection, name: str) -> Self:
        """Find an index by its name.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        return cls(connection, name, read_row(connection, name))

    @classmethod
    def create(
        cls,
        connection: Connection,
        name: str,
        *,
        table: str,
        column: str,
        model: str | None = None,
        memory: str | int = DEFAULT_MEMORY,
        jobs: int | None = None,
        patience: float | None = None,
        **options: Unpack[IndexOptions],
    ) -> Self:
        """Create an index, complete, while the table is searched and written to.

        One of lists that was cut off is continued by the same call.

        A name, ``hashindex.search_NAME``, and behind it a set: vectors, or codes of a model, in an
        index of pgvector's, or codes in lists.

        Parameters
        ----------
        name
            1 to 40 letters a to z, digits, ``_`` and ``-``.
        table
            As SQL writes it: ``items``, ``shop.items``, ``"My Items"``.
        column
            A column of type ``vector`` or ``halfvec``, by its bare name.
        model : str, optional
            ``name`` or ``name:version``; ``none`` for the vectors themselves. By default a
            thermometer model is trained, with the name of the index; a table of fewer than 1,000
            rows gets its vectors, if neither model, access nor store is given.
        memory
            The memory to take for the build, in bytes or as "512MB" or "2GB".
        jobs : int, optional
            Processes of the build; the server's own number by default.
        patience
            Seconds to try again for, while transactions keep the table in use; 60 by default.
        **options
            The fields of `IndexOptions`.

        Raises
        ------
        InUseError
            If transactions kept the table in use for so long. Nothing is changed then, but lists
            that were begun stay, and the same call continues them.
        DuplicateNameError, InvalidInputError, UnknownModelError, MissingRightsError
            Nothing is changed then.
        """
        texts = {"name": name, "table": table, "column": column, "model": model or ""}
        for what, value in texts.items():
            if not isinstance(value, str):
                raise InvalidInputError(f"{what} must be text, got a {type(value).__name__}")
        given = checked_options(name, options)
        sets.create(
            connection, name, table, column, model, given,
            memory=as_bytes(memory), jobs=jobs, patience=patience,
        )  # fmt: skip
        return cls.open(connection, name)

    def swap(
        self,
        *,
        model: str | None = None,
        column: str | None = None,
        tolerance: float = 0.01,
        force: bool = False,
        memory: str | int = DEFAULT_MEMORY,
        jobs: int | None = None,
        rows_per_second: float | None = None,
        **options: Unpack[IndexOptions],
    ) -> build.SetSwapped:
        """Build another set beside the one in use, and exchange the two.

        What is not given stays. The former set stays for `rollback`, until `prune`.

        Parameters
        ----------
        model
            ``name``, ``name:version``, or ``none`` for the vectors themselves.
        column
            The vectors of another embedding model, in a column of their own.
        tolerance
            How much recall may fall, 0 to 1.
        force
            Take the new set even if recall falls by more; alone, the set that is ready.
        memory, jobs
            As `create`.
        rows_per_second
            The most rows to read for lists in a second.
        **options
            ``access``, ``store``, ``code_column`` and ``reveal_anchors``.

        Raises
        ------
        LowerRecallError
            If recall would fall by more than the tolerance. The set in use stays, the other one is
            ready.
        InUseError
            If another session builds a set of it, or the former set is still there.
        """
        given = checked_options(self.name, options, to=options_changed_by("swap"))
        return sets.swap(
            self.row, given | {"model": model, "column": column}, tolerance=tolerance, force=force,
            memory=as_bytes(memory), jobs=jobs, throttle=Throttle(rows_per_second),
        )  # fmt: skip

    def rollback(self) -> str:
        """Exchange the set in use with the former one; return the set that is in use then."""
        return sets.rollback(self.connection, self.name, self.metadata.qualified_table)

    def prune(self) -> int:
        """Drop the sets that are not in use; return how many."""
        return sets.prune(self.connection, self.name, self.metadata.qualified_table)

    def rename(self, name: str) -> Self:
        """Give the index, and its search function, another name; return its handle."""
        sets.rename(self.connection, self.name, self.metadata.qualified_table, name)
        return self.open(self.connection, name)

    @property
    def row(self) -> IndexRow:
        """The index's row in the catalog.

        Raises
        ------
        UnknownIndexError
            If it was dropped.
        MissingRightsError
            If its table got an owner without the administrator's rights.
        """
        return self.metadata.passed()

    @property
    def metadata(self) -> IndexRow:
        """The index's row in the catalog, for what does not read its table."""
        self._row = read_row(self.connection, self.name)
        return self._row

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.metadata, name)

    def _row_steps(self) -> Steps[IndexRow]:
        with translated_errors():
            prepare(self.connection)
        # No block in autocommit mode: those of threads that share the connection would be nested.
        idle = self.connection.info.transaction_status == TransactionStatus.IDLE
        own = self.connection.transaction() if idle and not self.connection.autocommit else None
        with own or nullcontext():
            return (yield from super()._row_steps())

    def waiting(self) -> int:
        """Count the rows that have a vector and no code, and so are not found by searches."""
        return self.row.waiting()

    def summary(self) -> IndexSummary:
        """Count rows and codes, and measure their size; reads the whole table."""
        return self.row.summary()

    def lists(self) -> ListSummary | None:
        """Count what is in the lists of landmarks; reads all codes. None without landmarks."""
        return self.row.lists()

    def encode(
        self,
        *,
        batch_rows: int | None = None,
        rows_per_second: float | None = None,
        memory: str | int = DEFAULT_MEMORY,
        jobs: int | None = None,
    ) -> int:
        """Finish the lists that are being built, or encode every row that has a vector but no code.

        What is written is committed step by step, so an interrupted run can be continued; writers
        do not wait. Needs a connection that is not inside a transaction.

        Parameters
        ----------
        batch_rows
            Rows of a batch, 100,000 at most. By default 10,000, fewer if vectors are long.
        rows_per_second
            The most rows to encode, or to read for landmarks, in a second; no limit by default.
            Landmarks are trained, and PostgreSQL builds its own indexes, at full speed.
        memory
            The memory to take for building landmarks, in bytes or as "512MB" or "2GB", for all
            processes together.
        jobs
            How many processes read rows for landmarks, each with a connection; the result is the
            same. By default as many as the process may use cores, 4 at most; one for fewer than
            100,000 rows. It is always one on tables with row security, and with
            ``rows_per_second``. With a `FewerJobsWarning`
            there are fewer, if memory or the server allows no more.

        Returns
        -------
        int
            Codes written. If landmarks are built, all rows are encoded.

        Raises
        ------
        InvalidInputError
            If the connection is inside a transaction, a row has another dimension, or
            rows_per_second is not above 0; memory does not hold the landmarks; or jobs is not 1 to
            64.
        InUseError
            If another session is encoding this index, or building a set of it.
        DatabaseStateError
            If others keep rows locked for a minute; or if the index was meanwhile dropped or made
            again, or the set that is built was given up.
        """
        return build.encode(
            self.row,
            batch_rows=batch_rows,
            rows_per_second=rows_per_second,
            memory=memory,
            jobs=jobs,
        )

    def configure(
        self,
        *,
        patience: float | None = None,
        **options: Unpack[IndexOptions],
    ) -> Self:
        """Change the defaults of searches; None leaves an option as it is.

        Parameters
        ----------
        patience
            As `drop`.
        **options
            The fields ``candidates`` and ``effort`` of `IndexOptions`.

        Returns
        -------
        HashIndex
            This one.

        Raises
        ------
        InUseError
            As `drop`.
        InvalidInputError
            If a value is out of range, or the index or its model cannot serve it.
        """
        given = checked_options(self.name, options, to=options_changed_by("configure"))
        row = self.metadata
        configured = "SELECT hashindex.configure_index($1, $2, $3)"
        with translated_errors(table=row.qualified_table):
            values = [self.name, given.get("candidates"), given.get("effort")]
            row.change(configured, values, patience=patience)
        return self

    def rebalance(
        self, *, memory: str | int = DEFAULT_MEMORY, jobs: int | None = None, tenant: Any = None
    ) -> build.Rebalanced:
        """Build the landmarks again, as many as the table now calls for, and put codes in order.

        Searches and writers do not wait; searches use the old landmarks meanwhile.

        Parameters
        ----------
        memory, jobs
            As for `encode`.
        tenant : optional
            Builds the landmarks of this tenant alone. Writers wait while its rows are read once.

        Returns
        -------
        Rebalanced
            Rows put in order, landmarks before and after.

        Raises
        ------
        InvalidInputError
            If access is not by landmarks, the connection is inside a transaction, memory does not
            hold the landmarks, there are no rows of the tenant, or jobs is not 1 to 64.
        InUseError
            If another session is building a set of this index.
        DatabaseStateError
            If the index was dropped or recreated meanwhile.
        """
        row = self.metadata
        row.require_lists("rebuild it by REINDEX INDEX CONCURRENTLY")
        named = None if tenant is None else as_text(tenant)
        return build.rebalance(row.passed(), memory=memory, jobs=jobs, tenant=named)

    def grant(self, role: str, *, reveal_codes: bool = False) -> None:
        """Let a role search by the codes of the index; other roles get exact searches of the table.

        Roles that may read key and vector when the index is made have this right, unless the table
        has row security or the model keeps vectors that it was trained on, as anchors.

        Parameters
        ----------
        role
            Its name as it is, without quotes; ``public`` for everybody. It must hold SELECT on the
            key and the vectors of the table.
        reveal_codes
            Whether to let the role read more than the table tells it: codes of all rows, even
            though row security hides some from it, or anchors of the model.

        Raises
        ------
        InvalidInputError
            If there is no such role.
        DatabaseStateError
            If the role may not read key and vector, or needs ``reveal_codes``.
        MissingRightsError
            If the caller does not administer the schema.
        """
        self.metadata.require_lists("whoever may read the table may search")
        given = [self.name, role, reveal_codes]
        with translated_errors():
            # Policies of the codes may have to be made, and no session may wait for that.
            self.metadata.change("SELECT hashindex.grant_reader($1, $2, $3)", given)

    def revoke(self, role: str) -> None:
        """Take the codes of the index from a role; its rights on the table stay as they are.

        Raises
        ------
        InvalidInputError
            If there is no such role.
        MissingRightsError
            If the caller does not administer the schema.
        """
        with translated_errors(), self.connection.transaction():
            execute(self.connection, "SELECT hashindex.revoke_reader($1, $2)", [self.name, role])

    def drop(self, *, patience: float | None = None) -> None:
        """Drop the index with its codes and triggers; the table and the model stay.

        Each attempt waits for a lock for 100 ms at most, so that no session queues behind it.

        Parameters
        ----------
        patience
            Seconds to try again for, while transactions keep the table in use; 60 by default.

        Raises
        ------
        InUseError
            If transactions kept the table in use for so long. Nothing is changed then.
        """
        row = self.metadata
        with translated_errors(table=row.qualified_table):
            row.change("SELECT hashindex.drop_index($1)", [row.name], patience=patience)


def list_indexes(connection: Connection) -> list[HashIndex]:
    """Return every index, by name."""
    return [
        HashIndex(connection, row.name, row) for row in read_rows(connection, "ORDER BY i.name")
    ]
