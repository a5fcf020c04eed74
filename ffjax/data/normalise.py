"""Zero mean and unit variance per channel, for datasets and for a user's own arrays."""

import math

import numpy as np

_BLOCK = 2**18  # pixels handled at once, so that what is made on the way stays small


def statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel; 1 for the std of a constant channel."""
    channels = 3 if images.ndim == 4 else 1
    means, stds = [], []
    for channel in images.reshape(-1, channels).T:
        if channel.dtype == np.uint8:
            # From the histogram: exact, and without a float copy of the images.
            values, weights = np.arange(256) / 255, np.zeros(256, np.int64)
            for start in range(0, channel.size, _BLOCK):
                weights += np.bincount(channel[start : start + _BLOCK], minlength=256)
        else:
            values, weights = channel, None
        mean = np.average(values, weights=weights)
        std = np.sqrt(np.average((values - mean) ** 2, weights=weights))
        means.append(float(mean))
        stds.append(float(std) if channel.min() < channel.max() and std > 0 else 1.0)
    return tuple(means), tuple(stds)


def normalise(
    images: np.ndarray, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray:
    """(N, H, W[, 3]) -> (N, H * W [* 3]) float32, per channel (x - mean) / std."""
    pixels = images.reshape(-1, len(mean))
    result = np.empty(pixels.shape, np.float32)
    # Of the 256 values that a byte can have, each is computed once.
    tables = ((np.arange(256)[:, None] / 255 - mean) / std).astype(np.float32)
    for start in range(0, len(pixels), _BLOCK):
        block = pixels[start : start + _BLOCK]
        if images.dtype == np.uint8:
            for channel, table in enumerate(tables.T):
                result[start : start + _BLOCK, channel] = table[block[:, channel]]
        else:
            result[start : start + _BLOCK] = (block - mean) / std
    return result.reshape(len(images), math.prod(images.shape[1:]))
