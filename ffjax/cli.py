"""What the commands share: flags are read, and mistakes are told in one line each."""

import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable
from typing import Any

from absl import app, flags
from ml_collections import config_flags

from ffjax.config import spec
from ffjax.errors import UserError


def run(main: Callable[[], int], define_flags: Callable[[list[str]], None]) -> None:
    """Runs a command: reads its flags, and exits with what ``main`` returns.

    A user's mistake is one line on standard error and exit code 2, Ctrl-C is exit code
    130, and --help exits with 0.
    """

    def parse(argv: list[str]) -> list[str]:
        try:
            _check_config_arguments(argv)
            define_flags(argv)
            if {"--help", "-help", "-h"} & set(argv[1:]):
                app.usage(shorthelp=True, writeto_stdout=True)
                sys.exit(0)
            rest = flags.FLAGS(argv)
            if len(rest) > 1:
                raise UserError(f"{rest[1]!r}: not a flag; see --help")
            return rest
        except (flags.Error, UserError) as error:
            sys.exit(complain(_explain(error)))
        except Exception as error:  # a config file that cannot be loaded
            frame = traceback.extract_tb(error.__traceback__)[-1]
            what = " ".join(f"{type(error).__name__}: {error}".split())
            sys.exit(complain(f"config: {what} ({frame.filename}:{frame.lineno})"))

    def call(argv: list[str]) -> int:
        del argv  # parse has seen that nothing is left
        try:
            return main()
        except UserError as error:
            return complain(str(error))
        except KeyboardInterrupt:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(130)  # an orderly end would wait for the epoch that is running

    app.run(call, flags_parser=parse)


def load_config(path: str) -> Any:
    """What a config file gives by itself, without the command line's overrides."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file("config", path, flag_values=values, sys_argv=[""])
    values([""])
    return values.config


def complain(message: str) -> int:
    """Prints a user's mistake on standard error; returns the exit code for it."""
    print(f"ffjax: {message}", file=sys.stderr)
    return 2


def _check_config_arguments(argv: list[str]) -> None:
    """Finds what config_flags would answer with a traceback."""
    for argument in argv[1:]:
        if argument == "--":
            return
        name, _, value = argument.lstrip("-").partition("=")
        if re.match(r"(no)?config\.", name):
            spec.check_name(re.sub(r"\[.*", "", name.partition(".")[2]))
        if name == "config":
            path = value.partition(":")[0]
            if not pathlib.Path(path).is_file():
                raise UserError(f"config={path!r}: no such file")


def _explain(error: Exception) -> str:
    """The line to print for an exception that reading the flags raised."""
    text = str(error).strip()
    if "Error whilst parsing config file" in text:
        # absl wraps what get_config raised; its last line says what was wrong.
        last = text.splitlines()[-1]
        if "get_config() takes" in last:
            return "config: this file has no sections; leave out the colon"
        return re.sub(r"^[\w.]*Error: ", "", last)
    wrong = re.match(r"flag --(?:no)?config\.(\w+)=(.*?): ", text)
    if wrong:
        field, value = wrong.groups()
        return f"{field}={value!r}: must be {spec.allowed_values(field)}"
    return text.splitlines()[0] if text else repr(error)
