# SPDX-License-Identifier: Apache-2.0
"""Each test has its own store; a program, and simulated measurements of it."""

from __future__ import annotations

import textwrap

import pytest


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))


@pytest.fixture
def script(tmp_path):
    """Writes a script that has jax."""

    def write(text):
        path = tmp_path / "script.py"
        path.write_text("import jax, jax.numpy as jnp, sys\n" + textwrap.dedent(text))
        return path

    return write


# The tests of this folder are not collected without jax; this file is.
@pytest.fixture
def simulated(monkeypatch):
    from hloenv.tune import tuner
    from support.tuning import Simulated

    found = Simulated()
    monkeypatch.setattr(tuner, "Measuring", found)
    monkeypatch.setattr(tuner, "build_candidate", found.build)
    # The bandit prefers what is measured faster: no result depends on this machine.
    monkeypatch.setattr(tuner, "time", found)
    return found


@pytest.fixture(scope="module")
def program():
    import hloenv
    from hloenv.tune.program import program_of_module
    from support.tuning import MODULE

    return program_of_module(hloenv.HloModule.from_text(MODULE))
