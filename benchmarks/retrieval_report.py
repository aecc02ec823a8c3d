"""The file of `retrieval.py`, and the tables and the plot that come from it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from retrieval_bars import check_bars
from retrieval_data import FILTERS, ROWS
from retrieval_measures import TARGETS

Entry = dict[str, Any]
Key = tuple[str, str]

# Okabe and Ito's colours, without yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS = "osD^vPX*"
_LEAST_RECALL = 0.8


def report(found: Mapping[Key, Entry], order: Sequence[str]) -> dict[str, Any]:
    """Put results in the order of the tables, with the bars.

    Parameters
    ----------
    found : mapping
        By data set and system.
    order : sequence of str
        Of the systems.
    """
    data = list(ROWS)
    keys = sorted(found, key=lambda key: (data.index(key[0]), order.index(key[1])))
    systems = [found[key] for key in keys]
    return {"bars": check_bars(systems), "systems": systems}


def line(entry: Entry) -> str:
    """Format one system."""
    start = f"{entry['data']:15}{entry['system']:19}"
    if "error" in entry:
        return f"{start} failed: {entry['error']}"
    targets = "".join(f"{_p50(entry['targets'][f'{target:.2f}']):>9}" for target in TARGETS)
    filters = "".join(
        f"{point['p50_ms']:9.2f} ({point['recall']:.3f})" for point in entry["filtered"].values()
    )
    inserted = entry["inserts"]
    return (
        f"{start}{entry['build_s']:8.1f}{entry['bytes'] / 1e6:8.1f}{targets}"
        f"{_rate(entry):>9}{inserted['single']:9.0f}"
        f"{inserted['batches']:9.0f}{filters}"
    )


def heading() -> str:
    """Name the columns of `line`."""
    targets = "".join(f"{f'p50@{target:.2f}':>9}" for target in TARGETS)
    filters = "".join(f"{f'{share} % ms (recall)':>17}" for share in FILTERS)
    columns = "".join(f"{name:>9}" for name in ("q/s", "rows/s", "by 100"))
    return f"{'data':15}{'system':19}{'build s':>8}{'MB':>8}{targets}{columns}{filters}"


def _p50(point: Entry | None) -> str:
    if point is None:
        return ""
    return f"{point['p50_ms']:.2f}{'' if point['uses_index'] in (None, True) else '*'}"


def _rate(entry: Entry) -> str:
    return "" if entry["clients"] is None else f"{entry['clients']['queries_a_second']:.0f}"


def lines(whole: Mapping[str, Any]) -> Iterator[str]:
    """Format all systems, and the bars."""
    yield heading()
    for entry in whole["systems"]:
        yield line(entry)
    yield "* the planner read the table without the index"
    for bar in whole["bars"]:
        mark = ("beyond " if bar["beyond"] else "met    ") if bar["met"] else "NOT MET"
        runs = "" if bar["one_run"] else "; NOT OF ONE RUN"
        yield f"{mark} {bar['bar']}: {bar['value']} ({bar['by']}{runs})"
    yield f"{sum(bar['met'] for bar in whole['bars'])} of {len(whole['bars'])} bars met"


def save_plot(systems: Sequence[Entry], path: Path) -> None:
    """Draw p50 over recall, a panel for each data set; needs the extra ``plot``.

    Of each system the settings are drawn that no other of its settings beats in both.

    Parameters
    ----------
    systems : sequence of dict
    path : Path
        Its name says in which format.
    """
    from matplotlib.figure import Figure

    drawn = [entry for entry in systems if entry.get("frontier")]
    data = [name for name in ROWS if any(entry["data"] == name for entry in drawn)]
    names = list(dict.fromkeys(entry["system"] for entry in drawn))
    styles = dict(zip(names, zip(cycle(_COLOURS), cycle(_MARKERS), strict=False), strict=False))
    ours = {entry["system"] for entry in drawn if entry["ours"]}
    figure = Figure(figsize=(4.2 * len(data), 4.4), layout="constrained")
    for panel, name in zip(figure.subplots(1, len(data), squeeze=False)[0], data, strict=True):
        for entry in drawn:
            points = pareto(entry["frontier"])
            shown = [p for p in points if p["recall"] >= _LEAST_RECALL]
            if entry["data"] != name or not shown:
                continue
            colour, marker = styles[entry["system"]]
            panel.plot(
                [point["recall"] for point in shown],
                [point["p50_ms"] for point in shown],
                color=colour,
                marker=marker,
                markersize=4,
                linestyle="-" if entry["system"] in ours else "--",
                label=entry["system"],
            )
        panel.set(title=name, xlabel="recall@10", yscale="log", xlim=(_LEAST_RECALL, 1.005))
        panel.grid(visible=True, which="both", alpha=0.3)
    figure.axes[0].set_ylabel("p50, ms")
    known = {
        label: handle
        for panel in figure.axes
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    labels = [name for name in names if name in known]
    if labels:
        figure.legend(
            [known[label] for label in labels], labels, loc="outside lower center",
            ncols=min(len(labels), 2 * len(data)), fontsize="small",
        )  # fmt: skip
    figure.savefig(path, dpi=150)


def pareto(points: Sequence[Entry]) -> list[Entry]:
    """Return the points that no other beats in recall and p50, by recall."""
    result: list[Entry] = []
    for point in sorted(points, key=lambda p: (-p["recall"], p["p50_ms"])):
        if not result or point["p50_ms"] < result[-1]["p50_ms"]:
            result.append(point)
    return result[::-1]
