# SPDX-License-Identifier: Apache-2.0
"""hloenv train: trains a policy or a cost model, and shows the progress."""

from __future__ import annotations

import argparse
import importlib
import textwrap
from pathlib import Path

from .._charts import draw
from .._files import check_folder
from ..explorer.charts import training_charts
from ..learn.curve import CURVE, read_curve
from . import output
from .arguments import add_action
from .trainers import KINDS

DESCRIPTION = (
    "Trains a model of the KIND. `hloenv train KIND --help` describes its arguments. "
    "A run's folder holds the learning curve (curve.csv, and drawn at the end: "
    "curve.png), the best model and what --resume needs, also after a crash."
)
EXAMPLES = """\
examples:
  hloenv train pass-order -o runs/first --steps 20000
  hloenv train pass-order -o runs/first --resume
  hloenv train cost-model -o runs/cost
  hloenv train pass-order --help
  hloenv explore runs/first                      # the curve, also during the run
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
    """Trains as the kind says, and draws the curve, after Ctrl-C too."""
    check_folder(Path(args.output))
    try:
        args.train(args)
    except KeyboardInterrupt:
        _draw(args, is_shown=False)
        raise
    _draw(args, is_shown=not args.json)


def _draw(args: argparse.Namespace, *, is_shown: bool) -> None:
    """Draws curve.csv of the run, if it has one, as curve.png."""
    path = Path(args.output) / CURVE
    if not path.exists():  # --data-only, or ended before the first evaluation
        return
    charts = training_charts(read_curve(path))
    picture = path.with_suffix(".png")
    try:
        title = f"hloenv train {args.kind}: {args.output}"
        is_drawn = draw(charts, picture, title=title)
    except ImportError as error:
        if is_shown:
            output.print_line(f"no {picture.name}: {error}")
        return
    if is_shown and is_drawn:
        output.print_line(f"wrote {picture}")
