# SPDX-License-Identifier: Apache-2.0
"""hloenv train rewrite: a graph network that accepts or rejects rewrites."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..._registry import load_attribute
from .. import output
from ..numbers import add_count
from .progress import describe, print_scores, read_report, shown
from .settings import add_run_arguments, config_of

if TYPE_CHECKING:
    from ...learn.rewrite_config import RewriteConfig

SUMMARY = "train a graph network that accepts or rejects rewrites"
DESCRIPTION = (
    "Trains a graph network that decides on rewrites before the module is measured. It "
    "imitates the best decisions of searches on training modules, and then learns by "
    "proximal policy optimization. CONFIG is a TOML file; what it leaves out has a "
    "default. At the end, the best policy on the validation modules is compared with "
    "XLA's default, random decisions and fixed rules, by the estimated time. The run's "
    "folder holds the learning curve, the best policy and what --resume needs, also "
    "after a crash."
)
EXAMPLES = """\
examples:
  hloenv train rewrite -o runs/small --small
  hloenv train rewrite rewrite.toml -o runs/rewrite --seed 3
  hloenv train rewrite -o runs/rewrite --resume
  hloenv optimize model.hlo --policy gnn:runs/rewrite/best.safetensors --measure
  tensorboard --logdir runs

a configuration; hloenv.learn.RewriteConfig describes all settings:
  mode = "all"                        # or one: one alternative in each step
  space = "forms-to-fusion"           # what is decided where; hloenv.search.SPACES
  estimator = "roofline"              # or kernel-cache, or of --import FILE
  train = "hloenv://dataset/train?max_instructions=600"
  demonstrations = 400
  steps = 20000
  [ppo]                               # hloenv.learn.graph_ppo.PPOConfig
  learning_rate = 3e-4
"""
# A run of some minutes.
_SMALL = {
    "train": "hloenv://dataset/train?min_instructions=40&max_instructions=120",
    "validation": "hloenv://dataset/validation?min_instructions=40&max_instructions=120",
    "demonstrations": 80,
    "estimates": 40,
    "imitation_epochs": 40,
    "steps": 128,
    "evaluate_every": 64,
    "num_envs": 4,
    "max_validation": 24,
    "ppo": {"num_steps": 8, "minibatch_size": 32, "learning_rate": 1e-4},
}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_run_arguments(parser, steps=20_000, least_steps=0, has_small=True)
    add_count(parser, "--workers", "child processes that search, in place of CONFIG's")


def run(args: argparse.Namespace) -> None:
    """Trains as `args.config` says."""
    config_class: type[RewriteConfig] = load_attribute(
        "hloenv.learn.rewrite_config:RewriteConfig"
    )
    config = config_of(args, config_class, "workers", small=_SMALL)
    train = load_attribute("hloenv.learn.rewrite_training:train_rewrite")
    with shown(config.total, describe, is_shown=not args.json) as report:
        model = train(config, args.output, resume=args.resume, report=report)
    scores, num_modules = read_report(args.output, "policies")
    best = Path(args.output) / "best.safetensors"
    if args.json:
        output.print_json(
            {
                "policy": str(best),
                "step": model.notes["step"],
                "validation": {"xla": 1.0} | scores,
                "modules": num_modules,
                "config": config.to_dict(),
            }
        )
        return
    output.print_line(
        f"wrote {best}; on {num_modules} validation modules, the estimated "
        f"speed-up over XLA's default ({config.estimator}, geometric mean) is"
    )
    print_scores(scores)
