# SPDX-License-Identifier: Apache-2.0
"""Policies that fuse, combine others, or use estimates."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv import policies
from hloenv.cost.base import Estimate
from hloenv.cost.roofline import Roofline, node_seconds
from support.modules import TWO_REWRITES

# Six pairs of sines that cse would make one each.
_PAIRS = (
    "HloModule pairs\n\nENTRY main {\n"
    + "".join(
        f"""  x{i} = f32[{64 + i}]{{0}} parameter({i})
  one{i} = f32[{64 + i}]{{0}} sine(x{i})
  two{i} = f32[{64 + i}]{{0}} sine(x{i})
  out{i} = f32[{64 + i}]{{0}} divide(one{i}, two{i})
"""
        for i in range(6)
    )
    + "  ROOT out = ("
    + ", ".join(f"f32[{64 + i}]{{0}}" for i in range(6))
    + ") tuple("
    + ", ".join(f"out{i}" for i in range(6))
    + ")\n}\n"
)


class Picky:
    """Wants one sine of even sizes, and two of odd ones; counts how often it is asked."""

    def __init__(self):
        self.asked = 0

    def estimate_many(self, modules):
        """A second, and one more for each pair that is not as wanted."""
        self.asked += len(modules)
        return [Estimate(self.seconds(each)) for each in modules]

    def seconds(self, module):
        """From 1 to 7."""
        text = module.to_text()
        counts = [text.count(f"f32[{64 + i}]{{0}} sine(") for i in range(6)]
        return 1.0 + sum(n != 1 + i % 2 for i, n in enumerate(counts))


def _fusions(hlo_dir, least=20, most=400):
    """Environments at fusion, and what can be fused there."""
    for path in sorted(hlo_dir.glob("*/*.txt")):
        if path.stat().st_size > 30_000:
            continue
        env = hloenv.HloEnv(path)
        if not least < env.module.instruction_count < most:
            continue
        env.run_until("fusion")
        alternatives = env.get_alternatives("fusion", "general-fusion")
        if len(alternatives) > 10:
            yield env, alternatives


def _rewrites(*passes):
    return hloenv.HloEnv(TWO_REWRITES).get_alternatives(*passes)


def test_xla_decides_as_xla_does(hlo_dir):
    for count, (env, alternatives) in enumerate(_fusions(hlo_dir)):
        if count == 8:
            break
        decisions = policies.get_policy("xla")(alternatives)
        env.run("fusion")
        assert alternatives.apply(decisions).fingerprint() == env.fingerprint()
    assert count == 8


def test_xla_keeps_what_only_candidate_passes_would_change():
    alternatives = _rewrites("reassociate", "general-simplify")
    assert not policies.get_policy("xla")(alternatives).any()


def test_a_share_takes_some_of_what_xla_takes(hlo_dir):
    _, alternatives = next(_fusions(hlo_dir))
    whole = policies.get_policy("xla")(alternatives)
    np.testing.assert_array_equal(policies.get_policy("share:1")(alternatives), whole)
    assert not policies.get_policy("share:0")(alternatives).any()
    half = policies.get_policy("share:0.5", seed=1)
    draws = np.array([half(alternatives) for _ in range(50)])
    assert ((draws == 0) | (draws == whole)).all()
    assert 0.3 < (draws > 0).sum() / (50 * (whole > 0).sum()) < 0.7
    again = policies.get_policy("share:0.5", seed=1)
    np.testing.assert_array_equal(draws[0], again(alternatives))


def test_a_mixture_takes_of_each_pass_what_its_policy_takes():
    alternatives = _rewrites("algsimp", "cse")
    by_cse = [["cse" in c.passes for c in each.choices] for each in alternatives]
    decisions = policies.get_policy("mix:cse=accept-all")(alternatives)
    assert decisions.any()
    for taken, flags in zip(decisions.tolist(), by_cse, strict=True):
        assert taken == 0 or flags[taken]
    both = policies.get_policy("mix:algsimp=fewest-ops,cse=fewest-ops")(alternatives)
    algsimp = policies.get_policy("mix:algsimp=fewest-ops")(alternatives)
    assert (both[algsimp > 0] == algsimp[algsimp > 0]).all()
    assert (both > 0).sum() > (algsimp > 0).sum()


def test_a_mixture_of_xla_alone_is_xla(hlo_dir):
    _, alternatives = next(_fusions(hlo_dir))
    np.testing.assert_array_equal(
        policies.get_policy("mix:fusion=xla")(alternatives),
        policies.get_policy("xla")(alternatives),
    )


def test_in_a_mixture_a_greedy_policy_sees_its_pass_only(hlo_dir):
    num_taken = 0
    for count, (_, alternatives) in enumerate(_fusions(hlo_dir, most=200)):
        if count == 5:
            break
        mixed = policies.get_policy("mix:fusion=least-bytes")(alternatives)
        for each, taken in zip(alternatives, mixed.tolist(), strict=True):
            assert taken == 0 or "fusion" in each.choices[taken].passes
        num_taken += int((mixed > 0).sum())
    assert count == 5
    assert num_taken > 0


def test_passes_that_were_not_captured_have_no_effect():
    alternatives = _rewrites("cse")
    mixed = policies.get_policy("mix:fusion=accept-all,cse=accept-all")(alternatives)
    assert mixed.all()
    with pytest.raises(hloenv.UnknownPassError, match="fuson"):
        policies.get_policy("mix:fuson=accept-all")(alternatives)


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("share:2", policies.PolicySpecError, "from 0 to 1"),
        ("share:half", policies.PolicySpecError, "share:0.5"),
        ("share:", policies.PolicySpecError, "from 0 to 1"),
        ("mix:fusion", policies.PolicySpecError, "PASS=POLICY"),
        ("mix:", policies.PolicySpecError, "PASS=POLICY"),
        ("mix:cse=first,cse=xla", policies.PolicySpecError, "two policies"),
        ("mix:cse=firsst", policies.UnknownPolicyError, "Did you mean 'first'"),
        ("search:hill", policies.UnknownPolicyError, "the searches are anneal, beam"),
        ("shares:0.5", policies.UnknownPolicyError, "share:PROBABILITY"),
    ],
)
def test_specifications_that_make_no_sense(spec, error, message):
    with pytest.raises(error, match=message):
        policies.get_policy(spec)


def test_fuse_all_legal_fuses_wherever_general_fusion_can(hlo_dir):
    for count, (_, alternatives) in enumerate(_fusions(hlo_dir)):
        if count == 5:
            break
        decisions = policies.get_policy("fuse-all-legal")(alternatives)
        for each, taken in zip(alternatives, decisions.tolist(), strict=True):
            proposals = [
                index
                for index, choice in enumerate(each.choices)
                if "general-fusion" in choice.passes
            ]
            assert taken in (proposals or [0])
        assert decisions.any()
        alternatives.apply(decisions).verify()
    assert count == 5


def test_fuse_by_bytes_only_fuses_and_never_moves_more(hlo_dir):
    num_less = 0
    for count, (_, alternatives) in enumerate(_fusions(hlo_dir)):
        if count == 20:
            break
        decisions = policies.get_policy("fuse-by-bytes")(alternatives)
        before = alternatives.apply(alternatives.reject_all()).cost().bytes
        after = alternatives.apply(decisions).cost().bytes
        assert after <= before
        num_less += after < before
    assert num_less > 10
    assert not policies.get_policy("fuse-by-bytes")(_rewrites("algsimp")).any()


def test_greedy_roofline_lowers_the_sum_of_its_weights(hlo_dir):
    def seconds(module):
        graph = hloenv.HloGraph.from_module(module)
        times = node_seconds(graph)
        return float(times[~graph.is_in_fusion].sum())

    num_less = 0
    for count, (_, alternatives) in enumerate(_fusions(hlo_dir)):
        if count == 20:
            break
        decisions = policies.get_policy("greedy-roofline")(alternatives)
        before = seconds(alternatives.apply(alternatives.reject_all()))
        after = seconds(alternatives.apply(decisions))
        assert after <= before * (1 + 1e-9)
        num_less += after < before
    assert num_less > 10


def test_greedy_kernels_keeps_to_its_estimates_and_gains():
    alternatives = hloenv.HloEnv(_PAIRS).get_alternatives("cse")
    rules = ("xla", "keep-original", "accept-all", "fewest-ops", "least-bytes")
    picky = Picky()
    starts = [
        picky.seconds(alternatives.apply(policies.get_policy(name)(alternatives)))
        for name in rules
    ]
    assert min(starts) == 4.0
    estimator = Picky()
    policy = policies.GreedyKernels(steps=60, estimator=estimator)
    decisions = policy(alternatives)
    assert estimator.asked <= 60
    assert picky.seconds(alternatives.apply(decisions)) <= 2.0
    again = policies.GreedyKernels(steps=60, estimator=Picky())
    np.testing.assert_array_equal(decisions, again(alternatives))
    few = Picky()
    less = policies.GreedyKernels(steps=3, estimator=few)(alternatives)
    assert few.asked == 3
    assert picky.seconds(alternatives.apply(less)) <= 4.0


def test_a_policy_can_be_any_search(hlo_dir):
    _, alternatives = next(_fusions(hlo_dir))
    roofline = Roofline()
    policy = policies.Searched(3, search="beam", steps=20, estimator=roofline)
    decisions = policy(alternatives)
    xla = policies.get_policy("xla")(alternatives)
    chosen, own = roofline.estimate_many(
        [alternatives.apply(decisions), alternatives.apply(xla)]
    )
    assert chosen.seconds <= own.seconds
    assert isinstance(policies.get_policy("search:evolve"), policies.Searched)


def test_a_mixture_takes_no_choice_where_a_policy_leaves_it_to_xla():
    alternatives = _rewrites("algsimp", "cse")

    class Leaves:
        """Leaves everything to XLA."""

        def __call__(self, given):
            return np.full(len(given), -1, np.int64)

    mixed = policies.Mixture(
        {"algsimp": Leaves(), "cse": policies.get_policy("accept-all")}
    )
    alone = policies.Mixture({"cse": policies.get_policy("accept-all")})
    assert np.array_equal(mixed(alternatives), alone(alternatives))
