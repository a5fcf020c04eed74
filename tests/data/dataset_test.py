import dataclasses
import gzip
import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import official_files
import pytest
from absl import logging

from ffjax import data
from ffjax.data import cache, catalog, identity, named, official, tfds, verify
from ffjax.errors import UserError

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    monkeypatch.setenv(cache.VARIABLE, str(folder))
    return folder


def refusal(*args, **kwargs) -> str:
    """The one line with which a load is refused."""
    with pytest.raises(UserError) as caught:
        data.load(*args, **kwargs)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def examples(images: np.ndarray, labels: np.ndarray) -> list[bytes]:
    """The multiset of (image, label) pairs."""
    pairs = zip(images, labels, strict=True)
    return sorted(image.tobytes() + bytes([label]) for image, label in pairs)


def assert_same(left: data.Dataset, right: data.Dataset) -> None:
    for field in ARRAYS:
        assert np.array_equal(getattr(left, field), getattr(right, field)), field


# The embedded dataset.


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
    assert named._MINI.stat().st_size < 5e6


def test_fashion_mini_needs_no_jax_no_tensorflow_no_network_and_no_cache(tmp_path):
    code = (
        "import sys, socket; socket.socket.connect = None\n"
        "from ffjax import data; data.load('fashion_mini')\n"
        "print({'jax', 'tensorflow', 'tensorflow_datasets'} & set(sys.modules))"
    )
    root = pathlib.Path(data.__file__).parents[2]
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(root)}
    result = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (result.stdout, result.stderr) == ("set()\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["cut", "altered", "absent"])
def test_a_damaged_embedded_file_is_refused(damage, tmp_path, monkeypatch):
    content = bytearray(named._MINI.read_bytes())
    content[1000] ^= 1
    path = tmp_path / "fashion_mini.npz"
    if damage != "absent":
        path.write_bytes(content if damage == "altered" else content[:-1])
    monkeypatch.setattr(named, "_MINI", path)
    message = refusal("fashion_mini")
    assert str(path) in message
    assert "install ffjax anew" in message


def test_fashion_mini_is_part_of_fashion_mnist(tmp_path):
    folder = official_files.SHARED / "fashion_mnist"
    if not folder.exists():
        pytest.skip(f"the files of Fashion-MNIST are not in {folder}")
    script = named._MINI.with_name("make_fashion_mini.py")
    output = tmp_path / "mini.npz"
    root = pathlib.Path(data.__file__).parents[2]
    subprocess.run(
        [sys.executable, script, folder, output],
        check=True,
        env={"PYTHONPATH": str(root)},
    )
    with np.load(output) as made, np.load(named._MINI) as embedded:
        assert sorted(made) == sorted(embedded) == sorted(ARRAYS)
        for key in ARRAYS:
            np.testing.assert_array_equal(made[key], embedded[key])


# Names, limits and the validation part.


@pytest.mark.parametrize("name", [*data.DATASETS, "mine.npz", "/some/where/mine.npz"])
def test_good_names(name):
    data.check_name(name)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("minst", "did you mean 'mnist'?"),
        ("fashion-mnist", "did you mean 'fashion_mnist'?"),
        ("../mnist", "known are"),
        ("/data/mnist", "known are"),
        ("mnist/3.0.1", "known are"),
        ("", "known are"),
        ("mine.npy", ".npz file"),
    ],
)
def test_bad_names(name, hint):
    with pytest.raises(UserError) as caught:
        data.check_name(name)
    for part in (f"dataset={name!r}", hint, *data.DATASETS):
        assert part in str(caught.value)
    assert refusal(name) == str(caught.value)


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


# A user's own .npz file.


