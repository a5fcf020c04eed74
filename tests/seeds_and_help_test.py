"""Ranges of seeds, and --help with all flags and fields."""

import os
import pathlib
import subprocess
import sys

import pytest

from ffjax import cli
from ffjax.config import spec
from ffjax.errors import UserError

ROOT = pathlib.Path(__file__).parents[1]


def command(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-m", "ffjax.main", *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("--config.seeds=1-5", "--config.seeds=1,2,3,4,5"),
        ("--config.seeds=7,1-3", "--config.seeds=7,1,2,3"),
        ("--config.seeds=4-4", "--config.seeds=4"),
        ("--config.seeds=1,2", "--config.seeds=1,2"),
        ("--config.seeds=x-y", "--config.seeds=x-y"),
        ("--config.epochs=1-5", "--config.epochs=1-5"),
    ],
)
def test_ranges_of_seeds_are_spelled(given, expected):
    assert cli.with_seeds_spelled(["main", given]) == ["main", expected]
    name, _, value = given.partition("=")
    _, _, spelled = expected.partition("=")
    assert cli.with_seeds_spelled(["main", name, value]) == ["main", name, spelled]


@pytest.mark.parametrize("value", ["5-1", "0-4000000000"])
def test_impossible_ranges_are_named(value):
    with pytest.raises(UserError, match=f"seeds='{value}': a range is from"):
        cli.with_seeds_spelled(["main", f"--config.seeds={value}"])


def test_a_range_on_the_command_line(tmp_path):
    done = command("--config.seeds=1-5", "--list", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cell, total = done.stdout.splitlines()
    assert " " not in cell
    assert total.startswith("1 cell, 5 runs: ")
    assert list(tmp_path.iterdir()) == []
    wrong = command("--config.seeds=5-1", "--list", cwd=tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("ffjax: seeds='5-1': a range")


def test_help_lists_every_flag_and_field(tmp_path):
    done = command("--help", cwd=tmp_path)
    assert done.returncode == 0
    flags = ("config", "workdir", "[no]list", "[no]save", "[no]tensorboard", "shard")
    flags += ("workers",)
    ray = ("runner", "ray_address", "ray_cpus", "ray_gpus", "max_retries")
    for flag in (*flags, *ray):
        assert f"\n  --{flag}:" in done.stdout, flag
    for field in spec.ABOUT:
        assert f"    {field} [" in done.stdout, field
