# SPDX-License-Identifier: Apache-2.0
"""The page's requests, answered by child processes that XLA may end.

The session lives in one child process. If XLA crashes there, another one opens the
module and repeats the log of actions, without the one that crashed. Nothing here calls
XLA; the command has read the module of its argument, with the checks of `from_text`.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import ArgumentError, HloEnvError, WorkerError
from ..hlo.module import HloModule
from ..rewrite.sandbox import Sandbox
from ..rewrite.trace import Trace
from .finished import FinishedJobs
from .jobs import Jobs
from .results import no_results
from .schema import (
    Action,
    BeforeAfter,
    Finished,
    GraphData,
    JobInfo,
    Results,
    StageDiff,
    State,
)

_WORKER = "hloenv.explorer.worker"
_TIMEOUT_S = 300.0
_MAX_RANKED = 200
_MODULES = ("default", "decided")
# Methods of a session that extend or shorten its log.
_ACTIONS = frozenset({"apply", "decide", "point", "repeat", "undo"})


@dataclass(frozen=True)
class Target:
    """What is explored.

    Attributes:
        name: as the user wrote it.
        module: the module, HLO text, or a serialized proto; None with `results` alone.
        trace: an episode on the module.
        results: a result file.
        traces: the decisions of its rows, as far as it has them.
        problem: why the target has no module.
        is_opened: whether `name` is only a title, of text that was sent.
    """

    name: str
    module: HloModule | str | bytes | None = None
    trace: Trace | None = None
    results: Results | None = None
    traces: Sequence[Trace | None] = ()
    problem: str = ""
    is_opened: bool = False


class NoModuleError(HloEnvError, LookupError):
    """There is no module to explore."""


class StaleError(ArgumentError):
    """An action that means an earlier state than that of the session."""


class Backend:
    """Answers requests on one target at a time; any number of threads.

    Args:
        target: what to explore.
        store: path of the store of kernel times; "" for the usual one, None for none.
        threads: cores of a run.
    """

    def __init__(
        self, target: Target, *, store: str | None = "", threads: int = 1
    ) -> None:
        self._target = target
        self._store = store
        self._threads = threads
        self._lock = threading.Lock()
        self._sandbox = Sandbox(timeout_s=_TIMEOUT_S)
        self._diffs = Sandbox(timeout_s=_TIMEOUT_S)
        self._diff_lock = threading.Lock()
        self._key = secrets.token_hex(8)
        self._log: list[Action] = []
        self._num_actions = 0
        self._jobs = Jobs()
        self._finished = FinishedJobs()
        self._final: GraphData | None = None
        self._around: dict[int, tuple[bytes, bytes]] = {}

    @property
    def has_module(self) -> bool:
        """Whether there is a module to explore."""
        return self._target.module is not None

    # The session.

    def request(
        self, method: str, arguments: dict[str, Any], *, revision: str = ""
    ) -> Any:
        """Calls a method of the session.

        Args:
            method: its name.
            arguments: of the method.
            revision: of the state that the caller sees; "" for any.

        Raises:
            StaleError: the session is at another revision.
            NoModuleError: there is no module.
            WorkerError: XLA crashed; the session is as before the call.
            HloEnvError: as the method.
        """
        with self._lock:
            self._check(revision)
            result = self._ask("call", method, arguments)
            if method in _ACTIONS:
                self._log = result["log"]
                self._num_actions += 1
                self._final = None
            if method in _ACTIONS or method == "state":
                result["revision"] = self._revision
        return result

    @property
    def _revision(self) -> str:
        return f"{self._key}-{self._num_actions}"

    def _check(self, revision: str) -> None:
        if revision and revision != self._revision:
            raise StaleError(
                "nothing was done: another window, or another server, has changed what "
                "is explored here; this window shows it now"
            )

    def warm(self) -> None:
        """Starts the child processes, so that the first request need not wait."""

        def work() -> None:
            with contextlib.suppress(HloEnvError), self._lock:
                self._ask("call", "state", {})

        threading.Thread(target=work, name="hloenv-explorer-warm", daemon=True).start()

    def restore(self, log: Sequence[Action]) -> State:
        """Repeats the log that a page kept, in a session without actions.

        Raises:
            ArgumentError: the session has actions.
        """
        if self._log:
            raise ArgumentError("the session has decisions of its own; undo them first")
        state: State = self.request("repeat", {"log": list(log)})
        return state

    def open(self, name: str, content: str) -> State:
        """Explores another module.

        Args:
            name: of the module, for the title.
            content: HLO text.

        Raises:
            ParseError, InvalidModuleError: the text is not a module; the session stays.
        """
        return self._open(Target(name, content, is_opened=True))

    def open_row(self, row: int, *, revision: str = "") -> State:
        """Explores the decisions of a row of the results.

        Args:
            row: its number.
            revision: of the state that the caller sees; "" for any.

        Raises:
            ArgumentError: there is no such row, or it has no decisions.
            StaleError: the session is at another revision, of other results perhaps.
            NoModuleError: the module that they are on was not given.
            TraceError: they are on another module; the session stays.
        """
        target = self._target
        if not 0 <= row < len(target.traces) or target.traces[row] is None:
            raise ArgumentError(f"row {row} of the results has no decisions to open")
        if target.module is None:
            raise NoModuleError(target.problem)
        return self._open(replace(target, trace=target.traces[row]), revision)

    def _open(self, target: Target, revision: str = "") -> State:
        with self._lock:
            self._check(revision)
            before = self._target, self._key, self._log
            self._target = target
            self._key, self._log = secrets.token_hex(8), []
            try:
                self._reopen()
            except BaseException:
                self._target, self._key, self._log = before
                self._reopen()
                raise
            self._final, self._around = None, {}
        state: State = self.request("state", {})
        return state

    def results(self) -> Results:
        """The result file, if one is explored."""
        return self._target.results or no_results()

    def _ask(self, function: str, *arguments: Any) -> Any:
        """Calls the worker; a new process opens the session first."""
        if self._target.module is None:
            raise NoModuleError(
                self._target.problem
                or f"{self._target.name} has no module to explore; open one"
            )
        place = f"{_WORKER}:{function}"
        try:
            found = self._sandbox.call(place, self._key, *arguments)
            if found is None:
                self._reopen()
                found = self._sandbox.call(place, self._key, *arguments)
        except WorkerError as error:
            raise WorkerError(
                f"{error}; the session continues as it was before"
            ) from error
        return found

    def _reopen(self) -> None:
        if self._target.module is not None:
            self._sandbox.call(
                f"{_WORKER}:open_session",
                self._key,
                self._target.module,
                self._target.name,
                self._target.trace,
                self._log,
                self._target.is_opened,
            )

    # Jobs.

    def start(self, kind: str, arguments: Mapping[str, Any]) -> JobInfo:
        """Starts a job on the session as it is now.

        Args:
            kind: "estimate", "measure", "rank", "compare" or "timeline".
            arguments: of `rank`, its "pairs"; of `compare`, "first" and "second", each
                "default", "decided" or "policy:NAME"; of `timeline`, its "target".

        Raises:
            ArgumentError: an unknown kind, or wrong arguments.
            StaleError: `arguments` have the "revision" of another state.
            HloEnvError: the modules cannot be made, or too many jobs are running.
        """
        if kind not in _JOBS:
            raise ArgumentError(f"unknown job {kind[:40]!r}; use {', '.join(_JOBS)}")
        names, others = _JOBS[kind](arguments)
        with self._lock:
            self._check(str(arguments.get("revision", "")))
            if kind == "rank":
                self._ask("call", "check", {"pairs": others[0], "least": 0})
            elif kind == "compare":
                methods = dict(zip(("first", "second"), names, strict=True))
                others = (*others, self._ask("call", "differing", methods))
            inputs = [self._ask("pickled", each) for each in names]
            key, log = self._key, self._log
        is_decided = "decided" in names
        if kind != "timeline":
            others = (*others, self._store, self._threads)

        def finish(info: JobInfo, result: Any) -> None:
            kept: Any = None
            if kind in ("estimate", "timeline"):
                result, kept = result
            info.update({kind: result})  # type: ignore[misc]
            with self._lock:
                self._finished.add(kind, result, key, log, is_decided=is_decided)
                # The session may have changed since.
                if kind == "estimate" and log is self._log:
                    self._final = kept
                elif kind == "timeline" and key == self._key:
                    self._around = kept

        return self._jobs.start(kind, (*inputs, *others), finish)

    def job(self, number: int) -> JobInfo:
        """A job as it is now."""
        return self._jobs.info(number)

    def cancel(self, number: int) -> JobInfo:
        """Ends a job."""
        return self._jobs.cancel(number)

    def finished(self) -> Finished:
        """The results of jobs that are of the session as it is now."""
        with self._lock:
            return self._finished.at(self._key, self._log)

    def final_graph(self) -> GraphData:
        """The decided module after XLA's passes, with kernel times.

        Raises:
            ArgumentError: it was not estimated.
        """
        if self._final is None:
            raise ArgumentError("there are no kernel times yet; run an estimate first")
        return self._final

    def stage(self, index: int) -> StageDiff:
        """What one pass of XLA's pipeline changed.

        Raises:
            ArgumentError: the pass changed nothing, or the pipeline was not run.
        """
        found: StageDiff = self._diff("stage_diff", index)
        return found

    def stage_change(self, index: int, change: int) -> BeforeAfter:
        """The graphs around one change of a pass.

        Raises:
            ArgumentError: as `stage`, or there is no such change.
        """
        found: BeforeAfter = self._diff("stage_change", index, change)
        return found

    def _diff(self, function: str, index: int, *arguments: int) -> Any:
        if index not in self._around:
            raise ArgumentError(f"stage {index} changed nothing, or was not run")
        before, after = self._around[index]
        with self._diff_lock:
            place = f"hloenv.explorer.changes:{function}"
            return self._diffs.call(place, before, after, *arguments)

    def close(self) -> None:
        """Ends all child processes."""
        self._jobs.close()
        self._sandbox.interrupt()
        with self._lock:
            self._sandbox.close()
        self._diffs.interrupt()
        with self._diff_lock:
            self._diffs.close()


# What a job's function starts from, by `worker.pickled`, and its further arguments.
_Inputs = tuple[Sequence[str], tuple[Any, ...]]


def _no_arguments(_: Mapping[str, Any]) -> _Inputs:
    return _MODULES, ()


def _rank_arguments(given: Mapping[str, Any]) -> _Inputs:
    pairs = given.get("pairs")
    is_right = isinstance(pairs, list) and all(
        isinstance(each, list)
        and len(each) == 2
        and all(type(number) is int for number in each)
        for each in pairs
    )
    if not is_right or not pairs or len(pairs) > _MAX_RANKED:
        raise ArgumentError(
            "rank needs pairs: 1 to "
            f"{_MAX_RANKED} lists [alternative, choice], got {str(pairs)[:80]}"
        )
    return ("alternatives", "xla"), (pairs,)


def _compare_arguments(given: Mapping[str, Any]) -> _Inputs:
    names = [_method(given.get(key)) for key in ("first", "second")]
    return names, (names,)


def _timeline_arguments(given: Mapping[str, Any]) -> _Inputs:
    target = given.get("target", "cpu")
    if not isinstance(target, str):
        raise ArgumentError("timeline needs a target, such as 'cpu'")
    return ("start",), (target,)


# By kind, which is also the name of the function in `work`.
_JOBS: dict[str, Callable[[Mapping[str, Any]], _Inputs]] = {
    "estimate": _no_arguments,
    "measure": _no_arguments,
    "rank": _rank_arguments,
    "compare": _compare_arguments,
    "timeline": _timeline_arguments,
}


def _method(name: Any) -> str:
    is_known = name in _MODULES or (
        isinstance(name, str) and name.startswith("policy:")
    )
    if not is_known:
        raise ArgumentError(
            f"a method is 'default', 'decided' or 'policy:NAME', got {str(name)[:80]!r}"
        )
    return str(name)
