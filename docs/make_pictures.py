"""Draw docs/pictures: python docs/make_pictures.py [papers [FIGURE ...]].

Most are drawn from the packages of the demo. Everything but the diagram of the stages is computed:
projections, codes, centres and recalls. Those of memory and scale show what benchmarks/memory.py
and scale.py measured.
With the word "papers", only the figures of the papers are drawn, from benchmarks/results/papers.
"""

import io
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pg_hashindex.hashers import ITQ, LSH
from pg_hashindex.papers import Outcome
from pg_hashindex.papers.plots import draw
from pg_hashindex.server.data import load_packages

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import memory_report
import scale_report
from common import PAPERS, measured_figures
from make_svg import ACCENT, FAINT, INK, SHADES, Drawing

TARGET = Path(__file__).with_name("pictures")
#: The figures without methods whose pictures the pages show.
PICTURED = ("sgh_map_usps", "cghash_retrieved_mnist", "cghash_retrieved_usps")
SEED = 4
# Among the first seeds, this one has the three directions that differ most.
DIRECTIONS = 5

Floats = NDArray[np.floating]


def plane(X: Floats) -> Floats:
    """Return rows on their first two principal directions, scaled into a circle of radius 1."""
    centred = X - X.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    flat = centred @ directions.T
    return flat / np.quantile(np.linalg.norm(flat, axis=1), 0.995)


def codes(flat: Floats) -> str:
    """Draw three directions through rows of two dimensions, and the codes that they make."""
    rows = flat[np.linalg.norm(flat, axis=1) < 1][:420]
    hasher = LSH(n_bits=3, random_state=DIRECTIONS).fit(flat)
    drawing = Drawing(720, 430, "Rows in a plane, cut by three lines into cells with codes")
    query = np.array([[0.42, 0.34]])
    code = hasher.project(query)[0] > 0
    bits = hasher.project(rows) > 0
    middle, scale = (230, 215), 190

    def at(point: Floats) -> tuple[float, float]:
        return middle[0] + scale * point[0], middle[1] - scale * point[1]

    differing = np.sum(bits != code, axis=1)
    for n_bits, shade in enumerate(SHADES):
        drawing.dots(map(at, rows[differing == n_bits]), 4, shade)
    # A line is where a projection is 0; it is found by going round.
    angles = np.linspace(0, 2 * np.pi, 3601)
    ring = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    projected = hasher.project(ring)
    for bit in range(3):
        turns = np.flatnonzero(np.diff(np.sign(projected[:, bit])))
        drawing.line([at(1.04 * ring[turn]) for turn in turns], INK, 1.5, "5 4")
    cells = (projected > 0) @ np.array([4, 2, 1])
    for cell in np.unique(cells):
        place = ring[cells == cell].mean(axis=0)
        x, y = at(0.86 * place / np.linalg.norm(place))
        drawing.box(x - 21, y - 13, 42, 22, "#ffffff", FAINT)
        drawing.text(x, y + 3, f"{cell:03b}", mono=True, bold=cell == code @ [4, 2, 1])
    drawing.star(*at(query[0]))
    drawing.text(490, 70, "Each line is one bit: on", anchor="start")
    drawing.text(490, 90, "which side of it a row lies.", anchor="start")
    drawing.star(500, 130)
    drawing.text(516, 135, f"query, code {code @ [4, 2, 1]:03b}", anchor="start")
    words = ("same code", "1 bit differs", "2 bits differ", "3 bits differ")
    for i, shade in enumerate(SHADES):
        drawing.dots([(500, 165 + 26 * i)], 6, shade)
        drawing.text(516, 170 + 26 * i, words[i], anchor="start")
    drawing.text(490, 310, "Packages of the demo on two", anchor="start", size=13, fill=FAINT)
    drawing.text(490, 328, "of their 384 dimensions, 3 bits.", anchor="start", size=13, fill=FAINT)
    drawing.text(490, 346, "Models have 64 to 512.", anchor="start", size=13, fill=FAINT)
    return drawing.svg()


