# SPDX-License-Identifier: Apache-2.0
"""Where things lie in a checkout."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
TESTDATA = TESTS / "testdata"
