"""Files that hold the state of a training, so that it can continue after an interruption."""

import os
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...errors import InvalidInputError


class Checkpoint:
    """A file that holds the state of one training.

    ``training`` identifies it, by parameters and digests of its data. A path that cannot be written
    to is refused at once, not after an hour of training.
    """

    def __init__(self, path: Path, training: Mapping[str, str]) -> None:
        self.path, self.training = path, dict(training)
        if not path.parent.is_dir():
            raise InvalidInputError(f"checkpoint {path}: there is no folder {path.parent}")
        try:
            with tempfile.TemporaryFile(dir=path.parent):
                pass
        except OSError as error:
            raise InvalidInputError(
                f"checkpoint {path}: no file can be written to {path.parent}: {error.strerror}"
            ) from error

    def read(self, load: Callable[[dict[str, Any]], None], device: torch.device) -> None:
        """Load the last state that was written, if there is a file.

        A file that is not a checkpoint, or belongs to another training, is refused; nothing in it
        is executed.
        """
        if not self.path.exists():
            return
        advice = "give another file, or remove this one to start over"
        try:
            with warnings.catch_warnings():
                # torch warns of pickle protocols that it does not know.
                warnings.simplefilter("ignore")
                held = torch.load(self.path, map_location=device, weights_only=True)
            training = dict(held["training"])
            differing = [
                f"{name} {training.get(name, 'nothing')} instead of {value}"
                for name, value in self.training.items()
                if training.get(name) != value
            ]
            if not differing:
                load(held["state"])
        # A foreign file may hold anything, so torch may raise anything.
        except Exception as error:
            reason = str(error).split("\n")[0] or type(error).__name__
            raise InvalidInputError(
                f"{self.path} is not a checkpoint of a training: {reason}; {advice}"
            ) from error
        if differing:
            raise InvalidInputError(
                f"checkpoint {self.path} is of another training, with {', '.join(differing)}; "
                f"{advice}"
            )

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the last state; if that fails, the last state stays."""
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
