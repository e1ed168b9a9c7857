# SPDX-License-Identifier: Apache-2.0
"""The files of a cost model's data: settings, and variants of each module.

A folder has `data.json`, the settings; and for each split a folder with one `.npz` for
each module, by the module's fingerprint. The kernels are there as HLO, so that the data
outlives the features.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..._files import replacing
from ...errors import ArgumentError, DatasetError

FORMAT = 1
SETTINGS = "data.json"
_TEXTS = ("uri", "source", "split")
_LISTS = ("fingerprints", "spaces")
_ARRAYS = {
    "kernel_s": np.float64,
    "variant_offsets": np.int64,
    "use_kernel": np.int64,
    "use_runs": np.float64,
    "overhead_s": np.float64,
    "roofline_s": np.float64,
    "measured": np.float64,
}


@dataclass(frozen=True)
class Shard:
    """Variants of one module. K kernels of all variants, V variants, T uses.

    Attributes:
        uri: of the module.
        source: its repository, as the dataset names it.
        split: "train" or "validation".
        modules: in which the kernels lie, one after the other; see
            `KernelSplit.extract`.
        fingerprints: [K] of the kernels.
        kernel_s: [K] float64 seconds of one run; NaN where it could not be timed.
        variant_offsets: [V + 1] int64 offsets into the uses.
        use_kernel: [T] int64 kernels of each variant.
        use_runs: [T] float64 runs of each in one run of the variant.
        overhead_s: [V] float64 seconds of a variant besides its kernels.
        roofline_s: [V] float64 estimate of the roofline.
        measured: [V] float64 measured time over that of XLA's default, NaN if unknown.
        spaces: [V] where the decisions of each variant were made.
    """

    uri: str
    source: str
    split: str
    modules: tuple[bytes, ...]
    fingerprints: tuple[str, ...]
    kernel_s: npt.NDArray[np.float64]
    variant_offsets: npt.NDArray[np.int64]
    use_kernel: npt.NDArray[np.int64]
    use_runs: npt.NDArray[np.float64]
    overhead_s: npt.NDArray[np.float64]
    roofline_s: npt.NDArray[np.float64]
    measured: npt.NDArray[np.float64]
    spaces: tuple[str, ...]

    @property
    def num_variants(self) -> int:
        """V."""
        return len(self.overhead_s)

    @property
    def use_variant(self) -> npt.NDArray[np.int64]:
        """[T] variant of each use."""
        return np.repeat(np.arange(self.num_variants), np.diff(self.variant_offsets))

    def total_s(self, kernel_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """[V] seconds of each variant on one core, from [K] those of the kernels."""
        used = self.use_runs * kernel_s[self.use_kernel]
        summed = np.bincount(self.use_variant, used, minlength=self.num_variants)
        total: npt.NDArray[np.float64] = summed + self.overhead_s
        return total


def write_shard(path: Path, shard: Shard) -> None:
    """Writes the file of one module; it is complete, or not there."""
    texts = {name: getattr(shard, name) for name in (*_TEXTS, *_LISTS)}
    arrays = {name: getattr(shard, name) for name in _ARRAYS}
    described = json.dumps({"format": FORMAT, **texts}).encode()
    with replacing(path) as draft, draft.open("wb") as file:
        np.savez_compressed(
            file,
            described=np.frombuffer(described, np.uint8),
            modules=np.frombuffer(b"".join(shard.modules), np.uint8),
            module_sizes=np.array([len(each) for each in shard.modules], np.int64),
            **arrays,
        )


def read_shard(path: str | os.PathLike[str]) -> Shard:
    """Reads the file of one module; nothing in it is executed.

    Raises:
        FileNotFoundError: there is none.
        DatasetError: it is damaged, or of another version.
    """
    try:
        # np.load alone leaves a file open that is no archive.
        with (
            Path(path).open("rb") as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            described = json.loads(file["described"].tobytes())
            if described.pop("format") != FORMAT:
                raise DatasetError(f"{path} is of another version; make the data again")
            for name in _LISTS:
                described[name] = tuple(described[name])
            ends = np.cumsum(file["module_sizes"]).tolist()
            data = file["modules"].tobytes()
            arrays = {name: file[name] for name in _ARRAYS}
        modules = [data[i:j] for i, j in zip([0, *ends], ends, strict=False)]
        shard = Shard(modules=tuple(modules), **described, **arrays)
        _check(shard)
    except (FileNotFoundError, DatasetError):
        raise
    except Exception as error:  # zipfile, zlib, numpy and json have no common root
        raise DatasetError(
            f"{path} is no file of training data: {error}; remove it, and it is made "
            "again"
        ) from None
    return shard


def _check(shard: Shard) -> None:
    """Raises a ValueError where the arrays do not fit each other."""
    for name, dtype in _ARRAYS.items():
        array = getattr(shard, name)
        if array.ndim != 1 or array.dtype != dtype:
            raise ValueError(f"{name} is {array.dtype} {list(array.shape)}")
    sizes = {len(shard.roofline_s), len(shard.measured), len(shard.spaces)}
    offsets, kernels = shard.variant_offsets, len(shard.kernel_s)
    is_right = (
        sizes == {shard.num_variants}
        and len(shard.fingerprints) == kernels
        and len(offsets) == shard.num_variants + 1
        and offsets[0] == 0
        and bool(np.all(np.diff(offsets) >= 0))
        and offsets[-1] == len(shard.use_kernel) == len(shard.use_runs)
        and bool(np.all((shard.use_kernel >= 0) & (shard.use_kernel < kernels)))
    )
    if not is_right:
        raise ValueError("its arrays do not fit each other")


def read_settings(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The settings of the data in a folder, and the machine that they are of.

    Raises:
        ArgumentError: there are none, or the file is damaged.
    """
    try:
        return read_json(Path(folder) / SETTINGS)
    except FileNotFoundError:
        raise ArgumentError(
            f"{folder} has no data of train; `hloenv train cost-model` makes them"
        ) from None


def read_data(
    folder: str | os.PathLike[str],
    split: str,
    fingerprints: Collection[str] | None = None,
) -> list[Shard]:
    """The data of a split, in the order of their files.

    Args:
        folder: that `make_data` wrote.
        split: "train" or "validation".
        fingerprints: of the modules; by default all, also those that another
            configuration drew into the same folder.

    Raises:
        ArgumentError: there are none.
        DatasetError: a file is damaged.
    """
    paths = sorted((Path(folder) / split).glob("[!.]*.npz"))
    if fingerprints is not None:
        paths = [path for path in paths if path.stem in fingerprints]
    if not paths:
        raise ArgumentError(
            f"{folder} has no data of {split}; `hloenv train cost-model` makes them"
        )
    return [read_shard(path) for path in paths]


def write_json(path: Path, value: Any) -> None:
    """Writes a file of a folder of data; it is complete, or as it was."""
    with replacing(path) as draft:
        draft.write_text(json.dumps(value, indent=1))


def read_json(path: Path) -> dict[str, Any]:
    """Reads the object in such a file.

    Raises:
        ArgumentError: the file is damaged.
        FileNotFoundError: there is none.
    """
    try:
        found: Any = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ArgumentError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict):
        raise ArgumentError(f"{path} is damaged: it holds no JSON object")
    return dict(found)
