# SPDX-License-Identifier: Apache-2.0
"""The requests of the page: paths, arguments, and what answers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError
from .backend import Backend

_Handler = Callable[[Backend, Mapping[str, Any]], Any]

_MAX_TEXT = 200


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = given.get(name, default)
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ArgumentError(
            f"{name} must be a text of at most {_MAX_TEXT} characters, got "
            f"{str(value)[:40]!r}"
        )
    return value


def _integer(given: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = given.get(name, default)
    if isinstance(value, str) and value.lstrip("-").isascii():
        digits = value.removeprefix("-")
        if digits.isdecimal() and len(digits) < 16:
            return int(value)
    if type(value) is not int or not -(2**53) < value < 2**53:
        raise ArgumentError(f"{name} must be an integer, got {str(value)[:40]!r}")
    return value


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    value = given.get(name)
    if not isinstance(value, list):
        raise ArgumentError(f"{name} must be a list, got {type(value).__name__}")
    return value


def _changes(given: Mapping[str, Any]) -> list[list[int]]:
    changes = _list(given, "changes")
    for each in changes:
        if (
            not isinstance(each, list)
            or len(each) != 2
            or any(type(number) is not int for number in each)
        ):
            raise ArgumentError(
                f"a decision is [alternative, choice], got {str(each)[:40]}"
            )
    return changes


def _log(given: Mapping[str, Any]) -> list[Any]:
    """Actions of another session; each is checked as a request of its own."""
    log = []
    for each in _list(given, "log"):
        if not isinstance(each, dict):
            raise ArgumentError("an action must be an object")
        log.append(
            {
                "do": _text(each, "do"),
                "until": _text(each, "until"),
                "occurrence": _integer(each, "occurrence"),
                "passes": _passes(each),
                "changes": _changes(each),
            }
        )
    return log


def _passes(given: Mapping[str, Any]) -> list[str]:
    passes = _list(given, "passes")
    for each in passes:
        _text({"a pass": each}, "a pass")
    return passes


def _revision(given: Mapping[str, Any]) -> str:
    return _text(given, "revision", "")


# By path below "api/".
GET: dict[str, _Handler] = {
    "state": lambda backend, _: (
        backend.request("state", {}) if backend.has_module else None
    ),
    "graph": lambda backend, given: (
        backend.final_graph()
        if given.get("which") == "final"
        else backend.request("graph", {"which": _text(given, "which", "current")})
    ),
    "node": lambda backend, given: backend.request(
        "node", {"index": _integer(given, "index")}
    ),
    "alternatives": lambda backend, _: backend.request("alternatives", {}),
    "alternative": lambda backend, given: backend.request(
        "alternative",
        {"index": _integer(given, "index"), "choice": _integer(given, "choice")},
    ),
    "trace": lambda backend, _: {"text": backend.request("finished_trace", {})},
    "python": lambda backend, _: {"text": backend.request("python", {})},
    "text": lambda backend, _: {"text": backend.request("text", {})},
    "job": lambda backend, given: backend.job(_integer(given, "id")),
    "finished": lambda backend, _: backend.finished(),
    "stage": lambda backend, given: backend.stage(_integer(given, "index")),
    "change": lambda backend, given: backend.stage_change(
        _integer(given, "index"), _integer(given, "change")
    ),
    "results": lambda backend, _: backend.results(),
}
POST: dict[str, _Handler] = {
    "decide": lambda backend, given: backend.request(
        "decide", {"changes": _changes(given)}, revision=_revision(given)
    ),
    "apply": lambda backend, given: backend.request(
        "apply", {}, revision=_revision(given)
    ),
    "undo": lambda backend, given: backend.request(
        "undo", {}, revision=_revision(given)
    ),
    "point": lambda backend, given: backend.request(
        "point",
        {
            "until": _text(given, "until"),
            "occurrence": _integer(given, "occurrence", 1),
            "passes": _passes(given),
        },
        revision=_revision(given),
    ),
    "restore": lambda backend, given: backend.restore(_log(given)),
    "open": lambda backend, given: backend.open(
        _text(given, "name"), str(given.get("content", ""))
    ),
    "open_row": lambda backend, given: backend.open_row(
        _integer(given, "row"), revision=_revision(given)
    ),
    "start": lambda backend, given: backend.start(
        _text(given, "kind"), {k: v for k, v in given.items() if k != "kind"}
    ),
    "cancel": lambda backend, given: backend.cancel(_integer(given, "id")),
}
