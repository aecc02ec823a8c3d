"""The page of ``doctor --html``: a table of vectors and its indexes, those of pg_hashindex too.

It is one file of HTML that loads nothing from the network and runs nothing. `look` reads and
measures the indexes of pg_hashindex, `page` fills ``page.html``. It needs the extra ``html``.
"""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from unicodedata import category

# It parses only what matplotlib has just written.
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..db.connection import Connection
from ..db.server_errors import translated_errors
from ..errors import ConnectionFailedError, HashIndexError, InvalidInputError, MissingSchemaError
from ..index.catalog import IndexRow
from ..index.verifying import as_bits
from ..models.whole_files import write_whole
from ..quality import plots
from ..quality.advice import of_measured
from ..quality.doctor_catalog import names_of
from ..quality.doctor_findings import Advice, Diagnosis
from ..quality.evaluate import CANDIDATES, Evaluation, evaluate
from ..quality.plots.figures import check_file, drawing
from ..quality.queries import first_of
from ..quality.recall_history import HEADINGS, HistoryPoint, history
from ..quality.sizes import megabytes
from ..quality.tenant_recall import Tenant, measure_by_size
from .health import CodeChecks, Health, check

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["Looked", "Missing", "check_page", "look", "page", "save_page"]

T = TypeVar("T")

_INSTALL = "pip install '.[html]' in the checkout"

# The most codes to draw; reading eight million bits takes about a second.
_MOST_CODES = 10_000
_MOST_BITS = 8_000_000

# Colours that cannot be seen on a dark page, and the page's colours that replace them.
_COLOURS = {"#000000": "currentColor", "#0072b2": "var(--blue)"}
_FONT = re.compile(r"font-family:[^;]*;?\s*")
_REFERENCE = re.compile(r"(?<=url\(#)|(?<=^#)")
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
# Control characters, halves of surrogate pairs, and code points without a character.
_NOT_IN_HTML = ("Cc", "Cs", "Cn")
# They change the order of letters: a name could pass for another one.
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Missing:
    """A part that could not be read, and why."""

    reason: str


@dataclass(frozen=True)
class _Chart:
    """A figure, a sentence about it, and its numbers as a table; ``key`` is its id in the page."""

    key: str
    title: str
    description: str
    figure: Any
    headings: Sequence[str]
    rows: Sequence[Sequence[Any]]

    def svg(self) -> Markup:
        """Return the figure as an element of HTML, which loads nothing and has no background.

        Text stays text, in the page's font and colours. Ids begin with the chart's key.
        """
        import matplotlib
        from markupsafe import Markup

        out = io.StringIO()
        # A fixed salt gives the same figure the same ids.
        with drawing(), matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": self.key}):
            self.figure.savefig(out, format="svg", transparent=True, metadata=_NO_METADATA)
        written = out.getvalue()
        root = ElementTree.fromstring(written)  # noqa: S314
        for parent in list(root.iter()):
            # HTML takes SVG without namespaces; a style element would apply to the whole page.
            parent.tag = parent.tag.rpartition("}")[2]
            parent.attrib = {
                name.rpartition("}")[2]: self._attribute(name, value)
                for name, value in parent.attrib.items()
                if name != "id" or f"#{value}" in written
            }
            for child in parent.findall("{*}style"):
                parent.remove(child)
        box = root.attrib["viewBox"]
        width, height = (round(float(word) * 96 / 72) for word in box.split()[2:])
        root.attrib = {
            "viewBox": box,
            "width": str(width),
            "height": str(height),
            "role": "img",
            "aria-labelledby": f"{self.key}-title {self.key}-description",
        }
        return Markup(ElementTree.tostring(root, encoding="unicode"))  # noqa: S704

    def _attribute(self, name: str, value: str) -> str:
        if name == "id":
            return f"{self.key}-{value}"
        if name == "style":
            value = _FONT.sub("", value)
            for colour, own in _COLOURS.items():
                value = value.replace(colour, own)
        return _REFERENCE.sub(f"{self.key}-", value)


@dataclass(frozen=True, eq=False)
class Looked:
    """Findings about an index of pg_hashindex.

    ``candidates`` are its own, ``bits`` those of drawn codes. ``tenants`` are the largest, the one
    in the middle and the smallest, by their codes.
    """

    index: IndexRow
    candidates: int
    health: Health | Missing
    measured: Evaluation | Missing
    bits: NDArray[np.bool_] | Missing | None
    tenants: list[Tenant] | Missing
    history: list[HistoryPoint] | Missing

    @property
    def verdict(self) -> Advice:
        """How the index does, in plain words: the worst finding, or else its recall and time."""
        name, measured = self.index.name, self.measured
        if isinstance(self.health, Missing):
            said = f"Index {name} could not be checked: {self.health.reason}"
            return Advice("unknown", said, level="broken")
        if (worst := self.health.worst) is not None:
            return worst
        if isinstance(measured, Missing):
            said = f"Nothing was found wrong with index {name}, and its recall is not known"
            return Advice("unknown", f"{said}: {measured.reason}")
        (own,) = (point for point in measured.points if point.candidates == self.candidates)
        return of_measured(own, measured.exact_p50_ms)


