"""Bad input and faults: each gives one line that says what is wrong, and nothing more.

Fields of a run are attacked systematically, from what ``spec.ABOUT`` says of them: on
the command line, from Python and as arguments of ``fit``. Config files, flags, data,
records and networks are attacked by the tables below. ``test_how_many`` holds how many
attacks there are.
"""

import json
import math
import os
import re

import jax
import numpy as np
import pytest
import safetensors.numpy
from in_process import command

import ffjax
from ffjax import config, data, records
from ffjax.config import spec
from ffjax.errors import UserError
from ffjax.training import machine

_TINY = [
    "--config.width=8",
    "--config.epochs=1",
    "--config.num_layers=1",
    "--config.train_limit=100",
    "--config.test_limit=50",
    "--config.batch_size=50",
]


@pytest.fixture(autouse=True)
def nothing_lasting(monkeypatch):
    """The cache of compiled programs belongs to a process, and this one is shared."""
    monkeypatch.setattr(machine, "use_compilation_cache", lambda: None)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)


def _files(folder):
    return {path for path in folder.rglob("*") if path.is_file()}


def _is_line(text, pattern):
    assert "\n" not in text
    assert "Traceback" not in text
    assert re.search(pattern, text), f"{pattern!r} is not in {text!r}"


def _check_refused(folder, pattern, *arguments):
    """A command that must end in one line, and write nothing."""
    before = _files(folder)
    ended = command(*arguments, f"--workdir={folder / 'out'}")
    assert ended.code == 2, ended
    assert ended.err.startswith("ffjax: ")
    assert ended.err.endswith("\n")
    _is_line(ended.err[:-1], pattern)
    assert "Traceback" not in ended.out
    assert _files(folder) == before


# Fields of a run, from Python.

_ODD_VALUES = {
    "true": True,
    "none": None,
    "text": "nosuch",
    "empty": "",
    "nul": "a\0b",
    "nan": math.nan,
    "inf": math.inf,
    "minus_inf": -math.inf,
    "negative": -3,
    "half": 0.5,
    "huge_float": 1e308,
    "huge_integer": 10**400,
    "list": [1],
    "dict": {"a": 1},
    "bytes": b"x",
    "lines": "a\nb",
}
_SPEC_FIELDS = spec.names("method", "size", "setting")
# Any text is a text; whether it names a function or dataset is asked afterwards.
_TEXTS = ("dataset", "goodness", "goodness_params")


def _is_wrong(name, value):
    if name in _TEXTS and isinstance(value, str):
        return bool(value) or name != "goodness_params"
    return not spec.ABOUT[name].domain.allows(value)


_PYTHON = [
    pytest.param(name, value, id=f"{name}-{label}")
    for name in _SPEC_FIELDS
    for label, value in _ODD_VALUES.items()
    if _is_wrong(name, value)
]


@pytest.mark.parametrize(("name", "value"), _PYTHON)
def test_a_field_from_python(name, value):
    with pytest.raises(UserError) as error:
        spec.make_spec(**{name: value})
    _is_line(str(error.value), f"^{name}=")
    assert len(str(error.value)) < 500


_FIT = [
    pytest.param(name, value, id=f"{name}-{label}")
    for name in _SPEC_FIELDS
    if spec.ABOUT[name].in_fit
    for label, value in _ODD_VALUES.items()
    if _is_wrong(name, value) and label in ("true", "text", "nan", "negative", "list")
]


@pytest.mark.parametrize(("name", "value"), _FIT)
def test_an_argument_of_fit(toy, name, value):
    with pytest.raises(UserError) as error:
        ffjax.fit(*toy, **{name: value})
    _is_line(str(error.value), f"^{name}=")


# Fields of a run, on the command line.

_TEXT_VALUES = ["nosuch", "", "nan", "inf", "-1", "1.5", "1e308", "9" * 5000, "[-1]"]


def _parsed(name, text):
    """What a field is after the command line has read it; the text if it is nothing."""
    kind = spec.kind(name)
    if kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            return text
    return text if kind is str else None


_COMMAND = [
    pytest.param(name, text, id=f"{name}-{text[:8]}")
    for name in spec.ABOUT
    for text in _TEXT_VALUES
    if name not in ("data_dir", "seeds") and _is_wrong(name, _parsed(name, text))
]


