# SPDX-License-Identifier: Apache-2.0
"""hloenv search: estimates by the kernel cache, then real measurements of the best."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from ..cost.base import Estimate
from ..cost.registry import DEFAULT_ESTIMATOR, open_estimator
from ..errors import WorkerError
from ..explorer.charts import search_charts, search_seconds
from ..hlo.passes import Pass, Pipeline, describe_pass, pass_names
from ..measurement.config import Settings
from ..measurement.pool import Evaluator
from ..policies import get_policy
from ..process.cpu_affinity import check_threads
from ..rewrite.game import DecisionPoint, Game, Prefix
from ..runtime.inputs import as_inputs
from ..search import describe_search, get_search, list_searches
from ..search.driver import DEFAULT_SEARCH, Budget, SearchResult, run_search
from ..search.spaces import SEARCH_SPACE, get_space
from . import output
from .arguments import (
    add_engine,
    add_estimator,
    add_inputs,
    add_limit,
    add_module,
    add_passes,
    add_stops,
    add_store,
    check_output,
    name_of,
    open_store,
    parse_passes,
)
from .load import load_module
from .numbers import add_count
from .parser import UsageError
from .plotting import add_plot, check_plot, draw_plot
from .result import Result, add_result

DESCRIPTION = (
    "Searches for decisions that run faster than XLA's default. Hundreds of candidates "
    "are estimated, by default as the sum of their kernels, each of which is compiled "
    "and timed once; the best candidates are compiled and timed as a whole, several at "
    "a time, and the fastest is timed once more. The store caches all times, so that a "
    "search that was interrupted resumes in a fraction of the time."
)
EXAMPLES = """\
examples:
  hloenv search model.hlo -o decided.hlo
  hloenv search model.hlo --plot curve.png
  hloenv search model.hlo --until fusion --pass fusion --pass general-fusion
  hloenv search model.hlo --stop "algsimp: algsimp" --stop "fusion: general-fusion"
  hloenv search train.py:step --pass algsimp --pass cse --estimates 500 --seed 7
  hloenv search model.hlo --pass algsimp --workers 8 --ray -o decided.hlo
  hloenv search train.py:step --engine jaxlib
  hloenv search model.hlo --policy gnn --estimates 60
  hloenv search model.hlo --search my.py:Mine --estimator my.py:Model
