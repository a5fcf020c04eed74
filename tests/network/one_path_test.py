"""``fit`` and the command train the same networks, in the same way."""

import chex
import numpy as np
import pytest

import ffjax
from ffjax import config, data
from ffjax.errors import UserError
from ffjax.runs import attempt
from ffjax.runs.order import Run
from ffjax.training import machine, networks
from ffjax.training.machine import Machine

SMALL = {
    "num_layers": 2,
    "width": 16,
    "epochs": 8,
    "batch_size": 20,
    "learning_rate": 3e-3,
    "progress": False,
}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"pathway": "standard", "goodness": "moment", "p": 4, "norm_gate": True},
        {"dropout": 0.2, "schedule": "cosine", "widths": (16, 12)},
    ],
)
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_fit_is_the_command_bit_for_bit(tmp_path, rng, fields, kind):
    """The same spec and the same arrays, from a file or from memory."""
    images = rng.integers(0, 256, size=(90, 5, 4)).astype(kind)
    labels = rng.integers(0, 3, size=90)
    images[np.arange(90), labels] //= 4  # there is something to learn
    np.savez(
        tmp_path / "mine.npz",
        train_images=images[:60],
        train_labels=labels[:60],
        test_images=images[60:],
        test_labels=labels[60:],
    )
    spec = {"num_layers": 2, "width": 16, "epochs": 3, "batch_size": 20, **fields}
    values = config.default()
    values.update({"dataset": str(tmp_path / "mine.npz"), **spec})
    (cell,) = config.expand(values)
    dataset = data.load(cell.spec.dataset)
    here = machine.here(num_devices=1)
    (record,) = attempt.run_group([Run(cell, 7)], dataset, here)
    network = ffjax.fit(images[:60], labels[:60], seed=7, progress=False, **spec)
    found = [layer.losses.tolist() for layer in network.layers]
    assert found == record.losses
    judged = network.evaluate(images[60:], labels[60:])
    assert judged.confusion.tolist() == record.confusion
    assert judged.accuracy_layers == record.accuracy_layers
    assert judged.accuracy == record.accuracy


def test_fit_recomputes_inputs_where_memory_is_short(toy, monkeypatch):
    fields = {**SMALL, "pathway": "standard", "epochs": 3}
    kept = ffjax.fit(*toy, **fields)
    seen = []
    train = networks.train_members

    def look(state, losses, key, examples, *rest, **static):
        seen.append(len(examples.lower))
        return train(state, losses, key, examples, *rest, **static)

    monkeypatch.setattr(networks, "train_members", look)
    monkeypatch.setattr(Machine, "memory_budget", 0.0)
    recomputed = ffjax.fit(*toy, **fields)
    assert seen == [0, 1]
    for one, other in zip(kept.layers, recomputed.layers, strict=True):
        np.testing.assert_allclose(one.losses, other.losses, rtol=2e-4)
        chex.assert_trees_all_close(one.params, other.params, atol=2e-3)


@pytest.mark.parametrize("width", [10**6, 10**9])
def test_fit_refuses_what_cannot_fit_into_memory(toy, width):
    with pytest.raises(UserError, match=rf"width={width}: .* need about \S+ GB, but"):
        ffjax.fit(*toy, **{**SMALL, "width": width})


def test_progress_and_callbacks_change_nothing(toy, capsys):
    seen, network = [], ffjax.fit(*toy, **SMALL)
    fields = {**SMALL, "progress": True}
    shown = ffjax.fit(*toy, **fields, on_epochs=lambda *news: seen.append(news))
    assert shown == network
    assert seen[0][0] == 0
    assert (seen[-1][0], len(seen[-1][1])) == (1, 8)
    assert capsys.readouterr().out
