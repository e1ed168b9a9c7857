# SPDX-License-Identifier: Apache-2.0
"""Operations that jaxlib's compiler does not give to its library, where it is slow."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.errors import InvalidModuleError
from hloenv.jax import from_jax, library
from support import jax_outputs
from support.jit_functions import FASTER, SLOWER, normal

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]

# Its rows are short, and of a prime number, as all below are: no form of its reduction
# is known.
COLUMNS = normal(30_011, 4)
FAST_MATH = {"xla_cpu_enable_fast_math": True}


def column_sums(x):
    return jnp.exp(x).sum(0)


def convolved(x, kernel):
    dimensions = ("NHWC", "HWIO", "NHWC")
    for _ in range(2):
        x = jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=dimensions
        )
    return x


def left_out(fn, *args):
    return library.left_out_of(library.options_for(from_jax(fn, *args)))


def fusions(compiled):
    return compiled.as_text().count("__ynn_fusion")


def rounds(count, x, y):
    """Sums of short rows, then of long ones in a loop."""

    def step(_, state):
        return jnp.exp(y * state).sum(-1).mean()

    return jax.lax.fori_loop(0, count, step, x.sum(-1).mean())


def test_this_jaxlib_gives_its_library_reductions_and_convolutions():
    """If another does not, this rule is to be measured again."""
    assert library.given_to_library() == {"reductions", "convolutions"}


@pytest.mark.parametrize(
    ("fn", "shapes", "expected"),
    [
        (column_sums, [(30_011, 4)], "reductions"),
        (column_sums, [(3000, 64)], ""),
        (column_sums, [(300, 4)], ""),
        (column_sums, [(30_011, 12)], "reductions"),
        # Of nothing but products, the library is faster from nine columns on.
        (lambda x: (x * x).sum(0), [(30_011, 8)], "reductions"),
        (lambda x: (x * x).sum(0), [(30_011, 12)], ""),
        (lambda x: x.max(0), [(30_011, 9)], ""),
        (lambda x: x.sum(-1), [(10_000, 3)], "reductions"),
        (lambda x: x.sum(-1), [(10_000, 33)], ""),
        # Of the largest numbers, the library is faster from nine columns on.
        (lambda x: x.max(-1), [(10_000, 4)], "reductions"),
        (lambda x: x.min(-1), [(10_000, 9)], ""),
        (lambda x: x.sum(-1), [(10_000, 9)], "reductions"),
        # One dimension before few columns, or some and their product, or several.
        (lambda x: jnp.exp(x).sum(0), [(1024, 128, 2)], ""),
        (lambda x: (x * x).sum(1), [(16, 512, 64, 4)], ""),
        (
            lambda x, w: (w[..., None] * x).sum(0),
            [(64, 999, 3), (64, 999)],
            "reductions",
        ),
        (lambda x, y: jnp.tanh(x[:, None] - y).sum(0), [(200, 3)] * 2, "reductions"),
        (lambda x, b: (x * b).sum(0), [(64, 32, 32, 3), (3,)], ""),
        (lambda x: jnp.log(x.var(0) + 1), [(64, 32, 32, 3)], ""),
        (lambda x: x.sum(1), [(1024, 32, 2)], "reductions"),
        (lambda x: x.sum((0, 1)), [(100, 100, 8)], ""),
        # The same of pairs, which repeat a number for each row, or for each column too.
        (lambda x: ((x[:, None] - x) ** 2).sum((0, 1)), [(300, 3)], "reductions"),
        (lambda x: ((x[:, None] - x) ** 2).sum((0, 1)), [(300, 6)], ""),
        (
            lambda k, y, v: (k[..., None] * y * v).sum((0, 1)),
            [(300, 300), (300, 300, 6), (6,)],
            "reductions",
        ),
        # The last dimensions are one row; others with them are slow in XLA's code.
        (lambda x: x.mean(), [(100_000, 16)], ""),
        (lambda x: x.max(), [(1000, 100, 3)], ""),
        (lambda x: x.sum((2, 3)), [(8, 128, 28, 28)], ""),
        (lambda x: x.sum((0, 2)), [(1000, 10, 16)], ""),
        # Of a cube: the first, the second and the last dimension.
        (lambda x: jnp.abs(x).max(0), [(200, 200, 200)], "reductions"),
        (lambda x: jnp.abs(x).max(1), [(200, 200, 200)], ""),
        (lambda x: jnp.abs(x).sum(2), [(200, 200, 200)], ""),
        (lambda x: x.sum((0, 1)), [(100, 100, 16)], ""),
        (lambda x: x.var(0), [(10, 200, 100)], "reductions"),
        (lambda x: x.max(0), [(10, 200, 100)], "reductions"),
        (lambda x: x.var(0), [(10, 100, 100)], ""),
        (lambda x: x.var(1), [(10, 200, 100)], ""),
        (lambda x: x.sum((0, 1)), [(4, 8, 256, 256)], ""),
        # What long rows lose is more than this gains.
        (
            lambda x, y: (x.sum(0), jnp.exp(y).sum(-1)),
            [(10, 20_000), (3000, 3000)],
            "",
        ),
        # In a loop, they are lost each time.
        (functools.partial(rounds, 2), [(30_000, 3), (300, 300)], "reductions"),
        (functools.partial(rounds, 50), [(30_000, 3), (300, 300)], ""),
        (lambda x: x.astype(jnp.int32).sum(-1), [(10_000, 3)], ""),
        (convolved, [(1, 4, 4, 512), (3, 3, 512, 512)], "convolutions"),
        (convolved, [(1, 32, 32, 4), (3, 3, 4, 4)], ""),
        # The sum takes the convolutions along, of which XLA's own are faster with many
        # features.
        (
            lambda *args: convolved(*args).mean((1, 2)),
            [(1, 28, 28, 256), (3, 3, 256, 256)],
            "reductions and convolutions",
        ),
        (
            lambda *args: convolved(*args).mean((1, 2)),
            [(1, 4, 4, 512), (3, 3, 512, 512)],
            "reductions and convolutions",
        ),
        (
            lambda *args: convolved(*args).mean((1, 2)),
            [(1, 32, 32, 64), (3, 3, 64, 64)],
            "",
        ),
        (convolved, [(1, 32, 32, 64), (3, 3, 64, 64)], ""),
        (lambda x: x.sum(), [()], ""),
        (lambda x: x.sum(-1), [(0, 3)], ""),
        (lambda x: x.sum(-1), [(3, 0)], ""),
        (lambda x: x.max((1, 3, 5)), [(9, 9, 9, 9, 9, 9, 2, 1, 1, 1)], ""),
    ],
)
def test_what_is_left_out(fn, shapes, expected):
    assert left_out(fn, *(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)) == (
        expected
    )


def test_a_module_without_a_cost_has_no_options(monkeypatch):
    def fail(_):
        raise InvalidModuleError("it has no cost")

    monkeypatch.setattr(library, "estimate", fail)
    assert left_out(column_sums, jax.ShapeDtypeStruct((30_011, 4), jnp.float32)) == ""


def test_reductions_of_short_rows_are_measured_to_be_faster():
    # Large, and three times at most: other processes may hide a gain once.
    x = normal(300_007, 4)
    for _ in range(3):
        fast = hloenv.jit(column_sums, remember=False)
        for _ in range(2):
            assert_same(fast(x), jax.jit(column_sums)(x))
        if fast.decided:
            break
    assert fast.decided, fast.explain()
    (one,) = fast.decided
    assert one.left_out == "reductions"
    assert one.interval[0] > 1.02
    assert "reductions by XLA's own code, not by YNNPACK" in fast.explain()


def test_later_signatures_have_no_options(verdicts):
    """They would need another function of jax, to which others would have to move."""
    verdicts += [FASTER]
    fast = hloenv.jit(column_sums)
    rows = 30_011, 40_009, 100, 50_021
    for count in (*rows, *rows):
        x = normal(count, 4)
        assert_same(fast(x), jax.jit(column_sums)(x))
    assert not verdicts
    assert [each.left_out for each in fast.decided] == ["reductions"]
    compiled = fast._decided.lower(normal(30_011, 4)).compile()
    assert fusions(compiled) == 0
    assert "options of the compiler are for the first" in fast.explain()
    # That is kept for no other function.
    verdicts += [FASTER]
    other = hloenv.jit(column_sums)
    assert_same(other(normal(40_009, 4)), column_sums(normal(40_009, 4)))
    assert len(other.decided) == 1


def test_a_later_signature_may_have_forms_where_options_were_found(verdicts):
    def both(x, y):
        near = ((x[:, None] - y[None]) ** 2).sum(-1)  # a chain
        return near, jnp.tanh(x[:, None] - y[None]).sum(0)

    x, y = normal(200, 3), normal(200, 3, seed=1)
    verdicts += [FASTER, SLOWER]
    hloenv.jit(both)(x, y)  # kept: with options
    fast = hloenv.jit(both)
    verdicts += [FASTER, SLOWER]
    fast(normal(300, 3), y)
    verdicts += [FASTER]
    assert_same(fast(x, y), both(x, y))
    assert not verdicts
    first, later = fast.decided
    assert (first.left_out, later.left_out) == ("reductions", "")
    assert later.accepted == {"reduce-forms/chain": 1}


def test_what_a_function_refers_to_may_change(verdicts):
    weight = 1.0

    def weighted(x):
        return jnp.exp(x * weight).sum(0)

    verdicts += [FASTER] * 2
    fast = hloenv.jit(weighted)
    first, second = normal(30_011, 4), normal(40_009, 4)
    assert_same((fast(first), fast(second)), (weighted(first), weighted(second)))
    weight = 2.0
    jax.clear_caches()
    assert_same((fast(first), fast(second)), (weighted(first), weighted(second)))


def test_every_context_of_jax_has_its_own_result(verdicts):
    def noisy(x):
        key = jax.random.PRNGKey(0)
        return column_sums(x) + jax.random.normal(key, (4,)), jnp.arange(4)

    verdicts += [FASTER] * 2
    fast, plain = hloenv.jit(noisy), jax.jit(noisy)
    first, second = normal(30_011, 4), normal(40_009, 4)
    for _ in range(2):
        assert_same(fast(first), plain(first))
        with jax.threefry_partitionable(False):
            assert_same(fast(first), plain(first))
        with jax.enable_x64(True):
            assert_same(fast(first), plain(first))
        assert_same(fast(second), plain(second))
        assert_same(fast(first), plain(first))


def test_where_arguments_are_stays(verdicts):
    verdicts += [FASTER]
    fast, plain = hloenv.jit(column_sums), jax.jit(column_sums)
    mesh = jax.make_mesh((1,), ("i",))
    spread = jax.device_put(COLUMNS, jax.NamedSharding(mesh, jax.P("i")))
    given = jax.device_put(COLUMNS, jax.devices()[0])
    for x in (given, normal(40_009, 4), COLUMNS, spread, COLUMNS):
        ours, theirs = fast(x), plain(x)
        assert_same(ours, theirs)
        assert (ours.committed, ours.sharding) == (theirs.committed, theirs.sharding)


def test_it_is_faster_with_options_of_the_user_and_donated_arguments(verdicts):
    verdicts += [FASTER]

    def centered(x):
        return x - column_sums(x)

    fast = hloenv.jit(centered, compiler_options=FAST_MATH, donate_argnums=0)
    expected = centered(COLUMNS)
    for _ in range(2):
        assert_same(fast(COLUMNS + 0), expected)
    assert fast.decided[0].left_out == "reductions"


def test_the_users_own_option_is_left(verdicts):
    own = {library.OPTION: "LIBRARY_FUSION_TYPE_REDUCE"}
    fast = hloenv.jit(column_sums, compiler_options=own)
    assert_same(fast(COLUMNS), column_sums(COLUMNS))
    assert fast.decided == []
    assert f"{library.OPTION} is given" in fast.explain()


def test_the_users_own_flag_is_left(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", f"--{library.OPTION}=LIBRARY_FUSION_TYPE_REDUCE")
    assert library.given_to_library.__wrapped__() == frozenset()


def test_a_jax_that_keeps_no_executables_gets_no_options(monkeypatch):
    monkeypatch.setattr(library, "can_keep_compiled", lambda _: False)
    assert library.given_to_library.__wrapped__() == frozenset()


def test_forms_are_tried_with_the_option_and_without(verdicts):
    def both(x, y):
        near = ((x[:, None] - y[None]) ** 2).sum(-1)  # a chain
        return near, jnp.tanh(x[:, None] - y[None]).sum(0)

    x, y = normal(200, 3), normal(200, 3, seed=1)
    for results, left_out in (([SLOWER, FASTER], ""), ([FASTER, SLOWER], "reductions")):
        verdicts += results
        fast = hloenv.jit(both, remember=False)
        for _ in range(2):
            assert_same(fast(x, y), both(x, y))
        assert not verdicts
        (one,) = fast.decided
        assert (one.left_out, one.accepted) == (left_out, {"reduce-forms/chain": 1})


def test_a_later_process_uses_what_was_found(verdicts):
    verdicts += [FASTER]
    assert_same(hloenv.jit(column_sums)(COLUMNS), column_sums(COLUMNS))
    later = hloenv.jit(column_sums)
    assert_same(later(COLUMNS), column_sums(COLUMNS))
    assert later.decided[0].left_out == "reductions"
    compiled = later._decided.lower(COLUMNS).compile()
    assert (
        fusions(compiled) == 0 < fusions(jax.jit(column_sums).lower(COLUMNS).compile())
    )


def test_nothing_but_results_changes_where_jax_drops_its_caches(verdicts):
    verdicts += [FASTER]
    fast = hloenv.jit(column_sums)
    assert_same(fast(COLUMNS), column_sums(COLUMNS))
    jax.clear_caches()
    verdicts += [FASTER]
    for _ in range(2):
        assert_same(fast(COLUMNS), column_sums(COLUMNS))


def test_a_loop_with_forms_has_the_option_without_a_comparison(verdicts):
    """Its form alone would be the first that can be used."""

    def bodies(x, v, masses):
        def step(state, _):
            x, v = state
            d = x[None] - x[:, None]
            inverse = jax.lax.rsqrt((d * d).sum(-1) + 1e-2)
            v = v + 0.01 * (masses[:, None] * d * inverse[..., None] ** 3).sum(1)
            return (x + 0.01 * v, v), None

        return jax.lax.scan(step, (x, v), None, length=2)[0]

    arguments = normal(128, 3), normal(128, 3), normal(128)
    fast = hloenv.jit(bodies, budget=0)
    assert_same(fast(*arguments), jax.jit(bodies)(*arguments))
    (used,) = [each for each in fast.considered if each.is_used]
    assert used.left_out == "reductions"
    assert used.accepted["reduce-forms/chain"] == 1