def stages() -> str:
    """Draw what a search reads, stage by stage."""
    drawing = Drawing(760, 300, "A search: the query's code, candidates by code, exact order")
    boxes = [
        (20, "query", ["384 numbers"], "vector"),
        (205, "code", ["model's layers,", "then cuts"], "1011…0"),
        (390, "candidates", ["codes of the nearest", "lists, by differing bits"], "60 of 300,000"),
        (575, "answers", ["60 vectors, by the", "exact distance"], "10 rows"),
    ]
    for x, title, lines, below in boxes:
        drawing.box(x, 60, 165, 110, "#eef3fd", FAINT)
        drawing.text(x + 82, 88, title, bold=True, size=16)
        for i, line in enumerate(lines):
            drawing.text(x + 82, 115 + 20 * i, line, size=13)
        drawing.text(x + 82, 195, below, mono=True, fill=ACCENT)
        if x > 20:
            drawing.arrow(x - 18, 115, x - 2, 115)
    drawing.text(287, 40, "hashindex.model", mono=True, size=12, fill=FAINT)
    drawing.text(472, 40, "codes of the index", size=12, fill=FAINT)
    drawing.text(657, 40, "your table", size=12, fill=FAINT)
    drawing.text(380, 235, "The narrow codes decide which rows are looked at,", size=14)
    drawing.text(380, 256, "the vectors themselves in which order they come back.", size=14)
    return drawing.svg()


def recalls(X: Floats, queries: Floats, n_bits: int, *, asymmetric: bool) -> Floats:
    """Return recall@10 for every number of candidates: the places of the true ten by code."""
    hasher = ITQ(n_bits=n_bits, random_state=SEED).fit(X)
    rows, asked = hasher.project(X) > 0, hasher.project(queries)
    weights = np.abs(asked) if asymmetric else np.ones_like(asked)
    signs = np.where(asked > 0, weights, -weights)
    # The distance by code is a constant of the query less this product.
    by_code = np.argsort(-(signs @ rows.T.astype(float)), axis=1, kind="stable")
    truth = np.argsort(-(queries @ X.T), axis=1, kind="stable")[:, :10]
    places = np.argsort(by_code, axis=1)
    of_truth = np.take_along_axis(places, truth, axis=1)
    return np.array([np.mean(of_truth < kept) for kept in range(1, 401)])


