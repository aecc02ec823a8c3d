"""The adviser: what facts say of a table or an index, and what to do, with commands to run.

`decide` chooses one set for a table by facts alone; doctor, quickstart and the page print it.
Training, tuning, evaluations and checks read facts, and print what these functions make of them;
nothing here asks the database.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..hashers import HASHERS, Thermometer
from ..index.catalog import IndexRow
from ..models.model import OPERATORS
from ..models.store import StoredModel
from ..training import LEAST_ROWS, METHOD
from .doctor_catalog import usual_metric
from .doctor_findings import (
    Advice,
    Diagnosis,
    Point,
    Scope,
    SetFacts,
    TableFacts,
    VectorIndex,
)
from .measuring import Measured, reaches
from .sizes import HNSW_DIMENSIONS, as_setting, hnsw_bytes, ivfflat_bytes, lists_bytes, megabytes

#: The sets that are compared, by name; `EXACT` needs none.
Kind = Literal["exact", "vectors", "codes", "stored codes", "codes in IVFFlat", "lists", "keep"]

#: The method of functions, which cost a few microseconds.
GRAPH_METHOD = "thermometer"
#: Below this a search misses one of twenty of the nearest rows.
RECALL = 0.95
#: Searches are slower than the exact query if their median is, by more than this: of a small table
#: either is fast enough.
SAME_TIME, SAME_MS = 1.1, 5.0

# Milliseconds: searched exactly in less, a table needs no index.
_FAST_MS = 5.0
#: Why a set is taken that `--access` names.
FORCED = "--access says so"
# Writes a second: an insert takes 4 ms of CPU with HNSW over vectors, 3 over codes, .6 with lists.
_SOME_WRITES, _MANY_WRITES = 30.0, 100.0
# Rows of a tenant from which lists are the fastest where the table does not fit into memory, and
# where it does; fewer are searched exactly, and more by an iterative scan.
_TENANT_ON_DISK, _TENANT_IN_MEMORY = 3_000, (1_000, 50_000)
# The part of the table that searches keep in memory beside a set.
_HOT_SHARE = 0.25
_MANY_DEAD = 0.2
_LEAST_RETURNED = 0.99
# A b-tree is advised if it leaves so small a part of the rows, and of the time at the most.
_SELECTIVE, _FASTER, _WORTH_MS = 0.1, 0.5, 1.0
# Rows found by a b-tree lie apart, and are read slower than all rows in their order.
_APART = 3
# Below this recall on held-back rows, other options of training are suggested.
_GOOD_RECALL = 0.9
# Bytes: smaller rows are kept whole; a vector of up to the second fits in a page with few columns.
_IN_ROWS, _MOST_IN_ROWS = 2000, 7500


@dataclass(frozen=True)
class There:
    """An index of the column that is there, as a candidate.

    Attributes
    ----------
    name
        That of an index of pg_hashindex, or of pgvector's.
    set
        The set behind a name; else empty.
    kind
        What it is like: ``vectors``, ``codes``, ``codes in IVFFlat`` or ``lists``.
    method
        Of pgvector's index: ``hnsw`` or ``ivfflat``; empty for lists.
    reaches
        Whether a setting that was measured reaches the recall; None where none was measured.
    """

    name: str
    set: str
    kind: Kind
    bytes: int
    reaches: bool | None
    milliseconds: float | None
    text: str = ""
    command: str | None = None
    method: str = ""


@dataclass(frozen=True)
class Facts:
    """All that a decision takes into account.

    Attributes
    ----------
    rows, dimension, toasted, table_bytes
        Of the table; rows without a vector do not count. ``toasted`` where its vectors are out of
        line.
    parts
        Its partitions; 1 without.
    memory
        Bytes that the server has for the set and the table.
    writes
        Rows written a second.
    exact_ms
        The median of exact searches.
    tenant, tenant_rows
        The column of tenants within which searches stay, and the rows of the largest.
    plain
        Whether it is one plain table with a key, which lists need.
    stores
        Whether a column of codes can be added to it.
    codes
        Whether codes rank by the distance: not by l1.
    there
        Indexes of the column.
    candidates
        Rows that a set has to re-rank, by kind; those that are known.
    """

    rows: int
    dimension: int
    toasted: bool
    table_bytes: int
    memory: int
    exact_ms: float
    parts: int = 1
    writes: float = 0.0
    tenant: str | None = None
    tenant_rows: int | None = None
    plain: bool = True
    stores: bool = True
    codes: bool = True
    there: tuple[There, ...] = ()
    candidates: Mapping[str, int] = field(default_factory=dict)

    @property
    def left(self) -> int:
        """Memory less the hot part of the table."""
        return max(0, self.memory - round(_HOT_SHARE * self.table_bytes))

    @property
    def in_memory(self) -> bool:
        """Whether the table itself fits."""
        return self.table_bytes <= self.memory


class Choice(NamedTuple):
    """The set to take, why, and all sets that were compared."""

    kind: Kind
    why: str
    sets: tuple[SetFacts, ...]
    there: There | None = None


def choose(facts: Facts, access: str | None = None) -> Choice:
    """Choose a set by facts: the same facts give the same choice.

    Recalls and times of searches are not compared with each other, since they differ by the draw
    of the queries: an index that is there reaches the recall or does not.

    Parameters
    ----------
    access
        ``hnsw``, ``ivfflat`` or ``lists``: choose among these sets alone.
    """
    sizes = _sizes(facts)
    if access is None:
        kind, why = _by_rules(facts, sizes)
    else:
        kind, why = _of_access(facts, sizes, access), FORCED
    kept = [
        one
        for one in facts.there
        if (access is None or (not one.set and one.method == access == "hnsw"))
        and _serves(facts, one, kind)
    ]
    # A name first, then the kind of the rules, then halfvecs before vectors: the smaller.
    best = min(
        kept, key=lambda one: (not one.set, one.kind != kind, one.bytes, one.name), default=None
    )
    if best is not None:
        return Choice("keep", _why_kept(facts, best), _compared(facts, sizes, "keep", best), best)
    return Choice(kind, why, _compared(facts, sizes, kind, forced=access is not None))


def _why_kept(facts: Facts, one: There) -> str:
    said = ["fits into memory"] if one.bytes <= facts.left else []
    # A name that is to be tuned does not reach the recall as it is.
    if one.reaches and not (one.set and one.command):
        time = "" if one.milliseconds is None else f" in {one.milliseconds:.3g} ms"
        said.append(f"reaches the recall{time}")
    return f"it {' and '.join(said)}" if said else "it is the set for these facts"


def _serves(facts: Facts, one: There, kind: Kind) -> bool:
    """Return whether an index reaches the recall, and serves as well as the set of a kind.

    A name that there was no time to measure stays if it has the set that the rules take.
    """
    reaches = one.reaches or (one.reaches is None and bool(one.set) and one.kind == kind)
    return reaches and _stays(facts, one, kind)


def _stays(facts: Facts, one: There, kind: Kind) -> bool:
    """Return whether an index serves as well as the set of a kind that the rules take."""
    fits = one.bytes <= facts.left
    if one.kind == "vectors" and one.method == "ivfflat":
        # Probes that reach the recall read many lists: ten times a graph's time.
        return fits and kind == "exact"
    if one.kind == kind:
        return fits or kind in ("codes in IVFFlat", "lists")
    if one.kind == "vectors":
        return fits and kind == "exact"
    # Codes and lists are within a quarter of the time of vectors that fit.
    return fits and kind in ("exact", "vectors", "codes", "stored codes")


def _sizes(facts: Facts) -> dict[Kind, int]:
    # The cuts that a sample chooses differ by the draw.
    bits = code_bits(facts.dimension)
    sizes: dict[Kind, int] = {}
    if facts.dimension <= HNSW_DIMENSIONS["halfvec"]:
        sizes["vectors"] = hnsw_bytes(facts.rows, "halfvec", facts.dimension)
    if not facts.codes:
        return sizes
    sizes["codes"] = hnsw_bytes(facts.rows, "bit", bits)
    sizes["codes in IVFFlat"] = ivfflat_bytes(facts.rows, "bit", bits)
    if facts.toasted and facts.stores:
        stored = math.ceil(facts.rows * bits / 8)
        sizes["stored codes"] = sizes["codes"] + stored
    if facts.plain:
        sizes["lists"] = lists_bytes(facts.rows, 3 * min(256, facts.dimension))
    return sizes


def code_bits(dimension: int) -> int:
    """Return about how many bits a code of the function's model will have."""
    return dimension * Thermometer().default_cuts(dimension)


