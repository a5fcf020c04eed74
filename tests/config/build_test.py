"""What a run is made of follows its fields, every one of them."""

import dataclasses

import pytest
from other_fields import OTHER, without

from ffjax.config import build
from ffjax.config.spec import RunSpec, make_spec
from ffjax.training.objective import Objective
from ffjax.training.optimizer import Optimizer, Training

# Fields of a run that are of the data, and of nothing that is built.
OF_DATA = {"dataset", "train_limit", "test_limit", "valid_fraction"}
BUILT = [name for name in OTHER if name not in OF_DATA | {"trainer"}]


def built(run):
    return build.architecture(run, 10, (28, 28)), build.training(run)


def test_the_defaults_of_a_training_are_those_of_a_run():
    assert build.training(RunSpec()) == Training()
    assert build.training(RunSpec()).objective == Objective()
    assert build.training(RunSpec()).optimizer == Optimizer()
    assert build.training(make_spec()) == Training(
        epochs=60, batch_size=500, learning_rate=1e-3, threshold=2.0
    )


def test_the_network_of_the_paper():
    arch = build.architecture(make_spec(), 10)
    assert (arch.widths, arch.num_classes) == ((2000,) * 4, 10)
    assert (arch.label_scale, arch.normalisation, arch.ensemble) == (5.0, "l2", "all")


@pytest.mark.parametrize("name", BUILT)
def test_every_field_changes_what_is_built(name):
    assert built(make_spec(**OTHER[name])) != built(make_spec(**without(name)))


@pytest.mark.parametrize(
    "name", ["width", "num_layers", "activation", "norm_gate", "layer"]
)
def test_the_network_of_backpropagation(name):
    plain = build.backprop_network(make_spec(trainer="backprop"), 10)
    assert (plain.widths, plain.num_classes) == ((2000,) * 4, 10)
    run = make_spec(trainer="backprop", **OTHER[name])
    assert build.backprop_network(run, 10, (28, 28)) != plain


def test_parameters_reach_the_goodness_function():
    def params(**fields):
        return dict(build.architecture(make_spec(**fields), 10).goodness.params)

    assert params(goodness="topk", k_fraction=0.1) == {"fraction": 0.1}
    assert params(goodness="topk") == {"fraction": 0.02}
    assert params(goodness="moment", p=4) == {"p": 4}
    # A run that is read from a record may leave a parameter to the function.
    bare = dataclasses.replace(make_spec(), goodness="moment")
    assert bare.p is None
    assert dict(build.architecture(bare, 10).goodness.params) == {"p": 6}
    found = params(goodness="softmax_energy_margin", goodness_params="margin=0.7")
    assert found == {"temperature": 1.0, "margin": 0.7}
