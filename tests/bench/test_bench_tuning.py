# SPDX-License-Identifier: Apache-2.0
"""scripts/reports/tune_rules.py: constants are tuned on train and selected on validation."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field

import pytest

import tune_rules as script
from hloenv.bench.joint import index_of_fastest
from hloenv.bench.statistics import Headline
from hloenv.cost import kernels
from hloenv.hlo.module import HloModule
from hloenv.hlo.pipeline import finish

DOT = """HloModule dot
ENTRY entry {
  x = f32[16,16] parameter(0)
  y = f32[16,16] parameter(1)
  ROOT z = f32[16,16] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


# Steps that XLA runs as a dataflow graph.
INDEPENDENT = "HloModule graph\nENTRY entry {\n" + "".join(
    f"  x{i} = f32[16,16] parameter({i})\n  y{i} = f32[16,16] dot(x{i}, x{i}), "
    "lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    for i in range(9)
)
INDEPENDENT += "  ROOT out = ({}) tuple({})\n}}\n".format(
    ", ".join(["f32[16,16]"] * 9), ", ".join(f"y{i}" for i in range(9))
)


@dataclass
class Scores:
    """Means by split and value of the constant."""

    means: dict[str, dict[float, float]]
    asked: dict[str, list[float]] = field(default_factory=dict)

    def scores(self, split, constant, candidates):
        values = [getattr(each, constant.name) for each in candidates]
        self.asked[split] = values
        return [
            Headline(self.means[split][value], 0.9, 1.1, 1, 1, 1) for value in values
        ]


def test_the_best_on_train_are_measured_on_validation():
    constant = script.Constant("min_gain", "", "", (0.0, 0.1, 0.2, 0.3, 0.4))
    train = {0.0: 1.3, 0.1: 1.2, 0.2: 1.25, 0.3: 1.0, 0.4: 1.0}
    # What is best of all on validation was not among the best on train.
    validation = {0.0: 1.1, 0.1: 1.0, 0.2: 1.15, 0.3: 9.0, 0.4: 9.0}
    scores = Scores({"train": train, "validation": validation})
    chosen, lines = script.tune(constant, script.Values(), scores)
    assert chosen.min_gain == 0.2
    assert scores.asked["validation"] == [0.0, 0.1, 0.2]
    assert [line[0] for line in lines if "chosen" in line[0]] == ["0.2 (chosen)"]


def test_ties_keep_the_present_value():
    constant = script.CONSTANTS[0]
    flat = dict.fromkeys(constant.grid, 1.0)
    scores = Scores({"train": flat, "validation": flat})
    values = script.Values()
    assert script.tune(constant, values, scores)[0] == values
    assert values.max_products in constant.grid
    assert values.min_gain in script.CONSTANTS[2].grid
    assert values.step_ns in script.CONSTANTS[1].grid


def test_test_splits_are_never_loaded(monkeypatch):
    loaded = []

    def load(split, **_):
        loaded.append(split)
        return []

    monkeypatch.setattr(script.dataset, "load", load)
    args = argparse.Namespace(
        modules=5, per_entry=1, seed=0, min_instructions=1, max_instructions=9
    )
    for split in ("train", "validation"):
        assert script.sample(split, args, needs_dots=True) == []
    for split in ("test", "unseen"):
        with pytest.raises(AssertionError):
            script.sample(split, args, needs_dots=False)
    assert loaded == ["train", "validation"]


def test_the_limit_of_dots_reaches_its_rule():
    module = HloModule.from_text(DOT)
    default = finish(module).fingerprint()
    limits = (16**3 - 1, 16**3)
    values = [script.Values(max_products=limit) for limit in limits]
    less, enough = script.decided(module, "small-dots/accept-all", values, None)
    assert less.fingerprint() == default
    assert enough.fingerprint() != default


class OneSecond:
    """Of each kernel."""

    threads = 1

    def times(self, split):
        return [1.0] * len(split)


def test_the_other_constants_reach_the_choice(monkeypatch):
    monkeypatch.setattr(kernels, script._STEP, getattr(kernels, script._STEP))
    asked = []

    def index_of_fastest(seconds, min_gain):
        asked.append((seconds, min_gain))
        return len(seconds) - 1

    monkeypatch.setattr(script.joint, "index_of_fastest", index_of_fastest)
    module = HloModule.from_text(INDEPENDENT)
    values = [
        script.Values(step_ns=step, min_gain=gain) for step in (0, 9) for gain in (0, 1)
    ]
    made = script.decided(module, "careful/best-rule", values, OneSecond())
    assert [gain for _, gain in asked] == [0, 1, 0, 1]
    assert asked[0][0] == asked[1][0] != asked[2][0] == asked[3][0]
    assert len(made) == len(values)


def test_the_fastest_must_save_a_share():
    seconds = [10.0, 9.6, float("inf"), 9.4, 9.4]
    assert index_of_fastest(seconds, 0.05) == 3
    assert index_of_fastest(seconds, 0.1) == 0
    assert index_of_fastest(seconds[:2], 0) == 1
    assert index_of_fastest([float("inf"), 5.0], 0) == 0