"""
_SHOWN = 10


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_passes(parser, required=False)
    add_stops(
        parser,
        "a decision point, instead of --until and --pass: a position in XLA's "
        "pipeline and the passes to decide there. Repeat the option for several, in "
        "the order of the pipeline; without a POSITION, right after the decision point "
        "before (default, without --pass too: 'convolution-forms dot-forms "
        "reduce-forms sort-forms math-forms fusion-cuts', then "
        "'algsimp cse', and for the wheel's XLA 'fusion: dot-lowering', then "
        "': fusion general-fusion', then 'copy-insertion: thunk-order')",
    )
    names = (*list_searches(), *list_searches(families=True))
    searches = "; ".join(f"{name}: {describe_search(name).summary}" for name in names)
    parser.add_argument(
        "--search",
        metavar="NAME",
        type=name_of(describe_search),
        help=f"the search (default {DEFAULT_SEARCH}). {searches}",
    )
    parser.add_argument(
        "--policy",
        metavar="NAME",
        type=name_of(get_policy),
        help="search near the decisions of this policy, such as gnn or gnn:CHECKPOINT; "
        "the same as --search policy:NAME",
    )
    add_estimator(
        parser, f"of the candidates (default {DEFAULT_ESTIMATOR})", DEFAULT_ESTIMATOR
    )
    add_count(
        parser,
        "--seconds",
        "time limit of the search; the other budgets still apply",
        metavar="S",
    )
    counts = (
        ("--estimates", 200, "candidates to estimate"),
        ("--measurements", 20, "candidates to compile and time"),
        ("--threads", 1, "cores that each module runs on"),
    )
    for name, default, text in counts:
        add_count(parser, name, text, default)
    add_count(
        parser,
        "--workers",
        "concurrent measurements (default: available cores / threads)",
    )
    parser.add_argument(
        "--ray", action="store_true", help="measure on a Ray cluster, or a local one"
    )
    add_count(parser, "--seed", "seed of the candidates and of the inputs", 0, least=0)
    add_count(
        parser,
        "--timeout",
        "give up on a candidate that takes longer to compile or to run",
        300,
        metavar="SECONDS",
    )
    add_inputs(parser)
    add_engine(parser)
    add_store(parser)
    add_plot(parser, "the best estimate and the measurements so far")
    add_result(parser)


def run(args: argparse.Namespace) -> int:
    """Searches; returns the exit code."""
    if args.policy is not None and args.search is not None:
        raise UsageError(
            f"--policy {args.policy} and --search {args.search} were given together; "
            "use one: a policy is a search of its own"
        )
    if args.policy is not None:
        args.search = f"policy:{args.policy}"
    args.search = args.search or DEFAULT_SEARCH
    check_output(args.output)
    check_plot(args.plot)
    if not args.ray:
        check_threads(args.threads)
    module = load_module(args.module, args.max_instructions)
    args.inputs = as_inputs(args.inputs, module)
    game = Game(module, _stops(args))
    search = get_search(args.search, game, seed=args.seed)
    with output.progress("finding alternatives", is_shown=not args.json):
        counts = [len(each) for each in game.complete()]
    if not any(counts):
        return _nothing(args, module.name)
    settings = Settings(
        engine=args.engine,
        threads=args.threads,
        seed=args.seed,
        timeout_s=args.timeout,
    )
    is_shown = not args.json
    failures: list[str] = []

    def on_estimate(_: Prefix, estimate: Estimate) -> None:
        if estimate.error:
            failures.append(estimate.error)
        estimated()

    with (
        open_store(args) as store,
        open_estimator(
            args.estimator, threads=args.threads, store=store, engine=args.engine
        ) as estimator,
        Evaluator(
            settings,
            store=store,
            workers=args.workers,
            executor=_ray() if args.ray else None,
            again=args.again,
        ) as evaluator,
        output.track(
            ("estimating", args.estimates),
            ("measuring", args.measurements),
            is_shown=is_shown,
        ) as (estimated, measured),
    ):
        found = run_search(
            search,
            estimator,
            evaluator,
            budget=Budget(args.estimates, args.measurements, args.seconds),
            inputs=args.inputs,
            on_estimate=on_estimate,
            on_measurement=lambda _: measured(),
        )
    _check_workers(found, failures)
    plotted = None if args.plot is None else _draw(args, module.name, found)
    result = _write(args, game, found)
    if args.json:
        data = found.to_json()
        for row, (candidate, _) in zip(data["measured"], found.measured, strict=True):
            row["trace"] = json.loads(game.episode(candidate.prefix).trace.to_json())
        output.print_json({**_names(args, module.name), **data, **result.to_json()})
    else:
        _print(found, counts)
        output.print_flag_note(module, args.engine)
        if plotted is not None:
            output.print_line(plotted)
        result.print()
    return result.exit_code


def _nothing(args: argparse.Namespace, name: str) -> int:
    """Says that nothing is to be decided; returns the exit code."""
    reason = "there is nothing to decide: no pass proposes a rewrite of the module"
    result = Result(args, None, None, failure=reason)
    if args.json:
        found = SearchResult().to_json()
        output.print_json({**_names(args, name), **found, **result.to_json()})
    else:
        output.print_line(f"{reason}; other passes: --pass, hloenv passes")
        result.print()
    return result.exit_code


def _names(args: argparse.Namespace, name: str) -> dict[str, str]:
    return {"module": name, "search": args.search, "estimator": args.estimator}


def _draw(args: argparse.Namespace, name: str, found: SearchResult) -> str:
    """Draws the curves to the file of --plot; returns what to print about it."""
    charts = [*search_charts(found.to_json()), search_seconds(found)]
    return draw_plot(args.plot, charts, title=f"{name}: search {args.search}")


def _check_workers(found: SearchResult, failures: Sequence[str]) -> None:
    """Raises if a search has no result because its workers crashed.

    Args:
        found: result of the search.
        failures: errors of the candidates that could not be estimated.

    Raises:
        WorkerError: no candidate was estimated, or the worker of every measured
            candidate crashed.
    """
    if found.num_estimates and not found.evaluated:
        raise WorkerError(
            f"none of {found.num_estimates} candidates could be estimated; the last "
            f"one: {failures[-1] if failures else 'no reason was given'}"
        )
    errors = [each.error for _, each in found.measured]
    if errors and all(each and each.kind == WorkerError.__name__ for each in errors):
        last = errors[-1]
        raise WorkerError(
            f"the worker process crashed on all {len(errors)} candidates that were to "
            f"be measured; the last one: {last.message if last else ''}"
        )


def _write(args: argparse.Namespace, game: Game, found: SearchResult) -> Result:
    """Saves the fastest candidate if -o and the checks allow it."""
    chosen, measurement = found.best, found.confirmed
    if chosen is None and args.force:
        right = [pair for pair in found.measured if pair[1].is_ok]
        if right:
            chosen, measurement = max(right, key=lambda pair: pair[1].speedup)
    if args.output is None or chosen is None:
        failure = "nothing is faster than XLA's default"
        if not any(each.is_ok for _, each in found.measured):
            failure = "no candidate was measured successfully"
        return Result(args, None, None, failure=failure)
    return Result(args, game.episode(chosen.prefix), measurement)


def _stops(args: argparse.Namespace) -> list[DecisionPoint]:
    """The decision points of --stop, or of --until and --pass."""
    if args.stops and (args.passes or args.until):
        raise UsageError(
            "--stop was given together with --until or --pass; use only --stop, or "
            "only --until and --pass"
        )
    if not (args.stops or args.passes or args.until):
        return list(get_space(SEARCH_SPACE[args.engine]).stops)
    if not args.stops and not args.passes:
        raise UsageError(
            f"--until {args.until} was given without a pass to decide; add --pass PASS"
        )
    if not args.stops:
        return [_stop(args.until or "", args.passes)]
    return [_stop(where, names) for where, names in args.stops]


def _stop(where: str, texts: Sequence[str]) -> DecisionPoint:
    passes = parse_passes(texts)
    own = (each.name for each in passes if not _is_ours(each))
    return DecisionPoint(tuple(passes), where, default=next(own, ""))


def _is_ours(each: Pass | Pipeline) -> bool:
    return all(describe_pass(name).candidate for name in pass_names([each]))


def _ray() -> Any:
    from ..measurement.ray import RayExecutor

    return RayExecutor()


def _print(found: SearchResult, counts: list[int]) -> None:
    at_stops = " + ".join(f"{count:,}" for count in counts)
    output.print_line(
        f"{at_stops} alternative{'s' * (sum(counts) != 1)}; "
        f"{len(found.evaluated)} different candidates estimated, "
        f"{len(found.measured)} measured\n"
    )
    ranked = sorted(
        found.measured,
        key=lambda pair: -pair[1].speedup if pair[1].is_ok else float("inf"),
    )
    rows = []
    for candidate, measurement in ranked[:_SHOWN]:
        low, high = measurement.speedup_interval
        error = measurement.error
        rows.append(
            (
                f"{candidate.accepted:,}",
                output.format_seconds(candidate.estimate_s),
                output.format_seconds(measurement.median_ns * 1e-9),
                f"{measurement.speedup:.3f}x" if error is None else "-",
                f"{low:.3f} to {high:.3f}" if error is None else error.kind,
            )
        )
    columns = ("accepted", "estimated", "measured", "over XLA's default", "95 %")
    output.print_table(columns, rows, right=columns)
    output.print_store_note(each.time for _, each in found.measured)
    if found.confirmed is None:
        output.print_line("\nnothing is faster than XLA's default")
        return
    low, high = found.confirmed.speedup_interval
    output.print_line(
        f"\nthe fastest, measured afresh: {found.confirmed.speedup:.3f}x of XLA's "
        f"default ({low:.3f} to {high:.3f}), outputs equal"
        if found.confirmed.is_ok
        else f"\nthe fastest, measured afresh: {found.confirmed}"
    )
    if found.best is None:
        output.print_line("so nothing is faster than XLA's default")
