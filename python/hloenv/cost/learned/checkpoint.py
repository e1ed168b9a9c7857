# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the learned cost model.

One safetensors file: the weights with the normalisation, and JSON with the shape of the
networks, the features' version and notes on the training. Reading it executes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._checkpoints import (
    check_finite,
    damage_as,
    read_checkpoint,
    write_checkpoint,
)
from ..._optional import needed_by
from ..._version import __version__
from ...errors import HloEnvError

if TYPE_CHECKING:
    from .network import Ensemble

_FORMAT = 1
_KEY = "hloenv.cost"
# Of a network that a checkpoint may ask for.
_LIMITS = {"members": 64, "width": 1024, "rounds": 32}
DEFAULT_CHECKPOINT = Path(__file__).with_name("cost_model.safetensors")


class CostCheckpointError(HloEnvError, ValueError):
    """A checkpoint of a cost model cannot be read, or is for other features."""


@dataclass(frozen=True)
class CostModel:
    """Networks, and what is known of their training.

    Attributes:
        ensemble: the networks.
        notes: of the training: "steps", "threads", "validation" figures, "config",
            "data" with the machine, and the learning "curve".
    """

    ensemble: Ensemble
    notes: dict[str, Any]

    @property
    def threads(self) -> int:
        """Cores that the kernels of the training data were timed on."""
        return int(self.notes.get("threads", 1))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a checkpoint; the file is replaced once it is complete.

        Raises:
            OSError: it cannot be written.
        """
        from .features import feature_digest

        described = {
            **self.notes,
            "format": _FORMAT,
            "version": __version__,
            "features": feature_digest(),
            "shape": self.ensemble.shape.to_json(),
        }
        write_checkpoint(path, _KEY, described, self.ensemble.state_dict())


def load_cost_model(
    path: str | os.PathLike[str] = DEFAULT_CHECKPOINT, *, device: str = "cpu"
) -> CostModel:
    """Reads a checkpoint; by default, the one in the package.

    Args:
        path: of the file.
        device: of torch, for the networks.

    Raises:
        FileNotFoundError: there is none.
        CostCheckpointError: it is damaged, of another format, or for features of
            another version of hloenv or of XLA; or a weight is not finite.
        ImportError: torch, torch-geometric or safetensors is not installed.
    """
    with needed_by("the learned cost model", "torch and torch-geometric", "learn"):
        from .features import feature_digest
        from .network import Ensemble, Shape
    message = f"{path} is no checkpoint of a cost model"
    with damage_as(CostCheckpointError, message):
        described, weights = read_checkpoint(
            path, _KEY, maker="hloenv train cost-model"
        )
        if described["format"] != _FORMAT:
            raise CostCheckpointError(
                f"{path}: format {described['format']}, this version reads {_FORMAT}"
            )
        if described["features"] != feature_digest():
            raise CostCheckpointError(
                f"{path}: its features {described['features']} are not those of this "
                f"version of hloenv and XLA, {feature_digest()}; train it again: "
                "hloenv train cost-model"
            )
        shape = Shape(**described["shape"])
        _check_shape(shape)
        ensemble = Ensemble(shape)
        ensemble.load_state_dict(weights)
        check_finite(weights)
    ensemble.to(device).eval()
    kept = {k: v for k, v in described.items() if k not in ("format", "shape")}
    return CostModel(ensemble, kept)


def _check_shape(shape: Any) -> None:
    """Refuses sizes that no training makes, before memory is taken for them."""
    for name, limit in _LIMITS.items():
        value = getattr(shape, name)
        if not (isinstance(value, int) and 1 <= value <= limit):
            raise ValueError(
                f"{name} must be an integer from 1 to {limit}, got {value!r}"
            )
    if not 0 <= shape.dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {shape.dropout}")
    if shape.width % 4:
        raise ValueError(f"width must be a multiple of 4, got {shape.width}")
