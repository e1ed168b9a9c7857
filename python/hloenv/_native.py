# SPDX-License-Identifier: Apache-2.0
"""Loads TensorFlow's two libraries and then the extension.

Nothing else imports `hloenv._core`: the libraries must be loaded first, by
absolute path, so that the extension finds them by name wherever it is installed.
TensorFlow's Python is never imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import TensorflowError

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILT_WITH = "2.21.0"
_INSTALL_HINT = (
    f"pip install 'hloenv[cpu]' (tensorflow-cpu=={BUILT_WITH}) or "
    f"'hloenv[cuda]' (tensorflow=={BUILT_WITH})"
)


def _check_platform() -> None:
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        raise TensorflowError(
            f"hloenv does not support {sys.platform} {machine}: it uses the XLA in "
            "TensorFlow's Linux wheels; use Linux on x86-64 or arm64"
        )


def _tensorflow_folder() -> Path:
    spec = importlib.util.find_spec("tensorflow")
    if spec is None or not spec.submodule_search_locations:
        raise TensorflowError(f"hloenv needs TensorFlow's libraries: {_INSTALL_HINT}")
    return Path(next(iter(spec.submodule_search_locations)))


def _check_version() -> None:
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if version == BUILT_WITH:
            return
        raise TensorflowError(
            f"hloenv was built with TensorFlow {BUILT_WITH}, but {name} {version} is "
            f"installed, whose C++ classes differ: {_INSTALL_HINT}"
        )
    raise TensorflowError(f"hloenv needs TensorFlow's libraries: {_INSTALL_HINT}")


# Lines that the libraries write to stderr while they load, at any log level.
_LOADING_CHATTER = (b"absl::InitializeLog()", b"oneDNN custom operations are on")


def is_verbose() -> bool:
    """Whether HLOENV_VERBOSE=1 enables XLA's own log lines on stderr."""
    return os.environ.get("HLOENV_VERBOSE", "0") not in ("", "0")


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Buffers stderr, then writes all of it but the known loading lines.

    The lines come from static initializers, which run before any log level can be
    set; the environment variables that suppress them change TensorFlow's behaviour.
    """
    try:
        sys.stderr.flush()
        saved = os.dup(2)
    except (AttributeError, OSError):  # no stderr to protect
        yield
        return
    held = os.memfd_create("hloenv-stderr")
    try:
        os.dup2(held, 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            size = os.fstat(held).st_size
            for line in os.pread(held, size, 0).splitlines(keepends=True):
                if not any(known in line for known in _LOADING_CHATTER):
                    os.write(2, line)
    finally:
        os.close(held)
        os.close(saved)


def _load() -> None:
    _check_platform()
    _check_version()
    folder = _tensorflow_folder()
    with contextlib.nullcontext() if is_verbose() else _without_chatter():
        for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
            try:
                ctypes.CDLL(str(folder / name), mode=os.RTLD_LOCAL | os.RTLD_NOW)
            except OSError as error:
                raise TensorflowError(
                    f"cannot load {folder / name}: {error}; {_INSTALL_HINT}"
                ) from error


_load()

from . import _core as core  # noqa: E402 (the libraries come first)

# No caller can act on XLA's log lines below FATAL, and errors are exceptions. Log lines
# of TensorFlow between calls of hloenv are kept.
core.set_quiet(not is_verbose())

# Fails at import, not during an episode, if XLA's passes cannot be observed.
core.install_hooks()


def is_text(value: object) -> bool:
    """Whether the core accepts `value` as text: a str without unpaired surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


__all__ = ["core", "is_text"]
