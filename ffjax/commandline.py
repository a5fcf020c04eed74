"""Mistakes on the command line, told in one line each."""

import pathlib
import re
import sys

from ffjax import config
from ffjax.errors import UserError


def check_arguments(argv: list[str]) -> None:
    """Finds what config_flags would answer with a traceback."""
    for argument in argv[1:]:
        if argument == "--":
            return
        name, _, value = argument.lstrip("-").partition("=")
        if re.match(r"(no)?config\.", name):
            config.check_field_name(re.sub(r"\[.*", "", name.partition(".")[2]))
        if name == "config" and value:
            path = value.partition(":")[0]
            if not pathlib.Path(path).is_file():
                raise UserError(f"config={path!r}: no such file")


def explain(error: Exception) -> str:
    """The line to print for an exception that reading the flags raised."""
    text = str(error).strip()
    if "Error whilst parsing config file" in text:
        # absl wraps what get_config raised; its last line says what was wrong.
        last = text.splitlines()[-1]
        return re.sub(r"^[\w.]*Error: ", "", last)
    wrong = re.match(r"flag --(?:no)?config\.(\w+)=(.*?): ", text)
    if wrong:
        field, value = wrong.groups()
        return f"{field}={value!r}: must be {config.allowed_values(field)}"
    return text.splitlines()[0] if text else repr(error)


def complain(message: str) -> int:
    """Prints a user's mistake on standard error; returns the exit code for it."""
    print(f"ffjax: {message}", file=sys.stderr)
    return 2
