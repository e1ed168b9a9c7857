# SPDX-License-Identifier: Apache-2.0
"""The command `hloenv`: one file for each subcommand, `parser.py` for the grammar.

Exit codes: 0 done, 1 failed (one line on stderr says why), 2 wrong usage, 3 what -o
asked for is not written, 130 interrupted by Ctrl-C (of `tune` 0, where there is a
result), 141 broken pipe.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from .._interrupt import EXIT_INTERRUPT, raised
from .._optional import import_message
from .._plugins import add_import, line_of, split_file
from ..errors import ConstantsWarning, HloEnvError, PositionWarning, StoreWarning
from . import output
from .parser import UsageError, imports_of, make_parser
from .sandbox import isolated

_EXIT_FAILURE = 1
_EXIT_USAGE = 2
_EXIT_BROKEN_PIPE = 141
_COMMANDS = (
    ("call env.run_until('fusion') first", "give --until fusion"),
    ("list_stages(module) lists all", "`hloenv explore MODULE` shows the pipeline"),
)
# How long XLA may run after Ctrl-C before the process is ended.
_GRACE_S = 1.0


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit code.

    Args:
        argv: arguments without the program's name. By default those of the process,
            whose command then runs in a child process: if XLA crashes, the program
            prints one line and exits with code 1.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        # First: arguments may name what the files register.
        for file in imports_of(words):
            add_import(file)
        parser = make_parser(words)
        if not words:
            parser.print_help(sys.stderr)
            return _EXIT_USAGE
        args = parser.parse_args(words)
    except (HloEnvError, ImportError) as error:
        output.print_error("error", _message(error))
        return _EXIT_FAILURE
    except SystemExit as exit_:  # argparse has printed help or a usage error
        return exit_.code if isinstance(exit_.code, int) else _EXIT_FAILURE
    if argv is not None or getattr(args, "no_isolate", True):
        return _command(args)
    target = getattr(args, "target", None) or ""
    return isolated(
        lambda: _command(args),
        time_limit_s=getattr(args, "time_limit", None),
        memory_limit=getattr(args, "memory_limit", None),
        script=target if target.endswith(".py") else None,
        files=_own_files(args),
    )


def _own_files(args: argparse.Namespace) -> list[str]:
    """The Python files of the user that the arguments name."""
    texts: list[str] = []
    for value in vars(args).values():
        given = value if isinstance(value, list) else [value]
        texts += [each for each in given if isinstance(each, str)]
    found = [split[0] for each in texts if (split := split_file(each))]
    return sorted({*found, *args.imports})


def _command(args: argparse.Namespace) -> int:
    with _prompt_interrupts(), warnings.catch_warnings():
        for category in (ConstantsWarning, PositionWarning, StoreWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = _show_warning
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    try:
        output.begin()
        with raised():
            code: int | None = args.run(args)
            sys.stdout.flush()
    except KeyboardInterrupt:
        print("hloenv: interrupted", file=sys.stderr)
        return EXIT_INTERRUPT
    except BrokenPipeError:
        # Python would raise again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except SystemExit as exit_:
        where = line_of(exit_)
        if not where:  # of the command itself
            raise
        output.print_error(
            "error", f"{where}: sys.exit({exit_.code!r}) is no result; raise an error"
        )
        return _EXIT_FAILURE
    except Exception as error:
        if args.verbose:
            traceback.print_exc()
        output.print_error("error", _message(error))
        return _EXIT_USAGE if isinstance(error, UsageError) else _EXIT_FAILURE
    return code or 0


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    text = import_message(error) if isinstance(error, ImportError) else str(error)
    if isinstance(error, (HloEnvError, OSError, ImportError)):
        return _in_commands(text) or type(error).__name__
    where = line_of(error) or "internal error"
    return f"{where}: {type(error).__name__}: {text} (--verbose: traceback)"


@contextlib.contextmanager
def _prompt_interrupts() -> Iterator[None]:
    """Ends the process soon after Ctrl-C, also while XLA computes.

    Python raises KeyboardInterrupt only once XLA returns, which may take minutes. The
    signal itself is received at once by another thread, which waits _GRACE_S for the
    command to end and then ends the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    is_done = threading.Event()

    def watch() -> None:
        while received := os.read(reader, 1):
            if received[0] == signal.SIGINT and not is_done.wait(_GRACE_S):
                os.write(2, b"hloenv: interrupted\n")
                os._exit(EXIT_INTERRUPT)

    watcher = threading.Thread(target=watch, name="hloenv-interrupts", daemon=True)
    watcher.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield
    finally:
        is_done.set()
        signal.set_wakeup_fd(before)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    output.print_error("warning", _in_commands(str(message)))


def _in_commands(text: str) -> str:
    """A message of the library, with commands and options in place of Python calls."""
    for call, command in _COMMANDS:
        text = text.replace(call, command)
    return text
