"""What the benchmark trains: networks, and how much of each there is in a run."""

import dataclasses

from ffjax import config, data

MAIN = ("sos", "topk", "entmax", "burstiness")  # those that the goals are about
PATHWAYS = ("standard", "ffcl")
DATASET = "fashion_mini"  # embedded: the benchmark needs no files
# Of each layer in the paper: work done once a layer is shared by so many.
EPOCHS = config.RunSpec().epochs


@dataclasses.dataclass(frozen=True)
class Size:
    """How much is measured.

    Attributes:
      num_layers: of the networks whose goodness functions are compared.
      width: of their layers.
      batch_size: examples a step.
      num_images: of an epoch.
      num_test_images: of an evaluation.
      goodness: the functions to compare.
      depth: of the network for the cost against depth.
      widths: of the networks for the cost against width.
      rounds: how often everything is measured.
      start_epochs: of training before anything is measured.
    """

    num_layers: int
    width: int
    batch_size: int
    num_images: int
    num_test_images: int
    goodness: tuple[str, ...]
    depth: int
    widths: tuple[int, ...]
    rounds: int
    start_epochs: int


SIZES = {
    "tiny": Size(2, 32, 20, 60, 20, ("burstiness",), 2, (32,), 1, 1),
    "small": Size(2, 500, 500, 1000, 200, MAIN, 4, (1000,), 3, 3),
    "full": Size(
        num_layers=4,
        width=2000,
        batch_size=500,
        num_images=5000,
        num_test_images=500,
        goodness=(
            *MAIN,
            "variance",
            "neg_entropy",
            "softmax_energy_margin",
            "game_theoretic",
            "game_theoretic_shah",
            "contrast_topk",
            "ln_topk",
            "ln_burstiness",
            "moment",
        ),
        depth=8,
        widths=(500, 1000, 2000, 4000),
        rounds=3,
        start_epochs=3,
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """A network to measure."""

    pathway: str
    goodness: str
    num_layers: int
    width: int

    def spec(self, size: Size) -> config.RunSpec:
        """The network as a run, for as many epochs as precede the measurements."""
        return config.make_spec(
            dataset=DATASET,
            pathway=self.pathway,
            goodness=self.goodness,
            num_layers=self.num_layers,
            width=self.width,
            epochs=size.start_epochs,
            batch_size=size.batch_size,
        )

    def __str__(self) -> str:
        return f"{self.pathway} {self.goodness} {self.num_layers}x{self.width}"


def plan(size: Size) -> dict[str, list[Case]]:
    """The networks of each part of the benchmark."""
    return {
        "training": [
            Case(pathway, goodness, size.num_layers, size.width)
            for pathway in PATHWAYS
            for goodness in size.goodness
        ],
        "depth": [
            Case(pathway, "burstiness", size.depth, size.width) for pathway in PATHWAYS
        ],
        "width": [
            Case(pathway, "burstiness", 2, width)
            for pathway in PATHWAYS
            for width in size.widths
        ],
    }


def load_images(size: Size) -> data.Dataset:
    """The embedded Fashion-MNIST images, as many as the size asks for."""
    return data.load(
        DATASET, train_limit=size.num_images, test_limit=size.num_test_images
    )


def num_steps(size: Size) -> int:
    """Steps of an epoch."""
    return -(-size.num_images // size.batch_size)


def product_rows(case: Case, index: int, size: Size) -> int:
    """Rows of the matrix product of a layer: two labels an image, or shared ones."""
    shared = case.pathway == "ffcl" or index == 0
    return size.batch_size if shared else 2 * size.batch_size