def _of_access(facts: Facts, sizes: Mapping[Kind, int], access: str) -> Kind:
    if access == "lists":
        return "lists"
    if access == "ivfflat":
        return "codes in IVFFlat"
    if sizes.get("vectors", math.inf) <= facts.left and facts.writes <= _SOME_WRITES:
        return "vectors"
    return "codes"


def _by_rules(facts: Facts, sizes: Mapping[Kind, int]) -> tuple[Kind, str]:
    """Choose as measured: see DESIGN 1."""
    exact = f"an exact search of {facts.rows} rows takes {facts.exact_ms:.3g} ms"
    if facts.exact_ms <= _FAST_MS:
        return "exact", f"{exact}, which is fast enough"
    few = facts.rows < LEAST_ROWS
    if facts.tenant is not None and facts.tenant_rows is not None:
        rows = facts.tenant_rows
        largest = f"the largest {facts.tenant} has {rows} rows"
        least, most = _TENANT_IN_MEMORY if facts.in_memory else (_TENANT_ON_DISK, math.inf)
        if rows < least:
            return "exact", f"{largest}, which a b-tree on {facts.tenant} finds for exact search"
        if rows <= most and "lists" in sizes and not few:
            return "lists", f"{largest}, and lists are read within one {facts.tenant} alone"
    if few or not facts.codes:
        why = f"{exact}, and a model learns nothing from so few" if facts.codes else exact
        return ("vectors" if "vectors" in sizes else "exact"), why
    writes = f"{facts.writes:.0f} rows are written a second"
    if facts.writes > _MANY_WRITES:
        if "lists" in sizes:
            return "lists", f"{writes}, and lists are written to five times as fast as a graph"
        return "codes in IVFFlat", f"{writes}, and IVFFlat takes most writes"
    left = f"memory of {as_setting(facts.memory)} less the table's hot part"
    wide = sizes.get("vectors")
    if wide is not None and wide <= facts.left and facts.writes <= _SOME_WRITES:
        return "vectors", f"{exact}, and {megabytes(wide)} of halfvecs fit into memory"
    why = (
        f"{writes}, which HNSW over vectors takes a tenth of a core for"
        if wide is not None and wide <= facts.left
        else "pgvector indexes no vector of these dimensions"
        if wide is None
        else f"halfvecs would take {megabytes(wide)}, more than {left}"
    )
    graph: Kind = "stored codes" if "stored codes" in sizes else "codes"
    for kind in (graph, "codes in IVFFlat", "lists"):
        if sizes.get(kind, math.inf) <= facts.left:
            return kind, f"{why}, and {megabytes(sizes[kind])} of {kind} fit"
    last: Kind = "lists" if "lists" in sizes else "codes in IVFFlat"
    return last, f"{why}; nothing fits, and {last} read the least from disk"


