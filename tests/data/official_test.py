import bz2
import gzip
import pathlib
import re
import zipfile

import numpy as np
import official_files
import pytest
import scipy.io
from loading import real

from ffjax.data import catalog, identity, official
from ffjax.errors import UserError

LAYOUTS = [
    pytest.param(name, writer, id=f"{name}-{writer.__name__}")
    for name, (_, _, writers) in official_files.FORMATS.items()
    for writer in writers
]


def small(name: str) -> official.Arrays:
    shape, classes, _ = official_files.FORMATS[name]
    return official_files.make(shape, classes, train=3 * classes, test=classes + 1)


def read(name: str, folder: pathlib.Path) -> official.Arrays:
    files = official.find(name, folder)
    assert files is not None
    return official.read(files)


def assert_same(left: official.Arrays, right: official.Arrays) -> None:
    for a, b in zip(left, right, strict=True):
        np.testing.assert_array_equal(a, b)


def assert_refused(name: str, folder: pathlib.Path, file: str, *parts: str) -> None:
    """A line that names the file and says what was expected."""
    with pytest.raises(UserError) as caught:
        read(name, folder)
    message = str(caught.value)
    assert "\n" not in message
    for part in (str(folder / file), *parts):
        assert part in message


@pytest.mark.parametrize(("name", "writer"), LAYOUTS)
def test_reads_what_was_written(name, writer, tmp_path):
    arrays = small(name)
    writer(tmp_path, arrays)
    result = read(name, tmp_path)
    assert_same(result, arrays)
    assert result.train_images.dtype == np.uint8


def test_idx_is_known_by_its_content_not_its_name(tmp_path):
    arrays = small("mnist")
    official_files.write_idx(tmp_path / "plain", arrays, packed=False)
    assert_same(read("mnist", tmp_path / "plain"), arrays)
    # As browsers leave it: unpacked, with the name of the packed file.
    paths = list((tmp_path / "plain").iterdir())
    assert len(paths) == 4
    for path in paths:
        path.rename(path.with_name(f"{path.name}.gz"))
    assert_same(read("mnist", tmp_path / "plain"), arrays)


@pytest.mark.parametrize(
    ("name", "folder"),
    [("cifar10", "cifar-10-batches-bin"), ("emnist_letters", "gzip")],
)
def test_files_may_lie_in_the_folder_of_their_archive(name, folder, tmp_path):
    arrays = small(name)
    official_files.FORMATS[name][2][0](tmp_path / folder, arrays)
    assert_same(read(name, tmp_path), arrays)


def test_emnist_letters_become_upright_and_start_at_0(tmp_path):
    arrays = small("emnist_letters")
    arrays.train_images[0] = 0
    arrays.train_images[0, :, 3] = 255  # a vertical stroke
    official_files.write_emnist(tmp_path, arrays)
    path = tmp_path / "emnist-letters-train-images-idx3-ubyte.gz"
    stored = official.read_idx(path, rank=3)
    assert stored[0, 3].min() == 255, "the published files hold it lying"
    result = read("emnist_letters", tmp_path)
    assert result.train_images[0, :, 3].min() == 255
    assert result.train_images[0].sum() == 28 * 255
    assert (result.train_labels[0], result.train_labels[25]) == (0, 25)


def test_cifar10_is_red_green_blue_by_rows(tmp_path):
    arrays = small("cifar10")
    official_files.write_cifar10(tmp_path, arrays)
    content = bytearray((tmp_path / "test_batch.bin").read_bytes())
    content[1 + 33] = 77  # red plane, row 1, column 1
    content[1 + 2048] = 99  # blue plane, row 0, column 0
    (tmp_path / "test_batch.bin").write_bytes(content)
    result = read("cifar10", tmp_path)
    assert result.test_images[0, 1, 1, 0] == 77
    assert result.test_images[0, 0, 0, 2] == 99


def test_svhn_zero_is_class_0(tmp_path):
    official_files.write_svhn(tmp_path, small("svhn"))
    stored = scipy.io.loadmat(tmp_path / "train_32x32.mat")["y"]
    assert (stored.min(), stored.max()) == (1, 10)
    result = read("svhn", tmp_path)
    np.testing.assert_array_equal(result.train_labels == 0, stored[:, 0] == 10)


def test_usps_maps_the_range_to_8_bits(tmp_path):
    for split in ("train", "test"):
        row = " ".join(["7.0000", "-1.0000", "1.0000", "0.0000", *["-0.5000"] * 253])
        (tmp_path / f"zip.{split}").write_text(f"{row} \n")
    result = read("usps", tmp_path)
    assert result.train_images.reshape(-1)[:4].tolist() == [0, 255, 128, 64]
    assert result.train_labels.tolist() == [7]


