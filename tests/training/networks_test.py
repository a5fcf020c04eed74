"""Networks trained together are those that are trained alone, to rounding."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import chex
import jax
import numpy as np
import pytest

from ffjax import goodness
from ffjax.model import evaluate, pathway
from ffjax.training import networks, program

SETTINGS = {"epochs": 4, "batch_size": 20}


def _architecture(name="ffcl", function="burstiness", **changes):
    fields = {
        "pathway": name,
        "goodness": goodness.make(function),
        "activation": "gelu",
        "norm_gate": False,
        "widths": (16, 12),
        "num_classes": 4,
        "label_scale": 5.0,
    }
    return pathway.Architecture(**{**fields, **changes})


def _member(seed=0, learning_rate=3e-3, threshold=2.0, norm_gate=False, trained=()):
    key = jax.random.key(seed)
    return networks.Member(key, learning_rate, threshold, norm_gate, trained)


DIFFERENT = [
    _member(0),
    _member(1, learning_rate=1e-3),
    _member(2, threshold=1.0, norm_gate=True),
]


def _train(toy, arch, members, devices=None, **changes):
    devices = devices or jax.local_devices()[:1]
    settings = {**SETTINGS, **changes}
    return networks.train_networks(arch, members, *toy, devices=devices, **settings)


def _train_alone(toy, arch, member, **changes):
    return program.train_network(
        dataclasses.replace(arch, norm_gate=member.norm_gate),
        member.key,
        *toy,
        learning_rate=member.learning_rate,
        threshold=member.threshold,
        **{**SETTINGS, **changes},
    )


def _check_close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=2e-4)
        chex.assert_trees_all_close(one.params, other.params, atol=2e-3)
        chex.assert_trees_all_close(one.goodness_state, other.goodness_state, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "function", "budget"),
    [("ffcl", "softmax_energy_margin", 4e9), ("standard", "burstiness", 0)],
)
def test_each_member_is_as_if_trained_alone(toy, name, function, budget):
    arch = _architecture(name, function)
    found = _train(toy, arch, DIFFERENT, memory_budget=budget)
    images = np.asarray(toy[0])
    devices = jax.local_devices()[:1]
    scores = networks.score_images(arch, DIFFERENT, found, images, devices)
    for member, layers, judged in zip(DIFFERENT, found, scores, strict=True):
        _check_close(layers, _train_alone(toy, arch, member, memory_budget=budget))
        own = dataclasses.replace(arch, norm_gate=member.norm_gate)
        expected = evaluate.score_images(
            own,
            [layer.params for layer in layers],
            [layer.goodness_state for layer in layers],
            images,
        )
        np.testing.assert_allclose(judged, expected, rtol=1e-4, atol=1e-5)


def test_members_differ_where_they_should(toy):
    arch = _architecture()
    members = [_member(0), _member(0, norm_gate=True), _member(0, threshold=1.0)]
    losses = [layers[0].losses[-1] for layers in _train(toy, arch, members)]
    assert len(set(losses)) == 3


def test_a_member_that_diverges_leaves_the_others_alone(toy):
    arch = _architecture("ffcl", "sos")
    members = [_member(0), _member(1, threshold=3e38), _member(2)]
    finished, shown = [], []
    found = _train(
        toy,
        arch,
        members,
        on_layer=lambda index, layers: finished.append(
            (index, [layer is None for layer in layers])
        ),
        on_epochs=lambda index, losses: shown.append(losses[-1]),
    )
    assert [len(layers) for layers in found] == [2, 1, 2]
    assert found[1][0].is_diverged
    assert found[1][0].losses.shape == (1,)
    assert finished == [(0, [False] * 3), (1, [False, True, False])]
    assert np.isfinite(shown).all()
    for position in (0, 2):
        _check_close(found[position], _train_alone(toy, arch, members[position]))
    devices = jax.local_devices()[:1]
    scores = networks.score_images(arch, members, found, toy[0], devices)
    assert [part.shape[1] for part in scores] == [3, 2, 3]


def test_a_group_of_divergences_stops(toy):
    members = [_member(seed, threshold=3e38) for seed in (0, 1)]
    found = _train(toy, _architecture("ffcl", "topk"), members)
    assert [len(layers) for layers in found] == [1, 1]


def test_an_interrupted_group_goes_on_to_the_same_result(toy):
    arch = _architecture()
    whole = _train(toy, arch, DIFFERENT)
    trained = [whole[0][:1], whole[1], whole[2][:1]]
    members = [
        member._replace(trained=layers)
        for member, layers in zip(DIFFERENT, trained, strict=True)
    ]
    finished = []
    resumed = _train(
        toy, arch, members, on_layer=lambda index, _: finished.append(index)
    )
    assert finished == [1]
    chex.assert_trees_all_equal(resumed, whole)


def _check_devices(toy, sizes):
    """Runs where there are 8 devices: the same results, with equal shares of them."""
    devices = jax.local_devices()
    assert len(devices) == 8
    arch = _architecture("standard", "softmax_energy_margin")
    used = []
    run_epochs = program.run_epochs

    def look(program, state, losses, report):
        used.append([(shard.device, shard.data.shape) for shard in _shards(losses)])
        for leaf in jax.tree.leaves(state):
            assert len(_shards(leaf)) == len(used[-1])
        state, losses_done = run_epochs(program, state, losses, report)
        for leaf in jax.tree.leaves(state):
            assert len(_shards(leaf)) == len(used[-1])
        return state, losses_done

    program.run_epochs = look
    for size, (num_devices, num_local) in sizes.items():
        members = [_member(seed, norm_gate=seed % 2 == 1) for seed in range(size)]
        used.clear()
        found = _train(toy, arch, members, devices)
        assert len(found) == size
        scores = networks.score_images(arch, members, found, toy[0], devices)
        expected = networks.score_images(arch, members, found, toy[0], devices[:1])
        for one, other in zip(scores, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        for shards in used:
            assert len({device for device, _ in shards}) == num_devices
            assert {shape[0] for _, shape in shards} == {num_local}
        for position in (0, size - 1):
            _check_close(found[position], _train_alone(toy, arch, members[position]))
    print("same on 8 devices")


def _shards(array):
    return array.addressable_shards


def test_a_group_is_spread_evenly_over_8_devices():
    flags = "--xla_force_host_platform_device_count=8"
    root = pathlib.Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "same on 8 devices" in done.stdout


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import conftest

    # 11 = 2 on each of 6 devices, one of them to fill up.
    _check_devices(conftest.toy.__wrapped__(), {8: (8, 1), 5: (5, 1), 11: (6, 2)})
