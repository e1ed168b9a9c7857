# SPDX-License-Identifier: Apache-2.0
"""A daily random sample of the matrix (scripts/reports/run_invariants.py).

$HLOENV_SAMPLE_SEED repeats a day's sample, $HLOENV_SAMPLE_SECONDS makes it longer.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from hloenv.fuzz import cells
from hloenv.fuzz.results import Results, Row
from hloenv.fuzz.subjects import find_subjects
from hloenv.fuzz.sweep import Limits, Sweep, sampled_tasks
from hloenv.fuzz.versions import CodeVersions

_MIN_CHECKS = 50
_SECONDS = float(os.environ.get("HLOENV_SAMPLE_SECONDS", "75"))


def _described(row: Row) -> str:
    return (
        f"{row.violations[0]}\n  python scripts/reports/run_invariants.py --kinds {row.kind} "
        f"--only {row.fingerprint[:12]} --variants '{row.variant}' "
        f"--passes '{row.passes}'  # {row.module}"
    )


@pytest.mark.compile
@pytest.mark.needs("pyarrow")
@pytest.mark.timeout(3 * _SECONDS + 240)
def test_a_random_sample_of_the_matrix(tmp_path: Path, sample_seed: str) -> None:
    subjects, _ = find_subjects("dataset")
    extents = cells.default_extents()
    plan = cells.Plan(subjects, list(extents.values()))
    results = Results(tmp_path, CodeVersions(dict.fromkeys(extents, "now")))
    sweep = Sweep(
        results,
        name="sample",
        limits=Limits(timeout_s=30, workers=2, nice=0),
    )
    tasks = sampled_tasks(plan, sample_seed, max_instructions=600, num_passes=6)
    # Beside other work, the same checks take longer.
    for _ in range(3):
        sweep.run([tasks], seconds=_SECONDS)
        rows = list(results.rows.values())
        broken = [_described(row) for row in rows if row.violations]
        assert not broken, f"seed {sample_seed}:\n" + "\n".join(broken)
        checked = Counter(row.kind for row in rows if row.num_checks)
        if set(checked) == set(extents) and checked.total() >= _MIN_CHECKS:
            break
    assert set(checked) == set(extents), f"seed {sample_seed}: {checked}"
    assert checked.total() >= _MIN_CHECKS, f"seed {sample_seed}: {checked}"
