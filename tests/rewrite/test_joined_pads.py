# SPDX-License-Identifier: Apache-2.0
"""Sums of padded arrays that are written as concatenations."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule, Pass, verify_alternatives
from hloenv.hlo.text import parse_text
from hloenv.policies import get_policy


def module_of(
    *pads: str,
    sizes: tuple[str, str] = ("12,30", "8,30"),
    dtype: str = "f32",
    shape: str = "20,30",
    zero: str = "constant(0)",
    operation: str = "add",
) -> HloModule:
    """The sum of two arrays that are padded so."""
    first, second = pads
    return HloModule.from_text(f"""HloModule m
    ENTRY main {{
      a = {dtype}[{sizes[0]}] parameter(0)
      b = {dtype}[{sizes[1]}] parameter(1)
      zero = {dtype}[] {zero}
      p = {dtype}[{shape}] pad(a, zero), padding={first}
      q = {dtype}[{shape}] pad(b, zero), padding={second}
      ROOT r = {dtype}[{shape}] {operation}(p, q)
    }}""")


def joined_of(module: HloModule) -> list[str]:
    """What takes the place of each sum: the parts of the concatenation."""
    only = Pass("fusion-cuts", bounded=False, repeated=False)
    alternatives = HloEnv(module).get_alternatives(only)
    if not len(alternatives):
        return []
    (alternative,) = alternatives
    assert alternative.choices[1].rule == "joined"
    text = parse_text(alternatives.apply([1]).to_text())
    entry = text.computations[text.entry].instructions
    (joined,) = (each for each in entry if each.opcode == "concatenate")
    return [entry[i].name for i in joined.operands]


def test_the_parts_are_in_order():
    assert joined_of(module_of("0_8x0_0", "12_0x0_0")) == ["a", "b"]
    assert joined_of(module_of("8_0x0_0", "0_12x0_0")) == ["b", "a"]
    sizes = ("20,12", "20,18")
    assert joined_of(module_of("0_0x18_0", "0_0x0_12", sizes=sizes)) == ["b", "a"]


@pytest.mark.parametrize(
    "changed",
    [
        {"operation": "subtract"},
        {"operation": "maximum"},
        {"zero": "constant(1)"},
        {"zero": "parameter(2)"},
        {"sizes": ("13,30", "8,30"), "pads": ("0_7x0_0", "12_0x0_0")},  # overlap
        {"sizes": ("11,30", "8,30"), "pads": ("0_9x0_0", "12_0x0_0")},  # a gap
        {"pads": ("1_7x0_0", "12_0x0_0")},
        {"sizes": ("12,29", "8,30"), "pads": ("0_8x0_1", "12_0x0_0")},
        {"sizes": ("20,12", "8,30"), "pads": ("0_0x0_18", "12_0x0_0")},
        {"sizes": ("20,30", "8,30"), "pads": ("0_0x0_0", "12_0x0_0")},
        {"sizes": ("10,30", "10,30"), "pads": ("0_1_1x0_0", "1_0_1x0_0")},
        {"sizes": ("14,30", "8,30"), "pads": ("-2_8x0_0", "12_0x0_0")},
        {"sizes": ("12,10", "8,10"), "shape": "20,10"},  # few numbers
    ],
)
def test_other_sums_stay(changed):
    changed = {"pads": ("0_8x0_0", "12_0x0_0"), **changed}
    pads = changed.pop("pads")
    assert joined_of(module_of(*pads, **changed)) == []


@pytest.mark.parametrize("dtype", ["s8", "u64", "bf16", "f16", "f64", "c64"])
def test_all_numbers_are_the_same(dtype):
    zero = "constant((0, 0))" if dtype == "c64" else "constant(0)"
    module = module_of("0_8x0_0", "12_0x0_0", dtype=dtype, zero=zero)
    (error,) = verify_alternatives(HloEnv(module).get_alternatives("fusion-cuts"))
    assert error.absolute == 0


def test_what_is_no_number_stays_in_its_place():
    module = module_of("0_8x0_0", "12_0x0_0")
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    a = np.full((12, 30), np.nan, np.float32)
    b = np.full((8, 30), -np.inf, np.float32)
    for form in (module, alternatives.apply([1])):
        (found,) = hloenv.compile(form, isolate=False)(a, b)
        np.testing.assert_array_equal(found, np.vstack([a, b]))


def rolled_back(rows: int, columns: int, by: int, dimension: int) -> HloModule:
    """The gradient of a roll."""
    sizes = [rows, columns]
    lines, names = [f"g = f32[{rows},{columns}] parameter(0)"], []
    for start, end in ((by, sizes[dimension]), (0, by)):
        name = f"part{start}"
        dims, ends, padding = [*sizes], [f"[0:{size}]" for size in sizes], ["0_0"] * 2
        dims[dimension], ends[dimension] = end - start, f"[{start}:{end}]"
        around = (0, by) if start else (sizes[dimension] - by, 0)
        padding[dimension] = f"{around[0]}_{around[1]}"
        lines += [
            f"{name} = f32[{dims[0]},{dims[1]}] slice(g), slice={{{','.join(ends)}}}",
            f"pad{start} = f32[{rows},{columns}] pad({name}, zero), "
            f"padding={'x'.join(padding)}",
        ]
        names.append(f"pad{start}")
    entry = "\n".join(
        [
            "zero = f32[] constant(0)",
            *lines,
            f"ROOT r = f32[{rows},{columns}] add({', '.join(names)})",
        ]
    )
    return HloModule.from_text(f"HloModule m\nENTRY main {{\n{entry}\n}}")


@pytest.mark.parametrize(
    ("rows", "columns", "dimension", "is_taken"),
    [
        (20, 150, 0, True),
        (20, 149, 0, False),  # 2,980 numbers
        (3000, 3, 0, True),
        (100_000, 3, 1, False),
        (100, 128, 1, True),
        (100, 127, 1, False),
    ],
)
def test_known_forms_takes_it_for_gradients_of_large_rolls(
    rows, columns, dimension, is_taken
):
    module = rolled_back(rows, columns, 2, dimension)
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    (decision,) = get_policy("known-forms")(alternatives)
    assert (decision > 0) == is_taken


def test_known_forms_leaves_other_sums():
    """As of the gradient of a gated unit, of two arrays."""
    sizes = ("200,120", "200,80")
    module = module_of("0_0x0_80", "0_0x120_0", sizes=sizes, shape="200,200")
    assert joined_of(module) == ["a", "b"]
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    assert (get_policy("known-forms")(alternatives) <= 0).all()


@pytest.mark.jax
def test_gradients_of_rolls_are_rolls_and_then_have_halos():
    import jax
    import jax.numpy as jnp

    def energy(x):
        near = [jnp.roll(x, by, (0, 1)) for by in ((1, 1), (-1, 1), (1, -1), (0, 1))]
        return jnp.sum(x**2 * (4 - sum(near)))

    x = np.random.default_rng(0).standard_normal((512, 256), np.float32)
    decided, expected = hloenv.jit(jax.grad(energy)), jax.jit(jax.grad(energy))(x)
    for _ in range(2):
        np.testing.assert_allclose(decided(x), expected, rtol=1e-4, atol=1e-4)
    assert "fusion-cuts/joined" in decided.explain()
    assert "fusion-cuts/halo" in decided.explain()
