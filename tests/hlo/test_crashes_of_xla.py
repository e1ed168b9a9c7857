# SPDX-License-Identifier: Apache-2.0
"""Modules that end the process in XLA itself: `csrc/workarounds`, and
`WorkAroundBugsBefore` in `csrc/pipeline/xla_pipeline.h`."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv

WINDOW = """
HloModule window

add {{
  a = {type}[] parameter(0)
  b = {type}[] parameter(1)
  ROOT sum = {type}[] add(a, b)
}}

ENTRY main {{
  x = {type}[4,5] parameter(0)
  start = {type}[] constant({start})
  ROOT cropped = {type}[{result}] reduce-window(x, start),
    window={{{window}}}, to_apply=add
}}
"""

CLAMP = """
HloModule clamp

ENTRY main {{
  x = {type}[{shape}] parameter(0)
  low = {type}[] parameter(1)
  high = {type}[{high}] parameter(2)
  clamped = {type}[{shape}] clamp(low, x, high)
  {root}
}}
"""


@pytest.mark.parametrize(
    ("window", "result", "kept"),
    [
        ("size=1x1 pad=-1_0x0_0", "3,5", np.s_[1:, :]),
        ("size=1x1 pad=0_0x-2_-1", "4,2", np.s_[:, 2:-1]),
        ("size=1x1 stride=2x1 pad=-1_0x0_0", "2,5", np.s_[1::2, :]),
    ],
)
@pytest.mark.parametrize(
    ("dtype", "name", "start"),
    [(np.float32, "f32", "2"), (np.int32, "s32", "2"), (np.complex64, "c64", "(2,0)")],
)
def test_windows_of_one_element_that_crop(window, result, kept, dtype, name, start):
    text = WINDOW.format(type=name, start=start, window=window, result=result)
    x = np.arange(20).reshape(4, 5).astype(dtype)
    (found,) = hloenv.compile(text)(x)
    np.testing.assert_array_equal(np.asarray(found), x[kept] + dtype(2))


@pytest.mark.jax
def test_jaxlib_refuses_such_windows():
    text = WINDOW.format(
        type="f32", start="2", window="size=1x1 pad=-1_0x0_0", result="3,5"
    )
    with pytest.raises(hloenv.CompileError, match="use a slice"):
        hloenv.compile(text, engine="jaxlib")


@pytest.mark.parametrize("algsimp", ["algsimp", "general-simplify"])
def test_alternatives_of_such_windows(algsimp):
    text = WINDOW.format(
        type="f32", start="2", window="size=1x1 pad=-1_0x0_0", result="3,5"
    )
    env = hloenv.HloEnv(text)
    alternatives = env.get_alternatives(algsimp)
    env.apply_alternatives([1] * len(alternatives))
    x = np.arange(20, dtype=np.float32).reshape(4, 5)
    (found,) = hloenv.compile(env.module)(x)
    np.testing.assert_array_equal(np.asarray(found), x[1:] + 2)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int8])
@pytest.mark.parametrize(
    ("shape", "is_whole", "root"),
    [
        ("4000", False, "ROOT same = {type}[4000] copy(clamped)"),
        ("4000", False, "ROOT more = {type}[4000] add(clamped, x)"),
        ("5,3", True, "ROOT more = {type}[3,5] transpose(clamped), dimensions={{1,0}}"),
    ],
)
def test_clamps_by_scalars(dtype, shape, is_whole, root):
    name = {"float32": "f32", "int32": "s32", "int8": "s8"}[np.dtype(dtype).name]
    high = shape if is_whole else ""
    root = root.format(type=name)
    text = CLAMP.format(type=name, shape=shape, high=high, root=root)
    extents = [int(each) for each in shape.split(",")]
    x = (np.arange(np.prod(extents)) % 100).reshape(extents).astype(dtype)
    top = np.full(extents if is_whole else (), 60, dtype)
    (found,) = hloenv.compile(text)(x, dtype(20), top)
    expected = np.clip(x, dtype(20), top)
    if "add" in root:
        expected = expected + x
    if "transpose" in root:
        expected = expected.T
    np.testing.assert_array_equal(np.asarray(found), expected)
