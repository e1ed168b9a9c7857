# SPDX-License-Identifier: Apache-2.0
"""hloenv measure: times modules, and tests the accuracy of the intervals."""

from __future__ import annotations

import argparse
from typing import Any, get_args

from ..errors import HloEnvError
from ..hlo.module import HloModule
from ..measurement.config import Settings
from ..measurement.measurer import Measurer
from ..measurement.record import Measurement
from ..measurement.self_test import MAX_MISSES, MODULES, SelfTest, self_test
from ..process.cpu_affinity import check_threads
from ..rewrite.env import replay
from ..runtime.executable import Finish
from . import output
from .arguments import (
    MODULE_HELP,
    add_engine,
    add_inputs,
    add_limit,
    add_store,
    open_store,
)
from .load import load_module
from .numbers import MAX_REPEATS, above_zero, add_count
from .parser import UsageError

DESCRIPTION = (
    "Times candidates against MODULE, compiled with XLA's default pipeline: all run "
    "interleaved in one process pinned to its own core, as several copies of their "
    "code, until the speed-up is known. Outputs are compared on the same inputs. A "
    "MODULE alone is compared with itself, which shows its time and the resolution."
)
EXAMPLES = """\
examples:
  hloenv measure model.hlo
  hloenv measure model.hlo decided.hlo other.pb --precision 0.005
  hloenv measure model.hlo decided.hlo.trace.json --inputs inputs.npz
  hloenv measure --baseline model.hlo final.hlo --finish none
  hloenv measure train.py:step decided.hlo.trace.json --engine jaxlib
  hloenv measure --self-test --busy
"""
_DEFAULTS = Settings()
_STOPPED = {
    "precise": "precise",
    "slower": "clearly slower",
    "time": "out of time",
    "rounds": "all rounds taken",
}


class SelfTestError(HloEnvError, RuntimeError):
    """The intervals of measurements cannot be trusted on this machine."""


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("module", metavar="MODULE", nargs="?", help=MODULE_HELP)
    parser.add_argument(
        "candidates",
        metavar="CANDIDATE",
        nargs="*",
        help="a module like MODULE, or a trace of decisions on it (*.trace.json, as "
        "`hloenv optimize -o` saves it)",
    )
    add_limit(parser)
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="the module to compare with; MODULE is then a candidate too",
    )
    parser.add_argument(
        "--finish",
        choices=get_args(Finish),
        default=_DEFAULTS.finish,
        help="passes that run on candidates before XLA's backend: legalize (default), "
        "the rest of XLA's pipeline; xla, the whole pipeline; none, no pass",
    )
    add_inputs(parser)
    _add_plan(parser)
    add_engine(parser)
    add_store(parser)
    parser.add_argument(
        "--self-test",
        action="store_true",
        help="compare modules with themselves repeatedly: the given ones (default: "
        "built-in ones)",
    )
    add_count(parser, "--comparisons", "comparisons of the self-test", 200)
    parser.add_argument(
        "--busy",
        action="store_true",
        help="load all other cores during the self-test",
    )


def _add_plan(parser: argparse.ArgumentParser) -> None:
    add_count(parser, "--threads", "cores that the modules run on", _DEFAULTS.threads)
    parser.add_argument(
        "--precision",
        metavar="P",
        type=above_zero,
        default=_DEFAULTS.precision,
        help="stop when the half-width of the speed-up's interval is below this share "
        f"of it (default {_DEFAULTS.precision})",
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=above_zero,
        default=_DEFAULTS.seconds,
        help="stop when the runs of a module have taken S seconds "
        f"(default {_DEFAULTS.seconds:g})",
    )
    add_count(parser, "--repeats", "run exactly N rounds instead", most=MAX_REPEATS)
    add_count(
        parser,
        "--seed",
        "seed of the inputs and of the order of the runs",
        _DEFAULTS.seed,
        least=0,
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=above_zero,
        help="give up on a module that takes longer to compile or to run",
    )


def run(args: argparse.Namespace) -> None:
    """Measures the modules, or runs the self-test."""
    check_threads(args.threads)
    settings = Settings(
        finish=args.finish,
        engine=args.engine,
        threads=args.threads,
        repeats=args.repeats,
        precision=args.precision,
        seconds=args.seconds,
        seed=args.seed,
        timeout_s=args.timeout,
        max_memory_bytes=args.memory_limit,
    )
    if args.self_test:
        _test(args, settings)
    elif args.module is None:
        raise UsageError("no MODULE was given; name one, or use --self-test")
    else:
        _measure(args, settings)


def _measure(args: argparse.Namespace, settings: Settings) -> None:
    given = [args.module, *args.candidates]
    if args.baseline is not None:
        baseline = load_module(args.baseline, args.max_instructions)
        named = given
    else:
        baseline = load_module(args.module, args.max_instructions)
        named = args.candidates or given
    modules = [_candidate(args, name, baseline) for name in named]
    text = f"measuring {len(modules)} module{'s' * (len(modules) > 1)}"
    with (
        output.progress(text, is_shown=not args.json),
        open_store(args) as store,
        Measurer(settings, store=store, again=args.again) as measurer,
    ):
        results = measurer.measure(modules, baseline=baseline, inputs=args.inputs)
    if args.json:
        rows = zip(named, results, strict=True)
        output.print_json(
            {
                "baseline": args.baseline or args.module,
                "measurements": [_as_json(name, result) for name, result in rows],
            }
        )
    else:
        _print(args, baseline, named, results)
        output.print_store_note(each.time for each in results)
    failures = [result for result in results if result.error is not None]
    if len(failures) == len(results):
        failures[0].check()


