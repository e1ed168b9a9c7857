# SPDX-License-Identifier: Apache-2.0
"""sort-forms: sorts as sorts of integers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from support.captures import capture, decisions_for_rule, rules

pytestmark = pytest.mark.jax

NAME = "sort-forms"
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int32", "uint32", "int16", "uint16", "int8", "uint8", "int64", "uint64")
WIDE = ("float64", "int64", "uint64")
SHAPES = (((50,), 0), ((7, 9), 0), ((7, 9), 1), ((3, 5, 6), 1))


def hard_numbers(dtype, shape, seed=0):
    """Many equal numbers, zeros of both signs, infinities, not-a-numbers, limits."""
    rng = np.random.default_rng(seed)
    dtype = jnp.dtype(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        info = jnp.iinfo(dtype)
        few = [info.min, info.max, 0, 1, 2, info.max // 3, info.max // 5 * 3]
        few = np.array(few, dtype)
    elif dtype == np.bool_:
        few = np.array([False, True])
    else:
        few = [0.0, -0.0, 1.5, -1.5, 2.5, np.inf, -np.inf, np.nan, -np.nan]
        few = np.array([*few, 1 + 2.0**-40, -1 - 2.0**-40, -1.0])
    return rng.choice(few, size=shape).astype(dtype)


def captured(fn, *arrays):
    module = hloenv.HloModule.from_jax(fn, *arrays)
    return module, hloenv.HloEnv(module).get_alternatives(NAME)


def check_equal(module, decided, arrays, *, is_compiled):
    ways = [hloenv.interpret]
    if is_compiled:
        ways.append(lambda one, *xs: hloenv.compile(one, isolate=False)(*xs))
    for run in ways:
        for wanted, found in zip(
            run(module, *arrays), run(decided, *arrays), strict=True
        ):
            assert wanted.dtype == found.dtype
            # With the signs of zeros and of not-a-numbers.
            assert wanted.tobytes() == found.tobytes()


FUNCTIONS = {
    "sort": lambda x, axis: jnp.sort(x, axis),
    "sort descending": lambda x, axis: jnp.sort(x, axis, descending=True),
    "argsort": lambda x, axis: jnp.argsort(x, axis),
    "argsort descending": lambda x, axis: jnp.argsort(x, axis, descending=True),
    "keys and numbers": lambda x, axis: jax.lax.sort_key_val(
        x, jnp.arange(x.size, dtype=jnp.float32).reshape(x.shape), dimension=axis
    ),
}


def offered(dtype, name, length):
    is_alone = dtype in INTEGERS and name.startswith("sort")
    has_network = length <= 16 and (is_alone or dtype not in WIDE)
    return ["packed"] * (not is_alone) + ["network"] * has_network


@pytest.mark.compile
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_results_are_equal(dtype, name):
    with jax.enable_x64(dtype in WIDE):
        for shape, axis in SHAPES if dtype == "float32" else SHAPES[2:3]:
            x = hard_numbers(dtype, shape)
            module, alternatives = captured(lambda x, a=axis: FUNCTIONS[name](x, a), x)
            found = rules(alternatives)
            assert found == offered(dtype, name, shape[axis])
            for rule in found:
                decided = alternatives.apply(decisions_for_rule(alternatives, rule))
                assert ("sort" in decided.opcode_counts()) == (rule == "packed")
                check_equal(module, decided, [x], is_compiled=shape == SHAPES[2][0])


@pytest.mark.parametrize("shape", [(40,), (4, 10)])
def test_several_arrays_of_any_type(shape):
    x = hard_numbers("uint32", shape)
    others = [
        np.arange(40, dtype=dtype).reshape(shape) for dtype in ("int8", "complex64")
    ]
    truths = (np.arange(40) % 3 == 0).reshape(shape)

    def fn(x, *others):
        return jax.lax.sort((x, *others), num_keys=1)[1:]

    module, alternatives = captured(fn, x, *others, truths)
    assert rules(alternatives) == offered("uint32", "several", shape[-1])
    arrays = [x, *others, truths]
    wanted = hloenv.interpret(module, *arrays)
    for rule in rules(alternatives):
        decided = alternatives.apply(decisions_for_rule(alternatives, rule))
        outputs = hloenv.interpret(decided, *arrays)
        for one, other in zip(wanted, outputs, strict=True):
            np.testing.assert_array_equal(other, one)


def test_random_permutations():
    key, x = jax.random.PRNGKey(1), np.arange(300.0, dtype=np.float32)
    module, alternatives = captured(jax.random.permutation, key, x)
    assert rules(alternatives) == ["packed"]
    check_equal(module, alternatives.apply([1]), [key, x], is_compiled=False)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jax.lax.sort((x, -x, x + 1), num_keys=2)[2],  # two keys
        lambda x: jax.lax.sort((x, x + 1), num_keys=1, is_stable=False)[1],
        lambda x: jnp.sort(x.astype(jnp.int32)),  # the backend's own comparison
        lambda x: jnp.sort(x[:1]),
        lambda x: jnp.sort(x[:0]),
    ],
)
def test_not_offered(fn):
    assert rules(captured(fn, np.ones(30, np.float32))[1]) == []


@pytest.mark.parametrize("length", [*range(2, 17), 31, 32])
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_networks_of_each_size(dtype, length):
    """Of all, if few; of more if some results are read, also through calls."""
    for fn, is_offered in (
        (lambda x: jnp.sort(x, axis=1), length <= 16),
        (lambda x: jnp.sort(x, axis=1)[:, length // 2], True),
        (lambda x: jnp.sort(x, axis=1, descending=True)[:, : length // 2], True),
        (lambda x: jnp.sort(x, axis=1, descending=True)[:, :-1], length <= 16),
        (lambda x: jnp.sort(x, axis=1, stable=False)[:, 1:2], True),
    ):
        x = hard_numbers(dtype, (50, length), length)
        module, alternatives = captured(fn, x)
        assert ("network" in rules(alternatives)) == is_offered
        if is_offered:
            decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
            check_equal(module, decided, [x], is_compiled=False)


@pytest.mark.compile
@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_a_network_of_one_row(dtype):
    x = hard_numbers(dtype, (10,))
    for fn in (jnp.sort, lambda x: jnp.sort(x)[4]):
        module, alternatives = captured(fn, x)
        decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
        assert "sort" not in decided.opcode_counts()
        check_equal(module, decided, [x], is_compiled=True)


SAMPLES, MANY = (np.ones(shape, np.float32) for shape in ((12, 64), (512, 64)))
LONG = np.ones((32, 64), np.float32)


@pytest.mark.parametrize(
    ("fn", "arrays", "is_fused"),
    [
        (lambda x: jnp.median(x, axis=0), [SAMPLES], True),
        (lambda x: jnp.sort(x, axis=0)[2:5].sum(0), [SAMPLES], True),
        # All are read, by several or of a part of the columns.
        (lambda x: [s := jnp.sort(x, 0), s[:6], s[6:]][1:], [SAMPLES], False),
        (lambda x: jnp.sort(x, axis=0)[:, :32], [SAMPLES], False),
        (lambda x: jnp.sort(x, axis=0)[:, :32], [LONG], None),
        # It is not known which.
        (lambda x, i: jnp.sort(x, axis=0)[i], [SAMPLES, np.int32(3)], False),
        (lambda x, q: jnp.quantile(x, q, axis=0), [SAMPLES, np.float32(0.5)], False),
        # Each kernel of many elements would compute it for each of them.
        (lambda x, y: y - jnp.median(x, axis=0), [SAMPLES, MANY], False),
        (lambda x, y: y - 2 * jnp.sort(x, axis=0)[3], [SAMPLES, MANY], False),
        (lambda x: x - jnp.median(x, axis=0), [SAMPLES], True),
        (lambda x: x - jnp.median(x, axis=0), [LONG], None),
    ],
)
def test_where_a_network_is_in_one_kernel_with_what_reads_it(fn, arrays, is_fused):
    module, alternatives = captured(fn, *arrays)
    has_network = "network" in rules(alternatives)
    assert has_network == (is_fused is not None)
    if has_network:
        decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
        assert ("own_kernel" in decided.to_text()) == (not is_fused)
        x = [hard_numbers(a.dtype, a.shape) if a.ndim else a for a in arrays]
        check_equal(module, decided, x, is_compiled=False)


def test_numbers_and_indices_are_of_one_network():
    x = hard_numbers("float32", (50, 8))
    module, alternatives = captured(
        lambda x: jax.lax.sort_key_val(
            x, jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)
        ),
        x,
    )
    decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
    assert decided.opcode_counts()["minimum"] == 19
    check_equal(module, decided, [x], is_compiled=False)


@pytest.mark.parametrize(("length", "is_offered"), [(32, True), (33, False)])
def test_networks_of_medians(length, is_offered):
    x = hard_numbers("float32", (length, 40))
    x = np.where(np.isnan(x), 0.5, x)
    module, alternatives = captured(lambda x: jnp.median(x, axis=0), x)
    assert ("network" in rules(alternatives)) == is_offered
    if is_offered:
        decided = alternatives.apply(decisions_for_rule(alternatives, "network"))
        assert "own_kernel" not in decided.to_text()
        check_equal(module, decided, [x], is_compiled=True)


SORT = """HloModule m