@pytest.mark.parametrize(("name", "text"), _COMMAND)
def test_a_field_on_the_command_line(tmp_path, name, text):
    _check_refused(tmp_path, f"^ffjax: {name}=", f"--config.{name}={text}")


# The command line.

_FLAGS = [
    (["--config.goodnes=sos"], r"goodnes: no such field; did you mean 'goodness'"),
    (["--config.grid=x"], r"grid: no such field"),
    (["--config.=3"], r": no such field"),
    (["--config.width.x=3"], r"width\.x: no such field"),
    (["--config.seeds=()"], r"seeds=\(\): give at least one seed"),
    (["--config.seeds=-1"], r"seeds="),
    (["--config.seeds=1.5"], r"seeds="),
    (["--config.seeds=abc"], r"seeds=\('abc',\): must be integers"),
    (["--config.seeds=(1,"], r"seeds="),
    (["--config.seeds=4294967296"], r"seeds="),
    (["--config.norm_gate=maybe"], r"norm_gate='maybe': must be True or False"),
    (["--config.goodness=sos", "--config.p=3"], r"p=3: goodness 'sos' does not use it"),
    (["--config.goodness=sos", "--config.alpha=2"], r"alpha=2\.0: goodness 'sos'"),
    (["--config.goodness=moment", "--config.k_fraction=0.1"], r"k_fraction=0\.1: good"),
    (["--config.loss=symba", "--config.threshold=5"], r"threshold=5\.0: not used"),
    (["--config.trainer=backprop", "--config.p=3"], r"p=3: goodness"),
    (["--config.trainer=backprop", "--config.goodness=sos"], r"goodness='sos': not us"),
    (["--config.loss=softmax"], r"negatives='random': must be 'all' with loss"),
    (["--config.ensemble=later", "--config.num_layers=1"], r"needs num_layers >= 2"),
    (["--config.goodness=nomodule:f"], r"cannot import module 'nomodule'"),
    (["--config.goodness=os:path"], r"os has no goodness function 'path'"),
    (["--config.goodness=:f"], r"goodness=':f'"),
    (["--config.goodness=..x:f"], r"goodness='\.\.x:f'"),
    (["--config.goodness_params=q"], r"goodness_params='q': must be NAME=NUMBER"),
    (["--config.goodness_params=q=nan"], r"goodness_params='q=nan': must be"),
    (["--config.goodness_params=q=1e400"], r"goodness_params='q=1e400': must be"),
    (["--config.goodness_params=q=1"], r"has no parameter 'q'"),
    (["--config.goodness=moment", "--config.goodness_params=p=6"], r"p is set by p"),
    (["--config.dataset=../mnist"], r"dataset='\.\./mnist': unknown"),
    (["--config.dataset=nowhere.npz"], r"nowhere\.npz"),
    (["--config.dataset=/"], r"dataset='/': unknown"),
    (["--config.data_dir=/no/such/folder", "--config.dataset=usps"], r"data_dir"),
    (["--config.batch_size=100000"], r"batch_size=100000: must not be larger"),
    (["--config.batch_size=50", "--config.train_limit=40"], r"batch_size=50: must not"),
    (["--config.train_limit=99999999"], r"train_limit=99999999"),
    (["--config.test_limit=99999999"], r"test_limit=99999999"),
    (["--config.valid_fraction=0.00001"], r"valid_fraction=1e-05: splits"),
    (["--config.width=1000000000"], r"width=1000000000: .* need about \S+ GB, but"),
    (["--config.width=1000000"], r"width=1000000: .* need about \S+ GB, but"),
    (
        ["--config.width=1000000000", "--config.trainer=backprop"],
        r"width=1000000000: .* need about \S+ GB, but",
    ),
    (["--config.epochs=1000000000000"], r"epochs=1000000000000: must be an integer"),
    (["--config.learning_rate=1e308"], r"learning_rate=1e\+308: must be a number > 0"),
    (["--config.num_devices=99"], r"num_devices=99: there are \d+ on this machine"),
    (["--config=nowhere.py"], r"config='nowhere\.py': no such file"),
    (["--config="], r"config='': no such file"),
    (["--config"], r"config='--workdir=.*': no such file"),
    (["--config=/"], r"config='/': no such file"),
    (["--wrokdir=x"], r"wrokdir"),
    (["--shard=5/4"], r"shard='5/4': must be i/n with i from 1 to n"),
    (["--shard=0/1"], r"shard='0/1': must be"),
    (["--shard=x"], r"shard='x': must be"),
    (["--shard=1/99999999"], r"shard='1/99999999': must be"),
    (["--workers=-1"], r"workers"),
    (["--workers=x"], r"workers"),
    (["--workers=1.5"], r"workers"),
    (["--workers=9999999"], r"workers=9999999: there are \d+ cores? for them"),
    (["--workers=2", "--runner=ray"], r"workers=2: not with --runner=ray"),
    (["--runner=nosuch"], r"runner"),
    (["--list=maybe"], r"list"),
    (["--max_retries=2"], r"max_retries=2: needs --runner=ray"),
    (["--ray_cpus=2"], r"ray_cpus=2\.0: needs --runner=ray"),
    (["--runner=ray", "--ray_cpus=nan"], r"ray_cpus=nan: must be a number from 0\.01"),
    (["--runner=ray", "--ray_cpus=inf"], r"ray_cpus=inf: must be a number from 0\.01"),
    (["--runner=ray", "--ray_cpus=0"], r"ray_cpus"),
    (["--runner=ray", "--ray_gpus=nan"], r"ray_gpus=nan: must be a number from 0 to 1"),
    (["--runner=ray", "--ray_gpus=1.5"], r"ray_gpus=1\.5: must be a number from 0 to"),
    (["--runner=ray", "--ray_gpus=-1"], r"ray_gpus"),
    (["--runner=ray", "--max_retries=-1"], r"max_retries"),
    (["--runner=ray", "--max_retries=x"], r"max_retries"),
    (["--runner=ray", "--ray_address=nowhere"], r"ray_address='nowhere': must be HOST"),
    (["--runner=ray", "--ray_address=127.0.0.1:1"], r"nothing answers there"),
    (["--runner=ray", "--ray_address=127.0.0.1:99999"], r"ray_address="),
    (["stray"], r"'stray': not a flag"),
    (["--", "x"], r"'x': not a flag"),
    (["--config.width=8", "--config={demo}"], r"config"),
]


