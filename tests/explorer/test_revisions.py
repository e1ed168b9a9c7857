# SPDX-License-Identifier: Apache-2.0
"""Actions of a window that shows an earlier state."""

from __future__ import annotations

import pytest

from hloenv.errors import ArgumentError
from hloenv.explorer.backend import Backend, StaleError, Target
from hloenv.explorer.routes import POST


@pytest.fixture
def backend(small):
    found = Backend(Target("small.hlo", small), store=None)
    yield found
    found.close()


def test_an_action_on_an_earlier_state_does_nothing(backend: Backend):
    first = backend.request("state", {})
    changes = {"changes": [[0, 1]]}
    decided = POST["decide"](backend, changes | {"revision": first["revision"]})
    assert decided["revision"] != first["revision"]
    for path, arguments in (("decide", changes), ("apply", {}), ("undo", {})):
        with pytest.raises(StaleError, match="nothing was done"):
            POST[path](backend, {**arguments, "revision": first["revision"]})
    with pytest.raises(ArgumentError, match="nothing was done"):
        backend.start("estimate", {"revision": first["revision"]})
    now = backend.request("state", {})
    assert (now["decisions"], now["revision"]) == (
        decided["decisions"],
        decided["revision"],
    )


def test_an_undone_state_is_another_revision(backend: Backend):
    first = backend.request("state", {})
    POST["decide"](backend, {"changes": [[0, 1]]})
    undone = POST["undo"](backend, {})
    assert undone["decisions"] == first["decisions"]
    assert undone["revision"] != first["revision"]


def test_a_restarted_server_has_other_revisions(backend: Backend, small):
    other = Backend(Target("small.hlo", small), store=None)
    try:
        revision = other.request("state", {})["revision"]
    finally:
        other.close()
    with pytest.raises(StaleError):
        POST["decide"](backend, {"changes": [[0, 1]], "revision": revision})
