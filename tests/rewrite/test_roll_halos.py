# SPDX-License-Identifier: Apache-2.0
"""Rolled arrays that are read from one with their ends on both sides."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule, Pass, verify_alternatives
from hloenv.hlo.text import parse_text
from hloenv.policies import get_policy

CORNERS = list(itertools.product((-1, 0, 1), repeat=2))


class Grid:
    """Text of a module that rolls arrays and adds the results."""

    def __init__(self, *dims: int, dtype: str = "f32") -> None:
        self.dims, self.dtype = dims, dtype
        self.lines = [f"x = {self.type_of(dims)} parameter(0)"]
        self.terms: list[str] = []

    def type_of(self, dims) -> str:
        return f"{self.dtype}[{','.join(map(str, dims))}]"

    def part(self, of: str, dimension: int, start: int, end: int) -> str:
        name = f"v{len(self.lines)}"
        dims = [*self.dims]
        dims[dimension] = end - start
        ends = [f"[0:{size}]" for size in self.dims]
        ends[dimension] = f"[{start}:{end}]"
        line = f"{name} = {self.type_of(dims)} slice({of}), slice={{{','.join(ends)}}}"
        self.lines.append(line)
        return name

    def roll(self, of: str, dimension: int, shift: int) -> str:
        """As jnp.roll does it; the shift is positive."""
        size = self.dims[dimension]
        first = self.part(of, dimension, size - shift, size)
        second = self.part(of, dimension, 0, size - shift)
        return self.joined(f"{first}, {second}", dimension)

    def joined(self, parts: str, dimension: int) -> str:
        name = f"v{len(self.lines)}"
        whole = self.type_of(self.dims)
        self.lines.append(
            f"{name} = {whole} concatenate({parts}), dimensions={{{dimension}}}"
        )
        return name

    def add_rolled(self, *shifts: int, of: str = "x") -> Grid:
        for dimension, shift in enumerate(shifts):
            if shift:
                of = self.roll(of, dimension, shift % self.dims[dimension])
        self.terms.append(of)
        return self

    def module(self) -> HloModule:
        whole = self.type_of(self.dims)
        lines = [*self.lines, f"t0 = {whole} negate({self.terms[0]})"]
        for i, term in enumerate(self.terms[1:], 1):
            lines.append(f"both{i} = {whole} add({term}, {term})")
            lines.append(f"t{i} = {whole} subtract(both{i}, t{i - 1})")
        last = f"ROOT r = {whole} negate(t{len(self.terms) - 1})"
        entry = "\n".join([*lines, last])
        return HloModule.from_text(f"HloModule m\nENTRY main {{\n{entry}\n}}")


def halos_of(module: HloModule) -> list[tuple[int, list[int]]]:
    """Rolls that each proposal replaces, and dimensions of its array with ends."""
    alternatives = HloEnv(module).get_alternatives(Pass("fusion-cuts", bounded=False))
    found = []
    for index, alternative in enumerate(alternatives):
        decisions = [0] * len(alternatives)
        decisions[index] = 1
        assert alternative.choices[1].rule == "halo"
        text = parse_text(alternatives.apply(decisions).to_text())
        entry = text.computations[text.entry].instructions
        (call,) = (each for each in entry if each.opcode == "call")
        readers = [each for each in entry if entry.index(call) in each.operands]
        assert {each.opcode for each in readers} == {"slice"}
        sizes = call.shape.split("[")[1].split("]")[0]
        found.append((len(readers), [int(size) for size in sizes.split(",")]))
    return found


def rolled(dims, *shifts, dtype="f32") -> Grid:
    grid = Grid(*dims, dtype=dtype)
    for each in shifts:
        grid.add_rolled(*each)
    return grid


@pytest.mark.parametrize(
    ("dims", "shifts", "expected"),
    [
        ((64, 64), CORNERS, [(8, [66, 66])]),
        # Along the rows alone it is not needed.
        ((64, 64), [(0, 1), (0, -1), (1, 0), (-1, 0)], [(2, [64, 66])]),
        ((64, 64), [(1, 0), (-1, 0), (3, 0)], []),
        ((64, 64), [(0, 1)], []),
        ((64, 64), [(1, 1)], []),
        ((64, 64), [(1, 2), (0, 2)], [(2, [65, 66])]),
        ((300,), [(1,), (-2,)], [(2, [303])]),
        ((255,), [(1,), (-2,)], []),
        ((8, 8, 8), [(1, 1, 0), (0, 1, 1), (0, 0, -1)], [(3, [9, 9, 10])]),
        ((8, 8, 8), [(1, 0, 0), (0, 1, 1), (0, 0, -1)], [(2, [8, 9, 10])]),
        # More ends than what is between.
        ((16, 16), [(0, 8), (0, 7)], [(2, [16, 24])]),
        ((16, 16), [(8, 8), (-7, 1)], []),
        ((16, 16), [(0, 8), (0, -7)], [(2, [16, 31])]),
        ((16, 16), [(8, 8), (-7, -7)], []),
    ],
)
def test_what_is_offered(dims, shifts, expected):
    assert halos_of(rolled(dims, *shifts).module()) == expected


def test_rolls_of_a_roll_along_one_dimension_add_up():
    grid = Grid(20, 20)
    for _ in range(3):
        grid.add_rolled(0, 7, of=grid.terms[-1] if grid.terms else "x")
    # By 7, 14 (or -6) and 21 (or 1).
    assert halos_of(grid.module()) == [(3, [20, 33])]
    (error,) = verify_alternatives(
        HloEnv(grid.module()).get_alternatives("fusion-cuts")
    )
    assert error.absolute == 0


def test_what_was_rolled_back_stays():
    grid = Grid(20, 20).add_rolled(0, 3).add_rolled(0, -3, of="v3").add_rolled(0, 5)
    assert halos_of(grid.module()) == [(2, [20, 25])]


@pytest.mark.parametrize(
    "change",
    [
        ("slice={[0:20], [17:20]}", "slice={[0:20], [16:19]}"),
        ("slice={[0:20], [0:17]}", "slice={[0:20], [1:18]}"),
        ("slice={[0:20], [17:20]}", "slice={[0:20], [0:3]}"),
    ],
)
def test_other_concatenations_stay(change):
    text = rolled((20, 20), (0, 3), (0, 5)).module().to_text()
    assert text.count(change[0]) == 1
    assert halos_of(HloModule.from_text(text)) != []
    assert halos_of(HloModule.from_text(text.replace(*change))) == []


def test_parts_of_two_arrays_are_no_roll():
    grid = Grid(20, 20)
    grid.lines.append("y = f32[20,20] parameter(1)")
    for shift in (3, 5):
        first = grid.part("x", 1, 20 - shift, 20)
        second = grid.part("y", 1, 0, 20 - shift)
        grid.terms.append(grid.joined(f"{first}, {second}", 1))
    assert halos_of(grid.module()) == []


def test_strides_are_no_roll():
    grid = rolled((20, 20), (0, 3), (0, 5))
    text = grid.module().to_text()
    first, second = "slice={[0:20], [15:20]}", "slice={[0:20], [0:15]}"
    assert text.count(first) == text.count(second) == 1
    found = HloModule.from_text(
        text.replace("f32[20,20]{1,0} parameter(0)", "f32[20,35]{1,0} parameter(0)")
        .replace("[20,20]{1,0})->", "[20,35]{1,0})->")
        .replace(first, "slice={[0:20], [15:24:2]}")
        .replace(second, "slice={[0:20], [0:15]}")
    )
    assert halos_of(found) == []


@pytest.mark.parametrize("dtype", ["pred", "s8", "bf16", "f64", "c64", "u64", "s4"])
def test_all_types_are_moved_as_they_are(dtype):
    grid = rolled((24, 12), *CORNERS, dtype=dtype)
    whole = grid.type_of(grid.dims)
    values = ", ".join(grid.terms)
    entry = "\n".join(
        [*grid.lines, f"ROOT r = ({', '.join([whole] * 9)}) tuple({values})"]
    )
    module = HloModule.from_text(f"HloModule m\nENTRY main {{\n{entry}\n}}")
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    assert [each.choices[1].rule for each in alternatives] == ["halo"]
    (error,) = verify_alternatives(alternatives)
    assert error.absolute == 0


@pytest.mark.parametrize("seed", range(30))
def test_random_rolls_are_the_same_to_the_bit(seed):
    rng = random.Random(seed)
    dims = [rng.choice((1, 2, 5, 8, 16, 33)) for _ in range(rng.randint(1, 4))]
    while np.prod(dims) < 256:
        dims[rng.randrange(len(dims))] *= 2
    grid = Grid(*dims)
    values = ["x"]
    for _ in range(rng.randint(2, 12)):
        of = rng.choice(values)
        if rng.random() < 0.2:
            name = f"v{len(grid.lines)}"
            grid.lines.append(f"{name} = {grid.type_of(dims)} negate({of})")
        else:
            dimension = rng.randrange(len(dims))
            near = rng.choice((1, 2, dims[dimension] // 2, dims[dimension] - 1))
            name = grid.roll(of, dimension, near % dims[dimension])
        values.append(name)
        grid.terms += [name] if rng.random() < 0.7 else []
    grid.terms.append(values[-1])
    module = grid.module()
    env = HloEnv(module)
    alternatives = env.get_alternatives(
        Pass("fusion-cuts", repeated=False, bounded=False)
    )
    for error in verify_alternatives(alternatives):
        assert error.absolute == 0
    decided = alternatives.apply([1] * len(alternatives))
    x = np.random.default_rng(seed).standard_normal(dims).astype(np.float32)
    found, expected = (
        hloenv.compile(form, isolate=False)(x) for form in (decided, module)
    )
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("length", [63, 64, 65, 130, 200])
def test_a_long_chain_is_the_same(length):
    """Each roll is of the one before, and the last two are read."""
    grid, of = Grid(64, 100), "x"
    for _ in range(length):
        grid.terms, of = [*grid.terms[-1:], grid.roll(of, 1, 1)], of
        of = grid.terms[-1]
    module = grid.module()
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    assert [len(each.choices) for each in alternatives] == [2]
    (error,) = verify_alternatives(alternatives)
    assert error.absolute == 0


def test_what_a_choice_makes_dead_is_named_once():
    """Each roll reads the one before twice."""
    grid, of = Grid(16, 128), "x"
    for _ in range(60):
        of = grid.roll(of, 1, 1)
        grid.terms.append(of)
    (alternative,) = HloEnv(grid.module()).get_alternatives("fusion-cuts")
    dead = alternative.choices[1].makes_dead
    assert len(dead) == len(set(dead)) == 3 * 60


def test_too_many_rolls_stay():
    few, many = (
        rolled((2, 200), *[(0, shift) for shift in range(1, 1 + count)])
        for count in (128, 129)
    )
    assert halos_of(few.module()) == [(128, [2, 399])]
    assert halos_of(many.module()) == []


def test_time_grows_with_the_size_of_a_module():
    """As of steps that each roll what the one before made."""

    def seconds(steps):
        grid, of = Grid(16, 16), "x"
        for i in range(steps):
            parts = [grid.roll(of, 1, shift) for shift in (1, 2, 3)]
            whole = grid.type_of(grid.dims)
            grid.lines.append(f"a{i} = {whole} add({parts[0]}, {parts[1]})")
            grid.lines.append(f"b{i} = {whole} add(a{i}, {parts[2]})")
            of = f"b{i}"
        grid.terms.append(of)
        env = HloEnv(grid.module())
        started = time.perf_counter()
        only = Pass("fusion-cuts", repeated=False, bounded=False)
        assert len(env.get_alternatives(only)) == steps
        return time.perf_counter() - started

    seconds(10)
    # Five times as many, with room for other processes.
    few, many = (min(seconds(steps) for _ in range(3)) for steps in (200, 1000))
    assert many < 15 * few


def test_rolls_of_numbers_that_the_module_has_stay():
    text = rolled((20, 20), (0, 3), (0, 5)).module().to_text()
    found = text.replace("parameter(0)", "iota(), iota_dimension=1")
    found = found.replace("(x: f32[20,20]) -> ", "() -> ")
    found = found.replace("{(f32[20,20]{1,0})->", "{()->")
    assert halos_of(HloModule.from_text(found)) == []


@pytest.mark.parametrize("where", ["while", "conditional", "call"])
def test_rolls_inside_of_other_computations(where):
    grid = rolled((24, 24), *CORNERS)
    whole = grid.type_of(grid.dims)
    inner = grid.module().to_text().split("ENTRY")[1].replace("ROOT %r ", "ROOT %r ")
    body = "%step" + inner[inner.index(" (") :]
    if where == "while":
        body = body.replace("ROOT %r =", "%r =").replace(
            f"(x: {whole}) -> {whole}",
            f"(s: (s32[], {whole})) -> (s32[], {whole})",
        )
        first, rest = body.split("\n", 1)
        lines = [line for line in rest.splitlines() if " parameter(0)" not in line]
        head = [
            first,
            f"  %s = (s32[], {whole}) parameter(0)",
            "  %i = s32[] get-tuple-element(%s), index=0",
            f"  %x = {whole} get-tuple-element(%s), index=1",
            "  %one = s32[] constant(1)",
            "  %next = s32[] add(%i, %one)",
        ]
        end = lines.index("}")
        last = f"  ROOT %both = (s32[], {whole}) tuple(%next, %r)"
        body = "\n".join([*head, *lines[:end], last, "}"])
        test = f"""
        %test (s: (s32[], {whole})) -> pred[] {{
          %s = (s32[], {whole}) parameter(0)
          %i = s32[] get-tuple-element(%s), index=0
          %three = s32[] constant(3)
          ROOT %c = pred[] compare(%i, %three), direction=LT
        }}"""
        entry = f"""
          %zero = s32[] constant(0)
          %t = (s32[], {whole}) tuple(%zero, %x)
          %w = (s32[], {whole}) while(%t), condition=%test, body=%step
          ROOT %r = {whole} get-tuple-element(%w), index=1"""
        body += test
    elif where == "conditional":
        entry = f"""
          %p = pred[] constant(true)
          ROOT %r = {whole} conditional(%p, %x, %x), true_computation=%step, \
