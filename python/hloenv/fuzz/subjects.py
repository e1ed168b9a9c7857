# SPDX-License-Identifier: Apache-2.0
"""The modules on which the invariants are checked: the dataset's, or a folder's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .. import errors
from ..dataset import reader
from ..hlo.module import HloModule
from .examples import Range

DATASET = "dataset"


@dataclass(frozen=True)
class Subject:
    """One module.

    Attributes:
        name: display name.
        fingerprint: fingerprint of the module.
        instruction_count: instructions of all computations.
        work: estimated cost of evaluation: operations plus bytes, loop bodies counted
            once.
        ranges: ranges of integer inputs whose values matter.
    """

    name: str
    fingerprint: str
    instruction_count: int
    work: float
    ranges: tuple[Range, ...] = ()
    _read: Callable[[], str] = field(default=str, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The module as HLO text."""
        return self._read()


def find_subjects(source: str) -> tuple[list[Subject], list[str]]:
    """Returns modules by size, the smallest first, and errors of unreadable files.

    Args:
        source: "dataset", "dataset:SPLIT", or a folder of `**/*.txt` and `**/*.hlo`.

    Raises:
        DatasetError: the split does not exist.
        FileNotFoundError: the folder does not exist.
    """
    kind, _, split = source.partition(":")
    if kind == DATASET:
        subjects = [_of_record(each) for each in reader.load(split or "all")]
        unread: list[str] = []
    else:
        subjects, unread = _of_folder(Path(source))
    return sorted(subjects, key=lambda s: (s.instruction_count, s.fingerprint)), unread


def _of_record(record: reader.Record) -> Subject:
    return Subject(
        f"{record.source}/{record.name}",
        record.fingerprint,
        record.instruction_count,
        max(record.flops, 0) + max(record.bytes, 0) + 1000.0 * record.instruction_count,
        tuple((each.parameter, each.low, each.high) for each in record.input_ranges),
        lambda: record.text,
    )


def _of_folder(folder: Path) -> tuple[list[Subject], list[str]]:
    if not folder.is_dir():
        raise FileNotFoundError(f"no such folder: {folder}")
    subjects: dict[str, Subject] = {}
    unread = []
    for path in sorted([*folder.glob("**/*.txt"), *folder.glob("**/*.hlo")]):
        try:
            module = HloModule.from_text(path.read_text(encoding="utf-8"))
            cost = module.cost()
        except errors.HloEnvError as error:
            unread.append(f"{path.name}: {error}")
            continue
        count = module.instruction_count
        subject = Subject(
            f"{path.parent.name}/{path.stem}",
            module.fingerprint(),
            count,
            max(cost.flops, 0) + max(cost.bytes, 0) + 1000.0 * count,
            _read=path.read_text,
        )
        subjects.setdefault(subject.fingerprint, subject)
    return list(subjects.values()), unread
