"""The shapes of maps, which convolutional layers read and pass on.

Nothing here imports jax, so that a run can be checked and its cost be known before.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from ffjax.errors import UserError


class Shape(NamedTuple):
    """Of a map: an array of channels at each position."""

    height: int
    width: int
    channels: int

    @property
    def positions(self) -> int:
        """How many there are."""
        return self.height * self.width

    @property
    def size(self) -> int:
        """How many values."""
        return math.prod(self)


@dataclasses.dataclass(frozen=True)
class Maps:
    """What makes the layers of a network convolutions; hashable, for jit.

    Attributes:
      image: the shape of the images.
      kernel: height and width of the window that a unit sees, an odd number.
      pool: of each layer 1 where its map is averaged over squares of 2 x 2 before the
        next layer reads it, and 0 where it is not.
    """

    image: Shape
    kernel: int
    pool: tuple[int, ...]

    def reads(self, widths: Sequence[int], index: int) -> Shape:
        """The map that layer ``index`` reads, for layers with so many channels."""
        shrunk = 2 ** sum(self.pool[:index])
        channels = widths[index - 1] if index else self.image.channels
        height, width, _ = self.image
        return Shape(height // shrunk, width // shrunk, channels)

    def makes(self, widths: Sequence[int], index: int) -> Shape:
        """The map of layer ``index`` before any pooling."""
        return self.reads(widths, index)._replace(channels=widths[index])

    def fan_in(self, widths: Sequence[int], index: int) -> int:
        """How many values a unit of layer ``index`` sees."""
        return self.kernel**2 * self.reads(widths, index).channels


def make(
    image_shape: Sequence[int], kernel: int, pool: Sequence[int], num_layers: int
) -> Maps:
    """The maps of a network; a UserError where there can be none.

    Args:
      image_shape: (H, W) or (H, W, C).
      kernel: height and width of the window.
      pool: 0 or 1 for each layer; nothing: no pooling.
      num_layers: how many layers.
    """
    if len(image_shape) not in (2, 3):
        raise UserError(
            f"layer='conv': an image has the shape {tuple(image_shape)}; must be "
            "(H, W) or (H, W, C)"
        )
    height, width = image_shape[:2]
    if kernel > min(height, width):
        raise UserError(
            f"kernel={kernel}: must not be larger than the images ({height} x {width})"
        )
    if pool and len(pool) != num_layers:
        raise UserError(
            f"pool={tuple(pool)}: has {len(pool)} entries for {num_layers} layers; "
            "must be 0 or 1 for each layer"
        )
    channels = image_shape[2] if len(image_shape) == 3 else 1
    chosen = tuple(pool) or (0,) * num_layers
    maps = Maps(Shape(height, width, channels), kernel, chosen)
    for index, is_pooled in enumerate(chosen):
        below = maps.reads((0,) * num_layers, index)
        if is_pooled and (below.height % 2 or below.width % 2):
            raise UserError(
                f"pool={chosen}: the map of layer {index + 1} is {below.height} x "
                f"{below.width}; both must be even where it is pooled"
            )
    return maps


def check_groups(widths: Sequence[int], num_classes: int, field: str) -> None:
    """Raises a UserError unless each layer can be split into a group for each class.

    Args:
      widths: units or channels of each layer.
      num_classes: C.
      field: what asks for groups, such as "pathway='groups'".
    """
    for width in widths:
        if width % num_classes:
            raise UserError(
                f"width={width}: must be a multiple of the number of classes "
                f"({num_classes}) with {field}"
            )
