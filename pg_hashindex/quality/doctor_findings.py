"""Findings of the doctor: facts about a table, its indexes and their answers."""

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal

from .systems import PARAMETERS

__all__ = [
    "Advice",
    "CodeFit",
    "Diagnosis",
    "Memory",
    "NameFacts",
    "Point",
    "Scope",
    "SetFacts",
    "TableFacts",
    "TenantFacts",
    "VectorIndex",
]


@dataclass(frozen=True)
class Memory:
    """Settings of the server, in bytes."""

    shared_buffers: int
    effective_cache_size: int
    work_mem: int
    maintenance_work_mem: int


@dataclass(frozen=True)
class TableFacts:
    """A table, its partitions taken together.

    Attributes
    ----------
    name
        As SQL writes it.
    column, quoted_column
        Its bare name, and as SQL writes it.
    rows
        Counted where they are few, else the server's estimate.
    null_share
        The part of them without a vector, among those that were looked at.
    declared
        Whether the column's type has the dimension; without, it cannot be indexed as it is.
    vector_bytes
        As stored, on average.
    toasted
        Whether most vectors are kept out of line.
    pages_a_row
        Pages that an exact search touches for each row.
    dead_share
        The part of the rows that are dead; None where the server has no figures.
    writes
        Rows written a second since the server's statistics began, without the first load.
    parts
        Partitions; 1 for a plain table.
    policies
        Whether the table has row security.
    standby
        Whether the server is one, whose statistics are of its own searches.
    primary_key
        The columns of the primary key.
    other_key
        Other columns that can be the key of an index of codes: unique together, and NOT NULL.
    """

    name: str
    column: str
    quoted_column: str
    kind: str
    rows: int
    null_share: float
    type: str
    dimension: int
    declared: bool
    vector_bytes: int
    storage: str
    toasted: bool
    pages_a_row: float | None
    heap_bytes: int
    toast_bytes: int
    index_bytes: int
    dead_share: float | None
    last_vacuum: datetime | None
    writes: float
    parts: int
    policies: bool
    standby: bool
    primary_key: list[str] | None
    other_key: list[str] | None

    @property
    def vectors(self) -> int:
        """About how many rows have a vector."""
        return round(self.rows * (1 - self.null_share))

    @property
    def bytes(self) -> int:
        """Size without indexes."""
        return self.heap_bytes + self.toast_bytes

    @property
    def measurable(self) -> bool:
        """Whether it can be measured as a whole: not where its rows are on several nodes."""
        return self.kind != "sharded table"

    @property
    def concurrently(self) -> str:
        """How statements make and drop its indexes beside writers: not those of partitions."""
        return "" if self.kind == "partitioned table" else "CONCURRENTLY "

    @property
    def takes_function_only(self) -> bool:
        """Whether pgvector can index codes of the table, and pg_hashindex cannot keep them."""
        return self.kind in (
            "sharded table",
            "partitioned table",
            "partition",
            "inheriting table",
        )

    @property
    def unnamed(self) -> str | None:
        """Why the table can have no index of pg_hashindex at all; None if it can."""
        return None if self.takes_function_only else self.without_codes

    @property
    def without_codes(self) -> str | None:
        """Why the table can have no index of codes as it is, and what to do; None if it can."""
        if self.kind == "materialised view":
            return (
                f"{self.name} is a materialised view, which has no triggers: index the table "
                "behind it"
            )
        if self.takes_function_only:
            return (
                f"{self.name} is a {self.kind}, and an index keeps the codes of one plain table: "
                "have pgvector keep it, as quickstart --access hnsw does"
            )
        if self.primary_key is None and self.other_key is None:
            return (
                f"{self.name} has no key, columns that are unique and NOT NULL, by which codes are "
                "found: add a primary key"
            )
        return None


@dataclass(frozen=True)
class TenantFacts:
    """Tenants of a table, within one of which searches stay.

    Attributes
    ----------
    quoted_column
        As SQL writes it.
    source
        How the column is known: ``--tenant``, ``a policy`` or ``the key``.
    indexed
        Whether an index leads with it.
    tenants, largest
        By the planner's statistics; None before the first ANALYZE.
    """

    column: str
    quoted_column: str
    source: str
    indexed: bool
    tenants: int | None
    largest: int | None


