import gzip
import json
import subprocess
import sys

import numpy as np
import official_files
import pytest
from loading import ARRAYS, assert_same, real, refusal, run_environment

from ffjax import data
from ffjax.data import named, official, tfds

# The embedded dataset.


def test_fashion_mini_needs_no_jax_no_tensorflow_no_network_and_no_cache(tmp_path):
    code = (
        "import sys, socket; socket.socket.connect = None\n"
        "from ffjax import data; data.load('fashion_mini')\n"
        "print({'jax', 'tensorflow', 'tensorflow_datasets'} & set(sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=run_environment(HOME=str(tmp_path)),
        capture_output=True,
        text=True,
    )
    assert (result.stdout, result.stderr) == ("set()\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "altered", "absent"])
def test_a_damaged_embedded_file_is_refused(damage, tmp_path, monkeypatch):
    content = bytearray(named._MINI.read_bytes())
    assert len(content) < 5e6, "part of the package"
    content[1000] ^= 1
    path = tmp_path / "fashion_mini.npz"
    if damage != "absent":
        path.write_bytes(content if damage == "altered" else content[:-1])
    monkeypatch.setattr(named, "_MINI", path)
    message = refusal("fashion_mini")
    assert str(path) in message
    assert "install ffjax anew" in message


def test_fashion_mini_is_part_of_fashion_mnist(tmp_path):
    folder = real("fashion_mnist") / "fashion_mnist"
    output = tmp_path / "mini.npz"
    subprocess.run(
        [sys.executable, "-m", "ffjax.data.make_fashion_mini", folder, output],
        check=True,
        env=run_environment(),
    )
    with np.load(output) as made, np.load(named._MINI) as embedded:
        assert sorted(made) == sorted(embedded) == sorted(ARRAYS)
        for key in ARRAYS:
            np.testing.assert_array_equal(made[key], embedded[key])


# The six datasets, on small files of the official formats.


def examples(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
    """The multiset of (image, label) pairs."""
    pairs = zip(images, labels, strict=True)
    return sorted(image.tobytes() + bytes([label]) for image, label in pairs)


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_all_sources_of_a_dataset_give_the_same_arrays(name, shrink, tmp_path):
    arrays = shrink(name)
    loaded = []
    for number, writer in enumerate(official_files.FORMATS[name][2]):
        writer(tmp_path / str(number) / name, arrays)
        loaded.append(data.load(name, data_dir=str(tmp_path / str(number))))
        assert loaded[-1].source["kind"] == "raw"
    official_files.write_prepared(tmp_path / "tfds", name, arrays)
    loaded.append(data.load(name, data_dir=str(tmp_path / "tfds")))
    assert loaded[-1].source["kind"] == "tfds"
    assert len(loaded) > 1
    for dataset in loaded:
        assert_same(dataset, loaded[0])
        assert dataset.source.get("verified")
        assert str(tmp_path) not in json.dumps(dataset.source)
    first = loaded[0]
    pixels = first.train_images.reshape(-1, len(first.mean)) * first.std + first.mean
    pixels = np.round(pixels * 255).astype(np.uint8).reshape(arrays.train_images.shape)
    assert examples(pixels, first.train_labels) == examples(*arrays[:2])


def test_real_files_unpacked_are_known_by_content(tmp_path):
    root = real("usps")
    (tmp_path / "usps").mkdir()
    for file in ("zip.train", "zip.test"):
        content = gzip.decompress((root / "usps" / f"{file}.gz").read_bytes())
        (tmp_path / "usps" / file).write_bytes(content)
    packed = data.load("usps", data_dir=str(root))
    unpacked = data.load("usps", data_dir=str(tmp_path))
    assert_same(packed, unpacked)
    assert unpacked.source.get("verified")
    assert list(unpacked.source["files"]) == ["zip.train", "zip.test"]


# Data that is not there.


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_without_tensorflow_the_error_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tfds, "has_tensorflow", lambda: False)
    message = refusal(name, data_dir=str(tmp_path))
    assert "pip install 'ffjax[tfds]'" in message
    assert f"into {tmp_path / name}" in message
    assert official.LAYOUTS[name][0].files
    for names in official.LAYOUTS[name][0].files:
        assert names[0] in message
    assert list(tmp_path.iterdir()) == []


def test_without_a_network_the_error_lists_the_files(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise OSError("cannot reach example.org")

    monkeypatch.setattr(tfds, "has_tensorflow", lambda: True)
    monkeypatch.setattr(tfds, "prepare", fail)
    message = refusal("svhn", data_dir=str(tmp_path))
    for part in ("train_32x32.mat", "test_32x32.mat", str(tmp_path / "svhn"), "reach"):
        assert part in message


def test_only_the_missing_files_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(tfds, "has_tensorflow", lambda: False)
    (tmp_path / "svhn").mkdir()
    (tmp_path / "svhn" / "train_32x32.mat").write_bytes(b"")
    message = refusal("svhn", data_dir=str(tmp_path))
    assert "test_32x32.mat" in message
    assert "train_32x32.mat" not in message


def test_the_usual_folder_of_tfds(shrink, tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    official_files.write_usps(tmp_path / "usps", shrink("usps"))
    assert len(data.load("usps").train_images) == 30


def test_a_data_dir_that_is_no_folder(tmp_path):
    absent = str(tmp_path / "absent")
    assert f"data_dir={absent!r}" in refusal("mnist", data_dir=absent)