def own(tmp_path, **changes) -> str:
    arrays = official_files.make((4, 5), 3, train=30, test=9)._asdict() | changes
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return str(path)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (4, 5, 1), (20,)])
def test_own_data(shape, tmp_path):
    arrays = official_files.make(shape, 3, train=30, test=9)
    dataset = data.load(own(tmp_path, **arrays._asdict()))
    assert dataset.name == "mine.npz"
    assert dataset.num_classes == 3
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.image_shape == (shape if shape[-1] != 1 else (4, 5))
    pixels = arrays.train_images.reshape(30, -1, len(dataset.mean)) / 255
    expected = (pixels - pixels.mean((0, 1))) / pixels.std((0, 1))
    order = np.lexsort(dataset.train_images.T)
    np.testing.assert_allclose(
        dataset.train_images[order],
        expected.reshape(30, -1)[np.lexsort(expected.reshape(30, -1).T)],
        rtol=1e-4,
        atol=1e-6,
    )
    (file,) = dataset.source["files"]
    assert (dataset.source["kind"], file) == ("npz", "mine.npz")


def test_the_order_of_own_data_does_not_matter(tmp_path):
    first = data.load(own(tmp_path))
    arrays = official_files.make((4, 5), 3, train=30, test=9)
    shuffle = np.random.default_rng(1).permutation(30)
    path = own(
        tmp_path,
        train_images=arrays.train_images[shuffle],
        train_labels=arrays.train_labels[shuffle],
    )
    assert_same(first, data.load(path))


def test_own_floats_equal_own_bytes(tmp_path):
    arrays = official_files.make((4, 5), 3, train=30, test=9)
    expected = data.load(own(tmp_path))
    floats = {
        key: value / 255 if "images" in key else value.astype(np.int64)
        for key, value in arrays._asdict().items()
    }
    dataset = data.load(own(tmp_path, **floats))
    assert dataset.mean == pytest.approx(expected.mean)
    assert dataset.std == pytest.approx(expected.std)
    np.testing.assert_allclose(
        np.sort(dataset.train_images, axis=None),
        np.sort(expected.train_images, axis=None),
        atol=1e-5,
    )


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_constant_images_stay_finite(dtype, tmp_path):
    images = np.full((30, 4, 5, 3), 7, dtype)
    images[..., 1] = np.arange(30)[:, None, None]
    dataset = data.load(own(tmp_path, train_images=images, test_images=images[:9]))
    assert np.isfinite(dataset.train_images).all()
    pixels = dataset.train_images.reshape(30, 20, 3)
    np.testing.assert_allclose(pixels[..., 0], 0, atol=1e-12)
    assert pixels[..., 1].std() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e30])
def test_images_of_any_scale_stay_finite(scale, tmp_path):
    images = np.arange(600).reshape(30, 4, 5) * scale
    dataset = data.load(own(tmp_path, train_images=images, test_images=images[:9]))
    assert np.isfinite(dataset.train_images).all()
    if scale > 1e-100:
        assert dataset.train_images.std() == pytest.approx(1, abs=1e-5)


NAN = np.zeros((30, 4, 5))
NAN[3, 2, 1] = np.nan


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"train_images": None}, ("'train_images'", "test_labels")),
        ({"test_labels": None}, ("'test_labels'",)),
        ({"train_images": NAN}, ("train_images", "NaN")),
        ({"train_images": NAN + np.inf}, ("train_images", "infinite")),
        ({"train_images": np.full((30, 4, 5), 1e300)}, ("train_images", "too large")),
        ({"train_images": np.zeros((0, 4, 5))}, ("train_images", "empty")),
        (
            {"test_images": np.zeros((0, 4, 5)), "test_labels": np.zeros(0, int)},
            ("test_images", "empty"),
        ),
        ({"train_images": np.zeros((30, 4, 5, 2))}, ("(30, 4, 5, 2)", "(N, H, W, 3)")),
        ({"train_images": np.zeros(30)}, ("(30,)", "(N, H, W)")),
        ({"train_images": np.zeros((30, 4, 5), int)}, ("int64", "uint8 or float")),
        ({"train_images": np.zeros((30, 4, 5), complex)}, ("complex128",)),
        ({"train_labels": np.zeros(29, int)}, ("30 images", "29 labels")),
        ({"train_labels": np.zeros((30, 1), int)}, ("(30, 1)", "(N,)")),
        ({"train_labels": np.zeros(30)}, ("float64", "integers")),
        ({"train_labels": np.arange(30) % 3 - 1}, ("label -1", "0 to C-1")),
        ({"train_labels": np.arange(30) % 3 + 1}, ("from 1 to 3", "0 to C-1")),
        ({"train_labels": np.arange(30) % 3 * 10**9}, ("0 to C-1",)),
        ({"train_labels": np.zeros(30, int)}, ("1 different", "C at least 2")),
        ({"test_labels": np.full(9, 3)}, ("test_labels", "label 3", "0 to 2")),
        ({"test_images": np.zeros((9, 5, 5), np.uint8)}, ("(4, 5)", "(5, 5)", "alike")),
        ({"test_images": np.zeros((9, 4, 5))}, ("uint8", "float64", "alike")),
        ({"train_images": np.array([None] * 30)}, ("plain arrays",)),
    ],
)
def test_bad_own_data(changes, parts, tmp_path):
    path = own(tmp_path, **changes)
    message = refusal(path)
    for part in (path, *parts):
        assert part in message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text", None])