@pytest.mark.parametrize(("arguments", "pattern"), _FLAGS)
def test_a_command_line(tmp_path, arguments, pattern):
    demo = os.path.join(os.path.dirname(ffjax.__file__), "demo.py")
    arguments = [argument.format(demo=demo) for argument in arguments]
    _check_refused(tmp_path, pattern, *arguments)


# Config files.

_START = "from ffjax import config\nfrom ml_collections import ConfigDict\n"
_RETURN = _START + "def get_config():\n    return "
_GRID = (
    _START
    + "def get_config():\n    fields = config.default()\n    fields.grid = {}\n"
    + "    return fields\n"
)
_CONFIGS = {
    "empty file": ("", r"it has no function get_config"),
    "no function": ("get_config = 3\n", r"it has no function get_config"),
    "none": (_RETURN + "None\n", r"get_config gave None; must be a ConfigDict"),
    "a dict": (_RETURN + "{'p': 3}\n", r"gave \{'p': 3\}; must be a ConfigDict"),
    "a number": (_RETURN + "7\n", r"gave 7; must be a ConfigDict"),
    "an empty ConfigDict": (_RETURN + "ConfigDict()\n", r"has no field 'trainer'"),
    "a partial ConfigDict": (_RETURN + "ConfigDict({'p': 3})\n", r"has no field"),
    "an unknown field": (
        _RETURN + "ConfigDict({**config.default(), 'wdith': 3})\n",
        r"wdith: no such field; did you mean 'width'",
    ),
    "a wrong value": (
        _RETURN + "ConfigDict({**config.default(), 'epochs': 0})\n",
        r"epochs=0: must be an integer from 1",
    ),
    "a wrong type": (
        _RETURN + "ConfigDict({**config.default(), 'width': 'x'})\n",
        r"width='x': must be an integer",
    ),
    "a wrong seed": (
        _RETURN + "ConfigDict({**config.default(), 'seeds': 3})\n",
        r"seeds=3: must be integers",
    ),
    "a grid of numbers": (_GRID.format("{'a': 5}"), r"section 'a' is 5; must map"),
    "a grid that is a list": (_GRID.format("[{'p': 3}]"), r"grid=\[\{'p': 3\}\]; must"),
    "a grid that is a text": (_GRID.format("'all'"), r"grid='all'; must map"),
    "a grid of nothing": (_GRID.format("{}"), r"the grid has no sections"),
    "an empty section": (_GRID.format("{'a': ()}"), r"section 'a' has no cells"),
    "a cell that is none": (_GRID.format("{'a': (3,)}"), r"'a' has the cell 3"),
    "a cell with a wrong field": (
        _GRID.format("{'a': ({'goodnes': 'sos'},)}"),
        r"goodnes: no such field",
    ),
    "a cell with a wrong value": (
        _GRID.format("{'a': ({'goodness': 'moment', 'p': 0},)}"),
        r"p=0: must be an integer from 1 to 32",
    ),
    "a cell without seeds": (_GRID.format("{'a': ({'seeds': ()},)}"), r"seeds=\(\)"),
    "an unknown function": (
        _GRID.format("{'a': ({'goodness': 'foo'},)}"),
        r"goodness='foo': unknown",
    ),
    "a syntax error": ("def get_config(:\n", r"bad\.py': line 1: invalid syntax"),
    "garbage": ("\0\0", r"null bytes"),
    "an import that fails": ("import nosuch\n", r"line 1: ModuleNotFoundError: No mod"),
    "an error at once": ("x = 1\n1 / 0\n", r"line 2: ZeroDivisionError: division"),
    "an error inside": (_RETURN + "nosuch\n", r"line 4: NameError: name 'nosuch'"),
    "an error of lines": (
        "def get_config():\n    raise ValueError('a\\nb')\n",
        r"line 2: ValueError: a b",
    ),
    "a file that is not there": (
        "def get_config():\n    open('/no/such')\n",
        r"line 2: FileNotFoundError",
    ),
    "an endless recursion": (
        "def get_config():\n    return get_config()\n",
        r"RecursionError",
    ),
    "an exit": ("import sys\nsys.exit(3)\n", r"ends the program \(SystemExit\(3\)\)"),
    "an exit inside": (
        "def get_config():\n    raise SystemExit\n",
        r"ends the program \(SystemExit",
    ),
    "a section that it needs": (
        "def get_config(section):\n    return None\n",
        r"its get_config needs a section, after a colon",
    ),
    "a class": ("class get_config:\n    pass\n", r"must be a ConfigDict"),
}
_SECTIONS = {
    "no sections": (_RETURN + "config.default()\n", "x", r"this file has no sections"),
    "an unknown section": (
        _START
        + "def get_config(section=None):\n"
        + "    return config.grid({'a': ({'p': 4, 'goodness': 'moment'},)}, section)\n",
        "b",
        r"section 'b': must be one of a",
    ),
    "an empty name": (
        _START
        + "def get_config(section=None):\n"
        + "    return config.grid({'a': ({},)}, section)\n",
        "",
        r"section '': must be one of a",
    ),
}


