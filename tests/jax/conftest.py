# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of hloenv.jit by hloenv's rules."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from hloenv.jax.compare import Comparison


@pytest.fixture
def no_fallback() -> Iterator[None]:
    """Fallbacks are errors, as their outputs are correct too."""
    from hloenv.jax import FallbackWarning

    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        yield


@pytest.fixture
def own_folder(
    no_fallback: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is found that another test has left; fallbacks are errors."""
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "store.sqlite"))


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> list[Comparison]:
    """Replaces the timing by given results; outputs are still computed."""
    import jax

    found: list[Comparison] = []

    def decided_by_test(plain: Any, other: Any, **_: Any) -> Comparison:
        for one, other_one in zip(
            jax.tree.leaves(plain()), jax.tree.leaves(other()), strict=True
        ):
            assert one.dtype == other_one.dtype
        return found.pop(0)

    from hloenv.jax import timed_call

    monkeypatch.setattr(timed_call, "compare", decided_by_test)
    return found


@pytest.fixture(autouse=True)
def no_onednn(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No convolutions by oneDNN; they have tests of their own. Returns what finds them."""
    from hloenv.jax import auto

    calls_of = auto.calls_of
    monkeypatch.setattr(auto, "calls_of", lambda _: None)
    return calls_of


@pytest.fixture
def with_onednn(no_onednn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As outside of these tests, where this jaxlib has it."""
    from hloenv.jax import auto
    from hloenv.jax.onednn import has_onednn

    if not has_onednn():
        pytest.skip("this jaxlib has no oneDNN")
    monkeypatch.setattr(auto, "calls_of", no_onednn)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other options, which may be faster by chance; they have tests of their own."""
    from hloenv.jax import auto

    monkeypatch.setattr(auto, "settings_for", lambda _: ())
