"""Which devices and how much memory a process takes for its own."""

import os
import subprocess
import sys

import jax
import pytest

from ffjax.errors import UserError
from ffjax.training import checks, machine


def test_the_machine_is_this_one():
    found = machine.here()
    assert found.devices == tuple(jax.local_devices())
    assert found.is_cpu
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert found.memory * len(found.devices) == total
    assert found.memory_budget == found.memory / 4


def test_some_of_its_devices_and_a_share_of_its_memory():
    whole = machine.here(num_devices=1)
    assert whole.devices == (jax.local_devices()[0],)
    assert machine.here(1, share=0.25).memory == pytest.approx(whole.memory / 4)


def test_more_devices_than_there_are():
    count = len(jax.local_devices()) + 1
    with pytest.raises(UserError, match=rf"num_devices={count}: there are .*0 takes"):
        machine.here(num_devices=count)


def test_the_devices_own_limit_goes_first(monkeypatch):
    class Card:
        platform, device_kind = "gpu", "a card"

        def memory_stats(self):
            return {"bytes_limit": 3e9}

    monkeypatch.setattr(jax, "local_devices", lambda: [Card(), Card()])
    found = machine.here(share=0.5)
    assert (found.memory, found.is_cpu) == (1.5e9, False)


def run(code, **env):
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_platform_that_is_not_there_is_a_line():
    code = (
        "from ffjax.training import machine\n"
        "from ffjax.errors import UserError\n"
        "try:\n    machine.here()\n"
        "except UserError as error:\n    print(error)"
    )
    done = run(code, JAX_PLATFORMS="nosuch")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("JAX has no device to run on: ")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("own", [False, True])
def test_compiled_programs_are_kept_unless_a_user_keeps_them(tmp_path, own):
    code = (
        "import jax\nfrom ffjax.training import machine\n"
        "machine.use_compilation_cache()\n"
        "jax.config.update('jax_persistent_cache_min_compile_time_secs', 0)\n"
        "jax.jit(lambda x: x * 2 + 1)(1.0)\n"
        "print(jax.config.jax_compilation_cache_dir)"
    )
    env = {"XDG_CACHE_HOME": str(tmp_path / "home"), "FFJAX_CACHE_DIR": ""}
    if own:
        env["JAX_COMPILATION_CACHE_DIR"] = str(tmp_path / "own")
    done = run(code, **env)
    assert done.returncode == 0, done.stderr
    folder = done.stdout.strip()
    assert folder.startswith(str(tmp_path / ("own" if own else "home")))
    assert any((tmp_path / ("own" if own else "home")).rglob("*cache*"))
    assert (tmp_path / "home").exists() == (not own)


def test_a_cpu_has_no_tensor_cores(monkeypatch):
    cpu = machine.here(1)
    checks.check_precision("float32", cpu)
    checks.check_precision("bfloat16", cpu)
    with pytest.raises(UserError, match="precision='tensorfloat32': needs a GPU"):
        checks.check_precision("tensorfloat32", cpu)
    for features, is_slow in (
        (["flags : sse avx2"], True),
        (["flags : amx_bf16"], False),
    ):
        monkeypatch.setattr(machine, "_cpu_features", lambda lines=features: lines)
        assert bool(machine.precision_note("bfloat16", cpu)) == is_slow
        assert machine.precision_note("float32", cpu) == ""
