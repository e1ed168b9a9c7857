# SPDX-License-Identifier: Apache-2.0
"""The stub agrees with the extension."""

from __future__ import annotations

import importlib.util

from hloenv._native import core


def test_stub_equals_the_extension(root):
    spec = importlib.util.spec_from_file_location(
        "make_stub", root / "scripts" / "dev" / "make_stub.py"
    )
    make_stub = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_stub)
    stub = (root / "python" / "hloenv" / "_core.pyi").read_text(encoding="utf-8")
    assert stub == make_stub.make_stub(core), "run python scripts/dev/make_stub.py"
