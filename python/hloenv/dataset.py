# SPDX-License-Identifier: Apache-2.0
"""The dataset: real modules of public JAX projects, described and split by repository.

    for record in hloenv.dataset.load("train"):
        record.source, record.name, record.instruction_count
        record.module                                   # parsed when asked for

The files are in the package; $HLOENV_DATASET names a folder to read instead, as
`scripts/build_dataset.py` makes it. One Parquet file for each split, which Hugging
Face's `datasets` reads as it is.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

from .errors import DatasetError, HloEnvError
from .module import HloModule

SPLITS = ("train", "validation", "test")
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
        split: "train", "validation" or "test".
        instruction_count: instructions of all computations.
        computation_count: computations, the entry included.
        flops: as XLA's cost analysis counts; a loop's body counts once.
        bytes: bytes read and written by all instructions.
        transcendentals: exp, log, tanh and the like.
        num_copies: how many equal modules the builder found, this one included.
        opcode_counts: instructions by opcode.
        input_ranges: for integer inputs whose values matter; others may take any.
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
    instruction_count: int
    computation_count: int
    flops: float
    bytes: float
    transcendentals: float
    num_copies: int
    opcode_counts: dict[str, int] = field(repr=False)
    input_ranges: tuple[InputRange, ...] = field(repr=False)
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
        min_instructions: int = 0,
        max_instructions: int | None = None,
    ) -> Dataset:
        """The records that meet all conditions.

        Args:
            source: of this source.
            family: of this family.
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
                and min_instructions <= record.instruction_count <= top
            ]
        )

    def __repr__(self) -> str:
        sources = len({record.source for record in self._records})
        return f"<Dataset: {len(self)} modules of {sources} sources>"


def folder() -> Path:
    """Where the dataset is: $HLOENV_DATASET, or inside the package."""
    given = os.environ.get("HLOENV_DATASET")
    return Path(given) if given else Path(__file__).resolve().parent / "data"


def load(split: str = "all", *, path: str | os.PathLike[str] | None = None) -> Dataset:
    """Reads the dataset; the modules' texts stay in the files until they are used.

    Args:
        split: "train", "validation", "test", or "all".
        path: folder of the Parquet files; `folder()` by default.

    Raises:
        DatasetError: there is no such split, no file, or not the dataset's.
        ImportError: pyarrow is not installed.
    """
    if split not in (*SPLITS, "all"):
        raise DatasetError(f"no split {split!r}: {', '.join(SPLITS)}, or all")
    base = folder() if path is None else Path(path)
    names = SPLITS if split == "all" else (split,)
    records = [record for name in names for record in _read(base / f"{name}.parquet")]
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
            f"there is no {path}; build the dataset with scripts/build_dataset.py and "
            "set HLOENV_DATASET to its folder"
        )
    lists = ["opcodes", "opcode_counts", "input_ranges"]
    try:
        file = parquet.ParquetFile(path)
        groups = [
            file.read_row_group(group, columns=[*_COLUMNS, *lists]).to_pylist()
            for group in range(file.num_row_groups)
        ]
        for group, rows in enumerate(groups):
            for position, row in enumerate(rows):
                yield Record(
                    **{name: row[name] for name in _COLUMNS},
                    opcode_counts=dict(
                        zip(row["opcodes"], row["opcode_counts"], strict=True)
                    ),
                    input_ranges=tuple(InputRange(**r) for r in row["input_ranges"]),
                    _place=(str(path), group, position),
                )
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise DatasetError(f"{path} is no file of the dataset: {error}") from error


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
        f"{name} is {value}, not {getattr(record, name)} as written"
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
    return problems
