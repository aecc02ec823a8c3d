"""Models: the layers of a fitted hasher, independent of its method."""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UNREADABLE, InvalidInputError, TooLargeError
from . import codes
from .layers import Layer
from .network import Network
from .profiles import Profile
from .quantization import (
    SIGNS,
    Cuts,
    QueryOrder,
    above_cuts,
    check_cuts,
    quantize,
    query_codes,
    weighted_query_codes,
)
from .vectors import MAX_DIMENSION, as_rows

#: The most bits of a code, since projections travel as pgvector ``vector`` values.
MAX_BITS = MAX_DIMENSION
MAX_LAYERS = 64

Metric = Literal["l2", "cosine", "ip"]
#: pgvector's operator for each metric, by its bare name.
OPERATORS: Mapping[str, str] = {"l2": "<->", "cosine": "<=>", "ip": "<#>"}

_FILE_FORMAT = 1
# Bytes of a network in a part.
_PART_BYTES = 1 << 24
# Rows in a block, so that memory does not grow with the input.
_BLOCK_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Model:
    """A named list of layers, perhaps with a network after them, that maps vectors to binary codes.

    SQL can evaluate it if it has no network.

    Parameters
    ----------
    name
        At most 63 characters, without ``:`` (which separates name and version).
    method
        The registered name of the hasher that made it, for instance ``"itq"``.
    dimension
        Dimensions of its vectors.
    layers
        1 to 64 layers, a network counting as one; the last one gives the projections. Before a
        network of kind ``rows`` there are no layers, since it knows rows as they are in the table.
    metric : {"l2", "cosine", "ip"}
        The distance that it was trained for, which is the default of its indexes.
    parameters
        The hasher's parameters, as JSON values.
    training
        Facts about the training, as JSON values.
    version
        The store sets it when it saves the model.
    bit_weights : float (n_bits,), optional
        Weights of the bits in distances between codes, 0 or more, at least one above 0; kept as
        float32. None means equal weights.
    network
        A last step that only Python evaluates.
    profile
        Distribution of the projections of training rows, for checks of an index. It has no effect
        on codes, and the checksum does not cover it.
    cuts : float (t,)
        Rising values; a code has a bit for each cut of each projection, all bits of the first cut
        first. One cut at 0 gives the signs.
    learned
        Codes that training gave to its rows, as a network of kind ``rows``. Rows of a table get
        them by `row_codes`; queries never do.

    Raises
    ------
    InvalidInputError
        If layers do not fit each other or the dimension, or a value is out of range.
    """

    name: str
    method: str
    dimension: int
    layers: Sequence[Layer]
    metric: Metric = "l2"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None
    bit_weights: NDArray[np.floating] | None = None
    network: Network | None = None
    profile: Profile | None = None
    cuts: Cuts = SIGNS
    learned: Network | None = None

    def __post_init__(self) -> None:
        check_model_name(self.name)
        if not isinstance(self.method, str):
            raise InvalidInputError(f"method {self.method!r} is not the name of a method")
        if self.metric not in get_args(Metric):
            raise InvalidInputError(f"metric {self.metric!r} is unknown; use l2, cosine or ip")
        dimension: Any = self.dimension
        if not (1 <= dimension <= MAX_DIMENSION and isinstance(dimension, Integral)):
            raise InvalidInputError(f"dimension {self.dimension} is not in 1 to {MAX_DIMENSION}")
        # JSON takes no integer of NumPy.
        object.__setattr__(self, "dimension", int(dimension))
        if not 1 <= len(self.layers) + (self.network is not None) <= MAX_LAYERS:
            raise InvalidInputError(
                f"a model, its network counted, has 1 to {MAX_LAYERS} layers, got "
                f"{len(self.layers) + (self.network is not None)}"
            )
        if self.network is not None and self.network.kind == "rows" and self.layers:
            raise InvalidInputError(
                "a network of kind rows takes rows as they are in the table, but "
                f"{len(self.layers)} layers stand before it"
            )
        object.__setattr__(self, "layers", tuple(self.layers))
        object.__setattr__(self, "cuts", check_cuts(self.cuts))
        n_bits = self.n_bits
        if self.cuts != SIGNS:
            self._check_takes_cuts()
        if self.learned is not None:
            self._check_takes_learned(self.learned)
        if self.bit_weights is not None:
            object.__setattr__(self, "bit_weights", _checked_weights(self.bit_weights, n_bits))
        if self.profile is not None and (self.profile.n_projections, self.profile.n_bits) != (
            self.n_projections,
            n_bits,
        ):
            raise InvalidInputError(
                f"the profile is of {self.profile.n_projections} projections and "
                f"{self.profile.n_bits} bits, the model gives {self.n_projections} and {n_bits}"
            )

    def _check_takes_cuts(self) -> None:
        for what, given in {
            "weights of bits": self.bit_weights is not None,
            "a network": self.network is not None,
            "learned codes": self.learned is not None,
        }.items():
            if given:
                raise InvalidInputError(
                    f"model {self.name!r} has {what}, so it has one cut, at 0; got cuts {self.cuts}"
                )
        if self.n_bits > MAX_BITS:
            raise InvalidInputError(
                f"{self.n_projections} projections with {len(self.cuts)} cuts take {self.n_bits} "
                f"bits, more than the {MAX_BITS} of a code; use fewer cuts or projections"
            )

    def _check_takes_learned(self, learned: Network) -> None:
        if self.network is not None:
            raise InvalidInputError(
                f"model {self.name!r} has a network; learned codes are kept beside layers"
            )
        if (learned.kind, learned.n_bits) != ("rows", self.n_bits):
            raise InvalidInputError(
                f"learned codes are a network of kind {learned.kind} with {learned.n_bits} bits; "
                f"they must be of kind rows, with the {self.n_bits} bits of the model"
            )

    @property
    def n_bits(self) -> int:
        """The number of bits of a code: projections times cuts."""
        return self.n_projections * len(self.cuts)

    @property
    def n_projections(self) -> int:
        """The number of projections."""
        dimension = self.dimension
        for layer in self.layers:
            dimension = layer.output_dimension(dimension)
        return dimension if self.network is None else self.network.n_bits

    @property
    def checksum(self) -> str:
        """The SHA-256 of all that gives codes, in hex; equal for equal models."""
        digest = hashlib.sha256(str(self.dimension).encode())
        for layer in self.layers:
            digest.update(f"|{layer.kind}|{layer.scale!r}".encode())
            if layer.nearest is not None:
                digest.update(f"|{layer.nearest}".encode())
            for array in (layer.weights, layer.bias):
                if array is not None:
                    digest.update(str(array.shape).encode() + array.astype("<f4").tobytes())
        if self.bit_weights is not None:
            digest.update(b"|bit_weights" + self.bit_weights.astype("<f4").tobytes())
        if self.network is not None:
            digest.update(f"|network|{self.network.checksum}".encode())
        if self.learned is not None:
            digest.update(f"|learned|{self.learned.checksum}".encode())
        if self.cuts != SIGNS:
            digest.update(b"|cuts" + np.array(self.cuts, "<f4").tobytes())
        return digest.hexdigest()

    def project(self, X: ArrayLike) -> NDArray[np.float32]:
        """Evaluate the layers, and the network after them.

        Parameters
        ----------
        X : array-like (n, dimension)

        Returns
        -------
        float32 (n, n_projections)

        Raises
        ------
        InvalidInputError
            If X has another dimension, or values that are NaN, infinite or too large for a layer;
            if the network only knows its training rows and these are others; or if it needs torch,
            which is not installed.
        """
        rows = as_rows(X, dimension=self.dimension)
        result = np.empty((len(rows), self.n_projections), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            result[block] = self._project_block(rows[block], start)
        return result

    def project_taken(self, X: ArrayLike) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Project the rows that the model takes: no layer takes them beyond float32.

        Parameters
        ----------
        X : array-like (n, dimension)

        Returns
        -------
        float32 (m, n_projections)
            The projections of the rows that are taken.
        bool (n,)
            Which rows these are.

        Raises
        ------
        InvalidInputError
            As `project`, but for rows that are too large.
        """
        rows = as_rows(X, dimension=self.dimension)
        try:
            return self.project(rows), np.ones(len(rows), dtype=bool)
        except TooLargeError:
            if len(rows) == 1:
                return np.empty((0, self.n_projections), np.float32), np.zeros(1, dtype=bool)
        # Halves, until each row that is too large stands alone.
        halves = [self.project_taken(half) for half in np.array_split(rows, 2)]
        projections, taken = zip(*halves, strict=True)
        return np.concatenate(projections), np.concatenate(taken)

    def _project_block(self, rows: NDArray[np.floating], first_row: int) -> NDArray[np.float32]:
        block = rows.astype(np.float32, copy=False)
        for layer in self.layers:
            with np.errstate(over="ignore", invalid="ignore"):
                block = layer.apply(block)
            # As in SQL, where vectors hold finite numbers only.
            finite = np.isfinite(block).all(axis=1)
            if not finite.all():
                raise TooLargeError(
                    f"row {first_row + int(np.argmin(finite))} is too large for this model: a "
                    f"layer of kind {layer.kind} takes it beyond what float32 can hold"
                )
        return block if self.network is None else self.network.project(block, first_row=first_row)

    def encode(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Compute codes: bit 1 where the projection is above a cut.

        Parameters
        ----------
        X : array-like (n, dimension)

        Returns
        -------
        uint8 (n, ceil(n_bits / 8))
            Most significant bit first.

        Raises
        ------
        InvalidInputError
            As `project`.
        """
        rows = as_rows(X, dimension=self.dimension)
        result = np.empty((len(rows), codes.code_bytes(self.n_bits)), dtype=np.uint8)
        for start in range(0, len(rows), _BLOCK_ROWS):
            block = slice(start, start + _BLOCK_ROWS)
            projections = self._project_block(rows[block], start)
            result[block] = codes.pack(quantize(projections, self.cuts))
        return result

    def row_codes(self, X: ArrayLike) -> NDArray[np.uint8]:
        """Compute the codes of rows of a table: the learned one if training knew the row.

        Rows that training did not know, and all rows of a model without learned codes, have the
        codes of `encode`.

        Parameters
        ----------
        X : array-like (n, dimension)
            Rows as they are in the table.

        Returns
        -------
        uint8 (n, ceil(n_bits / 8))

        Raises
        ------
        InvalidInputError
            As `project`.
        """
        rows = as_rows(X, dimension=self.dimension)
        result = self.encode(rows)
        if self.learned is not None:
            places, known = self.learned.places(rows)
            result[known] = self.learned.arrays["codes"][places[known]]
        return result

    def order(self, X: ArrayLike, metric: Metric) -> QueryOrder:
        """Return the order by code in which an index of this model looks for queries.

        By the model's weights of bits if it has some, else by the projections of the queries; by
        plain Hamming distance if SQL cannot compute these.

        Parameters
        ----------
        X : array-like (n, dimension)
            The queries.
        metric : {"l2", "cosine", "ip"}
            That of the index.

        Raises
        ------
        InvalidInputError
            As `project`.
        """
        if self.bit_weights is not None:
            return QueryOrder(*weighted_query_codes(self.encode(X), self.bit_weights))
        if self.network is not None:
            return QueryOrder(self.encode(X)[:, None], np.ones(1, np.int64))
        return QueryOrder(*query_codes(self._compared(self.project(X), metric)))

    def _compared(self, projections: NDArray[np.float32], metric: Metric) -> NDArray[np.floating]:
        """Return the numbers of queries, one for each bit, that `order` compares."""
        if metric != "ip" or any(layer.kind not in ("shift", "affine") for layer in self.layers):
            return above_cuts(projections, self.cuts)
        # In inner products only the linear part counts, not what layers add to all rows.
        added = self.project(np.zeros((1, self.dimension), np.float32))
        return np.tile(projections - added, len(self.cuts))

    def to_bytes(self) -> bytes:
        """Serialise to one ``npz`` archive without pickled objects."""
        header = {
            "format": _FILE_FORMAT,
            "name": self.name,
            "method": self.method,
            "dimension": self.dimension,
            "metric": self.metric,
            "parameters": dict(self.parameters),
            "training": dict(self.training),
            "layers": [
                {"kind": layer.kind, "scale": layer.scale, "nearest": layer.nearest}
                for layer in self.layers
            ],
            "checksum": self.checksum,
        }
        if self.cuts != SIGNS:
            header["cuts"] = self.cuts
        packed: dict[str, NDArray[Any]] = {}
        for what, network in (("network", self.network), ("learned", self.learned)):
            if network is not None:
                header[what] = network.spec()
                packed[what] = np.frombuffer(b"".join(network.parts(_PART_BYTES)), dtype=np.uint8)
        if self.profile is not None:
            header["profile"] = self.profile.as_dict()
        arrays: dict[str, NDArray[Any]] = {
            "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        }
        for position, layer in enumerate(self.layers):
            for what in ("weights", "bias"):
                if (array := getattr(layer, what)) is not None:
                    arrays[f"{what}_{position}"] = array
        if self.bit_weights is not None:
            arrays["bit_weights"] = self.bit_weights
        buffer = io.BytesIO()
        np.savez(buffer, **arrays, **packed)  # type: ignore[arg-type]
        return buffer.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Model":
        """Read the bytes that `to_bytes` wrote; nothing in them is executed.

        Raises
        ------
        InvalidInputError
            If the data is not a model, is of a newer format, or fails its checksum.
        """
        if not zipfile.is_zipfile(io.BytesIO(data)):
            raise InvalidInputError("not a model file of pg_hashindex: not an archive of NumPy")
        try:
            # Check sizes before unpacking. `to_bytes` compresses nothing.
            with zipfile.ZipFile(io.BytesIO(data)) as members:
                sizes = [member.file_size for member in members.infolist()]
                packed = any(member.compress_type for member in members.infolist())
            if packed or sum(sizes) > len(data):
                raise InvalidInputError(
                    "not a model file of pg_hashindex: it claims to hold "
                    f"{sum(sizes)} bytes, but has {len(data)}"
                )
            with np.load(io.BytesIO(data), allow_pickle=False) as archive:
                header = json.loads(archive["header"].tobytes())
                if header["format"] != _FILE_FORMAT:
                    raise InvalidInputError(
                        f"the model file has format {header['format']}, this release reads "
                        f"{_FILE_FORMAT}; upgrade pg_hashindex"
                    )
                if len(header["layers"]) > MAX_LAYERS:
                    raise InvalidInputError(
                        f"the model file has {len(header['layers'])} layers; a model has 1 to "
                        f"{MAX_LAYERS}"
                    )
                layers = [
                    Layer(
                        spec["kind"],
                        archive.get(f"weights_{position}"),
                        archive.get(f"bias_{position}"),
                        spec["scale"],
                        spec["nearest"],
                    )
                    for position, spec in enumerate(header["layers"])
                ]
                networks = {
                    what: Network.from_parts(header[what], bytearray(archive[what]))
                    for what in ("network", "learned")
                    if what in header
                }
                model = cls(
                    header["name"],
                    header["method"],
                    header["dimension"],
                    layers,
                    header["metric"],
                    dict(header["parameters"]),
                    dict(header["training"]),
                    bit_weights=archive.get("bit_weights"),
                    profile=Profile.from_dict(header["profile"]) if "profile" in header else None,
                    cuts=tuple(header.get("cuts", SIGNS)),
                    network=networks.get("network"),
                    learned=networks.get("learned"),
                )
        except InvalidInputError:
            raise
        except UNREADABLE as error:
            raise InvalidInputError(f"not a model file of pg_hashindex: {error}") from error
        if model.checksum != header.get("checksum"):
            raise InvalidInputError(
                f"the model file is damaged: its checksum is {model.checksum}, "
                f"recorded is {header.get('checksum')}"
            )
        return model


def _checked_weights(given: NDArray[np.floating], n_bits: int) -> NDArray[np.float32]:
    weights = np.array(given, dtype=np.float32)
    if weights.shape != (n_bits,):
        raise InvalidInputError(
            f"bit_weights have shape {weights.shape}, must be ({n_bits},): one for each bit"
        )
    codes.check_weights("bit_weights", weights)
    weights.flags.writeable = False
    return weights


def check_model_name(name: str) -> None:
    """Refuse a name that models must not have."""
    if name == "none":
        raise InvalidInputError("'none' cannot name a model: it stands for an index without one")
    if not re.fullmatch(r"[^:\x00-\x1f]{1,63}", name):
        raise InvalidInputError(
            f"{name!r} cannot name a model: use 1 to 63 characters, none of them ':' or a control "
            "character"
        )
