# SPDX-License-Identifier: Apache-2.0
"""Packages that only some functions need, imported inside these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_by(what: str, package: str, extra: str) -> Iterator[None]:
    """A block of imports, whose ImportError says what is to be installed.

    Args:
        what: needs the package, for the message.
        package: the package's name.
        extra: of hloenv, that installs it.
    """
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"{what} needs {package} ({error}): pip install 'hloenv[{extra}]'"
        ) from error
