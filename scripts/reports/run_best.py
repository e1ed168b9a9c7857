#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares hloenv with the best of what a user has besides, program by program.

What a user has: jax.jit, jax.jit with the best of 16 settings of XLA's flags, the XLA
of TensorFlow's wheel, and Enzyme-JAX's optimizer in front of jax.jit. Of hloenv:
`hloenv.jit` by its fixed rules, and with what `hloenv.tune` finds within its budget.

One program of each entry point is drawn at random. Each runs in its own process. Every
version is compared with jax.jit in turns. The better of hloenv's two by these times is
then timed anew, in turns with jax.jit and with the best of the others that is clearly
faster than jax.jit, and the smaller speed-up counts. Rows are appended to a JSONL file;
a repeated run continues.

    python scripts/reports/run_best.py --split validation
    python scripts/reports/run_best.py --split test --doc docs/results/best.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hloenv
from hloenv._markdown import table
from hloenv.bench import flags
from hloenv.dataset.reader import Record
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.runtime.jaxlib.options import EXTRA, OptionValue, compile_lowered
from reporting import (
    Row,
    Rows,
    add_dataset,
    add_timing,
    count_of,
    drawn_by_entry_point,
    head,
    interval_text,
    mean_by_entry_point,
    parser_of,
    rows_of_programs,
    version_of_rows,
    write_page,
)

