import dataclasses
import gzip
import hashlib
import shutil

import numpy as np
import official_files
import pytest
from loading import real, refusal

from ffjax import data
from ffjax.data import catalog, identity, official, verify

# The order.


def test_the_order_is_that_of_the_digests():
    """By hand, so that no change of the code can change the order of a dataset."""
    images, labels, *_ = official_files.make((4, 5), 3, train=30, test=9)
    keys = [
        hashlib.sha256(int(label).to_bytes(4, "little") + image.tobytes()).digest()
        for image, label in zip(images, labels, strict=True)
    ]
    order = np.array(sorted(range(30), key=keys.__getitem__))
    assert order.tolist() != list(range(30))
    sorted_images, sorted_labels = data.in_order(images, labels)
    np.testing.assert_array_equal(sorted_images, images[order])
    np.testing.assert_array_equal(sorted_labels, labels[order])
    content = hashlib.sha256(b"".join(keys[i] for i in order)).hexdigest()
    arrays = official.Arrays(images, labels, images, labels)
    assert verify.canonical(arrays)[1] == (content, content)


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ([0, 1], ["?", "u1", "i1", "i8", "f2", "f4", "f8"]),
        ([0, 7, 255], ["u1", "i2", ">i2", "i8", "f4", ">f4", "f8", "g"]),
        ([-3, 0, 300], ["i2", "i8", "f2", "f4", ">f8"]),
        ([-2.5, 0.0, 0.25, 1000.0], ["f2", "f4", "f8", "g"]),
    ],
)
def test_equal_values_have_the_same_order_in_any_type(values, types, monkeypatch):
    monkeypatch.setattr(verify, "_BLOCK", 7 * 20)  # several blocks, the last is short
    rng = np.random.default_rng(0)
    images = rng.choice(values, (100, 4, 5)).astype(types[0])
    labels = rng.integers(0, 10, 100)
    expected = data.in_order(images, labels)
    assert len(types) > 1
    for name in types[1:]:
        same = images.astype(name)
        strided = np.repeat(same, 2, axis=2)[:, :, ::2]
        for layout in (same, np.asfortranarray(same), strided, same.reshape(100, 20)):
            for kind in (np.uint8, np.int64):
                result = data.in_order(layout, labels.astype(kind))
                assert result[0].dtype == same.dtype
                pixels = result[0].reshape(100, 4, 5)
                np.testing.assert_array_equal(pixels, expected[0])
                np.testing.assert_array_equal(result[1], expected[1])


def test_each_image_has_a_place_of_its_own():
    """An image with a fraction changes no place but its own."""
    images, labels, *_ = official_files.make((4, 5), 3, train=30, test=9)
    changed = images.astype(np.float64)
    changed[3] += 0.5
    before, _ = data.in_order(np.delete(images, 3, 0), np.delete(labels, 3))
    after, _ = data.in_order(changed, labels)
    whole = [image for image in after if (image == np.floor(image)).all()]
    np.testing.assert_array_equal(np.stack(whole), before)


def test_minus_zero_is_zero():
    images = np.random.default_rng(0).choice([0.0, 0.5], (50, 4))
    minus = np.where(images == 0, -0.0, images)
    labels = np.zeros(50, int)
    np.testing.assert_array_equal(
        data.in_order(images, labels)[0], data.in_order(minus, labels)[0]
    )


# Whether the content is official.


def test_a_class_without_images_is_refused(shrink, tmp_path):
    arrays = shrink("emnist_letters")
    arrays.test_labels[arrays.test_labels == 25] = 24
    official_files.write_emnist(tmp_path / "emnist_letters", arrays)
    message = refusal("emnist_letters", data_dir=str(tmp_path))
    assert "test labels" in message
    assert "expected 0 to 25" in message


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_datasets_of_another_size_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.PUBLISHED, name, {})
    shape, classes, writers = official_files.FORMATS[name]
    writers[0](tmp_path / name, official_files.make(shape, classes, 60, 60))
    message = refusal(name, data_dir=str(tmp_path))
    assert str(tmp_path / name) in message
    assert f"expected uint8 of shape ({data.DATASETS[name].train_size}, " in message


