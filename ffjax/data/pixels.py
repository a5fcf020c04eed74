"""Zero mean and unit variance per channel, for datasets and for a user's own arrays.

    x -> (x / 255 - mean) / std

in float64, rounded to float32 once. The values count, not their type: a 7 gives the
same bits from bytes, integers and floats, in any memory layout. Bytes, which the
paper's datasets have, only take a shorter way to them.
"""

import math
from collections.abc import Iterator

import numpy as np

_BLOCK = 2**18  # values handled at once, so that what is made on the way stays small


def statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of x / 255; 1 for the std of a constant channel.

    Args:
      images: (N, ...) numbers; with four axes, the last is that of the channels.

    Returns:
      The means and the standard deviations, a number for each channel.
    """
    channels = images.shape[-1] if images.ndim == 4 else 1
    pairs = [
        _byte_statistics(channel) if _holds_bytes(channel) else _statistics(channel)
        for channel in images.reshape(-1, channels).T
    ]
    return tuple(mean for mean, _ in pairs), tuple(std for _, std in pairs)


def normalise(
    images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(x / 255 - mean) / std per channel: (N, ...) -> (N, D) float32."""
    rows = images.reshape(-1, len(mean))
    result = np.empty(rows.shape, np.float32)
    # Of the 256 values that a byte can have, each is computed once.
    tables = ((np.arange(256)[:, None] / 255 - mean) / std).astype(np.float32)
    for start in range(0, len(rows), _BLOCK):
        block = rows[start : start + _BLOCK]
        if images.dtype == np.uint8:
            for channel, table in enumerate(tables.T):
                result[start : start + _BLOCK, channel] = table[block[:, channel]]
        else:
            result[start : start + _BLOCK] = (as_float64(block) / 255 - mean) / std
    return result.reshape(len(images), math.prod(images.shape[1:]))


def as_float64(values: np.ndarray) -> np.ndarray:
    """The values as float64, with 0 for -0.0, which equals it but has other bits."""
    return values.astype(np.float64) + 0.0


def is_byte(values: np.ndarray) -> np.ndarray:
    """Of each float64 whether it is a whole number from 0 to 255."""
    return (values >= 0) & (values <= 255) & (values == np.floor(values))


def _holds_bytes(channel: np.ndarray) -> bool:
    return channel.dtype in (np.uint8, np.bool_) or all(
        is_byte(as_float64(block)).all() for block in _blocks(channel)
    )


def _byte_statistics(channel: np.ndarray) -> tuple[float, float]:
    """From the histogram: exact, and without a float copy of the images."""
    values, weights = np.arange(256) / 255, np.zeros(256, np.int64)
    for block in _blocks(channel):
        weights += np.bincount(block.astype(np.uint8), minlength=256)
    mean = np.average(values, weights=weights)
    std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
    return float(mean), float(std) if np.count_nonzero(weights) > 1 else 1.0


def _statistics(channel: np.ndarray) -> tuple[float, float]:
    """Of any numbers; the blocks' sums are added exactly."""
    low = min(block.min() for block in _blocks(channel))
    high = max(block.max() for block in _blocks(channel))
    mean = _mean(as_float64(block) / 255 for block in _blocks(channel))
    variance = _mean(
        (as_float64(block) / 255 - mean) ** 2 for block in _blocks(channel)
    )
    std = math.sqrt(variance)
    return mean, std if low < high and std > 0 else 1.0


def _mean(blocks: Iterator[np.ndarray]) -> float:
    sums, sizes = zip(*((block.sum(), block.size) for block in blocks), strict=True)
    return math.fsum(sums) / sum(sizes)


def _blocks(channel: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, channel.size, _BLOCK):
        yield channel[start : start + _BLOCK]