def _compared(
    facts: Facts,
    sizes: Mapping[Kind, int],
    taken: Kind,
    kept: There | None = None,
    *,
    forced: bool = False,
) -> tuple[SetFacts, ...]:
    """Return all sets, with what is expected of each."""

    def why_not(kind: Kind, fits: bool) -> str:
        return FORCED if forced else _why_not(facts, kind, fits, taken)

    exact = SetFacts(
        "exact", True, 0, 0.0, None, round(facts.exact_ms, 3), None, taken == "exact",
        "" if taken == "exact" else "slow" if facts.exact_ms > _FAST_MS
        else "an index is there" if taken == "keep" else FORCED,
    )  # fmt: skip
    found = [exact]
    for kind in ("vectors", "codes", "stored codes", "codes in IVFFlat", "lists"):
        if (size := sizes.get(kind)) is None:
            continue
        count = facts.candidates.get("lists" if kind == "lists" else "codes", 50)
        fits = size <= facts.left
        found.append(
            SetFacts(
                kind, fits, size, round(_build_seconds(facts, kind), 1),
                None if kind == "vectors" else count,
                round(expected_ms(facts, kind, size, count), 2), _INSERTS[kind], kind == taken,
                "" if kind == taken else why_not(kind, fits),
            )
        )  # fmt: skip
    for one in facts.there:
        fits = one.bytes <= facts.left
        not_taken = (
            "not measured" if one.reaches is None
            else "below the recall" if not one.reaches
            else why_not(one.kind, fits)
        )  # fmt: skip
        found.append(
            SetFacts(
                one.name + (f" ({one.set})" if one.set else ""), fits, one.bytes, 0.0, None,
                one.milliseconds, _INSERTS[one.kind], one is kept, "" if one is kept else not_taken,
            )
        )  # fmt: skip
    return tuple(found)


def _why_not(facts: Facts, kind: Kind, fits: bool, taken: Kind) -> str:
    if taken == "exact":
        return "not needed"
    if taken == "keep":
        return "an index is there"
    if not fits:
        return "larger than memory"
    if taken == "lists" and facts.tenant:
        return "slow for tenants"
    if kind == "vectors":
        return "slow writes"
    if kind == "codes" and taken == "stored codes":
        return "reads vectors out of line"
    if kind in ("codes", "stored codes") and taken in ("lists", "codes in IVFFlat"):
        return "slower writes"
    return "slower searches"


# Single inserts a second by one session, measured.
_INSERTS: Mapping[str, int] = {
    "vectors": 240, "codes": 320, "stored codes": 500, "codes in IVFFlat": 5000, "lists": 1600,
}  # fmt: skip
# Milliseconds of a build for each row, and for each kB of an element.
_BUILD_MS = {"codes": 0.45, "stored codes": 0.26, "codes in IVFFlat": 0.2, "lists": 0.11}


def _build_seconds(facts: Facts, kind: Kind) -> float:
    each = 0.42 + 0.25 * 2 * facts.dimension / 1000 if kind == "vectors" else _BUILD_MS[kind]
    return facts.rows * each / 1000


