"""The rooms of the house: imports point one way, and what needs no jax has none."""

import ast
import pathlib
import re
import subprocess
import sys

import pytest

import ffjax

PACKAGE = pathlib.Path(ffjax.__file__).parent

# From the arrays to the page; a room imports only from those before it, wherever in its
# files the import stands.
ORDER = [
    "errors",
    "atomic",
    "data",
    "fusion",
    "halving",
    "entmax",
    "goodness",
    "model",
    "training",
    "config",
    "demo",
    "paper",
    "records",
    "network",
    "sklearn",
    "report",
    "runs",
    "cli",
    "main",
]
# What a room imports from below all the same: (room, module). The first two import
# nothing of ffjax themselves; fit shows the progress that the command shows.
EXCEPTIONS = {
    ("goodness", "model.normalise"),
    ("goodness", "model.product"),
    ("network", "runs.display"),
}
# Imported where they are used, so that a start without them does without jax or
# matplotlib: (file, module).
LAZY = {
    ("config/spec.py", "goodness"),
    ("data/tfds.py", "data.builders"),
    ("network/fitting.py", "runs.display"),
    ("network/history.py", "network.plot"),
    ("report/page.py", "report.figures"),
    ("runs/run.py", "report"),
}
NO_JAX = ["errors", "atomic", "data", "config", "demo", "paper", "records", "report"]
NO_JAX += ["cli"]


def files():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name != "__init__":
            yield name, path


def imported(node):
    """The modules of ffjax that an import statement names."""
    if isinstance(node, ast.Import):
        return {a.name[6:] for a in node.names if a.name.startswith("ffjax.")}
    if not isinstance(node, ast.ImportFrom) or not node.module:
        return set()
    if node.module == "ffjax":
        return {alias.name for alias in node.names}
    if not node.module.startswith("ffjax."):
        return set()
    base = node.module.removeprefix("ffjax.")
    folder = PACKAGE.joinpath(*base.split("."))
    return {
        f"{base}.{alias.name}" if (folder / f"{alias.name}.py").exists() else base
        for alias in node.names
    }


def imports(path):
    """Of a file: (module, whether it is imported inside of a function)."""
    tree = ast.parse(path.read_text())
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        for module in imported(node):
            yield module, id(node) in inside


def test_imports_point_one_way():
    assert {name for name, _ in files()} == set(ORDER)
    needed, count = set(), 0
    for room, path in files():
        if path.name == "__main__.py":
            continue  # a command of its own, imported by nobody
        before = ORDER[: ORDER.index(room) + 1]
        for module, _ in imports(path):
            count += 1
            if module.split(".")[0] not in before:
                needed.add((room, module))
    assert count > 100
    assert needed == EXCEPTIONS


def test_the_readme_lists_the_rooms_in_this_order():
    readme = (PACKAGE.parent / "README.md").read_text()
    table = readme.partition("## The house")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE)
    rooms = [re.findall(r"`(\w+)", row) for row in rows]
    places = [[ORDER.index(room) for room in row] for row in rooms]
    in_order = [place for row in places for place in sorted(row)]
    assert in_order == sorted(in_order)
    missing = set(ORDER) - {room for row in rooms for room in row}
    assert missing == {"errors", "atomic", "demo"}


def test_imports_inside_of_functions_are_few_and_known():
    found = {
        (str(path.relative_to(PACKAGE)), module)
        for _, path in files()
        for module, is_inside in imports(path)
        if is_inside
    }
    assert found <= LAZY


def test_the_files_of_a_room_import_each_other_one_way():
    """No two files need each other, in any room."""
    needs = {}
    for _, path in files():
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        module = module.removesuffix(".__init__")
        needs[module] = {name for name, is_inside in imports(path) if not is_inside}

    def visit(module, above):
        assert module not in above, " -> ".join([*above, module])
        if module not in done:
            for other in needs.get(module, ()):
                visit(other, [*above, module])
            done.add(module)

    done = set()
    for module in needs:
        visit(module, [])
    assert len(done) >= 40


def test_only_the_config_room_sees_config_files():
    rooms = {room for room, path in files() if "ml_collections" in path.read_text()}
    assert rooms == {"config", "cli", "main"}


def test_what_trains_never_sees_a_run():
    """Arrays, numbers and functions only: a RunSpec ends at ``config.build``."""
    for room, path in files():
        if room in ORDER[: ORDER.index("config")]:
            assert "RunSpec" not in path.read_text(), path


@pytest.mark.parametrize("room", NO_JAX)
def test_rooms_without_jax(room):
    code = (
        f"import sys, ffjax, ffjax.{room}\n"
        "loaded = {'jax', 'tensorflow', 'matplotlib', 'ray'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_files_of_rooms_without_jax():
    """Also of those that a room's front does not import."""
    modules = ["config.cells", "config.spec", "paper.numbers", "paper.names"]
    modules += ["runs.order", "runs.cost"]
    lines = "".join(f"import ffjax.{name}\n" for name in modules)
    code = f"import sys\n{lines}assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
