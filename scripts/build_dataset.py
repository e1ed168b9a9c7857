#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the dataset from the projects of dataset/manifest.toml.

Each source is installed in its own environment and runs in a child process with limits
and without a network. Finished sources are not repeated; Ctrl-C loses at most the
running sources:

    python scripts/build_dataset.py                        # everything
    python scripts/build_dataset.py --only flax optax rlax # a part
    python scripts/build_dataset.py --jobs 4 --out build/dataset
    python scripts/build_dataset.py --list

    python scripts/build_dataset.py --extent real --merge python/hloenv/dataset/files

Results: OUT/{train,validation,test,unseen}.parquet, OUT/report.md, and a log for each
source.
Exit code 1 if a source failed.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

from dataset.harvest import Outcome, Settings  # noqa: E402
from dataset.manifest import Source  # noqa: E402

from dataset import build as builder  # noqa: E402
from dataset import manifest, sandbox, split  # noqa: E402

SHIPPED = ROOT / "python" / "hloenv" / "dataset" / "files"


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these sources")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="sources at a time (default 1)"
    )
    parser.add_argument(
        *("--out", "-o"),
        type=Path,
        default=ROOT / "build" / "dataset",
        help="folder of the build (default build/dataset)",
    )
    parser.add_argument(
        "--manifest", type=Path, default=ROOT / "dataset" / "manifest.toml"
    )
    parser.add_argument(
        "--prefer",
        choices=("pypi", "git", "path"),
        default="",
        help="preferred origin of sources with several",
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="rerun failed sources"
    )
    parser.add_argument(
        "--assemble",
        action="store_true",
        help="run nothing; assemble the results of earlier builds",
    )
    parser.add_argument(
        "--extent",
        choices=("small", "real"),
        help="run only the entries of one extent",
    )
    parser.add_argument(
        "--merge",
        type=Path,
        metavar="FOLDER",
        help="keep the rows of the dataset in FOLDER that this build does not replace",
    )
    parser.add_argument(
        "--keep-venvs", action="store_true", help="keep each source's environment"
    )
    parser.add_argument(
        "--lock",
        action="store_true",
        help="write the installed packages to locks/ next to the manifest",
    )
    parser.add_argument(
        "--ship",
        action="store_true",
        help="copy the result into the package, python/hloenv/dataset/files",
    )
    parser.add_argument("--list", action="store_true", help="only print the sources")
    return parser


def choose(
    sources: list[Source], only: list[str] | None, extent: str | None = None
) -> list[Source]:
    """Returns the sources with these names, restricted to the entries of one extent.

    Raises:
        manifest.ManifestError: a name is unknown.
    """
    if extent == "small":
        sources = [dataclasses.replace(source, real_entries=()) for source in sources]
        sources = [source for source in sources if source.entries or source.scripts]
    elif extent == "real":
        sources = [
            dataclasses.replace(source, entries=(), scripts=())
            for source in sources
            if source.real_entries
        ]
    if only is None:
        return sources
    names = {source.name for source in sources}
    unknown = sorted(set(only) - names)
    if unknown:
        raise manifest.ManifestError(
            f"no source is called {', '.join(unknown)}; --list prints all {len(names)}"
        )
    return [source for source in sources if source.name in only]


@contextmanager
def shown_progress(
    total: int,
) -> Iterator[Callable[[Source, Outcome | None], None]]:
    """Shows a progress bar on a terminal, and lines elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    console = Console(stderr=True, highlight=False)
    running: list[str] = []
    lock = threading.Lock()
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=console, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=total)

        def show(source: Source, outcome: Outcome | None) -> None:
            with lock:
                if outcome is None:
                    running.append(source.name)
                else:
                    if source.name in running:
                        running.remove(source.name)
                    progress.advance(task)
                    console.print(_line(outcome), markup=False, soft_wrap=True)
                progress.update(task, description=", ".join(running))

        yield show


def _line(outcome: Outcome) -> str:
    if outcome.status != "done":
        last = outcome.detail.strip().splitlines() or [""]
        return f"{outcome.source:28} FAILED  {last[-1][:160]}"
    lost = f", {len(outcome.failures)} not taken" if outcome.failures else ""
    return (
        f"{outcome.source:28} {outcome.num_modules:5} modules{lost} "
        f"({outcome.origin}, network: {outcome.network}, {outcome.seconds:.0f} s)"
    )


def main() -> int:
    """Returns 0 if every source produced modules."""
    args = make_parser().parse_args()
    try:
        sources = choose(manifest.load(args.manifest), args.only, args.extent)
    except (manifest.ManifestError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if args.list:
        for source in sources:
            where = source.split or split.split_of(source.repository)
            print(
                f"{source.name:28} {source.family:14} {where:10} "
                f"{source.verified or '-':5} {source.pypi or source.repository}"
            )
        return 0
    print(f"network of the children: {sandbox.network_guard()}", file=sys.stderr)
    settings = Settings(
        out=args.out.resolve(),
        prefer=args.prefer,
        keep_venvs=args.keep_venvs,
        lock=args.lock,
    )
    try:
        with shown_progress(len(sources)) as show:
            summary = builder.build(
                sources,
                settings,
                jobs=args.jobs,
                retry_failed=args.retry_failed,
                run_nothing=args.assemble,
                merge=args.merge,
                on_progress=show,
            )
    except KeyboardInterrupt:
        print("stopped; run the same command to continue", file=sys.stderr)
        return 130
    counts = ", ".join(f"{n} {name}" for name, n in summary.counts.items())
    print(f"{counts}; {summary.size_bytes / 1e6:.2f} MB in {settings.out}")
    if args.ship:
        SHIPPED.mkdir(exist_ok=True)
        for name in split.FILES:
            shutil.copyfile(
                settings.out / f"{name}.parquet", SHIPPED / f"{name}.parquet"
            )
    for outcome in summary.failed:
        print(f"failed: {outcome.source}: {outcome.detail[-300:]}", file=sys.stderr)
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
