"""Datasets prepared by TensorFlow Datasets (TFDS): find, read and prepare them.

Reading needs no TensorFlow if the records are in the array_record format, which is what
``prepare`` writes. Preparing needs it.
"""

import importlib.util
import io
import pathlib
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterable

import numpy as np

from ffjax.data import official
from ffjax.errors import UserError

_BLOCK = 1000  # records read at once; ten times faster than singly


def find(name: str, data_dir: pathlib.Path) -> pathlib.Path | None:
    """The folder of the newest prepared version of a dataset, or None."""
    versions = [
        path.parent
        for path in (data_dir / name).glob("*/dataset_info.json")
        if re.fullmatch(r"\d+\.\d+\.\d+", path.parent.name)
    ]
    return max(versions, key=_version, default=None)


def files(folder: pathlib.Path) -> tuple[pathlib.Path, ...]:
    """All files of a prepared dataset."""
    return tuple(sorted(path for path in folder.iterdir() if path.is_file()))


def read(folder: pathlib.Path) -> official.Arrays:
    """Reads the train and test split of a prepared dataset."""
    import tensorflow_datasets as tfds

    try:
        builder = tfds.builder_from_directory(folder)
        array_record = builder.info.file_format == tfds.core.FileFormat.ARRAY_RECORD
        if not array_record and not has_tensorflow():
            raise UserError(
                f"{folder}: its records are not in the array_record format, so "
                "reading them needs TensorFlow: pip install 'ffjax[tfds]'"
            )
        read_split = _read_records if array_record else _read_with_tensorflow
        return official.Arrays(
            *read_split(builder, "train"), *read_split(builder, "test")
        )
    except UserError:
        raise
    except Exception as error:  # TFDS and its readers raise nearly anything
        raise UserError(
            f"{folder}: cannot be read as a prepared TFDS dataset "
            f"({first_line(error)}); remove it and prepare it again"
        ) from None


def has_tensorflow() -> bool:
    """Whether TensorFlow, which preparing needs, is installed."""
    return importlib.util.find_spec("tensorflow") is not None


def prepare(name: str, data_dir: pathlib.Path, *, manual_dir: str = "") -> pathlib.Path:
    """Downloads and prepares a dataset through TFDS; returns its folder.

    Args:
      name: A dataset that TFDS has or that ffjax.data.builders adds.
      data_dir: Where prepared datasets live.
      manual_dir: A folder with the official files, which are then not downloaded.
    """
    import tensorflow_datasets as tfds

    from ffjax.data import builders  # noqa: F401  (adds ours to those of TFDS)

    builder = tfds.builder(name, data_dir=data_dir, file_format="array_record")
    if not manual_dir:
        _check_network(builder.url_infos or {})
    builder.download_and_prepare(
        # A folder of its own: TFDS finds unpacked files again by their names alone,
        # and those of MNIST and Fashion-MNIST are the same.
        download_dir=data_dir / "downloads" / name,
        download_config=tfds.download.DownloadConfig(manual_dir=manual_dir or None),
    )
    return pathlib.Path(builder.data_dir)


def _check_network(urls: Iterable[str]) -> None:
    """Raises OSError at once where TFDS would try again for minutes."""
    if urllib.request.getproxies():
        return  # names may be known to the proxy alone
    for host in {urllib.parse.urlsplit(url).hostname for url in urls}:
        try:
            socket.getaddrinfo(host, None)
        except OSError as error:
            raise OSError(f"cannot reach {host}: {error.strerror}") from None


def _read_records(builder, split: str) -> tuple[np.ndarray, np.ndarray]:
    import PIL.Image
    import tensorflow_datasets as tfds

    # Decoded here: the decoder of TFDS takes twice as long.
    source = builder.as_data_source(
        split=split, decoders={"image": tfds.decode.SkipDecoding()}
    )
    images, labels = [], []
    for start in range(0, len(source), _BLOCK):
        block = range(start, min(start + _BLOCK, len(source)))
        for example in source.__getitems__(list(block)):
            images.append(np.asarray(PIL.Image.open(io.BytesIO(example["image"]))))
            labels.append(example["label"])
    return np.stack(images), np.array(labels)


def _read_with_tensorflow(builder, split: str) -> tuple[np.ndarray, np.ndarray]:
    import tensorflow_datasets as tfds

    examples = tfds.as_numpy(builder.as_dataset(split=split, batch_size=-1))
    images = examples["image"]
    return images[..., 0] if images.shape[-1] == 1 else images, examples["label"]


def _version(folder: pathlib.Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.name.split("."))


def first_line(error: Exception) -> str:
    """What went wrong, fit for a message of a single line."""
    return f"{type(error).__name__}: {error}".splitlines()[0]
