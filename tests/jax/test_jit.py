# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit against jax.jit."""

from __future__ import annotations

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloenv import HloModule, Pass, Pipeline
from hloenv.errors import ArgumentTypeError, DecisionError, PassError
from hloenv.jax import DonationWarning, FallbackWarning, from_jax, injection
from hloenv.jax import jit as compared_jit
from support.jax_outputs import assert_same
from support.jit_functions import normal
from support.threads import in_threads

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("no_fallback"),
]


def jit(fn, **options):
    """hloenv.jit without comparison."""
    return compared_jit(fn, budget=0, until=None, **{"policy": "accept-all", **options})


def mlp(params, x):
    for weights, bias in params:
        x = jax.nn.gelu(x @ weights + bias)
    return x


MLP_PARAMS = [(normal(16, 32), jnp.zeros(32)), (normal(32, 4), jnp.ones(4))]


def mlp_loss(params, x):
    return (mlp(params, x) ** 2).mean()


def convolution(image, kernel):
    out = jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(out).sum(axis=(1, 2))


def scan(x, steps):
    def body(carry, step):
        carry = jnp.tanh(carry * 0.9 + step)
        return carry, carry.sum()

    return jax.lax.scan(body, x, steps)


def collatz(n):
    def body(state):
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return jax.lax.while_loop(lambda state: state[0] != 1, body, (n, 0))


def branch(x, flag):
    return jax.lax.cond(flag, lambda y: jnp.sin(y) * 2, lambda y: y - 1, x)


def attention(q, k, v):
    scores = jnp.einsum("qd,kd->qk", q, k) / 4
    mask = jnp.tril(jnp.ones(scores.shape, bool))
    return jax.nn.softmax(jnp.where(mask, scores, -1e9)) @ v


def integers(x):
    shifted = (x << 3) ^ (x >> 2)
    return shifted % 17, jnp.bitwise_count(x), x.astype(jnp.uint8)


def noise(key, x):
    first, second = jax.random.split(key)
    kept = jax.random.bernoulli(first, 0.5, x.shape)
    return jnp.where(kept, x, jax.random.normal(second, x.shape))


def tree_in_and_out(tree):
    return {
        "sum": sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree)),
        "same": tree,
        "pair": (tree["a"] * 2, [tree["b"][0] + 1]),
    }


def solve(matrix, vector):
    positive = matrix @ matrix.T + 8 * jnp.eye(8)
    return jnp.linalg.solve(positive, vector), jnp.linalg.cholesky(positive)


FUNCTIONS = {
    "mlp": (mlp, (MLP_PARAMS, normal(8, 16))),
    "grad": (jax.value_and_grad(mlp_loss), (MLP_PARAMS, normal(8, 16))),
    "convolution": (convolution, (normal(2, 8, 8, 3), normal(3, 3, 3, 5))),
    "scan": (scan, (normal(6), normal(9, 6))),
    "while": (collatz, (jnp.int32(27),)),
    "cond": (branch, (normal(5), jnp.bool_(True))),
    "attention": (attention, (normal(8, 16), normal(8, 16, seed=1), normal(8, 4))),
    "sort": (lambda x: (jnp.sort(x, axis=0), jnp.argsort(x[:, 0])), (normal(9, 4),)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1)[:, ::-1], (normal(4, 33),)),
    "integers": (integers, (jnp.arange(-20, 20),)),
    "noise": (noise, (jax.random.key(7), normal(64))),
    "pytree": (tree_in_and_out, ({"a": normal(3), "b": [normal(2, 2)]},)),
    "bfloat16": (lambda x: (x @ x.T).sum(0), (normal(8, 8).astype(jnp.bfloat16),)),
    "gather": (lambda x, i: x[i].at[0].add(1), (normal(9, 2), jnp.array([3, 1, 3]))),
    "solve": (solve, (normal(8, 8), normal(8))),
    "constant": (lambda x: (jnp.arange(3), x, x), (normal(3),)),
}
PLANS = {
    "both": {"passes": ("algsimp", "cse", "fusion")},
    "reject": {"passes": ("algsimp", "fusion"), "policy": "reject-all"},
}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_outputs_equal_those_of_the_plain_function(name, plan):
    fn, args = FUNCTIONS[name]
    decided = jit(fn, **PLANS[plan])
    expected = jax.jit(fn)(*args)
    assert_same(decided(*args), expected)
    assert_same(decided(*args), expected)
    assert len(decided.decided) == 1