less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER
}

ENTRY main {
  x = f32[20] parameter(0)
  ROOT s = f32[20] sort(x), dimensions={0}, is_stable=true, to_apply=less
}
"""
# As jax makes it: zeros are equal, and not-a-numbers.
CANONICAL = """less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  zero = f32[] constant(0)
  undefined = f32[] constant(nan)
  iszero = pred[] compare(a, zero), direction=EQ
  isnan = pred[] compare(a, a), direction=NE
  left = f32[] select(iszero, zero, a)
  left2 = f32[] select(isnan, undefined, left)
  iszero2 = pred[] compare(b, zero), direction=EQ
  isnan2 = pred[] compare(b, b), direction=NE
  right = f32[] select(iszero2, zero, b)
  right2 = f32[] select(isnan2, undefined, right)
  ROOT c = pred[] compare(left2, right2), direction=LT, type=TOTALORDER
}"""
AS_JAX = SORT.replace(SORT[SORT.index("less {") : SORT.index("\n\nENTRY")], CANONICAL)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("direction=LT, type=TOTALORDER", "direction=LE, type=TOTALORDER"),
        ("constant(0)", "constant(2)"),
        ("constant(nan)", "constant(7)"),
        ("compare(a, a), direction=NE", "compare(a, zero), direction=NE"),
        ("select(isnan2, undefined, right)", "select(isnan2, right, right)"),
        ("compare(left2, right2)", "compare(left2, left)"),
        ("left = f32[] select(iszero, zero, a)", "left = f32[] abs(a)"),
        ("left = f32[] select(iszero, zero, a)", "left = f32[] maximum(a, zero)"),
    ],
)
def test_other_orders_are_not_offered(old, new):
    assert rules(capture(AS_JAX, NAME)) == ["packed"]
    assert old in AS_JAX
    assert rules(capture(AS_JAX.replace(old, new), NAME)) == []


BY_SIGN = """less {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  p = f32[] parameter(2)
  q = f32[] parameter(3)
  zero = s32[] constant(0)
  below = pred[] compare(a, zero), direction=LT
  below2 = pred[] compare(b, zero), direction=LT
  both = pred[] and(below, below2)
  less = pred[] compare(a, b), direction=LT
  more = pred[] compare(a, b), direction=GT
  ROOT c = pred[] select(both, more, less)
}"""
PAIRS = f"""HloModule m