def expected_ms(facts: Facts, kind: Kind, size: int, candidates: int) -> float:
    """Return about how long a search takes, fitted to what was measured (DESIGN 1).

    A graph is read at some 20 elements for each of its candidates; a row is compared in 5 us, or
    12 where it is out of line, and read from disk in 80.
    """
    outside = max(0.0, 1 - facts.left / size) if size else 0.0
    cold = max(0.0, 1 - facts.memory / max(facts.table_bytes + size, 1))
    row = 0.012 if facts.toasted else 0.005
    reranked = candidates * (row + 0.08 * cold)
    if kind == "codes in IVFFlat":
        return 0.3 + facts.rows * 1e-5 + reranked + outside
    if kind == "lists":
        # Landmarks are searched by a graph, so the time grows with less than the root of the rows.
        return 0.3 + 0.0035 * math.pow(facts.rows, 0.43) + reranked + outside
    effort = 26 if kind == "vectors" else candidates
    elements = 20 * effort * (facts.parts if facts.parts == 1 else facts.parts / 2)
    width = 2 * facts.dimension if kind == "vectors" else facts.dimension / 4
    walked = elements * (0.00045 + 0.00019 * width / 1000 + 0.03 * outside)
    computed = 0.008 * candidates if kind == "codes" and facts.toasted else 0
    return 0.25 + walked + computed + (0 if kind == "vectors" else reranked)


def facts_of(found: Diagnosis, goal: float) -> Facts | None:
    """Return the facts of a diagnosis; None where exact search was not measured."""
    table, exact_ms = found.table, found.exact_ms
    if exact_ms is None:
        return None
    fits = {fit.code: fit for fit in found.codes}
    known = {"codes": fits.get(GRAPH_METHOD), "lists": fits.get(METHOD)}
    tenant = found.tenant
    if tenant is not None and tenant.source != "--tenant" and tenant.tenants == 1:
        # A search within the only one leaves no row out.
        tenant = None
    largest = None if tenant is None else tenant.largest
    return Facts(
        rows=table.vectors,
        dimension=table.dimension,
        toasted=table.toasted,
        table_bytes=table.bytes,
        memory=found.available,
        exact_ms=exact_ms,
        parts=table.parts,
        writes=table.writes if found.writes is None else found.writes,
        tenant=None if tenant is None else tenant.column,
        tenant_rows=None if largest is None else round(largest * (1 - table.null_share)),
        plain=table.without_codes is None,
        stores=table.kind != "partition",
        codes=found.metric != "l1",
        there=tuple(_there(found, goal)),
        candidates={kind: fit.candidates for kind, fit in known.items() if fit is not None},
    )


def _there(found: Diagnosis, goal: float) -> Iterator[There]:
    behind = {name.relation for name in found.names}
    for name in found.own_names:
        kind: Kind = (
            "lists" if name.access in ("lists", "scan")
            else "vectors" if name.model is None
            else "codes in IVFFlat" if name.access == "ivfflat"
            else "stored codes" if name.stores
            else "codes"
        )  # fmt: skip
        text = command = None
        if name.recall is not None and name.least_recall is not None:
            text = f"its recall is {name.recall:.1%}, and {goal:g} is wanted"
            if not reaches(name.recall, name.least_recall, goal):
                text += ": tune it"
                command = f"pg-hashindex tune {shlex.quote(name.name)} --recall {goal:g}"
                command += f"{_nearest(found.k)} --apply"
        yield There(
            name.name, name.set, kind, name.bytes, None if text is None else True, name.p50_ms,
            text or "", command, "" if kind == "lists" else name.access,
        )  # fmt: skip
    for index in found.indexes:
        if (
            index.valid
            and index.condition in (None, f"{found.table.quoted_column} IS NOT NULL")
            and index.metric in (None, found.metric)
            and _bare(index.name) not in behind
        ):
            points = _points(found, index)
            enough = [p for p in points if reaches(p.recall, p.least_recall, goal)]
            best = min(enough, key=lambda p: (not p.current, p.value), default=None)
            shape: Kind = (
                "vectors" if index.metric is not None
                else "codes in IVFFlat" if index.method == "ivfflat" else "codes"
            )  # fmt: skip
            text = command = None
            if best is not None:
                text = f"it finds {best.recall:.1%} of the true {found.k} nearest"
                if index.condition is not None:
                    text += f", in searches WHERE {index.condition}"
                if not best.current:
                    module = f"{index.method}.{index.setting}"
                    text += f" with {module} = {best.value}"
                    command = f"SET {module} = {best.value};"
            yield There(
                index.name, "", shape, index.bytes, bool(enough) if points else None,
                None if best is None else best.p50_ms, text or "", command, index.method,
            )  # fmt: skip


def _nearest(k: int) -> str:
    """Return the option of ``tune`` for ``k`` nearest rows, if it is not the default."""
    return "" if k == 10 else f" -k {k}"


def _bare(name: str) -> str:
    """Return the name of an index of pgvector's as the catalog of indexes has it."""
    return name.rpartition(".")[2].strip('"').replace('""', '"')