def test_a_wrong_checksum_is_refused(shrink, tmp_path, monkeypatch, cache_folder):
    published = dict(catalog.PUBLISHED["svhn"])
    arrays = shrink("svhn")
    monkeypatch.setitem(catalog.PUBLISHED, "svhn", published)
    definition = dataclasses.replace(data.DATASETS["svhn"], digests=None)
    monkeypatch.setitem(data.DATASETS, "svhn", definition)
    official_files.write_svhn(tmp_path / "svhn", arrays)
    message = refusal("svhn", data_dir=str(tmp_path))
    for part in (str(tmp_path / "svhn"), "train_32x32.mat", *published.values()):
        assert part in message
    assert not cache_folder.exists(), "what is refused is not cached"


def test_the_checksum_of_libsvm_files_is_checked(shrink, tmp_path, monkeypatch):
    published = dict(catalog.PUBLISHED["usps"])
    arrays = shrink("usps")
    changed = arrays._replace(test_images=arrays.test_images ^ 1)
    official_files.write_usps_libsvm(tmp_path / "usps", changed)
    monkeypatch.setitem(catalog.PUBLISHED, "usps", published)
    assert published["usps.t.bz2"] in refusal("usps", data_dir=str(tmp_path))
    for file in ("usps.bz2", "usps.t.bz2"):
        published[file] = identity.checksum(tmp_path / "usps" / file, "md5")
    assert data.load("usps", data_dir=str(tmp_path)).source.get("verified")


def test_changed_content_is_refused(shrink, tmp_path):
    arrays = shrink("mnist")
    arrays.train_images[0, 0, 0] ^= 1
    official_files.write_idx(tmp_path / "mnist", arrays)
    message = refusal("mnist", data_dir=str(tmp_path))
    assert "does not hold the official mnist" in message
    assert "train-images-idx3-ubyte.gz" in message
    official_files.write_prepared(tmp_path / "tfds", "mnist", arrays)
    message = refusal("mnist", data_dir=str(tmp_path / "tfds"))
    assert str(tmp_path / "tfds" / "mnist" / "1.0.0") in message


def test_content_without_a_known_checksum_is_said_so(shrink, tmp_path, monkeypatch):
    arrays = shrink("emnist_letters")
    definition = dataclasses.replace(data.DATASETS["emnist_letters"], digests=None)
    monkeypatch.setitem(data.DATASETS, "emnist_letters", definition)
    official_files.write_emnist(tmp_path / "emnist_letters", arrays)
    for _ in ("decoded", "cached"):
        dataset = data.load("emnist_letters", data_dir=str(tmp_path))
        assert dataset.source.get("verified") is False


def test_one_dataset_for_another_is_refused(shrink, tmp_path, monkeypatch):
    """The trap of equal file names, in official files and prepared by TFDS."""
    shrink("mnist")
    shape, classes, _ = official_files.FORMATS["fashion_mnist"]
    arrays = shrink("fashion_mnist")
    other = official_files.make(shape, classes, 30, 20, seed=1)
    definition = dataclasses.replace(
        data.DATASETS["mnist"], digests=verify.canonical(other)[1]
    )
    monkeypatch.setitem(data.DATASETS, "mnist", definition)
    official_files.write_idx(tmp_path / "mnist", arrays)
    official_files.write_prepared(tmp_path / "tfds", "mnist", arrays)
    for data_dir in (tmp_path, tmp_path / "tfds"):
        message = refusal("mnist", data_dir=str(data_dir))
        assert "holds fashion_mnist, expected mnist" in message
        assert str(data_dir / "mnist") in message


@pytest.mark.parametrize(
    ("name", "other"), [("mnist", "fashion_mnist"), ("fashion_mnist", "mnist")]
)
def test_real_files_of_the_other_dataset_are_refused(name, other, tmp_path):
    source, strange = real(name) / name, real(other) / other
    shutil.copytree(source, tmp_path / name)
    file = "t10k-labels-idx1-ubyte.gz"
    (tmp_path / name / file).unlink()
    shutil.copy(strange / file, tmp_path / name)
    message = refusal(name, data_dir=str(tmp_path))
    assert str(tmp_path / name / file) in message
    assert f"is {file} of {other}, expected that of {name}" in message
    # Packed anew, the file is known by its content.
    content = gzip.decompress((strange / file).read_bytes())
    (tmp_path / name / file).unlink()
    (tmp_path / name / file).write_bytes(gzip.compress(content, 1))
    message = refusal(name, data_dir=str(tmp_path))
    assert f"does not hold the official {name}" in message
    assert file in message
    assert "train-images" not in message, "only the strange file is named"
