# SPDX-License-Identifier: Apache-2.0
"""hloenv train: trains what decides or estimates, and shows how it comes on."""

from __future__ import annotations

import argparse
import importlib
import textwrap

from .arguments import add_action
from .trainers import KINDS

DESCRIPTION = (
    "Trains a model of the KIND. `hloenv train KIND --help` describes its arguments. "
    "A run's folder holds the learning curve, the best model and what --resume needs, "
    "also after a crash."
)
EXAMPLES = """\
examples:
  hloenv train pass-order -o runs/first --steps 20000
  hloenv train pass-order -o runs/first --resume
  hloenv train pass-order --help
  tensorboard --logdir runs
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments of each kind."""
    kinds = parser.add_subparsers(metavar="KIND", dest="kind", required=True)
    for name in KINDS:
        file = importlib.import_module(
            f".trainers.{name.replace('-', '_')}", "hloenv.cli"
        )
        kind = add_action(kinds, name, file.SUMMARY)
        kind.description = textwrap.fill(file.DESCRIPTION, 80)
        kind.epilog = file.EXAMPLES
        kind.formatter_class = argparse.RawDescriptionHelpFormatter
        kind.add_argument(
            "--import",
            dest="imports",
            metavar="FILE",
            action="append",
            default=argparse.SUPPRESS,
            help="import this Python file first; may be repeated",
        )
        file.add_parser(kind)
        kind.set_defaults(train=file.run)


def run(args: argparse.Namespace) -> None:
    """Trains as the kind says."""
    args.train(args)
