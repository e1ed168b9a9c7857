# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while the command `hloenv` starts and ends: exit code 130, no traceback.

Importing hloenv takes most of a second, in which an interrupt would come up as a
traceback from whichever import is under way. Programs that use the library are left
alone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

EXIT_INTERRUPT = 130
_is_installed = False


def install() -> None:
    """From now on Ctrl-C ends this process, if it is the command `hloenv`."""
    global _is_installed
    if (
        _is_command()
        and threading.current_thread() is threading.main_thread()
        # Not where a handler is installed already, or interrupts are ignored.
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _end)
        _is_installed = True


def raised() -> contextlib.AbstractContextManager[None]:
    """Inside, Ctrl-C is a KeyboardInterrupt again, so that what is open is closed."""
    return _replaced(_end, signal.default_int_handler)


def ended() -> contextlib.AbstractContextManager[None]:
    """Inside, Ctrl-C ends the command `hloenv` at once, also within `raised`.

    For imports: a KeyboardInterrupt in a callback from C++, as jax has for the garbage
    collector, is printed and lost.
    """
    if not _is_installed:
        return contextlib.nullcontext()
    return _replaced(signal.default_int_handler, _end)


@contextlib.contextmanager
def _replaced(handler: Any, other: Any) -> Iterator[None]:
    """Handles Ctrl-C by `other`, where `handler` does."""
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, other)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _is_command() -> bool:
    arguments: list[str] = getattr(sys, "argv", [])
    if not arguments:
        return False
    if arguments[0] == "-m":  # until Python has found the module, which it imports now
        return sys.orig_argv[-len(arguments)].removeprefix("-m") == __package__
    return os.path.basename(arguments[0]) == __package__  # noqa: PTH119 (it is early)


def _end(*_: object) -> None:
    os.write(2, b"hloenv: interrupted\n")
    os._exit(EXIT_INTERRUPT)
