"""The hash of a function's source: what it depends on, and what it does not."""

import importlib
import importlib.util
import pathlib
import shutil
import sys
from typing import Any

import pytest

from ffjax.goodness import registry, source

ROOT = pathlib.Path(__file__).parents[2]

USED = {
    "pack/__init__.py": "from .version import NUMBER\n",
    "pack/version.py": "NUMBER = 1\n",
    "pack/mine.py": (
        "import json, numpy\nfrom ffjax import errors\nfrom . import near\n"
    ),
    "pack/near.py": (
        "import helper\nfrom beside import f\nfrom .deep.er import g as other\n"
        "import name.space.leaf\nfrom star import *\ndef late():\n    import lazy\n"
    ),
    "pack/deep/__init__.py": "",
    "pack/deep/er.py": "from pack import mine\nfrom ..up import x\ng = 1\n",  # a cycle
    "pack/up.py": "x = 1\n",
    "name/space/leaf.py": "",  # in a package without __init__.py
    "helper.py": "",
    "beside.py": "def f(): pass\n",
    "star.py": "",
    "lazy.py": "",
}
UNUSED = {"unused.py": "", "pack/unused.py": "", "f.py": "", "pack/g.py": ""}


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture
def load(monkeypatch):
    """Imports a module from a folder, and forgets it after the test."""
    monkeypatch.setattr(registry, "GOODNESS", dict(registry.GOODNESS))
    before = set(sys.modules)

    def forget():
        for name in set(sys.modules) - before:
            del sys.modules[name]

    def load(folder, name):
        forget()
        top = name.partition(".")[0]
        for known in [one for one in sys.modules if one.partition(".")[0] == top]:
            monkeypatch.delitem(sys.modules, known)  # of another test, perhaps
        monkeypatch.syspath_prepend(folder)
        return importlib.import_module(name)

    yield load
    forget()


@pytest.fixture
def module(tmp_path, load):
    write(tmp_path, USED | UNUSED)
    return load(tmp_path, "pack.mine")


@pytest.mark.parametrize("name", USED)
def test_every_file_that_is_imported_from_beside_counts(tmp_path, module, name):
    before = source.module_hash(module)
    (tmp_path / name).write_text(USED[name] + "# edited\n")
    after = source.module_hash(module)
    assert after != before
    (tmp_path / name).write_text(USED[name])
    assert source.module_hash(module) == before


@pytest.mark.parametrize("name", UNUSED)
def test_files_that_are_not_imported_do_not_count(tmp_path, module, name):
    before = source.module_hash(module)
    (tmp_path / name).write_text("# edited\n")
    assert source.module_hash(module) == before


def test_the_place_of_the_folder_does_not_count(tmp_path, module, load):
    write(tmp_path / "elsewhere", USED)
    moved = load(tmp_path / "elsewhere", "pack.mine")
    assert moved.__file__ != module.__file__
    assert source.module_hash(moved) == source.module_hash(module)


def test_the_names_of_files_count(tmp_path, load):
    write(tmp_path, {"a/own_named.py": "import own_x\n", "a/own_x.py": ""})
    write(tmp_path, {"b/own_named.py": "import own_x\n", "b/own_x/__init__.py": ""})
    first = source.module_hash(load(tmp_path / "a", "own_named"))
    assert source.module_hash(load(tmp_path / "b", "own_named")) != first


def test_ffjax_and_what_is_installed_do_not_count(tmp_path, load):
    """The example lies beside ffjax itself; alone in a folder, it is the same."""
    name = "experiments.own_goodness.norm_ratio"
    beside = load(ROOT, name)
    copy = tmp_path / "experiments"
    shutil.copytree(ROOT / "experiments" / "own_goodness", copy / "own_goodness")
    shutil.copy(ROOT / "experiments" / "__init__.py", copy)
    alone = load(tmp_path, name)
    assert alone.__file__ != beside.__file__
    assert source.module_hash(alone) == source.module_hash(beside)


def test_an_installed_package_counts_without_its_neighbours(
    tmp_path, load, monkeypatch
):
    write(
        tmp_path,
        {
            "own_plugin/__init__.py": "import own_neighbour, own_plugin.part",
            "own_plugin/part.py": "",
            "own_neighbour.py": "",
        },
    )
    monkeypatch.setattr(source, "_LIBRARIES", {*source._LIBRARIES, tmp_path})
    module = load(tmp_path, "own_plugin")
    before = source.module_hash(module)
    (tmp_path / "own_neighbour.py").write_text("# edited\n")
    assert source.module_hash(module) == before
    (tmp_path / "own_plugin" / "part.py").write_text("# edited\n")
    assert source.module_hash(module) != before


def test_a_file_that_was_loaded_by_its_path(tmp_path):
    write(tmp_path, {"folder/config.py": "", "folder/own_sibling.py": "x = 1\n"})
    path = tmp_path / "folder" / "config.py"
    spec = importlib.util.spec_from_file_location("some.other.name", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    path.write_text("import own_sibling\n")
    before = source.module_hash(module)
    (tmp_path / "folder" / "own_sibling.py").write_text("x = 2\n")
    assert source.module_hash(module) != before


def test_a_file_that_can_no_longer_be_read_as_python(tmp_path, module):
    (tmp_path / "pack" / "near.py").write_text("def (\n")
    before = source.module_hash(module)
    (tmp_path / "pack" / "near.py").write_text("def )\n")
    assert source.module_hash(module) != before


def test_a_function_without_a_file(tmp_path, module):
    def first(h):
        return h.sum(-1)

    def second(h):
        return h.mean(-1)

    for fn in (first, second):
        fn.__module__ = "no_such_module"
    digests = {source.function_hash(first), source.function_hash(second)}
    assert len(digests) == 2
    assert None not in digests
    scope: dict[str, Any] = {"__name__": "no_such_module"}
    exec("def f(h): return h", scope)
    assert source.function_hash(scope["f"]) is None
    first.__module__ = module.__name__
    assert source.function_hash(first) == source.module_hash(module)
    (tmp_path / "pack" / "mine.py").unlink()
    assert source.function_hash(first) is None
