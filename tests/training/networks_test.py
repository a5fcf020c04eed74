"""Networks trained together are those that are trained alone; a network alone is one
program, the plain one."""

import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import time

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import TRAINING, architecture, machine, member, num_compiled, train

from ffjax.errors import UserError
from ffjax.model import evaluate, pathway
from ffjax.training import checks, networks, program
from ffjax.training.machine import Machine
from ffjax.training.program import Examples, Hyper, Program

EPOCHS = 4
DIFFERENT = [
    member(0, epochs=EPOCHS),
    member(1, epochs=EPOCHS, learning_rate=1e-3),
    member(2, epochs=EPOCHS, threshold=1.0, norm_gate=True),
]


def _train(toy, arch, members, where=None, **callbacks):
    where = where or machine()
    images, labels = toy
    return networks.train_networks(arch, members, images, labels, where, **callbacks)


def _train_alone(toy, arch, own, budget=4e9):
    arch = dataclasses.replace(arch, norm_gate=own.norm_gate)
    (layers,) = _train(toy, arch, [own], machine(budget))
    return layers


def _check_close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=2e-4)
        chex.assert_trees_all_close(one.params, other.params, atol=2e-3)
        chex.assert_trees_all_close(one.goodness_state, other.goodness_state, rtol=1e-3)


# --- A network alone -----------------------------------------------------------------


def _train_plainly(toy, arch, seed, training):
    """The definition: a layer's program after another, inputs advanced between them."""
    images, labels = toy
    inputs = pathway.encode(arch, jnp.asarray(images))
    layers = []
    for index in range(len(arch.widths)):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), index))
        width = inputs.shape[-1]
        state, losses = program.train_epochs(
            program.init_layer(arch, index, keys[0], width, training),
            jnp.full(program.num_slots(training.epochs), jnp.nan),
            keys[1],
            Examples(inputs, jnp.asarray(labels)),
            Hyper(jnp.float32(training.learning_rate), jnp.float32(training.threshold)),
            jnp.int32(0),
            jnp.int32(training.epochs),
            program=Program(arch, index, training.as_program()),
        )
        params, running = jax.device_get((state.params, state.goodness_state))
        done = np.asarray(losses)[: training.epochs]
        layers.append(program.finish_layer(params, running, done))
        advance = jax.jit(lambda p, x, k=index: pathway.advance(arch, k, p, x))
        inputs = advance(state.params, inputs)
    return layers


@pytest.mark.parametrize(
    ("name", "function"),
    [("ffcl", "softmax_energy_margin"), ("standard", "burstiness")],
)
def test_a_network_alone_is_its_layers_one_by_one_bit_for_bit(toy, name, function):
    arch = architecture(name, function)
    expected = _train_plainly(toy, arch, 3, TRAINING)
    chex.assert_trees_all_equal(train(toy, arch, seed=3), expected)


def _work(compiled):
    """What a compiled program does: its operations by kind, and its bytes."""
    text, memory = compiled.as_text(), compiled.memory_analysis()
    kinds = ("dot", "fusion", "copy", "transpose", "while", "sort", "custom-call")
    counts = {kind: len(re.findall(rf"\s{kind}\(", text)) for kind in kinds}
    names = ("argument", "temp", "output", "alias")
    return counts, {name: getattr(memory, f"{name}_size_in_bytes") for name in names}


