"""FSDH: fast supervised discrete hashing (Gui, Liu, Sun, Tao & Tan, TPAMI 2018)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from .sdh import SDH
from .supervision.code_steps import LabelsToCodes


@dataclass(kw_only=True, eq=False, repr=False)
class FSDH(SDH):
    """SDH with the regression reversed, from labels to codes, which gives all bits at once.

    Minimises, over codes B in {-1, 1}, weights W of the labels and hash function F,

        ||B - Y W||^2 + penalty ||W||^2 + nu (||B - F(X)||^2 + n mu ||P||^2)

    by turns: W and F by ridge regression, B = sgn(Y W + nu F(X)). Each step is exact, so the
    objective never rises. Y W is near the mean code of a class: in the first round the rows of a
    class take the signs of their majority, and unless nu is large, little changes afterwards.

    Parameters, attributes, the start and the hash function are those of `SDH`, with the same
    differences from the paper; ``penalty`` and ``nu`` belong to the objective above.

    If rows have several labels, W needs the factor of a matrix of labels by labels. Then there may
    be 5,000 labels, which take 400 MB. Otherwise memory and time are those of `SDH`.
    """

    method = "fsdh"
    paper_parameters: ClassVar[Mapping[str, Any]] = {}
    _steps = LabelsToCodes