def _candidate(args: argparse.Namespace, name: str, baseline: HloModule) -> HloModule:
    if name.endswith(".trace.json"):
        return replay(name, baseline).module
    return load_module(name, args.max_instructions)


def _as_json(name: str, result: Measurement) -> dict[str, Any]:
    low, high = result.speedup_interval
    return {
        "name": name,
        "seconds": result.median_ns * 1e-9,
        "baseline_seconds": result.baseline_median_ns * 1e-9,
        "speedup": result.speedup,
        "speedup_interval": [low, high],
        **result.to_json(),
    }


def _print(
    args: argparse.Namespace,
    baseline: HloModule,
    names: list[str],
    results: list[Measurement],
) -> None:
    is_alone = args.baseline is None and not args.candidates
    rows: list[tuple[str, ...]] = []
    timed = [result for result in results if result.baseline_ns]
    if timed:
        compile_s = timed[0].baseline_compile_ns * 1e-9
        rows.append(
            (
                args.baseline or args.module,
                output.format_seconds(timed[0].baseline_median_ns * 1e-9),
                *("1", "-", "-"),
                output.format_seconds(compile_s),
                "baseline",
            )
        )
    for name, result in zip(names, results, strict=True):
        rows.append((f"{name}, once more" if is_alone else name, *_cells(result)))
    numbers = ("time", "speed-up", "95 % interval", "output error", "compile time")
    output.print_table(
        ("module", *numbers, "stopped"), rows, title=baseline.name, right=numbers
    )
    for name, result in zip(names, results, strict=True):
        if result.error is not None:
            output.print_line(f"{name}: {' '.join(str(result.error).split())}")
    machine = results[0].machine
    cores = "core" if args.threads == 1 else "cores"
    output.print_line(
        f"\n{args.threads} {cores} of {machine['cpu']}; output error: on the same "
        "inputs as the\nbaseline, in brackets its share of the tolerance"
    )
    output.print_flag_note(baseline, args.engine)


def _cells(result: Measurement) -> tuple[str, ...]:
    low, high = result.speedup_interval
    outputs = result.outputs
    return (
        output.format_seconds(result.median_ns * 1e-9),
        f"{result.speedup:.3f}" if result.is_ok else "-",
        f"{low:.3f} to {high:.3f}" if result.is_ok else "-",
        "-" if outputs is None else f"{outputs.error:.2g} ({outputs.excess:.1%})",
        output.format_seconds(result.compile_ns * 1e-9) if result.compile_ns else "-",
        _STOPPED[result.stopped] if result.is_ok else "failed",
    )


def _test(args: argparse.Namespace, settings: Settings) -> None:
    given = [each for each in (args.module, *args.candidates) if each is not None]
    modules: dict[str, HloModule | str] = dict(MODULES)
    if given:
        modules = {name: load_module(name, args.max_instructions) for name in given}
    text = "modules measured against themselves"
    with output.track((text, args.comparisons), is_shown=not args.json) as (step,):
        result = self_test(
            args.comparisons,
            settings=settings,
            is_busy=args.busy,
            modules=modules,
            progress=step,
        )
    if args.json:
        output.print_json(result.to_json())
    else:
        _print_test(result)
    if not result.is_honest:
        raise SelfTestError(
            f"more than {MAX_MISSES:.0%} of the 95 % intervals miss the true speed-up: "
            "do not rely on them on this machine in its present state; end other "
            "programs and run the self-test again"
        )


def _print_test(result: SelfTest) -> None:
    numbers = ("one run", "comparisons", "missed", "half-width", "resolution")
    output.print_table(
        ("module", *numbers),
        [
            (
                kind,
                output.format_seconds(each.median_ns * 1e-9),
                each.comparisons,
                each.misses,
                f"{each.half_width:.2%}",
                f"{each.resolution:.2%}",
            )
            for kind, each in (*result.by_kind.items(), ("all", result.total))
        ],
        title="modules measured against themselves",
        right=numbers,
    )
    total = result.total
    others = "all other cores busy" if result.is_busy else "other cores idle"
    output.print_line(
        f"\n{result.machine['cpu']}, {result.settings.threads} of "
        f"{result.machine['num_cores']} cores, {others}, {result.seconds:.0f} s"
    )
    output.print_line(
        f"the 95 % intervals of the speed-up miss 1 in {total.misses} of "
        f"{total.comparisons} comparisons ({total.miss_rate:.1%};\ntruly between "
        f"{total.miss_rate_low:.1%} and {total.miss_rate_high:.1%}; 5 % is nominal); "
        f"differences of {total.resolution:.1%} can\nbe resolved: nine of ten "
        "intervals have a smaller half-width"
    )
