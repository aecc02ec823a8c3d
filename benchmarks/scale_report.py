"""The tables of `scale.py`, and what they say of more rows than were measured."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from common import RESULTS, aligned, read
from retrieval_report import pair

Whole = Mapping[str, Any]
Parts = Mapping[str, Any]
#: Rows that a table extrapolates to.
SIZES = (10**7, 3 * 10**7, 10**8)
#: The recall of the picture and of what is extrapolated.
TARGET = "0.95"
#: Mark of a figure that was not measured.
EXTRAPOLATED = "~"


def measured() -> dict[str, Any]:
    """Read the committed results; return nothing if there are none."""
    return read(RESULTS / "scale.json")


def parts_by_rows(whole: Whole) -> dict[int, Parts]:
    """Return what was measured, by the number of rows from the least to the most."""
    sizes = whole.get("sizes", {})
    return {rows: sizes[str(rows)]["parts"] for rows in sorted(map(int, sizes))}


def lines(whole: Whole) -> Iterator[str]:
    """Format the results: a line for each figure, a column for each number of rows."""
    found = parts_by_rows(whole)
    if found:
        yield from aligned([["", *(f"{rows:,}" for rows in found)], *table(whole)])


def table(whole: Whole) -> list[list[str]]:
    """Return a line of text for each figure that was measured, with a column for each size."""
    found = parts_by_rows(whole)
    written = [
        [what, *(_written(write, rows, parts) for rows, parts in found.items())]
        for what, write in FIGURES.items()
    ]
    return [line for line in written if any(line[1:])]


def extrapolated(whole: Whole) -> list[list[str]]:
    """Return a line for each figure that grows with the rows, with a column for each of `SIZES`.

    Bytes grow with the rows, and so does the client's memory beside what every client takes. CPU
    seconds and p50 grow with a power of the rows, which the measured sizes tell.
    """
    found = parts_by_rows(whole)
    written = [
        [what, *(_at(found, rows, figure, law, digits) for rows in SIZES)]
        for what, figure, law, digits in LAWS
    ]
    return [line for line in written if any(line[1:])]


def hnsw_build_cpu(parts: Parts, rows: int) -> float:
    """Return the CPU seconds of HNSW's build, extrapolated where it was stopped.

    Its last seconds tell how the seconds for a row grow: with a power of the rows that it has.
    """
    build = parts["hnsw"]["build"]
    cpu = float(build["server_cpu_s"])
    if build["finished"]:
        return cpu
    curve = np.array([[share * rows, cpu_s] for _, share, cpu_s in build["progress"] if share > 0])
    return float(_power(curve[len(curve) // 2 :].T, rows))


def _written(write: Callable[[Parts, int], str], rows: int, parts: Parts) -> str:
    """Return a figure as text, and nothing where it was not measured."""
    try:
        return write(parts, rows)
    except KeyError:
        return ""


def _at(
    found: Mapping[int, Parts],
    rows: int,
    figure: Callable[[Parts, int], float],
    law: Callable[[Any, int], float],
    digits: int,
) -> str:
    points = []
    for n, parts in found.items():
        try:
            points.append((n, figure(parts, n)))
        except KeyError:
            continue
    known = dict(points)
    if rows in known:
        return f"{known[rows]:,.{digits}f}"
    if len(points) < 2:
        return ""
    return f"{EXTRAPOLATED}{law(np.array(points, float).T, rows):,.{digits}f}"


def _power(points: Any, rows: int) -> float:
    """Return the value at ``rows`` of the power of the rows that is nearest to points."""
    slope, start = np.polyfit(*np.log(points), 1)
    return float(np.exp(start) * rows**slope)


def _straight(points: Any, rows: int) -> float:
    """Return the value at ``rows`` of the straight line that is nearest to points."""
    return float(np.polyval(np.polyfit(*points, 1), rows))


def _searched(system: str, target: str) -> Callable[[Parts, int], str]:
    def write(parts: Parts, rows: int) -> str:
        point = of_system(parts, system)[target]
        short = "" if point["reached"] else f" (recall {point['recall']:.3f})"
        return f"{pair(point)} / {point['cpu_ms']:.1f}{short}"

    return write


def of_system(parts: Parts, system: str) -> Mapping[str, Any]:
    """Return the searches of a system: those in turns with HNSW, if there are any."""
    beside = parts.get("hnsw", {}).get("search", parts.get("search", {}))
    return dict(beside.get("systems", {}).get(system, {}))


def _held(system: str, limit: int, target: str) -> Callable[[Parts, int], str]:
    def write(parts: Parts, rows: int) -> str:
        part = parts["held" if system == "ours" else "hnsw"]
        point = part["memory"][str(limit)][target]
        if "error" in point:
            return "out of memory"
        return f"{point['cold_p50_ms']:.1f}, {point['steady_p50_ms']:.1f}"

    return write


def _command(part: str) -> Callable[[Parts, int], str]:
    def write(parts: Parts, rows: int) -> str:
        found = parts[part]
        if found.get("exit_code", 0) > 1:
            return "refused"
        return f"{found['seconds']:.0f} / {found['client_cpu_s'] + found['server_cpu_s']:.0f}"

    return write


def _hnsw_build(parts: Parts, rows: int) -> str:
    build = parts["hnsw"]["build"]
    done = "" if build["finished"] else f", {100 * build['share']:.1f} % done"
    return f"{build['seconds']:.0f} / {build['server_cpu_s']:.0f}{done}"


def _rates(writes: Mapping[str, float], what: str) -> str:
    return f"{writes[f'single{what}']:,.0f} / {writes[f'batches{what}']:,.0f}"


#: Figures of the report, and their formats.
FIGURES: dict[str, Callable[[Parts, int], str]] = {
    "build: s / CPU s": _command("build"),
    "build: peak memory of the client, MB": lambda p, n: f"{p['build']['client_peak_mb']:,}",
    "build: of the server, beside shared_buffers, MB": lambda p, n: (
        f"{p['build']['server_peak_mb']:,}"
    ),
    "bytes a row": lambda p, n: f"{p['build']['bytes'] / n:.0f}",
    "recall .95: p50 / p95 / CPU, ms": _searched("ours", "0.95"),
    "recall .98": _searched("ours", "0.98"),
    "server in 2 GB, .95: p50 cold, later, ms": _held("ours", 2 << 30, "0.95"),
    "server in 1 GB, .95": _held("ours", 1 << 30, "0.95"),
    "rows inserted a second, single / by 1,000": lambda p, n: _rates(p["writes"], ""),
    "swap: s / CPU s": _command("swap"),
    "HNSW build: s / CPU s": _hnsw_build,
    "HNSW build: server's peak memory, MB": lambda p, n: (
        f"{p['hnsw']['build']['server_peak_mb']:,}"
    ),
    "HNSW bytes a row": lambda p, n: f"{p['hnsw']['build']['bytes'] / n:,.0f}",
    "HNSW, recall .95: p50 / p95 / CPU, ms": _searched("hnsw", "0.95"),
    "HNSW, server in 2 GB, .95: p50 cold, later, ms": _held("hnsw", 2 << 30, "0.95"),
    "HNSW, rows inserted a second, single / by 1,000": lambda p, n: _rates(p["hnsw"]["writes"], ""),
}


def build_cpu(parts: Parts, rows: int) -> float:
    """Return the CPU seconds of our build, client and server."""
    return float(parts["build"]["client_cpu_s"] + parts["build"]["server_cpu_s"])


def search_cpu(parts: Parts, system: str) -> float:
    """Return the milliseconds of CPU of a search at `TARGET`."""
    return float(of_system(parts, system)[TARGET]["cpu_ms"])


#: Extrapolated figures: value, law of growth, and digits.
LAWS: Sequence[
    tuple[str, Callable[[Parts, int], float], Callable[[Any, int], float], int]
] = (
    ("table, GB", lambda p, n: p["load"]["table_bytes"] / 1e9, _straight, 1),
    ("index, GB", lambda p, n: p["build"]["bytes"] / 1e9, _straight, 1),
    ("build, CPU hours", lambda p, n: build_cpu(p, n) / 3600, _power, 2),
    ("client's memory, GB", lambda p, n: p["build"]["client_peak_mb"] / 1e3, _straight, 1),
    ("search at .95, CPU ms", lambda p, n: search_cpu(p, "ours"), _power, 1),
    ("HNSW's build, CPU hours", lambda p, n: hnsw_build_cpu(p, n) / 3600, _power, 1),
)  # fmt: skip
