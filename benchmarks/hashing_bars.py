"""The bars of `hashing.py`: scores, orders of methods, and seconds of training."""

from collections.abc import Iterator
from typing import Any

BOTH = ("mnist", "usps")

# Greatest difference of both MAPs from the reference.
NEAR = {
    "s3plh-paper": 0.01,
    "sdh-paper": 0.01,
    "sgh": 0.01,
    "itq": 0.02,
    "lsh": 0.02,
    "pcah": 0.02,
    "sh": 0.02,
    "agh-1": 0.02,
}

# Methods that may not be worse than the reference by more, by any score.
NOT_BELOW = {"usplh-c500": 0.01}

# Data, method, bits, codes, score: least value.
FLOORS = (
    ("mnist", "s3plh", 32, "hashed", "MAP_label", 0.54),
    ("mnist", "s3plh", 64, "hashed", "MAP_label", 0.55),
    ("usps", "s3plh", 32, "hashed", "MAP_label", 0.58),
    ("usps", "s3plh", 64, "hashed", "MAP_label", 0.635),
    ("mnist", "usplh", 32, "hashed", "MAP_euclid2pct", 0.40),
    ("usps", "usplh", 32, "hashed", "MAP_euclid2pct", 0.40),
    ("usps", "usplh-paper", 64, "hashed", "PH2_label", 0.30),
    ("mnist", "sdh", 32, "hashed", "MAP_label", 0.925),
    ("mnist", "sdh", 64, "hashed", "MAP_label", 0.935),
    ("mnist", "sadih-l1-all", 32, "learned", "MAP_label", 0.96),
    ("mnist", "sadih-l1-all", 32, "hashed", "MAP_label", 0.93),
    ("usps", "sadih-l1", 32, "hashed", "MAP_label", 0.958),
    # At most 0.01 below the reference.
    ("mnist", "cosdish", 32, "hashed", "MAP_label", 0.7201),
    ("usps", "cosdish", 32, "hashed", "MAP_label", 0.7593),
)

# Data, bits, score: the first method must be better than the others, as its paper reports.
_CGHASH_RIVALS = ("lsh", "sh", "agh", "agh-1", "itq", "s3plh")
ORDERS = (
    *((d, 32, "MAP_euclid2pct", "usplh", ("sh", "pcah", "lsh")) for d in BOTH),
    *(("sift10k", b, "MAP_euclid2pct", "usplh", ("sh", "pcah", "lsh")) for b in (24, 32, 48)),
    *(
        (d, b, score, "cghash", _CGHASH_RIVALS)
        for d in BOTH
        for b in (32, 60)
        for score in ("error_3nn", "P50_label")
    ),
    # The orders that the papers on BRE and STH report.
    *((d, b, "MAP_euclid2pct", "bre", ("lsh", "sh")) for d in BOTH for b in (32, 64)),
    *((d, b, "MAP_label", "sbre", ("bre",)) for d in BOTH for b in (32, 64)),
    *((d, b, "MAP_label", "sth", ("sh", "pcah")) for d in BOTH for b in (32, 64)),
    # The order that the papers on ITQ, KSH and SDH report.
    *((d, b, "MAP_label", "itq-cca", ("itq",)) for d in BOTH for b in (32, 64)),
    *((d, b, "MAP_label", "ksh", ("itq",)) for d in BOTH for b in (32, 64)),
    *((d, b, "MAP_label", "sdh", ("ksh", "itq-cca")) for d in BOTH for b in (32, 64)),
)
_LOWER_IS_BETTER = ("error_3nn",)

# Most CPU seconds of training: a third of the reference, or this many.
THIRD = (
    *("sgh", "s3plh", "s3plh-paper", "usplh-c500", "sdh", "sdh-paper", "sh", "agh-1", "cosdish"),
)
SECONDS = (("mnist", "sadih-l1-all", 32, 30.0),)

Key = tuple[str, str, int, str]


def check_bars(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check results against the bars that apply to them; a failed run misses its bars.

    Parameters
    ----------
    entries : list of dict
        Results as `hashing.py` writes them.

    Returns
    -------
    list of dict
        Each with ``bar`` (in words), ``value`` and ``met``.
    """
    found: dict[Key, dict[str, Any]] = {
        (e["dataset"], e["method"], e["bits"], e.get("codes", "hashed")): e for e in entries
    }
    return [
        *_near(found),
        *_not_below(found),
        *_floors(found),
        *_orders(found),
        *_times(found),
    ]


def _near(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for (data, method, bits, codes), entry in found.items():
        if method not in NEAR or codes != "hashed" or not entry.get("reference"):
            continue
        for score in ("MAP_label", "MAP_euclid2pct"):
            difference = entry.get("difference", {}).get(score)
            words = f"{data} {method} {bits} {score} within {NEAR[method]} of the reference"
            met = difference is not None and abs(difference) <= NEAR[method]
            yield _bar(words, difference, met)


def _not_below(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for (data, method, bits, codes), entry in found.items():
        if method in NOT_BELOW and codes == "hashed" and entry.get("reference"):
            least = min(entry.get("difference", {"failed": -1.0}).values())
            words = f"{data} {method} {bits} at most {NOT_BELOW[method]} below any reference score"
            yield _bar(words, least, least >= -NOT_BELOW[method])


def _floors(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, method, bits, codes, score, least in FLOORS:
        if entry := found.get((data, method, bits, codes)):
            value = _score(entry, score)
            words = f"{data} {method} {bits} {codes} {score} at least {least}"
            yield _bar(words, value, value is not None and value >= least)


def _orders(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, bits, score, method, rivals in ORDERS:
        for rival in rivals:
            ours, theirs = (found.get((data, name, bits, "hashed")) for name in (method, rival))
            if ours is None or theirs is None:
                continue
            pair = _score(ours, score), _score(theirs, score)
            words = f"{data} {method} {bits} {score} better than {rival}"
            yield _bar(words, pair, _better(*pair, lower=score in _LOWER_IS_BETTER))


def _times(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for (data, method, bits, codes), entry in found.items():
        if method in THIRD and codes == "hashed" and entry.get("reference"):
            value, most = _score(entry, "train_cpu_s"), entry["reference"]["train_cpu_s"] / 3
            words = f"{data} {method} {bits} trained in {most:.2f} CPU seconds, a third"
            yield _bar(words, value, value is not None and value <= most)
    for data, method, bits, seconds in SECONDS:
        if entry := found.get((data, method, bits, "hashed")):
            value = _score(entry, "train_cpu_s")
            words = f"{data} {method} {bits} trained in {seconds} CPU seconds"
            yield _bar(words, value, value is not None and value < seconds)


def _score(entry: dict[str, Any], score: str) -> float | None:
    """Return a score, or None if the run failed."""
    value: float | None = entry.get("scores", {}).get(score)
    return value


def _better(ours: float | None, theirs: float | None, *, lower: bool) -> bool:
    if ours is None or theirs is None:
        return False
    return ours < theirs if lower else ours > theirs


def _bar(words: str, value: Any, met: bool) -> dict[str, Any]:
    return {"bar": words, "value": value, "met": met}
