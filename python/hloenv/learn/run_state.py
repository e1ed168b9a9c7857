# SPDX-License-Identifier: Apache-2.0
"""The state of a PPO run as one safetensors file, which executes nothing when read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from .._checkpoints import damage_as, read_checkpoint, write_checkpoint
from .agent import CheckpointError
from .graph_ppo import GraphPPO, Moments

_KEY = "hloenv"


def save(path: Path, ppo: GraphPPO, counters: dict[str, Any]) -> None:
    """Writes network, optimizer, random numbers and counters.

    Args:
        path: replaced once the file is complete.
        ppo: the run.
        counters: what else is to be kept, as JSON can hold it.
    """
    tensors = {f"network.{k}": v for k, v in ppo.network.state_dict().items()}
    for number, state in ppo.optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{number}.{k}": v for k, v in state.items()}
    tensors["generator"] = ppo.generator.get_state()
    described = {
        "step": ppo.step,
        "counters": counters,
        "moments": asdict(ppo.moments),
    }
    write_checkpoint(path, _KEY, described, tensors)


def load(path: Path, ppo: GraphPPO) -> dict[str, Any]:
    """Restores what `save` wrote, into a run of the same configuration.

    Returns:
        The counters.

    Raises:
        CheckpointError: the file is damaged, of another network, or of an earlier
            version.
    """
    with damage_as(CheckpointError, f"{path} cannot be resumed"):
        described, tensors = read_checkpoint(path, _KEY)
        if "moments" not in described:
            raise CheckpointError(
                f"{path} is of an earlier version, which did not normalize rewards; "
                "begin a new run"
            )
        network = _below(tensors, "network.")
        ppo.network.load_state_dict(network)
        states: dict[int, dict[str, torch.Tensor]] = {}
        for name, tensor in _below(tensors, "optimizer.").items():
            number, _, key = name.partition(".")
            states.setdefault(int(number), {})[key] = tensor
        groups = ppo.optimizer.state_dict()["param_groups"]
        ppo.optimizer.load_state_dict({"state": states, "param_groups": groups})
        ppo.generator.set_state(tensors["generator"])
        ppo.step = int(described["step"])
        ppo.moments = Moments(**described["moments"])
        counters: dict[str, Any] = described["counters"]
    return counters


def _below(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {
        name.removeprefix(prefix): tensor
        for name, tensor in tensors.items()
        if name.startswith(prefix)
    }
