# SPDX-License-Identifier: Apache-2.0
"""hloenv train cost-model: networks that estimate the run time of a module."""

from __future__ import annotations

import argparse
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from ..._registry import load_attribute
from ...measurement.store import Store
from .. import output
from ..arguments import add_store_file
from .progress import shown
from .settings import add_run_arguments, config_of

if TYPE_CHECKING:
    from ...learn.cost_model.config import CostModelConfig
    from ...learn.cost_model.data import Made
    from ...learn.cost_model.training import Progress

SUMMARY = "train networks that estimate run times"
DESCRIPTION = (
    "Trains a cost model. First it makes the data: variants of modules of the dataset, "
    "by random decisions and rules at positions of XLA's pipeline, and the times of "
    "their kernels; then it trains networks that rank a module's variants. CONFIG is "
    "a TOML file; what it leaves out has a default. Both parts continue where they "
    "were interrupted: the data by themselves, the training with --resume."
)
EXAMPLES = """\
examples:
  hloenv train cost-model -o runs/cost
  hloenv train cost-model cost.toml -o runs/cost --data runs/cost_data --seed 1
  hloenv train cost-model -o runs/cost --resume --steps 5000
  hloenv search model.hlo --estimator learned:runs/cost/best.safetensors
  hloenv search model.hlo \\
      --estimator learned:runs/cost/best.safetensors,measure-above=0.1
  tensorboard --logdir runs

a configuration; hloenv.learn.cost_model.CostModelConfig describes all settings:
  train = "hloenv://dataset/train?max_instructions=500"
  max_modules = 400
  variants = 16                       # of each module
  measured = "store"                  # or "all": also times whole variants
  steps = 3000
  members = 3                         # of the ensemble
"""
_PACKAGE = "hloenv.learn.cost_model"


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_run_arguments(parser, steps=3_000)
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        help="of the data, which several runs may share (default: data in the run's; "
        "with --resume, the run's own)",
    )
    parser.add_argument(
        "--data-only", action="store_true", help="make the data, and train nothing"
    )
    add_store_file(parser, "SQLite file that caches times of kernels")


def run(args: argparse.Namespace) -> None:
    """Makes the data and trains, as `args.config` says."""
    config_class: type[CostModelConfig] = load_attribute(
        f"{_PACKAGE}.config:CostModelConfig"
    )
    config = config_of(args, config_class)
    if not args.data_only:
        config.check_folder(args.output, resume=args.resume)
    data = Path(args.output) / "data" if args.data is None else Path(args.data)
    if args.resume and args.data is None:
        data = load_attribute(f"{_PACKAGE}.training:data_of_run")(args.output)
    errors = _make_data(args, config, data)
    if args.data_only:
        if args.json:
            output.print_json({"data": str(data), "left_out": dict(errors)})
        else:
            output.print_line(f"wrote {data}")
        return
    train = load_attribute(f"{_PACKAGE}.training:train")
    with shown(config.steps, describe, is_shown=not args.json) as report:
        model = train(config, data, args.output, resume=args.resume, report=report)
    best = Path(args.output) / "best.safetensors"
    found = model.notes["validation"]
    if args.json:
        output.print_json(
            {
                "model": str(best),
                "data": str(data),
                "left_out": dict(errors),
                "steps": model.notes["steps"],
                "validation": found,
                "config": config.to_dict(),
            }
        )
        return
    output.print_line(
        f"wrote {best}: after {model.notes['steps']:,} steps, within each of "
        f"{model.notes['validation_modules']} validation modules Kendall's tau is "
        f"{found['kendall']:.2f} and Spearman's rank correlation "
        f"{found['spearman']:.2f} (means)"
    )


def _make_data(
    args: argparse.Namespace, config: CostModelConfig, data: Path
) -> Counter[str]:
    """Returns why modules have no data, with counts."""
    make_data = load_attribute(f"{_PACKAGE}.data:make_data")
    errors: Counter[str] = Counter()
    total = config.max_modules + config.max_validation
    with (
        Store(args.store) as store,
        shown(
            total, describe_data, is_shown=not args.json, unit="modules", what="data"
        ) as report,
    ):

        def note(made: Made) -> None:
            if made.error:
                errors[made.error] += 1
            report(made)

        make_data(config, data, store=store, report=note)
    if errors and not args.json:
        (why, count), *_ = errors.most_common(1)
        output.console(to_stderr=True).print(
            f"{errors.total()} modules have no data; {count} of them: {why}"
        )
    return errors


def describe_data(made: Made) -> str:
    """How far the data are, in one line."""
    return f"{made.kernels:,} kernels timed"


def describe(progress: Progress) -> str:
    """The figures of a training run, in one line."""
    rate = progress.step / progress.seconds if progress.seconds > 0 else math.nan
    return (
        f"loss {progress.loss:.3f}, tau {progress.kendall:.3f} "
        f"(best {progress.best_kendall:.3f}), Spearman {progress.spearman:.3f}, "
        f"{rate:,.1f} steps/s"
    )
