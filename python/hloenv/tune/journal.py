# SPDX-License-Identifier: Apache-2.0
"""What a tuning has measured, in a file that survives the end of the process.

One line of JSON for each event: the build or the last check of a configuration begins
or ends in the tuner's process, or it is measured. A line is complete on disk before the
next event, so that after `kill -9` at most the running measurements are repeated. What
has begun twice and never ended has ended the process both times, and its configuration
counts as failed. Damaged lines are skipped.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..hlo.module import HloModule
from ..jax.artefact import finite
from ..measurement.record import Measurement
from .build import Candidate
from .space import Configuration

_SUFFIX = ".journal"
# How often a configuration may be begun without a result.
_MAX_BEGUN = 2
# Journals of other modules that are read, the newest first, and configurations of them.
_MAX_JOURNALS, _MAX_NEAR = 500, 8


@dataclass(frozen=True)
class Result:
    """A measured configuration.

    Attributes:
        configuration: what was chosen.
        key: of the candidate; equal keys are compiled in the same way.
        arm: what proposed it.
        speedup: over the baseline; 0 if it failed.
        interval: 95 % interval of `speedup`.
        error: why it failed; "" if it did not.
        excess: largest difference of an output, in units of the tolerance.
        compile_s: time to compile it, in seconds.
        seconds: that building and measuring it took.
        threads: cores that it was measured with.
        is_bitwise: whether all outputs were bitwise equal to the baseline's.
        mode: of the tuning that has measured it.
        inputs: a hash of those that it ran on, or "random".
        timeout_s: seconds that it could take.
    """

    configuration: Configuration
    key: str = ""
    arm: str = ""
    speedup: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    error: str = ""
    excess: float = 0.0
    compile_s: float = 0.0
    seconds: float = 0.0
    threads: int = 0
    is_bitwise: bool = False
    mode: str = ""
    inputs: str = ""
    timeout_s: float = 0.0

    @classmethod
    def of(
        cls,
        candidate: Candidate,
        arm: str,
        measurement: Measurement,
        interval: tuple[float, float],
        *,
        seconds: float,
        threads: int,
    ) -> Result:
        """The result of a measurement.

        Args:
            candidate: what was measured.
            arm: what proposed it.
            measurement: of it.
            interval: of the speed-up, widened by the control.
            seconds: as the attribute.
            threads: as the attribute.
        """
        found = cls(
            candidate.configuration,
            candidate.key,
            arm,
            seconds=seconds,
            threads=threads,
        )
        if measurement.error is not None:
            return replace(found, error=str(measurement.error))
        outputs = measurement.outputs
        return replace(
            found,
            speedup=finite(measurement.speedup),
            interval=(finite(interval[0]), finite(interval[1])),
            excess=0.0 if outputs is None else finite(outputs.excess),
            compile_s=measurement.compile_ns * 1e-9,
            is_bitwise=outputs is not None and outputs.is_bitwise,
        )

    @property
    def is_ok(self) -> bool:
        """Whether it ran, with the right outputs."""
        return not self.error

    @property
    def is_timeout(self) -> bool:
        """Whether it took too long, as it may on a busy machine."""
        return self.error.startswith("MeasureTimeout")

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        data["configuration"] = self.configuration.to_json()
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Result:
        """Reads the result of `to_json`.

        Raises:
            ValueError, TypeError, KeyError: this is not one.
        """
        low, high = data["interval"]
        values = {
            **data,
            "configuration": Configuration.from_json(data["configuration"]),
            "interval": (float(low), float(high)),
        }
        return cls(**values)


class Journal:
    """The events of the tunings of one module, in order.

    Attributes:
        results: measured before this process, the oldest first.
        crashed: configurations that have ended the tuner's process.
        failure: why nothing is written any more, such as a full disk; "" if it is.
    """

    def __init__(self, path: Path | None, features: dict[str, int]) -> None:
        """Reads the file; what cannot be read or written is left out.

        Args:
            path: of the file; None to write none.
            features: of the module, for `near`.
        """
        self.results: list[Result] = []
        self.crashed: set[Configuration] = set()
        self.failure = ""
        self._path = path
        if path is None:
            return
        begun: Counter[Configuration] = Counter()
        for event in _events(path):
            try:
                if "result" in event:
                    result = Result.from_json(event["result"])
                    self.results.append(result)
                    begun.pop(result.configuration, None)
                elif "begun" in event:
                    begun[Configuration.from_json(event["begun"])] += 1
                elif "ended" in event:
                    begun.pop(Configuration.from_json(event["ended"]), None)
            except (ValueError, TypeError, KeyError):
                continue
        self.crashed = {each for each, times in begun.items() if times >= _MAX_BEGUN}
        if not self.results and not begun:
            self._write({"features": features})

    def begin(self, configuration: Configuration) -> None:
        """Notes that this process is about to build or to run a configuration."""
        self._write({"begun": configuration.to_json()})

    def end(self, configuration: Configuration) -> None:
        """Notes that this process did not crash at that, whatever the result."""
        self._write({"ended": configuration.to_json()})

    @contextlib.contextmanager
    def running(self, configuration: Configuration) -> Iterator[None]:
        """`begin` and `end` around a block."""
        self.begin(configuration)
        try:
            yield
        finally:
            self.end(configuration)

    def add(self, result: Result) -> None:
        """Notes a result."""
        self._write({"result": result.to_json()})

    def recalled(self, *, threads: int, inputs: str, timeout_s: float) -> list[Result]:
        """The results of earlier processes with these cores and inputs.

        A configuration that took too long is left out if that was only once, as on a
        busy machine, or it had less time than now.
        """
        found = [
            each
            for each in self.results
            if (each.threads, each.inputs) == (threads, inputs)
        ]
        timeouts = Counter(
            each.configuration
            for each in found
            if each.is_timeout and each.timeout_s >= timeout_s
        )
        return [
            each
            for each in found
            if not each.is_timeout or timeouts[each.configuration] >= _MAX_BEGUN
        ]

    def _write(self, event: dict[str, Any]) -> None:
        if self._path is None or self.failure:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A line that an earlier process has not finished must not eat this one.
            line = "\n" + json.dumps(event)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            self.failure = f"the journal {self._path} cannot be written: {error}"


def journal_path(kept: Path) -> Path:
    """The journal beside a kept recipe."""
    return kept.with_suffix(_SUFFIX)


def features_of(module: HloModule) -> dict[str, int]:
    """How often each opcode occurs: what modules are compared by."""
    return dict(sorted(module.opcode_counts().items()))


def near(folder: Path, features: dict[str, int], own: Path) -> list[Configuration]:
    """The best configurations of the nearest other modules.

    The distance of two modules is that of their opcodes' shares, so that sizes of
    arrays and numbers of layers matter little.

    Args:
        folder: of the journals.
        features: of the module.
        own: journal of the module itself, which is left out.
    """
    found: list[tuple[float, str, Configuration]] = []
    paths = [path for path in folder.glob(f"*{_SUFFIX}") if path != own]
    paths.sort(key=_modified, reverse=True)
    for path in paths[:_MAX_JOURNALS]:
        theirs: dict[str, int] = {}
        best: Result | None = None
        for event in _events(path):
            try:
                if "features" in event:
                    theirs = {
                        str(name): int(count)
                        for name, count in event["features"].items()
                    }
                elif "result" in event:
                    result = Result.from_json(event["result"])
                    if result.is_ok and (
                        best is None or result.interval[0] > best.interval[0]
                    ):
                        best = result
            except (ValueError, TypeError, KeyError, AttributeError):
                continue
        if best is not None and best.configuration.choices and theirs:
            distance = _distance(features, theirs)
            found.append((distance, path.name, best.configuration))
    nearest = sorted(found, key=_by_distance)
    return list(dict.fromkeys(each for _, _, each in nearest))[:_MAX_NEAR]


def _modified(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _by_distance(found: tuple[float, str, Configuration]) -> tuple[float, str]:
    return found[0], found[1]


def _distance(one: dict[str, int], other: dict[str, int]) -> float:
    """Half of the summed differences of shares: 0 for equal ones, 1 for disjoint."""
    sums = max(sum(one.values()), 1), max(sum(other.values()), 1)
    return 0.5 * sum(
        abs(one.get(name, 0) / sums[0] - other.get(name, 0) / sums[1])
        for name in {*one, *other}
    )


def _events(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event
