# SPDX-License-Identifier: Apache-2.0
"""reduce-forms/squeezed: reductions of computed arrays of one column."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.hlo.text import parse_text
from support.forms import form_of
from support.jit_functions import normal
from support.reductions import PASS, assert_same, form_by, reduction, rules_of

RULE = "squeezed"


@pytest.mark.compile
@pytest.mark.parametrize("operation", ["add", "maximum"])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize(
    ("sizes", "result", "dims"),
    [
        ("9,1", "", "0,1"),
        ("9,1", "1", "0"),
        ("2,3,4,1", "2,1", "1,2"),
        ("2,3,1,4,1,1", "3,1,4,1", "0,4"),
        ("1,7,1", "", "0,1,2"),
        ("2,3,1", "2,3", "2"),
    ],
)
def test_a_reduction_is_the_same(sizes, result, dims, kind, operation):
    values = (
        f"x = {kind}[{sizes}] parameter(0)\n  y = {kind}[{sizes}] parameter(1)\n"
        f"  v = {kind}[{sizes}] subtract(x, y)"
    )
    assert_same(RULE, reduction(values, result, dims, operation=operation, kind=kind))


@pytest.mark.compile
@pytest.mark.parametrize(
    "numbers",
    [
        "a = f32[] parameter(1)\n  m = f32[2,3,4,1] broadcast(a), dimensions={}",
        "a = f32[1] parameter(1)\n  m = f32[2,3,4,1] broadcast(a), dimensions={3}",
        "a = f32[3] parameter(1)\n  m = f32[2,3,4,1] broadcast(a), dimensions={1}",
        "a = f32[2,4,1] parameter(1)\n"
        "  m = f32[2,3,4,1] broadcast(a), dimensions={0,2,3}",
    ],
)
def test_numbers_that_are_broadcast(numbers):
    values = (
        f"x = f32[2,3,4,1] parameter(0)\n  {numbers}\n"
        "  d = f32[2,3,4,1] subtract(x, m)\n  v = f32[2,3,4,1] multiply(d, d)"
    )
    assert_same(RULE, reduction(values, "2,1", "1,2"))


@pytest.mark.compile
def test_a_selection_by_one_number_and_limits_of_a_clamp():
    module = reduction(
        "x = f32[4,6,5,1] parameter(0)\n  p = pred[] parameter(1)\n  low = f32[] parameter(2)\n"
        "  high = f32[] parameter(3)\n  n = f32[4,6,5,1] negate(x)\n"
        "  s = f32[4,6,5,1] select(p, x, n)\n"
        "  v = f32[4,6,5,1] clamp(low, s, high)",
        *("1", "0,1,2"),
    )
    form = form_by(RULE, module)
    x = np.arange(-60, 60, dtype=np.float32).reshape(4, 6, 5, 1)
    arrays = x, np.bool_(False), np.float32(-20), np.float32(30)
    # The evaluator selects by arrays alone.
    wanted, found = (
        hloenv.compile(each, isolate=False)(*arrays)[0] for each in (module, form)
    )
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("values", "result", "dims", "operation"),
    [
        ("v = f32[9,1] parameter(0)", "", "0,1", "add"),  # nothing is computed
        ("x = f32[1,9] parameter(0)\n  v = f32[1,9] negate(x)", "", "0,1", "add"),
        ("x = f32[1,1] parameter(0)\n  v = f32[1,1] negate(x)", "", "0,1", "add"),
    ],
)
def test_others_stay(values, result, dims, operation):
    assert RULE not in rules_of(reduction(values, result, dims, operation=operation))


def test_the_largest_of_what_others_read_stays():
    """It is compared with the elements, which might be rounded otherwise."""
    text = reduction(
        "x = f32[9,1] parameter(0)\n  v = f32[9,1] multiply(x, x)",
        *("", "0,1"),
        operation="maximum",
    ).to_text()
    assert RULE in rules_of(hloenv.HloModule.from_text(text))
    text = text.replace("ROOT %r", "%r").replace(
        "to_apply=%region\n",
        "to_apply=%region\n  ROOT %t = (f32[], f32[9,1]) tuple(%r, %v)\n",
    )
    head, _, tail = text.partition(", entry_computation_layout={")
    text = head + tail.partition("\n")[2].join(["\n", ""])
    text = text.replace("-> f32[] {\n  %x", "-> (f32[], f32[9,1]) {\n  %x")
    assert RULE not in rules_of(hloenv.HloModule.from_text(text))


@pytest.mark.parametrize(
    ("source", "is_read_again", "expected"),
    [
        ("m", True, ["subtract"]),  # in memory, and not computed again
        ("m", False, ["parameter", "slice"]),
        ("x", True, ["parameter", "slice"]),  # a part of what is in memory
    ],
)
def test_what_is_computed_of_parts_is_read(source, is_read_again, expected):
    again = "e = f32[9,1] negate(d)" if is_read_again else "e = f32[9,1] negate(y)"
    module = reduction(
        "x = f32[9,3] parameter(0)\n  y = f32[9,1] parameter(1)\n"
        "  m = f32[9,3] negate(x)\n"
        f"  s = f32[9,1] slice({source}), slice={{[0:9],[1:2]}}\n"
        f"  d = f32[9,1] subtract(s, y)\n  {again}\n"
        "  w = f32[9,1] abs(d)\n"
        '  o = f32[9,1] custom-call(e), custom_call_target="f"\n'
        "  v = f32[9,1] multiply(w, o)",
        *("", "0,1"),
    )
    text = parse_text(form_by(RULE, module).to_text())
    entry = text.computations[text.entry].instructions
    (call,) = (each for each in entry if each.opcode == "call")
    read = [entry[each] for each in call.operands]
    read = [entry[each.operands[0]] for each in read if each.opcode == "reshape"]
    others = {"constant", "custom-call"}
    assert sorted({each.opcode for each in read} - others) == expected


@pytest.mark.parametrize(("rows", "is_taken"), [(20_000, True), (10_000, False)])
def test_known_forms_takes_long_columns(rows, is_taken):
    module = hloenv.HloModule.from_jax(
        lambda x, y: ((x - y) ** 2).mean(), *2 * [jnp.zeros((rows, 1))]
    )
    text = hloenv.run_passes(module, "call-inliner").module.to_text()
    assert form_of(text, PASS) == (RULE if is_taken else None)


@pytest.mark.jax
@pytest.mark.compile
def test_a_loss_and_its_gradient():
    def loss(params, x, y):
        return jnp.abs(jnp.tanh(x @ params) - y).mean()

    arguments = normal(8, 1), normal(20_000, 8), normal(20_000, 1, seed=2)
    for fn in (loss, jax.value_and_grad(loss)):
        fast = hloenv.jit(fn, budget=0)
        found, wanted = fast(*arguments), jax.jit(fn)(*arguments)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6),
            *(found, wanted),
        )
        (used,) = [each for each in fast.considered if each.is_used]
        assert used.accepted["reduce-forms/squeezed"] == 1
