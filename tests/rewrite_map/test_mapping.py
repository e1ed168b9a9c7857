# SPDX-License-Identifier: Apache-2.0
"""The worth of rewrites: estimates, measurements, crashes, minimal programs."""

from __future__ import annotations

import math

import pytest

import hloenv
from hloenv.process.forkserver import Outcome
from hloenv.rewrite_map import MapSettings, ProgramMap, find_rewrites, map_program
from hloenv.rewrite_map.isolated import _skip_failed
from hloenv.rewrite_map.reproducer import run_script, write_reproducer
from support.rewrites import LARGE_AND_SMALL, SMALL_IMAGE, TWO_LAYERS, row

pytestmark = pytest.mark.compile


@pytest.mark.slow
def test_the_map_finds_the_known_convolution():
    module = hloenv.HloModule.from_text(SMALL_IMAGE)
    found = map_program(module, MapSettings(measure_s=0.3))
    assert not found.error
    (swap,) = found.costly(0.5)
    assert swap.pass_name == "algsimp"
    assert swap.shape_class == (
        "convolution with a kernel larger than the image, f32, above 1 M"
    )
    assert "rhs_reversal" in swap.after
    assert swap.worth < 0.2
    assert swap.low <= swap.measured <= swap.high < 1  # its outputs are equal
    assert found.together < 0.5


def test_estimates_alone():
    module = hloenv.HloModule.from_text(TWO_LAYERS)
    found = map_program(module, MapSettings(measure="none"), program="two layers")
    assert found.program == "two layers"
    assert found.num_rewrites == len(found.rows) == len(find_rewrites(module))
    worst = found.costly(0.03)[0]
    assert worst.before.startswith("f32[2,2,2,64] convolution")
    assert worst.count == 2
    # Without one of the two, about half of the time is saved.
    assert found.reference_s > worst.without_one_s > worst.without_s > 0
    assert worst.worth == worst.without_s / found.reference_s
    assert math.isnan(worst.measured)
    assert found.together_s <= worst.without_s * 1.1


@pytest.mark.slow
def test_what_a_costly_rewrite_hides_is_found_in_the_next_round():
    module = hloenv.HloModule.from_text(LARGE_AND_SMALL)
    found = map_program(module, MapSettings(measure="none"))
    large, small = sorted(found.costly(0.03), key=lambda each: each.round)
    assert (large.round, small.round) == (1, 2)
    assert "512" in large.before
    assert "64" in small.before
    assert small.worth == small.without_s / small.base_s
    assert small.base_s == large.without_s
    # The smaller one alone would have been below the threshold.
    assert small.base_s - small.without_s < 0.03 * large.base_s


def test_the_time_limit_leaves_the_cheapest_operations():
    module = hloenv.HloModule.from_text(TWO_LAYERS)
    found = map_program(module, MapSettings(measure="none", seconds=0))
    assert not found.rows
    assert found.num_left == found.num_rewrites > 0
    # A later call continues.
    found.rows = [row("0", 0.5)]
    again = map_program(module, MapSettings(measure="none"), known=found)
    assert [each.identity for each in again.rows][:1] == ["0"]
    assert len(again.rows) == 1 + again.num_rewrites
    assert len(found.rows) == 1


def test_a_program_that_takes_too_long_is_an_error():
    # The pool looks once a second: some seconds of kernels.
    module = hloenv.HloModule.from_text(SMALL_IMAGE.replace("512", "2048"))
    found = map_program(module, MapSettings(measure="none", timeout_s=0.01))
    assert found.error == "the time limit of one rewrite"


def test_a_crash_is_an_error_of_the_rewrite_that_was_tried():
    found = ProgramMap("p", rows=[row("1", 0.5), row("2", math.nan)])
    crash = Outcome(0, error="the child ended with SIGABRT", started="2")
    assert _skip_failed(found, crash)  # others can be tried
    assert found.rows[1].error == "the child ended with SIGABRT"
    assert not found.error
    early = Outcome(0, error="the child ended with SIGABRT")
    assert not _skip_failed(found, early)
    assert found.error == "the child ended with SIGABRT"


@pytest.mark.jax
@pytest.mark.slow
def test_a_minimal_program_shows_the_same(tmp_path):
    module = hloenv.HloModule.from_text(TWO_LAYERS)
    rewrite = find_rewrites(module)[0]
    made = write_reproducer(module, rewrite, tmp_path, measure_s=0.2)
    assert made is not None
    small = hloenv.HloModule.from_file(tmp_path / made.hlo)
    assert small.opcode_counts() == {"convolution": 1, "parameter": 2}
    assert made.high < 0.8
    run_script(made, tmp_path)
    assert not made.error
    assert made.jax_worth < 0.8
