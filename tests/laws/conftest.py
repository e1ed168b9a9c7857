# SPDX-License-Identifier: Apache-2.0
"""The children that check the laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hloenv.fuzz import children


@pytest.fixture(scope="module")
def run_all(request: pytest.FixtureRequest) -> Callable[..., dict[str, Any]]:
    """Runs one function of hloenv.fuzz.matrix for every `source` that this run selects.

    All of a file's tests share their children: XLA's libraries load once, and two
    children work at a time.
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
        selected = list(dict.fromkeys(selected))
        if any(source.startswith("real:") for source in selected):
            folder = request.getfixturevalue("hlo_dir")
        jobs = [
            (
                str(folder / f"{source[5:]}.txt")
                if source.startswith("real:")
                else source,
                *job_of(source),
            )
            for source in selected
        ]
        outcomes = children.map_jobs(f"hloenv.fuzz.matrix:{function}", jobs, **options)
        return dict(zip(selected, outcomes, strict=True))

    return run


class _NoParams:
    params: dict[str, Any] = {}  # noqa: RUF012 (never written)


_NO_PARAMS = _NoParams()
