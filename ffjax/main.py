"""Trains and evaluates Forward-Forward networks: one run, or a whole grid.

python -m ffjax.main [--config=FILE[:SECTION]] [--config.FIELD=VALUE] [--workdir=DIR]
"""

import pathlib
import sys

from absl import flags, logging
from ml_collections import config_flags

from ffjax import cli, config
from ffjax.config import cells as cells_lib
from ffjax.config import spec
from ffjax.runs import cost, order, ray_cluster, workdir, workers
from ffjax.runs.run import run
from ffjax.training import machine

_DEMO = pathlib.Path(__file__).with_name("demo.py")


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    flags.DEFINE_string("workdir", "", "Folder for results [runs/NAME OF THE CONFIG].")
    flags.DEFINE_bool(
        "list", False, "Print the cells' ids, which are done, and run nothing."
    )
    flags.DEFINE_bool("save", False, "Keep networks, in WORKDIR/networks.")
    flags.DEFINE_bool("tensorboard", False, "Event files, in WORKDIR/tensorboard.")
    flags.DEFINE_integer(
        "workers", 0, "Processes that share the cores; 1: this one alone [automatic: a "
        "process a core for a grid of networks so small that it pays, or 1].",
        lower_bound=0,
    )  # fmt: skip
    flags.DEFINE_string("shard", "", "i/n: the i-th of n parts, for as many machines.")
    ray_cluster.define_flags()
    flags.adopt_module_key_flags(ray_cluster)  # so that --help lists them
    config_flags.DEFINE_config_file(
        "config",
        str(_DEMO),
        "Config file, with a section of its grid after a colon; without it, a "
        "demonstration. --config.FIELD=VALUE sets a field; the fields are:\n"
        f"{spec.describe_fields()}",
        sys_argv=argv,
    )


def main() -> int:
    """Runs the cells of the config that have no record yet."""
    values, flag = flags.FLAGS, flags.FLAGS["config"]
    if not values["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    overrides = config_flags.get_override_values(flag)
    plain = cli.load_config(config_flags.get_config_filename(flag))
    cells = config.expand(plain, overrides)
    if values.shard:
        cells = order.shard(cells, *order.parse_shard(values.shard))
    path, _, section = config_flags.get_config_filename(flag).partition(":")
    name = "-".join(filter(None, (pathlib.Path(path).stem, section)))
    folder = values.workdir or f"runs/{name}"
    if values.list or not cells:
        print(*workdir.listed(folder, cells), cost.describe(cells), sep="\n")
        return 0
    ray = ray_cluster.from_flags()
    workers.check(values.workers, on_ray=ray is not None)
    machine.use_compilation_cache()
    return run(
        cells,
        folder,
        cells_lib.way(plain, overrides),
        ray=ray,
        workers=values.workers,
        arguments=sys.argv[1:],
        is_grid=bool(plain.get("grid")),
        save=values.save,
        tensorboard=values.tensorboard,
    )


if __name__ == "__main__":
    cli.run(main, define_flags)
