# SPDX-License-Identifier: Apache-2.0
"""The command line's grammar; each command declares its own arguments."""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from .._version import __version__
from ..errors import ArgumentError

# Each is a module of this package, imported where it is run.
_COMMANDS = {
    "passes": "list the passes, or describe one",
    "show": "show a module: size, cost, fingerprint, opcodes",
    "run": "run passes in order, and show what each of them changes",
    "alternatives": "list every rewrite that passes would make",
    "optimize": "apply a policy to the rewrites, and time the result",
    "search": "search for decisions that run faster than XLA's default",
    "tune": "tune a function or a whole script across the stages of the compiler",
    "export": "decide a function for a machine that has jax alone, as one with a GPU",
    "train": "train an agent or a model",
    "measure": "time modules against each other, or test the intervals",
    "profile": "time a module's kernels: shares, rates, distance from the peak",
    "rewrites": "show which of XLA's rewrites pay on a program, and which cost",
    "calibrate": "measure the constants of the static estimate",
    "bench": "run policies and searches on many modules: leaderboard",
    "apply": "replay a saved trace of decisions",
    "diff": "show what changed between two modules",
    "graph": "write a module as Graphviz or JSON",
    "explore": "look at rewrites, decide and measure, in a browser",
    "fuzz": "check the invariants on random modules, passes and decisions",
    "dataset": "count, show or check the shipped modules",
    "store": "count, export, import or remove stored measurements",
}
_DESCRIPTION = """\
XLA's graph rewrites as decisions: every rewrite that an XLA pass would make is an
alternative, which a policy accepts or rejects; the result is verified and timed.
"""
_EPILOG = """\
MODULE is one of
  model.hlo, model.txt      HLO text, as XLA and JAX print it
  model.pb                  a serialized HloModuleProto or HloProto
  -                         either of them from standard input
  train.py:step             JAX: the function is called without arguments, and returns
                            (fn, *args) to lower, jax.jit(fn).lower(*args), or an
                            HloModule; with any other result, the function itself
                            is lowered
  package.module:step       the same, for a module that Python can import
  hloenv://dataset/test/flax  a module of the dataset, the first where it names several

examples:
  hloenv alternatives model.hlo --pass algsimp --pass cse
  hloenv optimize train.py:step --pass algsimp --pass cse --policy fewest-ops --measure
  hloenv optimize model.hlo --pass general-fusion --until fusion --policy least-bytes

Every command takes --json (one JSON object on stdout), --verbose (tracebacks) and
--import FILE (your own policies, searches and estimators; --policy my.py:decide needs
no --import).
Exit codes: 0 success, 1 failure (one line states the error), 2 wrong usage, 3 the file
of -o is not written (optimize and search: invalid, wrong or no faster), 130 Ctrl-C
(tune: 0 where what was found until then is checked and kept).
"""


class UsageError(ArgumentError):
    """Arguments that are missing or contradict each other: exit code 2."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong, and what may be meant, in place of all the options."""

    def parse_known_args(self, *args: Any, **kwargs: Any) -> Any:
        """As of argparse, whose parser of all commands would tell unknown options."""
        namespace, unknown = super().parse_known_args(*args, **kwargs)
        for each in unknown:
            if each.startswith("-"):
                near = _near(each, self._option_string_actions)
                self.error(f"there is no option {each}{near}")
        if unknown:
            self.error(f"{unknown[0]!r} is one argument too many")
        return namespace, unknown

    def error(self, message: str) -> NoReturn:
        """Ends the program with exit code 2."""
        print(f"usage: {self.prog} --help shows all options", file=sys.stderr)
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        sys.exit(2)


def _near(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word.split("=")[0], list(known), 1)
    return f"; is {found[0]} meant?" if found else ""


def make_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The parser of `hloenv`; `args.run(args)` runs the command.

    Args:
        argv: what it is to parse: only the command in it is imported and declared.
    """
    parser = _Parser(
        prog="hloenv",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hloenv {__version__}")
    if argv and not (argv[0].startswith("-") or argv[0] in _COMMANDS):
        parser.error(f"there is no command {argv[0]!r}{_near(argv[0], _COMMANDS)}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, help_ in _COMMANDS.items():
        if name in argv[:1]:
            _declare(commands.add_parser(name, help=help_), name)
        else:
            commands.add_parser(name, help=help_, add_help=False)
    return parser


def _declare(parser: argparse.ArgumentParser, name: str) -> None:
    command = importlib.import_module(f".{name}", __package__)
    parser.description = textwrap.fill(command.DESCRIPTION, 80)
    parser.epilog = command.EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_parser(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object and nothing else"
    )
    parser.add_argument(
        *("-v", "--verbose"), action="store_true", help="print tracebacks of errors"
    )
    _add_import(parser)
    parser.set_defaults(run=command.run)


def imports_of(argv: Sequence[str]) -> list[str]:
    """The files of `--import` on a command line, which may be wrong otherwise."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--import", dest="imports", action="append", nargs="?")
    parser.add_argument("--args", nargs=argparse.REMAINDER)  # of a script
    imports = parser.parse_known_args(argv)[0].imports or ()
    return [each for each in imports if each is not None]


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--import",
        dest="imports",
        metavar="FILE",
        action="append",
        default=[],
        help="import this Python file first; it may register policies, searches and "
        "estimators; may be repeated",
    )
