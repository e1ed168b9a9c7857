# SPDX-License-Identifier: Apache-2.0
"""hloenv train pass-order: an agent that orders XLA's passes."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from ..._registry import load_attribute
from .. import output
from .progress import shown
from .settings import add_run_arguments, config_of

if TYPE_CHECKING:
    from ...learn.config import TrainConfig
    from ...learn.training import Progress

SUMMARY = "train an agent that orders passes"
DESCRIPTION = (
    "Trains an agent that orders XLA's passes. CONFIG is a TOML file; what it leaves "
    "out has a default. The run's folder holds the learning curve, the best agent and "
    "what --resume needs, also after a crash."
)
EXAMPLES = """\
examples:
  hloenv train pass-order -o runs/first --steps 20000
  hloenv train pass-order agent.toml -o runs/agent --seed 3
  hloenv train pass-order -o runs/agent --resume
  hloenv optimize model.hlo --policy pass-order:runs/agent/best.safetensors
  tensorboard --logdir runs

a configuration; hloenv.learn.TrainConfig describes all settings:
  algorithm = "maskable-ppo"          # or a2c, dqn, ppo, trpo
  train = "hloenv://all/train?max_instructions=1500"
  observation = "op_counts_normalized+pass_counts"
  reward = "op_count_improved"
  steps = 100000
  [arguments]                         # of the algorithm in Stable-Baselines3
  learning_rate = 3e-4
"""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_run_arguments(parser, steps=100_000)


def run(args: argparse.Namespace) -> None:
    """Trains as `args.config` says."""
    config_class: type[TrainConfig] = load_attribute("hloenv.learn.config:TrainConfig")
    config = config_of(args, config_class)
    train = load_attribute("hloenv.learn.training:train")
    with shown(config.steps, describe, is_shown=not args.json) as report:
        agent = train(config, args.output, resume=args.resume, report=report)
    best = Path(args.output) / "best.safetensors"
    if args.json:
        output.print_json(
            {
                "agent": str(best),
                "steps": agent.notes["steps"],
                "validation_score": agent.notes["validation_score"],
                "config": config.to_dict(),
            }
        )
        return
    output.print_line(
        f"wrote {best}: after {agent.notes['steps']:,} steps, the agent leaves "
        f"{agent.notes['validation_score']:.1%} of what {config.reward} decreases, on "
        "the validation modules (geometric mean)"
    )


def describe(progress: Progress) -> str:
    """The figures of a training run, in one line."""
    rate = progress.step / progress.seconds if progress.seconds > 0 else math.nan
    return (
        f"return {progress.episode_return:.3f}, entropy {progress.entropy:.2f}, "
        f"left {progress.score:.1%} (best {progress.best_score:.1%}), "
        f"{rate:,.0f} steps/s"
    )
