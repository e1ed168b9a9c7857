# SPDX-License-Identifier: Apache-2.0
"""Loads TensorFlow's two libraries and then the extension.

Nothing else imports `hloenv._core`: the libraries have to be in the process first,
by absolute path, so that the extension finds them by name wherever it is installed.
TensorFlow's Python is never imported.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import sys
from pathlib import Path

from .errors import TensorflowError

BUILT_WITH = "2.21.0"
_INSTALL_HINT = (
    f"pip install 'hloenv[cpu]' (tensorflow-cpu=={BUILT_WITH}) or "
    f"'hloenv[cuda]' (tensorflow=={BUILT_WITH})"
)


def _check_platform() -> None:
    machine = platform.machine()
    if sys.platform != "linux" or machine not in ("x86_64", "aarch64"):
        raise TensorflowError(
            "hloenv drives the XLA inside TensorFlow's Linux wheels, so it runs on "
            f"Linux x86-64 and arm64 only; this is {sys.platform} {machine}"
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


def _load() -> None:
    _check_platform()
    _check_version()
    folder = _tensorflow_folder()
    # XLA logs INFO lines to stderr until told otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2"):
        try:
            ctypes.CDLL(str(folder / name), mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as error:
            raise TensorflowError(
                f"cannot load {folder / name}: {error}; {_INSTALL_HINT}"
            ) from error


_load()

from . import _core as core  # noqa: E402 (the libraries come first)

__all__ = ["core"]
