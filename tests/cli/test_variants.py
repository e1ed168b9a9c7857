# SPDX-License-Identifier: Apache-2.0
"""The table of hloenv optimize."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest

from hloenv import HloModule
from hloenv.cli import measuring
from hloenv.cli.variants import XLA_DEFAULT, Variant, print_variants
from hloenv.measurement.config import Settings
from support.modules import TWO_REWRITES


def _variants(interval):
    module = HloModule.from_text(TWO_REWRITES)
    names = ("original", "accept-all", XLA_DEFAULT)
    variants = [Variant(name, module, is_decided=True) for name in names]
    for each in variants:
        each.measured_s, each.speedup, each.speedup_interval = 1e-6, 1.0, (1.0, 1.0)
    variants[1].speedup_interval = interval
    return variants


@pytest.mark.parametrize(
    ("interval", "message"),
    [
        ((0.9, 1.1), "not the ratio of the"),
        ((0.5, 1.6), "interval of accept-all is wider than 2x"),
        ((math.nan, math.inf), "one round, which tells no speed-up; add --measure"),
    ],
)
def test_the_table_says_how_its_ratios_are_read(capsys, interval, message):
    variants = _variants(interval)
    print_variants(variants, title="m", is_measured=True, estimator=None)
    out = capsys.readouterr().out
    assert message in out
    assert ("wider" in out) == ("wider" in message)


def test_the_default_s_time_is_of_all_its_runs(monkeypatch):
    def result(*times):
        return SimpleNamespace(
            error=None,
            durations_ns=(),
            outputs=None,
            speedup=1.0,
            speedup_interval=(1.0, 1.0),
            baseline_ns=times,
        )

    class Measurer:
        def __init__(self, *_, **__):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def measure(self, modules, baseline, inputs):
            return [result(100, 100, 100), result(300, 300, 300, 300)]

    monkeypatch.setattr(measuring, "Measurer", Measurer)
    variants = _variants((1.0, 1.0))
    measuring.measure_variants(variants, settings=Settings(), store=None, again=False)
    assert variants[-1].measured_s == pytest.approx(300e-9)
