"""Indexes: binding a table's vectors to a model, and everything done with such a binding."""

from dataclasses import dataclass
from typing import Literal

from . import encoding, search, swapping
from .access import build_access
from .catalog import (
    Access,
    IndexSummary,
    Layout,
    ListSummary,
    Ranking,
    read_entries,
)
from .database import Connection, prepare, translated_errors
from .errors import InvalidInputError, UnknownIndexError
from .health import Health, check
from .jobs import Job
from .model import Metric
from .query_sets import QuerySet
from .rebalancing import Rebalanced, rebalance
from .repairing import Repaired, repair
from .searchable import SearchableIndex
from .swapping import Swapped

__all__ = [
    "Access",
    "HashIndex",
    "IndexSummary",
    "Layout",
    "ListSummary",
    "Ranking",
    "list_indexes",
]

_CONFIGURE = "SELECT hashindex.configure_index(%s, %s, %s, %s, %s)"


@dataclass(frozen=True)
class HashIndex(SearchableIndex):
    """An index, on the connection that it was made or opened with.

    Made by `create` or `open`, not by hand.
    """

    @classmethod
    def create(
        cls,
        connection: Connection,
        name: str,
        *,
        table: str,
        column: str,
        model: str,
        id_column: str | None = None,
        metric: Metric | None = None,
        layout: Layout = "table",
        access: Access = "scan",
        ranking: Ranking | None = None,
    ) -> "HashIndex":
        """Create an index: codes, triggers and a search function, in one transaction.

        Rows written from now on are encoded by the triggers; `encode` brings in those that are
        there already. Of a model with a network, which only Python evaluates, `encode` brings in
        those written from now on too: the triggers take away the codes of rows that change.

        Parameters
        ----------
        connection : psycopg.Connection
        name : str
            1 to 40 bytes.
        table : str
            As SQL writes it: ``items``, ``shop.items``, ``"My Items"``.
        column : str
            A column of type ``vector``, by its bare name.
        model : str
            ``name`` or ``name:version``.
        id_column : str, optional
            A unique NOT NULL column; the primary key by default.
        metric : {"l2", "cosine", "ip"}, optional
            The exact distance of answers; the model's by default.
        layout : {"table", "column"}
            Codes in a compact table of their own, or in a new column of the user's table.
        access : {"scan", "lookup", "landmarks", "hnsw"}
            How searches find candidates; any but "scan" is built by `encode`, and used from then
            on. See `configure`.
        ranking : {"hamming", "asymmetric", "weighted"}, optional
            How candidates are ordered; "weighted" where the model's bits have weights,
            "asymmetric" where SQL evaluates the model, else "hamming" by default.

        Returns
        -------
        HashIndex

        Raises
        ------
        DuplicateNameError, InvalidInputError, UnknownModelError, MissingRightsError
            Nothing is changed then.
        """
        with translated_errors():
            prepare(connection)
            with connection.transaction():
                connection.execute(
                    "SELECT hashindex.create_index(%s, %s::regclass, %s, %s, %s, %s, %s)",
                    [name, table, column, model, id_column, metric, layout],
                )
                if access != "scan" or ranking is not None:
                    connection.execute(_CONFIGURE, [name, access, ranking, None, None])
        return cls.open(connection, name)

    @classmethod
    def open(cls, connection: Connection, name: str) -> "HashIndex":
        """Find an index by its name.

        Raises
        ------
        UnknownIndexError
            If there is none.
        """
        found = read_entries(cls, connection, "WHERE i.name = %s", [name])
        if not found:
            raise UnknownIndexError(
                f"index {name!r} does not exist; see those that do with: pg-hashindex index list"
            )
        return found[0]

    def encode(
        self,
        *,
        batch_rows: int | None = None,
        progress: bool = False,
        rows_per_second: float | None = None,
    ) -> int:
        """Encode every row that has a vector but no code; then build the access path asked for.

        Each batch is committed, so a run that was cut off goes on where it stopped; writers go on
        meanwhile. Needs a connection that is not inside a transaction. A model that has codes only
        of the rows that it was trained on leaves the others without; `waiting` counts them.

        Parameters
        ----------
        batch_rows : int, optional
            Rows of a batch, 100,000 at most; 10,000, fewer where vectors are long, by default. Of
            a neural network as many as it encodes in about two seconds.
        progress : bool
            Whether to draw a bar on stderr.
        rows_per_second : float, optional
            Rows to encode, and to list by landmarks, in a second at the most; as many as there can
            be by default. PostgreSQL builds its own indexes as fast as it does.

        Returns
        -------
        int
            Codes written.

        Raises
        ------
        InvalidInputError
            If the connection is inside a transaction, a row has another dimension, or
            rows_per_second is not above 0.
        InUseError
            If another session is encoding this index, or building its access path.
        DatabaseStateError
            If others keep rows locked for a minute, or the index was dropped or made anew since it
            was opened, or configured otherwise while its access path was built.
        """
        with Job(self.connection, "encode", self.name):
            written = encoding.encode_missing(
                self, batch_rows=batch_rows, progress=progress, rows_per_second=rows_per_second
            )
            build_access(self, progress=progress, rows_per_second=rows_per_second)
        return written

    def configure(
        self,
        *,
        access: Access | None = None,
        ranking: Ranking | None = None,
        candidates: int | None = None,
        probes: int | None = None,
    ) -> "HashIndex":
        """Change how searches go by default; what is None stays as it is.

        Another access path is built by `encode`. Until it is ready, searches go by the one before.

        Parameters
        ----------
        access : {"scan", "lookup", "landmarks", "hnsw"}, optional
            All codes; substrings of codes in b-trees; lists of codes around landmarks (layout
            ``table`` alone); pgvector's HNSW over the codes.
        ranking : {"hamming", "asymmetric", "weighted"}, optional
            The order of candidates: by differing bits; by how far the query's projection is from 0
            at them; by the weights that the model gives its bits.
        candidates : int, optional
            Rows kept by code before the exact order.
        probes : int, optional
            Landmarks whose lists are read, 1 to 1000.

        Returns
        -------
        HashIndex
            The index as it is now.

        Raises
        ------
        InvalidInputError
            If a value is out of range, or the index or its model cannot serve it.
        """
        candidates = None if candidates is None else search.as_count("candidates", candidates)
        probes = None if probes is None else search.as_count("probes", probes)
        with translated_errors():
            with self.connection.transaction():
                self.connection.execute(
                    _CONFIGURE, [self.name, access, ranking, candidates, probes]
                )
            with self.connection.transaction():
                self.connection.execute("SELECT hashindex.drop_unused(%s)", [self.name])
        return self.open(self.connection, self.name)

    def rebalance(self, *, progress: bool = False) -> Rebalanced:
        """Bring the lists of landmarks into good order: no stale entries, none much too long.

        Searches and writers go on meanwhile. A table that has grown or shrunk tenfold is better
        served by new landmarks: configure the access path to scan, and back.

        Parameters
        ----------
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Rebalanced
            Entries taken out, lists divided, landmarks added.

        Raises
        ------
        InvalidInputError
            If access is not by landmarks, or the connection is inside a transaction.
        InUseError
            If another session is building or rebalancing the access path.
        DatabaseStateError
            If the index was dropped or made anew since it was opened.
        """
        return rebalance(self, progress=progress)

    def swap(
        self,
        model: str,
        *,
        access: Access | None = None,
        tolerance: float = 0.01,
        force: bool = False,
        k: int = 10,
        queries: int | QuerySet = 200,
        rows_per_second: float | None = None,
        random_state: int = 0,
        progress: bool = False,
    ) -> Swapped:
        """Give the index another model, while it is searched and its table is written to.

        The new codes are made beside the old ones, which takes as long as `encode`; a run that was
        cut off goes on where it stopped when it is called again. Both are then compared on the same
        queries, and the searches of the index go by the new ones from one moment to the next. The
        old codes are kept fresh until `prune`, so that `rollback` can return to them.

        Parameters
        ----------
        model : str
            ``name`` or ``name:version``, of the same dimension.
        access : {"scan", "lookup", "landmarks", "hnsw"}, optional
            How searches will find candidates; as now by default.
        tolerance : float
            By how much recall may fall, 0 to 1.
        force : bool
            Whether to take the new codes however much it falls.
        k : int
            Answers that are compared.
        queries : int or QuerySet
            Rows drawn from the table to be searched for; or saved queries.
        rows_per_second : float, optional
            As `encode`.
        random_state : int
            Seed of the draw.
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Swapped
            The models and their recall. Open the index anew to see what it is now; searches by
            this object follow it.

        Raises
        ------
        LowerRecallError
            If recall would fall by more than the tolerance. The index stays as it is; the new codes
            stay beside, to be taken by ``force`` or dropped by `repair` with ``undo``.
        UnknownModelError, InvalidInputError
            If the model cannot serve the index.
        InUseError
            If another session is swapping it, a swap to another model is under way, the codes of
            the swap before are still there, or transactions kept the table in use for a minute.
        """
        return swapping.swap(
            self,
            model,
            access=access,
            tolerance=tolerance,
            force=force,
            k=k,
            queries=queries,
            rows_per_second=rows_per_second,
            random_state=random_state,
            progress=progress,
        )

    def rollback(self) -> str:
        """Return to the codes that the index had before the last swap: at once, they are fresh.

        Those that it has now become the previous ones: another rollback returns to them.

        Returns
        -------
        str
            The model that the index has now, as ``name:version``.

        Raises
        ------
        DatabaseStateError
            If there are none.
        InUseError
            As `swap`.
        """
        return swapping.rollback(self)

    def prune(self) -> str:
        """Drop the codes that the index had before the last swap.

        Returns
        -------
        str
            The model that they were made with, as ``name:version``.

        Raises
        ------
        DatabaseStateError
            If there are none.
        InUseError
            As `swap`.
        """
        return swapping.prune(self)

    def grant(self, role: str, *, as_: Literal["reader", "owner"] = "reader") -> None:
        """Let a role search the index, or maintain it.

        Parameters
        ----------
        role : str
            Its name as it is, without quotes; ``public`` for everybody, as reader.
        as_ : {"reader", "owner"}
            A reader must hold SELECT on the key and the vectors of the table, and gets what
            searches read beside them. An owner must own the table, or be a member of its owner, to
            which what the index consists of is given.

        Raises
        ------
        InvalidInputError
            If there is no such role.
        DatabaseStateError
            If it does not hold on the table what it needs.
        MissingRightsError
            If the caller may not grant this.
        """
        if as_ not in ("reader", "owner"):
            raise InvalidInputError(f"a role is granted reader or owner, not {as_!r}")
        with translated_errors(), self.connection.transaction():
            self.connection.execute(f"SELECT hashindex.grant_{as_}(%s, %s)", [self.name, role])

    def revoke(self, role: str) -> None:
        """Take from a role what it holds on the index; its rights on the table stay as they are.

        Raises
        ------
        InvalidInputError
            If there is no such role.
        InUseError
            If it may write to the table, whose codes its writes have to keep fresh.
        MissingRightsError
            If the caller may not revoke this.
        """
        with translated_errors(), self.connection.transaction():
            self.connection.execute("SELECT hashindex.revoke_all(%s, %s)", [self.name, role])

    def check(self, *, full: bool = False) -> Health:
        """Look for what is wrong with the index, or could be better; change nothing.

        Needs SELECT on the table, its codes and the catalog. Where row security hides rows from the
        caller, it looks at the others.

        Parameters
        ----------
        full : bool
            Whether to look at all rows, which takes minutes for millions, not at a sample.

        Returns
        -------
        Health
            The finding of each check, with what to do about it. Where the table or the codes are
            not there, only checks of such things are.

        Raises
        ------
        UnknownIndexError
            If the index was dropped.
        MissingRightsError
            If the table or the codes may not be read.
        """
        return check(self, full=full)

    def repair(
        self,
        *,
        table: str | None = None,
        column: str | None = None,
        id_column: str | None = None,
        full: bool = False,
        undo: bool = False,
        progress: bool = False,
    ) -> Repaired:
        """Bring the index back into order, after whatever happened to it and to its table.

        It follows a table, schema or column that was renamed; makes functions, triggers, codes and
        parts of the access path anew that are missing, and enables triggers; takes codes away
        whose rows are gone, and those that may be wrong since triggers were away; encodes; and
        finishes a swap. Where all is well it changes nothing. Each step is committed, so a run that
        was cut off can be run again. An index whose table or vector column is gone is dropped.

        Parameters
        ----------
        table : str, optional
            The table that is searched, as SQL writes it; found by the triggers by default.
        column, id_column : str, optional
            Its vector and key column, by bare names; found by the codes by default.
        full : bool
            Whether to compare every code with a fresh encoding; else some of them, and those of
            tables whose triggers were away.
        undo : bool
            Whether to give a swap up that was begun, instead of finishing it.
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Repaired
            What was done. Open the index anew to see what it is now.

        Raises
        ------
        InvalidInputError
            If none or several columns could be those of the index, or the type of its key or the
            dimension of its vectors has changed.
        InUseError
            If another session is repairing or encoding it, or transactions kept the table in use
            for a minute.
        """
        return repair(
            self,
            table=table,
            column=column,
            id_column=id_column,
            full=full,
            undo=undo,
            progress=progress,
        )

    def drop(self) -> None:
        """Drop the index with its codes and triggers; the table and the model stay."""
        with translated_errors(), self.connection.transaction():
            self.connection.execute("SELECT hashindex.drop_index(%s)", [self.name])


def list_indexes(connection: Connection) -> list[HashIndex]:
    """Return every index, by name."""
    return read_entries(HashIndex, connection, "ORDER BY i.name", [])
