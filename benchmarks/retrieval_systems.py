"""The systems of `retrieval.py` and `memory.py`: pgvector's, and indexes with landmarks."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from psycopg import sql
from retrieval_data import FILTERS
from retrieval_server import Database, Session

from pg_hashindex import store
from pg_hashindex.index.handle import HashIndex
from pg_hashindex.quality import systems
from pg_hashindex.quality.sizes import HNSW_DIMENSIONS

#: Projections of every model; each gives one bit for each cut.
BITS = 256
#: How graphs of codes are built: they are cheap to build, and this finds more.
GRAPH = " WITH (ef_construction = 128)"
# With fewer rows training has to be forced; only quick trials have so few.
_ENOUGH_ROWS = 10_000

_EF_SEARCH = (
    *range(10, 40, 5), *range(40, 80, 10), *range(80, 280, 20), 280, 320, 400, 480, 560, 640, 800,
    1000,
)  # fmt: skip
_CANDIDATES = (400, 300, 200, 150, 100, 75, 60, 50, 40, 30, 20, 15)
# Candidates that an HNSW over signs re-ranks; the first number is all that it finds.
_RE_RANKED = (1000, 400, 200, 100, 60, 40, 25)
_PROBES = (
    *(4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224),
    *(256, 320, 400, 500),
)
# There are about 50 rows in a list, and fewer in some.
_LEAST_IN_LIST = 20


@dataclass(frozen=True)
class Setting:
    """One way to search.

    ``session``: Settings of PostgreSQL. ``arguments``: Arguments of the search itself.
    """

    session: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The setting in words."""
        shown = {name.rpartition(".")[2]: value for name, value in self.session.items()}
        return " ".join(f"{n}={v}" for n, v in {**shown, **self.arguments}.items())


#: Settings of rising cost and recall.
Line = Sequence[Setting]


