# SPDX-License-Identifier: Apache-2.0
"""The page of pass orders, on given results."""

from __future__ import annotations

import importlib
import json
import math
from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.learn, pytest.mark.needs("stable_baselines3", "matplotlib")]

URIS = [f"hloenv://dataset/test/{name}" for name in ("a/one", "a/two", "b/three")]
START, FIXED = (100, 200, 400), (50, 100, 400)


def write(path, content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def trained(page, runs, name, counts, *, steps=10) -> None:
    """The folder of an agent that leaves these counts."""
    folder = runs / name
    results = [{"op_count": each, "steps": 9, "passes": []} for each in counts]
    tested = {
        uri: {"one": made, "equal": made}
        for uri, made in zip(URIS, results, strict=True)
    }
    write(folder / "test.json", tested)
    write(folder / "config.json", {"steps": 10, "reward": "op_count"})
    (folder / "curve.csv").write_text(f"step,score\n0,1.0\n{steps},0.5\n")
    (folder / "best.safetensors").write_bytes(name.encode())
    of_agent = page.digest(folder / "best.safetensors")
    (folder / "test.by.txt").write_text(f"version sources {of_agent}")


@pytest.fixture
def page():
    """All names of the two modules."""
    from pass_order_time_page import time_table

    results = importlib.import_module("pass_order_results")
    page = importlib.import_module("pass_order_page")
    return SimpleNamespace(**vars(results) | vars(page) | {"time_table": time_table})


@pytest.fixture
def runs(page, tmp_path):
    """Results of searches and of three seeds of an agent, one of them unfinished."""
    searches = {}
    for uri, start, fixed in zip(URIS, START, FIXED, strict=True):
        counts = dict.fromkeys(page.SEARCHES, start) | {"start": start, "fixed": fixed}
        searches[uri] = {k: {"op_count": v, "steps": 7} for k, v in counts.items()}
    write(tmp_path / "searches.json", searches)
    write(tmp_path / "sets.json", {"all": URIS})
    write(tmp_path / "order.json", {"order": {"passes": ["cse", "dce"]}})
    trained(page, tmp_path, "imitation-0", (25, 100, 400))
    trained(page, tmp_path, "imitation-1", (100, 100, 400))
    trained(page, tmp_path, "imitation-2", (1, 1, 1), steps=5)
    return tmp_path


def test_only_agents_that_are_trained_to_the_end_count(page, runs) -> None:
    results = page.Results(runs)
    assert len(results.tests("imitation")) == len(results.curves("imitation")) == 2
    (runs / "imitation-0" / "best.safetensors").write_bytes(b"another")
    assert len(page.Results(runs).tests("imitation")) == 1


def test_counts_are_compared_module_by_module(page, runs) -> None:
    rows = page.default_table(page.Results(runs), "imitation").splitlines()
    (row,) = [each for each in rows if "one episode, against fixed" in each]
    # Over the fixed order: 1/2, 1, 1 and 2, 1, 1.
    low, high = 0.5 ** (1 / 3), 2 ** (1 / 3)
    mean = (low + high) / 2
    assert f"{mean:.3f} ({low:.3f} to {high:.3f})" in row
    assert "83% (67% to 100%)" in row  # at least as good
    # The fixed order removes nothing from the third module.
    assert row.split("|")[2].strip() == "-"


def test_what_is_removed_is_compared_as_in_the_paper(page, runs) -> None:
    results = page.Results(runs)
    compute = page.saved_ratio(
        results,
        lambda uri: results.count("start", uri) - 30,
        lambda uri: results.count("start", uri) - 10,
    )
    assert compute(URIS) == pytest.approx(3.0)
    nothing = page.saved_ratio(results, lambda uri: 0.0, lambda uri: math.inf)
    assert math.isnan(nothing(URIS))


def test_the_best_of_all_is_the_limit(page, runs) -> None:
    (row,) = page.limit_table(page.Results(runs), ["imitation"]).splitlines()[2:]
    assert f"{0.5 ** (1 / 3):.3f}" in row
    assert "1 of 3" in row


def test_failures_count_as_one_and_are_counted(page, runs) -> None:
    def timed(speedup, error=""):
        interval = (speedup * 0.99, speedup * 1.01)
        return {
            "speedup": speedup,
            "interval": interval,
            "baseline_s": 1e-3,
            "error": error,
        }

    times = {
        uri: {"default": timed(1.0), "imitation-0": agent}
        for uri, agent in zip(
            URIS,
            (timed(8.0), timed(math.nan, "outputs differ"), timed(1.0)),
            strict=True,
        )
    }
    write(runs / "times.json", times | {"hloenv://dataset/test/c/four": {"error": "x"}})
    agent = page.digest(runs / "imitation-0" / "best.safetensors")
    (runs / "times.by.txt").write_text(f"version machine imitation-0 {agent}")
    text = page.time_table(page.Results(runs), ["imitation"])
    (row,) = [each for each in text.splitlines() if "imitation, all" in each]
    assert [each.strip() for each in row.split("|")][2:5] == ["3", "1", "2.000"]
    assert "1 / 0 / 1" in row
    assert "Left out: one module that" in text
    # Times of an agent that has been trained again since say nothing of it.
    (runs / "imitation-0" / "best.safetensors").write_bytes(b"another")
    assert "imitation" not in page.time_table(page.Results(runs), ["imitation"])


def test_the_page_has_a_section_for_each_experiment(page, runs) -> None:
    path = runs / "docs" / "page.md"
    page.write_page(
        path,
        runs,
        {
            "headline": ["imitation"],
            "kernel-cache": ["imitation"],
            "graph": ["imitation"],
        },
    )
    text = path.read_text()
    for title in ("Against default orders", "Run time", "Graphs", "Steps a second"):
        assert f"## {title}" in text
    assert (path.parent / "images" / "page.png").exists()
    assert "cse, dce" in text
