# SPDX-License-Identifier: Apache-2.0
"""hloenv tune: tunes a function, a module or a script across all stages."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import math
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from .._interrupt import ended
from ..errors import ArgumentError
from ..explorer.charts import tune_charts
from ..hlo.module import HloModule
from ..jax.artefact import Artefact, Tuned
from ..measurement.store import Store
from ..runtime.jaxlib.package import require_jax
from ..tune import DECISIONS, STAGES, TuneOptions
from ..tune.api import tune
from ..tune.decisions import CLASSES
from ..tune.options import DEFAULT_SECONDS, DEFAULT_TIMEOUT_S, Mode
from ..tune.recording import Recording
from ..tune.scripts import NO_TIME, TunedScript, tune_script
from ..tune.stages import check_stages
from ..tune.state import State
from . import output
from .arguments import add_engine, add_store, check_output, open_store
from .load import is_function, load_module, value_of
from .numbers import above_zero, add_count
from .parser import UsageError
from .plotting import add_plot, check_plot, draw_plot
from .tune_view import View

DESCRIPTION = (
    "Tunes the stages of the compiler together: rewrites before layouts, layouts, "
    "fusion, partitions, schedules, tiles, code generation, and the engine. The result "
    "is compared afresh with plain jax.jit (of a module: with hloenv.compile); where "
    "it is not faster it is the identity. It is kept for hloenv.jit in other "
    "processes, and a second call continues the first."
)
EXAMPLES = """\
examples:
  hloenv tune train.py                           # a script: its hot functions
  python -m hloenv.tune train.py                 # the same script, with the result
  hloenv tune train.py --seconds 60 -o train.tuned --args --epochs 1
  hloenv tune net.py:step --numerics exact
  hloenv tune model.hlo --mode sequence --stages forms,fusion,codegen
  hloenv tune train.py --plot curve.png          # with the curve of the search
  hloenv tune --list                             # all decisions

