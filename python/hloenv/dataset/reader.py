# SPDX-License-Identifier: Apache-2.0
"""The dataset: real modules of public JAX projects, described and split by repository.

    for record in hloenv.dataset.load("train"):
        record.source, record.name, record.instruction_count
        record.module                                   # parsed when asked for

Programs at the extents of real use are a part of their own, which `extent="real"`
reads; everything else is small.

The files are in the package; $HLOENV_DATASET names a folder to read instead, as
`scripts/build_dataset.py` makes it. One Parquet file for each split, which Hugging
Face's `datasets` reads as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from .._typing import Array
from ..errors import DatasetError, HloEnvError
from ..hlo.module import HloModule
from ..runtime.random_inputs import random_inputs

SPLITS = ("train", "validation", "test")
# A second test split, of projects that were added for it; "all" does not include it.
UNSEEN = "unseen"
EXTENTS = ("small", "real")
# All columns but the text, which is read when a module is asked for.
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
# Row groups of decompressed texts that are kept, so that reading in order is fast.
_KEPT_GROUPS = 4


@dataclass(frozen=True)
class InputRange:
    """The values that an integer input had when the module was made.

    Attributes:
        parameter: index of the flat input.
        low: smallest value.
        high: largest value.
    """

    parameter: int
    low: int
    high: int


class InputDistribution(NamedTuple):
    """How to draw a float input for which a standard normal makes no sense.

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
        source: what it was made from, as the manifest calls it.
        name: entry file, case and function; unique in its source.
        fingerprint: the module's, distinct over the whole dataset.
        family: the field ("language", "vision", "molecular", ...).
        licence: SPDX expression of the project's licence.
        repository: URL of the project.
        version: its version, or the commit.
        entry: what was run.
        jax_version: the jax that lowered it.
        split: "train", "validation", "test" or "unseen".
        extent: "real" for a program of the size that people run, "small" for one that
            only has the structure of such a program.
        instruction_count: instructions of all computations.
        computation_count: computations, the entry included.
        flops: as XLA's cost analysis counts; a loop's body counts once.
        bytes: bytes read and written by all instructions.
        transcendentals: exp, log, tanh and the like.
        num_copies: how many equal modules the builder found, this one included.
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
        """The module, parsed anew each time."""
        return HloModule.from_text(self.text)

    def inputs(self, *, seed: int = 0) -> list[Array | None]:
        """Inputs that make sense to the module: the same for the same seed.

        Integers lie within `input_ranges`, floats follow `input_distributions`; what
        neither names is as `hloenv.random_inputs` draws it.

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
        """The record whose fingerprint starts like this.

        Raises:
            DatasetError: none does, or several do.
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
        """The records that meet all conditions.

        Args:
            source: of this source.
            family: of this family.
            extent: of this extent.
            min_instructions: with at least so many instructions.
            max_instructions: with at most so many.
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
    """Where the dataset is: $HLOENV_DATASET, or inside the package."""
    given = os.environ.get("HLOENV_DATASET")
    return Path(given) if given else Path(__file__).resolve().parent / "files"


def load(
    split: str = "all",
    *,
    extent: str = "small",
    path: str | os.PathLike[str] | None = None,
) -> Dataset:
    """Reads the dataset; the modules' texts stay in the files until they are used.

    Args:
        split: "train", "validation", "test", "all" for these three, or "unseen" for
            the second test split.
        extent: "small", "real" for the programs at real extents, or "all" for both.
        path: folder of the Parquet files; `folder()` by default.

    Raises:
        DatasetError: there is no such split or extent, no file, or not the dataset's.
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
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ImportError(
            "hloenv.dataset needs pyarrow: pip install 'hloenv[store]'"
        ) from error
    return parquet


def _read(path: Path) -> Iterator[Record]:
    parquet = _parquet()
    if not path.is_file():
        raise DatasetError(
            f"{path} does not exist; build the dataset with scripts/build_dataset.py "
            "and set HLOENV_DATASET to its folder"
        )
    lists = ["opcodes", "opcode_counts", "input_ranges"]
    try:
        file = parquet.ParquetFile(path)
        # Files of an earlier builder have small programs only, and lack these.
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
    """What is wrong with a record: its module against what is written of it.

    Returns:
        Sentences; empty when all is well.
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