@dataclass(frozen=True)
class Built:
    """The build of a system.

    ``steps``: The seconds of each step, as far as the tool tells them. ``sizes``: Bytes of
    everything that it added.
    """

    seconds: float
    steps: dict[str, float]
    sizes: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values of the build."""
        return {
            "seconds": round(self.seconds, 2),
            "steps": {step: round(taken, 2) for step, taken in self.steps.items()},
            "bytes": sum(self.sizes.values()),
            "sizes": self.sizes,
        }


class System(ABC):
    """A way to find neighbours in the table ``items``.

    ``type``: That of the column.
    """

    #: Whether each line reaches a recall no earlier than the line before.
    nested: ClassVar[bool] = False

    def __init__(self, name: str, type: str = "vector") -> None:  # noqa: A002
        self.name, self.type = name, type

    def build(self, database: Database, seed: int) -> Built:
        """Build everything that searches need."""
        before = self.sizes(database)
        start = time.perf_counter()
        steps = self._build(database, seed)
        taken = time.perf_counter() - start
        grown = {n: size - before.get(n, 0) for n, size in self.sizes(database).items()}
        return Built(taken, steps, {name: size for name, size in grown.items() if size > 0})

    @abstractmethod
    def _build(self, database: Database, seed: int) -> dict[str, float]:
        """Build it; return the seconds of each step."""

    @abstractmethod
    def drop(self, database: Database) -> None:
        """Drop everything that `build` made, if there is anything."""

    @abstractmethod
    def sizes(self, database: Database) -> dict[str, int]:
        """Return the bytes of all relations that `build` adds or enlarges."""

    @abstractmethod
    def lines(self) -> Sequence[Line]:
        """Return the settings to try."""

    def filter_lines(self) -> Sequence[Line]:
        """Return the settings to try under a filter."""
        return self.lines()

    def suits(self, setting: Setting, share: int | None) -> bool:
        """Return whether a setting is worth trying under a filter that keeps this share."""
        return True

    @abstractmethod
    def statement(self, k: int, setting: Setting, share: int | None = None) -> str:
        """Write the search for the neighbours of $1, as rows that start with the key.

        With a share only among the rows that the filter of that share lets through.
        """


class Exact(System):
    """The exact query, without an index."""

    def _build(self, database: Database, seed: int) -> dict[str, float]:
        return {}

    def drop(self, database: Database) -> None:
        pass

    def sizes(self, database: Database) -> dict[str, int]:
        return {}

    def lines(self) -> Sequence[Line]:
        return [[Setting()]]

    def statement(self, k: int, setting: Setting, share: int | None = None) -> str:
        return (
            systems.Exact(column(self.type), "cosine")
            .search(k, conditions=_conditions(share))
            .as_string()
        )


class Hnsw(System):
    """pgvector's HNSW over the vectors. All graphs have the options of pg_hashindex's own.

    ``half``: Index them in half precision; answers are not re-ranked then.
    """

    method = "hnsw"

    def __init__(self, name: str, type: str = "vector", dimension: int = 0, half: bool = False):  # noqa: A002
        super().__init__(name, type)
        self.index, self.dimension = f"items_{self.method}", dimension
        halved = type == "vector" and (half or dimension > HNSW_DIMENSIONS["vector"])
        self.statements = (
            self._over(f"embedding::halfvec({dimension})", "halfvec") if halved else self._over()
        )

    def _over(self, expression: str | None = None, kind: str | None = None) -> systems.Existing:
        """Return the statements of an index over the vectors, or over an expression of them."""
        operator = "<~>" if kind == "bit" else "<=>"
        return systems.Existing(
            column(self.type), "cosine", expression, kind or self.type, operator, self.method
        )

    def create(self, options: str = "") -> str:
        """Return the statement that makes the index."""
        distance = "hamming" if self.statements.type == "bit" else "cosine"
        return (
            f"CREATE INDEX {self.index} ON items USING {self.method} "
            f"(({self.statements.expression or 'embedding'}) "
            f"{self.statements.type}_{distance}_ops){options}"
        )

    def _build(self, database: Database, seed: int) -> dict[str, float]:
        database.execute(self.create(self._options(len(database.drawn.rows))))
        return {}

    def _options(self, rows: int) -> Any:
        return GRAPH

    def drop(self, database: Database) -> None:
        database.execute(f"DROP INDEX IF EXISTS {self.index}")

    def sizes(self, database: Database) -> dict[str, int]:
        size = database.value("SELECT pg_total_relation_size(to_regclass(%s))", [self.index])
        return {self.index: size or 0}

    def lines(self) -> Sequence[Line]:
        return [[Setting({"hnsw.ef_search": ef}) for ef in _EF_SEARCH]]

    def filter_lines(self) -> Sequence[Line]:
        # Without iterative scans a filter would leave too few answers. 20,000 is the default.
        return [
            [
                Setting({"hnsw.ef_search": ef, "hnsw.iterative_scan": order,
                         "hnsw.max_scan_tuples": most})
                for ef in _EF_SEARCH
            ]
            for order in ("strict_order", "relaxed_order")
            for most in (20_000, 100_000)
        ]  # fmt: skip

    def statement(self, k: int, setting: Setting, share: int | None = None) -> str:
        asked = systems.Setting(**setting.arguments)
        search = self.statements.search(k, asked, _conditions(share)).as_string()
        if "relaxed_order" in setting.session.values():
            # Sort rows that come in approximate order, as pgvector's documentation advises.
            search = (
                f"WITH near AS MATERIALIZED ({search}) "
                "SELECT id, distance FROM near ORDER BY distance + 0"
            )
        return search


class SignHnsw(Hnsw):
    """pgvector's HNSW over the signs of the vectors, whose best are re-ranked exactly.

    ``centred``: Whether the mean of all rows is subtracted before signs are taken.
    """

    nested = True

    def __init__(self, name: str, type: str, dimension: int, *, centred: bool) -> None:  # noqa: A002
        super().__init__(name, type, dimension)
        self.centred = centred

    def _build(self, database: Database, seed: int) -> dict[str, float]:
        signed = "embedding"
        if self.centred:
            mean = database.value("SELECT avg(embedding)::vector FROM items").to_numpy()
            signed += f" - '[{','.join(f'{number:.6g}' for number in mean)}]'::{self.type}"
        self.statements = self._over(f"binary_quantize({signed})::bit({self.dimension})", "bit")
        return super()._build(database, seed)

    def lines(self) -> Sequence[Line]:
        return [
            [Setting({"hnsw.ef_search": ef}, {"candidates": kept}) for ef in _EF_SEARCH]
            for kept in _RE_RANKED
        ]


class CodeHnsw(Hnsw):
    """Over codes of a `thermometer`, built as README builds it; all that it finds is re-ranked."""

    model = "thermometer"

    def _build(self, database: Database, seed: int) -> dict[str, float]:
        with database.session() as session:
            start = time.perf_counter()
            self.statements = self._learned(session, seed)
            trained = time.perf_counter() - start
        return {"train": trained} | super()._build(database, seed)

    def _learned(self, session: Session, seed: int) -> systems.Existing:
        """Train the model and make its functions; return the statements of the index over them."""
        # Quick trials have few rows.
        session.value(
            "SELECT hashindex.train(%s, 'items', 'embedding', 'thermometer', cuts => 3, "
            "seed => %s, force => true)",
            [self.model, seed],
        )
        function = session.value("SELECT hashindex.create_functions(%s)", [self.model])
        bits = session.value("SELECT n_bits FROM hashindex.model ORDER BY id DESC LIMIT 1")
        return self._over(f"{function}(embedding)::bit({bits})", "bit")

    def drop(self, database: Database) -> None:
        super().drop(database)
        with database.session() as session:
            if session.value("SELECT count(*) FROM hashindex.model WHERE name = %s", [self.model]):
                session.value("SELECT hashindex.drop_functions(%s)", [self.model])
                store.drop(session.connection, self.model)

    def lines(self) -> Sequence[Line]:
        return [
            [Setting({"hnsw.ef_search": ef}, {"candidates": ef}) for ef in _EF_SEARCH if ef >= 20]
        ]


class IvfFlat(Hnsw):
    """pgvector's IVFFlat, with as many lists as its documentation advises."""

    method = "ivfflat"

    def _options(self, rows: int) -> Any:
        return f" WITH (lists = {max(10, rows // 1000)})"

    def lines(self) -> Sequence[Line]:
        return [[Setting({"ivfflat.probes": probes}) for probes in (1, 2, *_PROBES)]]

    def filter_lines(self) -> Sequence[Line]:
        return self.lines()


