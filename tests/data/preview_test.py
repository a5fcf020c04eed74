import pathlib
import re
import subprocess
import sys

import numpy as np
import official_files
import pytest
from PIL import Image

from ffjax import data


def look(folder: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    root = pathlib.Path(data.__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "ffjax.data", *flags],
        cwd=folder,
        env={"PYTHONPATH": str(root), "HOME": str(folder)},
        capture_output=True,
        text=True,
    )


def test_it_prints_the_facts_and_draws_a_sheet(tmp_path):
    result = look(tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "fashion_mini: 10 classes, images of 28 x 28" in result.stdout
    assert "source: embedded" in result.stdout
    assert re.search(r"mean: 0\.2869 +std: 0\.3538", result.stdout)
    assert re.search(r"9 +Ankle boot +600 +200", result.stdout)
    assert re.search(r"all +6,000 +2,000", result.stdout)
    assert [path.name for path in tmp_path.iterdir()] == ["fashion_mini.png"]
    with Image.open(tmp_path / "fashion_mini.png") as sheet:
        assert sheet.size[0] > 10 * 56


def test_the_sheet_shows_the_images_as_they_are(tmp_path):
    arrays = official_files.make((28, 28, 3), 2, train=6, test=2)
    np.savez(tmp_path / "mine.npz", **arrays._asdict())
    assert look(tmp_path, "--dataset=mine.npz", "--output=a.png").returncode == 0
    with Image.open(tmp_path / "a.png") as sheet:
        pixels = np.asarray(sheet)
    # The images are doubled; each must be found whole in the row of its class.
    dataset = data.load(str(tmp_path / "mine.npz"))
    left = pixels.shape[1] - 10 * 60
    for label in range(2):
        row = arrays.train_images[arrays.train_labels == label]
        for column in range(3):
            top, start = 4 + 60 * label, left + 60 * column
            drawn = pixels[top : top + 56 : 2, start : start + 56 : 2]
            assert any(np.array_equal(drawn, image) for image in row)
    assert dataset.num_classes == 2


@pytest.mark.parametrize("shape", [(20,), (5, 300)])
def test_odd_shapes_are_drawn_too(shape, tmp_path):
    arrays = official_files.make(shape, 3, train=30, test=3)
    floats = arrays._replace(
        train_images=arrays.train_images * 3.5 - 200,
        test_images=arrays.test_images * 3.5 - 200,
    )
    np.savez(tmp_path / "mine.npz", **floats._asdict())
    result = look(tmp_path, "--dataset=mine.npz")
    assert (result.returncode, result.stderr) == (0, "")
    with Image.open(tmp_path / "mine.png") as sheet:
        grey = np.asarray(sheet)[:, sheet.size[0] // 2 :]
    assert len(np.unique(grey)) > 50, (
        "a range of one's own is not cut to black or white"
    )


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--dataset=minst"], "did you mean 'mnist'?"),
        (["--dataset=absent.npz"], "absent.npz: cannot be read"),
        (["--data_dir=absent", "--dataset=mnist"], "data_dir='absent'"),
        (["--output=absent/sheet.png"], "output='absent/sheet.png'"),
        (["mnist"], "'mnist': not a flag"),
    ],
)
def test_mistakes_give_one_line(flags, part, tmp_path):
    result = look(tmp_path, *flags)
    assert result.returncode == 2
    assert result.stderr.startswith("ffjax: ")
    assert result.stderr.count("\n") == 1
    assert part in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_explains_every_flag(tmp_path):
    result = look(tmp_path, "--help")
    for flag in ("--dataset", "--data_dir", "--output"):
        assert flag in result.stdout
