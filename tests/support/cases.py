# SPDX-License-Identifier: Apache-2.0
"""Modules that the invariants are checked on by default."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from hloenv.process import forkserver
from support.paths import TESTDATA

# Small real modules of every kind: loops, sorts, scatters, convolutions, linear
# algebra, random numbers. All of them are checked by scripts/reports/run_invariants.py.
SMALL_REAL_MODULES = (
    "brax/fast_spring_step",
    "brax/inverted_pendulum_spring_reset",
    "diffrax/heun_ode",
    "distrax/bij_lambda",
    "dm-haiku/conv1d_dil_train",
    "dm-haiku/mha_fwd",
    "dm-haiku/vqvae_ema_fwd",
    "equinox/adaptivepool_fwd",
    "equinox/convT_train",
    "equinox/gru_fwd",
    "flax/rnn_simple_fwd",
    "flax/spectral_train",
    "gpjax/rbf_predict_tpulow",
    "jax-md/gr",
    "jaxopt/bisect",
    "lineax/lu_tpulow",
    "numpyro/eight_schools_potential_vg",
    "optax/adabelief",
    "optax/projection_l1_ball",
    "rlax/transformed_retrace",
    "rlax/vtrace_td",
    "tensorflow-probability/log_gamma_diff",
)

WRITTEN = sorted((TESTDATA / "hlo").glob("*.hlo"))


def sources(num_random: int, *, with_real: bool = True) -> list[Any]:
    """Parameters named `source`: hand-written, random, and real modules."""
    params = [pytest.param(str(path), id=path.stem) for path in WRITTEN]
    params += [pytest.param(f"seed:{n}", id=f"seed{n}") for n in range(num_random)]
    if with_real:
        params += [pytest.param(f"real:{name}", id=name) for name in SMALL_REAL_MODULES]
    return params


def assert_invariants(
    outcome: forkserver.Outcome, num_reports: int | None = None
) -> None:
    """Fails with the child's error."""
    broken = [
        f"{report.passes}: {violation}"
        for report in outcome.values
        for violation in report.violations
    ]
    assert not outcome.error, (
        f"the child crashed after {len(outcome.values)} reports: {outcome.error}"
    )
    assert not broken, "\n".join(broken)
    assert outcome.values, "the child checked nothing, and did not say why"
    if num_reports is not None:
        assert len(outcome.values) == num_reports


def unchecked(outcome: forkserver.Outcome) -> Counter[str]:
    """Why captures could not be checked, without the names of one module."""
    return Counter(
        re.sub(r"(?<!\w)'[^']*'", "'…'", report.skipped[0])[:120]
        for report in outcome.values
        if report.skipped and not report.num_checks
    )