def test_libsvm_leaves_out_zeros(tmp_path):
    for file in ("usps.bz2", "usps.t.bz2"):
        (tmp_path / file).write_bytes(bz2.compress(b"10 2:1.0 256:-1\n"))
    result = read("usps", tmp_path)
    assert result.train_labels.tolist() == [9]
    pixels = result.train_images.reshape(256)
    assert (pixels[0], pixels[1], pixels[255]) == (128, 255, 0)


@pytest.mark.parametrize("name", official_files.FORMATS)
def test_find_wants_all_files(name, tmp_path):
    assert official.find(name, tmp_path / "absent") is None
    official_files.FORMATS[name][2][0](tmp_path, small(name))
    gone = official.LAYOUTS[name][0].files[-1][0]
    (tmp_path / gone).unlink()
    assert official.find(name, tmp_path) is None
    assert official.missing(name, tmp_path).split("; or ")[0] == gone


# Damage.


@pytest.mark.parametrize("keep", [1, 5, 0.45, 0.99])
@pytest.mark.parametrize(
    ("name", "writer", "file"),
    [
        ("mnist", official_files.write_idx, "train-images-idx3-ubyte.gz"),
        ("mnist", official_files.write_idx, "t10k-labels-idx1-ubyte.gz"),
        (
            "emnist_letters",
            official_files.write_emnist,
            "emnist-letters-test-images-idx3-ubyte.gz",
        ),
        ("emnist_letters", official_files.write_emnist_zip, "gzip.zip"),
        ("cifar10", official_files.write_cifar10, "data_batch_3.bin"),
        ("cifar10", official_files.write_cifar10_tar, "cifar-10-binary.tar.gz"),
        ("svhn", official_files.write_svhn, "test_32x32.mat"),
        ("usps", official_files.write_usps, "zip.train.gz"),
        ("usps", official_files.write_usps_libsvm, "usps.t.bz2"),
    ],
)
def test_a_cut_file_is_refused(name, writer, file, keep, tmp_path):
    writer(tmp_path, small(name))
    content = (tmp_path / file).read_bytes()
    keep = keep if isinstance(keep, int) else int(keep * len(content))
    (tmp_path / file).write_bytes(content[:keep])
    assert_refused(name, tmp_path, file, "expected")


def test_an_empty_file_is_refused(tmp_path):
    for name, (_, _, writers) in official_files.FORMATS.items():
        folder = tmp_path / name
        writers[0](folder, small(name))
        file = official.LAYOUTS[name][0].files[0][0]
        (folder / file).write_bytes(b"")
        assert_refused(name, folder, file)