@pytest.mark.parametrize("name", _CONFIGS)
def test_a_config_file(tmp_path, name):
    content, pattern = _CONFIGS[name]
    path = tmp_path / "bad.py"
    path.write_text(content)
    _check_refused(tmp_path, pattern, f"--config={path}")


@pytest.mark.parametrize("name", _SECTIONS)
def test_a_section(tmp_path, name):
    content, section, pattern = _SECTIONS[name]
    path = tmp_path / "bad.py"
    path.write_text(content)
    _check_refused(tmp_path, pattern, f"--config={path}:{section}")


@pytest.mark.parametrize(
    ("override", "pattern"),
    [
        ("--config.p=5", r"no cell of the grid has p=5 \(the grid has p: 4, 6\)"),
        ("--config.alpha=2.0", r"no cell of the grid has alpha=2\.0"),
        ("--config.goodness=topk", r"no cell of the grid has goodness='topk'"),
        ("--config.p=0", r"p=0: must be an integer from 1 to 32"),
    ],
)
def test_an_override_that_leaves_nothing_of_a_grid(tmp_path, override, pattern):
    path = tmp_path / "grid.py"
    cells = "config.product(goodness='moment', p=(4, 6)) + ({'goodness': 'sos'},)"
    path.write_text(_GRID.format(f"{{'a': {cells}}}"))
    _check_refused(tmp_path, pattern, f"--config={path}", override)


