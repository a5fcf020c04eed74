"""Every run of the paper, as a grid with a section for each of its results.

    python -m ffjax.main --config=configs/grid.py --list
    python -m ffjax.main --config=configs/grid.py --config.data_dir=DIR
    python -m ffjax.main --config=configs/grid.py:k_sweep,p_sweep --config.data_dir=DIR
    python -m ffjax.main --config=configs/grid.py --config.goodness=moment --config.p=6

The last line of --list says how many runs there are and how long they take: all of
them 4 hours on an A100, 275 hours on 2 cores. Without a section all but ``quick`` run;
a cell that several sections share runs once. At the end report/index.html in the
workdir has the paper's numbers beside the measured ones.

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

GRAY = ("mnist", "fashion_mnist")
SEEDED = (*GRAY, "emnist_letters", "usps")
DATASETS = (*GRAY, "cifar10", "usps", "svhn", "emnist_letters")
BASELINE = {"pathway": "standard", "goodness": "sos", "activation": "relu"}
BEST = {"pathway": "ffcl", "goodness": "burstiness", "activation": "gelu"}
CROSS = (
    BASELINE,
    {"pathway": "ffcl", "goodness": "sos", "activation": "gelu"},
    {"pathway": "standard", "goodness": "topk", "activation": "swish"},
    {"pathway": "ffcl", "goodness": "contrast_topk", "activation": "gelu"},
    {"pathway": "standard", "goodness": "burstiness", "activation": "swish"},
    BEST,
    *config.product(pathway=PATHWAYS, goodness="burstiness", activation=NORMED),
)
SMALL = {"dataset": GRAY, "norm_gate": GATES, "num_layers": 2, "width": 500}
QUICK = {
    "dataset": "fashion_mini",
    "num_layers": 2,
    "width": 300,
    "epochs": 30,
    "batch_size": 100,
}

SECTIONS = {
    # The main tables: every goodness function with both pathways.
    "main": config.product(
        dataset=GRAY,
        pathway=PATHWAYS,
        goodness=GOODNESS,
        activation=SMOOTH,
        norm_gate=GATES,
    )
    + config.product(**BASELINE, dataset=GRAY, norm_gate=GATES),
    # Goodness x activation.
    "interaction": config.product(
        pathway="standard",
        goodness=("sos", "topk", "entmax", "burstiness"),
        activation=("relu", *SMOOTH, *NORMED),
        norm_gate=GATES,
    ),
    # How many units contrast top-k selects.
    "k_sweep": config.product(
        pathway=PATHWAYS,
        goodness="contrast_topk",
        k_fraction=(0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2),
    ),
    # How sparse entmax is.
    "alpha_sweep": config.product(
        pathway=PATHWAYS, goodness="entmax", alpha=(1.0, 1.25, 1.5, 1.75, 2.0)
    ),
    # The order of the moment.
    "p_sweep": config.product(
        pathway=PATHWAYS, goodness="moment", p=(2, 3, 4, 5, 6, 8)
    ),
    # Ten methods on six datasets.
    "cross_dataset": tuple(
        cell
        for method in CROSS
        for cell in config.product(**method, dataset=DATASETS, norm_gate=GATES)
    ),
    # The baseline and the paper's method with five seeds, without the norm gate.
    "seeds": tuple(
        {**method, "dataset": dataset, "seeds": (42, 43, 44, 45, 46)}
        for dataset in SEEDED
        for method in (BASELINE, BEST)
    ),
    # The small network.
    "small": config.product(
        pathway="standard",
        goodness=("sos", "variance", "neg_entropy", "topk", "contrast_topk"),
        activation=SMOOTH,
        **SMALL,
    )
    + config.product(**BASELINE, **SMALL),
    # Burstiness with and without LayerNorm, in the goodness and in the activation.
    "burstiness": config.product(
        pathway=PATHWAYS,
        goodness=("burstiness", "ln_burstiness"),
        activation=(*SMOOTH, *NORMED),
        norm_gate=GATES,
    ),
    # The paper's story on the embedded dataset, in minutes.
    "quick": config.product(**BASELINE, **QUICK)
    + config.product(
        goodness=("sos", "topk", "entmax", "burstiness"), pathway=PATHWAYS, **QUICK
    )
    + config.product(goodness="moment", p=(3, 4, 6, 8), pathway=PATHWAYS, **QUICK),
}


def get_config(section: str | None = None):
    """The whole grid but for ``quick``, or some of its sections."""
    return config.grid(SECTIONS, section, apart=("quick",))
