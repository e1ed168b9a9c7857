# SPDX-License-Identifier: Apache-2.0
"""The modules of a benchmark: parts of the dataset, samples of them, or files."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..dataset.reader import EXTENTS, Record
from ..errors import ArgumentError
from ..hlo.module import HloModule


@dataclass(frozen=True)
class Entry:
    """A module of the benchmark.

    Attributes:
        name: unique among the entries.
        text: HLO text.
        fingerprint: of the module.
        source: project, "" if unknown.
        family: field of the project, "" if unknown.
        split: dataset split, "" for other modules.
        instruction_count: of all computations.
        repository: URL of the project, "" if unknown.
        entry_point: the program that the module is a function of; "" for the module.
        extent: "small" or "real".
        record: dataset record that specifies the inputs, if any.
    """

    name: str
    text: str = field(repr=False)
    fingerprint: str
    source: str = ""
    family: str = ""
    split: str = ""
    instruction_count: int = 0
    repository: str = ""
    entry_point: str = ""
    extent: str = "small"
    record: Record | None = field(default=None, repr=False)


def from_dataset(
    split: str, *, extent: str = "small", sources: Sequence[str] = ()
) -> list[Entry]:
    """The modules of one extent of a dataset split.

    Args:
        split: "train", "validation", "test" or "unseen".
        extent: "small" or "real".
        sources: only of these projects; of all if empty.

    Raises:
        ArgumentError: no such extent, or the split has no modules of a source.
    """
    from ..dataset.reader import load

    if extent not in EXTENTS:
        raise ArgumentError(
            f"extent must be one of {', '.join(EXTENTS)}, got {extent!r}"
        )
    records = load(split, extent=extent)
    known = {record.source for record in records}
    if unknown := sorted(set(sources) - known):
        raise ArgumentError(
            f"the {split} split has no modules at {extent} extents of "
            f"{', '.join(unknown)}; it has those of {', '.join(sorted(known))}"
        )
    return [
        _entry(record, split)
        for record in records
        if not sources or record.source in sources
    ]


def _entry(record: Record, split: str) -> Entry:
    is_drawn = record.extent == "real" or bool(
        record.input_ranges or record.input_distributions
    )
    return Entry(
        f"{record.source}/{record.name}",
        record.text,
        record.fingerprint,
        record.source,
        record.family,
        split,
        record.instruction_count,
        record.repository,
        entry_point(record.source, record.name),
        record.extent,
        record if is_drawn else None,
    )


def entry_point(source: str, name: str) -> str:
    """The program that a dataset module is a function of, without its sizes.

    Module names are FILE/CASE[SIZES]/FUNCTION. The loss, gradient and training step of
    a case are one entry point, at all sizes.
    """
    case, _, sizes = name.partition("[")
    return f"{source}/{case if sizes else name.rpartition('/')[0] or name}"


def sample(entries: Sequence[Any], count: int, seed: int) -> list[Any]:
    """A random sample, the same for the same entries and seed."""
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    return shuffled[:count]


def from_files(paths: Iterable[Path]) -> list[Entry]:
    """Modules in files; the folder's name is the project."""
    entries = []
    for path in paths:
        module = HloModule.from_file(path)
        entries.append(
            Entry(
                f"{path.absolute().parent.name}/{path.stem}",
                module.to_text(),
                module.fingerprint(),
                path.absolute().parent.name,
                instruction_count=module.instruction_count,
            )
        )
    return entries
