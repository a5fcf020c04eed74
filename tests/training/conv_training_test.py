"""Convolutions and groups are trained like all layers: alone, grouped, interrupted."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_networks import architecture, machine, member, train

from ffjax.errors import UserError
from ffjax.model import evaluate, pathway
from ffjax.model.maps import Maps, Shape
from ffjax.training import backprop, checks, networks
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training

# The 12 inputs of the toy problem, as images.
MAPS = Maps(Shape(2, 6, 1), 3, (1, 0))
SOFTMAX = Objective(negatives="all", loss="softmax", scale=4.0, dropout=0.1)
NETWORKS = {
    "groups": architecture(
        "groups", "mean", activation="relu", normalisation="group", maps=MAPS
    ),
    "ffcl": architecture("ffcl", "burstiness", normalisation="layer", maps=MAPS),
    "ffcl, not shifted": architecture("ffcl", "topk", normalisation="rms", maps=MAPS),
    "groups, running mean": architecture("groups", "softmax_energy_margin", maps=MAPS),
    "dense groups": architecture("groups", "sos", normalisation="group"),
    "standardised": architecture(
        "groups", "mean", activation="relu", normalisation="channel", maps=MAPS
    ),
    "dense, standardised": architecture(normalisation="channel"),
}
CHANGES = {"objective": SOFTMAX, "epochs": 3, "learning_rate": 0.02}
every = pytest.mark.parametrize("name", NETWORKS)


@pytest.mark.parametrize("name", ["groups", "ffcl", "dense groups", "standardised"])
def test_it_learns(toy, name):
    arch = NETWORKS[name]
    layers = train(toy, arch, **{**CHANGES, "epochs": 12})
    images, labels = toy
    scores = evaluate.score_images(
        arch,
        [layer.params for layer in layers],
        [layer.goodness_state for layer in layers],
        jnp.asarray(images),
    )
    assert evaluate.evaluate(np.asarray(scores), labels, "last").accuracy > 80


@every
def test_training_a_layer_leaves_the_others_as_they_are(toy, name):
    arch = NETWORKS[name]
    seen = []
    layers = train(
        toy, arch, **CHANGES, on_layer=lambda index, done: seen.append(done[0])
    )
    first = dataclasses.replace(arch, widths=arch.widths[:1])
    chex.assert_trees_all_equal(layers[0], train(toy, first, **CHANGES)[0])
    chex.assert_trees_all_equal(layers, seen)


@every
def test_an_interrupted_network_goes_on_to_the_same_result(toy, name):
    arch = NETWORKS[name]
    whole = train(toy, arch, **CHANGES)
    chex.assert_trees_all_equal(train(toy, arch, trained=whole[:1], **CHANGES), whole)


@every
def test_inputs_may_be_recomputed(toy, name):
    """To rounding, so only a few small steps: top-k would magnify it."""
    arch, few = NETWORKS[name], {**CHANGES, "epochs": 1, "learning_rate": 1e-4}
    kept, recomputed = (train(toy, arch, budget=b, **few) for b in (4e9, 0))
    for one, other in zip(kept, recomputed, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=1e-3)
        chex.assert_trees_all_close(one.params, other.params, atol=1e-4)


@every
def test_members_of_a_group_are_as_if_trained_alone(toy, name):
    """To rounding, so only a few small steps: top-k would magnify it."""
    arch, (images, labels) = NETWORKS[name], toy
    few = {**CHANGES, "epochs": 1}
    members = [
        member(0, **{**few, "learning_rate": 1e-4}),
        member(1, **{**few, "learning_rate": 3e-4}, norm_gate=True),
    ]
    together = networks.train_networks(arch, members, images, labels, machine())
    for own, layers in zip(members, together, strict=True):
        gated = dataclasses.replace(arch, norm_gate=own.norm_gate)
        (alone,) = networks.train_networks(gated, [own], images, labels, machine())
        for one, other in zip(layers, alone, strict=True):
            np.testing.assert_allclose(one.losses, other.losses, rtol=1e-3)
            chex.assert_trees_all_close(one.params, other.params, atol=3e-4)
    scores = networks.score_networks(arch, members, together, images, machine().devices)
    assert [part.shape for part in scores] == [(205, 3, 4)] * 2


@pytest.mark.parametrize("name", ["standardised", "dense, standardised"])
def test_layers_measure_their_inputs_and_never_learn_what_they_measured(toy, name):
    arch, (images, _) = NETWORKS[name], toy
    decayed = Optimizer(weight_decay=0.5)
    layers = train(toy, arch, **CHANGES, optimizer=decayed)
    x = np.asarray(pathway.encode(arch, jnp.asarray(images)))
    for index, trained in enumerate(layers):
        channels = 1 if index == 0 else 16
        split = x.reshape(-1, channels if arch.maps else x.shape[-1])
        params = trained.params
        np.testing.assert_allclose(params["input_mean"], split.mean(0), atol=1e-5)
        np.testing.assert_allclose(
            params["input_scale"], 1 / (split.std(0) + 1e-3), rtol=1e-4
        )
        labels = jnp.zeros(len(x), jnp.int32)
        features, _ = pathway.run_layer(arch, index, params, jnp.asarray(x), labels)
        # The same layer without statistics, on inputs that are standardised before.
        plain = dataclasses.replace(arch, normalisation="layer")
        standard = (split - params["input_mean"]) * params["input_scale"]
        weights = {k: v for k, v in params.items() if not k.startswith("input_")}
        expected, _ = pathway.run_layer(
            plain, index, weights, jnp.asarray(standard.reshape(x.shape)), labels
        )
        np.testing.assert_allclose(features, expected, atol=1e-4)
        x = np.asarray(arch.pass_on(index, features))


def test_backpropagation_reaches_every_convolution(toy):
    images, labels = toy
    network = backprop.Network((16, 12), "relu", False, 4, maps=MAPS)
    training = Training(epochs=30, batch_size=20, learning_rate=0.01)
    before = backprop.init(network, jax.random.key(0), 12, training).params
    whole = backprop.train_network(network, jax.random.key(3), images, labels, training)
    assert whole.losses[-1] < 0.5 * whole.losses[0]
    assert before["Layer_0"]["kernel"].shape == (9, 16)
    assert before["Layer_1"]["kernel"].shape == (9 * 16, 12)
    assert before["Dense_0"]["kernel"].shape == (12, 4)
    scores = backprop.score_images(network, whole.params, jnp.asarray(images))
    assert evaluate.evaluate(np.asarray(scores), labels).accuracy > 80


def test_a_state_for_each_unit_does_not_go_with_groups_of_maps(toy):
    groups = architecture("groups", "bcm", maps=MAPS)
    with pytest.raises(UserError, match="goodness='bcm': has a state for each unit"):
        train(toy, groups, **CHANGES)
    checks.check_goodness(architecture("groups", "bcm"))
    train(toy, architecture("ffcl", "bcm", maps=MAPS), **{**CHANGES, "epochs": 1})


def test_a_network_of_maps_that_cannot_fit_is_refused(toy):
    made = Maps(Shape(2, 6, 1), 3, (0, 0))
    arch = architecture("groups", "sos", (16, 4 * 10**9), maps=made)
    with pytest.raises(UserError, match=r"need about .* GB"):
        train(toy, arch, **CHANGES)


def test_members_are_counted_with_their_maps():
    arch, training = NETWORKS["groups"], Training(batch_size=10)
    stored, rest = checks.member_bytes(arch, training, (100, 12))
    assert stored == 4 * 100 * (1 * 3 * 16)
    kernels = (9 + 5) * 16 + (9 * 16 + 5) * 12
    numbers = kernels + 3 * (9 * 16 + 5) * 12
    assert rest == 4 * (numbers + 4 * 10 * max(12 * (9 + 16), 3 * (9 * 16 + 12)))
