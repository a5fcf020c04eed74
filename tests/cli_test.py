"""What commands share: exit codes, config files, terminals of few characters."""

import io
import subprocess
import sys

import pytest
from in_process import command

from ffjax import cli, config

_FILE = """
from ffjax import config
import dataclasses

@dataclasses.dataclass
class Size:
    width: "int" = 16

def get_config(section="none"):
    fields = config.default()
    fields.width = Size().width
    fields.goodness_params = section
    return fields
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "some.py"
    file.write_text(_FILE)
    return file


def test_a_config_file_is_run_with_its_section(path):
    assert cli.load_config(str(path)).goodness_params == "none"
    made = cli.load_config(f"{path}:a:b")
    assert made.goodness_params == "a:b"
    assert made.width == 16
    assert made.epochs == config.default().epochs


def test_a_config_file_is_read_anew_and_leaves_nothing_beside_it(path):
    cli.load_config(str(path))
    path.write_text(_FILE.replace("16", "17"))  # of the same length, in the same second
    assert cli.load_config(str(path)).width == 17
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("form", ["--config={}", "-config={}", "--config {}"])
def test_a_config_file_is_named_as_absl_allows(path, form):
    ended = command(*form.format(path).split(), "--config.goodness_params=", "--list")
    assert ended.code == 0, ended
    assert "-4x16-" in ended.out


def test_help_explains_every_flag_and_field():
    ended = command("--help")
    assert ended.code == 0
    words = ("--config", "--workdir", "--[no]list", "--shard", "learning_rate [0.001]")
    for word in (*words, "burstiness"):
        assert word in ended.out


def test_an_interruption_is_exit_code_130():
    code = (
        "from ffjax import cli\n"
        "def main():\n"
        "    print('begun')\n"
        "    raise KeyboardInterrupt\n"
        "cli.run(main, lambda argv: None)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "begun\n", "")


def test_a_terminal_that_lacks_characters_shows_others(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    cli._degrade_output()
    print("a · b … – ┏ \udcff", flush=True)  # noqa: RUF001
    assert raw.getvalue() == b"a - b ... - ? ?\n"


def test_what_a_terminal_has_stays_as_it_is(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="utf-8"))
    cli._degrade_output()
    print("a · b \udcff", flush=True)
    assert raw.getvalue() == "a · b ?\n".encode()
