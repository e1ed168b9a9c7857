# SPDX-License-Identifier: Apache-2.0
"""What `run_pass_order.py` measures: run times of modules, rates of environments."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import hloenv
from hloenv.envs import PassOrderEnv, find_benchmarks
from hloenv.envs.pass_memo import without_dead_code
from pass_order_searches import usual_env

# Seconds of the runs of each order on a module.
TIMED_SECONDS = 1.0
# Observations whose rate is measured, on which modules, in how many steps.
RATES = ("op_counts", "op_counts_normalized+pass_counts", "graph")
RATE_BENCHMARK = "hloenv://all/train?min_instructions=400&max_instructions=600"
RATE_STEPS = 3000


def time_module(
    orders: Mapping[str, Mapping[str, Sequence[int]]], uri: str
) -> dict[str, Any]:
    """Run times of one module after several orders of passes, in turns."""
    env = usual_env()
    module = find_benchmarks(uri)[0].load()
    modules = {}
    for name, order in orders.items():
        modules[name] = changed = without_dead_code(module)
        for number in order[uri]:
            changed = hloenv.run_passes(changed, env.passes[number]).module
            modules[name] = changed = without_dead_code(changed)
    measured = hloenv.measure(
        list(modules.values()), baseline=module, seconds=TIMED_SECONDS
    )
    return {
        name: {
            "speedup": each.speedup,
            "interval": each.speedup_interval,
            "baseline_s": each.baseline_median_ns * 1e-9,
            "error": "" if each.error is None else each.error.message,
        }
        for name, each in zip(modules, measured, strict=True)
    }


def rate_of(observation: str) -> dict[str, Any]:
    """Steps a second of random episodes: with new results, and with known ones."""
    env = PassOrderEnv(RATE_BENCHMARK, observation=observation)
    counts, seconds = [], []
    for _ in range(2):
        random = np.random.default_rng(0)
        env.reset(seed=0)
        sizes, began = [], time.perf_counter()
        for _ in range(RATE_STEPS):
            action = int(random.integers(len(env.passes)))
            _, _, terminated, truncated, info = env.step(action)
            sizes.append(info["op_count"])
            if terminated or truncated:
                env.reset()
        seconds.append(time.perf_counter() - began)
        counts.append(float(np.mean(sizes)))
    return {
        "instructions": counts[0],
        "new": RATE_STEPS / seconds[0],
        "known": RATE_STEPS / seconds[1],
    }
