# SPDX-License-Identifier: Apache-2.0
"""The page of `run_pass_order.py`: tables, and curves with their spread over seeds."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pass_order_results import (
    BY_TIME,
    OTHER_VALIDATION,
    SAME_ACTIONS,
    SEARCHES,
    Results,
    left_by,
    mean_and_interval,
    ratio,
    saved_ratio,
    spread,
    table,
)
from pass_order_time_page import rate_table, time_table
from reporting import head


def variant_table(results: Results, variants: Sequence[str]) -> str:
    """One row for each variant: what is left on the test sets."""
    rows = []
    for variant in variants:
        tests = results.tests(variant)
        if not tests:
            continue
        row = [variant, str(len(tests))]
        for uris in results.sets.values():
            for kind in ("one", "equal"):
                left = [
                    ratio(
                        lambda uri, test=test, kind=kind: left_by(
                            results, test, kind, uri
                        ),
                        lambda uri: results.count("start", uri),
                    )(uris)
                    for test in tests
                ]
                row.append(spread(left, ".1%"))
        rows.append(row)
    return table(_left_columns(results, "agent"), rows)


def left_out(results: Results) -> str:
    """Says which modules have no results."""
    if not results.failed:
        return "A pass fails on no module of these sets."
    names = ", ".join(uri.removeprefix("hloenv://dataset/") for uri in results.failed)
    return f"Left out, as a pass of a search fails on them: {names}."


def search_table(results: Results) -> str:
    """What searches without learning leave on the test sets, and their steps."""
    rows = []
    for method in SEARCHES:
        row = [method]
        for uris in results.sets.values():
            left = ratio(
                lambda uri: results.count(method, uri),  # noqa: B023
                lambda uri: results.count("start", uri),
            )(uris)
            steps = np.mean([results.searches[uri][method]["steps"] for uri in uris])
            row += [f"{left:.1%}", f"{steps:,.0f}"]
        rows.append(row)
    columns = ["search"]
    for name in results.sets:
        columns += [f"{name}: left", "passes run"]
    return table(columns, rows)


def _left_columns(results: Results, first: str) -> list[str]:
    columns = [first, "seeds"]
    for name, uris in results.sets.items():
        columns += [f"{name} ({len(uris)}), one episode", "greedy's steps"]
    return columns


def default_table(results: Results, variant: str) -> str:
    """The agent against each default: the paper's metric and ratios of counts."""
    rows = []
    tests = results.tests(variant)
    if not tests:
        return "Not measured."
    for name, uris in results.sets.items():
        for other, kind in itertools.product(
            ("default", "fixed", "greedy", "random"), ("one", "equal")
        ):
            saved, left, shares, totals, largest = [], [], [], [], []
            logs = dict.fromkeys(uris, 0.0)
            for test in tests:

                def agent(uri: str, test: Any = test, kind: str = kind) -> float:
                    return left_by(results, test, kind, uri)

                def default(uri: str, other: str = other) -> float:
                    return results.count(other, uri)

                saved.append(saved_ratio(results, agent, default)(uris) - 1)
                left.append(ratio(agent, default)(uris))
                is_good = [agent(uri) <= default(uri) for uri in uris]
                shares.append(sum(is_good) / len(is_good))
                totals.append(sum(map(agent, uris)) / sum(map(default, uris)))
                largest.append(1 - min(agent(uri) / default(uri) for uri in uris))
                for uri in uris:
                    logs[uri] += math.log(agent(uri) / default(uri)) / len(tests)
            episodes = "one episode" if kind == "one" else "greedy's steps"
            rows.append(
                [
                    f"{name}, {episodes}, against {other}",
                    spread(saved, "+.1%"),
                    spread(left, ".3f"),
                    mean_and_interval(logs)[1],
                    spread(totals, ".3f"),
                    spread(shares, ".0%"),
                    spread(largest, ".1%"),
                ]
            )
    columns = (
        "test set",
        "more removed",
        "count over theirs",
        "interval",
        "sum over theirs",
        "at least as good",
        "largest gain",
    )
    return table(columns, rows)


def limit_table(results: Results, variants: Sequence[str]) -> str:
    """The best that any method and seed left of each module, against fixed order."""
    tests = [test for variant in variants for test in results.tests(variant)]
    rows = []
    for name, uris in results.sets.items():

        def best(uri: str) -> int:
            found = [results.count(method, uri) for method in SAME_ACTIONS]
            found += [
                left_by(results, test, kind, uri)
                for test in tests
                for kind in ("one", "equal")
            ]
            return min(found)

        def fixed(uri: str) -> int:
            return results.count("fixed", uri)

        better = sum(best(uri) < fixed(uri) for uri in uris)
        rows.append(
            [
                name,
                spread([saved_ratio(results, best, fixed)(uris) - 1], "+.1%"),
                format(ratio(best, fixed)(uris), ".3f"),
                f"{better} of {len(uris)}",
            ]
        )
    return table(("test set", "more removed", "count over theirs", "fewer"), rows)