# Data, as the command meets them; tests/data has more.


def _images(**changes):
    random = np.random.default_rng(0)
    arrays = {
        "train_images": random.integers(0, 255, (60, 4, 4)).astype(np.uint8),
        "train_labels": np.arange(60) % 3,
        "test_images": random.integers(0, 255, (30, 4, 4)).astype(np.uint8),
        "test_labels": np.arange(30) % 3,
    }
    arrays.update(changes)
    return {name: array for name, array in arrays.items() if array is not None}


_DATA = {
    "no array": (_images(test_labels=None), r"has no array 'test_labels'"),
    "one class": (_images(train_labels=np.zeros(60, int)), r"labels"),
    "lengths": (_images(train_labels=np.arange(59) % 3), r"train"),
    "negative labels": (_images(train_labels=np.arange(60) % 3 - 1), r"labels"),
    "labels of the test set": (_images(test_labels=np.full(30, 7)), r"labels"),
    "labels that are no integers": (
        _images(train_labels=(np.arange(60) % 3) + 0.5),
        r"labels",
    ),
    "shapes": (_images(test_images=np.zeros((30, 5, 5), np.uint8)), r"alike|shape"),
    "nan": (_images(train_images=np.full((60, 4, 4), np.nan)), r"finite|NaN"),
    "text": (_images(train_images=np.full((60, 4, 4), "a")), r"train_images"),
    "objects": (
        _images(train_labels=np.array([{}] * 60, dtype=object)),
        r"plain numbers|plain arrays",
    ),
    "no images": (_images(train_images=np.zeros((0, 4, 4), np.uint8)), r"train"),
}


@pytest.mark.parametrize("name", _DATA)
def test_data(tmp_path, name):
    arrays, pattern = _DATA[name]
    path = tmp_path / "mine.npz"
    np.savez(path, **arrays)
    _check_refused(
        tmp_path,
        f"mine.npz.*(?:{pattern})",
        f"--config.dataset={path}",
        "--config.batch_size=10",
    )


@pytest.mark.parametrize("content", [b"", b"garbage", b"PK\x03\x04" + b"\0" * 100])
def test_a_file_that_is_no_data(tmp_path, content):
    path = tmp_path / "mine.npz"
    path.write_bytes(content)
    _check_refused(tmp_path, r"mine\.npz: ", f"--config.dataset={path}")


def test_a_pipe_for_data(tmp_path):
    path = tmp_path / "mine.npz"
    os.mkfifo(path)
    _check_refused(tmp_path, r"mine\.npz: ", f"--config.dataset={path}")


# Faults of the system.


def test_a_workdir_that_is_a_file(tmp_path):
    (tmp_path / "out").write_text("mine")
    _check_refused(tmp_path, r"workdir=.*: cannot write there", *_TINY)


@pytest.mark.parametrize("name", ["x" * 300, "/proc/none", "/dev/null/x"])
def test_a_workdir_that_cannot_be_made(tmp_path, name):
    ended = command(*_TINY, f"--workdir={tmp_path / name}")
    assert (ended.code, ended.out) == (2, "")
    _is_line(ended.err[:-1], r"workdir=.*: cannot write there \(.*--workdir=DIR")
    assert _files(tmp_path) == set()


def test_no_device(tmp_path, monkeypatch):
    def fail():
        raise RuntimeError("Unable to initialize backend 'nosuch'\nmore lines")

    monkeypatch.setattr(jax, "local_devices", fail)
    _check_refused(tmp_path, r"JAX has no device to run on: Unable to init", *_TINY)


# Records.


@pytest.fixture(scope="module")
def record():
    """A whole record as JSON reads it."""
    run = config.make_spec(
        dataset="fashion_mini", num_layers=2, width=8, epochs=2, goodness="sos"
    )
    whole = records.Record(
        cell="cell",
        spec=run,
        seed=1,
        status="ok",
        accuracy=50.0,
        accuracy_layers=[50.0, 25.0],
        accuracy_concat=50.0,
        confusion=[[1, 1], [1, 1]],
        losses=[[1.0, 0.5], [1.0, 0.5]],
        time=records.Times(1.0, 1.0, 1.0),
        train_size=10,
        test_size=4,
        device="cpu",
        versions={"jax": "1"},
        commit=None,
    )
    return json.loads(records.msgspec.json.encode(whole))


