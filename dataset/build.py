# SPDX-License-Identifier: Apache-2.0
"""Builds all sources, then writes one Parquet file for each split, and a report."""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import dedup, normalize, parquet, sandbox, split
from .harvest import Outcome, Settings, harvest, load_outcome, modules_path
from .manifest import Source

_DISTRIBUTION = ("parameter", "distribution", "location", "scale")


@dataclass
class Summary:
    """The result of a build.

    Attributes:
        outcomes: one for each source, in the order of the manifest.
        counts: modules of each split.
        size_bytes: total size of the Parquet files.
        num_copies: number of modules equal to another one.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    num_copies: int = 0

    @property
    def failed(self) -> list[Outcome]:
        """The sources without modules."""
        return [each for each in self.outcomes if each.status != "done"]


def build(
    sources: Sequence[Source],
    settings: Settings,
    *,
    jobs: int = 1,
    retry_failed: bool = False,
    run_nothing: bool = False,
    merge: Path | None = None,
    on_progress: Callable[[Source, Outcome | None], None] = lambda *_: None,
) -> Summary:
    """Builds the dataset in `settings.out`.

    Args:
        sources: the sources; those that are done are not run again.
        settings: how to build.
        jobs: number of concurrent sources.
        retry_failed: whether to rerun sources that failed in an earlier build.
        run_nothing: whether to use only results of earlier builds.
        merge: as `assemble` takes it.
        on_progress: called with a source and None at its start, and with its outcome at
            its end; from several threads.

    Returns:
        The summary, which is also in `report.json` and `report.md`.
    """
    settings.out.mkdir(parents=True, exist_ok=True)

    def one(source: Source) -> Outcome:
        outcome = load_outcome(source, settings)
        if run_nothing:
            return outcome or Outcome(source.name, detail="it has not been run")
        if outcome is None or (retry_failed and outcome.status != "done"):
            on_progress(source, None)
            outcome = harvest(source, settings)
        on_progress(source, outcome)
        return outcome

    with (
        _late_interrupts(),
        concurrent.futures.ThreadPoolExecutor(max(1, jobs)) as pool,
    ):
        try:
            outcomes = list(pool.map(one, sources))
        except BaseException:
            sandbox.STOP.set()
            pool.shutdown(cancel_futures=True)
            raise
    return assemble(sources, outcomes, settings, merge=merge)


@contextlib.contextmanager
def _late_interrupts() -> Iterator[None]:
    """Ctrl-C stops the sources, and is raised once all threads have ended.

    Raised at once, KeyboardInterrupt may leave this thread with the lock of a future,
    for which a thread of the pool, and so the build, would wait forever. A second
    Ctrl-C is raised at once.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    is_interrupted = False

    def stop(*_: object) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        sandbox.STOP.set()
        signal.signal(signal.SIGINT, before)

    if is_main and callable(before):
        signal.signal(signal.SIGINT, stop)
    try:
        yield
    except sandbox.StoppedError:
        if not is_interrupted:
            raise
    finally:
        sandbox.STOP.clear()
        if is_main and callable(before):
            signal.signal(signal.SIGINT, before)
    if is_interrupted:
        raise KeyboardInterrupt


def assemble(
    sources: Sequence[Source],
    outcomes: Sequence[Outcome],
    settings: Settings,
    *,
    merge: Path | None = None,
) -> Summary:
    """Writes the Parquet files and the reports from the results of the sources.

    Args:
        sources: the built sources.
        outcomes: one for each source.
        settings: of the build.
        merge: folder of a dataset whose rows are kept, except those from the entry
            files of `sources`; the result equals that of a full build.
    """
    pairs = zip(sources, outcomes, strict=True)
    done = [(s, o) for s, o in pairs if o.status == "done"]
    records = [record for s, o in done for record in _rows(s, o, settings)]
    if merge is not None:
        records += _kept(merge, [source for source, _ in done])
    rows = dedup.distinct_splits(records)
    copies = sum(row["num_copies"] for row in rows) - len(rows)
    summary = Summary(list(outcomes), num_copies=copies)
    for name in split.FILES:
        chosen = [row for row in rows if row["split"] == name]
        path = settings.out / f"{name}.parquet"
        old = None if merge is None else merge / path.name
        if old is not None and old.is_file() and parquet.read(old) == chosen:
            # Skipped if the rows are equal: compression takes minutes.
            shutil.copyfile(old, path)
        else:
            parquet.write(path, chosen)
        summary.counts[name] = len(chosen)
        summary.size_bytes += path.stat().st_size
    _report(summary, rows, settings)
    return summary


def _kept(folder: Path, done: Sequence[Source]) -> Iterator[dict[str, Any]]:
    """Yields rows of an earlier dataset that are not from the entry files of `done`."""
    made = {(s.name, path.stem) for s in done for path in s.entry_paths}
    for name in split.FILES:
        path = folder / f"{name}.parquet"
        for row in parquet.read(path) if path.is_file() else ():
            if (row["source"], row["entry"]) not in made:
                yield row


def _rows(
    source: Source, outcome: Outcome, settings: Settings
) -> Iterator[dict[str, Any]]:
    taken: Counter[str] = Counter()
    for record in normalize.read(modules_path(source, settings)):
        if "fingerprint" not in record:
            continue
        name = record["module"]
        taken[name] += 1
        if taken[name] > 1:
            name = f"{name}.{taken[name]}"
        yield {
            **{key: record[key] for key in parquet.MEASURED},
            "input_ranges": [
                dict(zip(("parameter", "low", "high"), each, strict=True))
                for each in record["ranges"]
            ],
            "input_distributions": [
                dict(zip(_DISTRIBUTION, each, strict=True))
                for each in record.get("distributions", ())
            ],
            "extent": source.extent_of(record["entry"]),
            "name": name,
            "entry": record["entry"],
            "source": source.name,
            "repository": source.repository,
            "version": source.version,
            "licence": source.licence,
            "family": source.family,
            "jax_version": outcome.jax,
            "split": source.split or split.split_of(source.repository),
        }


def _report(summary: Summary, rows: list[dict[str, Any]], settings: Settings) -> None:
    report = {
        "counts": summary.counts,
        "size_bytes": summary.size_bytes,
        "num_copies": summary.num_copies,
        "sources": [asdict(outcome) for outcome in summary.outcomes],
    }
    path = settings.out / "report.json"
    path.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    kept = Counter(row["source"] for row in rows)
    lines = [
        "# Build report",
        "",
        f"{len(rows)} distinct modules, {summary.num_copies} copies left out, "
        f"{summary.size_bytes / 1e6:.1f} MB.",
        "",
        "| source | state | origin | network | modules | kept | not taken | s |",
        "|---|---|---|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {o.source} | {o.status} | {o.origin} | {o.network} | {o.num_modules} "
        f"| {kept[o.source]} | {len(o.failures)} | {o.seconds:.0f} |"
        for o in summary.outcomes
    ]
    lines += ["", "## What was not taken", ""]
    for outcome in summary.outcomes:
        reasons = [*outcome.failures]
        if outcome.status != "done":
            reasons.insert(0, [outcome.source, outcome.detail])
        for name, reason in reasons:
            lines.append(f"* {name}: {' '.join(reason.split())[:300]}")
    path = settings.out / "report.md"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