def column(type: str) -> systems.VectorColumn:  # noqa: A002
    """Return the column of vectors in the table ``items``."""
    key = sql.Identifier("id")
    embedding = sql.Identifier("embedding")
    return systems.VectorColumn("public", sql.Identifier("items"), embedding, type, key, key)


def _conditions(share: int | None) -> list[str | None]:
    return [None if share is None else f"{FILTERS[share]} = 0"]


class Ours(System):
    """An index of pg_hashindex with landmarks over codes of ITQ, built by the command line.

    ``name``: The name of its model; that of the index has underscores for dashes.
    """

    nested = True

    def __init__(self, name: str, cuts: int = 3, bits: int = BITS) -> None:
        super().__init__(name)
        self.index = name.replace("-", "_")
        self.cuts, self.bits = cuts, bits

    def build(self, database: Database, seed: int) -> Built:
        built = super().build(database, seed)
        with database.session() as session:
            found = HashIndex.open(session.connection, self.index)
            # Until a path is built, searches use another one.
            if found.access != "lists" or found.waiting():
                raise RuntimeError(
                    f"the commands left index {self.index} with the access path {found.access} "
                    f"and {found.waiting()} rows without a code"
                )
        return built

    def commands(self, rows: int, seed: int) -> dict[str, str]:
        """Return the commands that build it, by step."""
        few = " --force" if rows < _ENOUGH_ROWS else ""
        return {
            "train": f"model train {self.name} --method itq --bits {self.cuts * self.bits} "
            f"--cuts {self.cuts} --table items --column embedding --metric cosine "
            f"--seed {seed}{few}",
            "create": f"index create {self.index} --table items --column embedding "
            f"--model {self.name} --access lists",
        }

    def _build(self, database: Database, seed: int) -> dict[str, float]:
        steps: dict[str, float] = {}
        for name, command in self.commands(len(database.drawn.rows), seed).items():
            start = time.perf_counter()
            inside = run_command(command, database.uri).steps
            steps[name] = time.perf_counter() - start
            steps |= {f"{name}: {step}": taken for step, taken in inside.items()}
        return steps

    def drop(self, database: Database) -> None:
        with database.session() as session:
            has = "SELECT count(*) FROM hashindex.{} WHERE name = %s"
            if session.value(has.format("index"), [self.index]):
                HashIndex.open(session.connection, self.index).drop()
            if session.value(has.format("model"), [self.name]):
                store.drop(session.connection, self.name)

    def sizes(self, database: Database) -> dict[str, int]:
        with database.session() as session:
            # Tables with their indexes. The catalog counts too, since it holds the model.
            rows = session.connection.execute(
                "SELECT relname, pg_total_relation_size(oid) FROM pg_class "
                "WHERE relnamespace = 'hashindex'::regnamespace AND relkind IN ('r', 'p')"
            ).fetchall()
        return dict(rows)

    def lines(self) -> Sequence[Line]:
        return [
            [Setting(arguments={"candidates": kept, "effort": effort}) for effort in _PROBES]
            for kept in _CANDIDATES
        ]

    def suits(self, setting: Setting, share: int | None) -> bool:
        # If the lists hold fewer rows than candidates, all codes are compared, which finds more and
        # takes far longer than many more lists. With a filter, search widens the lists itself.
        kept = setting.arguments["effort"] * _LEAST_IN_LIST * ((share or 100) / 100) ** 0.5
        return bool(kept >= setting.arguments["candidates"])

    def statement(self, k: int, setting: Setting, share: int | None = None) -> str:
        options = "".join(f", {name} => {count}" for name, count in setting.arguments.items())
        search = f"search_{self.index}($1::public.vector, k => {k}{options})"
        if share is not None:
            search = (
                f"search('{self.index}', $1::public.vector, k => {k}{options}, "
                f"filter => '{FILTERS[share]} = 0')"
            )
        # Under a filter keys are text.
        return f"SELECT id::bigint, distance FROM hashindex.{search}"


