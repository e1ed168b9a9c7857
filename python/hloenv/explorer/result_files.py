# SPDX-License-Identifier: Apache-2.0
"""Reads the files and folders that have results."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..bench.rows import Row, read_parquet
from ..errors import ArgumentError
from ..learn.curve import CURVE, read_curve
from ..rewrite.trace import Trace
from .results import of_artefact, of_bench, of_search, of_training, of_tuning
from .schema import Results

_BENCH = "results.parquet"
_REPORT = "report.json"
_JOURNAL = ".journal"
_ALLOWED = (
    "results are the .parquet or the folder of hloenv bench, the output of hloenv "
    "search --json or hloenv tune --json, an artefact or a .journal of hloenv tune, "
    "and the folder of a run of hloenv train"
)


@dataclass(frozen=True)
class ResultFile:
    """What a file of results has.

    Attributes:
        results: as the page shows them.
        traces: the decisions of each row, where they are known; [] for none.
    """

    results: Results
    traces: Sequence[Trace | None] = ()


def read_results(path: Path) -> ResultFile | None:
    """Reads a result of any kind; None if it is something else, such as a module.

    Raises:
        ArgumentError: a folder without results; a damaged file.
        ArtefactError: a damaged artefact.
        FileNotFoundError: there is no such file.
        TraceError: the decisions of a row are no trace.
    """
    if path.is_dir():
        return ResultFile(_read_folder(path))
    if path.suffix == ".parquet":
        return ResultFile(of_bench(path.name, _rows_of(path)))
    if path.suffix == _JOURNAL:
        return ResultFile(_read_journal(path))
    if path.suffix != ".json" and not _is_object(path):
        return None
    data = _read_json(path)
    if not isinstance(data, dict):
        return None
    if {"evaluated", "measured", "best"} <= set(data):
        results = of_search(path.name, data)
        return ResultFile(results, [_trace_of(each) for each in data["measured"]])
    if {"format", "entries", "checksum"} <= set(data):
        from ..jax.artefact import Artefact

        artefact = Artefact.from_json(data)
        traces = [each.recipe.trace for each in artefact.entries]
        return ResultFile(of_artefact(path.name, artefact), traces)
    return None


def _trace_of(candidate: Mapping[str, Any]) -> Trace | None:
    trace = candidate.get("trace")
    return None if trace is None else Trace.from_json(json.dumps(trace))


def _read_folder(path: Path) -> Results:
    """A folder of `hloenv train` or of `hloenv bench`."""
    if (path / CURVE).exists():
        report = path / _REPORT
        found = _read_json(report) if report.exists() else {}
        return of_training(str(path), read_curve(path / CURVE), found)
    if (path / _BENCH).exists():
        return of_bench(str(path), _rows_of(path / _BENCH))
    raise ArgumentError(f"folder {path} has no {CURVE} and no {_BENCH}; {_ALLOWED}")


def _read_journal(path: Path) -> Results:
    from ..tune.journal import Journal

    with path.open("rb"):  # says why it cannot be read
        results = Journal(path, {}).results
    if not results:
        raise ArgumentError(f"{path} has no measurement of hloenv tune; {_ALLOWED}")
    return of_tuning(path.name, results)


def _is_object(path: Path) -> bool:
    """Whether a file begins as an object of JSON; neither HLO nor a proto does."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(1) == b"{"


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArgumentError(f"{path} is not JSON: {error}") from None


def _rows_of(path: Path) -> list[Row]:
    try:
        return read_parquet(path)
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise ArgumentError(f"{path} does not exist") from None
        raise ArgumentError(
            f"{path} is not a result file of hloenv bench: {error}"
        ) from None
