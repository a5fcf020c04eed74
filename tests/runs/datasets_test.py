"""The dataset of the moment: loaded once, refused in a line."""

import dataclasses

import pytest
from small_runs import a_run

from ffjax import data
from ffjax.errors import UserError
from ffjax.runs.datasets import DatasetError, Datasets, describe


@pytest.fixture
def loaded(monkeypatch):
    """The datasets that are read, listed."""
    calls, load = [], data.load

    def counted(name, **more):
        calls.append((name, more["train_limit"]))
        return load(name, **more)

    monkeypatch.setattr(data, "load", counted)
    return calls


def test_the_last_dataset_is_kept(loaded):
    datasets = Datasets("")
    first = datasets.load(a_run().spec)
    assert datasets.load(a_run(goodness="sos", epochs=3).spec) is first
    assert loaded == [("fashion_mini", 100)]
    assert len(datasets.load(a_run(train_limit=60).spec).train_labels) == 60
    datasets.load(a_run().spec)
    assert [limit for _, limit in loaded] == [100, 60, 100]


def test_a_dataset_that_cannot_be_had_is_asked_for_once(loaded, tmp_path):
    datasets = Datasets(str(tmp_path / "none"))
    spec = a_run(dataset="usps").spec
    for _ in range(2):
        with pytest.raises(DatasetError, match="data_dir"):
            datasets.load(spec)
    assert len(loaded) == 1


def test_a_batch_larger_than_the_data():
    spec = a_run(batch_size=6001, train_limit=0).spec
    with pytest.raises(UserError, match="batch_size=6001") as error:
        Datasets("").load(spec)
    assert not isinstance(error.value, DatasetError), "other runs may do better"


def test_where_the_images_come_from():
    dataset = Datasets("").load(a_run().spec)
    text = "data: fashion_mini (embedded), 100 training and 50 test images"
    assert describe(dataset) == text
    doubtful = dataclasses.replace(
        dataset, source={**dataset.source, "verified": False}
    )
    assert "(embedded, content not verified)" in describe(doubtful)
