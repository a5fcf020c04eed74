"""Makes fashion_mini.npz, the embedded dataset: make_fashion_mini.py FOLDER [OUTPUT].

FOLDER holds Fashion-MNIST's four IDX files, packed or not. Those of the package were
taken from Debian's dataset-fashion-mnist 0.0~git20200523.55506a9-1, where they lie in
/usr/share/datasets/fashion-mnist; their contents equal the official ones. The subset
is the first 600 training and the first 200 test images of each class, in file order.
"""

import pathlib
import sys

import numpy as np

from ffjax.data import official

_TRAIN_PER_CLASS = 600
_TEST_PER_CLASS = 200


def _first(images: np.ndarray, labels: np.ndarray, count: int) -> list[np.ndarray]:
    """The first ``count`` images of each class, in file order."""
    chosen = [np.flatnonzero(labels == label)[:count] for label in range(10)]
    keep = np.sort(np.concatenate(chosen))
    return [images[keep], labels[keep].astype(np.uint8)]


def main(folder: pathlib.Path, output: pathlib.Path) -> None:
    """Writes the subset to ``output``."""
    files = official.find("fashion_mnist", folder)
    if files is None:
        raise SystemExit(f"{folder}: the four IDX files of Fashion-MNIST are not there")
    arrays = official.read(files)
    train = _first(arrays.train_images, arrays.train_labels, _TRAIN_PER_CLASS)
    test = _first(arrays.test_images, arrays.test_labels, _TEST_PER_CLASS)
    np.savez_compressed(
        output,
        train_images=train[0],
        train_labels=train[1],
        test_images=test[0],
        test_labels=test[1],
    )


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    _here = pathlib.Path(__file__).parent / "fashion_mini.npz"
    main(pathlib.Path(sys.argv[1]), pathlib.Path((sys.argv[2:] or [_here])[0]))