def test_a_file_that_is_no_npz(content, tmp_path):
    path = tmp_path / "mine.npz"
    if content is not None:
        path.write_bytes(content)
    assert str(path) in refusal(str(path))


def test_an_npz_that_is_cut_or_an_array(tmp_path):
    path = pathlib.Path(own(tmp_path))
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert str(path) in refusal(str(path))
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    assert str(path) in refusal(str(path))
    assert str(tmp_path) in refusal(f"{tmp_path}/absent/mine.npz")


# The six datasets, on small files of the official formats.


@pytest.fixture
def shrink(monkeypatch):
    """Takes a small dataset for the official one, its checksums included."""

    def apply(name: str) -> official.Arrays:
        shape, classes, _ = official_files.FORMATS[name]
        arrays = official_files.make(
            shape, classes, train=3 * classes, test=2 * classes
        )
        definition = dataclasses.replace(
            data.DATASETS[name],
            train_size=3 * classes,
            test_size=2 * classes,
            digests=verify.canonical(arrays)[1],
        )
        monkeypatch.setitem(data.DATASETS, name, definition)
        monkeypatch.setitem(catalog.PUBLISHED, name, {})
        return arrays

    return apply


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
    for dataset in loaded:
        assert_same(dataset, loaded[0])
        assert dataset.source["verified"]
        assert str(tmp_path) not in json.dumps(dataset.source)
    first = loaded[0]
    pixels = first.train_images.reshape(-1, len(first.mean)) * first.std + first.mean
    pixels = np.round(pixels * 255).astype(np.uint8).reshape(arrays.train_images.shape)
    assert examples(pixels, first.train_labels) == examples(*arrays[:2])