def decide(found: Diagnosis, goal: float) -> tuple[Advice, tuple[SetFacts, ...]]:
    """Recommend one set in one sentence, with the command that makes it; and all sets."""
    facts = facts_of(found, goal)
    if facts is None:
        said = "Nothing was measured, so nothing is advised; see the notes."
        return Advice("unknown", said), ()
    chosen = choose(facts)
    return _decision(found, chosen, goal), chosen.sets


def _decision(found: Diagnosis, chosen: Choice, goal: float) -> Advice:
    if (kept := chosen.there) is not None:
        commands = () if kept.command is None else (kept.command,)
        said = f": {kept.text}" if kept.text else ""
        text = f"Keep {kept.name}{said}; {chosen.why}."
        level: Literal["ok", "warning"] = "warning" if commands else "ok"
        return Advice("keep", text, commands, level=level)
    if chosen.kind == "exact":
        text = f"Take no index: {chosen.why}."
        missing = tenant_btree(found)
        level = "warning" if missing else "ok"
        return Advice("exact", text, missing, level=level)
    if found.metric == "l1":
        text = f"Take pgvector's own HNSW: no index of pg_hashindex searches by l1; {chosen.why}."
        return Advice("vectors", text, (f"{index_of_l1(found.table)};",))
    size = next(one.bytes for one in chosen.sets if one.taken)
    if (unnamed := found.table.unnamed) is not None:
        text = (
            f"{_NAMES[chosen.kind]} would serve, since {chosen.why}, but this table cannot have a "
            f"pg_hashindex index: {unnamed}."
        )
        return Advice("unknown", f"{text[0].upper()}{text[1:]}")
    text = f"Take {_NAMES[chosen.kind]}, about {megabytes(size)}: {chosen.why}."
    if chosen.kind == "stored codes":
        text += " PostgreSQL writes the table again for it: searches and writes wait."
    return Advice(chosen.kind, text, _commands(found, chosen.kind, goal))


def tenant_btree(found: Diagnosis) -> tuple[str, ...]:
    """Return the statement for the b-tree by which exact search finds a tenant, if it lacks."""
    tenant, exact_ms = found.tenant, found.exact_ms
    if tenant is None or tenant.indexed or exact_ms is None or exact_ms <= _FAST_MS:
        return ()
    column = tenant.quoted_column
    return (f"CREATE INDEX {found.table.concurrently}ON {found.table.name} ({column});",)


def index_of_l1(table: TableFacts) -> str | None:
    """Return the statement for an index of pgvector by l1, which no set is ordered by.

    None beyond the dimensions that pgvector indexes.
    """
    if table.dimension > HNSW_DIMENSIONS["halfvec"]:
        return None
    wide = table.dimension > HNSW_DIMENSIONS[table.type]
    kind, indexed = "halfvec" if wide else table.type, table.quoted_column
    if wide or not table.declared:
        indexed = f"({indexed}::{kind}({table.dimension}))"
    return f"CREATE INDEX {table.concurrently}ON {table.name} USING hnsw ({indexed} {kind}_l1_ops)"


_NAMES: Mapping[Kind, str] = {
    "vectors": "the vectors as halfvec in HNSW",
    "codes": "codes in HNSW",
    "stored codes": "codes in a column, in HNSW",
    "codes in IVFFlat": "codes in IVFFlat",
    "lists": "codes in lists",
}
#: The options of a set that `HashIndex.create` and ``index swap`` take for a set.
OPTIONS_OF: Mapping[Kind, Mapping[str, str | bool]] = {
    "vectors": {"model": "none", "access": "hnsw"},
    "codes": {"access": "hnsw"},
    "stored codes": {"access": "hnsw", "store": True},
    "codes in IVFFlat": {"access": "ivfflat"},
    "lists": {"access": "lists"},
}


def name_of(kind: Kind) -> str:
    """Return a set in words."""
    return _NAMES.get(kind, str(kind))


def _commands(found: Diagnosis, kind: Kind, goal: float) -> tuple[str, ...]:
    """Return commands that make a set: a swap where a name can have it, else quickstart."""
    tenant = found.tenant
    within = None if tenant is None or kind != "lists" else tenant.column
    # A swap keeps the column of tenants.
    name = next((one for one in found.own_names if within in (None, one.tenant)), None)
    first = halfvec_index(found, goal) if kind == "vectors" else ()
    if name is None:
        return (*first, _quickstart(found, kind, goal))
    quoted, options = shlex.quote(name.name), {**OPTIONS_OF[kind]}
    training = []
    if name.model is None and kind != "vectors":
        options = {"model": quoted, **options}
        table = found.table
        training = [
            f"pg-hashindex model train {quoted} --table {shlex.quote(table.name)} "
            f"--column {shlex.quote(table.column)} --metric {found.metric} "
            f"--method {METHOD if kind == 'lists' else GRAPH_METHOD}"
        ]
    words = " ".join(
        f"--{option}" if value is True else f"--{option} {value}"
        for option, value in options.items()
    )
    return (*first, *training, f"pg-hashindex index swap {quoted} {words}")


