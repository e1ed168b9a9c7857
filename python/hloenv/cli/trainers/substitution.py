# SPDX-License-Identifier: Apache-2.0
"""hloenv train substitution: an agent that substitutes one subgraph at a time."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..._registry import load_attribute
from ...errors import ArgumentError
from .. import output
from ..numbers import add_count
from .progress import shown

if TYPE_CHECKING:
    from ...learn.substitution_config import SubstitutionConfig
    from ...learn.substitution_training import SubstitutionProgress

SUMMARY = "train an agent that substitutes one subgraph at a time"
DESCRIPTION = (
    "Trains an agent on hloenv/Substitution-v0 by proximal policy optimization: "
    "X-RLflow's, which sees whole candidate graphs, or one whose scorer all candidates "
    "share. CONFIG is a TOML file; what it leaves out has a default. At the end, the "
    "best agent on the validation modules is compared with a random one and with "
    "greedy search over the same substitutions, by the estimated cost. The run's "
    "folder holds the learning curve, the best agent and what --resume needs, also "
    "after a crash."
)
EXAMPLES = """\
examples:
  hloenv train substitution -o runs/small --small
  hloenv train substitution -o runs/paper --agent xrlflow --seed 3
  hloenv train substitution -o runs/paper --resume
  tensorboard --logdir runs

a configuration; hloenv.learn.SubstitutionConfig describes all settings:
  agent = "shared"                    # or xrlflow
  estimator = "operators"             # or kernel-cache, or your own my.py:Model
  train = "hloenv://dataset/train?max_instructions=600"
  steps = 20000
  [ppo]                               # hloenv.learn.graph_ppo.PPOConfig
  learning_rate = 5e-4
"""
# A run of some minutes.
_SMALL = {
    "train": "hloenv://dataset/train?min_instructions=30&max_instructions=120",
    "validation": "hloenv://dataset/validation?min_instructions=30&max_instructions=120",
    "steps": 512,
    "max_steps": 12,
    "max_candidates": 40,
    "evaluate_every": 256,
    "max_validation": 12,
    "ppo": {"num_steps": 16, "minibatch_size": 32},
}


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "config", metavar="CONFIG", nargs="?", help="a TOML file (default: no settings)"
    )
    parser.add_argument(
        *("-o", "--output"),
        metavar="FOLDER",
        required=True,
        help="of the run; made if it does not exist",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in the folder, without CONFIG or with the same",
    )
    parser.add_argument(
        "--small",
        action="store_true",
        help="a run of some minutes on small modules, without CONFIG",
    )
    parser.add_argument(
        "--agent",
        choices=("shared", "xrlflow"),
        help="in place of CONFIG's (shared)",
    )
    add_count(parser, "--seed", "in place of CONFIG's (0)", least=0)
    add_count(parser, "--steps", "of PPO, in place of CONFIG's (20,000)")


def run(args: argparse.Namespace) -> None:
    """Trains as `args.config` says."""
    config = _config(args)
    train = load_attribute("hloenv.learn.substitution_training:train_substitution")
    with shown(config.steps, describe, is_shown=not args.json) as report:
        agent = train(config, args.output, resume=args.resume, report=report)
    folder = Path(args.output)
    found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    scores = {name: row["speedup"] for name, row in found["methods"].items()}
    best = folder / "best.safetensors"
    if args.json:
        output.print_json(
            {
                "agent": str(best),
                "step": agent.notes["step"],
                "validation": scores,
                "modules": len(found["modules"]),
                "config": config.to_dict(),
            }
        )
        return
    output.print_line(
        f"wrote {best}; on {len(found['modules'])} validation modules, the estimated "
        f"speed-up by substitution ({config.estimator}, geometric mean) is"
    )
    for name, score in sorted(scores.items(), key=lambda item: -item[1]):
        output.print_line(f"  {name:16s} {score:.3f}")


def _config(args: argparse.Namespace) -> SubstitutionConfig:
    config_class: type[SubstitutionConfig] = load_attribute(
        "hloenv.learn.substitution_config:SubstitutionConfig"
    )
    if args.small and (args.config is not None or args.resume):
        raise ArgumentError("--small is a configuration: leave CONFIG and --resume out")
    if args.config is not None:
        config = config_class.read(args.config)
    elif args.resume:
        config_of = "hloenv.learn.substitution_training:substitution_config_of"
        config = load_attribute(config_of)(args.output)
    else:
        config = config_class.from_dict(_SMALL if args.small else {})
    given = {"seed": args.seed, "steps": args.steps, "agent": args.agent}
    changes = {key: value for key, value in given.items() if value is not None}
    return dataclasses.replace(config, **changes)


def describe(progress: SubstitutionProgress) -> str:
    """The figures of a training run, in one line."""
    figures = (
        ("return", progress.episode_return, ".3f"),
        ("entropy", progress.entropy, ".2f"),
        ("speed-up", progress.score, ".3f"),
        ("best", progress.best_score, ".3f"),
    )
    return ", ".join(
        f"{name} {value:{form}}"
        for name, value, form in figures
        if not math.isnan(value)
    )