def test_colour_is_normalised_per_channel(shrink, tmp_path):
    arrays = shrink("svhn")
    official_files.write_svhn(tmp_path / "svhn", arrays)
    dataset = data.load("svhn", data_dir=str(tmp_path))
    pixels = arrays.train_images.reshape(-1, 3) / 255
    np.testing.assert_allclose(dataset.mean, pixels.mean(0))
    np.testing.assert_allclose(dataset.std, pixels.std(0))
    flat = dataset.train_images.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(flat.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(flat.std(0), 1, atol=1e-6)


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_datasets_of_another_size_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.setitem(catalog.PUBLISHED, name, {})
    shape, classes, writers = official_files.FORMATS[name]
    writers[0](tmp_path / name, official_files.make(shape, classes, 60, 60))
    message = refusal(name, data_dir=str(tmp_path))
    assert str(tmp_path / name) in message
    assert f"expected uint8 of shape ({data.DATASETS[name].train_size}, " in message


def test_a_class_without_images_is_refused(shrink, tmp_path):
    arrays = shrink("emnist_letters")
    arrays.test_labels[arrays.test_labels == 25] = 24
    official_files.write_emnist(tmp_path / "emnist_letters", arrays)
    message = refusal("emnist_letters", data_dir=str(tmp_path))
    assert "test labels" in message
    assert "expected 0 to 25" in message


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
    assert data.load("usps", data_dir=str(tmp_path)).source["verified"]


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
        assert dataset.source["verified"] is False


def test_one_dataset_for_another_is_refused(shrink, tmp_path):
    """The trap of equal file names, raw and prepared."""
    shrink("mnist")
    shape, classes, _ = official_files.FORMATS["fashion_mnist"]
    arrays = shrink("fashion_mnist")
    other = official_files.make(shape, classes, 30, 20, seed=1)
    data.DATASETS["mnist"] = dataclasses.replace(
        data.DATASETS["mnist"], digests=verify.canonical(other)[1]
    )
    official_files.write_idx(tmp_path / "mnist", arrays)
    official_files.write_prepared(tmp_path / "tfds", "mnist", arrays)
    for data_dir in (tmp_path, tmp_path / "tfds"):
        message = refusal("mnist", data_dir=str(data_dir))
        assert "holds fashion_mnist, expected mnist" in message
        assert str(data_dir / "mnist") in message


# The cache.


@pytest.fixture
def usps(shrink, tmp_path):
    official_files.write_usps(tmp_path / "usps", shrink("usps"))
    return lambda: data.load("usps", data_dir=str(tmp_path))


def cache_files(folder: pathlib.Path) -> list[pathlib.Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def test_the_second_load_decodes_nothing(usps, monkeypatch, cache_folder):
    first = usps()
    (path,) = cache_files(cache_folder)
    assert path.name.startswith("usps-")
    monkeypatch.setattr(official, "read", None)
    second = usps()
    assert_same(first, second)
    assert first.source == second.source


def test_the_cache_follows_the_source(usps, tmp_path, cache_folder):
    usps()
    path = tmp_path / "usps" / "zip.test.gz"
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content, 1))  # other bytes, same content
    usps()
    assert len(cache_files(cache_folder)) == 2
    path.write_bytes(gzip.compress(b"x" + content))
    with pytest.raises(UserError):
        usps()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "garbled", "header"])
