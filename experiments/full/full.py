r"""Every number of the paper at its own settings: 4x2000, 60 epochs, seed 42, float32.

    python -m ffjax.main --config=experiments/full/full.py \
        --workdir=experiments/full --config.data_dir=DIR

runs what settles most of the paper's 282 numbers per hour first, and can be stopped and
started again at any time. All of it takes about 275 hours on 2 cores or 4 on an A100.
The runs are those of configs/grid.py, in sections that can be run alone: ``ungated``,
``usps_seeds`` (the paper's seed table, USPS), ``gated`` (the paper prints the better of
both) and ``seeds`` (the rest of the seed table).
"""

from configs import grid
from ffjax import config

CELLS = tuple(
    cell
    for name, cells in grid.SECTIONS.items()
    if name not in ("seeds", "quick")
    for cell in cells
)

SECTIONS = {
    "ungated": tuple(cell for cell in CELLS if not cell.get("norm_gate")),
    "usps_seeds": tuple(
        cell for cell in grid.SECTIONS["seeds"] if cell["dataset"] == "usps"
    ),
    "gated": tuple(cell for cell in CELLS if cell.get("norm_gate")),
    "seeds": grid.SECTIONS["seeds"],
}


def get_config(section: str | None = None):
    """All sections, or some of them."""
    return config.grid(SECTIONS, section, order="value")