@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_the_program_of_a_group_of_one_is_the_plain_one(name, index):
    """The same products, fusions, copies and bytes: an axis of length 1 costs nothing.

    If the two differ, a run of its own has become slower than it need be.
    """
    arch = architecture(name, widths=(64, 48))
    first = 13 if name == "standard" else 12
    shape = {
        ("standard", 0): (205, first),
        ("standard", 1): (205, 4, 64),
        ("ffcl", 0): (205, first),
        ("ffcl", 1): (205, 64),
        ("groups", 0): (205, first),
        ("groups", 1): (205, 64),
    }[name, index]
    of = Program.of(arch, index, TRAINING, has_lower=False)
    key = jax.random.key(0)
    state = program.init_layer(arch, index, key, shape[-1], TRAINING)
    inputs, labels = jnp.zeros(shape), jnp.zeros(205, jnp.int32)
    hyper = Hyper(jnp.float32(1e-3), jnp.float32(2))
    span = (jnp.int32(0), jnp.int32(6))
    plain = program.train_epochs.lower(
        state, jnp.zeros(6), key, Examples(inputs, labels), hyper, *span, program=of
    ).compile()
    stacked = jax.tree.map(lambda leaf: leaf[None], (state, jnp.zeros(6), key))
    grouped = networks.train_members.lower(
        *stacked,
        Examples(inputs[None] if index else inputs, labels),
        jax.tree.map(lambda leaf: leaf[None], hyper),
        *span,
        mesh=networks._Group(arch, [member()], jax.local_devices()[:1]).mesh,
        program=of,
    ).compile()
    counts, sizes = _work(plain)
    assert counts["dot"] >= 2
    assert sizes["argument"] > inputs.nbytes
    assert _work(grouped) == (counts, sizes)


# --- Several together ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "function", "budget"),
    [
        ("ffcl", "softmax_energy_margin", 4e9),
        ("ffcl", "triplet_margin", 4e9),
        ("standard", "predictive_coding", 0),
        ("ffcl", "burstiness", 0),
        ("standard", "burstiness", 4e9),
        ("standard", "burstiness", 0),
    ],
)
def test_each_member_is_as_if_trained_alone(toy, name, function, budget):
    arch = architecture(name, function)
    found = _train(toy, arch, DIFFERENT, machine(budget))
    images = np.asarray(toy[0])
    devices = jax.local_devices()[:1]
    scores = networks.score_networks(arch, DIFFERENT, found, images, devices)
    for own, layers, judged in zip(DIFFERENT, found, scores, strict=True):
        _check_close(layers, _train_alone(toy, arch, own, budget))
        expected = evaluate.score_images(
            dataclasses.replace(arch, norm_gate=own.norm_gate),
            [layer.params for layer in layers],
            [layer.goodness_state for layer in layers],
            images,
        )
        np.testing.assert_allclose(judged, expected, rtol=1e-4, atol=1e-5)


def test_members_differ_where_they_should(toy):
    members = [member(0), member(0, norm_gate=True), member(0, threshold=1.0)]
    members += [member(0, learning_rate=1e-3), member(1)]
    found = _train(toy, architecture(), members)
    assert len({layers[0].losses[-1] for layers in found}) == len(members)


def test_numbers_do_not_need_a_compilation_of_their_own(toy):
    arch = architecture(widths=(10, 9))
    _train(toy, arch, [member(0), member(1)])
    count = num_compiled(networks.train_members)
    _train(toy, arch, [member(5, threshold=1.0), member(6, learning_rate=1e-4)])
    assert num_compiled(networks.train_members) == count


def test_a_member_that_diverges_leaves_the_others_alone(toy):
    arch = architecture("ffcl", "sos")
    members = [member(0), member(1, threshold=3e38), member(2)]
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
    assert len(shown) >= 4
    assert np.isfinite(shown).all()
    for position in (0, 2):
        _check_close(found[position], _train_alone(toy, arch, members[position]))
    devices = jax.local_devices()[:1]
    scores = networks.score_networks(arch, members, found, toy[0], devices)
    assert [part.shape for part in scores] == [(205, 3, 4), (205, 2, 4), (205, 3, 4)]


def test_a_group_of_divergences_stops(toy):
    members = [member(seed, threshold=3e38) for seed in (0, 1)]
    found = _train(toy, architecture("ffcl", "topk"), members)
    assert [len(layers) for layers in found] == [1, 1]


