"""What runs give besides records: networks, accuracies during training."""

import msgspec
import pytest
from small_runs import a_run, all_lasting, cells, lasting

import ffjax
from ffjax import data, records
from ffjax.config.spec import Way
from ffjax.errors import UserError
from ffjax.network.network import from_bytes
from ffjax.records import Curve, Point, Record, record_path
from ffjax.runs import attempt, ray_cluster, run, workdir
from ffjax.runs.checkpoint import Layers
from ffjax.runs.display import Display
from ffjax.runs.locks import Claims
from ffjax.training import machine


def _run(folder, made, *, is_grid=True, way=None, **more):
    return run.run(made, str(folder), way or Way(), is_grid=is_grid, **more)


def test_saved_networks_are_those_that_were_judged(tmp_path, drawn, capsys):
    made = cells(seeds=(1, 2), goodness=("sos", "burstiness"))
    assert _run(tmp_path, made, save=True) == 0
    saved = sorted((tmp_path / "networks").iterdir())
    assert len(saved) == 4
    for (cell, seed), record in all_lasting(tmp_path).items():
        network = ffjax.load(tmp_path / record.network)
        assert record.network == f"networks/{cell}-seed{seed}.safetensors"
        assert network.class_names == tuple(record.class_names)
        images, labels = _test_images(record.spec)
        found = network.evaluate(images, labels)
        assert found.confusion.tolist() == record.confusion
    assert "4 networks in" in capsys.readouterr().out


def _test_images(spec):
    """As the dataset has them, not normalised."""
    dataset = data.load(
        "fashion_mini", train_limit=spec.train_limit, test_limit=spec.test_limit
    )
    raw = (dataset.test_images * dataset.std + dataset.mean) * 255
    return raw.round().reshape(-1, *dataset.image_shape), dataset.test_labels


def test_what_has_no_network_is_said(tmp_path, drawn, capsys):
    made = cells(trainer=("backprop",))
    assert _run(tmp_path, made, save=True) == 0
    said = capsys.readouterr().out
    assert "1 run of backpropagation: --save keeps no network of these" in said
    assert not (tmp_path / "networks").exists()
    plain = cells(goodness=("sos",))
    assert _run(tmp_path, plain) == 0
    assert _run(tmp_path, plain, save=True) == 0
    assert "1 run done before without --save" in capsys.readouterr().out


def test_a_diverged_network_is_not_saved(tmp_path, drawn, capsys):
    made = cells(goodness=("sos",), learning_rate=(1e30,))
    assert _run(tmp_path, made, save=True) == 0
    assert "1 run diverged: no network is saved" in capsys.readouterr().out


def test_accuracies_during_training_change_nothing(tmp_path, real):
    networks = []
    extras = attempt.Extras(1, lambda run, network: networks.append(network))
    (record,) = attempt.run_group(
        [real.run], real.dataset, machine.here(), extras=extras
    )
    curve = record.curve
    assert isinstance(curve, Curve)
    assert curve.images == "test"
    places = [(point.layer, point.epochs) for point in curve.points]
    epochs = range(1, real.run.spec.epochs + 1)
    assert places == [
        (layer, n) for layer in range(real.run.spec.num_layers) for n in epochs
    ]
    assert curve.points[-1].ensemble == record.accuracy
    assert curve.points[-1].accuracy == record.accuracy_layers[-1]
    plain = msgspec.structs.replace(record, curve=None, network="")
    assert lasting(plain) == lasting(real.record)
    assert networks[0].history.points == tuple(curve.points)


def test_accuracies_are_on_validation_images_if_there_are_any(real):
    made = a_run(valid_fraction=0.2)
    dataset = data.load(
        "fashion_mini", train_limit=100, test_limit=50, valid_fraction=0.2
    )
    (record,) = attempt.run_group(
        [made], dataset, machine.here(), extras=attempt.Extras(eval_every=2)
    )
    assert record.curve is not None
    assert record.curve.images == "validation"
    assert record.curve.points[-1].ensemble == record.accuracy_valid


def test_a_group_has_a_curve_each_and_backpropagation_too(real):
    extras = attempt.Extras(eval_every=2)
    runs = [a_run(seed) for seed in (1, 2)]
    for record in attempt.run_group(runs, real.dataset, machine.here(), extras=extras):
        assert record.curve is not None
        assert record.curve.points[-1].ensemble == record.accuracy
    made = a_run(trainer="backprop")
    (record,) = attempt.run_group([made], real.dataset, machine.here(), extras=extras)
    assert record.curve is not None
    (point,) = record.curve.points
    assert (point.layer, point.epochs) == (0, made.spec.epochs)
    assert point.ensemble == record.accuracy


def test_a_resumed_run_has_the_whole_curve(tmp_path, real):
    extras = attempt.Extras(eval_every=1)
    kept = Layers(tmp_path, "run", {}, print)
    (whole,) = attempt.run_group(
        [real.run], real.dataset, machine.here(), kept=[kept], extras=extras
    )
    (tmp_path / "partial" / "run" / "layer1.safetensors").unlink()
    (resumed,) = attempt.run_group(
        [real.run], real.dataset, machine.here(), kept=[kept], extras=extras
    )
    assert resumed.curve == whole.curve
    assert lasting(resumed) == lasting(whole)


def test_a_curve_that_contradicts_its_run_is_broken(tmp_path, real):
    for point in (Point(9, 1, 50.0, 50.0), Point(0, 99, 50.0, 50.0)):
        wrong = msgspec.structs.replace(real.record, curve=Curve("test", [point]))
        with pytest.raises(ValueError, match="'curve' has more layers or epochs"):
            records.check(wrong)


def test_what_is_done_is_listed(tmp_path, trained, drawn):
    made = cells(seeds=(1, 2), goodness=("sos", "burstiness"))
    ids = [cell.id for cell in made]
    assert list(workdir.listed(str(tmp_path), made)) == ids
    assert _run(tmp_path, made[:1]) == 0
    first, second = workdir.listed(str(tmp_path), made)
    assert (first, second) == (f"{ids[0]}  (done)", ids[1])
    record_path(tmp_path, ids[0], 2).write_text("broken")
    assert next(workdir.listed(str(tmp_path), made)) == f"{ids[0]}  (1 of 2 done)"


def test_a_network_that_cannot_be_written_is_named(tmp_path, real):
    claims = Claims(tmp_path / "claims")
    folder = workdir.Workdir(str(tmp_path), [real.run], Display(1), claims)
    workdir.prepare(str(tmp_path))
    (tmp_path / "networks").write_text("in the way")
    with pytest.raises(UserError, match="cannot write there"):
        workdir.save_network(folder.path, real.run, b"")


def test_a_task_on_ray_brings_networks_and_curves_back(real):
    result = ray_cluster.run_task([real.run], real.dataset, 0, None, 1, True)
    (record,) = result.outcomes
    assert isinstance(record, Record)
    assert record.curve is not None
    assert list(result.networks) == [real.run.name]
    network = from_bytes(result.networks[real.run.name])
    assert network.history.points == tuple(record.curve.points)
    plain = msgspec.structs.replace(record, curve=None, network="")
    assert lasting(plain) == lasting(real.record)