@dataclass(frozen=True)
class NameFacts:
    """An index of pg_hashindex on the column, searched by its name.

    Attributes
    ----------
    set
        What it searches.
    stores
        Whether its codes stand in a column that the index added.
    relation
        pgvector's index behind it, if any.
    recall, least_recall, p50_ms
        With its own settings; None where it was not measured.
    """

    name: str
    set: str
    access: str
    model: str | None
    stores: bool
    metric: str
    relation: str | None
    bytes: int
    tenant: str | None
    recall: float | None = None
    least_recall: float | None = None
    p50_ms: float | None = None


@dataclass(frozen=True)
class SetFacts:
    """A set that was compared, and what is expected of it.

    Attributes
    ----------
    fits
        Whether it fits into memory beside the hot part of the table.
    bytes, build_seconds
        By formula; of an index that is there its bytes, and 0.
    candidates
        Rows that it compares exactly; None where it compares all, or none.
    milliseconds
        Of a search: measured where there is an index, else expected.
    inserts
        Single inserts a second by one session; None where it takes none.
    why_not
        Why it was not taken; empty for the one that was.
    """

    name: str
    fits: bool
    bytes: int
    build_seconds: float
    candidates: int | None
    milliseconds: float | None
    inserts: int | None
    taken: bool
    why_not: str


@dataclass(frozen=True)
class VectorIndex:
    """An HNSW or IVFFlat index over the column, or over an expression of it.

    Attributes
    ----------
    name, method, operator_class
        The name as SQL writes it.
    metric
        The distance that answers are ordered by; None of bits, which are re-ranked.
    expression, condition
        Expression and predicate of the index, if any.
    scans
        Searches by it since the server's statistics began.
    cached_share
        The part of the pages read since then that were in shared_buffers.
    first_p50_ms
        The median of the queries' first run, with whatever was in memory.
    """

    name: str
    method: str
    operator_class: str
    metric: str | None
    bytes: int
    valid: bool
    expression: str | None
    condition: str | None
    options: tuple[str, ...]
    scans: int
    cached_share: float | None
    first_p50_ms: float | None = None

    @property
    def setting(self) -> str:
        """The setting that trades its recall for time."""
        return PARAMETERS[self.method]


@dataclass(frozen=True)
class Scope:
    """Rows that queries were compared on, and exact search among them.

    Attributes
    ----------
    filter
        The caller's.
    condition
        The condition of a partial index.
    rows
        How many rows a filter keeps.
    queries
        How many were run; fewer than wanted if time was short.
    p50_ms, p95_ms
        Times of exact searches.
    planner
        PostgreSQL's own choice: the name of a vector index, or ``exact``.
    unindexed
        Columns of the filter, as SQL writes them, by which an index would find its rows: exact
        search reads the whole table because it has none.
    """

    filter: str | None
    metric: str
    condition: str | None
    rows: int | None
    queries: int
    p50_ms: float
    p95_ms: float
    planner: str
    unindexed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """The answers of an index with one setting.

    Attributes
    ----------
    value
        The value of ``hnsw.ef_search`` or ``ivfflat.probes``.
    iterative
        Whether iterative scans were on, in relaxed order.
    current
        Whether these are the settings that sessions have now.
    returned
        The mean number of answers.
    wanted
        The mean number of answers that there are: k, unless fewer rows match.
    least_recall
        The lower bound of the recall of other queries.
    """

    index: str
    filter: str | None
    value: int
    iterative: bool
    current: bool
    recall: float
    returned: float
    wanted: float
    p50_ms: float
    p95_ms: float
    least_recall: float

    def setting_of(self, index: VectorIndex) -> str:
        """Return the settings in words."""
        iterative = ", iterative" if self.iterative else ""
        return f"{index.setting} {self.value}{iterative}" + (" (now)" if self.current else "")


