# SPDX-License-Identifier: Apache-2.0
"""What training runs begin with: their modules, their device, their curves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from ..dataset.benchmarks import find_benchmarks
from ..errors import ArgumentError
from .ppo_config import PPOConfig
from .tensorboard import open_writer

Module = TypeVar("Module")


def drawn(uri: str, count: int, *, seed: int) -> list[str]:
    """Some of the modules of a URI, at random, in the order of the dataset."""
    found = find_benchmarks(uri)
    chosen = np.random.default_rng(seed).permutation(len(found))[:count]
    return [found[i].uri for i in sorted(chosen)]


def halves(modules: Sequence[Module]) -> tuple[list[Module], list[Module]]:
    """Modules that choose the best checkpoint, and those that it is reported on.

    The best of many checkpoints is partly the luckiest on the modules that chose it. A
    single module is both.
    """
    return list(modules[::2]), list(modules[1::2] or modules)


def device_of(name: str) -> torch.device:
    """The device "cpu", "cuda", or "auto" for the GPU if there is one.

    Raises:
        ArgumentError: there is no GPU.
    """
    has_gpu = torch.cuda.is_available()
    if name == "cuda" and not has_gpu:
        raise ArgumentError("device is cuda, but torch sees no GPU; use auto or cpu")
    return torch.device("cuda" if has_gpu and name != "cpu" else "cpu")


def writer_in(folder: Path, stack: ExitStack) -> Any:
    """TensorBoard's writer, closed by the stack; None without TensorBoard."""
    writer = open_writer(folder)
    if writer is not None:
        stack.callback(writer.close)
    return writer


def ppo_config_of(settings: dict[str, Any]) -> PPOConfig:
    """The settings of PPO, in place of its defaults.

    Raises:
        ArgumentError: an unknown name.
    """
    known = PPOConfig.__dataclass_fields__
    if unknown := set(settings) - set(known):
        raise ArgumentError(
            f"ppo has no setting {sorted(unknown)[0]!r}; it has {', '.join(known)}"
        )
    return PPOConfig(**settings)