def test_a_flipped_bit_in_a_gzip_file_is_refused(tmp_path):
    official_files.write_idx(tmp_path, small("mnist"))
    file = "train-images-idx3-ubyte.gz"
    content = bytearray((tmp_path / file).read_bytes())
    content[len(content) // 2] ^= 4
    (tmp_path / file).write_bytes(content)
    assert_refused("mnist", tmp_path, file, "expected")


def test_a_wrong_magic_number_is_refused(tmp_path):
    official_files.write_idx(tmp_path, small("mnist"))
    labels = (tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(labels)
    file = "train-images-idx3-ubyte.gz"
    assert_refused("mnist", tmp_path, file, "0x00000801", "0x00000803")


def test_counts_that_do_not_match_are_refused(tmp_path):
    arrays = small("mnist")
    arrays = arrays._replace(train_labels=arrays.train_labels[:-1])
    official_files.write_idx(tmp_path, arrays)
    parts = ("30 images", "train-labels-idx1-ubyte.gz", "29 labels")
    assert_refused("mnist", tmp_path, "train-images-idx3-ubyte.gz", *parts)


@pytest.mark.parametrize(
    ("name", "writer", "file", "label", "expected"),
    [
        ("mnist", 0, "train-labels-idx1-ubyte.gz", 10, "0 to 9"),
        ("cifar10", 0, "data_batch_1.bin", 10, "0 to 9"),
        ("usps", 0, "zip.train.gz", 10, "0 to 9"),
        ("usps", 1, "usps.bz2", 10, "1 to 10"),
        ("svhn", 0, "train_32x32.mat", 11, "1 to 10"),
        # The file of 37 classes that TFDS describes.
        (
            "emnist_letters",
            0,
            "emnist-letters-train-labels-idx1-ubyte.gz",
            36,
            "1 to 26",
        ),
    ],
)
def test_labels_out_of_range_are_refused(name, writer, file, label, expected, tmp_path):
    arrays = small(name)
    arrays.train_labels[0] = label
    official_files.FORMATS[name][2][writer](tmp_path, arrays)
    assert_refused(name, tmp_path, file, f"expected {expected}")


def test_emnist_label_0_is_refused(tmp_path):
    arrays = small("emnist_letters")
    arrays.test_labels[0] = 255  # stored as 0
    official_files.write_emnist(tmp_path, arrays)
    file = "emnist-letters-test-labels-idx1-ubyte.gz"
    assert_refused("emnist_letters", tmp_path, file, "the label 0", "1 to 26")


@pytest.mark.parametrize("key", ["X", "y"])
def test_a_mat_file_without_an_array_is_refused(key, tmp_path):
    official_files.write_svhn(tmp_path, small("svhn"))
    content = scipy.io.loadmat(tmp_path / "train_32x32.mat")
    content = {k: content[k] for k in ("X", "y") if k != key}
    scipy.io.savemat(tmp_path / "train_32x32.mat", content)
    assert_refused("svhn", tmp_path, "train_32x32.mat", f"no array '{key}'", "X and y")


def test_a_mat_file_of_another_shape_is_refused(tmp_path):
    official_files.write_svhn(tmp_path, small("svhn"))
    content = {"X": np.zeros((3, 32, 32), np.uint8), "y": np.ones((3, 1), np.uint8)}
    scipy.io.savemat(tmp_path / "test_32x32.mat", content)
    assert_refused("svhn", tmp_path, "test_32x32.mat", "(32, 32, 3, N)")
    content = {"X": np.zeros((32, 32, 3, 5)), "y": np.ones((5, 1), np.uint8)}
    scipy.io.savemat(tmp_path / "test_32x32.mat", content)
    assert_refused("svhn", tmp_path, "test_32x32.mat", "float64", "uint8")


def test_a_mat_file_whose_counts_differ_is_refused(tmp_path):
    official_files.write_svhn(tmp_path, small("svhn"))
    content = {"X": np.zeros((32, 32, 3, 5), np.uint8), "y": np.ones((4, 1), np.uint8)}
    scipy.io.savemat(tmp_path / "test_32x32.mat", content)
    assert_refused("svhn", tmp_path, "test_32x32.mat", "5 images", "4 labels")


def test_a_zip_without_letters_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "gzip.zip", "w") as archive:
        archive.writestr("gzip/emnist-digits-train-images-idx3-ubyte.gz", b"")
    file = "emnist-letters-train-images-idx3-ubyte.gz"
    assert_refused("emnist_letters", tmp_path, "gzip.zip", file)


@pytest.mark.parametrize(("offset", "value"), [(8, 1), (10, 99)])
def test_a_zip_that_cannot_be_unpacked_is_refused(offset, value, tmp_path):
    """Encrypted, or packed by an unknown method: flags that the directory holds."""
    official_files.write_emnist_zip(tmp_path, small("emnist_letters"))
    path = tmp_path / "gzip.zip"
    content = bytearray(path.read_bytes())
    starts = [match.start() for match in re.finditer(b"PK\1\2", content)]
    assert len(starts) == 5
    for start in starts:
        content[start + offset] = value
    path.write_bytes(content)
    assert_refused("emnist_letters", tmp_path, "gzip.zip", "expected a .zip")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("7.0 " + "0.5 " * 255, "256 values on 1 lines"),
        ("7.0 " + "0.5 " * 255 + "1.5", "outside [-1, 1]"),
        ("7.0 " + "0.5 " * 255 + "nan", "outside [-1, 1]"),
        ("7.5 " + "0.5 " * 256, "the label 7.5"),
        ("nan " + "0.5 " * 256, "the label nan"),
        ("<html>" + "0.5 " * 256, "expected a table of numbers"),
    ],
)
def test_usps_lines_that_are_wrong_are_refused(line, reason, tmp_path):
    official_files.write_usps(tmp_path, small("usps"))
    (tmp_path / "zip.test.gz").write_bytes(gzip.compress(line.encode()))
    assert_refused("usps", tmp_path, "zip.test.gz", reason)


@pytest.mark.parametrize("line", ["7 257:1", "7 0:1", "7 1:x", "7 1", "x 1:1", " "])
def test_libsvm_lines_that_are_wrong_are_refused(line, tmp_path):
    official_files.write_usps_libsvm(tmp_path, small("usps"))
    content = bz2.compress(b"1 1:1\n" + line.encode() + b"\n")
    (tmp_path / "usps.t.bz2").write_bytes(content)
    assert_refused("usps", tmp_path, "usps.t.bz2", "line 2")


def test_the_checksums_of_usps_are_those_of_the_real_files():
    folder = real("usps") / "usps"
    assert len(catalog.DOWNLOADS["usps"]) == 2
    for file in catalog.DOWNLOADS["usps"]:
        assert identity.checksum(folder / file.name) == file.sha256
        assert (folder / file.name).stat().st_size == file.size


def test_published_checksums_are_well_formed():
    assert set(catalog.PUBLISHED) == set(official.LAYOUTS)
    for name, files in catalog.PUBLISHED.items():
        assert files, name
        for file, checksum in files.items():
            assert re.fullmatch(r"[0-9a-f]{32}|[0-9a-f]{64}", checksum), file
    assert len(
        {c for files in catalog.PUBLISHED.values() for c in files.values()}
    ) == sum(len(files) for files in catalog.PUBLISHED.values())
