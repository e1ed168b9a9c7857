# SPDX-License-Identifier: Apache-2.0
"""Arrays of recurrences that a kernel would compute very many times are in memory."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule
from hloenv.jax.auto import forms_of
from support.captures import capture_rule

STACKED = """
  c0 = {kind}[{size},1] reshape({v0})
  c1 = {kind}[{size},1] reshape({v1})
  c2 = {kind}[{size},1] reshape({v2})
  ROOT r = {kind}[{size},3] concatenate(c0, c1, c2), dimensions={{1}}"""


LONG = ("subtract", "maximum", "subtract", "minimum") * 2


def recurrence(
    steps: int,
    *,
    kind: str = "u32",
    size: int = 1000,
    last: str = STACKED,
    operations: tuple[str, ...] = LONG,
) -> str:
    """Steps that read the results of the three steps before, of which `last` is."""
    whole = f"{kind}[{size}]"
    lines = [f"v{i} = {whole} parameter({i})" for i in range(3)]
    for i in range(3, steps + 3):
        before = [f"v{i - 1}", f"v{i - 2}", f"v{i - 3}"]
        last_one = before[0]
        for k, name in enumerate(operations):
            result = f"v{i}" if k == len(operations) - 1 else f"part{i}_{k}"
            lines.append(
                f"{result} = {whole} {name}({last_one}, {before[(k + 1) % 3]})"
            )
            last_one = result
    names = {f"v{i}": f"v{steps + i}" for i in range(3)}
    lines.append(last.format(kind=kind, size=size, **names))
    return f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"


def offered(text: str, rule: str = "recomputed") -> list[str]:
    """The arrays that may be kept."""
    return [each.original for each in capture_rule(text, "fusion-cuts", rule)]


def test_results_of_steps_that_are_stacked_are_kept() -> None:
    # The last steps are computed few times; all before the kept ones are in memory.
    assert offered(recurrence(4)) == []
    kept = offered(recurrence(30))
    assert 1 <= len(kept) <= 4
    assert offered(recurrence(60)) == [f"v{int(each[1:]) + 30}" for each in kept]
    assert offered(recurrence(30, kind="f32")) == kept


def test_short_steps_which_llvm_inlines_are_not_kept() -> None:
    assert offered(recurrence(30, operations=LONG[:4])) == []


def test_one_part_of_what_is_stacked_is_computed_once() -> None:
    part = "r = {kind}[{size},1] slice(all), slice={{[0:{size}],[FIRST:LIMIT]}}"
    last = STACKED.replace("ROOT r", "all") + "\n  ROOT " + part
    one = last.replace("FIRST", "1").replace("LIMIT", "2")
    two = (
        last.replace("FIRST", "1").replace("LIMIT", "3").replace("1] slice", "2] slice")
    )
    assert offered(recurrence(30, last=one)) == []
    assert offered(recurrence(30, last=two)) != []


@pytest.mark.parametrize(
    "last",
    [
        "ROOT r = ({kind}[{size}], {kind}[{size}]) tuple({v2}, {v1})",
        "c = {kind}[{size}] add({v0}, {v2})\n  ROOT r = {kind}[{size}] add(c, {v1})",
        "c = {kind}[{size}] add({v0}, {v2})\n"
        "  ROOT r = {kind}[7] slice(c), slice={{[3:10]}}",
    ],
)
def test_what_one_function_computes_is_not_kept(last: str) -> None:
    assert offered(recurrence(30, last=last)) == []


def butterfly(slices: tuple[str, str], *, is_reshaped: bool) -> str:
    """Stages that each join two functions of two parts of the stage before."""
    whole, part = "f32[64,64]", "f32[32,64]"
    lines = [f"v0 = {whole} parameter(0)"]
    for i in range(12):
        lines += [
            f"flat{i} = f32[4096] reshape(v{i})",
            f"shaped{i} = {whole} reshape(flat{i})",
        ]
        read = f"shaped{i}" if is_reshaped else f"v{i}"
        lines += [
            f"{name}{i} = {part} slice({read}), slice={{[{rows}],[0:64]}}"
            for name, rows in zip("ab", slices, strict=True)
        ]
        last = f"a{i}"
        for k, name in enumerate(LONG):
            lines.append(f"part{i}_{k} = {part} {name}({last}, b{i})")
            last = f"part{i}_{k}"
        lines += [
            f"c{i} = {part} multiply({last}, a{i})",
            f"d{i} = {part} divide({last}, b{i})",
            f"v{i + 1} = {whole} concatenate(c{i}, d{i}), dimensions={{0}}",
        ]
    lines.append(f"ROOT r = {whole} negate(v12)")
    return f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"


@pytest.mark.parametrize("slices", [("0:64:2", "1:64:2"), ("8:40", "20:52")])
@pytest.mark.parametrize("is_reshaped", [True, False])
def test_stages_of_a_butterfly_are_in_memory(slices, is_reshaped) -> None:
    # XLA does not fuse a concatenation with several slices of it.
    assert offered(butterfly(slices, is_reshaped=is_reshaped)) == []


def test_what_is_in_memory_anyway_ends_the_recomputation() -> None:
    lines = [
        f"w{i} = (u32[1000], u32[1000]) tuple(v{i}, v{i - 1})" for i in range(9, 31)
    ]
    text = recurrence(30, last="\n".join([*lines, STACKED]))
    assert offered(text) == []


def test_little_work_is_not_kept() -> None:
    assert offered(recurrence(8)) == []
    assert offered(recurrence(12, size=16)) == []
    # Thirty steps would compute the first ones some million times.
    assert offered(recurrence(30, size=16)) != []


def test_steps_that_read_the_ones_before_at_other_places_are_kept() -> None:
    lines = ["v0 = s32[40] parameter(0)"]
    for i in range(20):
        lines += [
            f"a{i} = s32[40] reverse(v{i}), dimensions={{0}}",
            f"v{i + 1} = s32[40] maximum(v{i}, a{i})",
        ]
    lines.append("ROOT r = s32[40] negate(v20)")
    text = f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"
    kept = offered(text)
    assert kept
    assert "v20" not in kept


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("kind", ["u32", "f32"])
def test_it_computes_the_same(kind: str, engine: Literal["wheel", "jaxlib"]) -> None:
    text = recurrence(16, kind=kind)
    alternatives = capture_rule(text, "fusion-cuts", "recomputed")
    assert len(alternatives)
    decided = alternatives.apply([1] * len(alternatives))
    assert decided.opcode_counts()["call"] == len(alternatives)
    rng = np.random.default_rng(0)
    given = [
        rng.integers(0, 2**32, 1000, dtype=np.uint32)
        if kind == "u32"
        else rng.random(1000, dtype=np.float32)
        for _ in range(3)
    ]
    wanted, found = (
        hloenv.compile(each, engine=engine, isolate=False)(*given)[0]
        for each in (HloModule.from_text(text), decided)
    )
    if kind == "u32":
        np.testing.assert_array_equal(found, wanted)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.jax
def test_rounds_of_a_hash_function_are_kept() -> None:
    import jax.numpy as jnp

    def mixed(words):
        state = tuple(words[:, i] for i in range(4))
        for i in range(16):
            a, b, c, d = state
            t = d + ((a >> 6) | (a << 26)) + ((a & b) ^ (~a & c)) + words[:, i % 4]
            state = t + ((c >> 13) | (c << 19)), a, b + t, c
        return jnp.stack(state, 1)

    given = np.random.default_rng(0).integers(0, 2**32, (1000, 4), dtype=np.uint32)
    decided = forms_of(HloModule.from_jax(mixed, given))
    assert decided is not None
    assert decided.accepted["fusion-cuts/recomputed"] >= 1


def test_gathers_read_at_other_places() -> None:
    # Each step reads the one before in place, and through a table of places.
    lines = ["v0 = s32[40,64] parameter(0)", "at = s32[64,1] parameter(1)"]
    for i in range(11):
        lines += [
            f"g{i} = s32[40,64] gather(v{i}, at), offset_dims={{0}}, "
            "collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
            "slice_sizes={40,1}",
            f"h{i} = s32[40,64] maximum(v{i}, g{i})",
            f"l{i} = s32[40,64] minimum(v{i}, g{i})",
            f"v{i + 1} = s32[40,64] subtract(h{i}, l{i})",
        ]
    lines.append("ROOT r = s32[40,64] negate(v11)")
    module = HloModule.from_text(f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}")
    found = HloEnv(module).get_alternatives("fusion-cuts")
    # Those that six gathers and more read.
    assert [each.original for each in found] == [f"v{i}" for i in range(1, 6)]
    assert {each.choices[1].rule for each in found} == {"repeated"}


@pytest.mark.parametrize(
    ("rows", "gathers", "is_offered"), [(64, 6, True), (64, 5, False), (640, 6, False)]
)
def test_parts_of_a_table_that_are_gathered(rows, gathers, is_offered) -> None:
    lines = [
        *(f"x = s32[40,{rows}] parameter(0)", f"v = s32[40,{rows}] multiply(x, x)"),
        f"w = s32[40,{rows}] subtract(v, x)",
    ]
    for i in range(gathers):
        lines += [
            f"at{i} = s32[64,1] parameter({i + 1})",
            f"g{i} = s32[40,64] gather(w, at{i}), offset_dims={{0}}, "
            "collapsed_slice_dims={1}, start_index_map={1}, index_vector_dim=1, "
            "slice_sizes={40,1}",
        ]
    names = ", ".join(f"g{i}" for i in range(gathers))
    kinds = ", ".join(["s32[40,64]"] * gathers)
    lines.append(f"ROOT r = ({kinds}) tuple({names})")
    text = f"HloModule m\nENTRY main {{{chr(10).join(lines)}}}"
    assert offered(text, "repeated") == (["w"] if is_offered else [])
