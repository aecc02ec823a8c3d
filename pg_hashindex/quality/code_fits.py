"""How many candidates kinds of codes need on a sample of rows; nothing is written."""

from typing import Any

from numpy.typing import NDArray

from ..models.model import OPERATORS, Metric, Model
from ..training import train
from .doctor_findings import CODES, CodeFit


def try_code(
    X: NDArray[Any], code: str, metric: str, *, name: str = "sample", force: bool = False
) -> tuple[Model, CodeFit | None]:
    """Train a model of a kind of code, and measure it on the rows that training holds back.

    There is no measure of very few rows.
    """
    method, options = CODES[code]
    used: Metric = metric if metric in OPERATORS else "l2"  # type: ignore[assignment]
    model = train(X, name, method, metric=used, force=force, **options)
    found = model.training.get("recall")
    if found is None:
        return model, None
    return model, CodeFit(code, model.n_bits, found["candidates"], found["value"], found["among"])