_RECORD_VALUES = {
    "text": "x",
    "negative": -1,
    "nan": math.nan,
    "list": [["x"]],
    "null": None,
    "object": {"a": [1]},
    "huge": 10**400,
}
_RECORD_KEYS = [
    "cell", "spec", "seed", "status", "accuracy", "accuracy_layers", "confusion",
    "losses", "time", "train_size", "test_size", "device", "versions",
]  # fmt: skip
# What fits: a text where there is text; of times all have defaults.
_FITTING = {("cell", "text"), ("device", "text"), ("time", "object")}
_RECORDS = [
    pytest.param(key, label, id=f"{key}-{label}")
    for key in _RECORD_KEYS
    for label in _RECORD_VALUES
    if (key, label) not in _FITTING
]


def _check_broken(folder, content):
    path = folder / "results" / "cell-seed1.json"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(records.BrokenRecord) as error:
        records.read(path)
    _is_line(str(error.value), "^.*cell-seed1.json: .")
    assert len(str(error.value)) < 600
    found, problems = records.read_all(folder)
    assert (found, len(problems)) == ([], 1)


@pytest.mark.parametrize(("key", "label"), _RECORDS)
def test_a_record_with_an_odd_value(tmp_path, record, key, label):
    changed = {**record, key: _RECORD_VALUES[label]}
    _check_broken(tmp_path, json.dumps(changed).encode())


@pytest.mark.parametrize("key", _RECORD_KEYS)
def test_a_record_without_a_key(tmp_path, record, key):
    changed = {name: value for name, value in record.items() if name != key}
    _check_broken(tmp_path, json.dumps(changed).encode())


_CONTRADICTIONS = {
    "accuracy above 100": {"accuracy": 200.0},
    "accuracy of others": {"accuracy": 51.0},
    "a matrix that is not square": {"confusion": [[1, 1, 0], [1, 1, 0]]},
    "an empty matrix": {"confusion": []},
    "a matrix of another size": {"confusion": [[2, 1], [1, 2]]},
    "a negative count": {"confusion": [[3, -1], [1, 1]]},
    "too few layers": {"accuracy_layers": [50.0]},
    "a loss that is missing": {"losses": [[1.0, None], [1.0, 0.5]]},
    "losses of one layer": {"losses": [[1.0, 0.5]]},
    "too many epochs": {"losses": [[1.0] * 3, [1.0] * 3]},
    "another status": {"status": "fine"},
    "another run": {"cell": "other"},
    "a group of none": {"group_size": 0},
}


@pytest.mark.parametrize("name", _CONTRADICTIONS)
def test_a_record_that_contradicts_itself(tmp_path, record, name):
    changed = {**record, **_CONTRADICTIONS[name]}
    _check_broken(tmp_path, json.dumps(changed).encode())


@pytest.mark.parametrize("field", [*_SPEC_FIELDS, "unknown"])
def test_a_record_of_an_impossible_run(tmp_path, record, field):
    changed = {**record, "spec": {**record["spec"], field: [{}]}}
    _check_broken(tmp_path, json.dumps(changed).encode())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 10**6,
        b'{"a":' * 10**5,
        b"9" * 5000,
    ],
    ids=["empty", "cut", "list", "null", "bytes", "deep", "deeper", "digits"],
)
def test_a_file_that_is_no_record(tmp_path, content):
    _check_broken(tmp_path, content)


# Networks and arrays of one's own.


@pytest.fixture(scope="module")
def network(toy):
    return ffjax.fit(*toy, width=8, epochs=1, num_layers=1, batch_size=100)


_NETWORK_FILES = {
    "empty": lambda content: b"",
    "garbage": lambda content: b"garbage",
    "cut": lambda content: content[:-20],
    "a long header": lambda content: b"\xff" * 8 + content[8:],
    "no format": lambda content: safetensors.numpy.save({"a": np.zeros(3)}),
}


