"""Networks: the last step of a model, which only Python can evaluate.

====== ============================================ ============================================
kind   arrays                                       maps a row x to
====== ============================================ ============================================
rows   fingerprints uint64 (n,), rising, distinct;  the code of that row, as +1 and -1; rows that
       codes uint8 (n, ceil(n_bits / 8))            the network does not know are refused
torch  the parameters of a neural network           its output, by `HashNetwork`
trees  features int32 and thresholds float32        the sum of the leaves that it reaches in
       (n_bits, n_trees, 2^depth - 1) of splits;    the trees of each bit, by `trees`
       leaves float32 (n_bits, n_trees, 2^depth)
====== ============================================ ============================================

Transductive training gives kind ``rows``: codes of its training rows, and no function for others.
The vector identifies a row, so the network takes rows as they are in the table, and its model has
no layers. A model with layers may keep the learned codes of its training rows as such a network
beside them.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidInputError, TooLargeError
from . import codes as packed
from .fingerprints import fingerprints
from .trees import check_trees, votes
from .vectors import MAX_DIMENSION, as_rows

if TYPE_CHECKING:
    from .hash_network import HashNetwork

__all__ = ["Network", "NetworkKind", "known_rows", "read_known_rows"]

NetworkKind = Literal["rows", "torch", "trees"]

_INSTALL = "pip install '.[torch]' in the checkout"
_MOST_ARRAYS = 10_000
# These have a fixed size; an array of objects would be a pickle.
_DTYPES = tuple(
    np.dtype(name)
    for name in ("bool", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8")
)


@dataclass(frozen=True, eq=False)
class Network:
    """A step of a model that SQL cannot evaluate: arrays, and a configuration for their use.

    Parameters
    ----------
    kind
        As in the table above.
    config
        JSON values; empty for kind ``rows``, the ``dimension`` of rows for kind ``trees``.
    arrays : mapping of str to array
        Booleans, integers or floats, at least one of them, none empty; kept read-only.
    n_bits
        Numbers in the output of each row.

    Raises
    ------
    InvalidInputError
        If the kind is unknown, the configuration is not JSON, or arrays are missing, not finite, or
        of a shape or type that the kind does not allow.
    """

    kind: NetworkKind
    config: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    n_bits: int

    def __post_init__(self) -> None:
        if self.kind not in get_args(NetworkKind):
            raise InvalidInputError(
                f"network kind {self.kind!r} is unknown; known are "
                + ", ".join(get_args(NetworkKind))
            )
        if not isinstance(self.n_bits, int | np.integer) or not 1 <= self.n_bits <= MAX_DIMENSION:
            raise InvalidInputError(
                f"n_bits of a network must be 1 to {MAX_DIMENSION}, got {self.n_bits!r}"
            )
        object.__setattr__(self, "n_bits", int(self.n_bits))
        object.__setattr__(self, "config", _checked_config(self.config))
        if not 1 <= len(self.arrays) <= _MOST_ARRAYS:
            raise InvalidInputError(
                f"a network has 1 to {_MOST_ARRAYS} arrays, got {len(self.arrays)}"
            )
        # Sorted, so that equal networks are stored alike.
        names = sorted(map(_checked_name, self.arrays))
        arrays = {name: _checked_array(name, self.arrays[name]) for name in names}
        object.__setattr__(self, "arrays", arrays)
        if self.kind == "rows":
            _check_rows(self)
        elif self.kind == "trees":
            check_trees(self.config, self.arrays, self.n_bits)

    @cached_property
    def checksum(self) -> str:
        """The SHA-256 of the whole network, in hexadecimal; equal for equal networks."""
        canonical = json.dumps(_plain_numbers(self.spec()), sort_keys=True, allow_nan=False)
        digest = hashlib.sha256(canonical.encode())
        for array in self.arrays.values():
            digest.update(_bytes_of(array))
        return digest.hexdigest()

    def project(self, X: ArrayLike, *, first_row: int = 0) -> NDArray[np.float32]:
        """Evaluate the network.

        Parameters
        ----------
        X : array-like (n, d)
            Rows, for kind ``rows`` as they are in the table.
        first_row
            Number of the first row, for messages.

        Returns
        -------
        float32 (n, n_bits)

        Raises
        ------
        InvalidInputError
            If X is not finite rows, the network does not know a row or its output is not finite, or
            torch is needed but not installed.
        """
        rows = as_rows(X)
        if self.kind == "torch":
            return self._evaluate(rows.astype(np.float32, copy=False), first_row)
        if self.kind == "trees":
            rows = as_rows(X, dimension=self.config["dimension"])
            return votes(rows.astype(np.float32, copy=False), **self.arrays)
        places, known = self.places(rows)
        if not known.all():
            raise InvalidInputError(
                f"row {first_row + int(np.argmin(known))} is not one of the "
                f"{len(self.arrays['fingerprints'])} rows that this model was trained on, the only "
                "ones that it has codes for; train it again with this row, or use a method that "
                "encodes new rows"
            )
        bits = packed.unpack(self.arrays["codes"][places], self.n_bits)
        return np.where(bits, np.float32(1), np.float32(-1))

    def places(self, rows: NDArray[np.floating]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Find rows among those of kind ``rows``: a place for each, and whether it is known."""
        known, wanted = self.arrays["fingerprints"], fingerprints(rows)
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return places, known[places] == wanted

    def _evaluate(self, rows: NDArray[np.float32], first_row: int) -> NDArray[np.float32]:
        result = _built(self).project(rows)
        finite = np.isfinite(result).all(axis=1)
        if not finite.all():
            raise TooLargeError(
                f"row {first_row + int(np.argmin(finite))} is too large for this model: its "
                "network takes it beyond what float32 can hold"
            )
        return result

    def spec(self) -> dict[str, Any]:
        """Return everything but the numbers in the arrays, as JSON values."""
        return {
            "kind": self.kind,
            "config": dict(self.config),
            "n_bits": self.n_bits,
            "arrays": [
                {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
                for name, array in self.arrays.items()
            ],
        }

    def parts(self, size: int) -> Iterator[bytes]:
        """Yield the numbers of all arrays in parts of ``size`` bytes; the last may be less."""
        part = bytearray()
        for array in self.arrays.values():
            rest = _bytes_of(array)
            while len(rest):
                taken = size - len(part)
                part += rest[:taken]
                rest = rest[taken:]
                if len(part) == size:
                    yield bytes(part)
                    part.clear()
        if part:
            yield bytes(part)

    @classmethod
    def from_parts(cls, spec: Mapping[str, Any], data: bytearray) -> "Network":
        """Make a network from the results of `spec` and of `parts`, joined, without a copy.

        Nothing in them is executed. What does not fit is refused.
        """
        try:
            arrays, start = {}, 0
            for described in spec["arrays"]:
                dtype, shape = np.dtype(described["dtype"]), tuple(described["shape"])
                if dtype not in _DTYPES or any(side < 1 for side in shape):
                    raise InvalidInputError(
                        f"array {described['name']!r} of a network is {dtype} {shape}"
                    )
                count = math.prod(shape)
                if start + count * dtype.itemsize > len(data):
                    raise InvalidInputError(
                        f"array {described['name']!r} of a network ends beyond its {len(data)} "
                        "bytes"
                    )
                array = np.frombuffer(data, dtype, count, start).reshape(shape)
                array.flags.writeable = False
                arrays[described["name"]] = array
                start += array.nbytes
            kind, config, n_bits = spec["kind"], spec["config"], spec["n_bits"]
        except (KeyError, TypeError, ValueError, AttributeError, SyntaxError) as error:
            if isinstance(error, InvalidInputError):
                raise
            raise InvalidInputError(f"not a network: {error!r}") from error
        if start != len(data):
            raise InvalidInputError(f"a network of {start} bytes has {len(data)}")
        return cls(kind, config, arrays, n_bits)


# Build a network once for all blocks and queries, since building CNN-F takes a second or two.
@lru_cache(maxsize=1)
def _built(network: Network) -> "HashNetwork":
    try:
        from .hash_network import build  # needs torch
    except ImportError as error:
        raise InvalidInputError(
            f"this model is a neural network, which needs torch: {_INSTALL}"
        ) from error
    return build(network.config, network.arrays, network.n_bits)


def known_rows(
    rows: NDArray[Any] | Iterable[ArrayLike], codes: NDArray[np.uint8], n_bits: int
) -> Network:
    """Make a network of kind ``rows`` from rows and their codes, as from `codes.pack`.

    Rows are an array (n, d), or blocks of them, as they are in the table, before any layer. Among
    equal rows, the code of the first one counts.
    """
    blocks = [rows] if isinstance(rows, np.ndarray) else rows
    found = [fingerprints(as_rows(block)) for block in blocks]
    every = np.concatenate(found) if found else np.empty(0, np.uint64)
    if len(every) != len(codes):
        raise InvalidInputError(f"there are {len(every)} rows and {len(codes)} codes")
    distinct, first = np.unique(every, return_index=True)
    return Network("rows", {}, {"fingerprints": distinct, "codes": codes[first]}, n_bits)


def read_known_rows(data: bytearray, n_bits: int) -> Network:
    """Make a network of kind ``rows`` from its parts alone; their length tells how many rows."""
    width = packed.code_bytes(n_bits)
    n_rows = len(data) // (width + 8)
    arrays = [
        {"name": "codes", "dtype": "|u1", "shape": [n_rows, width]},
        {"name": "fingerprints", "dtype": "<u8", "shape": [n_rows]},
    ]
    spec = {"kind": "rows", "config": {}, "n_bits": n_bits, "arrays": arrays}
    return Network.from_parts(spec, data)


def _checked_config(config: Mapping[str, Any]) -> dict[str, Any]:
    try:
        copied = json.loads(json.dumps(dict(config), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"config of a network must be JSON values: {error}") from error
    if not isinstance(copied, dict) or "\\u0000" in json.dumps(copied):
        raise InvalidInputError("config of a network holds a NUL, which PostgreSQL cannot store")
    return copied


def _checked_name(name: Any) -> str:
    if not (isinstance(name, str) and 1 <= len(name) <= 200 and name.isprintable()):
        raise InvalidInputError(f"{name!r} cannot name an array: use 1 to 200 printable characters")
    return name


def _checked_array(name: str, given: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(given)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.dtype not in _DTYPES:
        raise InvalidInputError(f"array {name!r} of a network is of {array.dtype}, not of numbers")
    if not array.size:
        raise InvalidInputError(f"array {name!r} of a network is empty: {array.shape}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise InvalidInputError(f"array {name!r} of a network is not all finite")
    # Copy an array that the caller could still change.
    if array.flags.writeable:
        array = array.copy()
    array = np.require(array, requirements=["C_CONTIGUOUS", "ALIGNED"])
    array.flags.writeable = False
    return array


def _check_rows(network: Network) -> None:
    if network.config:
        raise InvalidInputError(f"a network of kind rows takes no config, got {network.config}")
    if set(network.arrays) != {"fingerprints", "codes"}:
        raise InvalidInputError(
            "a network of kind rows has the arrays codes and fingerprints, got "
            + ", ".join(network.arrays)
        )
    known, codes = network.arrays["fingerprints"], network.arrays["codes"]
    if known.dtype != np.uint64 or known.ndim != 1 or (known[1:] <= known[:-1]).any():
        raise InvalidInputError(
            "fingerprints must be uint64 (n,), rising and distinct; got "
            f"{known.dtype} {known.shape}"
        )
    width = packed.code_bytes(network.n_bits)
    if codes.dtype != np.uint8 or codes.shape != (len(known), width):
        raise InvalidInputError(
            f"codes of {len(known)} rows and {network.n_bits} bits must be uint8 "
            f"({len(known)}, {width}), got {codes.dtype} {codes.shape}"
        )
    unused = 8 * width - network.n_bits
    if unused and (codes[:, -1] & ((1 << unused) - 1)).any():
        raise InvalidInputError(f"the last {unused} bits of codes must be 0: they are not bits")


def _plain_numbers(value: Any) -> Any:
    """Turn whole floats into integers, since PostgreSQL's jsonb does not keep the difference."""
    match value:
        case dict():
            return {key: _plain_numbers(item) for key, item in value.items()}
        case list():
            return [_plain_numbers(item) for item in value]
        case float() if value.is_integer():
            return int(value)
    return value


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data
