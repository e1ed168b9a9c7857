# SPDX-License-Identifier: Apache-2.0
"""A sandbox for untrusted modules: XLA runs in a child process.

On malformed input XLA may end its process (CHECK failure, division by zero) or not
terminate. In a sandbox this raises an exception:

    with hloenv.isolated(timeout_s=60, max_memory_bytes=4 << 30) as sandbox:
        module = sandbox.load("unknown.hlo")     # InvalidModuleError if XLA crashes
        result = sandbox.run_passes(module, "algsimp", "cse").module
        num_choices = sandbox.check_alternatives(result, "fusion")
        text = sandbox.call("mypackage.tools:shrink", result, steps=3)

One child serves all calls, so only the first call loads XLA's libraries (about a
second). After a crash or a timeout the next call starts another child.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidModuleError, ParseError, WorkerError
from ..hlo.module import HloModule, read_text_or_proto, read_trusted
from ..hlo.passes import Pass, PassRun, Pipeline, as_pipeline, run_passes
from ..process.child import Child, check_memory
from .alternatives import Alternatives, Decisions, as_decisions, capture

Source = HloModule | str | bytes | os.PathLike[str]


class Sandbox:
    """Runs calls in a child process; made by `isolated`.

    Every method raises the exception of the work itself, or

    * WorkerError: the process crashed; the message holds XLA's last log lines;
    * MeasureTimeout: the call reached its time limit, and the process was ended.

    Not thread-safe.
    """

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        max_memory_bytes: int | None = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        self._cores = cores
        self._timeout_s = timeout_s
        self._max_memory_bytes = max_memory_bytes
        self._child: Child | None = None
        self._is_closed = False

    def load(self, source: Source) -> HloModule:
        """Reads a module in this process after the child has read and verified it.

        Args:
            source: HLO text, a path to text or proto, or a serialized proto. An
                HloModule is verified.

        Raises:
            ParseError: the source is not a module.
            InvalidModuleError: XLA's verifier rejects it, or XLA crashes on it.
            FileNotFoundError: there is no such file.
        """
        content = source if isinstance(source, HloModule) else _read(source)
        try:
            self._call(_probe, content)
        except WorkerError as error:
            if self._child is not None or self._is_closed:
                raise  # the child still runs: XLA did not crash
            raise InvalidModuleError(f"XLA crashed on this module: {error}") from error
        except ParseError as error:
            raise ParseError(f"{_named(source)}{error}") from None
        if isinstance(content, HloModule):
            return content
        return read_trusted(content)

    def run_passes(self, module: Source, *passes: str | Pass | Pipeline) -> PassRun:
        """As `hloenv.run_passes`."""
        result: PassRun = self._call(run_passes, self._loaded(module), *passes)
        return result

    def check_alternatives(
        self, module: Source, *passes: str | Pass | Pipeline
    ) -> npt.NDArray[np.int64]:
        """Tries a capture, its graph, and the decisions of each pass.

        Returns:
            [A] choices of each alternative, as `Alternatives.num_choices`. A capture
            in this process gives the same.

        Raises:
            UnknownPassError, PassOptionError: no such pass or option.
            PassError: a pass failed on this module.
        """
        result: npt.NDArray[np.int64] = self._call(
            _check_alternatives, self._loaded(module), *passes
        )
        return result

    def apply_alternatives(
        self, module: Source, decisions: Decisions, *passes: str | Pass | Pipeline
    ) -> HloModule:
        """Captures `passes`, applies `decisions` and returns the result.

        Raises:
            DecisionError: wrong length, type or range.
        """
        result: HloModule = self._call(
            _apply, self._loaded(module), as_decisions(decisions), *passes
        )
        return result

    def call(self, function: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a function in the child.

        Args:
            function: "package.module:name", which the child must be able to import, so
                not a function of `__main__`. The child has this process's import path
                and, last, the current folder.
            args: arguments; like the result, they must pickle, as modules, passes and
                arrays do.
            kwargs: likewise.

        Raises:
            WorkerError: also if the function raised an exception that is not an
                HloEnvError; the message names it.
        """
        if self._is_closed:
            raise WorkerError("this sandbox is closed; use it inside its 'with' block")
        if self._child is not None and not self._child.is_alive:
            # It was ended, or belongs to the process that this one was forked from.
            self._child.close()
            self._child = None
        if self._child is None:
            self._child = Child(
                max_memory_bytes=self._max_memory_bytes,
                cores=self._cores,
                with_current_folder=True,
            )
        request = {"do": "call", "function": function}
        data = pickle.dumps((args, kwargs))
        try:
            _, (result,) = self._child.request(request, data, timeout_s=self._timeout_s)
        finally:
            if not self._child.is_alive:
                self._child.close()
                self._child = None
        return pickle.loads(result)

    def interrupt(self) -> None:
        """Ends the child, from any thread: a running call raises WorkerError."""
        child = self._child
        if child is not None:
            child.kill()

    def close(self) -> None:
        """Ends the child; may be called repeatedly."""
        self._is_closed = True
        if self._child is not None:
            self._child.close()
            self._child = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, function: Callable[..., Any], *args: Any) -> Any:
        return self.call(f"{function.__module__}:{function.__name__}", *args)

    def _loaded(self, source: Source) -> HloModule:
        return source if isinstance(source, HloModule) else self.load(source)


def isolated(
    *, timeout_s: float | None = 300.0, max_memory_bytes: int | None = None
) -> Sandbox:
    """A sandbox: a crash of XLA in it raises an exception in this process.

    Args:
        timeout_s: time limit of one call, in seconds; None for no limit.
        max_memory_bytes: memory that the child may allocate, including a few hundred
            MB for its libraries; None for no limit.

    Raises:
        ArgumentError: the limit is less than XLA's libraries need.
    """
    check_memory(max_memory_bytes)
    return Sandbox(timeout_s=timeout_s, max_memory_bytes=max_memory_bytes)


def _read(source: str | bytes | os.PathLike[str]) -> str | bytes:
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source)
    if isinstance(source, str) and (
        source.lstrip().startswith("HloModule") or "\n" in source
    ):
        return source
    data = Path(source).read_bytes()
    if Path(source).suffix in (".hlo", ".txt"):
        return data.decode(errors="replace")
    return data


def _named(source: Source) -> str:
    if isinstance(source, os.PathLike) or (
        isinstance(source, str) and "\n" not in source[:4096] and len(source) < 4096
    ):
        return f"{os.fspath(source)}: "
    return ""


# Runs in the child.


def _probe(content: HloModule | str | bytes) -> None:
    """The operations that callers run first on a module."""
    module = content if isinstance(content, HloModule) else read_text_or_proto(content)
    module.verify()
    module.fingerprint()
    module.cost()
    HloModule.from_text(module.to_text())


def _capture(module: HloModule, *passes: str | Pass | Pipeline) -> Alternatives:
    return capture(module, [as_pipeline(each) for each in passes])


def _check_alternatives(
    module: HloModule, *passes: str | Pass | Pipeline
) -> npt.NDArray[np.int64]:
    alternatives = _capture(module, *passes)
    alternatives.module.verify()
    vectors = [alternatives.decisions_for(name) for name in alternatives.pass_names]
    for decisions in (alternatives.reject_all(), *vectors):
        alternatives.apply(decisions)
    return alternatives.num_choices.copy()


def _apply(
    module: HloModule, decisions: Decisions, *passes: str | Pass | Pipeline
) -> HloModule:
    return _capture(module, *passes).apply(decisions)
