"""The tables of `memory.py`."""

from collections.abc import Iterator, Mapping
from typing import Any

from common import RESULTS, aligned, read
from retrieval_report import figure, pair

Whole = Mapping[str, Any]
DATA = (
    "packages", "synthetic-300k", "pypi768", "pypi768-halfvec", "synthetic-1m", "clustered-1536",
    "clustered-3072",
)  # fmt: skip
OURS = "ours"
#: Names for readers, in the order of tables.
NAMES = {
    "exact": "exact",
    "hnsw": "HNSW",
    "hnsw-halfvec": "HNSW, halfvec",
    "hnsw-signs": "HNSW, binary_quantize",
    "hnsw-centred-signs": "HNSW, centred binary_quantize",
    "hnsw-code": "HNSW, learned code",
    "ivfflat": "IVFFlat",
    OURS: "pg_hashindex",
}
PHASES = ("cold", "steady")
COLUMNS = (
    "system", "build s", "MB", "memory", "recall", "setting", "cold ms", "steady ms",
    "queries/s", "of 8 clients", "inserts/s", "by 100/s", "DELETE s", "VACUUM s",
)  # fmt: skip
COMPARED = ("theirs", "ours", "ratio", "note")
# The share of memory that is compared.
_SHARE = "4"


def measured() -> list[dict[str, Any]]:
    """Read the committed results, as far as there are any."""
    paths = (RESULTS / f"memory_{data}.json" for data in DATA)
    return [found for path in paths if (found := read(path))]


def systems(whole: Whole) -> dict[str, Any]:
    """Return what was measured of each system, in the order of tables."""
    return {name: whole["systems"][name] for name in NAMES if name in whole["systems"]}


def comparison(whole: Whole) -> list[list[str]]:
    """Return a line of text for each figure of pg_hashindex beside each kind of HNSW."""
    found = systems(whole)
    ours, compared = found.get(OURS, {}), []

    def add(what: str, theirs: float, mine: float, note: str = "") -> None:
        ratio = theirs / mine if what.endswith(" s") else mine / theirs
        compared.append([what, figure(theirs), figure(mine), f"{ratio:.2f}", note])

    for name, other in found.items() if ours else ():
        if not name.startswith("hnsw"):
            continue
        mine, theirs = (s["memory"].get(_SHARE, {}) for s in (ours, other))
        if "cold_p50_ms" in mine and "cold_p50_ms" in theirs:
            fits = other["build"]["bytes"] <= theirs["limit_bytes"]
            reached = other["search"]["reached"]
            note = ("fits" if fits else "does not fit") + (
                "" if reached else f", recall {other['search']['recall']:.2f} only"
            )
            for phase in PHASES:
                what = f"{NAMES[name]}: {phase} p50 at 1/{_SHARE}, ms"
                add(what, theirs[f"{phase}_p50_ms"], mine[f"{phase}_p50_ms"], note)
        add(f"{NAMES[name]}: build, s", other["build"]["seconds"], ours["build"]["seconds"])
        for kind, words in (("single", "single"), ("batches", "by 100")):
            what = f"{NAMES[name]}: rows a second, {words}"
            add(what, other["writes"][kind], ours["writes"][kind])
    return compared


def lines(whole: Whole) -> Iterator[str]:
    """Format a data set: its systems, where another one wins, and ours beside HNSW."""
    yield f"{title(whole)}, table {whole['table_bytes'] / 1e6:.0f} MB"
    yield from aligned([list(COLUMNS), *rows(whole)])
    yield from winners(whole)
    yield from aligned([["", *COMPARED], *comparison(whole)])


def title(whole: Whole) -> str:
    """Describe a data set in a few words."""
    kind = "" if whole["type"] == "vector" else f", {whole['type']}"
    return f"{whole['data']}: {whole['rows']:,} rows of {whole['dimension']} dimensions{kind}"


def rows(whole: Whole) -> Iterator[list[str]]:
    """Return a line of text for each system and share of memory, p50 / p95."""
    for name, system in systems(whole).items():
        build, writes, churn = system["build"], system["writes"], system.get("churn", {})
        beyond = "> " if churn.get("stopped") else ""
        first = [NAMES[name], f"{build['seconds']:.1f}", f"{build['bytes'] / 1e6:.0f}"]
        last = [f"{writes['single']:.0f}", f"{writes['batches']:.0f}", "", ""]
        if churn:
            last[2:] = f"{churn['delete_s']:.1f}", f"{beyond}{churn['vacuum_s']:.1f}"
        only = "" if system["search"]["reached"] else " only"
        for share, found in by_share(system):
            figures = ["", "failed", "", "", "", ""]
            if "error" not in found:
                figures = [
                    f"{found['recall']:.3f}{only}",
                    found["setting"],
                    pair(found, "cold_"),
                    pair(found, "steady_"),
                    figure(found["per_second"]),
                    figure(found["per_second_of_many"])
                    if "per_second_of_many" in found
                    else "out of memory",
                ]
            yield [*first, f"1/{share}: {found['limit_bytes'] / 1e6:.0f} MB", *figures, *last]
            first, last = [""] * len(first), [""] * len(last)


def by_share(system: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return what was measured at each share of memory, from the most memory to the least."""
    return sorted(system["memory"].items(), key=lambda item: int(item[0]))


def winners(whole: Whole) -> Iterator[str]:
    """Say where another system than ours has the least p50 at the recall, or ours falls short."""
    found = systems(whole)
    if OURS not in found:
        return
    if not found[OURS]["search"]["reached"]:
        yield f"pg_hashindex reaches a recall of {found[OURS]['search']['recall']:.3f} only"
    for share, ours in by_share(found[OURS]):
        for phase in PHASES:
            key = f"{phase}_p50_ms"
            times = {
                name: system["memory"][share][key]
                for name, system in found.items()
                if system["search"]["reached"] and key in system["memory"].get(share, {})
            }
            best = min(times, key=lambda name: times[name], default=OURS)
            if best != OURS and key in ours:
                yield (
                    f"At 1/{share} of memory, {phase}, {NAMES[best]} is fastest: "
                    f"{times[best]:.1f} ms, pg_hashindex {ours[key]:.1f}"
                )
