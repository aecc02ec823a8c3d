"""What is wanted, and what one way to search gives."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from ...errors import InvalidInputError
from ...index.catalog import Access, Ranking
from ...index.search import as_count
from ...models.quantization import Levels, bits_of
from .timing import Asked

__all__ = ["Goal", "Kind", "Trial", "name_codes"]

#: The codes of pg_hashindex, pgvector's HNSW over the vectors, or no index at all.
Kind = Literal["codes", "pgvector", "exact"]


@dataclass(frozen=True)
class Goal:
    """What is wanted.

    Attributes
    ----------
    recall : float
        Above 0, at most 1.
    k : int
        Answers of a query.
    max_ms : float, optional
        The most milliseconds that the median query may take.
    max_bytes : int, optional
        The most bytes that may be added to the table.
    """

    recall: float
    k: int = 10
    max_ms: float | None = None
    max_bytes: int | None = None

    def check(self) -> None:
        """Refuse values out of range.

        Raises
        ------
        InvalidInputError
        """
        if not 0 < self.recall <= 1:
            raise InvalidInputError(f"recall must be above 0 and at most 1, got {self.recall}")
        as_count("k", self.k)
        if self.max_ms is not None and not self.max_ms > 0:
            raise InvalidInputError(f"max_ms must be above 0, got {self.max_ms}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise InvalidInputError(f"max_bytes must be 0 or more, got {self.max_bytes}")

    def allows(self, trial: "Trial") -> bool:
        """Return whether a trial keeps within the limits, whatever its recall."""
        return (self.max_ms is None or trial.p50_ms <= self.max_ms) and (
            self.max_bytes is None or trial.bytes <= self.max_bytes
        )

    @property
    def limits(self) -> str:
        """The limits in words, with a blank before them; empty where there are none."""
        words = [] if self.max_ms is None else [f"{self.max_ms:g} ms"]
        words += [] if self.max_bytes is None else [f"{self.max_bytes / 1e6:g} MB"]
        return f" within {' and '.join(words)}" if words else ""


@dataclass(frozen=True)
class Trial:
    """One way to search, and what the full table is predicted to show.

    Attributes
    ----------
    kind : {"codes", "pgvector", "exact"}
    method, bits, levels : optional
        Of the model that makes the codes; ``bits`` are those of a code.
    own : bool
        Whether the model is that of the index, so that `HashIndex.configure` can have it.
    access, ranking, candidates, probes : optional
        As `HashIndex.configure` takes them.
    ef_search : int, optional
        ``hnsw.ef_search`` of pgvector's HNSW.
    recall : float
    p50_ms, p95_ms : float
        Of the whole statement, as the client sees it: prepared, the vector in binary.
    bytes : int
        Added to the table: codes, access path and model, or pgvector's index.
    build_s : float
        To train, encode and build it.
    sample_recall, sample_p50_ms : float
        As measured on the sample.
    """

    kind: Kind
    recall: float
    bytes: int
    build_s: float
    sample_recall: float
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    sample_p50_ms: float = 0.0
    method: str | None = None
    bits: int | None = None
    levels: Levels | None = None
    own: bool = False
    access: Access | None = None
    ranking: Ranking | None = None
    candidates: int | None = None
    probes: int | None = None
    ef_search: int | None = None

    def timed(self, asked: Asked, go_on: Callable[[float], float]) -> "Trial":
        """Return the trial with its times.

        Parameters
        ----------
        asked : Asked
            On the sample.
        go_on : callable
            From milliseconds on the sample to those on the full table.
        """
        return replace(
            self,
            p50_ms=round(go_on(asked.p50_ms), 4),
            p95_ms=round(go_on(asked.p95_ms), 4),
            sample_p50_ms=round(asked.p50_ms, 4),
        )

    @property
    def system(self) -> str:
        """What has to be built, in words."""
        if self.kind == "codes":
            codes = name_codes(self.method or "", self.bits or 0, self.levels or 2)
            return f"{codes}, {self.access}"
        return "pgvector's HNSW" if self.kind == "pgvector" else "exact scan"

    @property
    def setting(self) -> str:
        """The settings of the search, in words."""
        parts: list[str] = [] if self.ranking is None else [self.ranking]
        for name in ("candidates", "probes", "ef_search"):
            value = getattr(self, name)
            parts += [] if value is None else [f"{name} {value}"]
        return ", ".join(parts)

    @property
    def label(self) -> str:
        """Both."""
        return f"{self.system}, {self.setting}" if self.setting else self.system


def name_codes(method: str, bits: int, levels: Levels) -> str:
    """Name codes by their method and length: ``itq 128 bits``, with 4 levels ``itq 64 x 2 bits``.

    Parameters
    ----------
    method : str
    bits : int
        Of a code.
    levels : {2, 4}
        Of a projection.
    """
    each = bits_of(levels)
    return f"{method} {bits} bits" if each == 1 else f"{method} {bits // each} x {each} bits"