{BY_SIGN}

ENTRY main {{
  x = s32[20] parameter(0)
  y = f32[20] parameter(1)
  s = (s32[20], f32[20]) sort(x, y), dimensions={{0}}, is_stable=true, to_apply=less
  ROOT z = f32[20] get-tuple-element(s), index=1
}}
"""


def test_integers_that_are_ordered_by_their_sign_are_not_offered():
    assert rules(capture(PAIRS, NAME)) == []
    plain = PAIRS.replace("select(both, more, less)", "or(less, less)")
    without = "\n".join(line for line in plain.splitlines() if "zero" not in line)
    without = without.replace("  both = pred[] and(below, below2)\n", "")
    assert rules(capture(without, NAME)) == ["packed"]


@pytest.mark.parametrize("has_side_effect", [False, True])
def test_results_that_only_a_side_effect_reads(has_side_effect):
    """They are replaced, too, but not those that nothing reads."""
    effect = ", custom_call_has_side_effect=true" * has_side_effect
    text = f"""HloModule m

{BY_SIGN.replace("select(both, more, less)", "or(less, less)")}

ENTRY main {{
  x = s32[20] parameter(0)
  y = f32[20] parameter(1)
  s = (s32[20], f32[20]) sort(x, y), dimensions={{0}}, is_stable=true, to_apply=less
  k = s32[20] get-tuple-element(s), index=0
  e = () custom-call(k), custom_call_target="print"{effect}
  ROOT z = f32[20] get-tuple-element(s), index=1
}}
"""
    kept = ("zero", "both")
    text = "\n".join(
        line for line in text.splitlines() if not any(word in line for word in kept)
    )
    alternatives = capture(text, NAME)
    assert rules(alternatives) == ["packed"]
    (sorted_by,) = [
        line
        for line in alternatives.apply([1]).to_text().splitlines()
        if " sort(" in line
    ]
    assert "s64[20]" in sorted_by


def test_constants_of_other_types_in_a_comparator():
    text = AS_JAX.replace(
        "zero = f32[] constant(0)",
        "k = c64[] constant((1, 2))\n  zero = f32[] constant(0)",
    )
    assert rules(capture(text, NAME)) == []


def test_the_total_order_tells_zeros_apart():
    assert rules(capture(SORT, NAME)) == []


@pytest.mark.compile
def test_jit_sorts_faster():
    x = jnp.asarray(np.random.default_rng(0).normal(size=30000), jnp.float32)
    fast = hloenv.jit(jnp.argsort, remember=False)
    np.testing.assert_array_equal(fast(x), jnp.argsort(x))
    (used,) = fast.decided
    assert used.accepted == {"sort-forms/packed": 1}
    assert used.interval[0] > 1.02


@pytest.mark.compile
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormal_numbers_are_zeros_as_to_the_backend(dtype, engine):
    """Sorts, their indices and what else they carry, and the index of the largest."""
    least = float(jnp.finfo(dtype).smallest_normal)
    few = np.array([least / 4, least / 2, -least / 4, 0.0, -0.0, least, -1.0, 1.0])
    with jax.enable_x64(True):
        x = np.random.default_rng(0).choice(few, size=(40, 50)).astype(dtype)

        def function(x):
            carried = jax.lax.sort((x, jnp.arange(2000.0).reshape(40, 50)), num_keys=1)
            return *carried, jnp.argsort(x), jnp.argsort(x, descending=True)

        module, alternatives = captured(function, x)
        decisions = decisions_for_rule(alternatives, "packed")
        assert np.count_nonzero(decisions) == len(alternatives) > 0
        both = (module, alternatives.apply(decisions))
        wanted, found = (
            hloenv.compile(each, isolate=False, engine=engine)(x) for each in both
        )
    assert [each.tobytes() for each in wanted] == [each.tobytes() for each in found]
