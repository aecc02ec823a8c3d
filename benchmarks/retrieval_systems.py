"""What `retrieval.py` compares: what all systems share, and pgvector's own."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pgvector import Vector
from retrieval_data import FILTERS, ROWS, Drawn
from retrieval_server import Database
from retrieval_timing import seconds

from pg_hashindex.model import Metric

#: pgvector's operators and the ends of its operator classes.
OPERATORS: dict[Metric, tuple[str, str]] = {
    "cosine": ("<=>", "cosine_ops"),
    "l2": ("<->", "l2_ops"),
}
INDEX = "items_pgvector"


@dataclass(frozen=True)
class Setting:
    """One way to search.

    Attributes
    ----------
    session : mapping
        Settings of PostgreSQL.
    arguments : mapping
        Of the search itself.
    """

    session: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The setting in words."""
        shown = {name.rpartition(".")[2]: value for name, value in self.session.items()}
        return " ".join(f"{n}={v}" for n, v in {**shown, **self.arguments}.items()) or "-"


#: Settings of rising cost and recall, of which the last ones need not be measured.
Line = Sequence[Setting]


class System(ABC):
    """A way to find neighbours in the table ``items``."""

    ours: ClassVar[bool] = False

    def __init__(self, name: str, data: Sequence[str] = tuple(ROWS)) -> None:
        self.name = name
        #: The data sets that it is measured on.
        self.data = data

    def describe(self) -> dict[str, Any]:
        """Return what it is made with, by which earlier results are known to be of the same."""
        return {"kind": type(self).__name__}

    @abstractmethod
    def build(self, database: Database) -> dict[str, float]:
        """Build everything that searches need; return the seconds of each part."""

    @abstractmethod
    def drop(self, database: Database) -> None:
        """Drop all that `build` made, also where it did not come to its end."""

    @abstractmethod
    def sizes(self, database: Database) -> dict[str, int]:
        """Return the bytes of what `build` added."""

    @abstractmethod
    def lines(self, drawn: Drawn) -> Sequence[Line]:
        """Return the settings to measure."""

    @abstractmethod
    def statement(self, drawn: Drawn, k: int, setting: Setting) -> str:
        """Write the search for the neighbours of $1: rows that start with the key."""

    def filter_lines(self, drawn: Drawn) -> Sequence[Line]:
        """Return the settings to measure where a filter lets few rows through."""
        return self.lines(drawn)

    @abstractmethod
    def filtered_statement(self, drawn: Drawn, k: int, setting: Setting, share: int) -> str:
        """Write the search under the filter that lets ``share`` of a hundred rows through."""

    def uses_index(self, database: Database, statement: str) -> bool | None:
        """Say whether the plan of a search has pgvector's index; None where there is none."""
        return None

    def facts(self, database: Database, k: int) -> dict[str, Any]:
        """Measure what only this kind of system has."""
        return {}


class Exact(System):
    """No index at all."""

    def build(self, database: Database) -> dict[str, float]:
        return {}

    def drop(self, database: Database) -> None:
        pass

    def sizes(self, database: Database) -> dict[str, int]:
        return {}

    def lines(self, drawn: Drawn) -> Sequence[Line]:
        return [[Setting()]]

    def statement(self, drawn: Drawn, k: int, setting: Setting) -> str:
        return self._nearest(drawn, k, "")

    def filtered_statement(self, drawn: Drawn, k: int, setting: Setting, share: int) -> str:
        return self._nearest(drawn, k, f"WHERE {FILTERS[share]} = 0")

    def _nearest(self, drawn: Drawn, k: int, where: str) -> str:
        operator, _ = OPERATORS[drawn.metric]
        return (
            f"SELECT id, embedding {operator} $1::vector AS distance FROM items {where} "
            f"ORDER BY distance LIMIT {k}"
        )


