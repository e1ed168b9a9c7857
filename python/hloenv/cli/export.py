# SPDX-License-Identifier: Apache-2.0
"""hloenv export: a decided function for a machine that has jax alone."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._registry import load_attribute
from ..errors import ArgumentError
from ..policies import get_policy
from . import output
from .arguments import PASS_HELP, add_pass, check_output, name_of, parse_passes
from .load import is_function, value_of

if TYPE_CHECKING:
    from ..jax import Export

DESCRIPTION = (
    "Decides a JAX function before XLA's passes and writes it as jax.export does, for "
    "a machine on which hloenv need not be, such as one with a GPU: there "
    "jax.export.deserialize reads it, and jax compiles it. Outputs are not compared: "
    "the rewrites preserve finite ones, up to rounding."
)
EXAMPLES = """\
examples:
  hloenv export train.py:step -o step.bin
  hloenv export train.py:step -o step.bin --platform cpu
  hloenv export train.py:step -o step.bin --pass sort-forms --policy accept-all
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "function",
        metavar="FILE:FUNCTION",
        help="called without arguments; returns (fn, *args), as for MODULE elsewhere",
    )
    parser.add_argument(
        *("-o", "--output"), metavar="FILE", required=True, help="to write"
    )
    parser.add_argument(
        "--platform",
        default="cuda",
        help="of the other machine, in jax's words: cuda (default), rocm, cpu, tpu",
    )
    parser.add_argument(
        "--policy",
        type=name_of(get_policy),
        metavar="NAME",
        help="the policy (default: gpu-forms for cuda, known-forms for cpu)",
    )
    add_pass(parser, f"{PASS_HELP} (default: those of the default policy)")


def run(args: argparse.Namespace) -> None:
    """Decides `args.function` and writes it."""
    check_output(args.output)
    if not is_function(args.function):
        raise ArgumentError(
            f"{args.function} is not FILE.py:FUNCTION; only functions of jax are "
            "exported: name one that returns (fn, *args)"
        )
    made: Export = load_attribute("hloenv.jax:export")(
        *_function_of(args.function),
        platform=args.platform,
        policy=args.policy,
        passes=parse_passes(args.passes) or None,
    )
    made.save(args.output)
    result = _Result(args.output, args.platform, dict(made.decided.accepted))
    if args.json:
        output.print_json(vars(result))
    else:
        output.print_line(result.text())


def _function_of(source: str) -> tuple[Any, ...]:
    """A function and its arguments."""
    value = value_of(source)
    if isinstance(value, tuple) and value and callable(value[0]):
        return value
    if callable(value):
        return (value,)
    raise ArgumentError(
        f"{source} returns a {type(value).__name__}; it must return (fn, *args)"
    )


@dataclass(frozen=True)
class _Result:
    """What the command prints."""

    path: str
    platform: str
    accepted: dict[str, int]

    def text(self) -> str:
        """For people."""
        rules = ", ".join(f"{rule} {n}" for rule, n in sorted(self.accepted.items()))
        found = f"decided: {rules}" if rules else "no rule applies: it is as jax has it"
        return (
            f"{self.path}: for {self.platform}; {found}\n"
            "there: jax.jit(jax.export.deserialize(bytearray(open("
            f"{self.path!r}, 'rb').read())).call)"
        )