def test_decisions_reach_the_executable():
    """Rejecting the fusions leaves jaxlib's executable without any."""

    def fn(x):
        return jnp.tanh(jnp.sin(x) * 2 + jnp.cos(x)) - x

    x = normal(1000)
    fused = jit(fn, passes=("fusion",))
    plain = jit(fn, passes=("fusion",), policy="reject-all")
    counts = []
    for decided in (fused, plain):
        decided(x)
        found = decided.decided[0].result.opcode_counts().get("fusion", 0)
        counts.append(found)
        executable = decided._decided.lower(x).compile().as_text()
        assert executable.count(" fusion(") == found
    # XLA wraps what stays alone in fusions of one.
    assert counts[0] == 1
    assert counts[1] > 1


def test_several_shapes_are_decided_one_by_one():
    decided = jit(jnp.tanh, passes=("algsimp",))
    for size in (3, 5, 3, 5):
        x = normal(size)
        np.testing.assert_allclose(decided(x), np.tanh(x), atol=1e-6)
    assert len(decided.decided) == 2


def test_the_function_is_traced_once():
    traces = []

    @jit
    def fn(tree, scale):
        traces.append(scale)
        return jax.tree.map(lambda leaf: leaf * scale, tree)

    for _ in range(3):
        fn({"a": normal(3), "b": [normal(2)]}, 2.0)
    assert len(traces) == 1


def test_a_second_call_decides_nothing():
    calls = []

    def policy(alternatives):
        calls.append(len(alternatives))
        return alternatives.reject_all()

    decided = jit(lambda x: x / 2, policy=policy, passes=("algsimp",))
    x = normal(4)
    for _ in range(3):
        np.testing.assert_allclose(decided(x), x / 2)
    assert len(calls) == 1
    assert calls[0] > 0


def test_arguments_tied_to_a_device_need_no_new_decision():
    x = normal(4)
    tied = jax.device_put(x, jax.devices()[0])
    decided = jit(lambda a, b: jnp.tanh(a) + b, passes=("fusion",))
    for a, b in ((x, x), (tied, x), (x, tied), (tied, tied)):
        np.testing.assert_allclose(decided(a, b), np.tanh(x) + x, atol=1e-6)
    assert len(decided.decided) == 1
    assert decided.num_injected == 4


@pytest.mark.parametrize(
    "options", [{"static_argnums": 1}, {"static_argnames": "times"}]
)
def test_static_arguments_are_part_of_the_signature(options):
    def fn(x, times):
        for _ in range(times):
            x = x + 1
        return x

    decided = jit(fn, passes=("algsimp",), **options)
    x = normal(4)
    for times in (1, 2, 1):
        np.testing.assert_allclose(decided(x, times=times), x + times, rtol=1e-6)
    assert len(decided.decided) == 2


def test_equal_entry_layouts_with_other_static_arguments_do_not_mix():
    tied = jax.device_put(normal(4), jax.devices()[0])
    decided = jit(lambda x, n: x * n, static_argnums=1, passes=("algsimp",))
    for x in (normal(4), tied):
        for n in (2.0, 3.0):
            np.testing.assert_allclose(decided(x, n), np.asarray(x) * n, rtol=1e-6)


def test_donated_arguments_stay_as_they_were():
    """XLA would update a donated argument in place; jaxlib forgets that it may."""

    def fn(cache, row):
        return cache.at[3].set(row), row.sum()

    decided = jit(fn, donate_argnums=0, passes=("algsimp", "fusion"))
    cache, row = normal(64, 32), normal(32, seed=1)
    before = np.array(cache)
    with pytest.warns(DonationWarning) as caught:
        result, _ = decided(cache, row)
    assert [warning.filename for warning in caught] == [__file__]
    np.testing.assert_array_equal(result[3], row)
    np.testing.assert_array_equal(result[4], before[4])
    np.testing.assert_array_equal(cache, before)
    assert len(decided.decided) == 1


def test_inside_other_transformations_it_is_plain_jax():
    decided = jit(mlp_loss, passes=("fusion",))
    args = (MLP_PARAMS, normal(8, 16))
    assert_same(jax.grad(decided)(*args), jax.grad(mlp_loss)(*args))
    assert_same(jax.jit(decided)(*args), mlp_loss(*args))
    assert_same(
        jax.vmap(decided, (None, 0))(MLP_PARAMS, normal(2, 8, 16)),
        jax.vmap(mlp_loss, (None, 0))(MLP_PARAMS, normal(2, 8, 16)),
    )
    assert decided.decided == []
    assert_same(decided(*args), mlp_loss(*args))
    assert len(decided.decided) == 1


def test_one_decided_function_may_call_another():
    inner = jit(jnp.tanh, passes=("algsimp",))
    outer = jit(lambda x: inner(x) * 2, passes=("algsimp",))
    x = normal(4)
    np.testing.assert_allclose(outer(x), np.tanh(x) * 2, atol=1e-6)
    assert len(outer.decided) == 1
    assert inner.decided == []