def halfvec_index(found: Diagnosis, goal: float) -> tuple[str, ...]:
    """Return statements for an HNSW over halfvecs, if that which is there does not serve.

    A set of vectors takes an index that is there.
    """
    table, facts = found.table, facts_of(found, goal)
    graphs = [
        index
        for index in found.indexes
        if index.valid
        and index.method == "hnsw"
        and index.condition is None
        and index.metric == found.metric
    ]
    if table.type != "vector" or not graphs or facts is None:
        return ()
    short = {one.name for one in facts.there if not one.set and one.reaches is False}
    # A new one would find no more than one that is built as we build it.
    poor = [index for index in graphs if index.name in short and not _is_thorough(index)]
    if any((i.expression or i.bytes <= facts.left) and i not in poor for i in graphs):
        return ()
    expression = f"({table.quoted_column}::halfvec({table.dimension})) halfvec_{found.metric}_ops"
    return (
        f"CREATE INDEX {table.concurrently}ON {table.name} USING hnsw ({expression}) "
        "WITH (ef_construction = 128);",
        # A set of halfvecs would take it.
        *(
            f"DROP INDEX {table.concurrently}{index.name};"
            for index in poor
            if index.operator_class.startswith("halfvec_")
        ),
    )


def _is_thorough(index: VectorIndex) -> bool:
    """Return whether a graph was built with at least the effort of our own."""
    options = dict(option.split("=", 1) for option in index.options)
    return int(options.get("ef_construction", 64)) >= 128


def _quickstart(found: Diagnosis, kind: Kind, goal: float) -> str:
    """Return the command that makes a name and a set from the start."""
    table = found.table
    options = ""
    if found.names:
        taken = {name.name for name in found.names}
        stem = found.names[0].name[:37]
        free = (f"{stem}_{n}" for n in range(2, 100))
        options += f" --name {shlex.quote(next(n for n in free if n not in taken))}"
    if table.primary_key is None and table.other_key is not None:
        options += f" --id {shlex.quote(','.join(table.other_key))}"
    metric = found.metric
    known = [index.metric for index in found.indexes] + [name.metric for name in found.names]
    if metric in OPERATORS and metric != usual_metric(known):
        # Quickstart takes that of an index, or a name, else cosine.
        options += f" --metric {metric}"
    if found.tenant is not None and (kind == "lists" or found.tenant.source == "--tenant"):
        options += f" --tenant {shlex.quote(found.tenant.column)}"
    if found.writes is not None:
        options += f" --writes {found.writes:g}"
    if found.memory_given is not None:
        # The option has no unit below 1 kB.
        options += f" --memory {as_setting(-(-found.memory_given // 1024) * 1024)}"
    if goal not in (0, RECALL):
        options += f" --recall {goal:g}"
    return f"pg-hashindex quickstart {shlex.quote(table.name)} {shlex.quote(table.column)}{options}"


def advise(found: Diagnosis, goal: float) -> list[Advice]:
    """Say what else to do to the table and its indexes, what matters most first."""
    faults = [
        Advice("codes", f"{fault[0].upper()}{fault[1:]}.", (remedy,), level="broken")
        for fault, remedy in found.code_faults
    ]
    return [*faults, *_filters(found, goal), *_dead(found), *_unused(found), *_toast(found)]


def _points(found: Diagnosis, index: VectorIndex) -> list[Point]:
    """Return what searches without a filter found by an index."""
    return [p for p in found.points if p.index == index.name and p.filter is None]


def _filters(found: Diagnosis, goal: float) -> Iterator[Advice]:
    seen: set[str | None] = set()
    for scope in found.scopes:
        # A filter has a scope for each distance.
        if scope.filter in seen or (milliseconds := _by_btree(found, scope)) is None:
            continue
        seen.add(scope.filter)
        columns = ", ".join(scope.unindexed)
        yield Advice(
            "btree",
            f"Where {scope.filter}, an exact search reads the whole table for {scope.rows} rows, "
            f"in {scope.p50_ms:.3g} ms. By a b-tree on {columns} it takes about "
            f"{milliseconds:.2g} ms, and finds all of the true {found.k} nearest.",
            (f"CREATE INDEX {found.table.concurrently}ON {found.table.name} ({columns});",),
        )
    for now, enough in _filtered(found, goal):
        if enough is None:
            yield Advice(
                "filter",
                f"Where {now.filter}, {now.index} finds {now.recall:.1%} of the true {found.k} "
                "nearest, and iterative scans do not help. A search by a name continues exactly.",
            )
            continue
        index = found.index_of(now)
        yield Advice(
            "iterative_scan",
            f"Where {now.filter}, {index.name} brings {now.returned:.3g} of {now.wanted:.3g} "
            f"answers, and finds {now.recall:.1%} of the true ones. With iterative scans it finds "
            f"{enough.recall:.1%} in {enough.p50_ms:.3g} ms.",
            (
                f"SET {index.method}.iterative_scan = 'relaxed_order';",
                f"SET {index.method}.{index.setting} = {enough.value};",
            ),
        )


