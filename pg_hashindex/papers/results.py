"""A file of measurements, a line of JSON each: added to, and not measured again."""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UNREADABLE, InvalidInputError
from ..quality.scores import SCORING, Measures
from ..training.array_files import SUFFIXES
from .methods import Method
from .outcomes import Outcome
from .splits import Truth

_DIGEST_LETTERS = 16


class Results:
    """Outcomes of `compare`, kept in a file: several programs may add to it at a time.

    A line has all that a measurement depends on: the data and the split by the names of their files
    and a digest of what is in them, how the split was drawn, the method's settings, anchors, bits,
    seed, truths and measures; and then what `Outcome.as_dict` returns.

    Parameters
    ----------
    path
        The file; made by the first measurement.
    data
        The file of the data.
    split
        What `load_splits` was given beside it, as far as it is not None.
    truths, measures
        What is measured.

    Raises
    ------
    InvalidInputError
        If the file cannot be written, which is tried at once, before hours of training, or one of
        its lines is not a measurement; or a file of the data cannot be read.
    """

    def __init__(
        self,
        path: Path,
        data: Path,
        split: Mapping[str, Any],
        truths: Sequence[Truth],
        measures: Measures,
    ) -> None:
        self.path = path
        given = {name: value for name, value in split.items() if value is not None}
        files = [data, *(Path(v) for v in given.values() if str(v).lower().endswith(SUFFIXES))]
        files += [truth.file for truth in truths if truth.file is not None]
        self.facts: dict[str, Any] = {
            "data": data.name,
            "split": {n: v.name if isinstance(v, Path) else v for n, v in given.items()},
            "digest": _digest(files),
            "truths": [truth.name for truth in truths],
            "measures": _plain(asdict(measures)),
        }
        self._lines = _read(path)
        self._append(b"")

    def known(self, method: Method, n_bits: int, seed: int) -> list[Outcome]:
        """Return the outcomes of a method that the file has, if any."""
        key = self._key(method, n_bits, seed)
        found = [line for line in self._lines if all(line.get(k) == v for k, v in key.items())]
        names = Outcome.__dataclass_fields__
        # Two programs may have measured the same: the first one counts.
        kinds = {(line.get("codes"), line.get("distance")): line for line in reversed(found)}
        return [
            Outcome.from_dict({n: line[n] for n in names if n in line})
            for line in reversed(kinds.values())
        ]

    def add(self, method: Method, n_bits: int, seed: int, outcomes: Sequence[Outcome]) -> None:
        """Append the outcomes of one training: all of them, or none if the disk is full."""
        key = self._key(method, n_bits, seed)
        lines = [_plain(outcome.as_dict()) | key for outcome in outcomes]
        text = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        self._append(text)
        self._lines += lines

    def _append(self, text: bytes) -> None:
        try:
            with self.path.open("ab", buffering=0) as file:
                before = file.seek(0, 2)
                try:
                    if file.write(text) != len(text):
                        raise OSError(28, "No space left on device")
                except OSError:
                    file.truncate(before)
                    raise
        except OSError as error:
            raise InvalidInputError(f"cannot write {self.path}: {error.strerror}") from error

    def _key(self, method: Method, n_bits: int, seed: int) -> dict[str, Any]:
        made = {name: getattr(method, name) for name in ("hasher", "labels")}
        made["choices"] = dict(method.choices)
        anchors = method.parameters.get("anchors")
        if isinstance(anchors, np.ndarray):
            anchors = hashlib.sha256(anchors.tobytes()).hexdigest()[:_DIGEST_LETTERS]
        made["anchors"] = anchors
        of_run = {"method": method.name, "n_bits": n_bits, "seed": seed, "scoring": SCORING}
        return _plain(self.facts | of_run | made | {"settings": method.settings()})


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as they are read from JSON again."""
    plain: dict[str, Any] = json.loads(json.dumps(value))
    return plain


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        try:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise InvalidInputError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()[:_DIGEST_LETTERS]


def _read(path: Path) -> list[dict[str, Any]]:
    if not os.path.lexists(path):
        return []
    if not path.is_file():
        raise InvalidInputError(f"{path} is not a file that measurements could be added to")
    try:
        lines = [json.loads(text) for text in path.read_text().splitlines()]
    except UNREADABLE as error:
        raise InvalidInputError(
            f"cannot read measurements from {path}, a line of JSON each: {error}"
        ) from error
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or "scores" not in line:
            raise InvalidInputError(
                f"line {number} of {path} is not a measurement of bench hash; give another file"
            )
    return lines
