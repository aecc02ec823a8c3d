"""What of all that was tried is worth anything, what is recommended, and why."""

from collections.abc import Sequence

from .trials import Goal, Kind, Trial

__all__ = ["frontier", "recommend"]

# Medians nearer to each other than this are the same: what else differs decides then.
_SAME_TIME = 1.1
_SAME_MS = 0.05

_PLAIN = ("sign", "lsh")


def frontier(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that no other one beats in recall, median time and bytes at once.

    Parameters
    ----------
    trials : sequence of Trial

    Returns
    -------
    list of Trial
        By recall.
    """

    def costs(trial: Trial) -> tuple[float, float, float]:
        return -trial.recall, trial.p50_ms, trial.bytes

    def beaten(trial: Trial) -> bool:
        own = costs(trial)
        return any(
            other != own and all(a <= b for a, b in zip(other, own, strict=True))
            for other in map(costs, trials)
        )

    return sorted((trial for trial in trials if not beaten(trial)), key=costs, reverse=True)


def recommend(trials: Sequence[Trial], goal: Goal) -> tuple[Trial | None, str]:
    """Choose the fastest trial that reaches a goal, and say why.

    Of trials whose medians differ by less than a tenth, that with the fewest bytes counts as the
    fastest.

    Parameters
    ----------
    trials : sequence of Trial
    goal : Goal

    Returns
    -------
    Trial or None
        None where nothing reaches the goal.
    str
        The reason, a sentence.
    """
    reaching = [trial for trial in trials if trial.recall >= goal.recall and goal.allows(trial)]
    if not reaching:
        return None, _unreached(trials, goal)
    least = min(trial.p50_ms for trial in reaching)
    near = [trial for trial in reaching if trial.p50_ms <= least * _SAME_TIME + _SAME_MS]
    chosen = min(near, key=lambda trial: (trial.bytes, trial.p50_ms))
    return chosen, _why(chosen, reaching, goal)


def _unreached(trials: Sequence[Trial], goal: Goal) -> str:
    wanted = f"nothing reaches recall {goal.recall:g}{goal.limits}"
    if not trials:
        return f"{wanted}: nothing was tried"
    allowed = [trial for trial in trials if goal.allows(trial)]
    if allowed:
        nearest = max(allowed, key=lambda trial: trial.recall)
        return f"{wanted}: nearest is {_figures(nearest)}"
    recalled = [trial for trial in trials if trial.recall >= goal.recall] or list(trials)

    def excess(trial: Trial) -> float:
        of_time = trial.p50_ms / goal.max_ms if goal.max_ms else 1.0
        of_bytes = trial.bytes / max(goal.max_bytes, 1) if goal.max_bytes is not None else 1.0
        return max(of_time, 1.0) * max(of_bytes, 1.0)

    return (
        f"{wanted}, and nothing keeps within that: nearest is {_figures(min(recalled, key=excess))}"
    )


def _figures(trial: Trial) -> str:
    return (
        f"{trial.label}, with recall {trial.recall:.3f} in {trial.p50_ms:.2g} ms "
        f"and {trial.bytes / 1e6:.3g} MB"
    )


def _why(chosen: Trial, reaching: Sequence[Trial], goal: Goal) -> str:
    n_others = len(reaching) - 1
    words = f"{chosen.label}: the fastest that reaches recall {goal.recall:g}{goal.limits}"
    if not n_others:
        words = f"{chosen.label}: the only one that reaches recall {goal.recall:g}{goal.limits}"
    words += f", with recall {chosen.recall:.3f} in {chosen.p50_ms:.2g} ms"
    if chosen.kind == "exact":
        return f"{words}; reading all vectors is fast enough here, and needs no index"
    kinds: tuple[Kind, ...] = ("codes",) if chosen.kind == "pgvector" else ("pgvector",)
    others = [trial for trial in reaching if trial.kind in kinds]
    if chosen.kind == "codes" and chosen.method in _PLAIN:
        words += "; plain codes win, learning adds nothing here"
    if not others:
        return words
    rival = min(others, key=lambda trial: trial.p50_ms)
    what = "the best by codes" if chosen.kind == "pgvector" else "pgvector's HNSW"
    return (
        f"{words}; {what} takes {rival.p50_ms:.2g} ms, {rival.bytes / 1e6:.3g} MB "
        f"instead of {chosen.bytes / 1e6:.3g}, and {rival.build_s:.3g} s to build "
        f"instead of {chosen.build_s:.3g}"
    )
