"""The data flow, kept: imports point one way, and the report needs no jax."""

import ast
import pathlib
import subprocess
import sys

import ffjax

PACKAGE = pathlib.Path(ffjax.__file__).parent

# From the arrays to the page; a module imports only from those before it.
ORDER = [
    "errors",
    "files",
    "params",
    "data",
    "norm",
    "layer",
    "entmax",
    "goodness",
    "objective",
    "pathway",
    "train",
    "backprop",
    "evaluate",
    "group",
    "config",
    "demo",
    "network",
    "paper",
    "results",
    "cost",
    "plan",
    "lease",
    "partial",
    "progress",
    "report",
    "machine",
    "trial",
    "ledger",
    "local",
    "cluster",
    "runner",
    "commandline",
    "main",
]


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name not in ("__init__", "assets"):
            yield name, path


def imported(path):
    """The modules of ffjax that a file imports when it is imported itself."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module == "ffjax":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(
            "ffjax."
        ):
            names.add(node.module.split(".")[1])
    return names


def test_imports_follow_the_data_flow():
    assert {name for name, _ in modules()} == set(ORDER)
    for name, path in modules():
        if path.name == "__main__.py":
            continue  # a command of its own, imported by nobody
        wrong = imported(path) - {name} - set(ORDER[: ORDER.index(name)])
        assert not wrong, f"{path.relative_to(PACKAGE)} imports {wrong}"


def test_the_model_never_sees_a_config():
    above = ORDER[: ORDER.index("config")]
    for name, path in modules():
        if name in above:
            assert "ml_collections" not in path.read_text(), path


def test_report_and_data_start_without_jax():
    code = (
        "import sys, ffjax.report, ffjax.data, ffjax.results, ffjax.commandline;"
        "assert 'jax' not in sys.modules and 'tensorflow' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
