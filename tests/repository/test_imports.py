# SPDX-License-Identifier: Apache-2.0
"""Effects of `import hloenv` on the process."""

from __future__ import annotations

OPTIONAL = ("gymnasium", "jax", "jaxlib", "networkx", "ray", "rich", "torch")


def test_import_loads_no_optional_package(run_child):
    child = run_child(
        "import sys, hloenv\n"
        f"print(*sorted(set(sys.modules) & {{'tensorflow', *{OPTIONAL!r}}}))"
    )
    assert child.stdout.split() == []


def test_import_prints_nothing(run_child):
    child = run_child("import hloenv; hloenv.HloModule")
    assert (child.stdout, child.stderr) == ("", "")


def test_every_public_name_exists(run_child):
    run_child(
        "import hloenv\n"
        "assert list(hloenv.__all__) == sorted(hloenv.__all__), hloenv.__all__\n"
        "for name in hloenv.__all__:\n"
        "    getattr(hloenv, name)\n"
    )
