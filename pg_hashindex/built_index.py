"""An index as what builds it sees: opened, encoded, its access path chosen and kept in order."""

from dataclasses import dataclass
from typing import Self

from . import encoding
from .access import build_access
from .catalog import Access, Ranking
from .database import translated_errors
from .jobs import Job
from .rebalancing import Rebalanced, rebalance
from .searchable import SearchableIndex
from .searching import as_count

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

        Returns
        -------
        HashIndex
            The index as it is now.

        Raises
        ------
        InvalidInputError
            If a value is out of range, or the index or its model cannot serve it.
        """
        candidates = None if candidates is None else as_count("candidates", candidates)
        probes = None if probes is None else as_count("probes", probes)
        with translated_errors():
            with self.connection.transaction():
                self.connection.execute(CONFIGURE, [self.name, access, ranking, candidates, probes])
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

    def drop(self) -> None:
        """Drop the index with its codes and triggers; the table and the model stay."""
        with translated_errors(), self.connection.transaction():
            self.connection.execute("SELECT hashindex.drop_index(%s)", [self.name])
