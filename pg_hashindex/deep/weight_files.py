"""Files of a network's weights, read without executing anything in them."""

import os
import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UNREADABLE, InvalidInputError

__all__ = ["read_weights", "write_weights"]

_MAX_SHOWN = 8


def read_weights(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    optional: Sequence[str] = (),
    replaceable: Sequence[Sequence[str]] = (),
    strict: bool = True,
) -> dict[str, NDArray[np.float32]]:
    """Read the arrays of a network, and check that they fit it.

    Parameters
    ----------
    path : Path
        A ``.npz`` file of NumPy, or a ``.pt`` or ``.pth`` file that holds a state dict.
    shapes : mapping
        The arrays that the network has.
    optional : sequence of str
        Arrays that a file may lack, all or none of them.
    replaceable : sequence of sequences of str
        Groups of arrays that may be left out as a whole unless `strict`.
    strict : bool
        False leaves out such a group if one of its arrays is missing or has another shape, and
        ignores arrays that the network does not have.

    Returns
    -------
    dict of float32 arrays

    Raises
    ------
    InvalidInputError
        If the file cannot be read, or an array is missing, unexpected, of another shape, or not of
        finite floating-point numbers.
    """
    given = _read_arrays(path)
    if set(optional).isdisjoint(given):
        shapes = {name: shape for name, shape in shapes.items() if name not in optional}
    unfit = {
        name: what
        for name, shape in shapes.items()
        if (what := _misfit(name, given.get(name), shape)) is not None
    }
    left_out = {name for group in replaceable if unfit.keys() & set(group) for name in group}
    problems = [what for name, what in unfit.items() if strict or name not in left_out]
    unexpected = [name for name in given if name not in shapes]
    if strict and unexpected:
        problems.append(f"not of this network: {_shortened(unexpected)}")
    if problems:
        advice = "; strict=False takes what fits" if strict and unfit.keys() <= left_out else ""
        raise InvalidInputError(
            f"{path} does not hold the weights of this network: {'; '.join(problems)}{advice}"
        )
    taken = {name: given[name] for name in shapes if name not in left_out}
    return {name: _finite(path, name, array) for name, array in taken.items()}


def write_weights(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a ``.npz`` file; it appears only when it is complete.

    Raises
    ------
    InvalidInputError
        If the path has another suffix, or cannot be written.
    """
    if path.suffix != ".npz":
        raise InvalidInputError(f"weights are written to an .npz file, not to {path}")
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with unfinished.open("xb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        unfinished.replace(path)
    except OSError as error:
        raise InvalidInputError(f"cannot write weights to {path}: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    try:
        if path.suffix == ".npz":
            return _read_npz(path)
        if path.suffix in {".pt", ".pth"}:
            return _read_state(path)
    except InvalidInputError:
        raise
    except (*UNREADABLE, pickle.UnpicklingError) as error:
        reason = str(error) or "it is empty or cut off"
        if isinstance(error, pickle.UnpicklingError):
            # torch's own message advises to load the file unsafely.
            reason = "it holds something other than weights, or is damaged"
        raise InvalidInputError(f"cannot read weights from {path}: {reason}") from error
    raise InvalidInputError(f"cannot read weights from {path}: use an .npz, .pt or .pth file")


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    # Open here, since NumPy leaves a damaged archive open.
    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise InvalidInputError(f"{path} is a single array; weights are an .npz archive")
        return dict(loaded)


def _read_state(path: Path) -> dict[str, NDArray[Any]]:
    with warnings.catch_warnings():
        # torch warns of an unknown pickle protocol before it raises.
        warnings.simplefilter("ignore", UserWarning)
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, Mapping) or not all(
        isinstance(name, str) and isinstance(value, torch.Tensor) for name, value in state.items()
    ):
        raise InvalidInputError(
            f"{path} holds no state dict, which maps names to tensors; save it with "
            "torch.save(network.state_dict(), path)"
        )
    return {
        # NumPy has no bfloat16.
        name: (value.float() if value.is_floating_point() else value).detach().numpy()
        for name, value in state.items()
    }


def _misfit(name: str, array: NDArray[Any] | None, shape: tuple[int, ...]) -> str | None:
    wanted = f"{shape}, out x in x height x width" if len(shape) == 4 else f"{shape}"
    if array is None:
        return f"{name} of shape {wanted} is missing"
    if array.shape != shape:
        return f"{name} has shape {array.shape}, must be {wanted}"
    return None


def _finite(path: Path, name: str, array: NDArray[Any]) -> NDArray[np.float32]:
    if array.dtype.kind != "f":
        raise InvalidInputError(
            f"{path}: {name} is of type {array.dtype}, must be of floating-point numbers"
        )
    with np.errstate(over="ignore"):
        values = array.astype(np.float32, copy=False)
    if not np.isfinite(values).all():
        raise InvalidInputError(f"{path}: {name} holds NaN, infinite or too large values")
    return values


def _shortened(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    return ", ".join(names[:_MAX_SHOWN]) + more
