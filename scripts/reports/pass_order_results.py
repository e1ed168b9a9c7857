# SPDX-License-Identifier: Apache-2.0
"""What `run_pass_order.py` has measured, and its statistics."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np

from hloenv import _markdown
from hloenv.bench.statistics import clustered_interval
from hloenv.learn.curve import CURVE
from hloenv.learn.training import BEST

SEARCHES = (
    *("default", "compiler", "fixed", "greedy", "random", "beam", "edited"),
    "options",
)
# Of these passes with their usual options.
SAME_ACTIONS = tuple(name for name in SEARCHES if name not in ("compiler", "options"))
# Variants whose score is of estimated times, not of instructions, or of other modules.
BY_TIME = ("kernel cache",)
OTHER_VALIDATION = ("trained on GPT-2",)


class Results:
    """All that was measured, by URI of the test module."""

    def __init__(self, runs: Path) -> None:
        """Reads the files of `run_pass_order.py`."""
        self.runs = runs
        order = json.loads((runs / "order.json").read_text())["order"]
        self.order: list[str] = order["passes"]
        self.searches: dict[str, Any] = json.loads((runs / "searches.json").read_text())
        sets = json.loads((runs / "sets.json").read_text())
        self.failed = sorted(u for u, each in self.searches.items() if "error" in each)
        self.sets = {
            name: [uri for uri in uris if uri not in self.failed]
            for name, uris in sets.items()
        }

    def tests(self, variant: str) -> list[dict[str, Any]]:
        """Of each seed that is done, what the agent made of the test modules."""
        paths = [each / "test.json" for each in self.folders(variant)]
        wanted = {uri for uris in self.sets.values() for uri in uris}
        tests = [json.loads(path.read_text()) for path in paths if is_of_agent(path)]
        return [test for test in tests if wanted <= test.keys()]

    def folders(self, variant: str) -> list[Path]:
        """Of each seed that is trained to its end, the folder of the run."""
        found = sorted(self.runs.glob(f"{variant}-[0-9]*"))
        return [folder for folder in found if is_trained(folder)]

    def curves(self, variant: str) -> list[list[dict[str, str]]]:
        """Of each seed, the rows of the learning curve."""
        curves = []
        for folder in self.folders(variant):
            with (folder / CURVE).open(newline="") as file:
                curves.append(list(csv.DictReader(file)))
        return curves

    def count(self, method: str, uri: str) -> int:
        """Instructions that a search leaves."""
        return int(self.searches[uri][method]["op_count"])


def is_trained(folder: Path, wanted: int | None = None) -> bool:
    """Whether the run of a folder has come to its end, by default its own."""
    curve = folder / CURVE
    if not curve.exists() or not (folder / "config.json").exists():
        return False
    with curve.open(newline="") as file:
        steps = max(int(row["step"]) for row in csv.DictReader(file))
    if wanted is None:
        wanted = json.loads((folder / "config.json").read_text())["steps"]
    return bool(steps >= wanted)


def is_of_agent(path: Path) -> bool:
    """Whether a file of `run_pass_order.fill` is of the agent that is there now."""
    by, agent = path.with_suffix(".by.txt"), path.with_name(BEST)
    if not by.exists() or not agent.exists():
        return False
    return by.read_text().split()[-1] == digest(agent)


def is_timed(runs: Path, name: str) -> bool:
    """Whether `times.json` is of the agent that is in the run's folder now."""
    by, agent = runs / "times.by.txt", runs / name / BEST
    return agent.exists() and f"{name} {digest(agent)}" in by.read_text()


def digest(path: Path) -> str:
    """Identifies the content of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def left_by(results: Results, test: dict[str, Any], kind: str, uri: str) -> int:
    """Instructions that an agent leaves; those of the start where it failed."""
    if "error" in test[uri]:
        return results.count("start", uri)
    return int(test[uri][kind]["op_count"])


def ratio(after: Callable[[str], float], before: Callable[[str], float]) -> Any:
    """Geometric mean over modules of one count over another."""
    return lambda uris: geometric_mean(after(uri) / before(uri) for uri in uris)


def saved_ratio(
    results: Results, after: Callable[[str], float], other: Callable[[str], float]
) -> Any:
    """As the paper: geometric mean of instructions removed, over those others remove.

    Where the agent removes none, half an instruction counts. Not a number where the
    other removes none from a module.
    """

    def compute(uris: Sequence[str]) -> float:
        start = {uri: results.count("start", uri) for uri in uris}
        if any(start[uri] <= other(uri) for uri in uris):
            return math.nan
        return geometric_mean(
            max(start[uri] - after(uri), 0.5) / (start[uri] - other(uri))
            for uri in uris
        )

    return compute


def spread(values: Sequence[float], form: str) -> str:
    """Mean over seeds, and the range."""
    if not values or any(map(math.isnan, values)):
        return "-"
    mean = format(float(np.mean(values)), form)
    if len(values) == 1:
        return mean
    return f"{mean} ({format(min(values), form)} to {format(max(values), form)})"


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The text of a table; all columns but the first hold numbers."""
    return "\n".join(_markdown.table(columns, rows))


def mean_and_interval(logs: Mapping[str, float]) -> list[str]:
    """The geometric mean over modules, and its interval, by repository."""
    clusters: dict[str, list[float]] = defaultdict(list)
    for uri, log in logs.items():
        clusters[uri.removeprefix("hloenv://dataset/").split("/")[1]].append(log)
    low, high = clustered_interval([np.array(each) for each in clusters.values()])
    mean = math.exp(np.mean(list(logs.values())))
    interval = "-" if math.isnan(low) else f"{low:.3f} to {high:.3f}"
    return [f"{mean:.3f}", interval]
