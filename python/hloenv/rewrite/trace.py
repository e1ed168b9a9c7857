# SPDX-License-Identifier: Apache-2.0
"""Episodes as data: a module and its decisions, for replay."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._files import naming
from .._native import core
from ..errors import TraceError
from ..hlo.module import HloModule
from ..hlo.text import without_metadata

FORMAT = "hloenv-trace-2"
# Its text hashes include metadata: source lines and paths.
FORMAT_WITH_METADATA = "hloenv-trace-1"
# Of a step's passes; a pipeline in a pipeline takes four.
_MAX_DEPTH = 200


def text_hash(module: HloModule, *, format_: str = FORMAT) -> str:
    """SHA-256 of the module's text; unlike a fingerprint, it covers names.

    The text is in the order of operands. Passes may see instructions in another order,
    that of the file that was read: a replay checks its end too.

    It does not cover metadata (source files and lines): the same function, lowered
    from another source line, has the same hash.

    Args:
        module: any.
        format_: of the trace that the hash is for; `FORMAT_WITH_METADATA` hashes
            metadata too.
    """
    text = module.to_text()
    if format_ != FORMAT_WITH_METADATA:
        text = without_metadata(text)
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class ModuleId:
    """Identity of a module, by its fingerprint and its text."""

    fingerprint: str
    text_sha256: str

    @classmethod
    def of(cls, module: HloModule, *, format_: str = FORMAT) -> ModuleId:
        """The identity of `module`, in a trace of this format."""
        return cls(module.fingerprint(), text_hash(module, format_=format_))


@dataclass(frozen=True)
class Step:
    """One change of the environment's module.

    Attributes:
        kind: "run", "decide" or "run-until".
        passes: the pipelines that ran or were captured, as JSON.
        decisions: of a "decide" step, one for each alternative.
        place: of a "run-until" step: position and occurrence.
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
        end: the module at its end.
        steps: in order.
        tensorflow: version of the TensorFlow whose XLA ran.
        format: what the text hashes of `start` and `end` cover.
    """

    start: ModuleId
    end: ModuleId
    steps: tuple[Step, ...]
    tensorflow: str = core.tensorflow_version
    format: str = FORMAT

    def to_json(self) -> str:
        """One JSON object, indented."""
        return json.dumps({"format": self.format, **asdict(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Trace:
        """Reads the text of `to_json`; other keys are ignored.

        Raises:
            TraceError: this is not a trace, or one of an unknown format.
        """
        try:
            data = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise TraceError(f"this is not a trace: it is not JSON: {error}") from (
                error
            )
        format_ = _field(data, "a trace", "format", str)
        if format_ not in (FORMAT, FORMAT_WITH_METADATA):
            raise TraceError(
                f"the trace has format {format_[:40]!r}; this version reads {FORMAT!r} "
                f"and {FORMAT_WITH_METADATA!r}"
            )
        return cls(
            start=_module_id(_field(data, "a trace", "start", dict)),
            end=_module_id(_field(data, "a trace", "end", dict)),
            steps=tuple(_step(step) for step in _field(data, "a trace", "steps", list)),
            tensorflow=_field(data, "a trace", "tensorflow", str),
            format=format_,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes JSON to `path`."""
        with naming(path):
            Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Trace:
        """Reads JSON from `path`.

        Raises:
            FileNotFoundError: there is no such file.
            TraceError: it is not a trace.
        """
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError as error:
            raise TraceError(
                f"{os.fspath(path)} is not a trace: it is not UTF-8 text: {error}"
            ) from None
        except TraceError as error:
            raise TraceError(f"{os.fspath(path)}: {error}") from None


def _field(data: Any, what: str, name: str, type_: type) -> Any:
    """`data[name]`, which must have exactly this type."""
    if not isinstance(data, dict) or name not in data:
        raise TraceError(f"this is not a trace: {what} must be an object with {name!r}")
    value = data[name]
    if type(value) is not type_:
        raise TraceError(
            f"this is not a trace: {name!r} of {what} must be a {type_.__name__}, got "
            f"{repr(value)[:80]}"
        )
    return value


def _depth(value: Any) -> int:
    """Levels of lists and objects, which pickling and replaying recurse into."""
    depth, level = 0, [value]
    while level:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, (list, dict))
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return depth


def _module_id(data: Any) -> ModuleId:
    return ModuleId(
        _field(data, "a module", "fingerprint", str),
        _field(data, "a module", "text_sha256", str),
    )


def _step(data: Any) -> Step:
    decisions = _field(data, "a step", "decisions", list)
    if any(type(each) is not int for each in decisions):
        raise TraceError("this is not a trace: a step's decisions must be integers")
    passes = _field(data, "a step", "passes", list)
    if _depth(passes) > _MAX_DEPTH:
        raise TraceError(
            f"a step's passes are nested too deeply: more than {_MAX_DEPTH} levels"
        )
    place = data.get("place")
    if place is not None and (
        not isinstance(place, list) or [type(each) for each in place] != [str, int]
    ):
        raise TraceError(
            "this is not a trace: the place of a step must be null or [pass, "
            f"occurrence], got {repr(place)[:80]}"
        )
    return Step(
        _field(data, "a step", "kind", str),
        tuple(passes),
        tuple(decisions),
        None if place is None else (place[0], place[1]),
    )