TARGET is a Python script, whose functions of jax.jit are found as it runs; or a
MODULE as of the other commands, in which FILE.py:FUNCTION that returns (fn, *args) is
a function with arguments. Ctrl-C ends the search; what was found is checked and kept
(exit code 0; 130 where nothing has been recorded or measured yet).
"""
_RUN_SECONDS = 60.0


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    # Of what follows --args, nothing is to be an abbreviation of two options.
    parser.allow_abbrev = False
    parser.add_argument("target", metavar="TARGET", nargs="?", help="see below")
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=above_zero,
        default=DEFAULT_SECONDS,
        help=f"budget; the last check comes after it (default {DEFAULT_SECONDS:g})",
    )
    add_count(parser, "--measurements", "new measurements at most", least=0)
    parser.add_argument(
        "--mode",
        choices=get_args(Mode),
        default="jointly",
        help="each stage alone, one after the other, or jointly (default)",
    )
    parser.add_argument(
        "--stages",
        metavar="NAME,...",
        type=_stages,
        help=f"only these of {', '.join(each.name for each in STAGES)}",
    )
    parser.add_argument(
        "--numerics",
        choices=CLASSES,
        default="reassociating",
        help="what outputs may differ by: exact: nothing, bit by bit; reassociating "
        "(default): rounding; approximate: also the rules of infinities and NaN",
    )
    parser.add_argument(
        *("-o", "--output"), metavar="FILE", help="save the artefact as well"
    )
    add_plot(parser, "the measurements and the best so far, of each function")
    parser.add_argument(
        "--run-seconds",
        metavar="S",
        type=above_zero,
        default=_RUN_SECONDS,
        help=f"end the script after so long (default {_RUN_SECONDS:g})",
    )
    add_engine(parser, default="jaxlib")
    add_count(parser, "--seed", "seed of proposals, inputs and orders", 0, least=0)
    add_count(
        parser, "--threads", "cores of each measurement (default: those of the process)"
    )
    add_count(parser, "--workers", "concurrent measurements (default: cores/threads)")
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=above_zero,
        default=DEFAULT_TIMEOUT_S,
        help="seconds that each program may take to compile, and for its runs "
        f"(default {DEFAULT_TIMEOUT_S:g})",
    )
    parser.add_argument("--ray", action="store_true", help="measure on a Ray cluster")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="do not begin with what was best for other programs",
    )
    parser.add_argument(
        "--no-keep",
        action="store_true",
        help="neither keep the result for hloenv.jit nor continue earlier tunings",
    )
    parser.add_argument("--list", action="store_true", help="list all decisions")
    parser.add_argument(
        "--no-isolate",
        action="store_true",
        help="do not run in a child process (which reports a crash of the script as an "
        "error message)",
    )
    add_store(parser)
    parser.add_argument(
        "--args",
        dest="arguments",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        default=[],
        help="arguments of a script: everything after this, so that it comes last",
    )


def _stages(text: str) -> tuple[str, ...]:
    try:
        return check_stages(each.strip() for each in text.split(","))
    except ArgumentError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> None:
    """Tunes `args.target`, or lists the decisions."""
    if args.list:
        _list(args)
        return
    if args.target is None:
        raise UsageError("a TARGET is missing: a script, FILE.py:FUNCTION or a module")
    check_output(args.output)
    check_plot(args.plot)
    options = TuneOptions(
        seconds=args.seconds,
        measurements=args.measurements,
        mode=args.mode,
        stages=args.stages,
        numerics=args.numerics,
        seed=args.seed,
        threads=args.threads,
        workers=args.workers,
        executor=_ray() if args.ray else None,
        is_warm=not args.cold,
        keep=not args.no_keep,
        is_again=args.again,
        timeout_s=args.timeout,
    )
    with (
        open_store(args) as store,
        View(is_shown=not args.json) as view,
        output.prints_on_stderr() if args.json else contextlib.nullcontext(),
    ):
        with ended():
            target = _loaded(args)
        with _interrupts_raised():
            found = _tuned(target, args, options, store, view)
    artefact = found.artefact if isinstance(found, TunedScript) else found
    # A full disk takes nothing of what was found.
    failure: OSError | None = None
    plotted = None
    try:
        if args.output is not None:
            artefact.save(args.output)
    except OSError as error:
        failure, args.output = error, None
    try:
        plotted = None if args.plot is None else _draw(args, view.states)
    except OSError as error:
        failure = failure or error
    if args.json:
        output.print_json(_as_json(found, args.output))
    else:
        _print(found, args)
        if plotted is not None:
            output.print_line(plotted)
        for state in view.states:
            if state.journal is not None and state.results:
                output.print_line(f"all measurements: hloenv explore {state.journal}")
    if failure is not None:
        raise failure


def _draw(args: argparse.Namespace, states: Sequence[State]) -> str:
    """Draws the measurements of each program, those of earlier tunings first.

    Returns what to print about the file.
    """
    charts = []
    for state in states:
        program = state.program
        charts += tune_charts(state.results.values(), program.name, program.baseline)
    return draw_plot(args.plot, charts, title=f"hloenv tune {args.target}")


def _loaded(args: argparse.Namespace) -> Any:
    """What is to be tuned: a path, a function with its arguments, or a module.

    With jax imported.
    """
    target: str = args.target
    is_script = target.endswith(".py")
    if args.arguments and not is_script:
        raise ArgumentError(
            f"arguments ({' '.join(args.arguments)}) are for a script; {target} is none"
        )
    require_jax("hloenv tune")
    value: Any = None
    if not is_script and is_function(target):
        value = value_of(target)
    is_called = isinstance(value, tuple) and value and callable(value[0])
    if (is_script or is_called) and args.engine != "jaxlib":
        raise UsageError(
            f"--engine {args.engine} is for a module; {target} is run by jax.jit, "
            "whose engine is jaxlib"
        )
    if is_script:
        return Path(target)
    return value if is_called or isinstance(value, HloModule) else load_module(target)


def _tuned(
    target: Any,
    args: argparse.Namespace,
    options: TuneOptions,
    store: Store | None,
    view: View,
) -> Artefact | TunedScript:
    if isinstance(target, tuple):
        return tune(*target, store=store, options=options, on_change=view.show)
    if isinstance(target, HloModule):
        return tune(
            target,
            engine=args.engine,
            store=store,
            options=options,
            on_change=view.show,
        )
    if args.verbose and not faulthandler.is_enabled():
        faulthandler.enable()
    view.say(f"runs {target}, for {args.run_seconds:g} s at most ...")
    return tune_script(
        target,
        args.arguments,
        options,
        run_seconds=args.run_seconds,
        store=store,
        on_recorded=lambda recording: _say_how_it_ended(recording, args, view),
        on_change=view.show,
        on_function=view.begin,
    )


def _say_how_it_ended(
    recording: Recording, args: argparse.Namespace, view: View
) -> None:
    if recording.is_interrupted:
        view.say("interrupted: tunes what has run; Ctrl-C again ends")
    if recording.failure is not None:
        if args.verbose:
            traceback.print_exception(recording.failure)
        output.print_error(
            "warning", f"{recording.failure}; tunes what it has called before"
        )


def _ray() -> Any:
    from ..measurement.ray import RayExecutor

    return RayExecutor()


@contextlib.contextmanager
def _interrupts_raised() -> Iterator[None]:
    """Ctrl-C is a KeyboardInterrupt, after which the last check may take its time."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)


