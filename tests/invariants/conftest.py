# SPDX-License-Identifier: Apache-2.0
"""The children that check the invariants, and the count of what they could not check.

A test whose every capture was left out is skipped, with the reasons; captures that
single tests leave out are counted at the end of the run.
"""

from __future__ import annotations

import datetime
import hashlib
import os
import pickle
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hloenv.process import forkserver
from support.cases import assert_invariants, unchecked
from support.children import map_in_few

_CHECKED = pytest.StashKey[Counter[str]]()
_UNCHECKED = pytest.StashKey[Counter[str]]()
_SAMPLE = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_CHECKED] = Counter()
    config.stash[_UNCHECKED] = Counter()
    config.stash[_SAMPLE] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        # The first test of a file waits for the children of all of them.
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.timeout(1200), append=False)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for line in config.stash[_SAMPLE]:
        terminalreporter.write_line(line)
    skipped = config.stash[_UNCHECKED]
    if not skipped:
        return
    terminalreporter.section("captures that could not be checked")
    for reason, number in skipped.most_common():
        terminalreporter.write_line(f"{number:6} {reason}")
    checked = config.stash[_CHECKED].total()
    terminalreporter.write_line(
        f"{skipped.total()} of {checked + skipped.total()} captures were not checked"
    )


@pytest.fixture
def assert_checked(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Fails where an invariant is broken; skips where nothing could be checked."""

    def check(
        outcome: forkserver.Outcome | None, num_reports: int | None = None
    ) -> None:
        if outcome is None:
            pytest.skip("no real modules here: set HLOENV_TEST_HLO to a folder of them")
        assert_invariants(outcome, num_reports)
        reasons = unchecked(outcome)
        num_checked = len(outcome.values) - reasons.total()
        request.config.stash[_CHECKED][request.node.originalname] += num_checked
        request.config.stash[_UNCHECKED].update(reasons)
        if not num_checked:
            why = ", ".join(f"{n} x {reason}" for reason, n in reasons.most_common(2))
            pytest.skip(f"none of {len(outcome.values)} captures: {why}")

    return check


@pytest.fixture
def sample_seed(request: pytest.FixtureRequest) -> str:
    """Today's date, or $HLOENV_SAMPLE_SEED; printed at the end of the run."""
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    seed = os.environ.get("HLOENV_SAMPLE_SEED", today)
    request.config.stash[_SAMPLE].append(
        f"random sample of the matrix: HLOENV_SAMPLE_SEED={seed} repeats it"
    )
    return seed


@pytest.fixture(scope="module")
def run_all(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Runs a function, "module:name", for every `source` that this run selects.

    All of a file's tests share two children; one that ends is followed by another.
    Processes of pytest-xdist share the outcomes: the first
    that needs them runs the function, the others wait for it. Where there is no folder
    of real modules, their outcomes are None.
    """

    def run(
        function: str, job_of: Callable[[str], tuple[Any, ...]], **options: Any
    ) -> dict[str, Any]:
        selected = [
            item.callspec.params["source"]
            for item in request.session.items
            if item.module is request.module
            and "source" in getattr(item, "callspec", _NO_PARAMS).params
        ]
        folder: Path | None = request.getfixturevalue("optional_hlo_dir")
        paths = {
            source: str(folder / f"{source[5:]}.txt")
            if source.startswith("real:")
            else source
            for source in dict.fromkeys(selected)
            if folder is not None or not source.startswith("real:")
        }
        # The largest first, so that the children end at the same time.
        paths = dict(sorted(paths.items(), key=_size, reverse=True))
        jobs = [(path, *job_of(source)) for source, path in paths.items()]
        options.setdefault("timeout", 120)
        options["is_timed_by_value"] = True  # of a pass
        outcomes = _once(
            request, (function, jobs), lambda: map_in_few(function, jobs, **options)
        )
        found: dict[str, Any] = dict.fromkeys(selected)
        return found | dict(zip(paths, outcomes, strict=True))

    return run


def _size(item: tuple[str, str]) -> int:
    path = Path(item[1])
    return path.stat().st_size if path.exists() else 0


def _once(
    request: pytest.FixtureRequest, key: Any, run: Callable[[], list[Any]]
) -> list[Any]:
    """The result of `run`, which one process of this test run calls."""
    if not hasattr(request.config, "workerinput"):
        return run()
    # Of all processes; every test run has its own.
    shared = request.getfixturevalue("tmp_path_factory").getbasetemp().parent
    path = shared / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:16]}.outcomes"
    with FileLock(f"{path}.lock"):
        if not path.exists():
            path.write_bytes(pickle.dumps(run()))
    outcomes: list[Any] = pickle.loads(path.read_bytes())
    return outcomes


class _NoParams:
    params: dict[str, Any] = {}  # noqa: RUF012 (never written)


_NO_PARAMS = _NoParams()
