# SPDX-License-Identifier: Apache-2.0
"""Fusions that copy a value which the module compares with one selected from it."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.policies import FuseAllLegal, RandomChoice, get_policy
from hloenv.rewrite.game import DecisionPoint, Game
from support import captures
from support.captures import REDUCERS

# Some modules are given as they are, without layouts assigned by XLA.
pytestmark = pytest.mark.filterwarnings("ignore::hloenv.PositionWarning")


def entry(body: str, *, before: str = "") -> str:
    return f"HloModule m\n{REDUCERS}\n{before}\nENTRY main {{\n{body}\n}}"


def capture(text: str, *passes: object) -> hloenv.Alternatives:
    return captures.capture(text, *(passes or (EVERYTHING,)))


EVERYTHING = hloenv.Pass("general-fusion", duplicate_compared=True)


def marked(alternatives: hloenv.Alternatives) -> set[tuple[str, str]]:
    """The fusions that copy a compared value."""
    found = set()
    for alternative in alternatives:
        for choice in alternative.choices:
            if choice.duplicates_compared:
                found.update((alternative.original, name) for name in choice.passes)
    return found


def marked_sites(text: str, *passes: object) -> set[str]:
    return {original for original, _ in marked(capture(text, *passes))}


# x is computed, its maximum taken, and compared with it.
ROW_MAXIMUM = entry("""
  p = f32[4,8]{1,0} parameter(0)
  q = f32[4,8]{1,0} parameter(1)
  r = f32[4,8]{1,0} parameter(2)
  y = f32[4,8]{1,0} multiply(p, q)
  x = f32[4,8]{1,0} add(y, r)
  lowest = f32[] constant(-inf)
  m = f32[4]{0} reduce(x, lowest), dimensions={1}, to_apply=max
  ms = f32[4,8]{1,0} broadcast(m), dimensions={0}
  e = pred[4,8]{1,0} compare(x, ms), direction=EQ
  n = f32[4,8]{1,0} negate(x)
  one = f32[] constant(1)
  ones = f32[4,8]{1,0} broadcast(one), dimensions={}
  ROOT g = f32[4,8]{1,0} select(e, ones, n)
""")

# The same elementwise, as the gradient of jnp.maximum(x, 0.5) is.
ELEMENTWISE = entry("""
  p = f32[8]{0} parameter(0)
  q = f32[8]{0} parameter(1)
  r = f32[8]{0} parameter(2)
  y = f32[8]{0} multiply(p, q)
  x = f32[8]{0} add(y, r)
  half = f32[] constant(0.5)
  halves = f32[8]{0} broadcast(half), dimensions={}
  m = f32[8]{0} maximum(x, halves)
  e = pred[8]{0} compare(x, m), direction=EQ
  l = f32[8]{0} logistic(m)
  ROOT g = f32[8]{0} select(e, l, halves)