@pytest.mark.parametrize("budget", [4e9, 0])
def test_an_interrupted_group_goes_on_to_the_same_result(toy, budget):
    arch = architecture("standard" if budget == 0 else "ffcl")
    where = machine(budget)
    whole = _train(toy, arch, DIFFERENT, where)
    trained = [whole[0][:1], whole[1], whole[2][:1]]
    members = [
        own._replace(trained=layers)
        for own, layers in zip(DIFFERENT, trained, strict=True)
    ]
    finished = []
    resumed = _train(
        toy, arch, members, where, on_layer=lambda index, _: finished.append(index)
    )
    assert finished == [1]
    chex.assert_trees_all_equal(resumed, whole)


def test_a_divergence_is_kept_over_an_interruption(toy):
    arch = architecture("ffcl", "sos")
    (whole,) = _train(toy, arch, [member(threshold=3e38)])
    finished = []
    (resumed,) = _train(
        toy,
        arch,
        [member(threshold=3e38, trained=whole)],
        on_layer=lambda index, _: finished.append(index),
    )
    assert (finished, len(resumed)) == ([], 1)
    chex.assert_trees_all_equal(resumed, whole)


# --- Looks ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_a_look_at_the_networks_changes_nothing(toy, name):
    arch = architecture(name)
    seen = []
    look = networks.Look(3, toy[0][:7], lambda *news: seen.append(news))
    found = _train(toy, arch, DIFFERENT, look=look)
    chex.assert_trees_all_equal(found, _train(toy, arch, DIFFERENT))
    assert [news[:2] for news in seen] == [(0, 3), (0, 4), (1, 3), (1, 4)]
    for layer, _, scores in seen:
        assert [part.shape for part in scores] == [(7, layer + 2, 4)] * 3
    devices = jax.local_devices()[:1]
    last = networks.score_networks(arch, DIFFERENT, found, toy[0][:7], devices)
    for shown, expected in zip(seen[-1][2], last, strict=True):
        np.testing.assert_allclose(shown, expected, rtol=1e-5)


# --- Memory --------------------------------------------------------------------------


@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_inputs_are_recomputed_where_memory_is_short(toy, name, monkeypatch):
    arch = architecture(name, widths=(16, 12, 10))
    stored = pathway.stored_bytes(arch, 1, len(toy[1]))
    seen = []

    def look(group, index, inputs, *rest, train=networks._train_layer):
        examples = inputs.examples()
        seen.append((examples.inputs.ndim, len(examples.lower)))
        return train(group, index, inputs, *rest)

    def do_nothing(span, state, losses, epochs, *rest):
        return state, np.zeros((len(losses), epochs), np.float32)

    monkeypatch.setattr(networks, "_train_layer", look)
    monkeypatch.setattr(program, "run_epochs", do_nothing)
    members = [member(0), member(1)]
    kept = 4 if name == "standard" else 3  # (member, example[, label], unit)
    _train(toy, arch, members, machine(2 * stored))
    assert seen == [(2, 0), (kept, 0), (kept, 0)]
    seen.clear()
    _train(toy, arch, members, machine(2 * stored - 1))
    # Layer 3 could be kept, but not from inputs of layer 2 that are not there.
    assert seen == [(2, 0), (2, 1), (2, 2)]


def test_a_quarter_of_the_memory_is_for_inputs(toy):
    arch = architecture("standard")
    stored, rest = checks.member_bytes(arch, TRAINING, toy[0].shape)
    assert stored == pathway.stored_bytes(arch, 1, len(toy[1]))
    # Parameters, gradient and two moments of Adam of the layer in training.
    largest = 16 * (12 + 4 + 1)
    assert rest > 4 * 4 * largest
    assert Machine((), 4 * stored).memory_budget == stored


