# SPDX-License-Identifier: Apache-2.0
"""What XLA's simplifier finds to be its operand is not kept in a call of its own.

The backend would have the call's result where the operand is.
"""

from __future__ import annotations

import random

import pytest

import hloenv
from hloenv.hlo.text import parse_text
from support.captures import capture


def _lines(*expressions: str) -> str:
    """Operations of `a` by name, of 1,000 float32 each; the last is `v`."""
    names = [f"e{i}" for i in range(len(expressions) - 1)]
    return "\n".join(
        f"{name} = f32[1000] {each}"
        for name, each in zip([*names, "v"], expressions, strict=True)
    )


def _joined(*ends: int, of: str = "a", to: str = "v") -> str:
    """Two parts of an array side by side: from `ends` 0 to 1, and from 2 to 3."""
    first, second = ends[:2], ends[2:]
    return (
        f"{to}l = f32[{first[1] - first[0]}] slice({of}), slice={{[{first[0]}:{first[1]}]}}\n"
        f"{to}h = f32[{second[1] - second[0]}] slice({of}), "
        f"slice={{[{second[0]}:{second[1]}]}}\n"
        f"{to} = f32[1000] concatenate({to}l, {to}h), dimensions={{0}}"
    )


@pytest.mark.parametrize(
    ("lines", "is_offered"),
    [
        (_lines("divide(a, twos)"), True),
        (_lines("divide(a, ones)"), False),
        (_lines("minimum(twos, a)", "divide(e0, ones)"), True),
        (_lines("maximum(a, a)", "minimum(e0, a)"), False),
        (_lines("power(a, ones)", "divide(e0, ones)"), False),
        (_lines("power(a, minuss)", "divide(ones, e0)"), False),
        (_lines("exponential(a)", "divide(e0, ones)"), True),
        (_lines("exponential(a)", "log(e0)"), False),
        (_lines("exponential(a)", "power(e0, ones)", "log(e1)"), False),
        (_lines("multiply(a, twos)", "multiply(e0, fractions)"), False),
        (_lines("multiply(a, twos)", "multiply(e0, twos)"), True),
        (_lines("add(a, larges)", "subtract(e0, larges)"), False),
        (_lines("add(a, twos)", "subtract(e0, fractions)"), True),
        (_lines("subtract(twos, a)", "subtract(twos, e0)"), False),
        (_lines("divide(ones, a)", "divide(ones, e0)"), False),
        (_lines("divide(a, twos)", "multiply(e0, fractions)"), True),
        (_lines("negate(a)", "divide(e0, minuss)"), False),
        (
            "w = s32[1000] bitcast-convert(a)\nv = f32[1000] bitcast-convert(w)",
            False,
        ),
        (
            "w = c64[1000] complex(a, fractions)\nn = c64[1000] negate(w)\n"
            "m = c64[1000] negate(n)\nv = f32[1000] real(m)",
            False,
        ),
        (
            "w = s32[1000] bitcast-convert(a)\np = pred[1000] compare(w, w), "
            "direction=EQ\nv = f32[1000] select(p, a, fractions)",
            False,
        ),
        (_joined(500, 1000, 0, 500), True),
        (_joined(0, 500, 500, 1000), False),
        (
            _joined(999, 1000, 0, 999, to="w") + "\n" + _joined(1, 1000, 0, 1, of="w"),
            False,
        ),
    ],
)
def test_what_may_be_its_operand_is_not_kept(lines, is_offered) -> None:
    # The simplifier would make a call of it that returns its parameter.
    constants = "".join(
        f"{name} = f32[] constant({number})\n"
        f"{name}s = f32[1000] broadcast({name}), dimensions={{}}\n"
        for name, number in (
            *(("minus", -1), ("fraction", 0.5), ("one", 1), ("two", 2)),
            ("large", 1e6),
        )
    )
    parts = [f"p{i} = f32[980] slice(v), slice={{[{i}:{980 + i}]}}" for i in range(9)]
    sums = [f"sum{i} = f32[980] add(sum{i - 1}, p{i})" for i in range(1, 9)]
    text = "\n".join(
        [
            *("a = f32[1000] parameter(0)", constants, lines, *parts),
            *("sum0 = f32[980] negate(p0)", *sums, "ROOT r = f32[980] negate(sum8)"),
        ]
    )
    alternatives = capture(f"HloModule m\nENTRY e {{\n{text}\n}}\n", "fusion-cuts")
    assert [each.original for each in alternatives] == ["v"] * is_offered


def test_the_logarithm_of_an_exponential_of_complex_numbers_is_not_kept() -> None:
    places = range(14)
    parts = [f"p{i} = c64[980] slice(v), slice={{[{i}:{980 + i}]}}" for i in places]
    sums = [f"t{i} = c64[980] add(t{i - 1}, p{i})" for i in places[1:]]
    lines = [
        *("a = c64[1000] parameter(0)", "e = c64[1000] exponential(a)"),
        *("v = c64[1000] log(e)", *parts, "t0 = c64[980] negate(p0)", *sums),
        "ROOT r = c64[980] negate(t13)",
    ]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    assert len(capture(text, "fusion-cuts")) == 0
    # What does not undo it may be kept.
    assert len(capture(text.replace("log(e)", "sine(e)"), "fusion-cuts")) == 1


# Operations on x, and a constant or x again, of floats; each undoes another one.
FLOATS = [
    *("add({x}, {c})", "subtract({x}, {c})", "subtract({c}, {x})"),
    *("multiply({x}, {c})", "divide({x}, {c})", "divide({c}, {x})"),
    *("power({x}, {c})", "maximum({x}, a)", "minimum({x}, a)", "negate({x})"),
    *("exponential({x})", "log({x})", "reverse({x}), dimensions={{0}}"),
]
SIMPLIFIED = ["algsimp", "constant_folding", "cse", "reshape-mover"] * 3


def _random_text(rng: random.Random) -> str:
    """A module in which a chain of operations on `a` is read at fourteen places."""
    lines = ["a = f32[1000] parameter(0)"]
    for i, number in enumerate(("0", "1", "-1", "2", "0.5")):
        lines += [f"n{i} = f32[] constant({number})"]
        lines += [f"c{i} = f32[1000] broadcast(n{i}), dimensions={{}}"]
    name = "a"
    count = rng.randint(2, 4)
    for i in range(count):
        operation = rng.choice(FLOATS).format(x=name, c=f"c{rng.randrange(5)}")
        name = "v" if i == count - 1 else f"e{i}"
        lines.append(f"{name} = f32[1000] {operation}")
    for i in range(14):
        lines.append(f"p{i} = f32[980] slice(v), slice={{[{i}:{980 + i}]}}")
    lines.append("t0 = f32[980] negate(p0)")
    lines += [f"t{i} = f32[980] add(t{i - 1}, p{i})" for i in range(1, 14)]
    body = "\n".join([*lines, "ROOT r = f32[980] negate(t13)"])
    return f"HloModule m\nENTRY e {{\n{body}\n}}\n"


def test_no_random_call_returns_its_parameter() -> None:
    rng = random.Random(0)
    num_calls = 0
    for _ in range(400):
        text = _random_text(rng)
        alternatives = capture(text, hloenv.Pass("fusion-cuts", summed=False))
        decided = alternatives.apply([1] * len(alternatives))
        simple = parse_text(hloenv.run_passes(decided, *SIMPLIFIED).module.to_text())
        for each in simple.computations[simple.entry].instructions:
            if each.opcode == "call":
                called = simple.computations[each.callees[0]].instructions
                assert called[-1].opcode != "parameter", text
                num_calls += 1
    assert num_calls > 100