def look(
    connection: Connection,
    found: Diagnosis,
    queries: str | ArrayLike | None = None,
    random_state: int = 0,
) -> list[Looked] | Missing:
    """Read and measure the indexes of pg_hashindex on the column that the doctor looked at.

    Nothing is written. Each is searched for as many rows as the doctor had time for, or for the
    queries that were given to it. None without the schema hashindex.
    """
    scope = found.exact

    def evaluated(row: IndexRow, own: int) -> Evaluation | Missing:
        if scope is None:
            return Missing("there was no time to measure it: give a longer --timeout")
        asked = first_of(row, queries, scope.queries, random_state)
        return evaluate(
            row, queries=asked, k=found.k, candidates=(*CANDIDATES, own), random_state=random_state
        )

    def looked_at(row: IndexRow) -> Looked:
        own = row.candidates_for(found.k)
        return Looked(
            row,
            own,
            _found(lambda: check(row)),
            _found(lambda: evaluated(row, own)),
            _found(lambda: _bits(row, random_state)),
            _found(lambda: measure_by_size(row)),
            _found(lambda: history(row)),
        )

    try:
        rows = names_of(connection, found.table.name, found.table.column)
        return [looked_at(row) for row in rows]
    except MissingSchemaError:
        return []
    except ConnectionFailedError:
        raise
    except HashIndexError as error:
        return Missing(str(error))


def _found(find: Callable[[], T]) -> T | Missing:
    try:
        return find()
    except ConnectionFailedError:
        raise  # nothing else can be read either
    except HashIndexError as error:
        return Missing(str(error))


