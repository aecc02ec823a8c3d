"""The methods that are compared: a hasher with its parameters, and its training rows and labels."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from itertools import product
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ..errors import InvalidInputError
from ..hashers import HASHERS, Hasher, Preset, make_hasher
from ..hashers.deep.deep_hasher import DeepHasher
from ..models.vectors import SparseRows
from .splits import Split

_NOT_SETTINGS = ("n_bits", "random_state", "anchors")


@dataclass(frozen=True)
class Method:
    """A method to compare.

    Parameters
    ----------
    hasher
        A key of ``HASHERS``.
    parameters
        Its parameters, beside bits and seed. ``anchors="split"`` are the first ``n_anchors`` of the
        anchors that the split names.
    name
        Its name in results; by default the hasher's name, with "(paper)" or "(program)" for those
        presets.
    labels
        The rows whose labels it learns from; "labelled" are those that the split names.
    preset
        The parameters to begin with; see `Hasher.of_preset`.
    choices
        The values of parameters to try on training rows held back; the best are used. With the
        preset ``paper``, parameters that the paper chooses so are chosen among its values.
    split_anchors
        The rows that ``anchors="split"`` stands for; `with_anchors` reads them.
    """

    hasher: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    labels: Literal["all", "labelled"] = "all"
    preset: Preset = "default"
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    split_anchors: NDArray[np.floating] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            suffix = "" if self.preset == "default" else f" ({self.preset})"
            object.__setattr__(self, "name", self.hasher + suffix)
        if self.preset == "paper" and self.hasher in HASHERS:
            of_paper = HASHERS[self.hasher].paper_choices
            left = {key: of_paper[key] for key in of_paper if key not in self.parameters}
            object.__setattr__(self, "choices", {**left, **self.choices})
        for key, values in self.choices.items():
            if len(values) < 2:
                raise InvalidInputError(
                    f"{self.name}.{key} has {len(values)} values to choose from; give two or more"
                )
            if key in self.parameters:
                raise InvalidInputError(f"{self.name}.{key} is given, so it cannot be chosen")

    def make(self, n_bits: int, random_state: int) -> Hasher:
        """Make the hasher; refuse unknown hashers and parameters."""
        if doubled := sorted({"n_bits", "random_state", "name", "preset"} & set(self.parameters)):
            raise InvalidInputError(
                f"{', '.join(doubled)} cannot be a parameter of {self.name}: bits, seed and preset "
                "are given as such"
            )
        hasher = make_hasher(
            self.hasher,
            preset=self.preset,
            n_bits=n_bits,
            random_state=random_state,
            **self.parameters,
        )
        if self.split_anchors is not None:
            # Their number may be chosen, so it is known only now.
            count = getattr(hasher, "n_anchors", None)
            hasher.set_params(anchors=self.split_anchors[:count])
        return hasher

    def settings(self) -> dict[str, Any]:
        """Return all parameters, with their defaults, as JSON values.

        Without bits and seed, which are named beside them, and anchors, which are rows of the data.
        A measurement made with other settings is not of this method any more.
        """
        found = make_hasher(self.hasher, preset=self.preset, **self.parameters).settings()
        kept = {name: value for name, value in found.items() if name not in _NOT_SETTINGS}
        result: dict[str, Any] = json.loads(json.dumps(kept))
        return result

    def variants(self) -> list["Method"]:
        """Return the method with each combination of the values to choose from."""
        return [
            self.with_chosen(dict(values))
            for values in product(*([(key, v) for v in vs] for key, vs in self.choices.items()))
        ]

    def with_chosen(self, chosen: Mapping[str, Any]) -> "Method":
        """Return the method with the values that were chosen."""
        return replace(self, parameters={**self.parameters, **chosen}, choices={})

    def with_anchors(self, split: Split) -> "Method":
        """Return the method with the rows of ``anchors="split"``, if it has this parameter."""
        # Anchors may also be an array, which cannot be compared.
        if str(self.parameters.get("anchors")) != "split":
            return self
        if split.anchors is None:
            raise InvalidInputError(
                f"{self.name} is to take the anchors of the split, but the split has no 'anchors'"
            )
        return replace(self, split_anchors=split.train[split.anchors])

    def fit_arguments(
        self, split: Split, hasher: Hasher
    ) -> tuple[NDArray[np.floating], NDArray[np.integer] | SparseRows | None, dict[str, Any]]:
        """Return the rows, the labels, and what else the split has that the hasher learns from.

        A method that can learn from triplets or pairs alone ignores labels if the split has these;
        pairs stand beside the labels of rows that the split names, though.
        """
        read = self.transductive_data if hasher.transductive else self.training_data
        X, y = read(split)
        known = self.relations(split, hasher, transductive=hasher.transductive)
        pairs = "pairs" in known and hasher.pairs_alone and self.labels == "all"
        alone = "triplets" in known or pairs
        return X, None if alone else y, known

    def relations(self, split: Split, hasher: Hasher, *, transductive: bool) -> dict[str, Any]:
        """Return the graph or its features, the triplets and the pairs that a hasher takes.

        They are of the rows of `training_data` or of `transductive_data`.
        """
        known: dict[str, Any] = {}
        if split.graph is not None and hasher.takes_graph:
            known["graph"] = split.graph if transductive else split.train_graph
        if split.graph_features is not None and hasher.takes_graph:
            features = split.graph_features if transductive else split.train_graph_features
            known["graph_features"] = features
        for what, relations, width in (("triplets", split.triplets, 3), ("pairs", split.pairs, 2)):
            if relations is not None and what in hasher.learns_from:
                known[what] = relations.copy()
                if transductive:
                    known[what][:, :width] = self._places(split)[relations[:, :width]]
        return known

    def training_data(
        self, split: Split
    ) -> tuple[NDArray[np.floating], NDArray[np.integer] | SparseRows | None]:
        """Return the rows and labels that it learns from; the split may name those."""
        X, y = split.train, split.train_labels
        if self.labels == "all" or y is None:
            return X, y
        if split.labelled is None:
            raise InvalidInputError(
                f"{self.name} is to see the labels of the 'labelled' training rows alone, but the "
                "split does not name any"
            )
        return X, _labels_at(y[split.labelled], split.labelled, len(X))

    def transductive_data(
        self, split: Split
    ) -> tuple[NDArray[np.floating], NDArray[np.integer] | SparseRows | None]:
        """Return the rows and labels for a transductive method: all rows that need codes.

        The rows of the database, then the queries. Only training rows, which must be in the
        database, have their labels.
        """
        _, y = self.training_data(split)
        X, places = np.concatenate([split.database, split.queries]), self._places(split)
        return X, None if y is None else _labels_at(y, places, len(X))

    def _places(self, split: Split) -> NDArray[np.intp]:
        if split.train_places is None:
            raise InvalidInputError(
                f"{self.name} is transductive, so it learns from the rows of the database and the "
                "queries; take training rows from the database"
            )
        return split.train_places


def _labels_at(
    y: NDArray[np.integer] | SparseRows, places: NDArray[np.intp], n: int
) -> NDArray[np.integer] | SparseRows:
    """Return labels of n rows, of which those at some places alone have one."""
    if scipy.sparse.issparse(y):
        lines, shape = scipy.sparse.coo_array(y), (n, y.shape[1])
        return scipy.sparse.csr_array((lines.data, (places[lines.row], lines.col)), shape)
    known = np.full((n, *y.shape[1:]), -1 if y.ndim == 1 else 0, np.int64)
    known[places] = y
    return known


def default_methods(split: Split, bits: Sequence[int]) -> list[str]:
    """Name the hashers that can learn from a data set; without labels, those that need none.

    Those that train a network are left out without torch.
    """
    learnable = [
        name
        for name, hasher in HASHERS.items()
        if not hasher.learns_from
        or ("labels" in hasher.learns_from and split.train_labels is not None)
        or ("triplets" in hasher.learns_from and split.triplets is not None)
        or ("pairs" in hasher.learns_from and hasher.pairs_alone and split.pairs is not None)
    ]
    if find_spec("torch") is None:
        learnable = [name for name in learnable if not issubclass(HASHERS[name], DeepHasher)]
    # They have bits for each dimension.
    if split.train.shape[1] not in bits:
        learnable = [name for name in learnable if name not in ("sign", "thermometer")]
    return learnable