def _filtered(found: Diagnosis, goal: float) -> Iterator[tuple[Point, Point | None]]:
    """Yield what an index finds too little of under a filter, and the iterative scan that helps."""
    # Exact search is all that these filters need.
    fast = {
        scope.filter
        for scope in found.scopes
        if (expected := _by_btree(found, scope)) is not None and expected <= _FAST_MS
    }
    for now in found.points:
        if now.filter is None or not now.current or now.filter in fast:
            continue
        if now.returned >= _LEAST_RETURNED * now.wanted and now.recall >= goal:
            continue
        exact = next((s for s in found.scopes if s.filter == now.filter), None)
        if exact is not None and exact.planner == "exact" and exact.p50_ms <= _FAST_MS:
            # PostgreSQL chooses exact search, and it is fast.
            continue
        iterative = (
            point
            for point in found.points
            if (point.index, point.filter) == (now.index, now.filter) and point.iterative
        )
        yield now, next((point for point in iterative if point.recall >= goal), None)


def _by_btree(found: Diagnosis, scope: Scope) -> float | None:
    """Return the milliseconds that an exact search would take by the b-tree that a filter lacks.

    None if there is none to make, or it would gain little.
    """
    whole, rows = found.exact, found.table.rows
    if not scope.unindexed or scope.rows is None or whole is None:
        return None
    expected = found.round_trip_ms + _APART * whole.p50_ms * scope.rows / max(rows, 1)
    gains = scope.p50_ms > _WORTH_MS and expected < _FASTER * scope.p50_ms
    return expected if gains and scope.rows <= _SELECTIVE * rows else None


def _dead(found: Diagnosis) -> Iterator[Advice]:
    table = found.table
    if table.dead_share is None or table.dead_share <= _MANY_DEAD:
        return
    graphs = [index.name for index in found.indexes if index.method == "hnsw"]
    yield Advice(
        "vacuum",
        f"{table.dead_share:.0%} of the rows are dead, and searches walk over them."
        + (" HNSW is vacuumed faster if it is rebuilt first." if graphs else ""),
        (
            *(f"REINDEX INDEX CONCURRENTLY {name};" for name in graphs),
            f"VACUUM (ANALYZE) {table.name};",
        ),
    )


def _unused(found: Diagnosis) -> Iterator[Advice]:
    # A standby counts its own searches alone.
    if len(found.indexes) < 2 or found.table.standby:
        return
    kept = {one.name for one in found.sets if one.taken} | {name.relation for name in found.names}
    for index in found.indexes:
        if not index.scans and not {index.name, _bare(index.name)} & kept:
            yield Advice(
                "unused",
                f"No query used {index.name} ({megabytes(index.bytes)}) since the "
                "server's statistics began.",
                (f"DROP INDEX {found.table.concurrently}{index.name};  -- if you expected this",),
            )


def _toast(found: Diagnosis) -> Iterator[Advice]:
    table = found.table
    if not table.toasted:
        return
    touched = (
        "" if table.pages_a_row is None
        else f", and reads {table.pages_a_row:.2g} pages"
    )  # fmt: skip
    text = (
        f"Vectors of {table.vector_bytes} bytes are kept out of line (TOAST): each comparison of "
        f"an exact search, a filter or a re-rank takes two to four times as long{touched}."
    )
    column = f"ALTER TABLE {table.name} ALTER COLUMN {table.quoted_column}"
    if table.type == "vector" and 2 * table.dimension + 8 < _IN_ROWS:
        text += " In half precision they would stay in their rows."
        if found.names:
            yield Advice("toast", f"{text} Drop the indexes of pg_hashindex before that.")
            return
        # PostgreSQL would make them again for the type that they had.
        direct = [index for index in found.indexes if index.expression is None]
        yield Advice(
            "toast",
            text,
            (
                *(f"DROP INDEX {index.name};" for index in direct),
                f"{column} TYPE halfvec({table.dimension});  -- rewrites and locks the table",
                *(_as_halfvec(table, index) for index in direct),
            ),
        )
    elif table.vector_bytes <= _MOST_IN_ROWS and table.storage != "main":
        where = "its partitions' rows" if table.kind == "partitioned table" else "the rows"
        yield Advice(
            "toast",
            f"{text} With storage MAIN they stay in their rows, if a row fits in a page of 8 kB, "
            f"once {where} are written again. A scan that needs no vectors reads more then.",
            (
                f"{column} SET STORAGE MAIN;",
                f"VACUUM FULL {table.name};  -- locks the table, builds its indexes again",
            ),
        )
    else:
        yield Advice("toast", text)


