# SPDX-License-Identifier: Apache-2.0
"""The report, plots and tables that `hloenv bench` writes and prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..bench.entries import Entry
from ..bench.report import dates, html, largest_wins, markdown, not_played, provenance
from ..bench.rows import Row, write_parquet
from ..bench.runner import Plan
from ..bench.statistics import baselines_ns
from ..bench.tables import Table, failures_table, tables
from ..bench.version import code_version, commit_of, is_extension_stale, source_root
from ..cost.calibration import calibrate, load_rates
from ..measurement.store import Store
from ..runtime.executable import Engine
from ..runtime.machine import this_machine
from . import output

_HIDDEN = ("By module", "By entry point")


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        rows: its results.
        entries: the modules of the sample.
        plan: the methods and settings of the run.
        store: where rows are kept.
        sampled: description of how the modules were chosen.
        started: start time, in seconds since the epoch.
        workers: modules that ran concurrently.
    """

    rows: list[Row]
    entries: Sequence[Entry]
    plan: Plan
    store: Store
    sampled: str
    started: float
    workers: int


def write_report(run: Finished, folder: Path, *, is_json: bool) -> None:
    """Writes results, report and plots, and prints the tables or the rows."""
    rows = run.rows
    folder.mkdir(parents=True, exist_ok=True)
    write_parquet(rows, folder / "results.parquet")
    try:
        from ..bench.plots import write_plots

        plots = write_plots(rows, folder)
    except ImportError:
        plots = []
    facts, more = _facts(run), _profiles(run)
    text = markdown(rows, facts, plots, more)
    (folder / "report.md").write_text(text)
    (folder / "report.html").write_text(html(text))
    if is_json:
        output.print_json([row.to_json() for row in rows])
        return
    for title, (columns, cells) in {**tables(rows), **more}.items():
        if title.startswith(_HIDDEN):
            continue
        output.print_table(columns, cells, title=title, right=columns[1:])
        output.print_line()
    for line in largest_wins(rows):
        output.print_line(f"* {line}")
    _, failed = failures_table(rows)
    if failed:
        output.print_line(f"\n{len(failed)} failures count as 1: see the report")
    for name in ("from the store", "not played", "sources"):
        if name in facts:
            output.print_line(f"{name}: {facts[name].replace('**', '')}")
    written = ["report.md", "report.html", "results.parquet", *plots]
    output.print_line(f"\nwrote {folder}/{', '.join(written)}")
    if not plots:
        output.print_line("no plots: matplotlib is missing (pip install hloenv[bench])")


_ENGINES: dict[Engine, str] = {
    "wheel": "the XLA of TensorFlow's wheel, without Python between runs",
    "jaxlib": "jaxlib's XLA, called from Python; the default is what jax.jit compiles",
}


def _facts(run: Finished) -> dict[str, str]:
    machine, threads = this_machine(), run.plan.settings.threads
    command = " ".join(["hloenv", *sys.argv[1:]])
    cores = sorted(os.sched_getaffinity(0))
    facts = {
        "measured": dates(row.measured_at for row in run.rows) if run.rows else "-",
        "command": f"`{command}`",
        "sources": _sources(run.plan),
        "machine": f"{machine.cpu}, {os.cpu_count()} cores, TensorFlow "
        f"{machine.tensorflow}, {machine.kernel}",
        "engine": _ENGINES[run.plan.settings.engine],
        "cores": f"modules run on {threads} thread{'s' * (threads > 1)}, pinned to as "
        f"many of the cores {', '.join(map(str, cores))}; {run.workers} modules at the "
        "same time, timed in turns where they share a core",
        "modules": f"{len({row.module for row in run.rows})}; {run.sampled}",
        **provenance(run.rows, run.started),
    }
    if missing := not_played([each.name for each in run.entries], run.rows):
        facts["not played"] = (
            f"{missing}: the time limit was reached; not counted in any figure"
        )
    return facts


def _sources(plan: Plan) -> str:
    """The commit, with warnings about changed sources."""
    root = source_root()
    commit = commit_of(root)
    words = f"commit {commit}"
    if commit.id != plan.commit.partition("+")[0]:
        words += f"; **it was {plan.commit} when the run began**"
    if code_version(root) != plan.version:
        words += "; **the sources changed during the run**"
    if is_extension_stale(root):
        words += "; **the extension is older than its sources**"
    return words


def _profiles(run: Finished) -> dict[str, Table]:
    """For real extents, the kinds of kernels and the distance from the peak."""
    from ..bench.profile import profiles
    from ..bench.profile_table import profile_table

    played = {row.module for row in run.rows}
    real = [
        each for each in run.entries if each.extent == "real" and each.name in played
    ]
    if not real:
        return {}
    threads = run.plan.settings.threads
    rates = load_rates(run.store, threads)
    if rates is None:
        rates = calibrate(threads=threads, store=run.store)
    found = profiles(real, run.plan, run.store, workers=run.workers)
    title = (
        f"Kinds of kernels and distance from the peak ({threads} thread"
        f"{'s' * (threads > 1)}: {rates.dot_flops_per_s * 1e-9:.0f} GFLOP/s of matrix "
        f"products, {rates.memory_bytes_per_s * 1e-9:.1f} GB/s, as calibrated)"
    )
    return {title: profile_table(found, baselines_ns(run.rows), rates)}