@dataclass(frozen=True)
class CodeFit:
    """How many rows a search of the table has to re-rank that ranks by a kind of code.

    Attributes
    ----------
    code
        The method: ``thermometer`` in pgvector's indexes, ``itq`` in lists.
    bits
        The length of a code.
    candidates, recall
        The fewest candidates that hold .98 of the true ten nearest; and that .98.
    rows
        Of how many rows of the table.
    """

    code: str
    bits: int
    candidates: int
    recall: float
    rows: int


@dataclass(frozen=True)
class Advice:
    """A finding about a table or an index, and its remedy.

    Attributes
    ----------
    kind
        Of a decision: a kind of set, ``keep`` for an index that is there, or ``unknown``. Of other
        advice: ``codes`` that are not those of their model, ``btree``, ``filter``,
        ``iterative_scan``, ``vacuum``, ``unused`` or ``toast``. Of an index of pg_hashindex:
        ``check``, ``recall`` or ``exact``.
    text
        A sentence.
    commands
        SQL, or a line of the shell.
    level
        ``ok`` if nothing needs to be done, ``broken`` if answers are wrong or missing.
    """

    kind: str
    text: str
    commands: tuple[str, ...] = ()
    level: Literal["ok", "warning", "broken"] = "warning"


@dataclass(frozen=True)
class Diagnosis:
    """The result of `diagnose`.

    Attributes
    ----------
    metric
        The distance of exact search.
    metric_assumed
        Whether neither the caller nor an index named it.
    round_trip_ms
        What any statement takes, the network included.
    codes
        What codes would need, whether there is an index of them or not; those that there was time
        for.
    notes
        What could not be looked at, and why.
    complete
        Whether there was time for all measurements.
    code_faults
        Indexes, generated columns and functions that do not fit their model, and remedies.
    names
        Indexes of pg_hashindex on the column.
    tenant
        The column of tenants, if searches stay within one; ``key_tenant`` if they may.
    writes, memory_given
        What the caller says, in place of the server's figures.
    sets
        What was compared for the decision.
    decision
        What to search by, None where nothing was to be measured; ``advice`` is what else to do.
    """

    table: TableFacts
    memory: Memory
    indexes: list[VectorIndex]
    metric: str
    metric_assumed: bool
    k: int
    queries: int
    round_trip_ms: float
    scopes: list[Scope]
    points: list[Point]
    codes: list[CodeFit]
    notes: list[str]
    complete: bool
    code_faults: tuple[tuple[str, str], ...] = ()
    names: tuple[NameFacts, ...] = ()
    tenant: TenantFacts | None = None
    key_tenant: TenantFacts | None = None
    writes: float | None = None
    memory_given: int | None = None
    sets: tuple[SetFacts, ...] = ()
    decision: Advice | None = None
    advice: list[Advice] = field(default_factory=list)

    @property
    def available(self) -> int:
        """Bytes of memory that the server has for the table and a set."""
        return self.memory_given or self.memory.effective_cache_size

    @property
    def exact(self) -> Scope | None:
        """Exact search without a filter; None if nothing was measured."""
        return next((scope for scope in self.scopes if scope.filter is None), None)

    @property
    def exact_ms(self) -> float | None:
        """The server's own median of it: the network would call for an index of any table."""
        return None if self.exact is None else max(0.0, self.exact.p50_ms - self.round_trip_ms)

    def index_of(self, point: Point) -> VectorIndex:
        """Return the index that a point was measured with."""
        return next(index for index in self.indexes if index.name == point.index)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of the rows, of what is kept out of line, and of each vector index, by name."""
        return {
            "rows": self.table.heap_bytes,
            "out of line (TOAST)": self.table.toast_bytes,
            **{index.name: index.bytes for index in self.indexes},
        }

    @property
    def own_names(self) -> list[NameFacts]:
        """The names that search by the metric of the diagnosis, and answer for it."""
        return [name for name in self.names if name.metric == self.metric]

    @property
    def worst_recall(self) -> float | None:
        """The least recall of a name, or an index with the settings of sessions, also filtered.

        1 where there is none: searches are exact. None if the deadline passed first.
        """
        now = [point.recall for point in self.points if point.current]
        now += [name.recall for name in self.names if name.recall is not None]
        return min(now, default=1.0) if self.complete else None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self) | {"worst_recall": self.worst_recall}