@pytest.mark.parametrize("name", _NETWORK_FILES)
def test_a_network_file(tmp_path, network, name):
    path = tmp_path / "network.safetensors"
    network.save(path)
    path.write_bytes(_NETWORK_FILES[name](path.read_bytes()))
    with pytest.raises(UserError) as error:
        ffjax.load(path)
    _is_line(str(error.value), r"network\.safetensors")


@pytest.mark.parametrize("name", ["nowhere", ".", ""])
def test_a_network_that_is_not_there(tmp_path, name):
    with pytest.raises(UserError) as error:
        ffjax.load(tmp_path / name)
    _is_line(str(error.value), re.escape(str(tmp_path / name)))


_BAD_IMAGES = {
    "none": None,
    "a number": 3.0,
    "text": np.full((205, 12), "a"),
    "objects": np.full((205, 12), None),
    "complex": np.zeros((205, 12), complex),
    "nan": np.full((205, 12), np.nan),
    "inf": np.full((205, 12), np.inf),
    "no images": np.zeros((0, 12)),
    "too few": np.zeros((204, 12)),
    "no pixels": np.zeros((205,)),
}
_BAD_LABELS = {
    "none": None,
    "a number": 3,
    "floats": np.zeros(205),
    "text": np.full(205, "a"),
    "one class": np.zeros(205, int),
    "negative": np.full(205, -1),
    "too few": np.zeros(204, int),
    "pairs": np.zeros((205, 2), int),
    "truth values": np.zeros(205, bool),
}


@pytest.mark.parametrize("name", _BAD_IMAGES)
def test_images_for_fit(toy, name):
    with pytest.raises(UserError) as error:
        ffjax.fit(_BAD_IMAGES[name], toy[1])
    _is_line(str(error.value), r"^(images|labels)")


@pytest.mark.parametrize("name", _BAD_LABELS)
def test_labels_for_fit(toy, name):
    with pytest.raises(UserError) as error:
        ffjax.fit(toy[0], _BAD_LABELS[name])
    _is_line(str(error.value), r"^labels")


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        ({"wdith": 3}, r"fit has no argument 'wdith'; did you mean 'width'"),
        ({"dataset": "mnist"}, r"fit has no argument 'dataset'"),
        ({"num_classes": 0}, r"num_classes=0: must be an integer >= 2"),
        ({"num_classes": 2}, r"labels: from 0 to 3; must lie in 0\.\.1"),
        ({"num_classes": 4.0}, r"num_classes=4\.0: must be"),
        ({"num_classes": True}, r"num_classes=True: must be"),
        ({"seed": -1}, r"seed=-1: must be an integer from 0"),
        ({"seed": 1.5}, r"seed=1\.5: must be"),
        ({"seed": "x"}, r"seed='x': must be"),
        ({"batch_size": 206}, r"batch_size=206: must not be larger"),
        ({"goodness": "sos", "p": 3}, r"p=3: goodness 'sos' does not use it"),
        ({"width": 10**9}, r"width=1000000000: .* need about \S+ GB"),
    ],
)
def test_other_arguments_of_fit(toy, arguments, pattern):
    with pytest.raises(UserError) as error:
        ffjax.fit(*toy, **arguments)
    _is_line(str(error.value), pattern)


@pytest.mark.parametrize(
    "images", [None, "x", np.zeros((3, 11)), np.full((3, 12), np.nan)]
)
def test_images_for_predict(network, images):
    with pytest.raises(UserError) as error:
        network.predict(images)
    _is_line(str(error.value), r"^images")


# Datasets by name.


@pytest.mark.parametrize(
    "name", ["", "mnits", "../mnist", "mnist.npz", "/etc/passwd", "a\0.npz"]
)
def test_the_name_of_a_dataset(name):
    with pytest.raises(UserError) as error:
        data.load(name)
    _is_line(str(error.value), ".")


def test_how_many(request):
    """At least 150 attacks are in this file; the count is a property of its report."""
    here = [item for item in request.session.items if item.path == request.path]
    number = len(here) - 1
    request.node.user_properties.append(("attacks", number))
    known = len(_PYTHON) + len(_FIT) + len(_COMMAND) + len(_RECORDS)
    known += len(_FLAGS) + len(_CONFIGS) + len(_DATA)
    print(f"{max(number, known)} attacks")
    assert known >= 600
