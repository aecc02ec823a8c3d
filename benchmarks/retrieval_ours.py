"""The indexes of pg_hashindex in `retrieval.py`, through its own Python and SQL interfaces."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from pgvector import Vector
from retrieval_data import FILTERS, ROWS, Drawn
from retrieval_server import Database
from retrieval_systems import Line, Setting, System
from retrieval_timing import median_ms, seconds

from pg_hashindex import store
from pg_hashindex.index import HashIndex
from pg_hashindex.sampling import sample_table
from pg_hashindex.training import train

Access = Literal["scan", "lookup", "landmarks", "hnsw"]

NAME = "ours"
TRAINING_ROWS = 20_000
_SCANS = 50

_CANDIDATES = (20, 50, 100, 200, 400, 800)
_PROBES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96)
_FILTER_CANDIDATES = (50, 100, 200, 400, 1000)


class Ours(System):
    """An index of pg_hashindex.

    Parameters
    ----------
    name : str
    method : str
        A key of ``HASHERS``.
    bits : int or None
        As many as dimensions with None, for ``sign``.
    access : {"scan", "lookup", "landmarks", "hnsw"}
    data : sequence of str
        The data sets that it is measured on.
    **parameters
        The method's own.
    """

    ours = True

    def __init__(
        self,
        name: str,
        method: str,
        bits: int | None,
        access: Access,
        data: Sequence[str] = tuple(ROWS),
        **parameters: Any,
    ) -> None:
        super().__init__(name, data)
        self.method, self.bits, self.access, self.parameters = method, bits, access, parameters
        self._before: dict[str, int] = {}

    def describe(self) -> dict[str, Any]:
        return {
            "kind": "pg_hashindex",
            "method": self.method,
            "bits": self.bits,
            "access": self.access,
            "parameters": self.parameters,
            "training_rows": TRAINING_ROWS,
        }

    def build(self, database: Database) -> dict[str, float]:
        connection, metric = database.connection, database.drawn.metric
        self._before = _table_sizes(database)
        X = None

        def sample() -> None:
            nonlocal X
            X = sample_table(connection, "items", "embedding", rows=TRAINING_ROWS).X

        def fit() -> None:
            # As the command does it, which also measures the model on rows held back. Trials alone
            # have fewer rows than it would take without force.
            model = train(
                X, NAME, self.method, n_bits=self.bits, metric=metric,
                parameters=self.parameters, force=True,
            )  # fmt: skip
            store.save(connection, model)

        def index() -> None:
            made = HashIndex.create(
                connection, NAME, table="items", column="embedding", model=NAME, metric=metric,
                access=self.access,
            )  # fmt: skip
            made.encode()
            # Until a path is built, searches go by another.
            access = HashIndex.open(connection, NAME).access
            if access != self.access:
                raise RuntimeError(f"encode left the access path {access}, not {self.access}")

        return {"sample": seconds(sample), "train": seconds(fit), "index": seconds(index)}

    def drop(self, database: Database) -> None:
        if database.value("SELECT count(*) FROM hashindex.index WHERE name = %s", [NAME]):
            HashIndex.open(database.connection, NAME).drop()
        if database.value("SELECT count(*) FROM hashindex.model WHERE name = %s", [NAME]):
            store.drop(database.connection, NAME)

    def sizes(self, database: Database) -> dict[str, int]:
        now = _table_sizes(database)
        grown = {name: size - self._before.get(name, 0) for name, size in now.items()}
        return {name: size for name, size in grown.items() if size > 0}

    def lines(self, drawn: Drawn) -> Sequence[Line]:
        if self.access == "landmarks":
            return [
                [Setting(arguments={"probes": probes, "candidates": kept}) for probes in _PROBES]
                for kept in (50, 100, 150, 200, 300, 400)
            ]
        rankings = ("hamming", "asymmetric") if self.access == "scan" else ("asymmetric",)
        return [
            [Setting(arguments={"candidates": kept, "ranking": ranking}) for kept in _CANDIDATES]
            for ranking in rankings
        ]

    def filter_lines(self, drawn: Drawn) -> Sequence[Line]:
        probes = (8, 32, 96) if self.access == "landmarks" else (None,)
        return [
            [
                Setting(
                    arguments={"candidates": kept, "ranking": "asymmetric"}
                    | ({} if probe is None else {"probes": probe})
                )
                for kept in _FILTER_CANDIDATES
            ]
            for probe in probes
        ]

    def statement(self, drawn: Drawn, k: int, setting: Setting) -> str:
        return (
            f"SELECT id, distance FROM hashindex.search_{NAME}"
            f"($1::vector, k => {k}{_arguments(setting)})"
        )

    def filtered_statement(self, drawn: Drawn, k: int, setting: Setting, share: int) -> str:
        return (
            f"SELECT id::bigint, distance FROM hashindex.search('{NAME}', $1::vector, k => {k}, "
            f"""where_equals => '{{"{FILTERS[share]}": 0}}'{_arguments(setting)})"""
        )

    def facts(self, database: Database, k: int) -> dict[str, Any]:
        """Measure a search of the whole table beside the count of its codes."""
        if self.access != "scan":
            return {}
        index = HashIndex.open(database.connection, NAME)
        database.set({})
        query = Vector(database.drawn.queries[0])
        count = database.ask(f'SELECT count(*) FROM hashindex."{index.code_table}"')
        found = {"count_p50_ms": median_ms(count, _SCANS)}
        for ranking in ("hamming", "asymmetric"):
            setting = Setting(arguments={"candidates": 200, "ranking": ranking})
            search = database.ask(self.statement(database.drawn, k, setting))
            found[f"{ranking}_p50_ms"] = median_ms(partial(search, query), _SCANS)
        ratio = found["hamming_p50_ms"] / found["count_p50_ms"]
        return {"full_scan": {"bits": index.n_bits, "ratio": ratio} | found}


def _arguments(setting: Setting) -> str:
    literals = {
        name: f"'{value}'" if isinstance(value, str) else value
        for name, value in setting.arguments.items()
    }
    return "".join(f", {name} => {literal}" for name, literal in literals.items())


def _table_sizes(database: Database) -> dict[str, int]:
    """Measure the tables of the schema, models among them, with their indexes."""
    rows = database.connection.execute(
        "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
        "WHERE relnamespace = 'hashindex'::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()
    return dict(rows)


# The rest of them would take hours with a million rows.
_DEEP = ("packages", "synthetic-300k", "synthetic-1m")
_SMALLER = ("packages", "sift10k", "synthetic-300k")

OURS: tuple[System, ...] = (
    *(
        Ours(f"itq-{bits}-{access}", "itq", bits, access, data)
        for access, bits, data in (
            ("scan", 128, tuple(ROWS)),
            ("scan", 256, ("packages", "synthetic-300k")),
            ("landmarks", 128, tuple(ROWS)),
            ("landmarks", 192, _DEEP),
            ("landmarks", 256, _DEEP),
            ("hnsw", 256, _DEEP),
            ("lookup", 128, _SMALLER),
        )
    ),
    *(Ours(f"sign-{access}", "sign", None, access, _SMALLER) for access in ("scan", "hnsw")),
    Ours("sgh-128-scan", "sgh", 128, "scan", ("packages", "sift10k")),
)
