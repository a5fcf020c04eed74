"""TFDS builders of the datasets that TFDS lacks, or has in another form than the paper.

Importing this module adds usps, svhn and emnist_letters to those that ``tfds.load``
knows (TFDS itself has svhn_cropped, with a split of 1.3 GB more, and emnist/letters,
cut to 88,800 images). Images and labels are those of ``ffjax.data``: upright, 8 bits,
the classes from 0.
"""

import pathlib
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.core.utils import Size

from ffjax.data import catalog, official

_Examples: TypeAlias = Iterator[tuple[int, dict[str, np.ndarray | int]]]


class _Builder(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Images and labels, read from the official files."""

    VERSION = tfds.core.Version("1.0.0")
    _read: Callable[..., official.Arrays]

    def _make_info(
        self, *, homepage: str, licence: str, citation: str
    ) -> tfds.core.DatasetInfo:
        definition = catalog.DATASETS[self.name]
        height, width, *channels = definition.image_shape
        image = tfds.features.Image(
            shape=(height, width, *(channels or [1])), encoding_format="png"
        )
        label = tfds.features.ClassLabel(names=definition.class_names)
        return tfds.core.DatasetInfo(
            builder=self,
            description=self.__doc__,
            features=tfds.features.FeaturesDict({"image": image, "label": label}),
            supervised_keys=("image", "label"),
            homepage=homepage,
            license=licence,
            citation=citation,
        )

    def _split_generators(
        self, dl_manager: tfds.download.DownloadManager
    ) -> dict[str, _Examples]:
        # Downloaded, not extracted: see ffjax.data.tfds.prepare on what TFDS mixes up.
        urls = [file.url for file in catalog.DOWNLOADS[self.name]]
        paths: Any = dl_manager.download(urls)  # in a list, as the addresses are
        arrays = self._read(*map(pathlib.Path, paths))
        return {
            "train": self._generate_examples(*arrays[:2]),
            "test": self._generate_examples(*arrays[2:]),
        }

    def _generate_examples(self, images: np.ndarray, labels: np.ndarray) -> _Examples:
        images = images if images.ndim == 4 else images[..., None]
        for index, (image, label) in enumerate(zip(images, labels, strict=True)):
            yield index, {"image": image, "label": int(label)}


def _url_infos(name: str) -> dict[str, checksums.UrlInfo]:
    """What TFDS reads from a checksums.tsv otherwise; the catalog has it."""
    return {
        file.url: checksums.UrlInfo(Size(file.size), file.sha256, file.name)
        for file in catalog.DOWNLOADS[name]
    }


class Usps(_Builder):
    """Handwritten digits from US envelopes, deslanted and scaled to 16 x 16 pixels."""

    url_infos = _url_infos("usps")
    _read = staticmethod(official.read_usps_text)

    def _info(self) -> tfds.core.DatasetInfo:
        return self._make_info(
            homepage="https://hastie.su.domains/ElemStatLearn/data.html",
            licence="None stated; made available by the neural network group at AT&T.",
            citation="""@article{hull1994database,
  title={A database for handwritten text recognition research},
  author={Hull, Jonathan J.},
  journal={IEEE Transactions on Pattern Analysis and Machine Intelligence},
  volume={16}, number={5}, pages={550--554}, year={1994}
}""",
        )


class Svhn(_Builder):
    """House numbers from street views, cropped to 32 x 32 pixels around a digit."""

    url_infos = _url_infos("svhn")
    _read = staticmethod(official.read_svhn)

    def _info(self) -> tfds.core.DatasetInfo:
        return self._make_info(
            homepage="http://ufldl.stanford.edu/housenumbers/",
            licence="For non-commercial use only, says the homepage.",
            citation="""@inproceedings{netzer2011reading,
  title={Reading digits in natural images with unsupervised feature learning},
  author={Netzer, Yuval and Wang, Tao and Coates, Adam and Bissacco, Alessandro and
          Wu, Bo and Ng, Andrew Y.},
  booktitle={NIPS Workshop on Deep Learning and Unsupervised Feature Learning},
  year={2011}
}""",
        )


class EmnistLetters(_Builder):
    """Handwritten letters of both cases in 26 balanced classes, 28 x 28, upright."""

    url_infos = _url_infos("emnist_letters")
    _read = staticmethod(official.read_emnist)

    def _info(self) -> tfds.core.DatasetInfo:
        return self._make_info(
            homepage="https://www.nist.gov/itl/products-and-services/emnist-dataset",
            licence="None stated; derived from NIST Special Database 19.",
            citation="""@inproceedings{cohen2017emnist,
  title={{EMNIST}: extending {MNIST} to handwritten letters},
  author={Cohen, Gregory and Afshar, Saeed and Tapson, Jonathan and
          van Schaik, Andr\\'e},
  booktitle={International Joint Conference on Neural Networks},
  pages={2921--2926}, year={2017}
}""",
        )