@pytest.mark.parametrize("width", [10**6, 10**9])
@pytest.mark.parametrize("name", pathway.PATHWAYS)
def test_a_network_that_cannot_fit_is_refused_at_once(toy, name, width):
    arch = architecture(name, widths=(width,) * 4)
    started = time.perf_counter()
    words = rf"width={width}: 4 layers with batch_size=20 need about \S+ GB, but "
    with pytest.raises(UserError, match=words + r"\w+ has 16 GB") as error:
        train(toy, arch)
    assert time.perf_counter() - started < 1
    assert "\n" not in str(error.value)
    figure = float(re.findall(r"about (\S+) GB", str(error.value))[0])
    # Three matrices of width x width are there whatever else there is.
    assert figure > 3 * 4 * width**2 / 1e9


def test_what_fits_is_not_refused(toy):
    arch = architecture()
    _, rest = checks.member_bytes(arch, TRAINING, toy[0].shape)
    device = tuple(jax.local_devices()[:1])
    enough = rest + toy[0].nbytes
    checks.check_memory(arch, TRAINING, toy[0].shape, Machine(device, enough))
    with pytest.raises(UserError, match="width=16x12: 2 layers"):
        checks.check_memory(arch, TRAINING, toy[0].shape, Machine(device, enough - 1))


def test_the_paper_fits_where_it_ran():
    """4x2000 on MNIST: well below the 16 GB of a small card."""
    arch = architecture("standard", widths=(2000,) * 4, num_classes=10)
    training = dataclasses.replace(TRAINING, batch_size=500)
    _, rest = checks.member_bytes(arch, training, (60000, 784))
    assert 1e8 < rest < 1e9


# --- Devices -------------------------------------------------------------------------


def _check_devices(toy, sizes):
    """Runs where there are 8 devices: the same results, with equal shares of them."""
    devices = jax.local_devices()
    assert len(devices) == 8
    arch = architecture("standard", "softmax_energy_margin")
    used = []
    run_epochs = program.run_epochs

    def look(span, state, losses, *rest):
        used.append([(shard.device, shard.data.shape) for shard in _shards(losses)])
        for leaf in jax.tree.leaves(state):
            assert len(_shards(leaf)) == len(used[-1])
        state, losses_done = run_epochs(span, state, losses, *rest)
        for leaf in jax.tree.leaves(state):
            assert len(_shards(leaf)) == len(used[-1])
        return state, losses_done

    program.run_epochs = look
    for size, (num_devices, num_local) in sizes.items():
        members = [
            member(seed, epochs=EPOCHS, norm_gate=seed % 2 == 1) for seed in range(size)
        ]
        used.clear()
        found = _train(toy, arch, members, machine(num_devices=8))
        assert len(found) == size
        scores = networks.score_networks(arch, members, found, toy[0], devices)
        alone = networks.score_networks(arch, members, found, toy[0], devices[:1])
        for one, other in zip(scores, alone, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
        assert len(used) == 2
        for shards in used:
            assert len({device for device, _ in shards}) == num_devices
            assert {shape[0] for _, shape in shards} == {num_local}
        for position in (0, size - 1):
            _check_close(found[position], _train_alone(toy, arch, members[position]))
    # With inputs that are recomputed, each device has its members' layers below.
    members = [member(seed, epochs=EPOCHS) for seed in range(5)]
    found = _train(toy, arch, members, machine(0, num_devices=8))
    _check_close(found[4], _train_alone(toy, arch, members[4], budget=0))
    print("same on 8 devices")


def _shards(array):
    return array.addressable_shards


def test_a_group_is_spread_evenly_over_8_devices():
    flags = "--xla_force_host_platform_device_count=8"
    tests = pathlib.Path(__file__).parents[1]
    path = os.pathsep.join([str(tests.parent), str(tests)])
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert "same on 8 devices" in done.stdout


if __name__ == "__main__":
    import conftest

    # 11 = 2 on each of 6 devices, one of them to fill up.
    _check_devices(conftest.make_toy(), {8: (8, 1), 5: (5, 1), 11: (6, 2)})