def test_a_damaged_cache_is_made_anew(damage, usps, cache_folder, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda *args: warnings.append(args))
    first = usps()
    (path,) = cache_files(cache_folder)
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[-100] ^= 1
    path.write_bytes(
        {
            "cut": content[: len(content) // 2],
            "flipped": bytes(flipped),
            "empty": b"",
            "garbled": b"\xff" * 1000,
            "header": content.replace(b"train_images", b"train_imagez"),
        }[damage]
    )
    assert_same(first, usps())
    assert str(path) in str(warnings[0][1])
    assert path.read_bytes() == content
    assert cache_files(cache_folder) == [path]


def test_a_named_cache_folder_that_cannot_be_written(usps, cache_folder):
    cache_folder.write_text("a file, where even root can make no folder")
    with pytest.raises(UserError) as caught:
        usps()
    assert str(cache_folder) in str(caught.value)
    assert cache.VARIABLE in str(caught.value)


def test_the_usual_cache_folder_may_be_unwritable(usps, tmp_path, monkeypatch):
    warnings = []
    monkeypatch.setattr(logging, "warning", lambda *args: warnings.append(args))
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    assert usps().train_images.shape == (30, 256)
    assert "cannot write the cache" in str(warnings)


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_full_disk_leaves_nothing_behind(moment, usps, cache_folder, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(f"os.{moment}", fail)
        with pytest.raises(UserError, match="No space left on device"):
            usps()
    assert cache_files(cache_folder) == []
    usps()
    before = cache_files(cache_folder)
    content = before[0].read_bytes()
    with monkeypatch.context() as context:
        context.setattr(f"os.{moment}", fail)
        with pytest.raises(UserError, match="No space left on device"):
            cache.write(before[0].stem, official.Arrays(*[np.zeros(3)] * 4), verified=True)
    assert cache_files(cache_folder) == before
    assert before[0].read_bytes() == content, "the cache stays valid"


def test_processes_that_start_at_once_do_not_disturb_each_other(cache_folder):
    code = """
import numpy as np
from ffjax.data import cache, official
arrays = official.Arrays(*[np.full((500, 784), i, np.uint8) for i in range(4)])
for _ in range(20):
    cache.write("shared", arrays, verified=True)
    assert cache.read("shared") is not None, "seen half-written"
"""
    root = pathlib.Path(data.__file__).parents[2]
    environment = {cache.VARIABLE: str(cache_folder), "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, env=environment) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert [path.name for path in cache_files(cache_folder)] == ["shared.safetensors"]


def test_where_the_cache_is(monkeypatch):
    monkeypatch.delenv(cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache.folder() == pathlib.Path("/x/ffjax")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.folder() == pathlib.Path.home() / ".cache" / "ffjax"


# Data that is not there.


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_without_tensorflow_the_error_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.setattr(tfds, "has_tensorflow", lambda: False)
    message = refusal(name, data_dir=str(tmp_path))
    assert "pip install 'ffjax[tfds]'" in message
    assert f"into {tmp_path / name}" in message
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


# The real files.

REAL = {
    # name: (mean, std), as published in many places
    "mnist": (0.1307, 0.3081),
    "fashion_mnist": (0.2860, 0.3530),
    "usps": (0.2545, 0.3846),
}


@pytest.fixture(scope="module")
def real_cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("real"))


def real(name: str) -> pathlib.Path:
    folder = official_files.SHARED / name
    if not folder.exists():
        pytest.skip(f"the official files are not in {folder}")
    return folder


@pytest.mark.parametrize("name", REAL)
def test_the_real_files(name, real_cache, monkeypatch):
    real(name)
    monkeypatch.setenv(cache.VARIABLE, real_cache)
    dataset = data.load(name, data_dir=str(official_files.SHARED))
    definition = data.DATASETS[name]
    assert len(dataset.train_images) == definition.train_size
    assert len(dataset.test_images) == definition.test_size
    assert dataset.source["verified"]
    mean, std = REAL[name]
    assert dataset.mean == pytest.approx((mean,), abs=5e-5)
    assert dataset.std == pytest.approx((std,), abs=5e-5)
    assert np.unique(dataset.test_labels).tolist() == list(range(10))


def test_usps_has_the_published_classes(real_cache, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, real_cache)
    info = (real("usps") / "zip.info.txt").read_text()
    dataset = data.load("usps", data_dir=str(official_files.SHARED))
    for word, labels in (
        ("Train", dataset.train_labels),
        ("Test", dataset.test_labels),
    ):
        line = next(line for line in info.splitlines() if line.split()[:1] == [word])
        expected = [int(number) for number in line.split()[1:]]
        assert [*np.bincount(labels), len(labels)] == expected


@pytest.mark.parametrize(
    ("name", "other"), [("mnist", "fashion_mnist"), ("fashion_mnist", "mnist")]
)
def test_real_files_of_the_other_dataset_are_refused(name, other, tmp_path):
    source, strange = real(name), real(other)
    (tmp_path / name).mkdir()
    for path in source.glob("*.gz"):
        shutil.copy(path, tmp_path / name)
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


def test_real_files_unpacked_are_known_by_content(tmp_path, real_cache, monkeypatch):
    monkeypatch.setenv(cache.VARIABLE, real_cache)
    (tmp_path / "usps").mkdir()
    for path in real("usps").glob("*.gz"):
        content = gzip.decompress(path.read_bytes())
        (tmp_path / "usps" / path.stem).write_bytes(content)
    packed = data.load("usps", data_dir=str(official_files.SHARED))
    unpacked = data.load("usps", data_dir=str(tmp_path))
    assert_same(packed, unpacked)
    assert unpacked.source["verified"]
    assert list(unpacked.source["files"]) == ["zip.train", "zip.test"]