# Of jaxlib's compiler, by flag.
_SETTINGS: tuple[dict[str, OptionValue], ...] = (
    {"xla_cpu_multi_thread_eigen": False},
    {"xla_cpu_multi_thread_eigen": False, "xla_cpu_prefer_vector_width": 512},
    {"xla_cpu_prefer_vector_width": 512},
    {"xla_cpu_prefer_vector_width": 128},
    {"xla_cpu_enable_fast_math": True},
    {"xla_cpu_enable_fast_math": True, "xla_cpu_prefer_vector_width": 512},
    {"xla_cpu_enable_fast_min_max": False},
    {"xla_cpu_use_fusion_emitters": False},
    {"xla_cpu_enable_concurrency_optimized_scheduler": True},
    {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
    {"xla_cpu_copy_insertion_use_region_analysis": True},
    {"xla_cpu_parallel_codegen_split_count": 1},
    {"xla_backend_optimization_level": 1},
    {"xla_llvm_disable_expensive_passes": True},
    {EXTRA: "xla_cpu_disable_loop_unrolling="},
    {EXTRA: "xla_cpu_disable_tiled_emitter="},
)
_GIVEN = "jax.jit", "best flags", "wheel's XLA", "Enzyme-JAX"
_OURS = "hloenv.jit", "hloenv.tune"
_ROUNDS = 5, 1000  # minimum, maximum
_BATCH_NS = 100_000
_MAX_REASON = 120  # letters

Call = Callable[[], Any]


def parse_arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = parser_of(__doc__)
    add_dataset(parser, "validation")
    add_timing(parser, 1.0, "build/best.jsonl")
    parser.add_argument("--tune-seconds", type=float, default=60.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- in the child process ------------------------------------------------------------


class Versions:
    """The versions of one program, each timed in turns with plain jax.jit."""

    def __init__(self, record: Record, arguments: argparse.Namespace) -> None:
        """Compiles and runs the program by jax.jit."""
        from hloenv.jax.wrapping import moved_arguments
        from hloenv.runtime.jaxlib.stablehlo import program_of

        jax = self._jax = importlib.import_module("jax")
        self._record = record
        self._arguments = arguments
        self._program_of = program_of
        self._inputs = [jax.device_put(each) for each in record.inputs()]
        self._plain = self._jitted(record.module)
        self._moved = lambda draw: self._plain(
            *moved_arguments(jax, self._inputs, draw)
        )
        # As long as one call takes, of which short ones are timed together.
        self._count = 1
        single = min(self._times(self.call("jax.jit"), rounds=(5, 5))[0])
        self._count = max(1, round(_BATCH_NS / single))
        self.settings: dict[str, float] = {}

    def _jitted(self, module: hloenv.HloModule) -> Any:
        program = self._program_of(module)
        return self._jax.jit(lambda *arrays: tuple(program(*arrays)), keep_unused=True)

    def call(self, name: str) -> Call:
        """The version of this name.

        Raises:
            HloEnvError, JaxRuntimeError, ImportError: it cannot be made.
        """
        inputs = self._inputs
        function: Any = {
            "jax.jit": lambda: self._plain,
            "best flags": self._best_flags,
            "wheel's XLA": self._by_wheel,
            "Enzyme-JAX": self._by_enzyme,
            "hloenv.jit": self._decided,
            "hloenv.tune": self._tuned,
        }[name]()
        return lambda: function(*inputs)

    def with_options(self, options: dict[str, OptionValue]) -> Call:
        """The program compiled by jaxlib with options.

        Raises:
            CompileError: this jaxlib does not have them.
        """
        compiled = compile_lowered(self._plain.lower(*self._inputs), options)
        return partial(compiled, *self._inputs)

    def _best_flags(self) -> Any:
        """Of the settings with equal outputs, the one that is clearly fastest."""
        best, found = 1.0, self.call("jax.jit")
        for options in _SETTINGS:
            text = " ".join(f"{name}={value}" for name, value in options.items())
            try:
                call = self.with_options(options)
                row = self.compared(call)
            except (hloenv.HloEnvError, self._jax.errors.JaxRuntimeError):
                continue  # this jaxlib does not have it
            if row["is_equal"]:
                self.settings[text] = row["speedup"]
            if is_clear(row) and row["speedup"] > best:
                best, found = row["speedup"], call
        return lambda *_: found()

    def _by_wheel(self) -> Any:
        # As jax lowers it, its results are row-major.
        return hloenv.load(hloenv.HloModule.from_jax(self._plain, *self._inputs))

    def _by_enzyme(self) -> Any:
        from hloenv.rules import enzyme

        return self._jitted(enzyme.optimize(self._record.module))

    def _decided(self, **options: Any) -> Any:
        inner = self._jitted(self._record.module)
        return hloenv.jit(
            lambda *arrays: inner(*arrays), keep_unused=True, remember=False, **options
        )

    def _tuned(self) -> Any:
        from hloenv.tune import TuneOptions, tune

        inner = self._jitted(self._record.module)
        found = tune(
            lambda *arrays: inner(*arrays),
            *self._inputs,
            jit_options={"keep_unused": True},
            options=TuneOptions(
                seconds=self._arguments.tune_seconds,
                seed=self._arguments.seed,
                keep=False,
            ),
        )
        return self._jax.jit(inner) if found.is_identity else self._decided(tuned=found)

    def _times(
        self, call: Call, other: Call | None = None, **options: Any
    ) -> tuple[list[int], list[int]]:
        from hloenv.jax.compare import take_turns

        settings = {"rounds": _ROUNDS, "seconds": self._arguments.seconds} | options
        plain = call if other is None else other
        return take_turns(plain, call, calls=self._count, **settings)

    def compared(self, call: Call, other: Call | None = None) -> Row:
        """Speed-up of a version over another, by default jax.jit's; ns of one call."""
        from hloenv.jax.outputs import difference

        plain: Call = lambda: self._plain(*self._inputs)  # noqa: E731
        self._jax.block_until_ready(call())
        durations = self._times(call, other or plain)
        low, high = speedup_interval(*durations)
        return {
            "speedup": speedup_of(*durations),
            "low": low,
            "high": high,
            "other_ns": float(np.median(durations[0])) / self._count,
            "ns": float(np.median(durations[1])) / self._count,
            "is_equal": not difference(
                self._jax.device_put(plain()),
                self._jax.device_put(call()),
                moved=self._moved,
            ),
        }


def measure(record: Record, arguments: argparse.Namespace) -> Row:
    """Measures one program in this process, with a store of its own."""
    versions = Versions(record, arguments)
    # Without it there is no row.
    calls: dict[str, Call] = {"jax.jit": versions.call("jax.jit")}
    rows: dict[str, Row] = {"jax.jit": versions.compared(calls["jax.jit"])}
    for name in (*_GIVEN[1:], *_OURS):
        try:
            calls[name] = versions.call(name)
            rows[name] = versions.compared(calls[name])
        except Exception as error:
            rows[name] = {"error": f"{type(error).__name__}: {error}"[:_MAX_REASON]}
    clear = [name for name in _GIVEN[1:] if is_clear(rows[name])]
    given, ours = best_of(rows, clear), best_of(rows, _OURS)
    finals = {
        name: versions.compared(calls[ours], calls[name])
        for name in {"jax.jit", given}
        if name != ours
    }
    given = min(finals, key=lambda name: finals[name]["speedup"], default="jax.jit")
    return {
        "versions": rows,
        "settings": versions.settings,
        "given": given,
        "ours": ours,
        "final": finals.get(given) or {**rows["jax.jit"], "speedup": 1.0},
    }


def is_clear(row: Row) -> bool:
    """Whether a version has equal outputs and is faster beyond the interval."""
    return bool(row.get("is_equal")) and row["low"] > 1


def best_of(rows: dict[str, Row], names: Iterable[str]) -> str:
    """The fastest of these with equal outputs; jax.jit if none has."""
    equal = [name for name in names if rows[name].get("is_equal")]
    return max(equal, key=lambda name: rows[name]["speedup"], default="jax.jit")


# --- in the parent -------------------------------------------------------------------


def counted(name: str, row: Row) -> float:
    """A version's speed-up over jax.jit; 1 if it failed or has other outputs."""
    found = row.get("versions", {}).get(name, {})
    return float(found["speedup"]) if found.get("is_equal") else 1.0


def final_of(row: Row) -> float:
    """Speed-up over the best of the others; 1 if it failed or has other outputs."""
    found = row.get("final", {})
    return float(found["speedup"]) if found.get("is_equal") else 1.0


def summary(name: str, rows: list[Row], of: Callable[[Row], float]) -> tuple[Any, ...]:
    """A line of the first table."""
    speedups = [of(row) for row in rows]
    mean, low, high, _ = mean_by_entry_point(
        (row["repository"], row["entry_point"], speedup)
        for row, speedup in zip(rows, speedups, strict=True)
    )
    key = "final" if of is final_of else "versions"
    found = [row.get(key, {}) for row in rows]
    if key == "versions":
        found = [each.get(name, {}) for each in found]
    return (
        name,
        f"{mean:.3f}",
        interval_text(low, high),
        f"{min(speedups):.3f}",
        f"{max(speedups):.3f}",
        sum(each > 1.02 for each in speedups),
        sum(each < 0.98 for each in speedups),
        sum("is_equal" not in each for each in found),
        sum(each.get("is_equal") is False for each in found),
    )


def report(rows: list[Row], arguments: argparse.Namespace) -> list[str]:
    """The page."""
    done = [row["final"] for row in rows if row.get("final", {}).get("is_equal")]
    columns = (
        "over jax.jit",
        "mean",
        "95 %",
        "worst",
        "best",
        "above 1.02",
        "below 0.98",
    )
    lines = [
        summary(name, rows, partial(counted, name)) for name in (*_GIVEN[1:], *_OURS)
    ]
    over = summary("hloenv over the best of the others", rows, final_of)
    chosen: dict[str, int] = defaultdict(int)
    for row in rows:
        if "settings" in row:
            settings = {"none": 1.0, **row["settings"]}
            chosen[max(settings, key=lambda each: settings[each])] += 1
    total = sum(each["other_ns"] for each in done) / max(
        sum(each["ns"] for each in done), 1.0
    )
    reasons = [
        f"* {row['name']}, {name}: {found['error']}"
        for row in rows
        for name, found in row.get("versions", {}).items()
        if "error" in found
    ]
    return [
        *head("hloenv against the best of what there is", rows),
        f"* {len(rows)} programs, one of each entry point, drawn with seed "
        f"{arguments.seed}; on {count_of(arguments.cores, 'core')}; failures and "
        "unequal outputs count as 1",
        f"* `hloenv.tune` has {arguments.tune_seconds:g} s for each, and its last "
        "check; where it finds nothing, this is `jax.jit` again",
        f"* flags: {count_of(len(_SETTINGS), 'setting')} of jaxlib's compiler, one "
        "after the other in the process; all processes have "
        f"`{flags.BASELINE_FLAGS}`, the default of XLA, without which the wheel's is "
        "slower; what hloenv compiles by the wheel's XLA has it here, too",
        "",
        "Each version was timed in turns with `jax.jit`. For the last line the better "
        "of hloenv's two was timed anew, in turns with `jax.jit` and with the best of "
        "the first three, if one was faster than `jax.jit` beyond its interval; the "
        "smaller speed-up counts.",
        "",
        *table((*columns, "failed", "outputs differ"), [*lines, over]),
        "",
        "Total time of the best of the others over hloenv's, of those that ran: "
        f"{total:.3f}.",
        "",
        *program_table(rows),
        "",
        "The fastest setting, by the number of programs: "
        + ", ".join(
            f"`{text}` {number}"
            for text, number in sorted(chosen.items(), key=lambda each: -each[1])
        )
        + ".",
        *(["", "What failed:", "", *reasons] if reasons else []),
    ]


def program_table(rows: list[Row]) -> list[str]:
    """A line for each program."""
    cells = []
    for row in sorted(rows, key=lambda row: -final_of(row)):
        if "error" in row:
            cells.append((row["name"], *7 * [""], row["error"]))
            continue
        found, final = row["versions"], row["final"]
        cells.append(
            (
                row["name"],
                f"{found['jax.jit']['ns'] / 1e6:.3f} ms",
                *(_cell(found[name]) for name in (*_GIVEN[1:], *_OURS)),
                row["given"],
                f"{final['speedup']:.3f} ({final['low']:.3f} to {final['high']:.3f})",
            )
        )
    columns = ("program", "jax.jit", *_GIVEN[1:], *_OURS, "best of the others")
    return table((*columns, "hloenv over that"), cells, "lrrrrrrlr")


def _cell(found: Row) -> str:
    if "error" in found:
        return "fails"
    return f"{found['speedup']:.3f}" if found["is_equal"] else "outputs differ"


def main() -> int:
    """Measures missing programs and writes the page."""
    arguments = parse_arguments()
    dataset = hloenv.dataset.load(arguments.split, extent=arguments.extent)
    if arguments.one:
        record = dataset.find(arguments.one)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["HLOENV_STORE"] = str(Path(folder, "store.sqlite"))
            print(json.dumps(measure(record, arguments)))
        return 0
    records = [each for each in dataset if arguments.match in each.name]
    if not records:
        raise SystemExit(f"no program of {arguments.split} has {arguments.match!r}")
    flags.use(flags.baseline_flags())  # as the wheel's XLA has it by default
    settings = {
        "seconds": arguments.seconds,
        "tune-seconds": arguments.tune_seconds,
        "seed": arguments.seed,
    }
    words = ["--split", arguments.split, "--extent", arguments.extent]
    words += [
        word for name, value in settings.items() for word in (f"--{name}", str(value))
    ]
    rows = rows_of_programs(
        drawn_by_entry_point(records, arguments.seed),
        Rows(arguments.rows, "fingerprint", "version", "cores"),
        words,
        timeout_s=10 * arguments.tune_seconds + 900,
        version=version_of_rows(**settings),
        cores=arguments.cores,
    )
    write_page(report(rows, arguments), arguments.doc)
    return 0


if __name__ == "__main__":
    sys.exit(main())
