# SPDX-License-Identifier: Apache-2.0
"""Small datasets for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import hloenv

sys.path.append(str(Path(__file__).resolve().parents[2]))

from dataset import normalize, parquet, split

HLO = """HloModule m

ENTRY e {{
  p = f32[{size}]{{0}} parameter(0)
  i = s32[2]{{0}} parameter(1)
  c = f32[2]{{0}} convert(i)
  n = f32[{size}]{{0}} negate(p)
  ROOT t = (f32[{size}]{{0}}, f32[2]{{0}}) tuple(n, c)
}}
"""


def row(size: int, source: str, split: str, *, hlo: str = HLO) -> dict[str, Any]:
    """The row of a module with an input of `size` numbers."""
    module = hloenv.HloModule.from_text(hlo.format(size=size))
    return {
        **normalize.describe(module.to_proto()),
        "source": source,
        "name": f"entry/case[size={size}]/train_step",
        "family": "vision",
        "licence": "MIT",
        "repository": f"https://example.org/{source}",
        "version": "1.0",
        "entry": "entry",
        "jax_version": "0.10.2",
        "split": split,
        "input_ranges": [{"parameter": 1, "low": 0, "high": 7}],
        "num_copies": 1,
    }


def write_dataset(folder: Path, rows: dict[str, list[dict[str, Any]]]) -> None:
    """Writes one file for each split; a split that `rows` lacks is empty."""
    for name in split.SPLITS:
        parquet.write(folder / f"{name}.parquet", rows.get(name, []))
