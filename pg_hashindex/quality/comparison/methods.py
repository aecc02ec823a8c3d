"""The methods that are compared: a hasher with its parameters, and its training rows and labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ...deep.dpsh import DPSH
from ...errors import InvalidInputError
from ...hashers import HASHERS, Hasher, Preset, make_hasher
from ...hashers._common.supervision import SparseRows
from ...models.quantization import Levels
from .splits import Split

__all__ = ["Method", "default_methods"]


@dataclass(frozen=True)
class Method:
    """A method to compare.

    Parameters
    ----------
    hasher : str
        A key of ``HASHERS``.
    parameters : mapping
        Its parameters, beside bits and seed.
    name : str, optional
        Its name in results; by default the hasher's name, with "(paper)" for that preset.
    train_on : {"train", "database"}
        Which rows it learns from.
    labels : {"all", "labelled"}
        The rows whose labels it learns from; "labelled" are those that the split names.
    levels : {2, 4}
        Levels that codes keep of each projection.
    preset : {"default", "paper"}
        The parameters to begin with: ours, or those of the method's paper.
    """

    hasher: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    train_on: Literal["train", "database"] = "train"
    labels: Literal["all", "labelled"] = "all"
    levels: Levels = 2
    preset: Preset = "default"

    def __post_init__(self) -> None:
        if not self.name:
            suffix = "" if self.preset == "default" else f" ({self.preset})"
            object.__setattr__(self, "name", self.hasher + suffix)

    def make(self, n_bits: int, random_state: int) -> Hasher:
        """Make the hasher; refuse what there is no hasher, parameter or number of levels of."""
        if doubled := sorted({"n_bits", "random_state"} & set(self.parameters)):
            raise InvalidInputError(
                f"{', '.join(doubled)} cannot be a parameter of {self.name}: bits and seed are "
                "given as such"
            )
        hasher = make_hasher(
            self.hasher,
            preset=self.preset,
            n_bits=n_bits,
            random_state=random_state,
            **self.parameters,
        )
        hasher.check_levels(self.levels)
        return hasher

    def training_data(
        self, split: Split
    ) -> tuple[NDArray[np.floating], NDArray[np.integer] | SparseRows | None]:
        """Return the rows and labels that it learns from; the split may name those."""
        if self.train_on == "database":
            X, y = split.database, split.labels
        else:
            X, y = split.train, split.train_labels
        if self.labels == "all" or y is None:
            return X, y
        if split.labelled is None or self.train_on == "database":
            raise InvalidInputError(
                f"{self.name} is to see the labels of the 'labelled' training rows alone, but the "
                "split does not name any, or the method learns from the database"
            )
        unlabelled = np.ones(len(X), dtype=bool)
        unlabelled[split.labelled] = False
        if scipy.sparse.issparse(y):
            return X, scipy.sparse.csr_array(y).multiply(~unlabelled[:, None]).tocsr()
        seen = y.astype(np.int64)
        seen[unlabelled] = -1 if y.ndim == 1 else 0
        return X, seen

    def transductive_data(
        self, split: Split
    ) -> tuple[NDArray[np.floating], NDArray[np.integer] | SparseRows | None]:
        """Return the rows and labels for a transductive method: all rows that need codes.

        The rows of the database, then the queries. Only training rows, which must be in the
        database, have their labels.
        """
        _, y = self.training_data(split)
        X = np.concatenate([split.database, split.queries])
        places = split.train_places
        if self.train_on == "database":
            places = np.arange(len(split.database))
        if places is None:
            raise InvalidInputError(
                f"{self.name} is transductive, so it learns from the rows of the database and the "
                "queries; take training rows from the database"
            )
        if y is None:
            return X, None
        if scipy.sparse.issparse(y):
            lines = scipy.sparse.coo_array(y)
            shape = (len(X), y.shape[1])
            return X, scipy.sparse.csr_array((lines.data, (places[lines.row], lines.col)), shape)
        known = np.full((len(X), *y.shape[1:]), -1 if y.ndim == 1 else 0, np.int64)
        known[places] = y
        return X, known


def default_methods(split: Split, bits: Sequence[int], levels: Levels = 2) -> list[Method]:
    """Name the methods that can learn from a data set; without labels, those that need none.

    Methods that train a network are left out without torch, and methods that learn weights of bits
    for 4 levels.
    """
    learnable = [
        name
        for name, hasher in HASHERS.items()
        if not hasher.learns_from
        or ("labels" in hasher.learns_from and split.train_labels is not None)
    ]
    if find_spec("torch") is None:
        learnable = [name for name in learnable if not issubclass(HASHERS[name], DPSH)]
    # It has one bit for each dimension.
    if split.train.shape[1] not in bits:
        learnable.remove("sign")
    if levels != 2:
        learnable = [name for name in learnable if not HASHERS[name].weighs_bits]
    return [Method(name, levels=levels) for name in learnable]
