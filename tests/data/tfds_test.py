import json

import numpy as np
import official_files
import pytest

from ffjax.data import tfds
from ffjax.errors import UserError


@pytest.fixture
def folder(tmp_path):
    arrays = official_files.make((16, 16), 10, train=1010, test=20)
    official_files.write_prepared(tmp_path, "usps", arrays)
    return tmp_path / "usps" / "1.0.0"


def test_reads_all_blocks(folder):
    arrays = official_files.make((16, 16), 10, train=1010, test=20)
    result = tfds.read(folder)
    for stored, expected in zip(result, arrays, strict=True):
        np.testing.assert_array_equal(stored, expected[::-1])
    assert len(tfds.files(folder)) >= 4


def test_finds_the_newest_whole_version(tmp_path):
    assert tfds.find("mnist", tmp_path) is None
    for version in ("3.0.1", "3.0.9", "3.0.10", "incomplete.ABC_3.0.11"):
        (tmp_path / "mnist" / version).mkdir(parents=True)
        (tmp_path / "mnist" / version / "dataset_info.json").touch()
    (tmp_path / "mnist" / "4.0.0").mkdir()  # without its description: not whole
    assert tfds.find("mnist", tmp_path) == tmp_path / "mnist" / "3.0.10"


@pytest.mark.parametrize("damage", ["records", "description", "features", "split"])
def test_a_damaged_folder_is_refused(damage, folder):
    info = folder / "dataset_info.json"
    if damage == "records":
        path = folder / "usps-test.array_record-00000-of-00001"
        path.write_bytes(path.read_bytes()[:1000])
    elif damage == "description":
        info.write_text(info.read_text()[:50])
    elif damage == "features":
        (folder / "features.json").unlink()
    else:
        content = json.loads(info.read_text())
        content["splits"] = content["splits"][:1]
        info.write_text(json.dumps(content))
    with pytest.raises(UserError) as caught:
        tfds.read(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_formats_need_tensorflow(folder, monkeypatch):
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace("array_record", "tfrecord"))
    monkeypatch.setattr(tfds, "has_tensorflow", lambda: False)
    with pytest.raises(UserError) as caught:
        tfds.read(folder)
    assert str(folder) in str(caught.value)
    assert "pip install 'ffjax[tfds]'" in str(caught.value)


def test_a_missing_network_is_found_at_once(monkeypatch):
    def fail(*args):
        raise OSError(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", fail)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with pytest.raises(OSError, match=r"cannot reach example\.org: Name or service"):
        tfds._check_network(["https://example.org/a.gz"])
    monkeypatch.setattr("urllib.request.getproxies", lambda: {"https": "proxy"})
    tfds._check_network(["https://example.org/a.gz"])  # the proxy may know it
