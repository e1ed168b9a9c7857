# SPDX-License-Identifier: Apache-2.0
"""The dataset: real modules of public JAX projects, described and split by repository.

    for record in hloenv.dataset.load("train"):
        record.source, record.name, record.instruction_count
        record.module                                   # parsed on access

`extent="real"` selects programs at the sizes of real use; all others are small.

The files are in the package, one Parquet file for each split, which Hugging Face's
`datasets` can read. $HLOENV_DATASET names another folder, as written by
`scripts/build_dataset.py`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from .._optional import needed_by
from .._typing import Array
from ..errors import DatasetError, HloEnvError
from ..hlo.module import HloModule
from ..runtime.random_inputs import random_inputs

SPLITS = ("train", "validation", "test")
# A second test split, of projects added for it; not in "all".
UNSEEN = "unseen"
EXTENTS = ("small", "real")
# All columns except the text, which is read on access.
_COLUMNS = (
    "source",
    "name",
    "fingerprint",
    "family",
    "licence",
    "repository",
    "version",
    "entry",
    "jax_version",
    "split",
    "instruction_count",
    "computation_count",
    "flops",
    "bytes",
    "transcendentals",
    "num_copies",
)
# Number of cached row groups of decompressed texts, for reading in order.
_KEPT_GROUPS = 4


@dataclass(frozen=True)
class InputRange:
    """The range of an integer input when the module was made.

    Attributes:
        parameter: index of the flat input.
        low: smallest value.
        high: largest value.
    """

    parameter: int
    low: int
    high: int


class InputDistribution(NamedTuple):
    """The distribution of a float input that is not standard normal.

    Attributes:
        parameter: index of the flat input.
        distribution: "normal" with mean `location` and standard deviation `scale`, or
            "uniform" from `location` to `location + scale`, as `scipy.stats` has it.
        location: of the distribution.
        scale: of the distribution.
    """

    parameter: int
    distribution: str
    location: float
    scale: float


@dataclass(frozen=True)
class Record:
    """One module of the dataset.

    Attributes:
        source: name of the project in the manifest.
        name: entry file, case and function; unique in its source.
        fingerprint: fingerprint of the module, unique in the dataset.
        family: the field ("language", "vision", "molecular", ...).
        licence: SPDX expression of the project's licence.
        repository: URL of the project.
        version: its version, or the commit.
        entry: the file or command that was run.
        jax_version: version of jax that lowered it.
        split: "train", "validation", "test" or "unseen".
        extent: "real" for a program at the size of real use, "small" for one that only
            has the structure of such a program.
        instruction_count: instructions of all computations.
        computation_count: computations, the entry included.
        flops: by XLA's cost analysis; a loop body counts once.
        bytes: bytes read and written by all instructions.
        transcendentals: exp, log, tanh and the like.
        num_copies: number of equal modules that the builder found, including this one.
        opcode_counts: instructions by opcode.
        input_ranges: for integer inputs whose values matter; others may take any.
        input_distributions: for float inputs whose values matter, such as parameters of
            deep models, variances and positions; others may be standard normal.
    """

    source: str
    name: str
    fingerprint: str
    family: str
    licence: str
    repository: str
    version: str
    entry: str
    jax_version: str
    split: str
    extent: str
    instruction_count: int
    computation_count: int
    flops: float
    bytes: float
    transcendentals: float
    num_copies: int
    opcode_counts: dict[str, int] = field(repr=False)
    input_ranges: tuple[InputRange, ...] = field(repr=False)
    input_distributions: tuple[InputDistribution, ...] = field(repr=False)
    _place: tuple[str, int, int] = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        """The module as HLO text, without metadata."""
        path, group, row = self._place
        return _texts(path, group)[row]

    @property
    def module(self) -> HloModule:
        """The module, parsed on each access."""
        return HloModule.from_text(self.text)

    def inputs(self, *, seed: int = 0) -> list[Array | None]:
        """Draws inputs in the domain of the module, deterministically.

        Integers are within `input_ranges`, floats follow `input_distributions`; all
        other inputs are those of `hloenv.random_inputs`.

        Returns:
            One array for each flat leaf of the parameters, None for tokens.
        """
        arrays = random_inputs(self.module, seed=seed)
        for bounds in self.input_ranges:
            array = arrays[bounds.parameter]
            if array is not None:
                rng = np.random.default_rng([seed, bounds.parameter])
                array[...] = rng.integers(bounds.low, bounds.high + 1, array.shape)
        for each in self.input_distributions:
            array = arrays[each.parameter]
            if array is not None:
                rng = np.random.default_rng([seed, each.parameter])
                drawn = _DRAW[each.distribution](rng, array.shape)
                array[...] = each.location + each.scale * drawn
        return arrays


_DRAW: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Any]] = {
    "normal": lambda rng, shape: rng.standard_normal(shape),
    "uniform": lambda rng, shape: rng.random(shape),
}


class Dataset(Sequence[Record]):
    """Records of one split, or of all, sorted by source and name."""

    def __init__(self, records: Sequence[Record]):
        self._records = tuple(records)

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: int | slice) -> Record | Dataset:
        found = self._records[index]
        return found if isinstance(found, Record) else Dataset(found)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records)

    def find(self, fingerprint: str) -> Record:
        """Returns the record whose fingerprint has this prefix.

        Raises:
            DatasetError: no record has it, or several do.
        """
        found = [r for r in self._records if r.fingerprint.startswith(fingerprint)]
        if len(found) != 1 or not fingerprint:
            raise DatasetError(
                f"{len(found)} modules have a fingerprint that starts with "
                f"{fingerprint!r}; give more digits, or one of `hloenv dataset show`"
            )
        return found[0]

    def select(
        self,
        *,
        source: str | None = None,
        family: str | None = None,
        extent: str | None = None,
        min_instructions: int = 0,
        max_instructions: int | None = None,
    ) -> Dataset:
        """Returns the records that meet all conditions.

        Args:
            source: of this source.
            family: of this family.
            extent: of this extent.
            min_instructions: lower limit of the number of instructions.
            max_instructions: upper limit of the number of instructions.
        """
        top = float("inf") if max_instructions is None else max_instructions
        return Dataset(
            [
                record
                for record in self._records
                if source in (None, record.source)
                and family in (None, record.family)
                and extent in (None, record.extent)
                and min_instructions <= record.instruction_count <= top
            ]
        )

    def __repr__(self) -> str:
        sources = len({record.source for record in self._records})
        return f"<Dataset: {len(self)} modules of {sources} sources>"


def folder() -> Path:
    """Returns the dataset's folder: $HLOENV_DATASET, or that in the package."""
    given = os.environ.get("HLOENV_DATASET")
    return Path(given) if given else Path(__file__).resolve().parent / "files"


