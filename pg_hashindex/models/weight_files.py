"""Files of a network's weights, read without executing anything in them."""

import pickle
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import UNREADABLE, InvalidInputError

_MAX_SHOWN = 8


def read_weights(
    path: Path, shapes: Mapping[str, tuple[int, ...]], *, optional: Sequence[str] = ()
) -> dict[str, NDArray[np.float32]]:
    """Read the arrays of a network, of these shapes, from a ``.npz``, ``.pt`` or ``.pth`` file.

    A file may lack the optional arrays, all or none of them. One that cannot be read, or does not
    hold just these arrays, of finite floating-point numbers, is refused.
    """
    given = _read_arrays(path)
    if set(optional).isdisjoint(given):
        shapes = {name: shape for name, shape in shapes.items() if name not in optional}
    misfits = (_misfit(name, given.get(name), shape) for name, shape in shapes.items())
    problems = [what for what in misfits if what is not None]
    if unexpected := [name for name in given if name not in shapes]:
        problems.append(f"not of this network: {_shortened(unexpected)}")
    if problems:
        raise InvalidInputError(
            f"{path} does not hold the weights of this network: {'; '.join(problems)}"
        )
    return {name: _finite(path, name, given[name]) for name in shapes}


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
