# SPDX-License-Identifier: Apache-2.0
"""A store in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hloenv.measurement.store import Store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as store:
        yield store
