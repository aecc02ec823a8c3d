"""The sample that the demo searches: 5,000 descriptions of Debian packages, with embeddings.

MiniLM embeddings (384 dimensions, unit length, float16) of one-line descriptions.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

__all__ = ["Packages", "load_packages"]


@dataclass(frozen=True)
class Packages:
    """The rows of the sample.

    Parameters
    ----------
    embedding : float32 (5000, 384)
    """

    name: list[str]
    section: list[str]
    text: list[str]
    embedding: NDArray[np.float32]


def load_packages() -> Packages:
    """Read the sample."""
    with files(__name__).joinpath("packages.npz").open("rb") as file, np.load(file) as archive:
        return Packages(
            archive["name"].tolist(),
            archive["section"].tolist(),
            archive["text"].tolist(),
            archive["X"].astype(np.float32),
        )
