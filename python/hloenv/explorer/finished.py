# SPDX-License-Identifier: Apache-2.0
"""The latest results of jobs, for a page that is loaded again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .schema import Action, Finished

# What a result is of: the key of the session, and the actions that it depends on.
_Subject = tuple[str, list[Action]]


class FinishedJobs:
    """Keeps one result of each kind, with the state of the session that it is of."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bool, _Subject, Any]] = {}

    def add(
        self, kind: str, result: Any, key: str, log: list[Action], *, is_decided: bool
    ) -> None:
        """Keeps a result; times of single choices are added to those kept.

        Args:
            kind: of job.
            result: of the job.
            key: of the session when the job began.
            log: the actions of the session when the job began.
            is_decided: whether the result depends on decisions that are not applied.
        """
        subject = _subject(kind, key, log, is_decided)
        if kind == "rank" and not result["error"] and kind in self._kept:
            _, earlier, kept = self._kept[kind]
            if earlier == subject and not kept["error"]:
                timed = {(i, choice): s for i, choice, s in kept["timed"]}
                timed |= {(i, choice): s for i, choice, s in result["timed"]}
                rows = [[i, choice, s] for (i, choice), s in timed.items()]
                result = {**result, "timed": rows}
        self._kept[kind] = (is_decided, subject, result)

    def at(self, key: str, log: list[Action]) -> Finished:
        """The results that are of a session as it is now."""
        found = nothing_finished()
        for kind, (is_decided, subject, result) in self._kept.items():
            if subject == _subject(kind, key, log, is_decided):
                found[kind] = result  # type: ignore[literal-required]
        return found


def nothing_finished() -> Finished:
    """No results."""
    return {
        "estimate": None,
        "measure": None,
        "compare": None,
        "rank": None,
        "timeline": None,
    }


def _subject(kind: str, key: str, log: Sequence[Action], is_decided: bool) -> _Subject:
    if kind == "timeline":
        return key, []
    actions = list(log)
    while actions and not is_decided and actions[-1]["do"] == "decide":
        actions.pop()
    return key, actions
