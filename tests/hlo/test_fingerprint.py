# SPDX-License-Identifier: Apache-2.0

"""Properties of a module that change or do not change its fingerprint."""

from __future__ import annotations

import itertools

import pytest

from hloenv.hlo.module import HloModule
from support.paths import TESTDATA
from support.run_child import RunChild

HLO = TESTDATA / "hlo"

BASE = """HloModule base, entry_computation_layout={(f32[2,3]{1,0}, f32[2,3]{1,0})->f32[2,3]{1,0}}

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT sum = f32[] add(a, b)
}

ENTRY main {
  x = f32[2,3]{1,0} parameter(0)
  y = f32[2,3]{1,0} parameter(1)
  zero = f32[] constant(0)
  e = f32[2,3]{1,0} exponential(x)
  s = f32[2,3]{1,0} sine(x)
  less = pred[2,3]{1,0} compare(e, s), direction=LT
  select = f32[2,3]{1,0} select(less, e, y)
  r = f32[2]{0} reduce(select, zero), dimensions={1}, to_apply=add
  wide = f32[2,3]{1,0} broadcast(r), dimensions={0}
  c = f32[2,3]{1,0} custom-call(wide), custom_call_target="f", backend_config="b"
  ROOT out = f32[2,3]{1,0} subtract(c, select)
}
"""


def _fingerprint(text: str) -> str:
    return HloModule.from_text(text).fingerprint()


def _changed(*pairs: tuple[str, str]) -> str:
    text = BASE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_changed(("HloModule base", "HloModule other")), id="module name"),
        pytest.param(
            _changed((" e = ", " q = "), ("(e, ", "(q, "), (" e, y", " q, y")),
            id="instruction name",
        ),
        pytest.param(
            _changed(("add {", "plus {"), ("to_apply=add", "to_apply=plus")),
            id="computation name",
        ),
        pytest.param(
            _changed(("sine(x)", 'sine(x), metadata={op_name="s" source_line=3}')),
            id="metadata",
        ),
        pytest.param(
            _changed(("  ROOT out", "  dead = f32[2,3]{1,0} negate(e)\n  ROOT out")),
            id="dead code",
        ),
        pytest.param(
            _changed(
                ("  s = f32[2,3]{1,0} sine(x)\n", ""),
                ("  e = ", "  s = f32[2,3]{1,0} sine(x)\n  e = "),
            ),
            id="order",
        ),
        pytest.param(
            _changed(
                (
                    "ENTRY main",
                    "unused {\n  ROOT v = f32[] parameter(0)\n}\n\nENTRY main",
                )
            ),
            id="dead computation",
        ),
    ],
)
def test_ignores(text: str) -> None:
    assert _fingerprint(text) == _fingerprint(BASE)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(_changed(("sine(x)", "cosine(x)")), id="opcode"),
        pytest.param(_changed(("sine(x)", "sine(y)")), id="operand"),
        pytest.param(_changed(("(c, select)", "(select, c)")), id="operand order"),
        pytest.param(_changed(("direction=LT", "direction=LE")), id="attribute"),
        pytest.param(_changed(("constant(0)", "constant(-0.0)")), id="literal"),
        pytest.param(
            _changed(
                ("parameter(0)\n  y", "parameter(1)\n  y"),
                ("y = f32[2,3]{1,0} parameter(1)", "y = f32[2,3]{1,0} parameter(0)"),
            ),
            id="parameter numbers",
        ),
        pytest.param(_changed(('"f"', '"g"')), id="custom call target"),
        pytest.param(_changed(('"b"', '"d"')), id="backend config"),
        pytest.param(
            _changed(('"f"', '"f", custom_call_has_side_effect=true')),
            id="side effect",
        ),
        pytest.param(
            _changed(("sum = f32[] add", "sum = f32[] multiply")),
            id="called computation",
        ),
        pytest.param(_changed(("e = f32[2,3]{1,0}", "e = f32[2,3]{0,1}")), id="layout"),
        pytest.param(
            _changed(("->f32[2,3]{1,0}}", "->f32[2,3]{0,1}}")), id="entry layout"
        ),
        pytest.param(
            _changed(
                (
                    "->f32[2,3]{1,0}}",
                    "->f32[2,3]{1,0}}, input_output_alias={ {}: (0, {}, may-alias) }",
                )
            ),
            id="aliasing",
        ),
        pytest.param(
            _changed(
                ("  s = f32", "  e2 = f32[2,3]{1,0} exponential(x)\n  s = f32"),
                ("select(less, e, y)", "select(less, e2, y)"),
            ),
            id="sharing",
        ),
        pytest.param(
            _changed(("sine(x)", "sine(x), sharding={replicated}")), id="sharding"
        ),
        pytest.param(
            _changed(("sine(x)", 'sine(x), frontend_attributes={a="b"}')),
            id="frontend attributes",
        ),
        pytest.param(
            _changed(("sine(x)", "sine(x), control-predecessors={e}")),
            id="control dependencies",
        ),
        pytest.param(
            _changed(("HloModule base", "HloModule base, replica_count=2")),
            id="replicas",
        ),
        pytest.param(
            _changed(("HloModule base", "HloModule base, is_scheduled=true")),
            id="schedule",
        ),
        pytest.param(
            _changed(
                (
                    "  ROOT out",
                    '  effect = () custom-call(e), custom_call_target="g",'
                    " custom_call_has_side_effect=true\n  ROOT out",
                )
            ),
            id="a side effect that nothing reads",
        ),
    ],
)
def test_sees(text: str) -> None:
    assert _fingerprint(text) != _fingerprint(BASE)


