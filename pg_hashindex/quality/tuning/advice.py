"""What tuning finds out."""

from dataclasses import asdict, dataclass
from typing import Any

from ...models.model import Metric, Model
from .recommending import frontier, recommend
from .trials import Goal, Trial

__all__ = ["Advice"]


@dataclass(frozen=True, eq=False)
class Advice:
    """What was tried, and what is recommended.

    Attributes
    ----------
    goal : Goal
    table, column, id_column : str
        The table as SQL writes it.
    metric : {"l2", "cosine", "ip"}
    index : str, optional
        The index that was tuned.
    rows, sample_rows, reference_rows, queries : int
        Of the table; in the scratch table; that code ranks were counted among; asked.
    trials : list of Trial
    recommended : Trial or None
        None where nothing reaches the goal.
    reason : str
    left_out : list of str
        What was not tried, and why.
    models : dict of str to Model
        By their names, as `name_codes` gives them; those that were trained here.
    statements : str, optional
        SQL that makes pgvector's HNSW and searches by it, where that is recommended.
    """

    goal: Goal
    table: str
    column: str
    id_column: str
    metric: Metric
    index: str | None
    rows: int
    sample_rows: int
    reference_rows: int
    queries: int
    trials: list[Trial]
    recommended: Trial | None
    reason: str
    left_out: list[str]
    models: dict[str, Model]
    statements: str | None = None

    @property
    def applicable(self) -> Trial | None:
        """What `apply` makes: the recommended, or the best that index can be configured to."""
        if self.index is None:
            found = self.recommended
            return found if found is not None and found.kind == "codes" else None
        return recommend([trial for trial in self.trials if trial.own], self.goal)[0]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON values, without the models."""
        fields = {name: value for name, value in vars(self).items() if name != "models"}
        shown = frontier(self.trials)
        return fields | {
            "goal": asdict(self.goal),
            "trials": [_described(trial) | {"frontier": trial in shown} for trial in self.trials],
            "recommended": None if self.recommended is None else _described(self.recommended),
        }


def _described(trial: Trial) -> dict[str, Any]:
    return {"label": trial.label} | asdict(trial)
