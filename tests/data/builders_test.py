"""Preparing through TFDS, offline, from files in a folder.

These need TensorFlow (pip install 'ffjax[tfds]'); the ones that prepare a whole real
dataset take minutes and run only with FFJAX_SLOW_TESTS=1.
"""

import dataclasses
import io
import os
import pathlib
import shutil
import tarfile

import numpy as np
import official_files
import pytest

from ffjax import data
from ffjax.data import cache, catalog, identity, named, official, tfds, verify
from ffjax.errors import UserError

pytestmark = [
    pytest.mark.skipif(
        not tfds.has_tensorflow(), reason="preparing through TFDS needs TensorFlow"
    ),
    # TensorFlow and what it brings along are not ours to keep free of warnings.
    pytest.mark.filterwarnings("ignore"),
]

slow = pytest.mark.skipif(
    not os.environ.get("FFJAX_SLOW_TESTS"), reason="slow: set FFJAX_SLOW_TESTS=1"
)

# Where a user of CIFAR-10 has its six batches; there is none among the shared files.
CIFAR10 = pathlib.Path(os.environ.get("FFJAX_CIFAR10_DIR", official_files.SHARED))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))


def assert_same(left: data.Dataset, right: data.Dataset) -> None:
    for field in ("train_images", "train_labels", "test_images", "test_labels"):
        assert np.array_equal(getattr(left, field), getattr(right, field)), field


def real(name: str, folder: pathlib.Path = official_files.SHARED) -> str:
    if official.find(name, folder / name) is None:
        pytest.skip(f"the official files are not in {folder / name}")
    return str(folder / name)


@pytest.mark.parametrize("name", ["usps", "svhn", "emnist_letters"])
def test_our_builders_prepare_what_the_files_hold(name, tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    from ffjax.data import builders  # noqa: F401

    shape, classes, writers = official_files.FORMATS[name]
    writer = writers[1] if name == "emnist_letters" else writers[0]
    arrays = official_files.make(shape, classes, train=3 * classes, test=2 * classes)
    writer(tmp_path / "raw" / name, arrays)
    definition = dataclasses.replace(
        data.DATASETS[name],
        train_size=3 * classes,
        test_size=2 * classes,
        digests=verify.canonical(arrays)[1],
    )
    monkeypatch.setitem(data.DATASETS, name, definition)
    infos = tfds.builder_cls(name).url_infos
    assert [info.filename for info in infos.values()] == [
        path.name for path in official.find(name, tmp_path / "raw" / name).paths
    ]
    # The checksums are those of the real files, so ours are refused first.
    manual_dir = str(tmp_path / "raw" / name)
    error = tfds.download.download_manager.NonMatchingChecksumError
    with pytest.raises(error):
        tfds.prepare(name, tmp_path / "wrong", manual_dir=manual_dir)
    for info in infos.values():
        path = tmp_path / "raw" / name / info.filename
        monkeypatch.setattr(info, "checksum", identity.checksum(path))
        monkeypatch.setattr(info, "size", tfds.core.units.Size(path.stat().st_size))
    tfds.prepare(name, tmp_path / "tfds", manual_dir=manual_dir)
    from_tfds = data.load(name, data_dir=str(tmp_path / "tfds"))
    from_files = data.load(name, data_dir=str(tmp_path / "raw"))
    assert from_tfds.source["kind"] == "tfds"
    assert from_files.source["kind"] == "raw"
    assert_same(from_tfds, from_files)
    # And a user of TFDS alone gets them by name, in TFDS's own default format.
    examples, info = tfds.load(
        name,
        split="test",
        data_dir=tmp_path / "own",
        batch_size=-1,
        with_info=True,
        download_and_prepare_kwargs={
            "download_config": tfds.download.DownloadConfig(manual_dir=manual_dir)
        },
    )
    assert info.citation
    assert info.homepage
    assert info.redistribution_info.license
    assert info.features["label"].names == list(definition.class_names)
    counts = np.bincount(np.asarray(examples["label"]), minlength=classes)
    assert counts.tolist() == [2] * classes
    assert_same(data.load(name, data_dir=str(tmp_path / "own")), from_files)


def test_the_checksums_of_usps_are_those_of_the_real_files():
    folder = pathlib.Path(real("usps"))
    for file in catalog.DOWNLOADS["usps"]:
        assert identity.checksum(folder / file.name) == file.sha256
        assert (folder / file.name).stat().st_size == file.size


@slow
@pytest.mark.parametrize("name", ["usps", "mnist", "fashion_mnist"])
def test_real_files_give_the_same_arrays_through_tfds(name, tmp_path):
    tfds.prepare(name, tmp_path, manual_dir=real(name))
    from_tfds = data.load(name, data_dir=str(tmp_path))
    assert from_tfds.source["kind"] == "tfds"
    assert from_tfds.source["verified"]
    assert_same(from_tfds, data.load(name, data_dir=str(official_files.SHARED)))


@slow
def test_cifar10_gives_the_same_arrays_through_tfds(tmp_path, monkeypatch):
    import tensorflow_datasets as tfds

    folder = pathlib.Path(real("cifar10", CIFAR10))
    # The published archive, but for the bytes of the packing.
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for path in sorted(folder.glob("*.bin")):
            tar.add(path, f"cifar-10-batches-bin/{path.name}")
        names = "\n".join(data.DATASETS["cifar10"].class_names).encode()
        entry = tarfile.TarInfo("cifar-10-batches-bin/batches.meta.txt")
        entry.size = len(names)
        tar.addfile(entry, io.BytesIO(names))
    (info,) = tfds.builder_cls("cifar10").url_infos.values()
    monkeypatch.setattr(info, "checksum", identity.checksum(archive))
    monkeypatch.setattr(info, "size", tfds.core.units.Size(archive.stat().st_size))
    tfds.prepare("cifar10", tmp_path, manual_dir=str(tmp_path))
    from_tfds = data.load("cifar10", data_dir=str(tmp_path))
    assert from_tfds.source["kind"] == "tfds"
    assert from_tfds.source["verified"]
    assert_same(from_tfds, data.load("cifar10", data_dir=str(CIFAR10)))


@slow
def test_the_trap_of_one_download_folder_is_seen(tmp_path):
    """TFDS takes the unpacked files of one for the other; we do not train on them."""
    import tensorflow_datasets as tfds

    for name in ("fashion_mnist", "mnist"):
        builder = tfds.builder(name, data_dir=tmp_path, file_format="array_record")
        builder.download_and_prepare(
            download_dir=tmp_path / "downloads",  # one for both: the trap
            download_config=tfds.download.DownloadConfig(manual_dir=real(name)),
        )
    data.load("fashion_mnist", data_dir=str(tmp_path))
    with pytest.raises(UserError, match="holds fashion_mnist, expected mnist"):
        data.load("mnist", data_dir=str(tmp_path))
    # With a folder for each, which prepare sees to, both are right.
    shutil.rmtree(tmp_path / "mnist")
    tfds.prepare("mnist", tmp_path, manual_dir=real("mnist"))
    assert data.load("mnist", data_dir=str(tmp_path)).source["verified"]