def test_sees_the_order_of_a_schedule() -> None:
    scheduled = _changed(("HloModule base", "HloModule base, is_scheduled=true"))
    lines = scheduled.splitlines(keepends=True)
    e = next(i for i, line in enumerate(lines) if line.startswith("  e = "))
    lines[e], lines[e + 1] = lines[e + 1], lines[e]
    assert _fingerprint("".join(lines)) != _fingerprint(scheduled)


def test_sees_the_payload_of_a_nan() -> None:
    nan = BASE.replace("constant(0)", "constant(nan)")
    payload = BASE.replace("constant(0)", "constant(nan(0x400001))")
    assert _fingerprint(nan) != _fingerprint(payload)


def test_is_the_same_in_another_process(run_child: RunChild) -> None:
    names = ["loop", "effects_tokens", "constants", "types_small", "shared_reducer"]
    expected = [HloModule.from_file(HLO / f"{n}.hlo").fingerprint() for n in names]
    child = run_child(
        "from hloenv.hlo.module import HloModule\n"
        f"for name in {names!r}:\n"
        f"    print(HloModule.from_file({str(HLO)!r} + f'/{{name}}.hlo').fingerprint())\n",
        env={"PYTHONHASHSEED": "7"},
    )
    assert child.stdout.split() == expected


def test_is_128_bits_in_hex() -> None:
    fingerprint = _fingerprint(BASE)
    assert len(fingerprint) == 32
    assert int(fingerprint, 16)


# Effects that nothing reads and that look alike, up to what they share.
EFFECTS = """HloModule effects

uniform {{
  lo = f32[] parameter(0)
  ROOT r = f32[2] rng(lo, lo), distribution=rng_uniform
}}

normal {{
  lo = f32[] parameter(0)
  ROOT r = f32[2] rng(lo, lo), distribution=rng_normal
}}

ENTRY main {{
  read = f32[] constant(0)
  zero = f32[] constant(0)
  one = f32[] constant(1)
  zero.2 = f32[] constant(0)
  one.2 = f32[] constant(1)
  {effects}
  ROOT out = f32[] negate(read)
}}
"""
LOOK_ALIKE = (
    "a = f32[2] rng(zero, one), distribution=rng_uniform",
    "b = f32[2] rng(zero, one), distribution=rng_uniform",
    "c = f32[2] rng(zero.2, one.2), distribution=rng_uniform",
    "d = f32[2] rng(read, one.2), distribution=rng_uniform",
)
CALLS = (
    "a = f32[2] call(zero), to_apply=uniform",
    "b = f32[2] call(zero.2), to_apply=normal",
    "c = f32[2] call(zero.2), to_apply=uniform",
)


@pytest.mark.parametrize("effects", [LOOK_ALIKE, CALLS], ids=["shared", "calls"])
def test_the_order_of_effects_that_look_alike_does_not_matter(
    effects: tuple[str, ...],
) -> None:
    found = set()
    for order in itertools.permutations(effects):
        module = HloModule.from_text(EFFECTS.format(effects="\n  ".join(order)))
        again = HloModule.from_text(module.to_text())
        found |= {module.fingerprint(), again.fingerprint()}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("read", "zero"),
        ("rng(zero.2", "rng(zero"),
        ("rng(zero, one)", "rng(zero, zero)"),
    ],
)
def test_what_effects_share_matters(old: str, new: str) -> None:
    text = EFFECTS.format(effects="\n  ".join(LOOK_ALIKE))
    head, effects = text.split("  a = ")
    changed = head + "  a = " + effects.replace(old, new, 1)
    assert changed != text
    assert _fingerprint(changed) != _fingerprint(text)


@pytest.mark.timeout(60)
def test_calls_of_calls_are_hashed_once() -> None:
    def level(number: int, called: str) -> str:
        return f"""level{number} {{
  p = f32[] parameter(0)
  a = f32[2] call(p), to_apply={called}
  b = f32[2] call(p), to_apply=g
  ROOT r = f32[2] broadcast(p), dimensions={{}}
}}
"""

    def random(name: str, kind: str) -> str:
        return f"""{name} {{
  p = f32[] parameter(0)
  ROOT r = f32[2] rng(p, p), distribution={kind}
}}
"""

    levels = [level(1, "h"), *(level(k, f"level{k - 1}") for k in range(2, 41))]
    text = "HloModule m\n" + random("g", "rng_normal") + random("h", "rng_uniform")
    text += "".join(levels) + "ENTRY e {\n  x = f32[] parameter(0)\n"
    text += "  ROOT c = f32[2] call(x), to_apply=level40\n}\n"
    assert _fingerprint(text) != _fingerprint(
        text.replace("to_apply=level40", "to_apply=level39")
    )
