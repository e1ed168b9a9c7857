# SPDX-License-Identifier: Apache-2.0
"""hloenv train substitution: an agent that substitutes one subgraph at a time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..._registry import load_attribute
from .. import output
from .progress import describe, print_scores, read_report, shown
from .settings import add_run_arguments, config_of

if TYPE_CHECKING:
    from ...learn.substitution_config import SubstitutionConfig

SUMMARY = "train an agent that substitutes one subgraph at a time"
DESCRIPTION = (
    "Trains an agent on hloenv/Substitution-v0: X-RLflow's, which sees whole candidate "
    "graphs, or one whose scorer all candidates share. It imitates greedy searches on "
    "training modules, and then learns by proximal policy optimization. CONFIG is a "
    "TOML file; what it leaves out has a default. At the end, the best agent on the "
    "validation modules is compared with a random one and with greedy search over the "
    "same substitutions, by the estimated cost. The run's folder holds the learning "
    "curve, the best agent and what --resume needs, also after a crash."
)
EXAMPLES = """\
examples:
  hloenv train substitution -o runs/small --small
  hloenv train substitution -o runs/paper --agent xrlflow --seed 3
  hloenv train substitution -o runs/paper --resume
  hloenv train substitution mine.toml -o runs/mine --import rules.py
  tensorboard --logdir runs

a configuration; hloenv.learn.SubstitutionConfig describes all settings:
  agent = "shared"                    # or xrlflow
  estimator = "operators"             # or kernel-cache, or of --import FILE
  train = "hloenv://dataset/train?max_instructions=600"
  passes = ["substitutions", "reassociate", "merge-dots"]  # or of --import FILE
  demonstrations = 80                 # greedy searches that it imitates; 0 for none
  steps = 20000
  [ppo]                               # hloenv.learn.graph_ppo.PPOConfig
  learning_rate = 5e-4
"""
# A run of some minutes.
_SMALL = {
    "train": "hloenv://dataset/train?min_instructions=30&max_instructions=120",
    "validation": "hloenv://dataset/validation?min_instructions=30&max_instructions=120",
    "demonstrations": 40,
    "steps": 512,
    "max_steps": 12,
    "max_candidates": 40,
    "evaluate_every": 256,
    "max_validation": 12,
    "ppo": {"num_steps": 16, "minibatch_size": 32},
}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_run_arguments(parser, steps=20_000, least_steps=0, has_small=True)
    parser.add_argument(
        "--agent",
        choices=("shared", "xrlflow"),
        help="in place of CONFIG's (shared)",
    )


def run(args: argparse.Namespace) -> None:
    """Trains as `args.config` says."""
    config_class: type[SubstitutionConfig] = load_attribute(
        "hloenv.learn.substitution_config:SubstitutionConfig"
    )
    config = config_of(args, config_class, "agent", small=_SMALL)
    train = load_attribute("hloenv.learn.substitution_training:train_substitution")
    with shown(config.total, describe, is_shown=not args.json) as report:
        agent = train(config, args.output, resume=args.resume, report=report)
    scores, num_modules = read_report(args.output, "methods")
    best = Path(args.output) / "best.safetensors"
    if args.json:
        output.print_json(
            {
                "agent": str(best),
                "step": agent.notes["step"],
                "validation": scores,
                "modules": num_modules,
                "config": config.to_dict(),
            }
        )
        return
    output.print_line(
        f"wrote {best}; on {num_modules} validation modules, the estimated "
        f"speed-up by substitution ({config.estimator}, geometric mean) is"
    )
    print_scores(scores)
