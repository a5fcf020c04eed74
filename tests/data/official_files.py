"""Small datasets in the formats of the official files, for the tests of data."""

import bz2
import gzip
import importlib
import io
import json
import pathlib
import struct
import tarfile
import zipfile
from typing import Any

import numpy as np
import scipy.io

from ffjax.data import official


def make(shape: tuple[int, ...], classes: int, train: int, test: int, seed: int = 0):
    """Random images with every class in both splits: what the files should give."""
    rng = np.random.default_rng(seed)

    def split(count):
        images = rng.integers(0, 256, (count, *shape), np.uint8)
        return images, (np.arange(count) % classes).astype(np.uint8)

    return official.Arrays(*split(train), *split(test))


def idx(array: np.ndarray) -> bytes:
    shape = struct.pack(f">{array.ndim}I", *array.shape)
    return struct.pack(">I", 0x0800 + array.ndim) + shape + array.tobytes()


def write_idx(
    folder: pathlib.Path, arrays: official.Arrays, *, packed: bool = True
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for names, array in zip(official.LAYOUTS["mnist"][0].files, arrays, strict=True):
        if packed:
            (folder / names[0]).write_bytes(gzip.compress(idx(array), 1))
        else:
            (folder / names[1]).write_bytes(idx(array))


def _emnist_members(arrays: official.Arrays) -> dict[str, bytes]:
    files = (names[0] for names in official.LAYOUTS["emnist_letters"][0].files)
    stored = (
        np.ascontiguousarray(array.swapaxes(1, 2)) if array.ndim == 3 else array + 1
        for array in arrays
    )
    return {
        file: gzip.compress(idx(array), 1)
        for file, array in zip(files, stored, strict=True)
    }


def write_emnist(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in _emnist_members(arrays).items():
        (folder / file).write_bytes(content)


def write_emnist_zip(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "gzip.zip", "w") as archive:
        archive.writestr("gzip/emnist-digits-train-images-idx3-ubyte.gz", b"not ours")
        for file, content in _emnist_members(arrays).items():
            archive.writestr(f"gzip/{file}", content)


def _cifar10_batches(arrays: official.Arrays) -> dict[str, bytes]:
    def batch(images, labels):
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), 3072)
        return np.concatenate([labels[:, None], planes], axis=1).tobytes()

    fifths = zip(
        np.array_split(arrays.train_images, 5),
        np.array_split(arrays.train_labels, 5),
        strict=True,
    )
    batches = {f"data_batch_{i}.bin": batch(*part) for i, part in enumerate(fifths, 1)}
    return {**batches, "test_batch.bin": batch(*arrays[2:])}


def write_cifar10(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in _cifar10_batches(arrays).items():
        (folder / file).write_bytes(content)


def write_cifar10_tar(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as archive:
        contents = {**_cifar10_batches(arrays), "batches.meta.txt": b"airplane\n"}
        for file, content in contents.items():
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{file}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_svhn(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        stored = np.where(labels == 0, 10, labels).astype(np.uint8)[:, None]
        content = {"X": images.transpose(1, 2, 3, 0), "y": stored}
        scipy.io.savemat(folder / f"{split}_32x32.mat", content, do_compression=True)


def write_usps(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        values = images.reshape(len(images), 256) / 127.5 - 1
        lines = [
            " ".join([f"{label:.4f}", *(f"{value:.4f}" for value in row)]) + " \n"
            for label, row in zip(labels, values, strict=True)
        ]
        content = gzip.compress("".join(lines).encode())
        (folder / f"zip.{split}.gz").write_bytes(content)


def write_usps_libsvm(folder: pathlib.Path, arrays: official.Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file, images, labels in (("usps", *arrays[:2]), ("usps.t", *arrays[2:])):
        values = images.reshape(len(images), 256) / 127.5 - 1
        lines = [
            " ".join([str(label + 1), *(f"{i}:{v:.6f}" for i, v in enumerate(row, 1))])
            for label, row in zip(labels, values, strict=True)
        ]
        content = bz2.compress(("\n".join(lines) + "\n").encode())
        (folder / f"{file}.bz2").write_bytes(content)


# Dataset -> (shape, classes, the writers of all its layouts).
FORMATS = {
    "mnist": ((28, 28), 10, (write_idx,)),
    "fashion_mnist": ((28, 28), 10, (write_idx,)),
    "cifar10": ((32, 32, 3), 10, (write_cifar10, write_cifar10_tar)),
    "usps": ((16, 16), 10, (write_usps, write_usps_libsvm)),
    "svhn": ((32, 32, 3), 10, (write_svhn,)),
    "emnist_letters": ((28, 28), 26, (write_emnist, write_emnist_zip)),
}


def write_prepared(data_dir: pathlib.Path, name: str, arrays: official.Arrays) -> None:
    """What TFDS makes of a dataset, without the TensorFlow that it makes it with."""
    import tensorflow_datasets as tfds
    from PIL import Image

    # Imported in this way since neither says what it holds.
    records: Any = importlib.import_module("array_record.python.array_record_module")
    proto: Any = importlib.import_module(
        "tensorflow_datasets.proto.tf_example_generated_pb2"
    )

    folder = data_dir / name / "1.0.0"
    folder.mkdir(parents=True)
    height, width, *channels = arrays.train_images.shape[1:]
    image = tfds.features.Image(
        shape=(height, width, *(channels or [1])), encoding_format="png"
    )
    label = tfds.features.ClassLabel(num_classes=int(arrays.train_labels.max()) + 1)
    tfds.features.FeaturesDict({"image": image, "label": label}).save_config(
        str(folder)
    )
    splits = []
    for split, images, labels in (("train", *arrays[:2]), ("test", *arrays[2:])):
        file = folder / f"{name}-{split}.array_record-00000-of-00001"
        writer = records.ArrayRecordWriter(str(file), "group_size:1")
        # Backwards: TFDS does not keep the files' order either.
        for pixels, number in zip(images[::-1], labels[::-1], strict=True):
            png = io.BytesIO()
            Image.fromarray(pixels).save(png, "PNG")
            example = proto.Example()
            feature = example.features.feature
            feature["image"].bytes_list.value.append(png.getvalue())
            feature["label"].int64_list.value.append(int(number))
            writer.write(example.SerializeToString())
        writer.close()
        splits.append(
            {
                "name": split,
                "shardLengths": [str(len(images))],
                "numBytes": "1",
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
            }
        )
    info = {
        "name": name,
        "version": "1.0.0",
        "fileFormat": "array_record",
        "splits": splits,
    }
    (folder / "dataset_info.json").write_text(json.dumps(info))
