"""An index as what builds it sees: opened, encoded, its access path chosen and kept in order."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, LiteralString, Self

from ..db.connection import translated_errors
from ..db.jobs import Job
from ..db.locks import patiently
from . import encoding
from .catalog import Access, Ranking
from .search import as_count
from .searchable import SearchableIndex

if TYPE_CHECKING:
    from .building import Rebalanced

__all__ = ["CONFIGURE", "BuiltIndex"]

#: Takes name, access, ranking, candidates and probes.
CONFIGURE = "SELECT hashindex.configure_index(%s, %s, %s, %s, %s)"


@dataclass(frozen=True)
class BuiltIndex(SearchableIndex):
    """An index that can be encoded, configured and dropped."""

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
            Rows to encode, and to read for landmarks, in a second at the most; as many as there can
            be by default. PostgreSQL builds its own indexes as fast as it does.

        Returns
        -------
        int
            Codes written: those of all rows where landmarks are built and SQL evaluates the model.

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
        # Whoever searches does not wait for what k-means needs.
        from .access import build_access, is_building

        with Job(self.connection, "encode", self.name):
            landmarks = is_building(self, "landmarks")
            # Building landmarks reads every row, and codes those that SQL can code.
            coded_by_build = landmarks and self.encoded_in == "sql"
            written = 0
            if not coded_by_build:
                written = self._encode_missing(batch_rows, progress, rows_per_second)
            built = build_access(self, progress=progress, rows_per_second=rows_per_second)
            if landmarks:
                # A partition may have been attached while the others were read. The codes are in
                # another table by now.
                # Outside of a transaction, a connection that is not in autocommit mode begins one.
                with translated_errors(self), self.connection.transaction():
                    now = self.open(self.connection, self.name)
                written += now._encode_missing(batch_rows, progress, rows_per_second)
        return written + built if coded_by_build else written

    def _encode_missing(
        self, batch_rows: int | None, progress: bool, rows_per_second: float | None
    ) -> int:
        return encoding.encode_missing(
            self, batch_rows=batch_rows, progress=progress, rows_per_second=rows_per_second
        )

    def configure(
        self,
        *,
        access: Access | None = None,
        ranking: Ranking | None = None,
        candidates: int | None = None,
        probes: int | None = None,
        patience: float | None = None,
    ) -> Self:
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
        patience : float, optional
            As `drop`: what searches no longer go by is dropped.

        Returns
        -------
        HashIndex
            The index as it is now.

        Raises
        ------
        InUseError
            As `drop`.
        InvalidInputError
            If a value is out of range, or the index or its model cannot serve it.
        """
        candidates = None if candidates is None else as_count("candidates", candidates)
        probes = None if probes is None else as_count("probes", probes)
        values = [self.name, access, ranking, candidates, probes]
        statements: list[tuple[LiteralString, list[Any]]] = [
            (CONFIGURE, values),
            # In a transaction of its own: it waits for searches under way.
            ("SELECT hashindex.drop_unused(%s)", [self.name]),
        ]
        with translated_errors():
            for statement in statements:
                patiently(
                    self.connection,
                    partial(self.connection.execute, *statement),
                    table=self.qualified_table,
                    patience=patience,
                )
        return self.open(self.connection, self.name)

    def rebalance(self, *, progress: bool = False) -> "Rebalanced":
        """Build the landmarks again, as many as the table now calls for, and put codes in order.

        Searches and writers go on meanwhile, by what there was before.

        Parameters
        ----------
        progress : bool
            Whether to draw bars on stderr.

        Returns
        -------
        Rebalanced
            Rows put in order, landmarks before and after.

        Raises
        ------
        InvalidInputError
            If access is not by landmarks, or the connection is inside a transaction.
        InUseError
            If another session is building or rebalancing the access path.
        DatabaseStateError
            If the index was dropped or made anew since it was opened.
        """
        from .building import rebalance

        return rebalance(self, progress=progress)

    def drop(self, *, patience: float | None = None) -> None:
        """Drop the index with its codes and triggers; the table and the model stay.

        It waits for no lock for longer than a moment, so that nobody who uses the table waits
        behind it, and tries again.

        Parameters
        ----------
        patience : float, optional
            Seconds to go on trying for, while transactions keep the table in use; 60 by default.

        Raises
        ------
        InUseError
            If they did for so long. Nothing is changed then.
        """
        with translated_errors():
            patiently(
                self.connection,
                lambda: self.connection.execute("SELECT hashindex.drop_index(%s)", [self.name]),
                table=self.qualified_table,
                patience=patience,
            )
