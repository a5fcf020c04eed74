import hashlib

import numpy as np
import pytest
from loading import ARRAYS, real, refusal

from ffjax import data

GOLDEN = "08382915e06fa24827fe61fca0cfcf85ac371dbcaec8aaecce52b2adac422e11"


def test_fashion_mini_is_whole_balanced_and_normalised():
    dataset = data.load("fashion_mini")
    assert dataset.train_images.shape == (6000, 784)
    assert dataset.test_images.shape == (2000, 784)
    assert dataset.valid_images.shape == (0, 784)
    assert dataset.train_images.dtype == dataset.test_images.dtype == np.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == np.int32
    assert np.bincount(dataset.train_labels).tolist() == [600] * 10
    assert np.bincount(dataset.test_labels).tolist() == [200] * 10
    assert dataset.train_images.mean() == pytest.approx(0, abs=1e-6)
    assert dataset.train_images.std() == pytest.approx(1, abs=1e-6)
    assert (dataset.num_classes, dataset.image_shape) == (10, (28, 28))
    assert dataset.class_names[9] == "Ankle boot"
    assert dataset.source["kind"] == "embedded"


def test_the_order_and_the_pixels_never_change():
    """Records are compared bit for bit, so these digests stay as they are."""
    dataset = data.load("fashion_mini", train_limit=1000, test_limit=77)
    arrays = [getattr(dataset, field) for field in ARRAYS]
    content = b"".join(array.tobytes() for array in arrays)
    assert hashlib.sha256(content).hexdigest() == GOLDEN


def test_limits_take_the_first_of_a_fair_order():
    full = data.load("fashion_mini")
    part = data.load("fashion_mini", train_limit=500, test_limit=100)
    np.testing.assert_array_equal(part.train_labels, full.train_labels[:500])
    np.testing.assert_array_equal(part.test_labels, full.test_labels[:100])
    # The same pixels, under the statistics of the images that are used.
    assert part.mean != full.mean
    restored = part.train_images * part.std[0] + part.mean[0]
    expected = full.train_images[:500] * full.std[0] + full.mean[0]
    np.testing.assert_allclose(restored, expected, atol=1e-6)
    assert part.train_images.mean() == pytest.approx(0, abs=1e-6)
    assert np.bincount(part.train_labels, minlength=10).min() > 25, "a fair sample"


def test_the_validation_part_is_disjoint_and_keeps_out_of_the_statistics():
    full = data.load("fashion_mini")
    dataset = data.load("fashion_mini", valid_fraction=0.1)
    assert (len(dataset.train_images), len(dataset.valid_images)) == (5400, 600)
    labels = np.concatenate([dataset.train_labels, dataset.valid_labels])
    np.testing.assert_array_equal(labels, full.train_labels)
    both = np.concatenate([dataset.train_images, dataset.valid_images])
    restored = both * dataset.std[0] + dataset.mean[0]
    expected = full.train_images * full.std[0] + full.mean[0]
    np.testing.assert_allclose(restored, expected, atol=1e-6)
    assert dataset.train_images.mean() == pytest.approx(0, abs=1e-6)
    assert dataset.train_images.std() == pytest.approx(1, abs=1e-6)
    assert abs(dataset.valid_images.mean()) > 1e-6
    np.testing.assert_array_equal(dataset.test_labels, full.test_labels)
    again = data.load("fashion_mini", valid_fraction=0.1)
    np.testing.assert_array_equal(dataset.valid_images, again.valid_images)


def test_the_limit_comes_before_the_validation_part():
    dataset = data.load("fashion_mini", train_limit=100, valid_fraction=0.25)
    assert (len(dataset.train_images), len(dataset.valid_images)) == (75, 25)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("train_limit", -1, "6000"),
        ("train_limit", 6001, "6000"),
        ("test_limit", -5, "2000"),
        ("test_limit", 2001, "2000"),
        ("valid_fraction", -0.1, "at least 0 and below 1"),
        ("valid_fraction", 1.0, "at least 0 and below 1"),
        ("valid_fraction", float("nan"), "at least 0 and below 1"),
        ("valid_fraction", 0.99999, "0 for training"),
        ("valid_fraction", 1e-9, "0 for validation"),
    ],
)
def test_bad_limits_and_fractions(field, value, allowed):
    message = refusal("fashion_mini", **{field: value})
    assert f"{field}={value}" in message
    assert allowed in message


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [  # as published in many places
        ("mnist", [0.1307], [0.3081]),
        ("fashion_mnist", [0.2860], [0.3530]),
        ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
        ("usps", [0.2545], [0.3846]),
    ],
)
def test_the_real_files(name, mean, std):
    dataset = data.load(name, data_dir=str(real(name)))
    definition = data.DATASETS[name]
    assert len(dataset.train_images) == definition.train_size
    assert len(dataset.test_images) == definition.test_size
    assert dataset.source.get("verified")
    assert dataset.mean == pytest.approx(mean, abs=5e-5)
    assert dataset.std == pytest.approx(std, abs=5e-5)
    assert np.unique(dataset.test_labels).tolist() == list(range(10))


def test_usps_has_the_published_classes():
    root = real("usps")
    info = root / "usps" / "zip.info.txt"
    if not info.exists():
        pytest.skip(f"{info} is not there")
    dataset = data.load("usps", data_dir=str(root))
    for word, labels in (
        ("Train", dataset.train_labels),
        ("Test", dataset.test_labels),
    ):
        lines = map(str.split, info.read_text().splitlines())
        numbers = next(line[1:] for line in lines if line[:1] == [word])
        assert [*np.bincount(labels), len(labels)] == [int(n) for n in numbers]