def test_without_jit_it_is_the_function():
    decided = jit(lambda x: x + 1, passes=("algsimp",))
    with jax.disable_jit():
        assert decided(jnp.float32(1)) == 2
    assert decided.decided == []


def test_methods_and_decorators():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        def plain(self, x):
            return x * self.scale

        @jit
        def untied(x):  # noqa: N805 (a function that needs no self)
            return x + 1

    assert Model.untied(jnp.float32(1)) == 2
    assert jit(Model(3.0).plain)(jnp.float32(2)) == 6


def test_it_looks_like_the_function():
    def fn(x):
        """Says something."""
        return x

    decided = jit(fn)
    assert decided.__name__ == "fn"
    assert decided.__doc__ == "Says something."
    assert decided.eval_shape(jnp.ones(3)).shape == (3,)
    expected = from_jax(fn, jnp.ones(3)).fingerprint()
    assert from_jax(decided, jnp.ones(3)).fingerprint() == expected
    assert HloModule.from_jax(decided.lower(jnp.ones(3))).fingerprint() == expected


def test_a_pass_that_fails_falls_back_with_a_warning():
    def policy(_):
        raise PassError("this pass fails")

    decided = jit(lambda x: x + 1, policy=policy)
    with pytest.warns(FallbackWarning, match="PassError: this pass fails") as caught:
        assert decided(jnp.float32(1)) == 2
    assert caught[0].filename == __file__
    assert decided(jnp.float32(2)) == 3  # no second warning
    assert decided.decided == []


def test_a_wrong_policy_is_an_error():
    decided = jit(lambda x: x / 2, policy=lambda _: [7])
    for _ in range(2):
        with pytest.raises(DecisionError):
            decided(jnp.float32(1))


def test_two_devices_fall_back(run_child):
    run_child(
        """
import warnings
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from hloenv.jax import FallbackWarning, jit
mesh = Mesh(jax.devices(), "x")
x = jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))
decided = jit(lambda x: x * 2 + 1, policy="reject-all")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert decided(x).sum() == 64
(warning,) = [w for w in caught if w.category is FallbackWarning]
assert "2 devices" in str(warning.message), warning.message
assert decided.decided == []
""",
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
    )


def test_unknown_policies_and_passes_are_rejected_at_once():
    with pytest.raises(LookupError, match="keep-original"):
        jit(jnp.tanh, policy="accept-some")
    with pytest.raises(LookupError, match="algsimp"):
        jit(jnp.tanh, passes=("algsim",))


def test_threads_share_what_one_decided():
    calls = []

    def policy(alternatives):
        calls.append(alternatives)
        return alternatives.reject_all()

    decided = jit(lambda x: jnp.tanh(x) * 1, policy=policy, passes=("algsimp",))
    x = normal(50)
    for result in in_threads(lambda _: np.asarray(decided(x)), range(4)):
        np.testing.assert_allclose(result, np.tanh(x), atol=1e-6)
    assert len(decided.decided) == len(calls) == 1


def test_clear_cache_decides_again():
    decided = jit(jnp.tanh, passes=("algsimp",))
    decided(normal(4))
    decided.clear_cache()
    assert decided.decided == []
    decided(normal(4))
    assert len(decided.decided) == 1


def test_nothing_stays_registered_when_functions_are_gone(monkeypatch):
    from hloenv.jax import dispatch

    monkeypatch.setattr(dispatch, "dispatcher", dispatch.Dispatcher())
    seen = []
    real = injection.register

    def register(transform):
        unregister = real(transform)
        seen.append("registered")

        def observed():
            unregister()
            seen.append("unregistered")

        return observed

    monkeypatch.setattr(dispatch, "register", register)
    functions = [type("F", (), {"has_modules": False})() for _ in range(2)]
    for position, function in enumerate(functions):
        dispatch.dispatcher.add(f"jit_{position}", function)
    assert seen == []
    for function in functions:
        with dispatch.dispatcher.compiling():
            assert seen == ["registered"]
            function.has_modules = True
    assert seen == ["registered"]
    functions.clear()
    del function
    gc.collect()
    assert seen == ["registered", "unregistered"]


def test_one_pass_needs_no_list():
    for passes in ("algsimp", Pass("algsimp"), Pipeline("both", ["algsimp", "cse"])):
        function = jit(lambda x: jnp.negative(jnp.negative(jnp.sin(x))), passes=passes)
        np.testing.assert_allclose(function(1.0), np.sin(1.0), rtol=1e-6)
        (decided,) = function.decided
        assert decided.num_accepted > 0


@pytest.mark.parametrize("arguments", [{"passes": 3}, {"policy": 3}, {"fn": 3}])
def test_arguments_of_other_types_are_rejected(arguments):
    with pytest.raises(ArgumentTypeError):
        jit(**{"fn": jnp.sin, **arguments})
