"""Draws the report of a workdir: WORKDIR/report/index.html, tables and figures.

python -m ffjax.report --workdir=DIR
"""

import sys

from absl import flags

from ffjax import cli
from ffjax.errors import UserError
from ffjax.report import contents, page


def define_flags(argv: list[str]) -> None:
    """The flags of this command."""
    del argv
    flags.DEFINE_string(
        "workdir", None, "The folder of a grid, as given to ffjax.main --workdir."
    )


def main() -> int:
    """Writes the report of --workdir and says where it is."""
    workdir = flags.FLAGS.workdir
    if not workdir:
        raise UserError("--workdir is missing; write --workdir=DIR")
    read = contents.read(workdir)
    for problem in read.problems:
        print(f"ffjax: warning: {problem}", file=sys.stderr)
    print(page.write_contents(read, workdir))
    return 0


if __name__ == "__main__":
    cli.run(main, define_flags)
