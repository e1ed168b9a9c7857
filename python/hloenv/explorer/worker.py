# SPDX-License-Identifier: Apache-2.0
"""Sessions in a child process, which XLA may end; called through a `Sandbox`."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from ..hlo.module import HloModule, read_text_or_proto
from ..rewrite.trace import Trace
from . import session as sessions
from .schema import Action

_open: dict[str, sessions.Session] = {}


def open_session(
    key: str,
    content: HloModule | str | bytes,
    target: str,
    trace: Trace | None,
    log: Sequence[Action],
) -> None:
    """Opens a session, in place of the one that the process held.

    Args:
        key: of the session.
        content: the module, HLO text, or a serialized proto.
        target: what the user opened.
        trace: an episode to start from.
        log: actions to repeat.
    """
    _open.clear()
    module = content if isinstance(content, HloModule) else read_text_or_proto(content)
    session = sessions.Session(module, target, trace, key)
    session.repeat(log)
    _open[key] = session


def call(key: str, method: str, arguments: dict[str, Any]) -> Any:
    """Calls a method of an open session; None if this process does not hold it.

    Raises:
        HloEnvError: as the method.
    """
    session = _open.get(key)
    return None if session is None else sessions.call(session, method, arguments)


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
        return pickle.dumps(session.by_policy(what.removeprefix("policy:")))
    found: Any = {
        "start": lambda: session.module,
        "default": session.default,
        "decided": session.decided,
        "alternatives": session.captured,
        "xla": session.xla,
    }[what]()
    return pickle.dumps(found)
