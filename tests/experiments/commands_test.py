"""The commands in the READMEs of experiments/ are those that made its records."""

import pathlib
import re
import shlex

import pytest
from absl import flags
from ml_collections import config_flags

from ffjax import cli, config, records

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = sorted(
    path.parent
    for path in (ROOT / "experiments").rglob("results")
    if list(path.glob("*-seed*.json"))
)


@pytest.fixture(autouse=True)
def from_the_repository(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)


def commands() -> list[list[str]]:
    """The arguments of every ``python -m ffjax.main`` in the READMEs."""
    texts = [path.read_text() for path in (ROOT / "experiments").rglob("README.md")]
    lines = "\n".join(texts).replace("\\\n", " ").splitlines()
    split = [
        shlex.split(line, comments=True)
        for line in lines
        if re.match(r"python -m ffjax\.main ", line)
    ]
    return [words[2:] for words in split]


def parse(arguments: list[str]) -> tuple[str, list[config.Cell]]:
    """The workdir and the cells of a command."""
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", "", "", flag_values=values)
    config_flags.DEFINE_config_file("config", flag_values=values, sys_argv=arguments)
    values(arguments)
    overrides = config_flags.get_override_values(values["config"])
    path = config_flags.get_config_filename(values["config"])
    return values.workdir, config.expand(cli.load_config(path), overrides)


def test_every_experiment_with_records_is_looked_at():
    assert {folder.name for folder in FOLDERS} >= {
        "fast",
        "headline",
        "record",
        "search",
        "small",
        "sweeps",
    }


@pytest.mark.parametrize(
    "folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT))
)
def test_records_are_those_of_the_commands(folder: pathlib.Path):
    workdir = str(folder.relative_to(ROOT))
    expected = {
        f"{cell.id}-seed{seed}": cell.spec
        for directory, cells in map(parse, commands())
        if directory == workdir
        for cell in cells
        for seed in cell.seeds
    }
    whole, problems = records.read_all(folder)
    assert whole
    assert not problems
    for record in whole:
        assert record.spec == expected[record.name]
