# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: one safetensors file of weights, with JSON that describes them.

Reading one executes nothing that is in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ._files import replacing
from ._optional import needed_by
from ._text import shortened
from .errors import HloEnvError

_MAX_CAUSE = 300


def write_checkpoint(
    path: str | os.PathLike[str],
    key: str,
    described: dict[str, Any],
    tensors: Mapping[str, Any],
) -> None:
    """Writes a checkpoint; the file is replaced once it is complete.

    Args:
        path: of the file.
        key: of the description in the file's metadata.
        described: as JSON can hold it.
        tensors: of torch, by name.

    Raises:
        OSError: it cannot be written.
    """
    with needed_by("a checkpoint", "safetensors", "learn"):
        from safetensors.torch import save
    kept = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in tensors.items()
    }
    data = save(kept, metadata={key: json.dumps(described)})
    with replacing(Path(path)) as draft:
        draft.write_bytes(data)


def read_checkpoint(
    path: str | os.PathLike[str], key: str, *, maker: str = "hloenv train"
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The description and the tensors; call it in `damage_as`.

    Args:
        path: of the file.
        key: of the description in the file's metadata.
        maker: the command that makes such files.

    Raises:
        FileNotFoundError: there is none.
    """
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}; `{maker}` makes one")
    if Path(path).is_dir():
        raise IsADirectoryError(
            "it is a folder; give a file, such as best.safetensors in the folder of a "
            "run"
        )
    with needed_by("a checkpoint", "safetensors", "learn"):
        from safetensors import safe_open
    with safe_open(os.fspath(path), framework="pt") as file:
        described = json.loads((file.metadata() or {})[key])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return described, tensors


def check_finite(tensors: Mapping[str, Any]) -> None:
    """Raises a ValueError where a weight is NaN or infinite."""
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"a weight is not finite: {name} holds NaN or infinity")


@contextmanager
def damage_as(error: type[HloEnvError], message: str) -> Iterator[None]:
    """Raises whatever a damaged file leads to as one error: "MESSAGE: why".

    FileNotFoundError, ImportError and `error` itself stay as they are.
    """
    with needed_by("a checkpoint", "safetensors", "learn"):
        from safetensors import SafetensorError
    try:
        yield
    except (FileNotFoundError, error):
        raise
    except (
        *(SafetensorError, HloEnvError, AttributeError, LookupError, OSError),
        *(RuntimeError, TypeError, ValueError),
    ) as damage:
        raise error(f"{message}: {_cause(damage)}") from None


def _cause(damage: Exception) -> str:
    if isinstance(damage, KeyError):
        return f"it lacks {damage}"
    text, _, rest = str(damage).strip().partition("\n")
    if text.endswith(":"):  # torch names the weights below
        text += rest.partition("\n")[0]
    return shortened(text, _MAX_CAUSE)