""")


@pytest.mark.parametrize("text", [ROW_MAXIMUM, ELEMENTWISE])
def test_a_copy_of_a_compared_value_is_marked(text):
    alternatives = capture(text)
    copied = {
        alternative.original
        for alternative in alternatives
        for index, choice in enumerate(alternative.choices)
        if index > 0 and "x" not in choice.makes_dead and choice.duplicates_compared
    }
    # x into its comparison and into what takes its maximum. A copy that no comparison
    # reads (n) makes no difference.
    assert copied == {"e", "m"}


@pytest.mark.parametrize("text", [ROW_MAXIMUM, ELEMENTWISE])
def test_general_fusion_proposes_none_by_default(text):
    usual = capture(text, "general-fusion")
    everything = capture(text)
    assert not usual.duplicates_compared.any()
    num_marked = int(everything.duplicates_compared.sum())
    assert num_marked > 0
    assert usual.num_choices.sum() - len(usual) == (
        everything.num_choices.sum() - len(everything) - num_marked
    )


def test_the_array_has_every_choice_in_order():
    alternatives = capture(ROW_MAXIMUM)
    expected = [
        choice.duplicates_compared
        for alternative in alternatives
        for choice in alternative.choices
    ]
    assert alternatives.duplicates_compared.tolist() == expected
    assert not alternatives.duplicates_compared.flags.writeable


# Alone, y in x leaves one copy; but what other decisions put in the place of e and m
# reads x where it was.
def test_a_value_that_moves_is_marked_as_its_readers_may_not_follow():
    text = entry("""
      p = f32[8]{0} parameter(0)
      q = f32[8]{0} parameter(1)
      y = f32[8]{0} multiply(p, q)
      x = f32[8]{0} exponential(y)
      half = f32[] constant(0.5)
      halves = f32[8]{0} broadcast(half), dimensions={}
      m = f32[8]{0} maximum(x, halves)
      ROOT e = pred[8]{0} compare(x, m), direction=EQ""")
    assert marked_sites(text) == {"e", "m", "x"}


# Both results of one kernel are the same value, but what another decision puts in the
# place of e reads x itself.
def test_two_results_of_one_loop_may_be_told_from_a_third_reader():
    alternatives = capture(ELEMENTWISE)
    shared = [
        choice.duplicates_compared
        for alternative in alternatives
        if {site.original for site in alternative.sites} == {"x", "m"}
        for choice in alternative.choices[1:]
    ]
    assert shared
    assert all(shared)


# y into x moves x, and x into m makes a copy: each is right alone, both are not.
@pytest.mark.parametrize("text", [ROW_MAXIMUM, ELEMENTWISE])
def test_a_moved_value_and_a_copy_are_not_taken_together(text):
    alternatives = capture(text, "general-fusion")
    made = {name for each in alternatives for name in each.choices[1].makes_dead}
    assert "y" not in made


def test_values_that_round_nothing_may_be_copied():
    # Arguments, and what is picked from them, hold the same bits everywhere.
    text = entry("""
      p = f32[8]{0} parameter(0)
      x = f32[8]{0} negate(p)
      half = f32[] constant(0.5)
      halves = f32[8]{0} broadcast(half), dimensions={}
      m = f32[8]{0} maximum(x, halves)
      e = pred[8]{0} compare(x, m), direction=EQ
      ROOT t = (pred[8]{0}, f32[8]{0}) tuple(e, m)""")
    assert not capture(text).duplicates_compared.any()
    # Nor does it matter where only a threshold is compared with.
    threshold = text.replace("negate(p)", "exponential(p)").replace(
        "compare(x, m)", "compare(x, halves)"
    )
    assert not capture(threshold).duplicates_compared.any()
    rounds = text.replace("negate(p)", "exponential(p)")
    assert capture(rounds).duplicates_compared.any()


# x has one reader, t, which rounds nothing and has two: copied into both, t reads x
# twice, and x in t is then a copy beside the x that the other reads.
def test_what_two_choices_only_do_together_is_marked_too():
    text = entry("""
      p = f32[4,8]{1,0} parameter(0)
      x = f32[4,8]{1,0} exponential(p)
      t = f32[8,4]{1,0} transpose(x), dimensions={1,0}
      lowest = f32[] constant(-inf)
      m = f32[8]{0} reduce(t, lowest), dimensions={1}, to_apply=max
      ms = f32[8,4]{1,0} broadcast(m), dimensions={0}
      ROOT e = pred[8,4]{1,0} compare(t, ms), direction=EQ""")
    assert marked_sites(text) == {"t"}


def test_inside_fusions_and_through_tuples_and_loops():
    text = entry(
        """
      p = f32[8]{0} parameter(0)
      q = f32[8]{0} parameter(1)
      x = f32[8]{0} fusion(p, q), kind=kLoop, calls=inner
      m = f32[8]{0} fusion(x, p), kind=kLoop, calls=larger
      zero = s32[] constant(0)
      s = (s32[], f32[8]{0}, f32[8]{0}) tuple(zero, x, m)
      w = (s32[], f32[8]{0}, f32[8]{0}) while(s), condition=condition, body=body
      ROOT r = f32[8]{0} get-tuple-element(w), index=2""",
        before="""
inner {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  y = f32[8]{0} multiply(a, b)
  ROOT z = f32[8]{0} add(y, b)
}

larger {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  ROOT z = f32[8]{0} maximum(a, b)
}

body {
  s = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[8]{0} get-tuple-element(s), index=1
  b = f32[8]{0} get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  e = pred[8]{0} compare(a, b), direction=EQ
  c = f32[8]{0} select(e, a, b)
  ROOT t = (s32[], f32[8]{0}, f32[8]{0}) tuple(next, a, c)
}

condition {
  s = (s32[], f32[8]{0}, f32[8]{0}) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  end = s32[] constant(3)
  ROOT less = pred[] compare(i, end), direction=LT
}
""",
    )
    assert marked_sites(text) == {"m"}


# In one kernel, a value that is read at other places is computed for each of them.
def test_a_kernel_that_reads_other_elements_computes_them_again():
    text = entry(
        """
      p = f32[4,8]{1,0} parameter(0)
      x = f32[4,8]{1,0} exponential(p)
      ROOT e = pred[4,8]{1,0} fusion(x), kind=kLoop, calls=compared""",
        before="""
