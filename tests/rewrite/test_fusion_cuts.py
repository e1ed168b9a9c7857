# SPDX-License-Identifier: Apache-2.0
"""Arrays that are kept in memory, as fusion would compute them again."""

from __future__ import annotations

import random

import numpy as np
import pytest

import hloenv
from hloenv import HloEnv, HloModule, verify_alternatives
from hloenv.hlo.text import parse_text
from hloenv.jax.auto import forms_of
from hloenv.policies import get_policy
from hloenv.runtime.jaxlib.stablehlo import program_of

# The gradient of a stencil: `g` is read at three places.
STENCIL = """
  x = f32[64,64] parameter(0)
  zero = f32[] constant(0)
  two = f32[] constant(2)
  twos = f32[64,64] broadcast(two), dimensions={}
  t = f32[64,64] tanh(x)
  d = f32[64,64] multiply(t, twos)
  g = f32[64,64] multiply(d, t)
  n = f32[64,64] negate(g)
  p = f32[66,64] pad(n, zero), padding=2_0x0_0
  q = f32[66,64] pad(g, zero), padding=0_2x0_0
  s = f32[66,64] add(p, q)
  r = f32[66,64] pad(g, zero), padding=1_1x0_0
  ROOT sum = f32[66,64] add(s, r)
"""


def module_of(entry: str, before: str = "") -> HloModule:
    return HloModule.from_text(f"HloModule m\n{before}\nENTRY main {{{entry}}}")


def cuts_of(module: HloModule) -> dict[str, str]:
    """The rule for each array that is offered."""
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    return {each.original: each.choices[1].rule for each in alternatives}


def test_a_shared_array_is_kept_and_not_what_it_is_computed_of() -> None:
    assert cuts_of(module_of(STENCIL)) == {"g": "repeated"}


def test_a_call_of_what_nothing_else_needs_takes_its_place() -> None:
    alternatives = HloEnv(module_of(STENCIL)).get_alternatives("fusion-cuts")
    (error,) = verify_alternatives(alternatives)
    assert error.absolute == 0
    text = parse_text(alternatives.apply([1]).to_text())
    entry = text.computations[text.entry].instructions
    (call,) = (each for each in entry if each.opcode == "call")
    (callee,) = call.callees
    assert sorted(each.opcode for each in text.computations[callee].instructions) == [
        *("broadcast", "constant", "multiply", "multiply", "parameter", "tanh")
    ]
    assert [entry[i].opcode for i in call.operands] == ["parameter"]
    readers = [each for each in entry if entry.index(call) in each.operands]
    assert sorted(each.opcode for each in readers) == ["negate", "pad", "pad"]


def test_what_others_need_is_computed_once() -> None:
    module = module_of(
        STENCIL.replace("add(s, r)", "add(s, r2)").replace(
            "ROOT",
            "u = f32[66,64] pad(t, zero), padding=1_1x0_0\n"
            "  r2 = f32[66,64] add(r, u)\n  ROOT",
        )
    )
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    decided = alternatives.apply([1] * len(alternatives))
    assert decided.opcode_counts()["tanh"] == 1


def test_an_array_of_very_many_readers_is_kept() -> None:
    # As a filter of 11x11 pixels, whose weights depend on these, has in its gradient.
    lines = [
        "x = f32[64,64] parameter(0)",
        "zero = f32[] constant(0)",
        "g = f32[64,64] tanh(x)",
    ]
    for tap in range(121):
        lines += [
            f"w{tap} = f32[64,64] parameter({tap + 1})",
            f"m{tap} = f32[64,64] multiply(w{tap}, g)",
            f"a{tap} = f32[64,64] add(m{tap}, w{tap})",
            f"p{tap} = f32[64,186] pad(a{tap}, zero), padding=0_0x{tap}_{122 - tap}",
        ]
        last = f"sum{tap - 1}" if tap else "p0"
        lines.append(f"sum{tap} = f32[64,186] add({last}, p{tap})")
    lines[-1] = f"ROOT {lines[-1]}"
    assert cuts_of(module_of("\n".join(lines)))["g"] == "repeated"


