# SPDX-License-Identifier: Apache-2.0
"""Episodes as data: what was decided on which module, so that anyone can repeat it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ._native import core
from .errors import TraceError
from .module import HloModule

FORMAT = "hloenv-trace-1"


def text_hash(module: HloModule) -> str:
    """SHA-256 of the module's text: unlike a fingerprint it sees names and order."""
    return hashlib.sha256(module.to_text().encode()).hexdigest()


@dataclass(frozen=True)
class ModuleId:
    """Says which module, twice: passes see an order that fingerprints do not."""

    fingerprint: str
    text_sha256: str

    @classmethod
    def of(cls, module: HloModule) -> ModuleId:
        """The identity of `module`."""
        return cls(module.fingerprint(), text_hash(module))


@dataclass(frozen=True)
class Step:
    """One change of the environment's module.

    Attributes:
        kind: "run", "decide" or "run-until".
        passes: the pipelines that ran or were captured, as JSON.
        decisions: of a "decide" step, one for each alternative.
        place: of a "run-until" step: where, and which arrival there.
    """

    kind: str
    passes: tuple[Any, ...] = ()
    decisions: tuple[int, ...] = ()
    place: tuple[str, int] | None = None


@dataclass(frozen=True)
class Trace:
    """A replayable record of an episode; JSON-able.

    Attributes:
        start: the module that the episode started with.
        end: the module that it led to.
        steps: in order.
        tensorflow: version of the TensorFlow whose XLA ran.
    """

    start: ModuleId
    end: ModuleId
    steps: tuple[Step, ...]
    tensorflow: str = core.tensorflow_version

    def to_json(self) -> str:
        """One JSON object, indented."""
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Reads what `to_json` wrote.

        Raises:
            TraceError: this is not a trace, or one of another format.
        """
        try:
            data = json.loads(text)
            if data.pop("format", None) != FORMAT:
                raise TraceError(
                    f"this is not a trace: it has to say 'format': {FORMAT!r}"
                )
            return cls(
                start=ModuleId(**data["start"]),
                end=ModuleId(**data["end"]),
                steps=tuple(
                    Step(
                        step["kind"],
                        tuple(step["passes"]),
                        tuple(step["decisions"]),
                        None if step["place"] is None else tuple(step["place"]),
                    )
                    for step in data["steps"]
                ),
                tensorflow=data["tensorflow"],
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, TraceError):
                raise
            raise TraceError(f"this is not a trace: {error!r}") from error

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON to `path`."""
        Path(path).write_text(self.to_json())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads JSON from `path`.

        Raises:
            FileNotFoundError: there is no such file.
            TraceError: it is not a trace.
        """
        return cls.from_json(Path(path).read_text())
