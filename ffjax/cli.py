"""What the commands share: flags and config files are read; a mistake is one line."""

import codecs
import inspect
import io
import os
import pathlib
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import ml_collections
from absl import app, flags

from ffjax.config import cells, spec
from ffjax.errors import UserError, shown

_MOST_SEEDS = 100_000  # in a range

# What a terminal without these characters shows instead.
_PLAIN = {"·": "-", "…": "...", "–": "-", "—": "-", "×": "x"}  # noqa: RUF001


def run(main: Callable[[], int], define_flags: Callable[[list[str]], None]) -> None:
    """Runs a command: reads its flags, and exits with what ``main`` returns.

    A user's mistake is one line on standard error and exit code 2, Ctrl-C is exit code
    130, and --help exits with 0.
    """
    _degrade_output()

    def parse(argv: list[str]) -> list[str]:
        try:
            argv = _with_seeds_spelled(argv)
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
        except Exception as error:  # a value that config_flags cannot digest
            what = " ".join(f"{type(error).__name__}: {error}".split())
            sys.exit(complain(f"config: {what}"))

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


def load_config(path: str) -> ml_collections.ConfigDict:
    """What a config file gives by itself, without the command line's overrides.

    Args:
      path: of the file, perhaps with a section after a colon.

    Raises:
      UserError: whatever is wrong with the file, in one line that names it.
    """
    name, colon, section = path.partition(":")
    file = pathlib.Path(name)
    if not file.is_file():
        raise UserError(f"config={name!r}: no such file")
    # Not under the name of a real module, and without compiled code beside the file.
    module = types.ModuleType("ffjax_config_file")
    module.__file__ = name
    sys.modules[module.__name__] = module
    try:
        exec(compile(file.read_bytes(), name, "exec"), module.__dict__)
        get_config = _get_config(name, module, bool(colon))
        config = get_config(section) if colon else get_config()
    except UserError:
        raise
    except SystemExit as error:
        raise UserError(f"config={name!r}: it ends the program ({error!r})") from None
    except Exception as error:  # whatever a user's file does
        raise UserError(f"config={name!r}: {_what_happened(error, name)}") from None
    cells.check_config(config, name)
    return config


def _get_config(
    name: str, module: types.ModuleType, has_section: bool
) -> Callable[..., Any]:
    """The function of a config file that gives its config."""
    function = getattr(module, "get_config", None)
    if not callable(function):
        raise UserError(f"config={name!r}: it has no function get_config")
    arguments = ("section",) if has_section else ()
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        advice = (
            "this file has no sections; leave out the colon"
            if has_section
            else "its get_config needs a section, after a colon"
        )
        raise UserError(f"config={name!r}: {advice}") from None
    return function


def _what_happened(error: Exception, name: str) -> str:
    """An exception of a config file in a line, with the place in the file."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    place = f"line {lines[-1]}: " if lines else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"{place}{what[:300]}"


def complain(message: str) -> int:
    """Prints a user's mistake on standard error; returns the exit code for it."""
    print(f"ffjax: {message}", file=sys.stderr)
    return 2


def _check_config_arguments(argv: list[str]) -> None:
    """Finds what config_flags would answer with a traceback."""
    for name, value in _config_arguments(argv):
        if name == "config":
            load_config(value)
        else:
            spec.check_name(re.sub(r"\[.*", "", name.partition(".")[2]))


def _with_seeds_spelled(argv: list[str]) -> list[str]:
    """The arguments with ``--config.seeds=1-3,7`` as ``--config.seeds=1,2,3,7``."""
    spelled = []
    for position, argument in enumerate(argv):
        flag, equals, value = argument.partition("=")
        if equals and flag.lstrip("-") == "config.seeds":
            spelled.append(f"{flag}={_spell_seeds(value)}")
        elif position and argv[position - 1].lstrip("-") == "config.seeds":
            spelled.append(_spell_seeds(argument))
        else:
            spelled.append(argument)
    return spelled


def _spell_seeds(text: str) -> str:
    parts = []
    for part in text.split(","):
        span = re.fullmatch(r"\s*(\d{1,10})-(\d{1,10})\s*", part)
        if span is None:
            parts.append(part)
            continue
        first, last = map(int, span.groups())
        if not first <= last < first + _MOST_SEEDS:
            raise UserError(
                f"seeds={text!r}: a range is from a seed to a larger one, such as 1-5, "
                f"at most {_MOST_SEEDS} of them"
            )
        parts += map(str, range(first, last + 1))
    return ",".join(parts)


def _config_arguments(argv: list[str]) -> Iterator[tuple[str, str]]:
    """Names and values of --config and --config.FIELD, as absl reads them."""
    for position, argument in enumerate(argv[1:], start=1):
        if argument == "--":
            return
        if not argument.startswith("-"):
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        if name == "config" and not equals:
            value = argv[position + 1] if position + 1 < len(argv) else ""
        if name == "config" or re.match(r"(no)?config\.", name):
            yield name, value


def _explain(error: Exception) -> str:
    """The line to print for an exception that reading the flags raised."""
    text = str(error).strip()
    wrong = re.match(r"flag --(?:no)?config\.(\w+)=(.*?): ", text)
    if wrong:
        field, value = wrong.groups()
        return f"{field}={shown(value)}: must be {spec.allowed_values(field)}"
    return text.splitlines()[0] if text else repr(error)


def _degrade_output() -> None:
    """Lets a terminal that lacks a character show another instead of failing."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end]
        return "".join(_PLAIN.get(letter, "?") for letter in lacking), error.end

    codecs.register_error("ffjax-plain", replace)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="ffjax-plain")
