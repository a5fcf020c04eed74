"""Trains and evaluates Forward-Forward networks: one run, or a whole grid.

python -m ffjax.main [--config=FILE[:SECTION]] [--config.FIELD=VALUE] [--workdir=DIR]
"""

import pathlib
import sys

from absl import flags, logging
from ml_collections import config_flags

from ffjax import commandline, config, cost, runner

_DEMO = pathlib.Path(__file__).with_name("demo.py")


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    flags.DEFINE_string("workdir", "", "Folder for results [runs/NAME OF THE CONFIG].")
    flags.DEFINE_bool("list", False, "Print the cells' ids and run nothing.")
    config_flags.DEFINE_config_file(
        "config",
        str(_DEMO),
        "Config file, with a section of its grid after a colon; without it, a "
        "demonstration. --config.FIELD=VALUE sets a field; the fields are:\n"
        f"{config.describe_fields()}",
        sys_argv=argv,
    )


def main() -> int:
    """Runs the cells of the config that have no record yet."""
    values, flag = flags.FLAGS, flags.FLAGS["config"]
    if not values["verbosity"].present:
        logging.set_verbosity(logging.WARNING)
    overrides = config_flags.get_override_values(flag)
    plain = commandline.load_config(config_flags.get_config_filename(flag))
    cells = config.expand(plain, overrides)
    if values.list:
        print(*[cell.id for cell in cells], cost.describe(cells), sep="\n")
        return 0
    path, _, section = config_flags.get_config_filename(flag).partition(":")
    name = "-".join(filter(None, (pathlib.Path(path).stem, section)))
    runner.use_compilation_cache()
    return runner.run(
        cells,
        values.workdir or f"runs/{name}",
        data_dir=values.config.data_dir,
        arguments=sys.argv[1:],
        is_grid=bool(plain.get("grid")),
    )


if __name__ == "__main__":
    commandline.run(main, define_flags)