def load(
    split: str = "all",
    *,
    extent: str = "small",
    path: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Reads the dataset; the modules' texts are read on access.

    Args:
        split: "train", "validation", "test", "all" for these three, or "unseen" for
            the second test split.
        extent: "small", "real" for the programs at real extents, or "all" for both.
        path: folder of the Parquet files; `folder()` by default.

    Raises:
        DatasetError: unknown split or extent, or the file is missing or not one of the
            dataset.
        ImportError: pyarrow is not installed.
    """
    if split not in (*SPLITS, UNSEEN, "all"):
        known = ", ".join((*SPLITS, UNSEEN))
        raise DatasetError(f"split must be one of {known}, or all, got {split!r}")
    if extent not in (*EXTENTS, "all"):
        raise DatasetError(
            f"extent must be one of {', '.join(EXTENTS)}, or all, got {extent!r}"
        )
    base = folder() if path is None else Path(path)
    names = SPLITS if split == "all" else (split,)
    records = [
        record
        for name in names
        for record in _read(base / f"{name}.parquet")
        if extent in (record.extent, "all")
    ]
    return Dataset(sorted(records, key=lambda each: (each.source, each.name)))


def _parquet() -> Any:
    with needed_by("hloenv.dataset", "pyarrow", "store"):
        import pyarrow.parquet as parquet
    return parquet


def _read(path: Path) -> tuple[Record, ...]:
    _parquet()
    if not path.is_file():
        raise DatasetError(
            f"{path} does not exist; build the dataset with scripts/build_dataset.py "
            "and set HLOENV_DATASET to its folder"
        )
    status = path.stat()
    return _records(path, (status.st_mtime_ns, status.st_size))


# Of all splits, of the dataset and of another.
@functools.lru_cache(maxsize=2 * (len(SPLITS) + 1))
def _records(path: Path, _version: tuple[int, int]) -> tuple[Record, ...]:
    """The records of a file; it is read again when its time or size has changed."""
    return tuple(_read_records(path))


def _read_records(path: Path) -> Iterator[Record]:
    parquet = _parquet()
    lists = ["opcodes", "opcode_counts", "input_ranges"]
    try:
        file = parquet.ParquetFile(path)
        # Files of earlier builders lack these columns and have small programs only.
        newer = {"extent", "input_distributions"} & set(file.schema_arrow.names)
        columns = [*_COLUMNS, *lists, *sorted(newer)]
        groups = [
            file.read_row_group(group, columns=columns).to_pylist()
            for group in range(file.num_row_groups)
        ]
        for group, rows in enumerate(groups):
            for position, row in enumerate(rows):
                yield Record(
                    **{name: row[name] for name in _COLUMNS},
                    extent=row.get("extent") or "small",
                    opcode_counts=dict(
                        zip(row["opcodes"], row["opcode_counts"], strict=True)
                    ),
                    input_ranges=tuple(InputRange(**r) for r in row["input_ranges"]),
                    input_distributions=tuple(
                        InputDistribution(**each)
                        for each in row.get("input_distributions") or ()
                    ),
                    _place=(str(path), group, position),
                )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise DatasetError(f"{path} is not a file of the dataset: {error}") from error


@functools.lru_cache(maxsize=_KEPT_GROUPS)
def _texts(path: str, group: int) -> list[str]:
    table = _parquet().ParquetFile(path).read_row_group(group, columns=["hlo"])
    texts: list[str] = table.column("hlo").to_pylist()
    return texts


def check(record: Record) -> list[str]:
    """Checks a record against its module.

    Returns:
        A sentence for each error.
    """
    try:
        module = record.module
        module.verify()
    except HloEnvError as error:
        return [f"{type(error).__name__}: {error}"]
    found = {
        "fingerprint": module.fingerprint(),
        "instruction_count": module.instruction_count,
        "computation_count": module.computation_count,
        "opcode_counts": module.opcode_counts(),
    }
    problems = [
        f"{name} is {value}, but the record says {getattr(record, name)}"
        for name, value in found.items()
        if value != getattr(record, name)
    ]
    if "metadata={" in record.text:
        problems.append("it has metadata")
    num_inputs = len(module.input_specs())
    problems += [
        f"parameter {each.parameter} of {num_inputs} has a range"
        for each in record.input_ranges
        if not 0 <= each.parameter < num_inputs
    ]
    problems += [
        f"parameter {each.parameter} of {num_inputs} has the distribution "
        f"{each.distribution!r} of scale {each.scale}"
        for each in record.input_distributions
        if not 0 <= each.parameter < num_inputs
        or each.distribution not in _DRAW
        or each.scale < 0
    ]
    return problems