compared {
  a = f32[4,8]{1,0} parameter(0)
  lowest = f32[] constant(-inf)
  m = f32[4]{0} reduce(a, lowest), dimensions={1}, to_apply=max
  ms = f32[4,8]{1,0} broadcast(m), dimensions={0}
  ROOT c = pred[4,8]{1,0} compare(a, ms), direction=EQ
}
""",
    )
    assert marked_sites(text) == {"e"}
    elementwise = (
        text.replace("  lowest = f32[] constant(-inf)\n", "")
        .replace(
            "m = f32[4]{0} reduce(a, lowest), dimensions={1}, to_apply=max",
            "m = f32[4,8]{1,0} abs(a)",
        )
        .replace("broadcast(m), dimensions={0}", "negate(m)")
    )
    assert marked_sites(elementwise) == set()


def test_marks_do_not_change_xlas_own_decisions():
    alternatives = capture(ELEMENTWISE, "fusion")
    decisions = alternatives.decisions_for("fusion")
    assert decisions.any()
    native = hloenv.HloEnv(hloenv.HloModule.from_text(ELEMENTWISE))
    native.run("fusion")
    decided = alternatives.apply(decisions)
    assert decided.fingerprint() == native.module.fingerprint()


def test_policies_leave_marked_choices_out():
    alternatives = capture(ROW_MAXIMUM)
    first = np.cumsum(alternatives.num_choices) - alternatives.num_choices

    def takes_marked(decisions: np.ndarray) -> bool:
        return bool(alternatives.duplicates_compared[first + decisions].any())

    for name in (
        "fewest-ops",
        "first",
        "fuse-all-legal",
        "fuse-by-bytes",
        "greedy-roofline",
        "least-bytes",
    ):
        assert not takes_marked(get_policy(name)(alternatives)), name
    draws = [RandomChoice(seed)(alternatives) for seed in range(200)]
    assert not any(map(takes_marked, draws))
    # All that is left is drawn.
    seen = {int(choice) for draw in draws for choice in first + draw}
    assert seen == set(np.flatnonzero(~alternatives.duplicates_compared).tolist())
    # Asked for, they are taken.
    assert takes_marked(FuseAllLegal(duplicate_compared=True)(alternatives))
    asked = [
        RandomChoice(seed, duplicate_compared=True)(alternatives) for seed in range(50)
    ]
    assert any(map(takes_marked, asked))


@pytest.mark.parametrize("search", ["random", "hill-climb", "evolve", "mcts", "beam"])
def test_searches_leave_marked_choices_out(search):
    from hloenv.search import get_search

    module = hloenv.HloModule.from_text(ROW_MAXIMUM)
    game = Game(module, [DecisionPoint((EVERYTHING,))])
    alternatives = game.alternatives()
    first = np.cumsum(alternatives.num_choices) - alternatives.num_choices
    strategy = get_search(search, game, seed=0)
    for step in range(60):
        prefix = strategy.ask()
        if prefix is None:
            break
        taken = first + np.maximum(prefix[0], 0)
        assert not alternatives.duplicates_compared[taken].any()
        strategy.tell(prefix, 1.0 + (step * 7 % 5))
    assert len(strategy.history) > 10
    # Asked for, they are proposed.
    asked = Game(module, [DecisionPoint((EVERYTHING,))], duplicate_compared=True)
    accepted = asked.follow_policy(get_policy("accept-all"))
    assert alternatives.duplicates_compared[first + accepted[0]].any()


@pytest.mark.compile
def test_fusing_all_that_is_legal_keeps_equal_values_equal():
    module = hloenv.HloModule.from_text(ROW_MAXIMUM)
    env = hloenv.HloEnv(module)
    env.run_until("fusion")
    alternatives = env.get_alternatives("general-fusion")
    env.apply_alternatives(FuseAllLegal()(alternatives))
    run = hloenv.compile(env.module, finish="legalize")
    rng = np.random.default_rng(0)
    for _ in range(50):
        inputs = rng.normal(size=(3, 4, 8)).astype(np.float32)
        (gradient,) = run(*inputs)
        assert (gradient == 1).any(axis=1).all()


def test_chains_may_be_longer_than_a_stack(run_child):
    """In a thread, whose stack is small."""
    run_child(
        """
import threading
import hloenv
LENGTH = 20000
lines = [
    "p = f32[4] parameter(0)",
    "q = f32[4] parameter(1)",
    "x = f32[4] multiply(p, q)",
    "v0 = f32[4] maximum(x, p)",
]
for i in range(1, LENGTH):
    lines.append(f"v{i} = f32[4] reverse(v{i - 1}), dimensions={{0}}")
lines += [
    f"k = pred[4] compare(x, v{LENGTH - 1}), direction=EQ",
    "n1 = f32[4] negate(x)",
    "n2 = f32[4] add(n1, q)",
    "ROOT t = (pred[4], f32[4]) tuple(k, n2)",
]
text = "HloModule m\\nENTRY e {\\n" + "\\n".join(lines) + "\\n}"
alternatives = hloenv.HloEnv(text).get_alternatives("fusion")
found = []
threading.stack_size(1 << 18)
thread = threading.Thread(
    target=lambda: found.append(alternatives.duplicates_compared.any())
)
thread.start()
thread.join()
assert found == [True], found
"""
    )
