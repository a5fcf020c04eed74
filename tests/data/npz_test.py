"""A user's own .npz file, whole, wrong and hostile."""

import io
import pathlib
import resource
import struct
import time
import zipfile

import numpy as np
import official_files
import pytest
from loading import ARRAYS, assert_same, refusal

from ffjax import data
from ffjax.data import npz


def own(tmp_path, **changes) -> str:
    """A file of 30 + 9 images in 3 classes, but for the changes; None leaves out."""
    arrays = official_files.make((4, 5), 3, train=30, test=9)._asdict() | changes
    path = tmp_path / "mine.npz"
    np.savez(path, **{key: value for key, value in arrays.items() if value is not None})
    return str(path)


@pytest.mark.parametrize("shape", [(4, 5), (4, 5, 3), (4, 5, 1), (20,)])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_own_data(shape, save, tmp_path):
    arrays = official_files.make(shape, 3, train=30, test=9)
    save(tmp_path / "mine.npz", **arrays._asdict())
    dataset = data.load(str(tmp_path / "mine.npz"))
    assert dataset.name == "mine.npz"
    assert dataset.num_classes == 3
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.image_shape == (shape if shape[-1] != 1 else (4, 5))
    images, labels = data.in_order(*arrays[:2])
    pixels = images.reshape(30, -1, len(dataset.mean)) / 255
    expected = (pixels - pixels.mean((0, 1))) / pixels.std((0, 1))
    np.testing.assert_allclose(
        dataset.train_images, expected.reshape(30, -1), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_array_equal(dataset.train_labels, labels)
    fingerprint = data.fingerprint(str(tmp_path / "mine.npz"))
    assert dataset.source == {"kind": "npz", "files": {"mine.npz": fingerprint}}


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


@pytest.mark.parametrize("dtype", ["i2", ">i4", "i8", "u8", "f4", ">f4", "f8", "g"])
def test_the_type_of_own_data_does_not_matter(dtype, tmp_path):
    first = data.load(own(tmp_path), valid_fraction=0.2)
    arrays = official_files.make((4, 5), 3, train=30, test=9)._asdict()
    same = {
        key: np.asfortranarray(value, dtype) if "images" in key else value.astype("i8")
        for key, value in arrays.items()
    }
    assert_same(first, data.load(own(tmp_path, **same), valid_fraction=0.2))


def test_masks_are_images_too(tmp_path):
    mask = official_files.make((4, 5), 3, train=30, test=9).train_images > 100
    loaded = [
        data.load(own(tmp_path, train_images=images, test_images=images[:9]))
        for images in (mask, mask.astype(np.uint8), mask.astype(np.float32))
    ]
    assert_same(loaded[0], loaded[1])
    assert_same(loaded[0], loaded[2])


def test_bytes_and_fractions_of_255_agree_but_for_rounding(tmp_path):
    arrays = official_files.make((4, 5), 3, train=30, test=9)
    images = {"train_images": arrays.train_images / 255}
    images["test_images"] = arrays.test_images / 255
    expected, dataset = data.load(own(tmp_path)), data.load(own(tmp_path, **images))
    np.testing.assert_allclose(
        np.sort(dataset.train_images, axis=None),
        np.sort(expected.train_images, axis=None),
        atol=1e-5,
    )


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
        ({"train_images": np.float64(3)}, ("()", "(N, H, W)")),
        ({"train_images": np.zeros((30, 4, 5), complex)}, ("complex128", "numbers")),
        ({"train_images": np.zeros((30, 4, 5), "U3")}, ("<U3", "numbers")),
        ({"train_images": np.zeros(30, [("a", "f4")])}, ("'<f4'", "numbers")),
        ({"train_images": np.array([None] * 30)}, ("object", "numbers")),
        (
            {"train_images": np.array([np.zeros(i) for i in range(30)], object)},
            ("object", "numbers"),
        ),
        ({"train_labels": np.zeros(29, int)}, ("30 images", "29 labels")),
        ({"train_labels": np.zeros((30, 1), int)}, ("(30, 1)", "(N,)")),
        ({"train_labels": np.zeros(30)}, ("float64", "integers")),
        ({"train_labels": np.arange(30) % 2 == 0}, ("bool", "integers")),
        ({"train_labels": np.arange(30) % 3 - 1}, ("label -1", "0 to C-1")),
        ({"train_labels": np.arange(30) % 3 + 1}, ("up to 3 but no 0", "0 to C-1")),
        ({"train_labels": np.arange(30) % 3 * 2}, ("up to 4 but no 1", "0 to C-1")),
        ({"train_labels": np.arange(30) % 2 * 2**31}, ("2147483648", "no 1")),
        ({"train_labels": np.full(30, 2**64 - 1)}, ("only the label 18446744",)),
        ({"train_labels": np.zeros(30, int)}, ("only the label 0", "two classes")),
        ({"test_labels": np.full(9, 3)}, ("test_labels", "label 3", "0 to 2")),
        ({"test_labels": np.full(9, -1)}, ("test_labels", "label -1")),
        ({"test_images": np.zeros((9, 5, 5), np.uint8)}, ("(4, 5)", "(5, 5)", "alike")),
        ({"test_images": np.zeros((9, 4, 5))}, ("uint8", "float64", "alike")),
    ],
)
def test_bad_own_data(changes, parts, tmp_path):
    path = own(tmp_path, **changes)
    message = refusal(path)
    for part in (path, *parts):
        assert part in message


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"text", b"\x93NUMPY"])
def test_a_file_that_is_no_npz(content, tmp_path):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    assert f"{path}: cannot be read as a .npz file" in refusal(str(path))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_cut_or_changed_file_is_refused(save, tmp_path):
    arrays = official_files.make((4, 5), 3, train=30, test=9)
    path = tmp_path / "mine.npz"
    save(path, **arrays._asdict())
    content = path.read_bytes()
    for part in (0.1, 0.5, 0.9, 0.999):
        path.write_bytes(content[: int(part * len(content))])
        assert str(path) in refusal(str(path))
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        central = archive.start_dir
    for place in (300, central + 16):  # a pixel, and the checksum of them all
        changed = bytearray(content)
        changed[place] ^= 1
        path.write_bytes(changed)
        assert str(path) in refusal(str(path))


