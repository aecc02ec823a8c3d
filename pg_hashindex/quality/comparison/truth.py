"""What makes a row of the database relevant to a query."""

from dataclasses import dataclass
from typing import Literal, get_args

from ...errors import InvalidInputError

__all__ = ["Truth", "TruthKind"]

TruthKind = Literal["label", "nearest-fraction", "nearest-k"]


@dataclass(frozen=True)
class Truth:
    """What makes a row of the database relevant to a query.

    Parameters
    ----------
    kind : {"label", "nearest-fraction", "nearest-k"}
        A shared label, or being among the nearest by Euclidean distance.
    amount : float, optional
        Which fraction of the database, or how many rows, are the nearest.
    """

    kind: TruthKind
    amount: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(TruthKind):
            raise InvalidInputError(
                f"truth {self.kind!r} is unknown; use {', '.join(get_args(TruthKind))}"
            )
        if (self.amount is None) != (self.kind == "label"):
            raise InvalidInputError(f"truth by {self.kind} has amount {self.amount}")

    @property
    def name(self) -> str:
        """The name it has in results."""
        match self:
            case Truth(kind="nearest-fraction", amount=amount) if amount is not None:
                return f"nearest {100 * amount:g} %"
            case Truth(kind="nearest-k", amount=amount):
                return f"nearest {amount}"
        return "label"