def draw_curves(results: Results, variants: Sequence[str], path: Path) -> None:
    """Validation score over steps: mean and range over seeds."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    colors = mpl.colormaps["tab20"].colors
    lowest = 1.0
    for number, variant in enumerate(variants):
        curves = results.curves(variant)
        if not curves:
            continue
        length = min(map(len, curves))
        steps = [int(row["step"]) for row in curves[0][:length]]
        scores = np.array([[float(r["score"]) for r in c[:length]] for c in curves])
        best = np.minimum.accumulate(scores, axis=1)
        color = colors[number % len(colors)]
        axes.plot(steps, best.mean(axis=0), label=variant, color=color)
        low, high = best.min(axis=0), best.max(axis=0)
        axes.fill_between(steps, low, high, alpha=0.15, color=color)
        lowest = min(lowest, float(low.min()))
    # Not what networks leave that have learned nothing yet.
    axes.set_ylim(lowest - 0.005, min(1.0, lowest + 0.06))
    axes.set_xlabel("steps of training")
    axes.set_ylabel("instructions left, validation\n(one episode, best so far)")
    axes.yaxis.set_major_formatter(mpl.ticker.PercentFormatter(1, decimals=0))
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def write_page(
    path: Path,
    runs: Path,
    experiments: Mapping[str, Sequence[str]],
) -> None:
    """Writes the page of these experiments, and the curves beside it."""
    results = Results(runs)
    every = list(dict.fromkeys(v for names in experiments.values() for v in names))
    images = path.parent / "images"
    images.mkdir(parents=True, exist_ok=True)
    # Others are rewarded, and chosen, by estimated times.
    counting = [name for name in every if name not in (*BY_TIME, *OTHER_VALIDATION)]
    configs = [
        json.loads(each.read_text())
        for name in every
        for each in runs.glob(f"{name}-[0-9]*/config.json")
    ]
    steps = sorted({config["steps"] for config in configs})
    rewards = sorted({config["reward"] for config in configs})
    # Before the picture, which would count as a change of the sources.
    text = "\n".join(head("Pass order by reinforcement learning"))
    draw_curves(results, counting, images / f"{path.stem}.png")
    text += f"""
* steps of training: {", ".join(f"{each:,}" for each in steps)}; the seeds are
  0, 1, ...; rewards: {", ".join(f"`{each}`" for each in rewards)}

An agent runs XLA's target-independent passes in an order of its own, 45 at most in an
episode; the numbers are instructions that are left, as a share of those at the start:
geometric mean over the modules, then mean (and range) over the seeds. Train, validation
and test are different repositories; the modules of a test set differ in their counts of
operations. The GPT-2 and the residual networks of test are of one repository, and none
of test's is a BERT: *all* says most. When they are played, all agents leave out passes
that have changed nothing on the module, also those that were trained without masks.
*One episode*: the likeliest actions. *Greedy's steps*: the best of further, drawn
episodes, until as many passes have run as greedy search runs on that module.

## Searches without learning

* default: the target-independent passes that XLA's CPU compiler runs on the module
* compiler: all passes that it runs up to the assignment of layouts, those for CPUs
  among them, which expand what has no code of its own there
* fixed: one order for all modules to a fixed point, the best on train of a greedy
  construction and 300 random edits:
  {", ".join(results.order)}
* greedy: the best next pass of all, until none improves
* random: the best of random episodes, with as many passes as greedy; the middle one of
  three seeds
* beam: width 4, with three times as many
* edited: the best of 300 random edits of *fixed*, found on the test module itself by
  thousands of passes: what is left to gain there
* options: the same, with a further action for each other value of an option that is a
  truth value or one of a list

{search_table(results)}

{left_out(results)}

## Learning curves

![Learning curves](images/{path.stem}.png)
"""
    makers: dict[str, Callable[[Sequence[str]], str]] = {
        "algorithms": lambda names: _titled("Algorithms", results, names),
        "shaping": lambda names: _titled(
            "Shaping, and cost for the value function", results, names
        ),
        "headline": lambda names: against_defaults(results, names, every),
        "kernel-cache": lambda names: run_time(results, names),
        "graph": lambda names: _titled("Graphs", results, names),
    }
    text += "".join(f"\n{makers[name](experiments[name])}\n" for name in experiments)
    path.write_text(text)


def _titled(title: str, results: Results, variants: Sequence[str]) -> str:
    return f"## {title}\n\n{variant_table(results, variants)}"


def against_defaults(
    results: Results, names: Sequence[str], every: Sequence[str]
) -> str:
    """The section that compares one variant with default orders and searches."""
    headline = names[0]
    return f"""## Against default orders

The agents *{headline}* first imitate the fixed order, and then learn from their reward.

{variant_table(results, names)}

*More removed* is the paper's metric: the geometric mean of instructions that the
agent removes over those that the other removes, minus 1; "-" where the other removes
none from some module, or adds some. *Interval* (95 %) is of the modules, by repository,
of the mean over the seeds. *Largest gain*: the
largest share of theirs that the agent removes, on one module. Default and fixed run
each pass a few times, an agent in one episode 45 passes at most, in greedy's steps
some hundreds. The agents: {headline}.

{default_table(results, headline)}

What limits it: the best of every search over these passes with their usual options,
edits of the fixed order for each module among them, and of every agent of this page, of
all seeds, against the fixed order. Where nothing is left to gain here, no agent over
these passes is known to gain it.

{limit_table(results, every)}"""


def run_time(results: Results, variants: Sequence[str]) -> str:
    """The section on run times."""
    return f"""## Run time

Speed-ups over XLA's compiler alone, measured in turns in one process; all of XLA's
passes run afterwards. The agent's order is its best, by what its reward decreases, of
greedy's steps. Where *over default* is 1, that the agent's module has fewer operations
before XLA's passes is worth nothing after them. A failure (a module that does not
compile, or whose outputs are others or no numbers) counts as 1, as does an order that
changes nothing; of several seeds, the mean. Intervals (95 %) by repository.

{time_table(results, variants)}

Trained on estimated time instead of instructions:

{variant_table(results, variants)}

## Steps a second

Random episodes on modules of 400 to 600 instructions, one core: *new results* where
most passes run for the first time, *known results* where the same episodes come again.

{rate_table(results)}"""
