"""The dataset that the runs of the moment learn: loaded once, and kept in memory."""

from ffjax import data
from ffjax.config.spec import RunSpec
from ffjax.data import Dataset
from ffjax.errors import UserError
from ffjax.runs import order
from ffjax.training import checks


class DatasetError(UserError):
    """A dataset cannot be had; no run on it would do better."""


class Datasets:
    """Datasets by the fields of a run; the last is kept in memory."""

    def __init__(self, data_dir: str):
        """Datasets in a folder."""
        self._data_dir = data_dir
        self._last: tuple[order.DatasetKey, Dataset | DatasetError] | None = None

    def load(self, spec: RunSpec) -> Dataset:
        """The dataset of a run."""
        key = order.dataset_key(spec)
        if self._last is None or self._last[0] != key:
            self._last = None  # let go of the old one before the new one is there
            self._last = key, self._read(key)
        dataset = self._last[1]
        if isinstance(dataset, DatasetError):
            raise dataset
        checks.check_batch_size(spec.batch_size, len(dataset.train_labels))
        return dataset

    def _read(self, key: order.DatasetKey) -> Dataset | DatasetError:
        try:
            return data.load(
                key.name,
                data_dir=self._data_dir,
                train_limit=key.train_limit,
                test_limit=key.test_limit,
                valid_fraction=key.valid_fraction,
            )
        except UserError as error:
            return DatasetError(str(error))


def describe(dataset: Dataset) -> str:
    """Where the images of the next runs come from."""
    kind = dataset.source["kind"]
    is_verified = dataset.source.get("verified", True)
    note = "" if is_verified else ", content not verified"
    return (
        f"data: {dataset.name} ({kind}{note}), {len(dataset.train_labels)} "
        f"training and {len(dataset.test_labels)} test images"
    )