def _bits(index: IndexRow, random_state: int) -> NDArray[np.bool_] | None:
    if not index.is_lists or index.state == "building":
        return None
    most = min(_MOST_CODES, max(200, _MOST_BITS // index.n_bits))
    with translated_errors():
        drawn = CodeChecks(index, full=False).drawn(most, random_state)
    return as_bits(drawn) if drawn else None


def _jinja2() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise InvalidInputError(f"the page needs the extra html: {_INSTALL}") from error
    return jinja2


def page(found: Diagnosis, looked: Sequence[Looked] | Missing = ()) -> str:
    """Return the page of what the doctor found about a table, and `look` about its indexes.

    Returns
    -------
    str
        HTML; every value in it is escaped.

    Raises
    ------
    InvalidInputError
        If jinja2 or matplotlib is missing.
    """
    jinja2 = _jinja2()

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"megabytes": megabytes, "quoted": shlex.quote}
    environment.tests["missing"] = lambda value: isinstance(value, Missing)
    ours = [] if isinstance(looked, Missing) else looked
    verdicts = [one.verdict for one in ours]
    # The decision is the headline, unless a check has found something worse.
    checked = [one for one in verdicts if one.kind in ("check", "unknown")]
    points = [*_points(found), *(point for one in ours for point in _points_of(one))]
    exact = found.exact
    text: str = environment.get_template("page.html").render(
        found=found,
        made_at=datetime.now(UTC),
        verdict=max(
            (*checked, _of_table(found)),
            key=lambda one: ("ok", "warning", "broken").index(one.level),
        ),
        verdicts=verdicts,
        now=[point for point in points if point.current],
        exact=exact,
        filtered=list(_filtered(found)),
        search=[] if exact is None or not points else [_recall(found, points, exact.p50_ms)],
        memory=[_sizes(found)],
        looked=looked,
        charts={one.index.name: list(_charts(one, n)) for n, one in enumerate(ours, 1)},
    )
    return text


def _of_table(found: Diagnosis) -> Advice:
    """Return the doctor's decision; its commands come later in the page."""
    if not found.complete:
        said = "There was no time to measure all: give a longer --timeout."
        return Advice("unknown", said)
    if found.decision is None:
        return Advice("unknown", "Nothing was measured.")
    return replace(found.decision, commands=())


def _points(found: Diagnosis) -> Iterator[plots.SearchPoint]:
    for point in found.points:
        if point.filter is None:
            yield plots.SearchPoint(
                point.index, point.setting_of(found.index_of(point)), point.recall, point.p50_ms,
                point.p95_ms, point.current,
            )  # fmt: skip


def _points_of(looked: Looked) -> Iterator[plots.SearchPoint]:
    if isinstance(looked.measured, Missing):
        return
    for point in looked.measured.points:
        own = point.candidates == looked.candidates
        setting = f"{point.candidates} candidates" + (" (now)" if own else "")
        yield plots.SearchPoint(
            looked.index.name, setting, point.recall, point.p50_ms, point.p95_ms, own
        )


def _filtered(found: Diagnosis) -> Iterator[tuple[Any, ...]]:
    for scope in found.scopes:
        if scope.filter is None:
            continue
        yield (scope.filter, scope.rows, "exact", "", 1.0, "all", scope.p50_ms)
        for point in found.points:
            if point.filter == scope.filter:
                yield (
                    scope.filter, scope.rows, point.index, point.setting_of(found.index_of(point)),
                    point.recall, f"{point.returned:.3g} of {point.wanted:.3g}", point.p50_ms,
                )  # fmt: skip


def _recall(found: Diagnosis, points: Sequence[plots.SearchPoint], exact_ms: float) -> _Chart:
    best = max(points, key=lambda point: (point.recall, -point.p50_ms))
    return _Chart(
        "indexes",
        "Recall against time",
        f"A line for each index, a point for each setting; rings are current settings, the "
        f"grey line is exact search, {exact_ms:.3g} ms. The most is found by {best.name}: "
        f"{best.recall:.3f} in {best.p50_ms:.3g} ms.",
        plots.draw_indexes(
            points, exact_ms, found.k, f"{found.table.name}, {found.table.rows} rows"
        ),
        ["index", "setting", f"recall@{found.k}", "p50 ms", "p95 ms"],
        [point[:-1] for point in points],
    )


def _sizes(found: Diagnosis) -> _Chart:
    memory, sizes = found.memory, found.sizes
    beyond = [name for name, size in sizes.items() if size > memory.effective_cache_size]
    said = "Each fits by itself into what the server takes for its cache."
    if beyond:
        said = (
            f"Larger than the cache, and so searched at the speed of the disk: {', '.join(beyond)}."
        )
    return _Chart(
        "sizes",
        "What must be in memory",
        f"Rows and indexes beside shared_buffers and effective_cache_size. {said}",
        plots.draw_sizes(found),
        ["what", "MB"],
        [
            *([name, size / 1e6] for name, size in sizes.items()),
            ["shared_buffers", memory.shared_buffers / 1e6],
            ["effective_cache_size", memory.effective_cache_size / 1e6],
        ],
    )


def _charts(looked: Looked, number: int) -> Iterator[_Chart]:
    if looked.bits is not None and not isinstance(looked.bits, Missing):
        yield _ones(looked.bits, number)
    if looked.history and not isinstance(looked.history, Missing):
        yield _history(looked.history, number)


def _ones(bits: NDArray[np.bool_], number: int) -> _Chart:
    ones = bits.mean(axis=0)
    worst = int(np.abs(ones - 0.5).argmax())
    return _Chart(
        f"ones-{number}",
        "Share of ones",
        f"Part of {len(bits)} codes in which a bit is one; a half tells the most. Bit {worst} is "
        f"the farthest from it, with {ones[worst]:.3f}.",
        plots.draw_ones(ones),
        ["bit", "share of ones"],
        list(enumerate(ones.tolist())),
    )


def _history(points: Sequence[HistoryPoint], number: int) -> _Chart:
    points = [replace(point, measured_at=point.measured_at.astimezone(UTC)) for point in points]
    return _Chart(
        f"history-{number}",
        "Recall over time",
        f"{len(points)} measurements, the last of {points[-1].measured_at:%Y-%m-%d} with recall "
        f"{points[-1].recall:.3f}. Each line is of the same rows, candidates and k; where the "
        "index got another model there is a mark.",
        plots.draw_history(points),
        [f"{HEADINGS[0]} (UTC)", *HEADINGS[1:]],
        [astuple(point) for point in reversed(points)],
    )


def _shown(value: Any) -> Any:
    """Return a value as the template writes it; Jinja2 escapes it afterwards."""
    if hasattr(value, "__html__"):
        return value
    if value is None:
        return ""
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M}"
    return "".join(
        "\ufffd"
        if letter in _DIRECTIONS or (letter not in "\n\t" and category(letter) in _NOT_IN_HTML)
        else letter
        for letter in str(value)
    )


def check_page(path: Path) -> None:
    """Find out before the work whether a page can be written.

    Raises
    ------
    InvalidInputError
        If jinja2 or matplotlib is missing, there is no such folder, or the path is not a plain
        file.
    """
    _jinja2()
    with drawing():
        check_file(path)


def save_page(text: str, path: Path) -> None:
    """Write a page beside its place, then move it there.

    Parameters
    ----------
    path
        A file there is replaced; if writing fails, it stays as it is.

    Raises
    ------
    InvalidInputError
        As `check_page`.
    OSError
        If the file cannot be written.
    """
    check_page(path)
    write_whole(path, text.encode())
