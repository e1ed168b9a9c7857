# SPDX-License-Identifier: Apache-2.0
"""The store of a caller that can do without it."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Iterable
from typing import Any

from ..errors import StoreError, StoreWarning
from .store import RecordKey, Store


def optional_store(path: str | os.PathLike[str] | None = None) -> Store | None:
    """Opens a store; None, and a `StoreWarning`, where that is not possible.

    Args:
        path: as of `Store`.
    """
    try:
        return _OptionalStore(path)
    except RuntimeError as error:  # StoreError, or there is no home folder
        _warn(str(error))
        return None


class _OptionalStore(Store):
    """A store that neither reads nor writes once it has failed, after a warning."""

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        super().__init__(path)
        self._has_failed = False

    def get(self, key: RecordKey) -> dict[str, Any] | None:
        return self.get_many([key])[0]

    def get_many(self, keys: Iterable[RecordKey]) -> list[dict[str, Any] | None]:
        keys = list(keys)
        if not self._has_failed:
            try:
                return super().get_many(keys)
            except StoreError as error:
                self._fail(error)
        return [None] * len(keys)

    def put(
        self, key: RecordKey, value: dict[str, Any], *, created: float | None = None
    ) -> None:
        self.put_many([(key, value)], created=created)

    def put_many(
        self,
        items: Iterable[tuple[RecordKey, dict[str, Any]]],
        *,
        created: float | None = None,
    ) -> None:
        if not self._has_failed:
            try:
                super().put_many(items, created=created)
            except StoreError as error:
                self._fail(error)

    def _fail(self, error: StoreError) -> None:
        self._has_failed = True
        _warn(str(error))


@functools.cache  # several objects may open the same file
def _warn(reason: str) -> None:
    warnings.warn(
        f"going on without the store: {reason}; leave it out with --no-store, in "
        "Python with store=None",
        StoreWarning,
        stacklevel=2,
    )
