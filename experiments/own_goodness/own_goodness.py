"""A goodness function of your own beside built-in ones, and a sweep of its parameter.

    python -m ffjax.main --config=experiments/own_goodness/own_goodness.py

from the folder of the repository, which makes the function's module importable. It
needs no data, and about two minutes on 2 cores; runs/own_goodness/report/index.html
shows it all. norm_ratio reaches 84 % with q = 12, burstiness 85 %. Sections: compare,
sweep.
"""

from ffjax import config

OWN = "experiments.own_goodness.norm_ratio:norm_ratio"
PATHWAYS = ("standard", "ffcl")

SECTIONS = {
    "compare": config.product(
        goodness=("sos", "burstiness", "moment", OWN), pathway=PATHWAYS
    ),
    "sweep": config.product(
        goodness=OWN,
        goodness_params=("q=3", "q=4", "q=6", "q=8", "q=12"),
        pathway=PATHWAYS,
    ),
}


def get_config(section: str | None = None):
    """Both sections, or one of them."""
    return config.grid(
        SECTIONS,
        section,
        dataset="fashion_mini",
        num_layers=2,
        width=300,
        epochs=20,
        batch_size=100,
    )