def _list(args: argparse.Namespace) -> None:
    if args.json:
        output.print_json(
            {
                "decisions": [
                    {
                        "name": each.name,
                        "stage": each.stage,
                        "scope": each.scope,
                        "summary": each.summary,
                        "engines": [list(pair) for pair in each.engines],
                        "choices": {
                            choice.name: choice.numerics for choice in each.choices
                        },
                    }
                    for each in DECISIONS
                ]
            }
        )
        return
    rows = [
        (
            each.stage,
            each.name,
            each.scope,
            ", ".join(choice.name for choice in each.choices),
            each.summary,
        )
        for each in DECISIONS
    ]
    columns = ("stage", "decision", "scope", "choices", "what")
    output.print_table(columns, rows, fold=("choices", "what"))


def _as_json(found: Artefact | TunedScript, path: str | None) -> dict[str, Any]:
    if isinstance(found, Artefact):
        return {**found.to_json(), "output": path}
    failure = found.recording.failure
    return {
        **found.artefact.to_json(),
        "output": path,
        "run_s": found.recording.seconds,
        "is_complete": found.recording.is_complete,
        "is_interrupted": found.recording.is_interrupted,
        "failure": None if failure is None else str(failure),
        "calls_s": found.calls_s,
        "expected_s": found.expected_s,
        "compile_s": found.compile_s,
        "functions": [
            {
                "name": each.hot.name,
                "calls": each.hot.calls,
                "seconds": each.hot.seconds,
                "failure": each.failure or None,
            }
            for each in found.functions
        ],
    }


def _print(found: Artefact | TunedScript, args: argparse.Namespace) -> None:
    if isinstance(found, Artefact):
        for entry in found.entries:
            print_entry(entry)
    else:
        _print_script(found, args)
    if args.output is not None:
        output.print_line(f"wrote {args.output}")


def _print_script(found: TunedScript, args: argparse.Namespace) -> None:
    rows = []
    for each in found.recording.functions[:8]:
        tuned = next((one for one in found.functions if one.hot is each), None)
        result = "-"
        if tuned is not None and tuned.entry is not None:
            entry = tuned.entry
            result = f"{entry.speedup:.3f}x" if not entry.is_identity else "as it was"
        elif tuned is not None:
            is_late = tuned.failure == NO_TIME
            result = NO_TIME if is_late else "cannot be tuned"
        rows.append(
            (each.name, each.calls, output.format_seconds(each.seconds), result)
        )
    columns = ("function", "calls", "time after the first call", "tuned")
    output.print_table(columns, rows, right=columns[1:])
    for one in found.functions:
        if one.failure == NO_TIME:
            continue
        output.print_line()
        if one.entry is not None:
            print_entry(one.entry)
        else:
            output.print_line(f"{one.hot.name}: {one.failure}")
    before, after = found.calls_s, found.expected_s
    compiling = ""
    if found.compile_s:
        seconds = output.format_seconds(found.compile_s)
        compiling = f", without the first compilation ({seconds})"
    output.print_line(
        f"\nall calls: {output.format_seconds(before)} before, about "
        f"{output.format_seconds(after)} with the result ({before / after:.3f}x)"
        f"{compiling}"
    )
    if any(each.is_kept for each in found.functions):
        words = " ".join(["python -m hloenv.tune", args.target, *args.arguments])
        output.print_line(f"run it so with:\n  {words}")


def print_entry(entry: Tuned) -> None:
    """What was decided for one module, and what it is worth."""
    output.print_line(str(entry))
    if entry.is_identity:
        return
    rows = [
        (each["stage"], each["decided"], _worth(each["alone"]), _rest(each["without"]))
        for each in entry.stages
    ]
    if rows:
        columns = ("stage", "decided", "alone", "all but this")
        output.print_table(columns, rows, right=columns[2:], fold=("decided",))
    same = (
        "bitwise equal" if entry.is_bitwise else f"{entry.excess:.2g} of the tolerance"
    )
    output.print_line(
        f"outputs: {same}; class {entry.numerics}; compiles in "
        f"{output.format_seconds(entry.compile_s)}"
    )


def _worth(values: Any) -> str:
    if not values or not all(math.isfinite(each) for each in values):
        return "-"
    return f"{values[0]:.3f}x ({values[1]:.3f} to {values[2]:.3f})"


def _rest(values: Any) -> str:
    return f"{values[0]:.3f}x" if values else "-"
