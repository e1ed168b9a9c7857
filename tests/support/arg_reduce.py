# SPDX-License-Identifier: Apache-2.0
"""Reductions to the index of an extreme element."""

from __future__ import annotations

import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "s32": np.int32,
    "s16": np.int16,
    "u8": np.uint8,
}


def arg_text(
    kind: str = "f32",
    direction: str = "GT",
    shape: tuple[int, ...] = (6, 50),
    dimension: int = 1,
    index: str = "s32",
) -> str:
    """The index of the largest (GT) or smallest (LT) element, as JAX lowers it."""
    is_float = "f" in kind
    if is_float:
        worst = "-inf" if direction == "GT" else "inf"
    else:
        info = np.iinfo(DTYPES[kind])
        worst = str(info.min if direction == "GT" else info.max)
    sizes = ",".join(map(str, shape))
    left = ",".join(str(n) for d, n in enumerate(shape) if d != dimension)
    return f"""HloModule arg

pick {{
  a = {kind}[] parameter(0)
  b = {kind}[] parameter(2)
  better = pred[] compare(a, b), direction={direction}
  isnan = pred[] compare(a, a), direction=NE
  first = pred[] or(better, isnan)
  value = {kind}[] select(first, a, b)
  equal = pred[] compare(a, b), direction=EQ
  i = {index}[] parameter(1)
  j = {index}[] parameter(3)
  less = pred[] compare(i, j), direction=LT
  tie = pred[] and(equal, less)
  left = pred[] or(first, tie)
  at = {index}[] select(left, i, j)
  ROOT pair = ({kind}[], {index}[]) tuple(value, at)
}}

ENTRY main {{
  x = {kind}[{sizes}] parameter(0)
  iota = {index}[{sizes}] iota(), iota_dimension={dimension}
  worst = {kind}[] constant({worst})
  zero = {index}[] constant(0)
  best = ({kind}[{left}], {index}[{left}]) reduce(x, iota, worst, zero),
    dimensions={{{dimension}}}, to_apply=pick
  ROOT at = {index}[{left}] get-tuple-element(best), index=1
}}
"""
