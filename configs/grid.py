"""Every run of the paper, as one grid with a section for each of its results.

    python -m ffjax.main --config=configs/grid.py --list
    python -m ffjax.main --config=configs/grid.py --config.data_dir=DIR
    python -m ffjax.main --config=configs/grid.py:p_sweep --config.data_dir=DIR
    python -m ffjax.main --config=configs/grid.py --config.goodness=moment --config.p=6

The last line of --list says how many runs there are and how long they take. Without a
section all but ``quick`` run; a cell that several sections share runs once. At the
end report/index.html in the workdir has the paper's numbers beside the measured ones.

    python -m ffjax.main --config=configs/grid.py:quick

needs no data and about 3 minutes on 2 cores: a small network on the embedded part of
Fashion-MNIST shows the paper's story. Sum-of-squares stays far behind with the label in
the input (standard, below 50 %) and gains most from the label in every layer (ffcl,
72 %); burstiness and the moments are ahead with both (83 to 86 %).
"""

from ffjax import config

PATHWAYS = ("standard", "ffcl")
SMOOTH = ("gelu", "swish")
NORMED = ("ln_gelu", "ln_swish")
# The paper's tables give the better of both, so both are run.
GATES = (False, True)
GOODNESS = (
    "sos",
    "variance",
    "neg_entropy",
    "softmax_energy_margin",
    "game_theoretic",
    "game_theoretic_shah",
    "topk",
    "contrast_topk",
    "ln_topk",
    "entmax",
    "burstiness",
    "ln_burstiness",
    "moment",
)


def main_section():
    """The main tables: every goodness function with both pathways."""
    datasets = ("mnist", "fashion_mnist")
    return config.product(
        dataset=datasets,
        pathway=PATHWAYS,
        goodness=GOODNESS,
        activation=SMOOTH,
        norm_gate=GATES,
    ) + config.product(
        dataset=datasets,
        pathway=["standard"],
        goodness=["sos"],
        activation=["relu"],
        norm_gate=GATES,
    )


def interaction():
    """Goodness x activation."""
    return config.product(
        pathway=["standard"],
        goodness=("sos", "topk", "entmax", "burstiness"),
        activation=("relu", *SMOOTH, *NORMED),
        norm_gate=GATES,
    )


def k_sweep():
    """How many units contrast top-k selects."""
    return config.product(
        pathway=PATHWAYS,
        goodness=["contrast_topk"],
        k_fraction=(0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    )


def alpha_sweep():
    """How sparse entmax is."""
    return config.product(
        pathway=PATHWAYS, goodness=["entmax"], alpha=(1.0, 1.25, 1.5, 1.75, 2.0)
    )


def p_sweep():
    """The order of the moment."""
    return config.product(pathway=PATHWAYS, goodness=["moment"], p=(2, 3, 4, 5, 6, 8))


def cross_dataset():
    """Ten methods on six datasets."""
    methods = (
        ("standard", "sos", "relu"),
        ("ffcl", "sos", "gelu"),
        ("standard", "topk", "swish"),
        ("ffcl", "contrast_topk", "gelu"),
        ("standard", "burstiness", "swish"),
        ("ffcl", "burstiness", "gelu"),
        ("standard", "burstiness", "ln_gelu"),
        ("ffcl", "burstiness", "ln_gelu"),
        ("standard", "burstiness", "ln_swish"),
        ("ffcl", "burstiness", "ln_swish"),
    )
    datasets = ("mnist", "fashion_mnist", "cifar10", "usps", "svhn", "emnist_letters")
    return tuple(
        {"pathway": pathway, "goodness": goodness, "activation": activation, **rest}
        for pathway, goodness, activation in methods
        for rest in config.product(dataset=datasets, norm_gate=GATES)
    )


def seeds():
    """The baseline and the paper's method with five seeds, without the norm gate."""
    methods = (("standard", "sos", "relu"), ("ffcl", "burstiness", "gelu"))
    return tuple(
        {
            "dataset": dataset,
            "pathway": pathway,
            "goodness": goodness,
            "activation": activation,
            "seeds": (42, 43, 44, 45, 46),
        }
        for dataset in ("mnist", "fashion_mnist", "emnist_letters", "usps")
        for pathway, goodness, activation in methods
    )


def small():
    """The small network."""
    axes = {
        "dataset": ("mnist", "fashion_mnist"),
        "pathway": ["standard"],
        "norm_gate": GATES,
        "num_layers": [2],
        "width": [500],
    }
    goodness = ("sos", "variance", "neg_entropy", "topk", "contrast_topk")
    return config.product(goodness=goodness, activation=SMOOTH, **axes) + (
        config.product(goodness=["sos"], activation=["relu"], **axes)
    )


def burstiness():
    """Burstiness with and without LayerNorm, in the goodness and in the activation."""
    return config.product(
        pathway=PATHWAYS,
        goodness=("burstiness", "ln_burstiness"),
        activation=(*SMOOTH, *NORMED),
        norm_gate=GATES,
    )


def quick():
    """The paper's story on the embedded dataset, in minutes."""
    size = {
        "dataset": ["fashion_mini"],
        "num_layers": [2],
        "width": [300],
        "epochs": [30],
        "batch_size": [100],
    }
    baseline = {"pathway": ["standard"], "goodness": ["sos"], "activation": ["relu"]}
    goodness = ("sos", "topk", "entmax", "burstiness")
    return (
        config.product(**baseline, **size)
        + config.product(goodness=goodness, pathway=PATHWAYS, **size)
        + config.product(goodness=["moment"], p=(3, 4, 6, 8), pathway=PATHWAYS, **size)
    )


SECTIONS = {
    "main": main_section,
    "interaction": interaction,
    "k_sweep": k_sweep,
    "alpha_sweep": alpha_sweep,
    "p_sweep": p_sweep,
    "cross_dataset": cross_dataset,
    "seeds": seeds,
    "small": small,
    "burstiness": burstiness,
    "quick": quick,
}


def get_config(section=None):
    """The whole grid but for ``quick``, or one section of it."""
    config.check_section(section, SECTIONS)
    names = [name for name in SECTIONS if name != "quick"]
    names = names if section is None else [section]
    fields = config.default()
    fields.grid = {name: SECTIONS[name]() for name in names}
    return fields
