"""The command in this process: as quick as a function, and as strict as a terminal."""

import contextlib
import io
import sys
from typing import NamedTuple

from absl import flags

from ffjax import cli, main


class Ended(NamedTuple):
    """How a command ended."""

    code: object
    out: str
    err: str


def command(*arguments: str) -> Ended:
    """Runs ``python -m ffjax.main`` with these arguments; flags are as before then."""
    known, argv = set(flags.FLAGS), sys.argv
    sys.argv = ["ffjax.main", *arguments]
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            cli.run(main.main, main.define_flags)
    except SystemExit as ended:
        return Ended(ended.code, out.getvalue(), err.getvalue())
    finally:
        sys.argv = argv
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        flags.FLAGS.unparse_flags()
    raise AssertionError("a command always exits")
