# SPDX-License-Identifier: Apache-2.0
"""hloenv.jit of functions with any name."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.jax import timed_call
from hloenv.jax.dispatch import unique_name
from hloenv.jax.wrapping import error_text
from support.jax_outputs import assert_same
from support.jit_functions import FASTER, NOISES, filtered

pytestmark = [pytest.mark.jax, pytest.mark.compile]


MATRIX = jnp.eye(3) * 0.9


@pytest.mark.usefixtures("no_fallback")
@pytest.mark.parametrize("name", ["größe", "関数", "<lambda>", "x" * 300])
def test_loops_of_functions_of_any_name_are_decided(name, monkeypatch):
    monkeypatch.setattr(timed_call, "compare", lambda *_, **__: FASTER)

    def fn(a, noises):
        return jax.grad(filtered)(a, noises)

    fn.__name__ = name
    fast = hloenv.jit(fn, remember=False)
    for _ in range(2):
        assert_same(fast(MATRIX, NOISES), fn(MATRIX, NOISES), tolerance=1e-4)
    (one,) = fast.decided
    assert one.route == "jaxlib"
    assert fast.num_injected == 1
    assert fast.__name__ == name


def test_names_that_differ_only_in_other_characters_are_not_the_same():
    def fn(x):
        return x

    names = []
    for name in ("größe", "grüße"):
        fn.__name__ = name
        names.append(unique_name(fn, plan="the same"))
    assert names[0].isascii()
    assert names[0] != names[1]


def test_a_long_message_is_cut_between_words():
    text = error_text(ValueError("first line\n" + "marked " * 60))
    assert len(text) <= 300
    assert text.startswith("first line marked marked")
    assert text.endswith("marked ...")


def test_what_is_printed_names_the_function():
    assert repr(hloenv.jit(filtered)).startswith("<hloenv.jit of <function filtered")


def test_operations_that_cannot_be_read_leave_it_plain_without_a_warning():
    # jax draws by an operation that is newer than the wheel's XLA.
    key = jax.random.key(0, impl="philox4x32")

    def noisy(key, x):
        return jnp.sin(x) ** 2.5 + jax.random.uniform(key, x.shape)

    x = jnp.linspace(0.01, 1, 20_000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for budget in (0, 0.5):
            fast = hloenv.jit(noisy, remember=False, budget=budget)
            for _ in range(2):
                assert_same(fast(key, x), jax.jit(noisy)(key, x), tolerance=0)
            assert "cannot read its module" in fast.explain()
