"""Trains and evaluates Forward-Forward networks: one run, or a whole grid.

python -m ffjax.main [--config=FILE[:SECTION]] [--config.FIELD=VALUE] [--workdir=DIR]
"""

import pathlib
import sys

from absl import app, flags, logging
from ml_collections import config_flags

from ffjax import commandline, config, cost, runner
from ffjax.errors import UserError

_DEMO = pathlib.Path(__file__).with_name("demo.py")


def parse_flags(argv: list[str]) -> list[str]:
    """Defines and reads the flags; a mistake in them is told in one line."""
    flags.DEFINE_string("workdir", "", "Folder for results [runs/NAME OF THE CONFIG].")
    flags.DEFINE_bool("list", False, "Print the cells' ids and run nothing.")
    try:
        commandline.check_arguments(argv)
        config_flags.DEFINE_config_file(
            "config",
            str(_DEMO),
            "Config file, with a section of its grid after a colon; without it, a "
            "demonstration. --config.FIELD=VALUE sets a field; the fields are:\n"
            f"{config.describe_fields()}",
            sys_argv=argv,
        )
        rest = flags.FLAGS(argv)
        if len(rest) > 1:
            raise UserError(f"{rest[1]!r}: not a flag; see --help")
        return rest
    except (flags.Error, UserError) as error:
        sys.exit(commandline.complain(commandline.explain(error)))


def main(argv: list[str]) -> int:
    """Runs the cells of the config that have no record yet."""
    del argv  # parse_flags has seen that nothing is left
    values, flag = flags.FLAGS, flags.FLAGS["config"]
    logging.set_verbosity(logging.WARNING)
    try:
        cells = config.expand(values.config, config_flags.get_override_values(flag))
        if values.list:
            print(*[cell.id for cell in cells], cost.describe(cells), sep="\n")
            return 0
        name = pathlib.Path(config_flags.get_config_filename(flag)).stem
        workdir = values.workdir or f"runs/{name}"
        data_dir = values.config.data_dir
        return runner.run(cells, workdir, data_dir=data_dir, arguments=sys.argv[1:])
    except UserError as error:
        return commandline.complain(str(error))


if __name__ == "__main__":
    app.run(main, flags_parser=parse_flags)