class PgvectorIndex(System):
    """An index of pgvector's.

    Parameters
    ----------
    name : str
    method : {"hnsw", "ivfflat"}
    column : {"vector", "halfvec", "bit"}
        What is indexed: the vectors, the vectors as half precision numbers, or their signs, which
        are re-ranked by the exact distance.
    steps : sequence of int
        The frontier: values of hnsw.ef_search or ivfflat.probes; with "bit" also the candidates.
    """

    def __init__(self, name: str, method: str, column: str, steps: Sequence[int]) -> None:
        super().__init__(name)
        self.method, self.column, self.steps = method, column, steps
        self._knob = {"hnsw": "hnsw.ef_search", "ivfflat": "ivfflat.probes"}[method]

    def describe(self) -> dict[str, Any]:
        return {
            "kind": self.method,
            "column": self.column,
            "steps": list(self.steps),
            **({"m": 16, "ef_construction": 64} if self.method == "hnsw" else {}),
        }

    def build(self, database: Database) -> dict[str, float]:
        drawn = database.drawn
        key, _ = self._expressions(drawn)
        end = OPERATORS[drawn.metric][1]
        kind = "bit_hamming_ops" if self.column == "bit" else f"{self.column}_{end}"
        statement = f"CREATE INDEX {INDEX} ON items USING {self.method} (({key}) {kind})"
        if self.method == "ivfflat":
            statement += f" WITH (lists = {_lists(len(drawn.rows))})"
        return {"index": seconds(lambda: database.connection.execute(statement))}

    def drop(self, database: Database) -> None:
        database.connection.execute(f"DROP INDEX IF EXISTS {INDEX}")

    def sizes(self, database: Database) -> dict[str, int]:
        return {"index": database.value("SELECT pg_total_relation_size(%s::regclass)", [INDEX])}

    def lines(self, drawn: Drawn) -> Sequence[Line]:
        lists = _lists(len(drawn.rows))
        most = 1000 if self.method == "hnsw" else lists
        return [[Setting({self._knob: step}) for step in self.steps if step <= most]]

    def filter_lines(self, drawn: Drawn) -> Sequence[Line]:
        # Without iterative scans the filter would thin out the answers.
        orders = ("strict_order", "relaxed_order") if self.method == "hnsw" else ("relaxed_order",)
        name = f"{self.method}.iterative_scan"
        (line,) = self.lines(drawn)
        return [[Setting({**setting.session, name: order}) for setting in line] for order in orders]

    def uses_index(self, database: Database, statement: str) -> bool:
        # Where the filter is narrow or the table small, reading without it is cheaper.
        explain = database.ask(f"EXPLAIN {statement}")
        return any(INDEX in line for (line,) in explain(Vector(database.drawn.queries[0])))

    def statement(self, drawn: Drawn, k: int, setting: Setting) -> str:
        return self._search(drawn, k, setting, "")

    def filtered_statement(self, drawn: Drawn, k: int, setting: Setting, share: int) -> str:
        return self._search(drawn, k, setting, f"WHERE {FILTERS[share]} = 0")

    def _search(self, drawn: Drawn, k: int, setting: Setting, where: str) -> str:
        exact = f"embedding {OPERATORS[drawn.metric][0]} $1::vector"
        key, query = self._expressions(drawn)
        operator = "<~>" if self.column == "bit" else OPERATORS[drawn.metric][0]
        if self.column == "bit":
            first = (
                f"SELECT id FROM items {where} ORDER BY {key} {operator} {query} "
                f"LIMIT {max(k, setting.session[self._knob])}"
            )
            return (
                f"SELECT id, {exact} AS distance FROM items WHERE id = ANY (ARRAY({first})) "
                f"ORDER BY distance LIMIT {k}"
            )
        search = (
            f"SELECT id, {exact} AS distance FROM items {where} "
            f"ORDER BY {key} {operator} {query} LIMIT {k}"
        )
        if "relaxed_order" in setting.session.values():
            # As pgvector's documentation has it: what comes in about the right order is sorted.
            search = (
                f"WITH near AS MATERIALIZED ({search}) "
                "SELECT id, distance FROM near ORDER BY distance + 0"
            )
        return search

    def _expressions(self, drawn: Drawn) -> tuple[str, str]:
        """Return SQL for what is indexed, and for the query in the same form."""
        d = drawn.rows.shape[1]
        if self.column == "bit":
            # Not all of it in one cast: the index matches this very expression alone.
            return f"binary_quantize(embedding)::bit({d})", "binary_quantize($1::vector)"
        if self.column == "halfvec":
            return f"embedding::halfvec({d})", f"$1::vector::halfvec({d})"
        return "embedding", "$1::vector"


def _lists(rows: int) -> int:
    """Return what pgvector's documentation advises for IVFFlat."""
    return max(10, rows // 1000 if rows <= 1_000_000 else round(rows**0.5))


_EF_SEARCH = (10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 1000)
_PROBES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
_RERANKED = (20, 40, 80, 120, 200, 300, 400, 600, 800, 1000)

PGVECTOR: tuple[System, ...] = (
    Exact("exact"),
    PgvectorIndex("hnsw", "hnsw", "vector", _EF_SEARCH),
    PgvectorIndex("hnsw-halfvec", "hnsw", "halfvec", _EF_SEARCH),
    PgvectorIndex("ivfflat", "ivfflat", "vector", _PROBES),
    PgvectorIndex("hnsw-binary", "hnsw", "bit", _RERANKED),
)
