# SPDX-License-Identifier: Apache-2.0
"""Forms of numbers of 16 bits that are summed in 32, and of single elements.

XLA's CPU backend does not run products of bfloat16 with a float32 result if they are
transposed, and drops the initial value of a reduction of one element.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import hloenv
from hloenv.errors import HloEnvError
from hloenv.runtime.executable import Engine

CONVOLUTIONS = {
    "patches of rows": (
        "bf16[2,6,8] parameter(0)",
        "bf16[2,8,2] parameter(1)",
        "TYPE[2,2,3] convolution(x, w), window={size=2 stride=2}, "
        "dim_labels=b0f_0io->bf0",
    ),
    "batch last": (
        "bf16[4,140,8] parameter(0)",
        "bf16[2,8,16] parameter(1)",
        "TYPE[139,16,4] convolution(x, w), window={size=2}, dim_labels=b0f_0io->0fb",
    ),
    "features first": (
        "bf16[4,140,8] parameter(0)",
        "bf16[2,8,16] parameter(1)",
        "TYPE[16,139,4] convolution(x, w), window={size=2}, dim_labels=b0f_0io->f0b",
    ),
    "three dimensions": (
        "bf16[7,7,1,2,1] parameter(0)",
        "bf16[1,2,1,4,2] parameter(1)",
        "TYPE[2,2,23,10,1] convolution(x, w), window={size=1x1x4 stride=1x1x5 "
        "pad=5_5x0_9x2_1 lhs_dilate=2x1x1 rhs_dilate=4x1x1 rhs_reversal=0x0x0}, "
        "dim_labels=02bf1_1i02o->2f01b",
    ),
}


def text_of(name: str, result: str) -> str:
    left, right, convolution = CONVOLUTIONS[name]
    return (
        f"HloModule m\nENTRY e {{\n  x = {left}\n  w = {right}\n"
        f"  ROOT r = {convolution.replace('TYPE', result)}\n}}\n"
    )


@pytest.mark.parametrize("result", ["f32", "bf16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_forms_of_bfloat16_run(engine: Engine, name: str, result: str):
    module = hloenv.HloModule.from_text(text_of(name, result))
    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-4, 5, spec.shape).astype(spec.dtype)
        for spec in module.input_specs()
    ]
    (wanted,) = hloenv.compile(module, engine=engine)(*arrays)
    alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
    tried = 0
    for each in alternatives:
        for choice in range(1, each.num_choices):
            decisions = [choice * (each.index == i) for i in range(len(alternatives))]
            decided = alternatives.apply(decisions)
            (output,) = hloenv.compile(decided, engine=engine, isolate=False)(*arrays)
            np.testing.assert_array_equal(
                output.astype("float32"), wanted.astype("float32")
            )
            tried += 1
    assert tried


NATURAL = """HloModule m
ENTRY e {{
  x = bf16[{input}] parameter(0)
  w = bf16[{kernel}] parameter(1)
  c = bf16[{output}] convolution(x, w), window={{{window}}}, dim_labels=b0f_0io->b0f
  ROOT t = bf16[{transposed}] transpose(c), dimensions={{{order}}}
}}
"""


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    ("left", "kernel", "output", "window"),
    [
        ("2,6,8", "2,8,2", (2, 3, 2), "size=2 stride=2"),
        ("4,48,8", "3,8,16", (4, 16, 16), "size=3 stride=3"),
        ("1,140,8", "2,8,16", (1, 139, 16), "size=2"),
    ],
)
def test_what_reads_a_form_of_bfloat16_may_transpose_it(
    engine: Engine, left: str, kernel: str, output: tuple[int, ...], window: str
):
    for order in itertools.permutations(range(3)):
        text = NATURAL.format(
            input=left,
            kernel=kernel,
            output=",".join(map(str, output)),
            window=window,
            transposed=",".join(str(output[d]) for d in order),
            order=",".join(map(str, order)),
        )
        module = hloenv.HloModule.from_text(text)
        arrays = [np.ones(s.shape, s.dtype) for s in module.input_specs()]
        alternatives = hloenv.HloEnv(module).get_alternatives("convolution-forms")
        (each,) = alternatives
        for choice in range(1, each.num_choices):
            hloenv.compile(alternatives.apply([choice]), engine=engine, isolate=False)(
                *arrays
            )


REDUCE = """HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  i = f32[] constant({start})
  ROOT r = f32[{rows}] reduce(x, i), dimensions={{1}}, to_apply=f
}}
"""
WINDOW = """HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  i = f32[] constant({start})
  ROOT r = f32[{rows},1] reduce-window(x, i), window={{size=1x{columns}}}, to_apply=f
}}
"""


@pytest.mark.parametrize("text", [REDUCE, WINDOW])
def test_an_initial_value_that_xla_drops_is_not_put_in(text: str):
    offered = {}
    for columns, start in itertools.product((1, 3), ("0.5", "1")):
        module = hloenv.HloModule.from_text(
            text.format(rows=1000, columns=columns, start=start)
        )
        alternatives = hloenv.HloEnv(module).get_alternatives("reduce-forms")
        offered[columns, start] = len(alternatives) > 0
    assert not offered[1, "0.5"]
    assert offered[3, "0.5"]
    assert offered[3, "1"]


def test_the_backend_needs_it():
    """If this runs, the products need not be of 32 bits any more."""
    module = hloenv.HloModule.from_text(
        "HloModule m\nENTRY e {\n  x = bf16[2,8] parameter(0)\n"
        "  w = bf16[8,140] parameter(1)\n"
        "  d = f32[2,140] dot(x, w), lhs_contracting_dims={1}, "
        "rhs_contracting_dims={0}\n"
        "  ROOT r = f32[140,2] transpose(d), dimensions={1,0}\n}\n"
    )
    arrays = [np.ones(s.shape, s.dtype) for s in module.input_specs()]
    with pytest.raises(HloEnvError, match="Unsupported element type for DotThunk"):
        hloenv.compile(module)(*arrays)
