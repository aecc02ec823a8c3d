"""Rows of a database as the images that a convolutional network takes."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812

from ..errors import InvalidInputError

_COLOURS = 3
# Pixels in a block, so that memory does not grow with the rows.
_BLOCK_PIXELS = 1 << 22


class Pixels(torch.nn.Module):
    """Centre, scale and stretch images that rows hold.

    Parameters
    ----------
    image_shape : (int, int, int)
        Height, width and channels, 1 or 3, of the images. A row holds their pixels line by line,
        the channels of a pixel side by side, red first. A single channel is taken three times.
    size : int
        Images are stretched to this height and width, bilinearly, and smoothed first if that makes
        them smaller.

    Attributes
    ----------
    dimension : int
        Values in a row: the product of `image_shape`.
    mean : float32 (3, height, width)
        Buffer: the mean that is subtracted from pixels, 0 until it is set.
    scale : float32 (3, 1, 1)
        Buffer: the scale that they are divided by then, 1 until it is set.

    Raises
    ------
    InvalidInputError
        If `image_shape` is not the shape of an image.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, image_shape: Sequence[int], size: int) -> None:
        super().__init__()
        if len(image_shape) != 3 or min(image_shape) < 1:
            raise InvalidInputError(
                f"image_shape {tuple(image_shape)} must be height, width and channels, each above 0"
            )
        height, width, channels = (int(side) for side in image_shape)
        if channels not in {1, _COLOURS}:
            raise InvalidInputError(
                f"image_shape {tuple(image_shape)} ends in {channels} channels; images have 1 or 3"
            )
        self.image_shape = (height, width, channels)
        self.size = size
        self.dimension = height * width * channels
        self.register_buffer("mean", torch.zeros(_COLOURS, height, width))
        self.register_buffer("scale", torch.ones(_COLOURS, 1, 1))

    def fit_statistics(self, X: NDArray[Any]) -> None:
        """Set the mean of each channel, and one scale for all, from rows (n, dimension)."""
        self._check_shape(X.shape)
        if not len(X):
            raise InvalidInputError("no rows to take the mean and scale of pixels from")
        pixels = X.reshape(len(X), -1, self.image_shape[2])
        rows = max(1, _BLOCK_PIXELS // self.dimension)
        starts = range(0, len(X), rows)
        mean = np.zeros(self.image_shape[2])
        for start in starts:
            mean += pixels[start : start + rows].sum(axis=(0, 1), dtype=np.float64)
        mean /= len(X) * pixels.shape[1]
        squares = 0.0
        for start in starts:
            squares += float(np.square(pixels[start : start + rows] - mean).sum())
        self.mean.copy_(torch.from_numpy(mean)[:, None, None])
        # If all pixels are the same, there is nothing to scale.
        self.scale.fill_(math.sqrt(squares / X.size) or 1.0)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Return the images, float32 (n, 3, size, size), of rows (n, dimension)."""
        self._check_shape(tuple(X.shape))
        pixels = X.to(self.mean.dtype).reshape(-1, *self.image_shape)
        # Broadcasting makes three channels of one.
        images = (pixels.permute(0, 3, 1, 2).contiguous() - self.mean) / self.scale
        shrinks = max(self.image_shape[:2]) > self.size
        return F.interpolate(images, (self.size, self.size), mode="bilinear", antialias=shrinks)

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or shape[1] != self.dimension:
            height, width, channels = self.image_shape
            raise InvalidInputError(
                f"rows have shape {shape}, must be (n, {self.dimension}) for images of "
                f"{height} x {width} pixels and {channels} channel{'s' if channels > 1 else ''}"
            )
