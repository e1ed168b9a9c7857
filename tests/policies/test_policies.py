# SPDX-License-Identifier: Apache-2.0
"""Decisions of each policy on modules with known results."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv import policies
from hloenv.policies import base
from hloenv.rewrite import choice_deltas
from support.modules import TWO_REWRITES
from support.run_child import run_python

# Writing the logistic function out takes more instructions, and more bytes.
_LOGISTIC = """HloModule logistic

ENTRY main {
  x = f32[256]{0} parameter(0)
  ROOT y = f32[256]{0} logistic(x)
}
"""


# Inlining `small`, which one call uses, saves the call and its parameter; inlining
# `shared`, which two use, copies it.
_CALLS = """HloModule calls

small {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} cosine(a)
  c = f32[8]{0} negate(b)
  ROOT d = f32[8]{0} exponential(c)
}

shared {
  e = f32[8]{0} parameter(0)
  f = f32[8]{0} sine(e)
  g = f32[8]{0} abs(f)
  h = f32[8]{0} exponential(g)
  i = f32[8]{0} sqrt(h)
  ROOT j = f32[8]{0} negate(i)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  y = f32[8]{0} parameter(1)
  once = f32[8]{0} call(x), to_apply=small
  first = f32[8]{0} call(x), to_apply=shared
  second = f32[8]{0} call(y), to_apply=shared
  ROOT out = (f32[8]{0}, f32[8]{0}, f32[8]{0}) tuple(once, first, second)
}
"""


def _capture(text: str, *passes: str) -> tuple[hloenv.HloEnv, hloenv.Alternatives]:
    env = hloenv.HloEnv(text)
    return env, env.get_alternatives(*passes)


def test_registry_lists_the_documented_policies():
    names = policies.list_policies()
    assert set(names) >= {
        "accept-all",
        "keep-original",
        "random",
        "first",
        "hill-climb",
        "fewest-ops",
        "least-bytes",
        "greedy-roofline",
        "greedy-kernels",
        "fuse-all-legal",
        "fuse-by-bytes",
        "xla",
    }
    families = policies.list_policies(families=True)
    assert families == (
        "gnn:CHECKPOINT",
        "mix:PASS=POLICY,...",
        "search:NAME",
        "share:PROBABILITY",
        "substitution:CHECKPOINT",
    )
    assert all(policies.describe_policy(n).summary for n in (*names, *families))
    assert [n for n in names if policies.describe_policy(n).is_random] == [
        "hill-climb",
        "random",
    ]
    assert isinstance(policies.get_policy("reject-all"), policies.KeepOriginal)


def test_unknown_policy_names_those_there_are():
    with pytest.raises(
        policies.UnknownPolicyError, match=r"least-bytes.*Did you mean 'fewest-ops'"
    ):
        policies.get_policy("fewest-op")


def test_registered_policy_is_found_by_name():
    policies.register_policy("mine", "none", lambda _: policies.KeepOriginal())
    try:
        assert isinstance(policies.get_policy("mine"), policies.KeepOriginal)
        with pytest.raises(ValueError, match="'mine' exists already"):
            policies.register_policy("mine", "none", lambda _: policies.KeepOriginal())
    finally:
        base._REGISTRY.remove("mine")
    with pytest.raises(policies.UnknownPolicyError):
        policies.get_policy("mine")


def test_accept_all_gives_what_the_pass_gives():
    env, alternatives = _capture(TWO_REWRITES, "algsimp")
    native = hloenv.HloEnv(TWO_REWRITES)
    native.run("algsimp")
    env.apply_alternatives(policies.get_policy("accept-all")(alternatives))
    assert env.fingerprint() == native.fingerprint()


def test_reject_all_gives_the_original():
    env, alternatives = _capture(TWO_REWRITES, "algsimp", "cse")
    before = env.fingerprint()
    env.apply_alternatives(policies.get_policy("keep-original")(alternatives))
    assert env.fingerprint() == before


def test_random_follows_from_its_seed():
    _, alternatives = _capture(TWO_REWRITES, "algsimp", "cse")

    def draws(seed: int) -> list[list[int]]:
        policy = policies.get_policy("random", seed=seed)
        return [np.asarray(policy(alternatives)).tolist() for _ in range(20)]

    assert draws(3) == draws(3)
    assert draws(3) != draws(4)
    seen = np.array(draws(3))
    assert (seen >= 0).all()
    assert (seen < alternatives.num_choices).all()
    assert (seen.max(0) == alternatives.num_choices - 1).all()
    assert (seen.min(0) == 0).all()


def test_first_takes_one_rewrite_at_a_time():
    env, alternatives = _capture(TWO_REWRITES, "algsimp", "cse")
    total = len(alternatives)
    assert total >= 2
    policy = policies.get_policy("first")
    rounds = 0
    while len(alternatives):
        decisions = np.asarray(policy(alternatives))
        assert (decisions > 0).sum() == 1
        env.apply_alternatives(decisions)
        alternatives = env.get_alternatives("algsimp", "cse")
        rounds += 1
        assert rounds <= 10
    assert rounds >= 2


@pytest.mark.parametrize("name", ["fewest-ops", "least-bytes"])
def test_greedy_policies_accept_gains(name):
    env, alternatives = _capture(TWO_REWRITES, "algsimp", "cse")
    decisions = policies.get_policy(name)(alternatives)
    assert (np.asarray(decisions) > 0).all()
    before = env.module
    after = env.apply_alternatives(decisions)
    assert after.instruction_count < before.instruction_count
    assert after.cost().bytes < before.cost().bytes


@pytest.mark.parametrize("name", ["fewest-ops", "least-bytes"])
def test_greedy_policies_reject_costs(name):
    _, alternatives = _capture(_LOGISTIC, "logistic-expander")
    assert len(alternatives) == 1
    assert policies.get_policy(name)(alternatives).tolist() == [0]


def test_fewest_ops_counts_what_a_call_shares():
    env, alternatives = _capture(_CALLS, "call-inliner")
    decisions = policies.get_policy("fewest-ops")(alternatives)
    taken = {each.original for each in alternatives if decisions[each.index]}
    assert taken == {"once"}
    env.apply_alternatives(decisions)
    assert env.module.opcode_counts()["call"] == 2


def test_no_alternatives_no_decisions():
    _, alternatives = _capture(_LOGISTIC, "dot_decomposer")
    for name in (*policies.list_policies(), "share:0.5", "mix:cse=first"):
        decisions = np.asarray(policies.get_policy(name)(alternatives))
        assert decisions.shape == (0,)
        assert decisions.dtype == np.int64


def test_effect_of_a_choice_is_what_it_does_to_its_computation(hlo_dir):
    rng = np.random.default_rng(0)
    num_checked = 0
    for path in sorted(hlo_dir.glob("*/*.txt")):
        env = hloenv.HloEnv(path)
        if env.module.instruction_count > 600:
            continue
        alternatives = env.get_alternatives("algsimp", "cse")
        if not len(alternatives):
            continue
        values = choice_deltas.ChoiceDeltas(
            alternatives, lambda g: np.ones(g.num_nodes)
        ).change
        first = np.cumsum(alternatives.num_choices) - alternatives.num_choices
        assert (values[first] == 0).all()
        before = _sizes(alternatives, alternatives.reject_all())
        for index in rng.choice(len(alternatives), min(3, len(alternatives)), False):
            decisions = alternatives.reject_all()
            decisions[index] = 1
            after = _sizes(alternatives, decisions)
            computation = alternatives[int(index)].sites[0].computation
            change = after[computation] - before[computation]
            assert change == values[first[index] + 1], (path, alternatives[int(index)])
            num_checked += 1
    assert num_checked > 50


def _sizes(alternatives: hloenv.Alternatives, decisions: np.ndarray) -> dict[str, int]:
    """Instructions of each computation, once the decisions are applied."""
    graph = hloenv.HloGraph.from_module(alternatives.apply(decisions))
    sizes = np.diff(graph.computation_offsets).tolist()
    return dict(zip(graph.computation_names, sizes, strict=True))


@pytest.mark.parametrize(("name", "figure"), [("fewest-ops", 0), ("least-bytes", 1)])
def test_greedy_policies_beat_accepting_all_on_their_own_figure(hlo_dir, name, figure):
    """Over the folder: each policy is better on its figure than taking everything."""

    def figures(module: hloenv.HloModule) -> tuple[int, float]:
        return module.instruction_count, module.cost().bytes

    ratios = []
    for path in sorted(hlo_dir.glob("*/*.txt")):
        env = hloenv.HloEnv(path)
        if env.module.instruction_count > 800:
            continue
        alternatives = env.get_alternatives("algsimp", "cse")
        if not len(alternatives):
            continue
        greedy = alternatives.apply(policies.get_policy(name)(alternatives))
        taken = alternatives.apply(policies.get_policy("accept-all")(alternatives))
        ratios.append(figures(greedy)[figure] / figures(taken)[figure])
    assert len(ratios) > 10
    assert np.exp(np.mean(np.log(ratios))) < 1


@pytest.mark.parametrize("name", ["fewest-ops", "least-bytes"])
@pytest.mark.parametrize(
    ("place", "passes"), [(None, ("algsimp", "cse")), ("fusion", ("general-fusion",))]
)
def test_greedy_policies_never_make_it_worse(hlo_dir, name, place, passes):
    num_better = 0
    for path in sorted(hlo_dir.glob("*/*.txt")):
        env = hloenv.HloEnv(path)
        if not 100 < env.module.instruction_count < 500:
            continue
        if place is not None:
            env.run_until(place)
        figures = [_figure(env.module, name)]
        for _ in range(2):
            alternatives = env.get_alternatives(*passes)
            decisions = policies.get_policy(name)(alternatives)
            env.apply_alternatives(decisions)
            figures.append(_figure(env.module, name))
        assert figures == sorted(figures, reverse=True), path
        num_better += figures[-1] < figures[0]
    assert num_better > 10


def _figure(module: hloenv.HloModule, name: str) -> float:
    """What the policy lowers: instructions outside fusions, or bytes."""
    if name == "least-bytes":
        return module.cost().bytes
    graph = hloenv.HloGraph.from_module(module)
    return float((~graph.is_in_fusion).sum())


def _swaps(fn, *shapes):
    """How many windows run backwards in what XLA compiles, by default and decided."""
    import jax.numpy as jnp

    module = hloenv.HloModule.from_jax(fn, *(jnp.ones(shape) for shape in shapes))
    env = hloenv.HloEnv(module)
    env.run_until("simplification")
    alternatives = env.get_alternatives("algsimp")
    decisions = policies.KeepConvolutions()(alternatives)
    assert set(decisions) <= {0, -1}
    env.apply_alternatives(decisions, alternatives, partial=True)
    return [
        hloenv.finish(each).to_text().count("rhs_reversal")
        for each in (module, env.module)
    ]


@pytest.mark.jax
def test_convolutions_keep_their_windows():
    import jax
    import jax.numpy as jnp

    def convolution(x, kernel):
        return jax.lax.conv_general_dilated(
            x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    def two(x, kernel):  # relu is a call, which XLA inlines in between
        return convolution(jax.nn.relu(convolution(x, kernel)), kernel)

    def loss(x, kernel):
        return jnp.sum(two(x, kernel) ** 2)

    shapes = (2, 2, 2, 8), (3, 3, 8, 8)
    assert _swaps(convolution, *shapes) == [1, 0]
    assert _swaps(two, *shapes) == [2, 0]
    before, after = _swaps(jax.grad(loss, (0, 1)), *shapes)
    assert before > 2
    assert after == 0
    assert _swaps(convolution, (2, 8, 8, 8), (3, 3, 8, 8)) == [0, 0]
    assert _swaps(lambda x, y: x @ y, (4, 4), (4, 4)) == [0, 0]


@pytest.mark.jax
def test_convolutions_of_dilated_inputs_are_left_to_xla():
    """As gradients of transposed convolutions, where the swap is 9 times as fast."""
    import jax

    def dilated(x, kernel):
        return jax.lax.conv_general_dilated(
            x,
            kernel,
            (1, 1),
            ((2, 2), (2, 2)),
            lhs_dilation=(2, 2),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )

    assert _swaps(dilated, (8, 8, 8, 4), (16, 16, 4, 8)) == [1, 1]


def test_every_policy_is_there_in_a_new_process():
    """Also those that nothing else in the process has imported."""
    folder = Path(policies.__file__).parent.parent
    pattern = re.compile(r'register_policy\(\s*"([^"]+)"')
    wanted = {
        name
        for path in folder.rglob("*.py")
        for name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    assert len(wanted) > 10
    code = (
        "from hloenv import policies; "
        "print(*policies.list_policies(), *policies.list_policies(families=True))"
    )
    assert wanted <= set(run_python("-c", code).stdout.split())
