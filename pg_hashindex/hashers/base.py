"""The base class of all hashers: it checks parameters, reads rows and makes the model."""

import inspect
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, Self, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError, NotFittedError
from ..models.layers import Layer, normalize
from ..models.model import MAX_BITS, Metric, Model
from ..models.network import Network
from ..models.profiles import Profile
from ..models.quantization import SIGNS, Cuts
from ..models.vectors import SparseRows, as_array
from .numerics.rows import RowsLike, RowSource
from .numerics.threads import one_blas_thread
from .parameters import TooManyBitsError, check_annotated, integer
from .supervision.labels import Supervision

#: The settings to begin with: ours, those of the method's paper, or those of its authors' program.
Preset = Literal["default", "paper", "program"]
Normalize = Literal["l2"] | None

# Projections if none are asked for: of codes that rank by distance, and of others.
_PROJECTIONS = 256
_LABEL_PROJECTIONS = 128
# Cuts of projections whose codes rank by distance, if none are asked for.
_CUTS = 3
# Rows of a profile: enough for small errors, fewer if codes are long.
_PROFILE_ROWS = 20_000
_LEAST_PROFILE_ROWS = 1_000
_PROFILE_VALUES = 10_000_000
# Distance of neighbouring cuts by their number, in deviations of the projections. Of steps of .3 to
# 1.3, thermometer needs the fewest candidates at recall .95 and .98 with these, or about: a scan
# by plain Hamming distance of 20,000 text embeddings for 200 queries, of 384 and of 768 dimensions.
# With 3 and 5 cuts so does itq, on texts, MNIST, SIFT and clusters. SQL's are in hashindex._cuts.
_STEPS = {1: 0.0, 2: 1.0, 3: 0.8, 4: 0.8, 5: 0.7, 6: 0.6, 7: 0.5, 8: 0.5}
# A network may take 30 ms for a row.
_NETWORK_PROFILE_ROWS = 2_000