false_computation=%other"""
        entry = entry.replace("\\\n", "")
        body += f"""
        %other (y: {whole}) -> {whole} {{
          %y = {whole} parameter(0)
          ROOT %n = {whole} negate(%y)
        }}"""
    else:
        entry = f"ROOT %r = {whole} call(%x), to_apply=%step"
    module = HloModule.from_text(
        f"HloModule m\n{body}\nENTRY %main (x: {whole}) -> {whole} {{\n"
        f"  %x = {whole} parameter(0)\n{entry}\n}}"
    )
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    assert [each.choices[1].rule for each in alternatives] == ["halo"]
    (error,) = verify_alternatives(alternatives)
    assert error.absolute == 0


@pytest.mark.parametrize(
    ("dims", "shifts", "is_taken"),
    [
        ((20, 150), CORNERS, True),
        ((20, 149), CORNERS, False),  # 2,980 numbers
        ((40, 128), [(0, 1), (0, -1)], True),
        ((40, 127), [(0, 1), (0, -1)], False),  # narrow rows
        ((100_000, 3), [(0, 1), (0, 2)], False),
        ((200, 16), CORNERS, True),
        ((200, 15), CORNERS, False),
        # Not rolled along them.
        ((50, 50, 3), [(1, 1, 0), (1, 0, 0)], True),
        ((50, 50, 3), [(1, 1, 0), (1, 0, 1)], False),
    ],
)
def test_known_forms_takes_it_for_large_arrays_and_long_rows(dims, shifts, is_taken):
    module = rolled(dims, *shifts).module()
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    (decision,) = get_policy("known-forms")(alternatives)
    assert (decision > 0) == is_taken


@pytest.mark.jax
def test_a_sum_of_neighbours_is_decided():
    import jax
    import jax.numpy as jnp

    def life(grid):
        near = sum(jnp.roll(grid, by, (0, 1)) for by in CORNERS if any(by))
        return jnp.where(grid == 1, (near == 2) | (near == 3), near == 3)

    x = np.random.default_rng(0).integers(0, 2, (1024, 512), np.int32)
    decided = hloenv.jit(life)
    for _ in range(2):
        np.testing.assert_array_equal(decided(x), jax.jit(life)(x))
    assert "fusion-cuts/halo" in decided.explain()
