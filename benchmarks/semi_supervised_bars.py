"""The bars of `semi_supervised.py`: orders of methods, and seconds of training."""

from collections.abc import Iterator
from typing import Any

OURS = ("bgdh-i", "bgdh-t")
RIVALS = ("dpsh", "sdh", "s3plh", "itq")
# Data and labelled rows a class for which ours must be better than every rival.
FEW_LABELS = ("mnist", 50)
# Least gain over DPSH, on average over the numbers of bits.
GAIN = 0.03
SECONDS = 600.0
SCORE = "MAP@5000"

Key = tuple[str, int, str, int]


def check_bars(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Check the means over seeds against every bar; a failed training misses its bars.

    Parameters
    ----------
    results : list of dict
        Means over seeds as `semi_supervised.py` writes them.

    Returns
    -------
    list of dict
        Each with ``bar`` (in words), ``value`` and ``met``.
    """
    found: dict[Key, dict[str, Any]] = {
        (r["dataset"], r["labels"], r["method"], r["bits"]): r for r in results
    }
    return [*_orders(found), *_gains(found), *_times(found), *_graphs(found)]


def _orders(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    data, labels = FEW_LABELS
    for bits in sorted({key[3] for key in found}):
        for ours in OURS:
            for rival in RIVALS:
                words = f"{_task(data, labels)} {bits} bits: {ours} better than {rival}"
                keys = [(data, labels, method, bits) for method in (ours, rival)]
                yield from _better(found, words, *keys)


def _gains(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, labels in dict.fromkeys(place[:2] for place in found):
        for ours in OURS:
            pairs = {
                bits: (_score(found[data, labels, ours, bits]), _score(rival))
                for (*task, method, bits), rival in found.items()
                if task == [data, labels] and method == "dpsh"
                if (data, labels, ours, bits) in found
            }
            if not pairs:
                continue
            gains = [a - b for a, b in pairs.values() if a is not None and b is not None]
            gain = round(sum(gains) / len(gains), 4) if len(gains) == len(pairs) else None
            over = ", ".join(map(str, sorted(pairs)))
            words = f"{_task(data, labels)}: {ours} above dpsh by {GAIN} on average of {over} bits"
            yield _bar(words, gain, gain is not None and gain >= GAIN)


def _times(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, labels, method in dict.fromkeys(place[:3] for place in found):
        if method in OURS:
            longest = [
                result.get("longest_wall_s")
                for place, result in found.items()
                if place[:3] == (data, labels, method)
            ]
            # A failed training has no seconds.
            seconds = None if None in longest else max(longest)
            words = f"{_task(data, labels)}: {method} always trained in under {SECONDS:.0f} s"
            yield _bar(words, seconds, seconds is not None and seconds < SECONDS)


def _graphs(found: dict[Key, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for data, labels, method, bits in found:
        for suffix in ("words", "both"):
            if method in [f"{ours}-{suffix}" for ours in OURS]:
                plain = method.removesuffix(f"-{suffix}")
                words = f"{_task(data, labels)} {bits} bits: {method} better than {plain}"
                keys = [(data, labels, name, bits) for name in (method, plain)]
                yield from _better(found, words, *keys)


def _better(
    found: dict[Key, dict[str, Any]], words: str, ours: Key, theirs: Key
) -> Iterator[dict[str, Any]]:
    """Yield a bar, if both were run."""
    if ours in found and theirs in found:
        pair = _score(found[ours]), _score(found[theirs])
        yield _bar(words, pair, pair[0] is not None and pair[1] is not None and pair[0] > pair[1])


def _score(result: dict[str, Any]) -> float | None:
    """Return the score, or None if a training failed."""
    value: float | None = result.get("scores", {}).get(SCORE)
    return value


def _task(data: str, labels: int) -> str:
    return f"{data} {labels} a class"


def _bar(words: str, value: Any, met: bool) -> dict[str, Any]:
    return {"bar": words, "value": value, "met": met}
