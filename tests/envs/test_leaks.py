# SPDX-License-Identifier: Apache-2.0
"""What does not grow while an agent trains."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from hloenv.envs import PassOrderEnv
from hloenv.envs.pass_memo import PassMemo

MODULES = "hloenv://dataset/test/flax?max_instructions=100"


def play(env: PassOrderEnv, steps: int, seed: int) -> None:
    """Random episodes."""
    rng = np.random.default_rng(seed)
    env.reset(seed=seed)
    for _ in range(steps):
        if env.is_over:
            env.reset()
        env.step(int(rng.integers(env.num_actions)))


def used() -> tuple[int, int, int]:
    """Resident memory in bytes, threads, open files."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE"), threading.active_count(), files


def test_the_memo_keeps_within_its_limits() -> None:
    env = PassOrderEnv(MODULES)
    env.memo = PassMemo(env.passes, max_nodes=50, max_instructions=1_000)
    results = set()
    for seed in range(3):
        play(env, 300, seed)
        assert len(env.memo._following) <= 50
        kept = sum(each.instruction_count for each in env.memo._modules.values())
        assert kept <= 1_000 or len(env.memo._modules) == 1
        results.add(env.module.fingerprint())
    # What was forgotten is made again.
    twin = PassOrderEnv(MODULES)
    play(twin, 300, 2)
    assert twin.module.fingerprint() in results


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_nothing_grows_over_100_000_steps() -> None:
    env = PassOrderEnv(MODULES)
    # Full soon, so that only leaks can grow.
    env.memo = PassMemo(env.passes, max_nodes=2_000, max_instructions=50_000)
    play(env, 20_000, 0)
    memory, threads, files = used()
    for seed in range(1, 9):
        play(env, 10_000, seed)
    after = used()
    assert after[1:] == (threads, files)
    assert after[0] - memory < 30 * 2**20
