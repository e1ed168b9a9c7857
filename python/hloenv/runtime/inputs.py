# SPDX-License-Identifier: Apache-2.0
"""Inputs for a module, from files or arrays."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._optional import needed_by
from ..errors import ArgumentError

if TYPE_CHECKING:
    from ..hlo.module import HloModule


def as_inputs(
    inputs: Sequence[Any] | str | os.PathLike[str] | None, module: HloModule
) -> list[Any] | None:
    """Checks the inputs of a module; reads them if a path is given.

    Args:
        inputs: one array for each flat leaf of the parameters, anything with
            `__array__`, None for tokens; a path for `load_inputs`; or None.
        module: the module that takes them.

    Raises:
        ArgumentError: a wrong number of arrays, or wrong shapes or types.
    """
    if inputs is None:
        return None
    if isinstance(inputs, (str, os.PathLike)):
        inputs = load_inputs(inputs)
    specs = module.input_specs()
    if len(inputs) != len(specs):
        raise ArgumentError(
            f"got {len(inputs)} inputs; the module takes {len(specs)}; give one array "
            "for each flat leaf of its parameters"
        )
    arrays: list[Any] = []
    for index, (value, spec) in enumerate(zip(inputs, specs, strict=True)):
        if spec.hlo_dtype == "token":
            arrays.append(None)
            continue
        array = np.asarray(value)
        if array.shape != spec.shape or array.dtype != spec.dtype:
            raise ArgumentError(
                f"input {index} is {array.dtype}{list(array.shape)}, but the module "
                f"takes {spec.dtype}{list(spec.shape)}; convert it first"
            )
        arrays.append(array)
    return arrays


def load_inputs(path: str | os.PathLike[str]) -> list[Any]:
    """Reads the inputs of a module from a .npz or .safetensors file.

    The arrays' names end with their positions among the flat leaves of the parameters:
    "0", "1", ... or "arr_0", "arr_1", ..., as `numpy.savez(path, *arrays)` writes them.

    Raises:
        ArgumentError: the file has another format, or the names give no order.
        ImportError: a .safetensors file without the package safetensors.
        OSError: the file cannot be read.
    """
    path = Path(path)
    if path.suffix == ".npz":
        try:
            with np.load(path, allow_pickle=False) as archive:
                return _in_order({name: archive[name] for name in archive}, path)
        except (ValueError, zipfile.BadZipFile) as error:
            raise ArgumentError(f"{path} is not a .npz file: {error}") from None
    if path.suffix == ".safetensors":
        with needed_by(f"reading {path}", "safetensors", "store"):
            import safetensors
            import safetensors.numpy
        try:
            return _in_order(safetensors.numpy.load_file(path), path)
        except safetensors.SafetensorError as error:
            raise ArgumentError(f"{path} is not a .safetensors file: {error}") from None
    raise ArgumentError(
        f"inputs must be a .npz or .safetensors file, got {path}; save arrays with "
        "numpy.savez(path, *arrays)"
    )


def _in_order(arrays: Mapping[str, Any], path: Path) -> list[Any]:
    positions = {name: re.search(r"(\d+)$", name) for name in arrays}
    numbers = {
        name: int(match.group(1))
        for name, match in positions.items()
        if match is not None
    }
    if sorted(numbers.values()) != list(range(len(arrays))):
        raise ArgumentError(
            f"the names in {path} are {', '.join(sorted(arrays)[:6])}; they must end "
            f"with the numbers 0 to {len(arrays) - 1}; save arrays with "
            "numpy.savez(path, *arrays)"
        )
    return [arrays[name] for name in sorted(arrays, key=lambda name: numbers[name])]
