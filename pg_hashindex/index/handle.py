"""Indexes: binding a table's vectors to a model, and everything done with such a binding."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..db.connection import Connection, prepare, translated_errors
from ..db.locks import patiently
from ..models.model import Metric
from ..operations.health import Health, check
from ..operations.repair import Repaired, rebind, repair
from ..quality.query_sets import QuerySet
from . import swap as swapping
from .built_index import CONFIGURE, BuiltIndex
from .catalog import Access, IndexSummary, Layout, ListSummary, Ranking, read_entries
from .swap import Swapped

__all__ = [
    "Access",
    "HashIndex",
    "IndexSummary",
    "Layout",
    "ListSummary",
    "Ranking",
    "list_indexes",
]


@dataclass(frozen=True)
class HashIndex(BuiltIndex):
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
        filter_columns: Sequence[str] = (),
        trust_owner: bool = False,
        patience: float | None = None,
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
            A column of type ``vector`` or ``halfvec``, by its bare name.
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
        filter_columns : sequence of str
            Columns of the table that are kept beside the codes. A filter on these alone leaves
            rows out before any of them is looked up.
        trust_owner : bool
            Whether to take a table of another role than the administrator, which owns schema
            ``hashindex``. The owner of a table can run code with the rights of those who read it.
        patience : float, optional
            Seconds to go on trying for, while transactions keep the table in use; 60 by default.
            As `drop`, it waits for no lock for longer than a moment.

        Returns
        -------
        HashIndex

        Raises
        ------
        InUseError
            If they did for so long. Nothing is changed then.
        DuplicateNameError, InvalidInputError, UnknownModelError, MissingRightsError
            Nothing is changed then.
        """

        def make() -> None:
            connection.execute(
                "SELECT hashindex.create_index(%s, %s::regclass, %s, %s, %s, %s, %s, %s, %s)",
                [
                    name,
                    table,
                    column,
                    model,
                    id_column,
                    metric,
                    layout,
                    list(filter_columns),
                    trust_owner,
                ],
            )
            if access != "scan" or ranking is not None:
                connection.execute(CONFIGURE, [name, access, ranking, None, None])

        with translated_errors():
            prepare(connection)
            patiently(connection, make, table=table, patience=patience)
        return cls.open(connection, name)

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

    def grant(self, role: str, *, reveal_codes: bool = False) -> None:
        """Let a role search by the codes of the index; without, it is answered by exact distance.

        Roles that may read key and vector when the index is made have it, unless the table has row
        security.

        Parameters
        ----------
        role : str
            Its name as it is, without quotes; ``public`` for everybody. It must hold SELECT on the
            key and the vectors of the table.
        reveal_codes : bool
            Whether it may read the codes of all rows where row security hides some from it. Codes,
            landmarks and models tell roughly what vectors are.

        Raises
        ------
        InvalidInputError
            If there is no such role.
        DatabaseStateError
            If it may not read key and vector, or the table has row security.
        MissingRightsError
            If the caller does not administer the schema.
        """
        with translated_errors(), self.connection.transaction():
            self.connection.execute(
                "SELECT hashindex.grant_reader(%s, %s, %s)", [self.name, role, reveal_codes]
            )

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
            self.connection.execute("SELECT hashindex.revoke_reader(%s, %s)", [self.name, role])

    def distribute(self) -> None:
        """Bring the index to the shards of its table, which Citus distributes.

        `create` does so by itself where the table is distributed already. Codes are distributed
        beside their rows, empty: `encode` makes them. May be run again.

        Raises
        ------
        DatabaseStateError
            If Citus is not installed, or the table is not distributed by the index's key; or the
            model is evaluated in Python, or the access path is neither "scan" nor "landmarks".
        """
        from .citus import distribute

        distribute(self)

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

    def repair(self, *, full: bool = False, undo: bool = False, progress: bool = False) -> Repaired:
        """Bring the index back into order, after whatever happened to it and to its table.

        It makes functions, triggers, codes and parts of the access path anew that are missing, and
        enables triggers; takes codes away whose rows are gone, and those that may be wrong since
        triggers were away; encodes; and finishes a swap. Where all is well it changes nothing. Each
        step is committed, so a run that was cut off can be run again.

        Parameters
        ----------
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
            If the table, the vector column or the key is not there any more, or of another type or
            dimension; `rebind` names others, `drop` drops the index.
        InUseError
            If another session is repairing or encoding it, or transactions kept the table in use
            for a minute.
        """
        return repair(self, full=full, undo=undo, progress=progress)

    def rebind(
        self,
        *,
        table: str | None = None,
        column: str | None = None,
        id_column: str | None = None,
        progress: bool = False,
    ) -> Repaired:
        """Say which table and columns the index is of, after they were renamed; and repair it.

        Every code is compared with a fresh encoding, so that another table or column may take the
        place of the one before, too.

        Parameters
        ----------
        table : str, optional
            The table that is searched, as SQL writes it; the name that it had by default.
        column, id_column : str, optional
            Its vector and key column, by bare names; those that it had by default.
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Repaired
            What was done. Open the index anew to see what it is now.

        Raises
        ------
        InvalidInputError
            If nothing is named, what is named is not there, or the type of the key or the dimension
            of the vectors is another one. Nothing is changed then.
        InUseError
            As `repair`.
        """
        return rebind(self, table=table, column=column, id_column=id_column, progress=progress)


def list_indexes(connection: Connection) -> list[HashIndex]:
    """Return every index, by name."""
    return read_entries(HashIndex, connection, "ORDER BY i.name", [])
