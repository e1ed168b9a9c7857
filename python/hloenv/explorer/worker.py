# SPDX-License-Identifier: Apache-2.0
"""Sessions in a child process, which XLA may end; called through a `Sandbox`."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ..hlo.module import HloModule, read_text_or_proto
from ..rewrite.trace import Trace
from .schema import Action
from .session import Session

_open: dict[str, Session] = {}


def open_session(
    key: str,
    content: HloModule | str | bytes,
    target: str,
    trace: Trace | None,
    log: Sequence[Action],
    is_opened: bool = False,
) -> None:
    """Opens a session, in place of the one that the process held.

    Args:
        key: of the session.
        content: the module, HLO text, or a serialized proto.
        target: what the user opened.
        trace: an episode to start from.
        log: actions to repeat.
        is_opened: whether `target` is only a title.
    """
    _open.clear()
    module = content if isinstance(content, HloModule) else read_text_or_proto(content)
    session = Session(module, target, trace, key, is_opened)
    session.repeat(log)
    _open[key] = session


def call(key: str, method: str, arguments: dict[str, Any]) -> Any:
    """Calls a method of an open session; None if this process does not hold it.

    Raises:
        HloEnvError: as the method.
    """
    session = _open.get(key)
    return None if session is None else getattr(session, method)(**arguments)


def pickled(key: str, what: str) -> bytes | None:
    """What work in another process starts from.

    Args:
        key: of the session.
        what: "start", "default", "decided", "alternatives", "xla", or "policy:NAME".

    Returns:
        A pickle; None if this process does not hold the session.

    Raises:
        HloEnvError: as the method.
    """
    session = _open.get(key)
    if session is None:
        return None
    if what.startswith("policy:"):
        return pickle.dumps(session.by_method(what))
    found: Any = {
        "start": lambda: session.module,
        "default": session.default,
        "decided": session.decided,
        "alternatives": session.captured,
        "xla": session.xla,
    }[what]()
    return pickle.dumps(found)
