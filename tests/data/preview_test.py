import pathlib
import re
import subprocess
import sys

import numpy as np
import official_files
import pytest
from loading import real, run_environment
from PIL import Image


def look(folder: pathlib.Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in ``folder``; its temporary files go to tmp/ beside it."""
    temporary = folder.parent / f"{folder.name}-tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "ffjax.data", *flags],
        cwd=folder,
        env=run_environment(
            HOME=str(folder),
            TMPDIR=str(temporary),
            FFJAX_CACHE_DIR=str(temporary / "cache"),
        ),
        capture_output=True,
        text=True,
    )


def sheet_of(result: subprocess.CompletedProcess[str]) -> pathlib.Path:
    """The path that the command prints last."""
    assert (result.returncode, result.stderr) == (0, "")
    last = result.stdout.splitlines()[-1]
    assert last.startswith("10 training images of each class: ")
    return pathlib.Path(last.split(": ")[1])


def test_it_prints_the_facts_and_draws_a_sheet(tmp_path):
    result = look(tmp_path)
    path = sheet_of(result)
    assert "fashion_mini: 10 classes, images of 28 x 28" in result.stdout
    assert "source: embedded" in result.stdout
    assert re.search(r"mean: 0\.2869 +std: 0\.3538", result.stdout)
    assert re.search(r"9 +Ankle boot +600 +200", result.stdout)
    assert re.search(r"all +6,000 +2,000", result.stdout)
    assert list(tmp_path.iterdir()) == [], "the folder stays as it was"
    assert path.name == "fashion_mini.png"
    with Image.open(path) as sheet:
        assert sheet.size[0] > 10 * 56


def test_the_sheet_shows_the_images_as_they_are(tmp_path):
    arrays = official_files.make((28, 28, 3), 2, train=6, test=2)
    np.savez(tmp_path / "mine.npz", **arrays._asdict())
    path = sheet_of(look(tmp_path, "--dataset=mine.npz", "--output=a.png"))
    assert path == pathlib.Path("a.png")
    with Image.open(tmp_path / path) as sheet:
        pixels = np.asarray(sheet)
    # The images are doubled; each must stand whole in the row of its class.
    left = pixels.shape[1] - 10 * 60
    for label in range(2):
        row = arrays.train_images[arrays.train_labels == label]
        for column in range(3):
            top, start = 4 + 60 * label, left + 60 * column
            drawn = pixels[top : top + 56 : 2, start : start + 56 : 2]
            assert any(np.array_equal(drawn, image) for image in row)


@pytest.mark.parametrize("shape", [(20,), (5, 300)])
@pytest.mark.parametrize(("scale", "shift"), [(3.5, -200), (1 / 255, 0)])
def test_odd_shapes_and_ranges_are_drawn_too(shape, scale, shift, tmp_path):
    arrays = official_files.make(shape, 3, train=30, test=3)
    floats = arrays._replace(
        train_images=arrays.train_images * scale + shift,
        test_images=arrays.test_images * scale + shift,
    )
    np.savez(tmp_path / "mine.npz", **floats._asdict())
    with Image.open(sheet_of(look(tmp_path, "--dataset=mine.npz"))) as sheet:
        grey = np.asarray(sheet)[:, sheet.size[0] // 2 :]
    assert len(np.unique(grey)) > 50, "other ranges are not cut to black or white"


def test_warnings_are_plain_lines(tmp_path):
    folder = real("usps")
    cache = tmp_path.parent / f"{tmp_path.name}-tmp" / "cache"
    flags = ("--dataset=usps", f"--data_dir={folder}")
    sheet_of(look(tmp_path, *flags))
    (file,) = cache.iterdir()
    file.write_bytes(b"garbled")
    result = look(tmp_path, *flags)
    assert result.returncode == 0
    assert re.fullmatch(r"ffjax: .*usps-.*: damaged \(.*\), made anew\n", result.stderr)


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
