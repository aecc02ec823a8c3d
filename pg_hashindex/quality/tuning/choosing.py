"""Which models and access paths are worth building, known before anything is built."""

from collections.abc import Sequence

import numpy as np

from ...index.catalog import Access
from ...models import codes
from .bench import Bench
from .code_trials import CANDIDATES, Coded

__all__ = ["paths", "worth_building"]

# Of fewer rows all codes are read faster than anything is looked up.
_LEAST_FOR_PATHS = 5_000
# What sql/137_lookup.sql counts a value that is looked up as, in codes that are read.
_CODES_A_VALUE = 30
_LONGEST_CHUNK = 30


def worth_building(bench: Bench, coded: Sequence[Coded]) -> list[Coded]:
    """Order models by what a search by them costs, without those that others beat.

    A model is beaten where another one has no more bits and needs no more candidates. The model of
    an index is always tried, and so are the better ones of the plain methods.
    """
    goal = bench.goal
    choices = tuple(c for c in CANDIDATES if c >= goal.k) or (goal.k,)
    needs: dict[str, int] = {}
    for one in coded:
        best = one.full.rankings[0]
        needs[one.name] = one.least(goal.recall, best, choices)
        if one.recall(needs[one.name], best) < goal.recall:
            # The more is missing, the later.
            needs[one.name] = round(choices[-1] * (2 - one.recall(choices[-1], best)))

    def cost(one: Coded) -> float:
        # About what both take beside each other: a candidate is read whole, bits are counted.
        return needs[one.name] + one.model.n_bits / 4

    ordered = sorted(coded, key=lambda one: (one.reference is None, cost(one)))
    plain: set[str] = set()
    kept: list[Coded] = []
    for one in ordered:
        rival = next(
            (
                other
                for other in coded
                if other is not one
                and other.model.n_bits <= one.model.n_bits
                and needs[other.name] <= needs[one.name]
                and (other.model.n_bits, needs[other.name]) != (one.model.n_bits, needs[one.name])
            ),
            None,
        )
        first_plain = one.model.method in ("sign", "lsh") and one.model.method not in plain
        plain.add(one.model.method)
        if one.reference is None and rival is not None and not first_plain:
            bench.left_out.append(
                f"{one.name}: {rival.name} need {_as_many(needs[rival.name], needs[one.name])}"
            )
        else:
            kept.append(one)
    return kept


def _as_many(candidates: int, of_other: int) -> str:
    if candidates == of_other:
        return f"no more candidates, {candidates}"
    return f"fewer candidates, {candidates} instead of {of_other}"


def paths(bench: Bench, coded: Coded) -> list[Access]:
    """Return the access paths to try; what cannot win is left out, with the reason."""
    n_rows = bench.scale.full
    if n_rows < _LEAST_FOR_PATHS:
        bench.leave_out(f"all paths but scan: {n_rows} codes are read faster than looked up")
        return ["scan"]
    found: list[Access] = ["scan", "landmarks", "hnsw"]
    if coded.layout == "column":
        found.remove("landmarks")
        bench.leave_out("landmarks: the index has its codes in a column")
    if coded.model.levels != 2:
        found.remove("hnsw")
        bench.leave_out(
            "hnsw and lookup of codes of two bits a projection: they go by Hamming distance"
        )
    elif not bench.scale.whole:
        # Whether it pays is decided by each search anew, otherwise among more rows.
        bench.leave_out("lookup: a sample does not tell how much of the table it would read")
    elif _lookup_can_win(bench, coded):
        found.append("lookup")
    else:
        bench.leave_out(f"{coded.name}, lookup: it would read more than all codes")
    return found


def _lookup_can_win(bench: Bench, coded: Coded) -> bool:
    """Return whether half of the queries find their candidates with less work than a scan's half.

    A look-up grows its radius until it holds the pool of a scan; each radius costs the values
    within it, in each chunk of the codes (see sql/137_lookup.sql).
    """
    model, n_rows = coded.model, bench.scale.full
    least = coded.least(bench.goal.recall, coded.full.rankings[0], CANDIDATES)
    pool = max(10 * least, 2000) * len(bench.drawn.X) / n_rows
    place = min(int(pool), len(bench.drawn.X) - 1)
    far = codes.hamming_distances(model.encode(bench.drawn.Q[:50]), coded.packed)
    radius = float(np.median(np.partition(far, place, axis=1)[:, place]))
    width = min(max(np.log2(n_rows), 16), _LONGEST_CHUNK)
    chunks = int(max(round(model.n_bits / width), np.ceil(model.n_bits / _LONGEST_CHUNK), 1))
    bits = model.n_bits / chunks
    work, ball, of_weight, step = 0.0, 0.0, 1.0, 0
    while (step + 1) * chunks - 1 < radius or not step:
        ball += of_weight
        of_weight *= (bits - step) / (step + 1)
        work += _CODES_A_VALUE * chunks * ball
        step += 1
        if work > n_rows / 2:
            return False
    return True