# The peak of a process includes the process that it was forked from, so fork from a small one.
_SMALL = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
cpu = usage.ru_utime + usage.ru_stime
print(json.dumps([os.waitstatus_to_exitcode(status), cpu, usage.ru_maxrss * 1024]))
"""


@dataclass(frozen=True)
class Ran:
    """A command of pg-hashindex that has ended.

    ``steps``: Seconds of the steps that its progress names. ``said``: The end of what it wrote
    to the standard error.
    """

    exit_code: int
    seconds: float
    cpu_s: float
    peak_bytes: int
    steps: dict[str, float]
    said: str


def run_command(command: str, uri: str, good: Sequence[int] = (0,)) -> Ran:
    """Run a command of pg-hashindex; raise RuntimeError if it ends with another exit code."""
    program = Path(sys.executable).with_name("pg-hashindex")
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", _SMALL, str(program), *command.split()],
        env=os.environ | {"PG_HASHINDEX_DATABASE_URL": uri},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    began: dict[str, float] = {}
    said, rest = "", ""
    try:
        while chunk := os.read(process.stderr.fileno(), 65_536):
            lines = re.split(r"[\r\n]", rest + chunk.decode(errors="replace"))
            said, rest = (said + chunk.decode(errors="replace"))[-2_000:], lines[-1]
            for line in lines:
                # Progress bars, "reading: 12%|...", and "training itq on 20000 rows" name steps.
                if step := re.match(r"([a-z][a-z ]+?)(?:: +\d| on \d)", line):
                    began.setdefault(step[1], time.perf_counter())
        exit_code, cpu, peak = json.loads(process.stdout.read())
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    finally:
        process.stdout.close()
        process.stderr.close()
        process.wait()
    end = time.perf_counter()
    if exit_code not in good:
        raise RuntimeError(f"pg-hashindex {command} failed: {said.strip()}")
    ends = [*list(began.values())[1:], end]
    steps = {step: e - b for (step, b), e in zip(began.items(), ends, strict=False)}
    return Ran(exit_code, end - start, cpu, peak, steps, said)


SYSTEMS: dict[str, System] = {
    system.name: system
    for system in (
        Hnsw("hnsw"),
        Ours("ours"),
        Ours("ours-1-cut", cuts=1),
    )
}


def compared(type: str, dimension: int, bits: int | None = None) -> dict[str, System]:  # noqa: A002
    """Return all that pgvector offers for a column, and ours.

    ``bits``: Projections of our model; without it 256, and 512 of more than 512 dimensions.

    Returns: HNSW over the vectors is the first.
    """
    half = [Hnsw("hnsw-halfvec", type, dimension, half=True)] if type == "vector" else []
    systems = (
        Hnsw("hnsw", type, dimension),
        *half,
        SignHnsw("hnsw-signs", type, dimension, centred=False),
        SignHnsw("hnsw-centred-signs", type, dimension, centred=True),
        CodeHnsw("hnsw-code", type),
        IvfFlat("ivfflat", type),
        Ours("ours", bits=bits or (BITS if dimension <= 512 else 2 * BITS)),
        Exact("exact", type),
    )
    return {system.name: system for system in systems}
