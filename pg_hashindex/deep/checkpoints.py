"""Where a training stands, in a file from which it goes on after it was cut off."""

import os
import pickle
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..errors import InvalidInputError

__all__ = ["Checkpoint"]


class Checkpoint:
    """A file that holds the state of one training.

    Parameters
    ----------
    path : Path
    training : mapping of str to str
        What tells this training from others: its parameters and its data.

    Raises
    ------
    InvalidInputError
        If its folder is not there, so that an hour of training is not lost at the end.
    """

    def __init__(self, path: Path, training: Mapping[str, str]) -> None:
        self.path, self.training = path, dict(training)
        if not path.parent.is_dir():
            raise InvalidInputError(f"checkpoint {path}: there is no folder {path.parent}")

    def read(self, device: torch.device) -> dict[str, Any] | None:
        """Return the state that was written last; None where there is no file.

        Parameters
        ----------
        device : torch.device
            Where its tensors go.

        Raises
        ------
        InvalidInputError
            If the file is no checkpoint, or that of another training. Nothing in it is executed.
        """
        if not self.path.exists():
            return None
        advice = "give another file, or remove this one to begin anew"
        try:
            held = torch.load(self.path, map_location=device, weights_only=True)
            training, state = held["training"], held["state"]
            differing = [
                f"{name} {training.get(name, 'nothing')} instead of {value}"
                for name, value in self.training.items()
                if training.get(name) != value
            ]
        # What torch raises on a file that is not its own, or that holds more than data.
        except (OSError, RuntimeError, pickle.UnpicklingError, EOFError, ValueError) as error:
            reason = str(error).split("\n")[0]
            raise InvalidInputError(
                f"{self.path} is no checkpoint of a training: {reason}; {advice}"
            ) from error
        except (KeyError, TypeError, AttributeError) as error:
            raise InvalidInputError(
                f"{self.path} is no checkpoint of a training; {advice}"
            ) from error
        if differing:
            raise InvalidInputError(
                f"checkpoint {self.path} is of another training, with {', '.join(differing)}; "
                f"{advice}"
            )
        result: dict[str, Any] = state
        return result

    def write(self, state: Mapping[str, Any]) -> None:
        """Put a state in the place of the last one, or leave that as it is."""
        descriptor, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                torch.save({"training": self.training, "state": dict(state)}, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
