# SPDX-License-Identifier: Apache-2.0
"""Effects of `import hloenv` on the process."""

from __future__ import annotations

OPTIONAL = ("gymnasium", "jax", "jaxlib", "networkx", "ray", "rich", "scipy", "torch")


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


def test_notebooks_show_modules_without_scipy(run_child):
    """It comes with other extras than the views do."""
    run_child(
        "import sys\n"
        "sys.modules['scipy'] = None\n"
        "import hloenv, hloenv.hlo.diff\n"
        "text = 'HloModule m\\nENTRY e { p = f32[4] parameter(0)\\n"
        " ROOT n = f32[4] negate(p) }'\n"
        "module = hloenv.HloModule.from_text(text)\n"
        "assert 'negate' in module._repr_html_()\n"
        "other = hloenv.HloModule.from_text(text.replace('negate', 'abs'))\n"
        "assert hloenv.hlo.diff.diff_modules(module, other)._repr_html_()\n"
    )
