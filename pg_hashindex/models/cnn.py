"""CNN-F: the convolutional network that computes 4096 features from an image's pixels."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F  # noqa: N812

from ..errors import InvalidInputError

#: The smallest input that leaves a cell after the last pooling.
LEAST_INPUT_SIZE = 39

_COLOURS = 3
# Pixels in a block, so that memory does not grow with the rows.
_BLOCK_PIXELS = 1 << 22


class CNNF(torch.nn.Module):
    """The feature network of BGDH and DPSH for images (Yan, Zhang & Li 2017, Table 1).

    CNN-F is the fast network of Chatfield, Simonyan, Vedaldi & Zisserman (2014), without its last
    layer. With ``input_size`` 224, the side of the maps after each layer:

    ===== ============ ====== === === ======= ==== ==========
    layer filters      stride pad LRN pooling side parameters
    ===== ============ ====== === === ======= ==== ==========
    conv1 64 x 11 x 11 4      0   yes 2 x 2   27   23,296
    conv2 256 x 5 x 5  1      2   yes 2 x 2   13   409,856
    conv3 256 x 3 x 3  1      1   no  no      13   590,080
    conv4 256 x 3 x 3  1      1   no  no      13   590,080
    conv5 256 x 3 x 3  1      1   no  2 x 2   6    590,080
    full6 4096                                     37,752,832
    full7 4096                                     16,781,312
    ===== ============ ====== === === ======= ==== ==========

    Details that the table leaves open are as in Chatfield et al. and Krizhevsky et al. (2012): a
    ReLU after every layer and before normalisation; local response normalisation over 5 channels, a
    / (2 + 1e-4 * sum of a^2) ^ 0.75; dropout after full6 and full7. Pooling takes windows of 2 x 2
    as the table says.

    Parameters
    ----------
    image_shape : (int, int, int)
        Height, width and channels, 1 or 3, of the images. A row holds their pixels line by line,
        the channels of a pixel side by side, red first. A single channel is taken three times.
    input_size
        Images are stretched to this many pixels in height and width, bilinearly. At least 39. Fewer
        than 224 cost less: full6 then takes fewer cells, at 64 one of each channel instead of 36.
    dropout
        Share of the features of full6 and full7 that training sets to 0.

    Attributes
    ----------
    input_dimension
        Values in a row: the product of `image_shape`.
    output_dimension
        4096.
    generator
        The random generator of dropout, on the network's device; None for torch's own.

    Raises
    ------
    InvalidInputError
        If a parameter is out of range.
    """

    output_dimension = 4096

    def __init__(
        self, image_shape: Sequence[int], *, input_size: int = 224, dropout: float = 0.5
    ) -> None:
        super().__init__()
        if input_size < LEAST_INPUT_SIZE:
            raise InvalidInputError(
                f"input_size {input_size} leaves nothing after the last pooling; it must be at "
                f"least {LEAST_INPUT_SIZE}"
            )
        if not 0 <= dropout < 1:
            raise InvalidInputError(f"dropout {dropout} must be 0 or more and below 1")
        self.input_size = int(input_size)
        self.dropout = float(dropout)
        self.generator: torch.Generator | None = None
        self.pixels = Pixels(image_shape, self.input_size)
        self.image_shape = self.pixels.image_shape
        self.input_dimension = self.pixels.dimension
        self.conv1 = _layer(torch.nn.Conv2d, 3, 64, 11, stride=4)
        self.norm1 = _normalization()
        self.pool1 = torch.nn.MaxPool2d(2)
        self.conv2 = _layer(torch.nn.Conv2d, 64, 256, 5, padding=2)
        self.norm2 = _normalization()
        self.pool2 = torch.nn.MaxPool2d(2)
        self.conv3 = _layer(torch.nn.Conv2d, 256, 256, 3, padding=1)
        self.conv4 = _layer(torch.nn.Conv2d, 256, 256, 3, padding=1)
        self.conv5 = _layer(torch.nn.Conv2d, 256, 256, 3, padding=1)
        self.pool5 = torch.nn.MaxPool2d(2)
        side = ((self.input_size - 11) // 4 + 1) // 2 // 2 // 2
        self.full6 = _layer(torch.nn.Linear, 256 * side * side, 4096)
        self.full7 = _layer(torch.nn.Linear, 4096, self.output_dimension)
        self.reset_parameters(torch.Generator().manual_seed(0))

    def reset_parameters(self, generator: torch.Generator) -> None:
        """Draw all weights, for training from scratch.

        Where the paper starts from weights trained on ImageNet, these are normal of variance 2 /
        inputs, biases 0 (He et al. 2015), and each filter is centred. Features are 0 or more, so
        their mean would otherwise pass every filter: all images would look alike to full7, and the
        first steps would lose the codes.

        Equal states of the generator give equal weights on any device.
        """
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("bias"):
                    parameter.zero_()
                    continue
                deviation = math.sqrt(2 / parameter[0].numel())
                drawn = torch.empty(parameter.shape, device=generator.device)
                drawn.normal_(0, deviation, generator=generator)
                inputs = tuple(range(1, drawn.ndim))
                parameter.copy_(drawn.sub_(drawn.mean(dim=inputs, keepdim=True)))

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        """Compute the features, float32 (n, 4096), of rows (n, input_dimension)."""
        maps = self.pixels(X)
        maps = self.pool1(self.norm1(F.relu(self.conv1(maps))))
        maps = self.pool2(self.norm2(F.relu(self.conv2(maps))))
        maps = F.relu(self.conv3(maps))
        maps = F.relu(self.conv4(maps))
        maps = self.pool5(F.relu(self.conv5(maps)))
        features = self._dropped(F.relu(self.full6(maps.flatten(1))))
        return self._dropped(F.relu(self.full7(features)))

    def _dropped(self, features: torch.Tensor) -> torch.Tensor:
        # torch's own dropout always draws from the global generator.
        if not self.training or not self.dropout:
            return features
        kept = torch.empty_like(features).bernoulli_(1 - self.dropout, generator=self.generator)
        return features * kept / (1 - self.dropout)


class Pixels(torch.nn.Module):
    """Centre, scale and stretch the images that rows hold, as `CNNF` describes.

    Images that become smaller are smoothed first. The buffers are the mean that is subtracted from
    pixels, ``mean`` (3, height, width), 0 until it is set, and the scale that they are divided by
    then, ``scale`` (3, 1, 1), 1 until it is set.
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


def _layer(kind: type[torch.nn.Module], *sizes: int, **options: int) -> torch.nn.Module:
    # Skip the weights that torch would draw from its global generator.
    layer: torch.nn.Module = torch.nn.utils.skip_init(  # type: ignore[no-untyped-call]
        kind, *sizes, **options
    )
    return layer


def _normalization() -> torch.nn.Module:
    # torch divides alpha by the size.
    return torch.nn.LocalResponseNorm(5, alpha=5 * 1e-4, beta=0.75, k=2.0)