def _as_halfvec(table: TableFacts, index: VectorIndex) -> str:
    """Return the statement for an index of a column that has become one of halfvecs."""
    operators = re.sub("^vector_", "halfvec_", index.operator_class)
    options = f" WITH ({', '.join(index.options)})" if index.options else ""
    condition = f" WHERE {index.condition}" if index.condition else ""
    return (
        f"CREATE INDEX {table.concurrently}ON {table.name} USING {index.method} "
        f"({table.quoted_column} {operators}){options}{condition};"
    )


def slower(milliseconds: float, exact_ms: float) -> str | None:
    """Say that searches are slower than the exact query, if they are."""
    if milliseconds <= SAME_TIME * exact_ms + SAME_MS:
        return None
    return (
        f"that takes {milliseconds:.3g} ms, and the exact query, without any index, "
        f"{exact_ms:.3g} ms: this table needs no index"
    )


def of_measured(point: Measured, exact_ms: float) -> Advice:
    """Say how an index of pg_hashindex does with its own settings."""
    name = point.index
    said = (
        f"index {name} finds {point.recall:.1%} of the {point.k} nearest rows in "
        f"{point.p50_ms:.3g} ms; comparing every row takes {exact_ms:.3g} ms"
    )
    if point.recall < RECALL:
        tune = f"pg-hashindex tune {shlex.quote(name)} --recall {RECALL:g}{_nearest(point.k)}"
        text = f"I{said[1:]}. To find more, tune it:"
        return Advice("recall", text, (tune,))
    if (why := slower(point.p50_ms, exact_ms)) is not None:
        said = f"Index {name} finds {point.recall:.1%} of the {point.k} nearest rows, but {why}."
        return Advice("exact", said)
    return Advice("keep", f"I{said[1:]}.", level="ok")


def of_training(stored: StoredModel) -> str | None:
    """Suggest options of training if few true neighbours of the rows held back were found."""
    recall = stored.training.get("recall")
    if not isinstance(recall, dict) or recall["value"] >= _GOOD_RECALL:
        return None
    method = HASHERS[stored.method]
    cuts = len(stored.cuts)
    projections = stored.n_bits // cuts
    if method.takes_cuts() and cuts < 5:
        step = f"--cuts {cuts + 2} --bits {projections * (cuts + 2)}"
    elif "n_bits" in method.parameter_names() and projections < stored.dimension:
        step = f"--bits {min(2 * projections, stored.dimension) * cuts}"
    else:
        step = "--method sign" if stored.method == METHOD else f"--method {METHOD}"
    return (
        f"recall@{recall['k']} is {recall['value']:.2f} within {recall['candidates']} candidates "
        f"of {recall['among']} rows, and less among more rows; try {step} next"
    )


class ModelFacts(NamedTuple):
    """The method of an index's model, and its usual access; None where they may not be read."""

    method: str | None = None
    access: str | None = None


def remedy(
    row: IndexRow,
    model: ModelFacts,
    points: Sequence[Measured],
    recall: float,
    max_ms: float | None,
    exact_ms: float,
) -> str:
    """Return advice for an index that no candidates and effort bring to the goal."""
    if row.access == "scan" and model.access == "lists":
        swap = f"pg-hashindex index swap {shlex.quote(row.name)} --access lists"
        return f"read some lists of codes instead of all: {swap}"
    if any(point.reaches(recall) for point in points):
        if max_ms is not None and exact_ms <= max_ms:
            return f"search exactly, by hashindex.exact_search: that takes {exact_ms:.3g} ms"
        return "allow more time, or a lower recall"
    if any(point.recall >= recall for point in points):
        tune = f"pg-hashindex tune {shlex.quote(row.name)} --recall {recall:g}"
        tune += _nearest(points[0].k)
        if max_ms is not None:
            tune += f" --max-ms {max_ms:g}"
        tune += " --queries 1000"
        return f"more queries may show that other ones find as much: {tune}"
    return _better_codes(row, model)


def _better_codes(row: IndexRow, model: ModelFacts) -> str:
    """Say which model would find more with the same settings."""
    if not row.model_id:
        return (
            "the set has the vectors themselves: ask for a lower recall, or compare pgvector's "
            "indexes by pg-hashindex doctor"
        )
    other = model.method not in (None, METHOD)
    # As `train` has them by default, whatever the method was.
    cuts = max(3, len(row.cuts))
    bits = cuts * min(2 * row.n_bits // len(row.cuts), row.dimension)
    if row.n_bits >= bits and not other:
        return "codes have as many bits as help: compare pgvector's indexes by pg-hashindex doctor"
    name, table = shlex.quote(row.model), shlex.quote(row.qualified_table)
    take, more = (f"method {METHOD}", f" --method {METHOD}") if other else ("more bits", "")
    return (
        f"take {take}: pg-hashindex model train {name} --table {table} --column "
        f"{shlex.quote(row.column_name)} --metric {row.metric}{more} --bits {bits} --cuts {cuts}; "
        f"then pg-hashindex index swap {shlex.quote(row.name)} --model {name}"
    )