@dataclass(kw_only=True, eq=False, repr=False)
class Hasher(ABC):
    """A method that learns binary codes from rows.

    A subclass is a dataclass too. Its fields are its parameters, which ``__init__`` takes by
    keyword and keeps as they come; their annotations say what they may be. `_learn` learns layers.
    `fit` puts them into a `Model` at once, so that a hasher and its stored model cannot disagree.

    Parameters
    ----------
    n_bits
        Projections to learn, 1 to 16,000. By default 256, 128 for methods that learn from more than
        rows, or as many as the method finds in the rows if that is less; ``n_bits_`` says how many.
    random_state
        Seed of all that is random in a method; None draws one. Models record it.
    normalize : {"l2"}, optional
        Scale rows to unit length first, for cosine distance.

    Attributes
    ----------
    layers_
        The learned layers; empty if a network of kind ``rows`` stands for the whole model.
    dimension_
        Dimensions of the rows.
    n_bits_
        Bits of a code.
    seed_
        ``random_state``, or the seed that was drawn if that is None; it repeats the training.
    training_
        Facts about the training, as JSON values; models carry them.
    profile_
        Of the projections of up to 20,000 training rows, with the bits of one cut.
    deviation_
        The standard deviation of all projections of these rows about 0, of which cuts are
        multiples.
    long_deviation_
        That of the projections of a row that is longer than 99 % of these rows. The greatest inner
        products are with long rows, so it takes the place of ``deviation_`` for metric ``ip``.
    """

    #: The name in the registry and in stored models.
    method: ClassVar[str]
    #: The kinds of supervision that it takes: "labels", "pairs", "triplets". At least one of them
    #: must be given. Empty for methods that need only rows.
    learns_from: ClassVar[tuple[str, ...]] = ()
    #: Whether pairs alone are enough to learn from.
    pairs_alone: ClassVar[bool] = True
    #: Whether it also takes a graph; it never needs one.
    takes_graph: ClassVar[bool] = False
    #: Whether it gives at most one bit for each dimension.
    bits_within_dimension: ClassVar[bool] = False
    #: Whether it learns codes of its labelled rows, ``codes_``, which a model may keep.
    learns_codes: ClassVar[bool] = False
    #: Whether it learns a weight for each bit.
    weighs_bits: ClassVar[bool] = False
    #: Parameters that do not change what is learned; models do not record them.
    runtime_parameters: ClassVar[tuple[str, ...]] = ()
    #: The paper's settings where the defaults depart from them; None if the method has no paper.
    paper_parameters: ClassVar[Mapping[str, Any] | None] = {}
    #: Values of parameters that the paper chooses by cross-validation.
    paper_choices: ClassVar[Mapping[str, Sequence[Any]]] = {}
    #: The settings of the authors' program where they differ from the paper's; None without one.
    program_parameters: ClassVar[Mapping[str, Any] | None] = None

    n_bits: Annotated[int, integer(1, MAX_BITS)] | None = None
    random_state: Annotated[int, integer(0, 2**63 - 1)] | None = None
    normalize: Normalize = None

    @classmethod
    def of_preset(cls, preset: Preset, **parameters: Any) -> Self:
        """Make a hasher that begins with the settings of a preset.

        Parameters
        ----------
        preset
            ``paper`` has the settings that the method's paper names, ``program`` those of its
            authors' program.
        **parameters
            The parameters of the class; they win over the preset.

        Raises
        ------
        InvalidInputError
            If the method has no such preset, or there is no such parameter.
        """
        known = {"default": {}, "paper": cls.paper_parameters, "program": cls.program_parameters}
        begun = known[preset]
        if begun is None:
            other = "" if preset == "paper" else " that differs from its paper"
            raise InvalidInputError(
                f"{cls.method} has no {preset}{other}, so it has no preset {preset!r}"
            )
        cls.check_names(parameters)
        return cls(**{**begun, **parameters})

    @classmethod
    def paper(cls, **parameters: Any) -> Self:
        """Make a hasher with the settings of its paper; see `of_preset`."""
        return cls.of_preset("paper", **parameters)

    @classmethod
    def program(cls, **parameters: Any) -> Self:
        """Make a hasher with the settings of its authors' program; see `of_preset`."""
        return cls.of_preset("program", **parameters)

    @classmethod
    def ranks_by_distance(cls) -> bool:
        """Whether it learns from rows alone, not from labels or a graph."""
        return not (cls.learns_from or cls.takes_graph)

    @classmethod
    def takes_cuts(cls) -> bool:
        """Whether its models may have several cuts of a projection, as its codes tell distances."""
        return cls.ranks_by_distance()

    @classmethod
    def takes(cls, what: str) -> bool:
        """Whether it learns from labels, pairs, triplets, a graph or graph_features."""
        return cls.takes_graph if what.startswith("graph") else what in cls.learns_from

    @classmethod
    def parameter_names(cls) -> list[str]:
        """Return the names of the parameters that the class takes."""
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters as they were given, by name; ``deep`` changes nothing."""
        return {name: getattr(self, name) for name in self.parameter_names()}

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; `fit` checks their values.

        Raises
        ------
        InvalidInputError
            If there is no such parameter.
        """
        self.check_names(params)
        vars(self).update(params)
        return self

    @classmethod
    def check_names(cls, names: Iterable[str]) -> None:
        """Refuse names of parameters that the class does not take.

        Raises
        ------
        InvalidInputError
        """
        accepted = cls.parameter_names()
        if unknown := sorted(set(names) - set(accepted)):
            raise InvalidInputError(
                f"{cls.method} has no parameter {', '.join(map(repr, unknown))}; "
                f"it accepts {', '.join(accepted)}"
            )

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({given})"

    def fit(
        self,
        X: RowsLike,
        y: ArrayLike | None = None,
        *,
        pairs: ArrayLike | None = None,
        triplets: ArrayLike | None = None,
        graph: ArrayLike | SparseRows | None = None,
        graph_features: ArrayLike | None = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array-like (n, d), or callable
            float16, float32 or float64 rows; or a function without arguments that returns a fresh
            iterator of blocks (n_i, d) at every call, for rows that do not fit in memory.
        y : array-like (n,) of integers, or (n, c) of 0 and 1, optional
            Labels, one or several a row, for the methods that learn from them; the others ignore
            them. -1, or a line of zeros, marks an unlabelled row.
        pairs : array-like (p, 3) of integers, optional
            Two row numbers, and 1 for neighbours or -1 for others; for methods that learn from
            "pairs".
        triplets : array-like (t, 3) of integers, optional
            Three row numbers, the first row being nearer to the second than to the third; for
            methods that learn from "triplets".
        graph : array-like (n, m) of 0 and more, dense or of scipy.sparse, optional
            Weights of edges between the n rows and m objects (tags, owners, words), for methods
            with ``takes_graph``; 0 means no edge.
        graph_features : array-like (n, k), optional
            Vectors of the rows from which these methods make their graph, instead of ``X``; they
            are taken as they are, whatever ``normalize`` says.

        Raises
        ------
        InvalidInputError
            If a parameter is out of range, a value is NaN or infinite, rows differ in dimension,
            fewer than 2 of them are distinct, or labels, pairs, triplets or a graph are missing
            or unusable.
        """
        before = vars(self).copy()
        try:
            known = {"labels": y, "pairs": pairs, "triplets": triplets, "graph": graph}
            self._fit(X, {**known, "graph_features": graph_features})
        except BaseException:
            # A fit that fails leaves the hasher as it was before.
            vars(self).clear()
            vars(self).update(before)
            raise
        return self

    # BLAS would split each short step among threads that wait for one another. On a busy machine
    # that takes 20 times as long.
    @one_blas_thread()
    def _fit(self, X: RowsLike, known: dict[str, Any]) -> None:
        started = time.perf_counter()
        self.check_parameters()
        first = [normalize()] if self.normalize else []
        rows = RowSource(X, first)
        self.check_dimension(rows.dimension)
        given = self._supervision(rows.n_rows, known)
        seed = secrets.randbits(32) if self.random_state is None else int(self.random_state)
        learned = self._learn_bits(rows, given, seed)
        network = self._network()
        # A network of kind rows knows rows as they are in the table, before any layer.
        layers = [] if network is not None and network.kind == "rows" else [*first, *learned]
        model = Model(self.method, self.method, rows.dimension, layers, network=network)
        self.layers_, self.dimension_, self.seed_ = layers, rows.dimension, seed
        self.training_ = {
            "rows": rows.n_rows,
            "seconds": round(time.perf_counter() - started, 3),
            **self._summary(),
        }
        projections = _profiled(model, rows.untransformed(), seed)
        self.profile_ = Profile.of(projections)
        means = np.square(projections, dtype=np.float64).mean(axis=1)
        self.deviation_ = float(np.sqrt(means.mean()))
        self.long_deviation_ = float(np.sqrt(np.quantile(means, 0.99, method="inverted_cdf")))
        metrics: tuple[Metric, ...] = ("l2", "ip") if self.takes_cuts() else ()
        self._ones = _ones_above(
            projections, {SIGNS, *(self._cuts(n, metric) for n in _STEPS for metric in metrics)}
        )
        # `set_params` must not change what models say they were trained with.
        self._fitted_settings = self.settings()

    def _supervision(self, n_rows: int, known: dict[str, Any]) -> Supervision:
        taken = self.learns_from
        for what, value in known.items():
            # Labels are ignored, so that one call serves methods with and without them.
            if value is not None and not self.takes(what) and what != "labels":
                what = "a graph" if what.startswith("graph") else what
                raise InvalidInputError(f"{self.method} does not learn from {what}")
        if self.learns_from and all(known[what] is None for what in self.learns_from):
            raise InvalidInputError(
                f"{self.method} learns from {' or '.join(self.learns_from)}; give some"
            )
        labels = known["labels"] if "labels" in taken else None
        return Supervision.read(n_rows, labels, *list(known.values())[1:])

    def _learn_bits(self, rows: RowSource, given: Supervision, seed: int) -> list[Layer]:
        """Set ``n_bits_``, and learn that many bits.

        Without ``n_bits``, the number comes from the method's own refusal of more bits, so that
        each method states its limit once.
        """
        asked = self.n_bits
        self.n_bits_ = self.default_bits(rows.dimension) if asked is None else int(asked)
        while True:
            try:
                return self._learn(rows, given, np.random.default_rng(seed))
            except TooManyBitsError as error:
                if asked is not None or error.most < 1:
                    raise
                self.n_bits_ = error.most

    def default_bits(self, dimension: int) -> int:
        """Return the bits to learn from rows of this dimension if ``n_bits`` is None."""
        bits = _PROJECTIONS if self.ranks_by_distance() else _LABEL_PROJECTIONS
        return min(bits, dimension) if self.bits_within_dimension else bits

    def default_cuts(self, n_projections: int) -> int:
        """Return the default cuts of an index's codes of this number of projections."""
        return _CUTS if self.takes_cuts() and n_projections * _CUTS <= MAX_BITS else 1

    def chosen_cuts(self, metric: Metric) -> int:
        """Return the cuts of an index's codes if none are asked for, once it has learned."""
        return self.default_cuts(self.n_bits_)

    def _own_cuts(self, metric: Metric) -> int:
        """Return the cuts of `encode`: the codes of papers are signs."""
        return 1

    def _n_bits_again(self, n_cuts: int) -> int:
        """Return the ``n_bits`` that repeat the training of a model of this number of cuts."""
        return self.n_bits_

    def _cuts(self, n_cuts: int, metric: Metric) -> Cuts:
        if n_cuts == 1:
            return SIGNS
        places = np.arange(n_cuts) - (n_cuts - 1) / 2
        deviation = self.long_deviation_ if metric == "ip" else self.deviation_
        return tuple(float(cut) for cut in places * _STEPS[n_cuts] * deviation)

    @abstractmethod
    def _learn(self, rows: RowSource, given: Supervision, rng: np.random.Generator) -> list[Layer]:
        """Learn the layers that follow the normalisation, with ``n_bits_`` bits."""

    def check_parameters(self) -> None:
        """Refuse parameters that are out of range; `fit` calls this first."""
        annotations = get_type_hints(type(self), include_extras=True)
        for name, value in self.get_params().items():
            check_annotated(name, value, annotations.get(name))

    def check_dimension(self, dimension: int) -> None:
        """Refuse rows with too few dimensions for the bits; `fit` calls this too.

        Raises
        ------
        InvalidInputError
        """
        if self.bits_within_dimension and (self.n_bits or 0) > dimension:
            raise InvalidInputError(
                f"{self.method} gives at most one bit for each dimension, of which there are "
                f"{dimension}; n_bits is {self.n_bits}: ask for at most {dimension} bits, or use "
                "sgh or lsh, which have no such limit"
            )

    def check_cuts(self, n_cuts: int) -> None:
        """Refuse a number of cuts that models of this hasher cannot have."""
        if n_cuts not in _STEPS:
            raise InvalidInputError(f"cuts must be 1 to 8, got {n_cuts!r}")
        if n_cuts > 1 and not self.takes_cuts():
            raise InvalidInputError(
                f"models of {self.method} have one cut, not {n_cuts}; methods with several: itq, "
                "lsh, thermometer and others whose codes rank by distance"
            )

    def _bit_weights(self) -> NDArray[np.floating] | None:
        """Return the learned weight of each bit, or None."""
        return None

    def _network(self) -> Network | None:
        """Return the network that follows the layers, which only Python evaluates, or None.

        A network of kind ``rows`` stands alone: `fit` drops the layers that `_learn` returned.
        """
        return None

    @property
    def transductive(self) -> bool:
        """Whether only training rows have codes, so that other queries are refused.

        It depends on the parameters alone, so it is known before `fit`.
        """
        return False

    def _summary(self) -> dict[str, Any]:
        """Return measurements of the method, as JSON values."""
        return {}

    def project(self, X: ArrayLike) -> NDArray[np.float32]:
        """Compute projections, one number for each bit.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        float32 (n, n_bits)

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If X has another dimension than the training rows, or NaN or infinite values; or the
            method is `transductive`, and a row was not in the training.
        """
        return self.to_model(self.method).project(X)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Compute codes: bit 1 where the projection is above 0, most significant bit first.

        Parameters
        ----------
        X : array-like (n, d)

        Returns
        -------
        uint8 (n, ceil(n_bits / 8))

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            As `project`.
        """
        return self.to_model(self.method).encode(X)

    def transform(self, X: ArrayLike) -> NDArray[np.float32]:
        """Return the signs of what `project` returns, 1 and -1, for pipelines of scikit-learn."""
        rows = as_array("vectors", X)
        # scikit-learn wants this message in its own words.
        if hasattr(self, "layers_") and rows.ndim == 2 and rows.shape[1] != self.dimension_:
            raise InvalidInputError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.dimension_} features as input"
            )
        return np.where(self.project(rows) > 0, np.float32(1), np.float32(-1))

    def fit_transform(
        self, X: ArrayLike, y: ArrayLike | None = None, **known: Any
    ) -> NDArray[np.float32]:
        """Learn from rows as `fit`, and return their signs as `transform`."""
        return self.fit(X, y, **known).transform(X)

    @property
    def n_features_in_(self) -> int:
        """``dimension_`` by scikit-learn's name."""
        return self.dimension_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "layers_")

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type="transformer",
            target_tags=TargetTags(required=bool(self.learns_from)),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
        )

    def to_model(
        self,
        name: str,
        *,
        metric: Metric = "l2",
        training: Mapping[str, Any] | None = None,
        cuts: int | None = None,
    ) -> Model:
        """Return a model of what was learned, ready to be stored.

        Parameters
        ----------
        metric : {"l2", "cosine", "ip"}
            The distance that an index of this model ranks by.
        training
            JSON values to add to ``training_``; they replace its values of the same name.
        cuts : int, 1 to 8, optional
            Cuts of each projection, each of which takes a bit; they lie evenly around 0, in
            multiples of ``deviation_``, or ``long_deviation_`` by inner product. By default 1, at
            0; thermometer measures how many are best.

        Raises
        ------
        NotFittedError
            Before `fit`.
        InvalidInputError
            If the name, the metric or the cuts are not usable.
        """
        if not hasattr(self, "layers_"):
            raise NotFittedError(f"this {type(self).__name__} has not learned yet; call fit first")
        cuts = self._own_cuts(metric) if cuts is None else cuts
        self.check_cuts(cuts)
        values = self._cuts(cuts, metric)
        return Model(
            name,
            self.method,
            self.dimension_,
            self.layers_,
            metric,
            self._fitted_settings
            | {"n_bits": self._n_bits_again(cuts), "random_state": self.seed_},
            {**self.training_, **(training or {})},
            bit_weights=self._bit_weights(),
            network=self._network(),
            profile=replace(self.profile_, ones=self._ones[values]),
            cuts=values,
        )

    def settings(self) -> dict[str, Any]:
        """Return the parameters on which the model depends, as JSON values; of arrays the shape."""
        result: dict[str, Any] = {}
        for name, value in self.get_params().items():
            if name in self.runtime_parameters:
                continue
            if isinstance(value, np.generic):
                value = value.item()
            elif not isinstance(value, str | int | float | None):
                # The layers already hold the array, so its shape is enough.
                value = f"given, {' x '.join(map(str, np.shape(value)))}"
            result[name] = value
        return result


def _profiled(model: Model, rows: RowSource, seed: int) -> NDArray[np.float32]:
    most = max(_LEAST_PROFILE_ROWS, min(_PROFILE_ROWS, _PROFILE_VALUES // model.n_bits))
    if model.network is not None and model.network.kind != "rows":
        most = min(most, _NETWORK_PROFILE_ROWS)
    drawn = np.random.default_rng(seed).permutation(rows.n_rows)[:most]
    return model.project(rows.rows(np.sort(drawn)))


def _ones_above(
    projections: NDArray[np.float32], numbers: Iterable[Cuts]
) -> dict[Cuts, NDArray[np.intp]]:
    """Count the ones of each bit, as `quantize` gives them, for several kinds of cuts."""
    columns = np.sort(projections.T, axis=1)
    return {
        cuts: np.stack(
            [
                len(projections) - np.searchsorted(column, np.array(cuts, np.float32), side="right")
                for column in columns
            ],
            axis=1,
        ).ravel()
        for cuts in numbers
    }


def first_and_last(values: NDArray[np.float64]) -> dict[str, float]:
    """Return the first and the last value of a training, as JSON values."""
    return {"first": float(values[0]), "last": float(values[-1])}