# Files that were made to do harm.


def npy(shape: object, dtype: str = "|u1", content: bytes = b"") -> bytes:
    """A .npy file with this header and this content."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}}}\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header.encode() + content


def with_member(tmp_path, content: bytes, **options) -> str:
    """The whole file, but for what it has as train_images."""
    path = tmp_path / "mine.npz"
    arrays = official_files.make((4, 5), 3, train=30, test=9)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train_images.npy", content, **options)
        for key in ARRAYS[1:]:
            stream = io.BytesIO()
            np.save(stream, getattr(arrays, key))
            archive.writestr(f"{key}.npy", stream.getvalue())
    return str(path)


def patch(path: str, old: bytes, new: bytes, *, count: int) -> None:
    """Changes the first members' headers, local and central."""
    content = pathlib.Path(path).read_bytes()
    assert content.count(old) >= count
    pathlib.Path(path).write_bytes(content.replace(old, new, count))


def quick_refusal(path: str, *parts: str) -> None:
    """Refused in a line that says why, at once and without eating memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    message = refusal(path)
    assert time.monotonic() - start < 5
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 200_000, "kB"
    for part in (path, "train_images", *parts):
        assert part in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (npy("(50000000, 800)"), "claims to be uint8 of shape (50000000, 800)"),
        (npy(f"({2**70},)"), "claims to be uint8"),
        (npy("(-30, -4, 5)", content=bytes(600)), "claims to be uint8"),
        (npy("(30, 4, 5)", content=bytes(599)), "600 bytes, but holds 599"),
        (npy("(30, 4, 5)", content=bytes(601)), "600 bytes, but holds 601"),
        (npy("(30, 4, 5)", dtype="|O", content=bytes(4800)), "is object"),
        (npy("(30, 4, 5)", dtype="nonsense"), "is no array of numpy's"),
        (npy("(30, 4, 5")[:-2] + b"  ", "is no array of numpy's"),
        (npy("(" * 4000), "is no array of numpy's"),
        (npy("(30, 4, 5)")[:40], "is no array of numpy's"),
        (b"\x93NUMPY\1\0\xff\xff" + b"x" * 70_000, "is no array of numpy's"),
        (b"\x93NUMPY\3\0" + npy("(30, 4, 5)")[8:], "is no array of numpy's"),
        (b"\x93NUMP", "is no array of numpy's"),
        (b"", "is no array of numpy's"),
    ],
)
def test_an_array_that_is_not_what_it_claims(content, part, tmp_path):
    quick_refusal(with_member(tmp_path, content), part)


def test_an_endless_header_is_not_read(tmp_path, monkeypatch):
    """Of the 4 GB that it claims, which zeros could be packed into a small file."""
    asked = []
    plain = zipfile.ZipExtFile.read
    monkeypatch.setattr(
        zipfile.ZipExtFile, "read", lambda file, n=-1: asked.append(n) or plain(file, n)
    )
    content = b"\x93NUMPY\2\0\xff\xff\xff\xff" + b"x" * 70_000
    quick_refusal(with_member(tmp_path, content), "is no array of numpy's")
    assert asked
    assert max(asked) <= 10_000
    assert min(asked) >= 0


def test_more_than_the_memory_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(npz, "_free_memory", lambda: 100e6)
    content = npy("(60000, 1000)", content=bytes(60_000_000))
    path = with_member(tmp_path, content, compress_type=zipfile.ZIP_DEFLATED)
    assert pathlib.Path(path).stat().st_size < 1e6
    message = refusal(path)
    assert f"{path}: needs 0.3 GB of memory, but 0.1 GB are free" in message


def test_the_free_memory_is_known():
    assert 50e6 < npz._free_memory() < 1e15


def test_sizes_that_the_file_cannot_hold(tmp_path):
    content = npy("(40000, 1000, 1000)", content=bytes(1000))
    path = with_member(tmp_path, content)
    size = struct.pack("<I", len(content))
    patch(path, size, struct.pack("<I", 4_000_000_000), count=4)
    quick_refusal(path, "claims 4,000,000,000 bytes")
    path = with_member(tmp_path, content, compress_type=zipfile.ZIP_DEFLATED)
    patch(path, size, struct.pack("<I", 4_000_000_000), count=2)
    quick_refusal(path, "claims 4,000,000,000 bytes")


def test_an_encrypted_array(tmp_path):
    path = with_member(tmp_path, npy("(30, 4, 5)", content=bytes(600)))
    with zipfile.ZipFile(path) as archive:
        central = archive.start_dir
    content = bytearray(pathlib.Path(path).read_bytes())
    content[6] |= 1
    content[central + 8] |= 1
    pathlib.Path(path).write_bytes(content)
    quick_refusal(path, "train_images is encrypted, expected a plain array")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, 99])
def test_an_unknown_method_of_packing(method, tmp_path):
    path = with_member(tmp_path, npy("(30, 4, 5)", content=bytes(600)))
    with zipfile.ZipFile(path) as archive:
        central = archive.start_dir
    content = bytearray(pathlib.Path(path).read_bytes())
    content[8] = content[central + 10] = method
    pathlib.Path(path).write_bytes(content)
    quick_refusal(path, f"is packed by method {method}")