@pytest.mark.parametrize("step", [0, 2])
def test_slices_of_one_part_are_computed_once(step: int) -> None:
    lines = ["x = f32[64,8] parameter(0)", "f = f32[64,8] tanh(x)"]
    for k in range(3):
        lines += [
            f"y{k} = f32[64,8] parameter({k + 1})",
            f"z{k} = f32[64,8] multiply(f, y{k})",
            f"c{k} = f32[60,8] slice(z{k}), slice={{[{k * step}:{k * step + 60}], [0:8]}}",
        ]
    lines += ["a = f32[60,8] add(c0, c1)", "ROOT b = f32[60,8] add(a, c2)"]
    assert cuts_of(module_of("\n".join(lines))) == ({"f": "repeated"} if step else {})


def test_an_array_reads_the_one_that_is_kept_before_it() -> None:
    # z reads y in place, which slices read, too.
    lines = [
        *("x = f32[1000] parameter(0)", "y = f32[1000] tanh(x)"),
        *("z = f32[1000] exponential(y)", "zero = f32[] constant(0)"),
    ]
    for i in range(3):
        for name in "yz":
            part = f"slice({name}), slice={{[{i}:{980 + i}]}}"
            lines.append(f"{name}{i} = f32[980] {part}")
    lines += [
        *("a0 = f32[980] add(y0, z0)", "a1 = f32[980] add(y1, z1)"),
        *("a2 = f32[980] add(y2, z2)", "b = f32[980] multiply(a0, a1)"),
        "ROOT r = f32[980] multiply(a2, b)",
    ]
    alternatives = HloEnv(module_of("\n".join(lines))).get_alternatives("fusion-cuts")
    decided = alternatives.apply([1, 1])
    assert decided.opcode_counts()["tanh"] == 1
    assert decided.opcode_counts()["call"] == 2


