# SPDX-License-Identifier: Apache-2.0
"""Episodes as data: their actions and results."""

from __future__ import annotations

import csv
import io
import json
import os
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._files import replacing
from ..errors import ArgumentError

_FIELDS = ("benchmark", "passes", "reward", "seconds", "error")


@dataclass(frozen=True)
class EpisodeState:
    """An episode so far.

    Attributes:
        benchmark: URI of the module it started from.
        passes: names of the actions, in order.
        reward: sum of the rewards.
        seconds: wall-clock time of the steps.
        error: why the last step failed; empty if it did not.
    """

    benchmark: str
    passes: tuple[str, ...]
    reward: float
    seconds: float
    error: str = ""

    def to_json(self) -> str:
        """JSON text that `from_json` reads back."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> EpisodeState:
        """Reads the text of `to_json`.

        Raises:
            ArgumentError: the text is something else.
        """
        try:
            return _from_plain(json.loads(text))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise ArgumentError(f"this is not a state in JSON: {error}") from None


@dataclass(frozen=True)
class ValidationResult:
    """What a replay of an episode found.

    Attributes:
        problems: sentences; none if the episode is valid.
    """

    problems: tuple[str, ...]

    @property
    def is_valid(self) -> bool:
        """Whether the replay gave the same module, reward and outputs."""
        return not self.problems


def write_csv(path: str | os.PathLike[str], states: Iterable[EpisodeState]) -> None:
    """Writes states, one row each, over what the file holds.

    Raises:
        OSError: they cannot be written, as on a full disk; the file is as before.
    """
    with replacing(Path(path)) as draft:
        append_csv(draft, states)


def append_csv(path: str | os.PathLike[str], states: Iterable[EpisodeState]) -> None:
    """Adds states to a file, one row each; makes the file where there is none.

    Raises:
        ArgumentError: the file is something else.
        OSError: they cannot be written, as on a full disk; the file is as before.
    """
    # Without a buffer, which would write the rest when the file is closed.
    with Path(path).open("ab+", buffering=0) as file:
        size = file.tell()
        text = io.StringIO(newline="")
        file.seek(0)
        first = file.readline().decode(errors="replace").strip() if size else ""
        if size and first != ",".join(_FIELDS):
            raise ArgumentError(
                f"{path} begins with {first[:80]!r}; a file of states begins with "
                f"{','.join(_FIELDS)}"
            )
        writer = csv.DictWriter(text, _FIELDS)
        if size == 0:
            writer.writeheader()
        for state in states:
            writer.writerow({**asdict(state), "passes": json.dumps(state.passes)})
        data = text.getvalue().encode()
        written = 0
        try:
            while written < len(data):
                written += file.write(data[written:])
        except OSError:
            # Half a row would make the file unreadable. It stays if another process
            # has added rows since.
            if os.fstat(file.fileno()).st_size == size + written:
                os.ftruncate(file.fileno(), size)
            raise


def write_parquet(
    folder: str | os.PathLike[str], states: Iterable[EpisodeState]
) -> None:
    """Adds a file of states to a folder; its name begins with the time, in ns."""
    import pyarrow as pa
    from pyarrow import parquet

    path = Path(folder) / f"{time.time_ns()}-{uuid.uuid4().hex}.parquet"
    with replacing(path) as draft:
        parquet.write_table(pa.Table.from_pylist([asdict(s) for s in states]), draft)


def read_csv(path: str | os.PathLike[str]) -> list[EpisodeState]:
    """Reads what `write_csv` wrote.

    Raises:
        ArgumentError: the file is something else.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            return [
                _from_plain({**row, "passes": json.loads(row["passes"])})
                for row in csv.DictReader(file)
            ]
    except (
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        csv.Error,
    ) as error:
        raise ArgumentError(f"{path} holds no states: {error}") from None


def _from_plain(data: Any) -> EpisodeState:
    if not isinstance(data, dict) or set(data) != set(_FIELDS):
        raise ArgumentError(f"a state has {', '.join(_FIELDS)}, got {data!r:.80}")
    passes = data["passes"]
    if not isinstance(passes, list) or not all(isinstance(p, str) for p in passes):
        raise ArgumentError(f"the passes of a state are names, got {passes!r:.80}")
    return EpisodeState(
        str(data["benchmark"]),
        tuple(passes),
        float(data["reward"]),
        float(data["seconds"]),
        str(data["error"]),
    )