def candidates(X: Floats) -> str:
    """Draw recall against the number of candidates."""
    drawing = Drawing(720, 400, "Recall against candidates, for 64, 128 and 256 bits")
    left, right, top, bottom = 70, 470, 40, 340
    base, queries = X[400:], X[:400]
    curves = [
        ("256 bits, asymmetric", 256, True, SHADES[0], "none"),
        ("256 bits, Hamming", 256, False, SHADES[0], "6 4"),
        ("128 bits, asymmetric", 128, True, "#0f766e", "none"),
        ("128 bits, Hamming", 128, False, "#0f766e", "6 4"),
        ("64 bits, asymmetric", 64, True, ACCENT, "none"),
        ("64 bits, Hamming", 64, False, ACCENT, "6 4"),
    ]

    def at(kept: float, recall: float) -> tuple[float, float]:
        return left + (right - left) * kept / 400, bottom - (bottom - top) * (recall - 0.5) * 2

    for recall in (0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
        drawing.line([at(0, recall), at(400, recall)], "#dde3ea", 1)
        drawing.text(left - 10, at(0, recall)[1] + 5, f"{recall:.1f}", anchor="end", size=13)
    for kept in (0, 100, 200, 300, 400):
        drawing.text(at(kept, 0.5)[0], bottom + 20, str(kept), size=13)
    drawing.text((left + right) / 2, bottom + 45, "candidates")
    drawing.text(left, 25, "recall@10", anchor="middle")
    for i, (words, n_bits, asymmetric, colour, dash) in enumerate(curves):
        curve = recalls(base, queries, n_bits, asymmetric=asymmetric)
        shown = [(kept, curve[kept - 1]) for kept in range(10, 401, 5) if curve[kept - 1] >= 0.5]
        drawing.line([at(*point) for point in shown], colour, 2, dash)
        y = 70 + 36 * i
        drawing.line([(495, y), (530, y)], colour, 2, dash)
        drawing.text(538, y + 5, words, anchor="start", size=13)
        drawing.text(538, y + 21, f"at 200: {curve[199]:.3f}", anchor="start", size=12, fill=FAINT)
    drawing.text(495, 310, "ITQ, 4,600 packages,", anchor="start", size=13, fill=FAINT)
    drawing.text(495, 328, "400 others as queries", anchor="start", size=13, fill=FAINT)
    return drawing.svg()


def access(flat: Floats) -> str:
    """Draw which codes are read: by a scan all, with landmarks those listed by near ones."""
    rows = flat[np.linalg.norm(flat, axis=1) < 1][:420]
    rng = np.random.default_rng(SEED)
    centres = rows[rng.choice(len(rows), 15, replace=False)]
    for _ in range(20):
        nearest = np.argmin(((rows[:, None] - centres) ** 2).sum(axis=2), axis=1)
        centres = np.stack([rows[nearest == i].mean(axis=0) for i in range(15)])
    query = np.array([0.42, 0.34])
    probed = np.argsort(((centres - query) ** 2).sum(axis=1))[:3]
    read = np.isin(nearest, probed)
    drawing = Drawing(760, 420, "A scan reads every code, landmarks those near the query")
    panels = ((200, "scan", np.ones(len(rows), bool)), (560, "landmarks", read))
    for middle, title, chosen in panels:
        places = np.array([middle, 215]) + rows * [165, -165]
        drawing.dots(places[~chosen], 3.5, SHADES[3])
        drawing.dots(places[chosen], 3.5, SHADES[0])
        if title == "landmarks":
            for i, (x, y) in enumerate(np.array([middle, 215]) + centres * [165, -165]):
                fill = "#0f766e" if i in probed else "#ffffff"
                drawing.add(
                    f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10" '
                    f'fill="{fill}" stroke="#0f766e" stroke-width="2"/>'
                )
        drawing.star(middle + 165 * query[0], 215 - 165 * query[1])
        share = f"{np.sum(chosen)} of {len(rows)} codes read"
        drawing.text(middle, 30, title, bold=True, size=16)
        drawing.text(middle, 405, share, size=13, fill=FAINT)
    return drawing.svg()


# Colour, width and dashes of each system's line.
LINES = {
    "exact": (FAINT, 2, "none"),
    "hnsw": (SHADES[0], 2, "none"),
    "hnsw-halfvec": (SHADES[0], 2, "6 4"),
    "hnsw-signs": ("#0f766e", 2, "none"),
    "hnsw-code": ("#b45309", 2, "none"),
    "hnsw-centred-signs": ("#0f766e", 2, "6 4"),
    "ivfflat": ("#7c3aed", 2, "none"),
    "ours": (ACCENT, 3.5, "none"),
}


def memory(whole: Mapping[str, Any]) -> str:
    """Draw p50 against the server's memory, after a cold start and later."""
    drawing = Drawing(940, 440, f"p50 against memory, {memory_report.title(whole)}")
    systems = {
        name: {
            share: found for share, found in memory_report.by_share(system) if "error" not in found
        }
        for name, system in memory_report.systems(whole).items()
    }
    limits = {
        share: found["limit_bytes"] for curve in systems.values() for share, found in curve.items()
    }
    shares = sorted(limits, key=int)
    keys = ("cold_p50_ms", "steady_p50_ms")
    values = np.log10(
        [f[key] for curve in systems.values() for f in curve.values() for key in keys]
    )
    low, high = values.min() - 0.1, values.max() + 0.1
    top, bottom, width = 70, 360, 270

    def height(milliseconds: float) -> float:
        return bottom - (bottom - top) * float((np.log10(milliseconds) - low) / (high - low))

    ticks = [step * 10.0**power for power in range(-1, 5) for step in (1, 2, 5)]
    for left, title, key in ((60, "cold start", keys[0]), (390, "later", keys[1])):
        places = {
            share: left + 15 + (width - 30) * place / max(1, len(shares) - 1)
            for place, share in enumerate(shares)
        }
        for tick in ticks:
            if low <= np.log10(tick) <= high:
                drawing.line([(left, height(tick)), (left + width, height(tick))], "#dde3ea", 1)
                drawing.text(left - 8, height(tick) + 5, f"{tick:g}", anchor="end", size=13)
        for share, x in places.items():
            drawing.text(x, bottom + 20, f"1/{share}", size=13)
            megabytes = f"{limits[share] / 1e6:,.0f} MB"
            drawing.text(x, bottom + 38, megabytes, size=12, fill=FAINT)
        drawing.text(left + width / 2, 55, title, bold=True)
        for name, curve in systems.items():
            points = [(places[share], height(found[key])) for share, found in curve.items()]
            drawing.line(points, *LINES[name])
            for point in points:
                drawing.circle(*point, 3.5, LINES[name][0])
    rows = f"{whole['rows']:,} x {whole['dimension']}"
    heading = f"{rows}: p50, ms, at recall@10 {whole['target']:g}"
    drawing.text(60, 28, heading, anchor="start", bold=True)
    drawing.text(360, bottom + 65, "memory of the server, as a share of table + HNSW")
    ends = {
        name: height([*curve.values()][-1][keys[1]]) for name, curve in systems.items() if curve
    }
    y = top - 12.0
    # Names stand beside the ends of their lines, from the slowest down, and never overlap.
    for number, name in enumerate(sorted(ends, key=ends.__getitem__)):
        room = bottom - 20.0 * (len(ends) - 1 - number)
        y = min(max(y + 20, ends[name]), room)
        recall = whole["systems"][name]["search"]
        short = "" if recall["reached"] else f" ({recall['recall']:.2f})"
        drawing.line([(660, ends[name]), (685, y)], LINES[name][0], 1, LINES[name][2])
        drawing.text(
            690, y + 5, memory_report.NAMES[name] + short, anchor="start", size=13,
            fill=LINES[name][0], bold=name == "ours",
        )  # fmt: skip
    return drawing.svg()


def scale(whole: Mapping[str, Any]) -> str:
    """Draw CPU time of builds and searches against the number of rows, ours and HNSW."""
    found = scale_report.parts_by_rows(whole)
    drawing = Drawing(890, 400, "CPU time of builds and searches against the number of rows")
    builds: dict[str, list[tuple[float, float]]] = {"ours": [], "hnsw": []}
    searches: dict[str, list[tuple[float, float]]] = {"ours": [], "hnsw": []}
    stopped: list[tuple[float, float, str]] = []
    expected: list[tuple[float, float]] = []
    for rows, parts in found.items():
        if "bytes" in parts.get("build", {}):
            builds["ours"].append((rows, scale_report.build_cpu(parts, rows)))
        hnsw = parts.get("hnsw", {}).get("build", {})
        if hnsw:
            expected.append((rows, scale_report.hnsw_build_cpu(parts, rows)))
        if hnsw.get("finished"):
            builds["hnsw"].append(expected[-1])
        elif hnsw:
            stopped.append((*expected[-1], f"{100 * hnsw['share']:.0f} % done"))
        for system, points in searches.items():
            if "0.95" in scale_report.of_system(parts, system):
                points.append((rows, scale_report.search_cpu(parts, system)))
    dashed = {"hnsw": expected}
    _panel(drawing, 60, "build, CPU seconds", builds, dashed, stopped)
    _panel(drawing, 470, "search at recall@10 .95, CPU ms", searches, {}, [])
    for y, name in ((60, "hnsw"), (82, "ours")):
        drawing.line([(745, y), (770, y)], *LINES[name])
        words, bold = memory_report.NAMES[name], name == "ours"
        if len(builds[name]) == 1:
            words += f" ({builds[name][0][0] / 1e6:g} million)"
        drawing.text(776, y + 5, words, anchor="start", size=13, fill=LINES[name][0], bold=bold)
    if expected != builds["hnsw"]:
        drawing.line([(745, 104), (770, 104)], LINES["hnsw"][0], 2, "6 4")
        drawing.text(776, 109, "estimated", anchor="start", size=13, fill=LINES["hnsw"][0])
    return drawing.svg()


def _panel(
    drawing: Drawing,
    left: float,
    title: str,
    curves: Mapping[str, list[tuple[float, float]]],
    dashed: Mapping[str, list[tuple[float, float]]],
    stopped: list[tuple[float, float, str]],
) -> None:
    """Draw curves on logarithmic axes; ``stopped`` are points with words."""
    drawn = [*curves.values(), *dashed.values(), [point[:2] for point in stopped]]
    points = [point for curve in drawn for point in curve]
    low, high = np.log10(points).min(axis=0) - 0.1, np.log10(points).max(axis=0) + 0.1
    top, bottom, width = 60, 330, 270

    def at(rows: float, value: float) -> tuple[float, float]:
        x, y = (np.log10([rows, value]) - low) / (high - low)
        return left + width * float(x), bottom - (bottom - top) * float(y)

    for tick in [step * 10.0**power for power in range(-1, 7) for step in (1, 2, 3, 5)]:
        if low[1] <= np.log10(tick) <= high[1]:
            y = at(1, tick)[1]
            drawing.line([(left, y), (left + width, y)], "#dde3ea", 1)
            drawing.text(left - 8, y + 5, f"{tick:,g}", anchor="end", size=13)
    for rows in sorted({rows for curve in curves.values() for rows, _ in curve}):
        drawing.text(at(rows, 1)[0], bottom + 20, f"{rows / 1e6:g} million", size=13)
    drawing.text(left + width / 2, bottom + 45, "rows")
    drawing.text(left, 35, title, anchor="start", bold=True)
    for name, curve in dashed.items():
        drawing.line([at(*point) for point in curve], LINES[name][0], 2, "6 4")
    for name, curve in curves.items():
        drawing.line([at(*point) for point in curve], *LINES[name])
        for point in curve:
            drawing.circle(*at(*point), 3.5, LINES[name][0])
    for rows, value, words in stopped:
        x, y = at(rows, value)
        drawing.circle(x, y, 4, "#ffffff", LINES["hnsw"][0], 1.5)
        drawing.text(x - 8, y - 6, words, anchor="end", size=12, fill=LINES["hnsw"][0])


def papers(*named: str) -> None:
    """Draw the figures of the papers, or some, as ``bench hash --plot`` does, in 48 colours."""
    from PIL import Image

    figures = measured_figures()
    for name in named or (*figures, *PICTURED):
        whole: io.BytesIO | Path = PAPERS / f"{name}.png"
        if name in figures:
            outcomes = [Outcome.from_dict(outcome) for outcome in figures[name]["outcomes"]]
            draw(outcomes).savefig(whole := io.BytesIO(), dpi=70, format="png")
        elif not whole.exists():
            # Only `bench paper` draws it, and the repository does not keep that.
            continue
        small = Image.open(whole).convert("RGB").quantize(48)
        small.save(TARGET / f"paper-{name}.png", "PNG", optimize=True)


if __name__ == "__main__" and sys.argv[1:2] == ["papers"]:
    papers(*sys.argv[2:])
elif __name__ == "__main__":
    for measured in memory_report.measured():
        (TARGET / f"memory-{measured['data']}.svg").write_text(memory(measured))
    if whole := scale_report.measured():
        (TARGET / "scale.svg").write_text(scale(whole))
    X = load_packages().embedding
    flat = plane(X)
    for name, svg in {
        "codes": codes(flat),
        "stages": stages(),
        "candidates": candidates(X),
        "access": access(flat),
    }.items():
        (TARGET / f"{name}.svg").write_text(svg)
    papers()
