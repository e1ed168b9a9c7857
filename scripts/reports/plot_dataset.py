#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plots the dataset as an SVG and writes its figures into the data card.

    python scripts/reports/plot_dataset.py docs/dataset.svg --card dataset/README.md

Shows sizes and sources of the modules. Needs only hloenv; the output is deterministic.
"""

from __future__ import annotations

import argparse
import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from hloenv import dataset
from hloenv._markdown import table
from reporting import with_part

_COLOURS = {"train": "#4878a8", "validation": "#e0a030", "test": "#c05050"}
_WIDTH = 860
_ORIGIN = "source", "version", "jax", "licence", "split"
_FONT = 'font-family="sans-serif" font-size="12"'
# Two bins for each power of two.
_BINS_PER_OCTAVE = 2


def _text(x: float, y: float, text: str, anchor: str = "start", bold: str = "") -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {_FONT}{weight}>'
        f"{escape(text)}</text>"
    )


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}"/>'
    )


def sizes(records: Sequence[dataset.Record], top: float) -> list[str]:
    """Draws a logarithmic histogram of instruction counts, stacked by split."""
    height, left = 200.0, 50.0

    def bin_of(count: int) -> int:
        return int(math.log2(count) * _BINS_PER_OCTAVE)

    counts = Counter((bin_of(r.instruction_count), r.split) for r in records)
    last = max(position for position, _ in counts) + 1
    tallest = max(
        sum(counts[position, name] for name in dataset.SPLITS)
        for position in range(last)
    )
    step = (_WIDTH - left - 20) / last
    parts = [_text(left, top, "Instructions of a module", bold="bold")]
    base = top + 20 + height
    for position in range(last):
        y = base
        for name in dataset.SPLITS:
            tall = counts[position, name] / tallest * height
            y -= tall
            x = left + position * step
            parts.append(_box(x, y, step - 1, tall, _COLOURS[name]))
    for octave in range(0, last // _BINS_PER_OCTAVE + 1, 2):
        x = left + octave * _BINS_PER_OCTAVE * step
        parts.append(_text(x, base + 16, f"{1 << octave:,}", "middle"))
    for share in (0.5, 1.0):
        y = base - share * height
        parts.append(_text(left - 6, y + 4, f"{share * tallest:.0f}", "end"))
    for position, name in enumerate(dataset.SPLITS):
        x = _WIDTH - 120.0
        parts.append(_box(x, top + 20 * position, 12, 12, _COLOURS[name]))
        parts.append(_text(x + 18, top + 11 + 20 * position, name))
    return parts


def bars(records: Sequence[dataset.Record], column: str, top: float) -> list[str]:
    """Draws the number of modules by the values of a column, stacked by split."""
    left, row = 190.0, 18.0
    counts = Counter((getattr(r, column), r.split) for r in records)
    totals = Counter(getattr(r, column) for r in records)
    scale = (_WIDTH - left - 80) / max(totals.values())
    parts = [_text(20, top, f"Modules by {column}", bold="bold")]
    order = sorted(totals, key=lambda value: (-totals[value], value))
    for position, value in enumerate(order):
        y, x = top + 12 + row * position, left
        parts.append(_text(left - 8, y + 11, value, "end"))
        for name in dataset.SPLITS:
            width = counts[value, name] * scale
            parts.append(_box(x, y, width, row - 4, _COLOURS[name]))
            x += width
        parts.append(_text(x + 6, y + 11, f"{totals[value]:,}"))
    return parts


def draw(records: Sequence[dataset.Record]) -> str:
    """Returns the plot as SVG."""
    families = len({record.family for record in records})
    sources = len({record.source for record in records})
    second = 310.0
    third = second + 18 * families + 50
    height = third + 18 * sources + 30
    parts = [
        *sizes(records, 30.0),
        *bars(records, "family", second),
        *bars(records, "source", third),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{height:.0f}" viewBox="0 0 {_WIDTH} {height:.0f}">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def figures(records: Sequence[dataset.Record]) -> list[str]:
    """The figures of the data card as Markdown."""
    repositories = {record.repository for record in records}
    sources = by_source(records)
    splits = []
    for name in (*dataset.SPLITS, "all"):
        chosen = [r for r in records if name in (r.split, "all")]
        splits.append((name, len({r.repository for r in chosen}), *_sizes(chosen)))
    sizes_of = [(*_origin(name, each), *_sizes(each)) for name, each in sources.items()]
    sizes = ">= 2,000", "largest"
    return [
        f"{len(records):,} distinct modules of {len(sources)} sources in "
        f"{len(repositories)} repositories, "
        f"{sum(record.instruction_count for record in records):,} instructions; "
        f"{sum(is_step(record.name) for record in records):,} "
        "whole steps (of training, of a simulation, of a sampler).",
        "",
        *table(
            ("split", "repositories", "modules", ">= 200 instructions", *sizes), splits
        ),
        "",
        *table((*_ORIGIN, "modules", ">= 200", *sizes), sizes_of, "lllllrrrr"),
    ]


def other_parts(
    real: Sequence[dataset.Record], unseen: Sequence[dataset.Record]
) -> list[str]:
    """The figures of real extents and of the unseen split as Markdown."""
    splits = []
    for name in dataset.SPLITS:
        chosen = [record for record in real if record.split == name]
        repositories = {record.repository for record in chosen}
        kinds = {architecture(record) for record in chosen}
        counts = len(repositories), len(kinds), len(chosen)
        splits.append((name, *counts, _span(chosen)))
    sources = [
        (
            *(name, each[0].split, len(each), _span(each)),
            ", ".join(sorted({architecture(record) for record in each})),
        )
        for name, each in by_source(real).items()
    ]
    lines = [
        f"Real extents: {len(real)} programs of "
        f"{len({architecture(record) for record in real})} architectures:",
        "",
        *table(
            ("split", "repositories", "architectures", "modules", "instructions"),
            splits,
        ),
        "",
        *table(
            ("source", "split", "modules", "instructions", "architectures"),
            sources,
            "llrrl",
        ),
    ]
    if unseen:
        repositories = {record.repository for record in unseen}
        rows = [
            (*_origin(name, each), len(each), _span(each))
            for name, each in by_source(unseen).items()
        ]
        lines += [
            "",
            f"Unseen: {len(unseen)} modules of {len(repositories)} projects:",
            "",
            *table((*_ORIGIN, "modules", "instructions"), rows, "lllllrr"),
        ]
    return lines


def by_source(records: Sequence[dataset.Record]) -> dict[str, list[dataset.Record]]:
    """The records of each source, sorted by name."""
    names = sorted({record.source for record in records})
    return {name: [r for r in records if r.source == name] for name in names}


def architecture(record: dataset.Record) -> str:
    """The architecture of a program, from the name of its case."""
    case, _, options = record.name.split("/")[1].partition("[")
    for option in ("name=", "net=", "cell=", "core=", "model=_", "model="):
        _, found, rest = options.partition(option)
        if found:
            named = re.split(r"[,\]]|(?<=[a-z0-9])x(?=\d)", rest)[0]
            return f"{case} ({named})"
    return case


def _span(records: Sequence[dataset.Record]) -> str:
    counts = [record.instruction_count for record in records]
    if not counts:
        return ""
    return f"{min(counts):,} to {max(counts):,}"


def summary(records: Sequence[dataset.Record]) -> str:
    """Returns the figures of the README."""
    large = sum(record.instruction_count >= 2000 for record in records)
    repositories = {record.repository for record in records}
    return (
        f"{len(records):,} distinct modules of {len(repositories)} projects, "
        f"{large:,} of them of 2,000 or more instructions"
    )


def is_step(name: str) -> bool:
    """Whether a module is a complete step of training, a simulation, or a sampler."""
    last = name.rsplit("/", 1)[-1]
    return last in ("step", "md_step") or last.endswith("train_step")


def _origin(name: str, records: Sequence[dataset.Record]) -> tuple[str, ...]:
    first = records[0]
    return name, first.version, first.jax_version, first.licence, first.split


def _sizes(records: Sequence[dataset.Record]) -> tuple[str, ...]:
    counts = [record.instruction_count for record in records]
    sizes = (
        len(counts),
        sum(count >= 200 for count in counts),
        sum(count >= 2000 for count in counts),
        max(counts, default=0),
    )
    return tuple(f"{size:,}" for size in sizes)


def with_figures(
    card: str,
    records: Sequence[dataset.Record],
    real: Sequence[dataset.Record] = (),
    unseen: Sequence[dataset.Record] = (),
) -> str:
    """Returns the card with updated figures between the two marks.

    Args:
        card: the card's text.
        records: the small part of the three splits.
        real: the part at real extents.
        unseen: the second test split.

    Raises:
        ValueError: the card has no marks.
    """
    lines = [*figures(records), "", *other_parts(real, unseen)]
    return with_part(card, "figures", lines)


def main() -> None:
    """Writes the plot, and the card if one is given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="the SVG file")
    parser.add_argument("--card", type=Path, help="the card to write the figures into")
    parser.add_argument("--path", type=Path, help="folder of the Parquet files")
    args = parser.parse_args()
    records = dataset.load(path=args.path)
    args.out.write_text(draw(records), encoding="utf-8")
    print(f"{args.out}: {len(records)} modules")
    if args.card is not None:
        card = args.card.read_text(encoding="utf-8")
        real = dataset.load(extent="real", path=args.path)
        unseen = dataset.load(dataset.UNSEEN, path=args.path)
        text = with_figures(card, records, real, unseen)
        args.card.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
