"""Preparing through TFDS, offline, from files in a folder.

These need TensorFlow (pip install 'ffjax[tfds]'); the ones that prepare a whole real
dataset take minutes and run only with FFJAX_SLOW_TESTS=1.
"""

import dataclasses
import importlib
import io
import os
import shutil
import tarfile
from typing import Any

import numpy as np
import official_files
import pytest
from loading import assert_same, real

from ffjax import data
from ffjax.data import identity, official, tfds, verify
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


def load_tfds() -> Any:
    """TFDS itself, whose types say less than it can do."""
    return importlib.import_module("tensorflow_datasets")


def claim(monkeypatch, info, path) -> None:
    """Has TFDS take a file of ours for what was published."""
    from tensorflow_datasets.core.utils import Size

    monkeypatch.setattr(info, "checksum", identity.checksum(path))
    monkeypatch.setattr(info, "size", Size(path.stat().st_size))


@pytest.mark.parametrize("name", ["usps", "svhn", "emnist_letters"])
def test_our_builders_prepare_what_the_files_hold(name, tmp_path, monkeypatch):
    from ffjax.data import builders  # noqa: F401

    framework = load_tfds()
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
    infos = list(framework.builder_cls(name).url_infos.values())
    files = official.find(name, tmp_path / "raw" / name)
    assert files is not None
    assert [info.filename for info in infos] == [path.name for path in files.paths]
    # The checksums are those of the real files, so ours are refused first.
    manual_dir = str(tmp_path / "raw" / name)
    error = framework.download.download_manager.NonMatchingChecksumError
    with pytest.raises(error):
        tfds.prepare(name, tmp_path / "wrong", manual_dir=manual_dir)
    for info, path in zip(infos, files.paths, strict=True):
        claim(monkeypatch, info, path)
    tfds.prepare(name, tmp_path / "tfds", manual_dir=manual_dir)
    from_tfds = data.load(name, data_dir=str(tmp_path / "tfds"))
    from_files = data.load(name, data_dir=str(tmp_path / "raw"))
    assert from_tfds.source["kind"] == "tfds"
    assert from_files.source["kind"] == "raw"
    assert_same(from_tfds, from_files)
    # And a user of TFDS alone gets them by name, in TFDS's own default format.
    examples, info = framework.load(
        name,
        split="test",
        data_dir=tmp_path / "own",
        batch_size=-1,
        with_info=True,
        download_and_prepare_kwargs={
            "download_config": framework.download.DownloadConfig(manual_dir=manual_dir)
        },
    )
    assert info.citation
    assert info.homepage
    assert info.redistribution_info.license
    assert info.features["label"].names == list(definition.class_names)
    counts = np.bincount(np.asarray(examples["label"]), minlength=classes)
    assert counts.tolist() == [2] * classes
    assert_same(data.load(name, data_dir=str(tmp_path / "own")), from_files)


@slow
@pytest.mark.parametrize("name", ["usps", "mnist", "fashion_mnist"])
def test_real_files_give_the_same_arrays_through_tfds(name, tmp_path):
    tfds.prepare(name, tmp_path, manual_dir=str(real(name) / name))
    from_tfds = data.load(name, data_dir=str(tmp_path))
    assert from_tfds.source["kind"] == "tfds"
    assert from_tfds.source.get("verified")
    assert_same(from_tfds, data.load(name, data_dir=str(real(name))))


@slow
def test_cifar10_gives_the_same_arrays_through_tfds(tmp_path, monkeypatch):
    framework = load_tfds()
    folder = real("cifar10") / "cifar10"
    assert list(folder.glob("*.bin"))
    # The published archive, but for the bytes of the packing.
    archive = tmp_path / "cifar-10-binary.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        for path in sorted(folder.glob("*.bin")):
            tar.add(path, f"cifar-10-batches-bin/{path.name}")
        names = "\n".join(data.DATASETS["cifar10"].class_names).encode()
        entry = tarfile.TarInfo("cifar-10-batches-bin/batches.meta.txt")
        entry.size = len(names)
        tar.addfile(entry, io.BytesIO(names))
    (info,) = framework.builder_cls("cifar10").url_infos.values()
    claim(monkeypatch, info, archive)
    tfds.prepare("cifar10", tmp_path, manual_dir=str(tmp_path))
    from_tfds = data.load("cifar10", data_dir=str(tmp_path))
    assert from_tfds.source["kind"] == "tfds"
    assert from_tfds.source.get("verified")
    assert_same(from_tfds, data.load("cifar10", data_dir=str(real("cifar10"))))


@slow
def test_the_trap_of_one_download_folder_is_seen(tmp_path):
    """TFDS takes the unpacked files of MNIST for the other's; we notice it."""
    framework = load_tfds()
    for name in ("fashion_mnist", "mnist"):
        builder = framework.builder(name, data_dir=tmp_path, file_format="array_record")
        builder.download_and_prepare(
            download_dir=tmp_path / "downloads",  # shared by both: the trap
            download_config=framework.download.DownloadConfig(
                manual_dir=str(real(name) / name)
            ),
        )
    data.load("fashion_mnist", data_dir=str(tmp_path))
    with pytest.raises(UserError, match="holds fashion_mnist, expected mnist"):
        data.load("mnist", data_dir=str(tmp_path))
    # With a folder for each, which prepare sees to, both are right.
    shutil.rmtree(tmp_path / "mnist")
    tfds.prepare("mnist", tmp_path, manual_dir=str(real("mnist") / "mnist"))
    assert data.load("mnist", data_dir=str(tmp_path)).source.get("verified")