@pytest.mark.compile
@pytest.mark.jax
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
def test_a_kept_array_shares_no_memory_with_an_equal_one(engine) -> None:
    # One reader has `u` in place, and another at other places, through a call. Where
    # the call returned its parameter, XLA wrote a fusion of both to its memory.
    import jax.numpy as jnp

    def stencil(u):
        p = jnp.pad(u, 1)
        return u + p[:-2, 1:-1] + p[2:, 1:-1] + p[1:-1, :-2] + p[1:-1, 2:]

    def finer(u):
        return jnp.repeat(jnp.repeat(u, 2, 0), 2, 1)

    def cycle(f):
        u = stencil(stencil(f))
        n = u.shape[0] // 2
        coarse = u.reshape(n, 2, n, 2).mean((1, 3))
        return finer(stencil(stencil(u + finer(coarse))))

    given = np.random.default_rng(0).standard_normal((128, 128), dtype=np.float32)
    module = HloModule.from_jax(cycle, given)
    decided = forms_of(module)
    assert decided is not None
    assert decided.accepted["fusion-cuts/repeated"] >= 3
    assert decided.accepted["reduce-forms/chain"] == 1
    found, wanted = (
        hloenv.compile(each, isolate=False, engine=engine)(given)[0]
        for each in (decided.applied, module)
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def _reads(expression: str, *, shifts: int, size: int = 1000) -> HloModule:
    """The sum of so many slices of an expression of `a`, at different places."""
    lines = [f"a = f32[{size}] parameter(0)", f"v = f32[{size}] {expression}"]
    lines += [
        f"part{i} = f32[{size - 20}] slice(v), slice={{[{i}:{size - 20 + i}]}}"
        for i in range(shifts)
    ]
    lines.append(f"t0 = f32[{size - 20}] negate(part0)")
    lines += [
        f"t{i} = f32[{size - 20}] add(t{i - 1}, part{i})" for i in range(1, shifts)
    ]
    lines += [f"ROOT r = f32[{size - 20}] negate(t{shifts - 1})"]
    return module_of("\n".join(lines))


@pytest.mark.parametrize(
    ("expression", "shifts", "is_offered"),
    [
        ("exponential(a)", 1, False),
        ("exponential(a)", 2, True),
        ("multiply(a, a)", 2, False),
        ("multiply(a, a)", 12, False),
        ("multiply(a, a)", 13, True),
        ("divide(a, a)", 3, False),
        ("divide(a, a)", 4, True),
    ],
)
def test_cost_and_number_of_readers_decide(expression, shifts, is_offered) -> None:
    module = _reads(expression, shifts=shifts)
    assert cuts_of(module) == ({"v": "repeated"} if is_offered else {})


def test_a_kept_array_calls_what_it_is_computed_by() -> None:
    before = "twice {\n  n = f32[] parameter(0)\n  ROOT m = f32[] add(n, n)\n}\n"
    lines = [
        "x = f32[1000] parameter(0)",
        "y = f32[1000] map(x), dimensions={0}, to_apply=twice",
        "v = f32[1000] tanh(y)",
        *(f"p{i} = f32[980] slice(v), slice={{[{i}:{980 + i}]}}" for i in range(3)),
        *("a = f32[980] add(p0, p1)", "ROOT r = f32[980] multiply(a, p2)"),
    ]
    alternatives = HloEnv(module_of("\n".join(lines), before)).get_alternatives(
        "fusion-cuts"
    )
    assert verify_alternatives(alternatives)
    decided = alternatives.apply([1])
    del alternatives
    decided.verify()
    assert HloModule.from_text(decided.to_text()).opcode_counts()["map"] == 1


def test_what_is_read_in_place_too_is_kept_itself() -> None:
    # As in the gradient of a function of differences.
    module = module_of("""
    x = f32[800] parameter(0)
    zero = f32[] constant(0)
    v = f32[800] tanh(x)
    n = f32[800] negate(v)
    part = f32[799] slice(n), slice={[1:800]}
    p = f32[800] pad(part, zero), padding=0_1
    ROOT r = f32[800] add(v, p)""")
    assert cuts_of(module) == {"v": "repeated"}


def test_parts_of_an_array_are_one_reader_together() -> None:
    lines = ["x = f32[800] parameter(0)", "v = f32[800] tanh(x)"]
    for i in range(8):
        ends = f"[{100 * i}:{100 * i + 100}]"
        lines.append(f"part{i} = f32[100] slice(v), slice={{{ends}}}")
    lines.append("t0 = f32[100] negate(part0)")
    lines += [f"t{i} = f32[100] add(t{i - 1}, part{i})" for i in range(1, 8)]
    module = module_of("\n".join([*lines, "ROOT r = f32[100] negate(t7)"]))
    assert cuts_of(module) == {}


def test_small_arrays_are_not_kept() -> None:
    assert cuts_of(_reads("tanh(a)", shifts=4, size=355)) == {"v": "repeated"}
    assert cuts_of(_reads("tanh(a)", shifts=4, size=255)) == {}


def _step(before: str, after: str) -> str:
    return f"""
    w{after} = f32[1002] pad({before}, zero), padding=1_1
    l{after} = f32[1000] slice(w{after}), slice={{[0:1000]}}
    c{after} = f32[1000] slice(w{after}), slice={{[1:1001]}}
    h{after} = f32[1000] slice(w{after}), slice={{[2:1002]}}
    m{after} = f32[1000] add(l{after}, h{after})
    e{after} = f32[1000] exponential(c{after})
    {after} = f32[1000] multiply(m{after}, e{after})"""


def test_readers_of_one_reader_count() -> None:
    steps = _step("x", "y") + _step("y", "z")
    module = module_of(f"""
    x = f32[1000] parameter(0)
    zero = f32[] constant(0){steps}
    ROOT r = f32[1000] negate(z)""")
    # One pad reads y, and three slices that.
    assert cuts_of(module) == {"y": "repeated"}
    assert verify_alternatives(HloEnv(module).get_alternatives("fusion-cuts"))


def _rolled(shift: int) -> str:
    return f"""
    a{shift} = f32[{shift}] slice(v), slice={{[{1000 - shift}:1000]}}
    b{shift} = f32[{1000 - shift}] slice(v), slice={{[0:{1000 - shift}]}}
    c{shift} = f32[1000] concatenate(a{shift}, b{shift}), dimensions={{0}}"""


def test_the_slices_of_one_concatenation_are_one_reader() -> None:
    head = "x = f32[1000] parameter(0)\nv = f32[1000] tanh(x)"
    one = f"{head}{_rolled(1)}\nROOT r = f32[1000] subtract(c1, v)"
    assert cuts_of(module_of(one)) == {}
    two = f"{head}{_rolled(1)}{_rolled(3)}\nd = f32[1000] subtract(c1, c3)"
    both = f"{two}\nROOT r = f32[1000] add(d, v)"
    assert cuts_of(module_of(both)) == {"v": "repeated", "c3": "halo"}


def _bordered(places: int, *, ending: str = "") -> HloModule:
    """Sums of slices of an array with a border of repeated rows."""
    lines = [
        "x = f32[20,30] parameter(0)",
        "top = f32[1,30] slice(x), slice={[0:1], [0:30]}",
        "below = f32[1,30] slice(x), slice={[19:20], [0:30]}",
        "v = f32[22,30] concatenate(top, x, below), dimensions={0}",
        "t0 = f32[20,30] negate(x)",
    ]
    for i in range(places):
        start = i % 3
        rows = f"[{start}:{start + 20}]"
        lines += [
            f"part{i} = f32[20,30] slice(v), slice={{{rows}, [0:30]}}",
            f"t{i + 1} = f32[20,30] subtract(part{i}, t{i})",
        ]
    return module_of(
        "\n".join([*lines, ending, f"ROOT r = f32[20,30] negate(t{places})"])
    )


def test_an_array_with_its_border_is_kept_where_several_slices_read_it() -> None:
    assert cuts_of(_bordered(3)) == {}
    assert cuts_of(_bordered(4)) == {"v": "repeated"}
    (error,) = verify_alternatives(HloEnv(_bordered(4)).get_alternatives("fusion-cuts"))
    assert error.absolute == 0


def test_an_array_whose_parts_are_moved_further_is_not_kept() -> None:
    ending = "w = f32[30,22] transpose(v), dimensions={1,0}"
    module = _bordered(4, ending=ending)
    text = module.to_text().replace("ROOT %r = ", "%r = ")
    last = "  ROOT %both = (f32[20,30], f32[30,22]) tuple(%r, %w)\n}"
    text = text.replace("(f32[20,30]{1,0})->f32[20,30]{1,0}", "MARK", 1)
    text = text.replace("-> f32[20,30] {", "-> (f32[20,30], f32[30,22]) {")
    text = text.replace(", entry_computation_layout={MARK}", "")
    head, _ = text.rsplit("}", 1)
    assert cuts_of(HloModule.from_text(head + last)) == {}


def test_disjoint_parts_of_a_concatenation_are_one_reading() -> None:
    lines = ["a = f32[400] parameter(0)", "b = f32[400] parameter(1)"]
    lines.append("v = f32[800] concatenate(a, b), dimensions={0}")
    for i in range(8):
        ends = f"[{100 * i}:{100 * i + 100}]"
        lines.append(f"part{i} = f32[100] slice(v), slice={{{ends}}}")
    lines.append("t0 = f32[100] negate(part0)")
    lines += [f"t{i} = f32[100] add(t{i - 1}, part{i})" for i in range(1, 8)]
    assert cuts_of(module_of("\n".join([*lines, "ROOT r = f32[100] negate(t7)"]))) == {}


@pytest.mark.parametrize(
    ("padding", "function", "is_offered"),
    [
        ("0_0x1_1x1_1x0_0", "tanh", True),
        ("0_0x1_1x1_1x0_0", "sqrt", False),
        ("0_0x1_0x1_0x0_0", "tanh", False),
        ("0_0x0_0x1_1x1_1", "tanh", False),
        ("0_0x0_0x1_1x0_0", "tanh", False),
    ],
)
def test_functions_that_are_padded_along_several_dimensions(
    padding, function, is_offered
) -> None:
    module = module_of(f"""
    x = f32[2,8,8,32] parameter(0)
    zero = f32[] constant(0)
    v = f32[2,8,8,32] {function}(x)
    ROOT r = pad(v, zero), padding={padding}""")
    assert cuts_of(module) == ({"v": "bounded"} if is_offered else {})


def test_remainders_of_integers_in_a_concatenation_stay() -> None:
    module = module_of("""
    x = s32[400,32] parameter(0)
    y = s32[400,32] parameter(1)
    v = s32[400,32] remainder(x, y)
    ROOT r = s32[400,64] concatenate(v, y), dimensions={1}""")
    assert cuts_of(module) == {}


@pytest.mark.parametrize(
    ("width", "is_offered"), [(32, True), (33, False), (8, True), (7, False)]
)
def test_functions_in_concatenations_of_short_rows(width, is_offered) -> None:
    module = module_of(f"""
    x = f32[400,{width}] parameter(0)
    y = f32[400,8] parameter(1)
    v = f32[400,{width}] tanh(x)
    ROOT r = f32[400,{width + 8}] concatenate(v, y), dimensions={{1}}""")
    assert cuts_of(module) == ({"v": "bounded"} if is_offered else {})


@pytest.mark.parametrize(
    ("width", "operation", "is_offered"),
    [(3, "abs", True), (7, "abs", True), (33, "abs", False), (3, "reverse", False)],
)
def test_functions_beside_what_they_are_of(width, operation, is_offered) -> None:
    # As of points, and their sines. Many short parts are slow anyway.
    module = module_of(
        f"""
    x = f32[400,{width}] parameter(0)
    y = f32[400,2,4] parameter(1)
    a = f32[400,2,4] {operation}(y)REVERSED
    b = f32[400,8] reshape(a)
    v = f32[400,8] sine(b)
    ROOT r = f32[400,{width + 8}] concatenate(x, v), dimensions={{1}}""".replace(
            "REVERSED", ", dimensions={0}" if operation == "reverse" else ""
        )
    )
    assert cuts_of(module) == ({"v": "bounded"} if is_offered else {})


@pytest.mark.parametrize(
    ("operation", "is_offered"),
    [
        ("clamp(low, e, low)", False),
        ("clamp(lows, e, lows)", True),
        ("select(is_low, e, x)", False),
    ],
)
def test_selections_by_scalars_stay(operation, is_offered) -> None:
    # XLA cannot compile such an operation in a kernel of its own.
    module = module_of(f"""
    x = f32[64,64] parameter(0)
    low = f32[] parameter(1)
    is_low = pred[] parameter(2)
    lows = f32[64,64] broadcast(low), dimensions={{}}
    e = f32[64,64] exponential(x)
    v = f32[64,64] {operation}
    a = f32[64,64] reverse(v), dimensions={{0}}
    b = f32[64,64] reverse(v), dimensions={{1}}
    ROOT r = f32[64,64] add(a, b)""")
    assert cuts_of(module) == ({"v": "repeated"} if is_offered else {})


def test_loops_are_looked_into() -> None:
    body = """
    body {
      state = (s32[], f32[66,64]) parameter(0)
      i = s32[] get-tuple-element(state), index=0
      y = f32[66,64] get-tuple-element(state), index=1
      one = s32[] constant(1)
      j = s32[] add(i, one)
      x = f32[64,64] slice(y), slice={[1:65], [0:64]}
      STENCIL
      ROOT next = (s32[], f32[66,64]) tuple(j, sum)
    }
    cond {
      s = (s32[], f32[66,64]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      ten = s32[] constant(10)
      ROOT c = pred[] compare(i, ten), direction=LT
    }"""
    stencil = STENCIL.replace("x = f32[64,64] parameter(0)", "")
    body = body.replace("STENCIL", stencil.replace("ROOT ", ""))
    module = module_of(
        """
    y = f32[66,64] parameter(0)
    i = s32[] constant(0)
    t = (s32[], f32[66,64]) tuple(i, y)
    w = (s32[], f32[66,64]) while(t), condition=cond, body=body
    ROOT r = f32[66,64] get-tuple-element(w), index=1""",
        body,
    )
    assert cuts_of(module) == {"g": "repeated"}


def test_long_expressions_with_many_readers_end() -> None:
    lines = ["x = f32[1000] parameter(0)", "v0 = f32[1000] tanh(x)"]
    for i in range(1, 1200):
        lines.append(f"flip{i} = f32[1000] reverse(v{i - 1}), dimensions={{0}}")
        lines.append(f"v{i} = f32[1000] add(v{i - 1}, flip{i})")
    lines.append("ROOT r = f32[1000] negate(v1199)")
    # The last ones have few enough readers to be counted.
    assert len(cuts_of(module_of("\n".join(lines)))) > 50


@pytest.mark.parametrize(
    ("rows", "expected"), [(31, []), (32, ["g"]), (2**21, ["g"]), (2**22 + 1, [])]
)
def test_known_forms_keeps_what_is_large_and_has_a_place(rows, expected) -> None:
    module = module_of(
        STENCIL.replace("[64,64]", f"[{rows},64]").replace(
            "[66,64]", f"[{rows + 2},64]"
        )
    )
    alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    decisions = get_policy("known-forms")(alternatives)
    taken = [
        each.original
        for each, decision in zip(alternatives, decisions, strict=True)
        if decision > 0
    ]
    assert taken == expected


def test_a_cut_comes_before_the_form_of_its_function() -> None:
    text = """
    x = f32[200,100] parameter(0)
    v = f32[200,100] cosine(x)
    a = f32[200,100] reverse(v), dimensions={0}
    b = f32[200,100] reverse(v), dimensions={1}
    ROOT r = f32[200,100] add(a, b)"""
    env = HloEnv(module_of(text))
    alternatives = env.get_alternatives("math-forms", "fusion-cuts")
    (decision,) = get_policy("known-forms")(alternatives)
    assert alternatives[0].choices[decision].rule == "repeated"
    env.apply_alternatives([decision], alternatives)
    alternatives = env.get_alternatives("math-forms", "fusion-cuts")
    (decision,) = get_policy("known-forms")(alternatives)
    assert alternatives[0].choices[decision].rule == "periodic"


def _random_grid(rng: random.Random) -> HloModule:
    """Functions, sums, rolls, shifts and turns of 24x24 numbers."""
    whole = "f32[24,24]"
    lines = [
        *(f"p{i} = {whole} parameter({i})" for i in (0, 1)),
        "zero = f32[] constant(0.5)",
    ]
    values = ["p0", "p1"]
    for i in range(rng.randint(8, 30)):
        name, x, y = f"v{i}", rng.choice(values[-6:]), rng.choice(values[-8:])
        dim, by = rng.randint(0, 1), rng.randint(1, 3)

        def part(start: int, end: int, dim: int = dim, x: str = x) -> str:
            sizes = ["24", "24"]
            ends = ["[0:24]", "[0:24]"]
            sizes[dim], ends[dim] = str(end - start), f"[{start}:{end}]"
            return f"f32[{','.join(sizes)}] slice({x}), slice={{{', '.join(ends)}}}"

        padding = ["0_0", "0_0"]
        padding[dim] = f"{by - 1}_1"
        kinds = {
            rng.choice(("tanh", "exponential", "sine", "negate", "sqrt")): [f"({x})"],
            rng.choice(("add", "subtract", "multiply", "divide")): [f"({x}, {y})"],
            "reverse": [f"({x}), dimensions={{{dim}}}"],
            "transpose": [f"({x}), dimensions={{1,0}}"],
            "concatenate": [
                f"(a{i}, b{i}), dimensions={{{dim}}}",
                f"a{i} = {part(by, 24)}",
                f"b{i} = {part(0, by)}",
            ],
            "pad": [
                f"(a{i}, zero), padding={'x'.join(padding)}",
                f"a{i} = {part(by, 24)}",
            ],
        }
        opcode = rng.choice(list(kinds))
        rest, *before = kinds[opcode]
        lines += [*before, f"{name} = {whole} {opcode}{rest}"]
        values.append(name)
    last = f"{values[-1]}, {rng.choice(values)}"
    return module_of("\n".join([*lines, f"ROOT r = ({whole}, {whole}) tuple({last})"]))


@pytest.mark.compile
@pytest.mark.parametrize("seed", range(12))
def test_random_grids_are_the_same(seed) -> None:
    rng = random.Random(seed)
    alternatives = []
    while not len(alternatives):
        module = _random_grid(rng)
        alternatives = HloEnv(module).get_alternatives("fusion-cuts")
    decided = alternatives.apply([1] * len(alternatives))
    inputs = np.random.default_rng(seed).random((2, 24, 24), np.float32) + 0.1
    expected, found = (
        hloenv.compile(each, isolate=False)(*inputs) for each in (module, decided)
    )
    for one, other in zip(expected, found, strict=True):
        scale = np.abs(one[np.isfinite(one)]).max(initial=1)
        np.testing.assert_allclose(other, one, rtol=1e-3, atol=1e-4 * scale)


@pytest.mark.jax
def test_what_is_kept_is_neither_fused_with_its_readers_nor_copied() -> None:
    import jax

    alternatives = HloEnv(module_of(STENCIL)).get_alternatives("fusion-cuts")
    x = np.zeros((64, 64), np.float32)
    texts = [
        jax.jit(program_of(alternatives.apply([choice]))).lower(x).compile().as_text()
        for choice in (0, 1)
    ]
    together = [
        any(" tanh(" in part and " pad(" in part for part in text.split("\n}\n"))
        for text in texts
    ]
    assert together == [True, False]
    assert [text.count(" copy(") for text in texts] == [0, 0]


@pytest.mark.jax
def test_a_gradient_of_a_stencil_keeps_what_its_readers_share() -> None:
    import jax
    import jax.numpy as jnp

    def action(x):
        near = sum(jnp.roll(x, by, axis) for by in (1, -1) for axis in (0, 1))
        return jnp.sum(jnp.tanh(4 * x - near) ** 2)

    x = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    decided = hloenv.jit(jax.grad(action))
    expected = jax.jit(jax.grad(action))(x)
    np.testing.assert_allclose(decided(x), expected, rtol=1e-4, atol=1e-4)
    assert "fusion-cuts/repeated" in decided.explain()
