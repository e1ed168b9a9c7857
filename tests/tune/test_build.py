# SPDX-License-Identifier: Apache-2.0
"""From configurations to recipes: the forms are those of `hloenv.jit`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.jax.auto import forms_of
from hloenv.tune.build import recipe_of
from hloenv.tune.rules import rules_of
from hloenv.tune.space import Configuration, Space

KNOWN = Configuration((("forms", "known"),))


def step(kernel, x):
    """A grouped convolution, whose form has products that have forms themselves."""
    y = jax.lax.conv_general_dilated(
        *(x, kernel, (1, 1), "SAME"),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=32,
    )
    return jnp.sum(jax.jit(jnp.cumsum)(jax.nn.relu(y).reshape(-1)) ** 2)


@pytest.fixture(scope="module")
def module():
    args = jnp.ones((3, 3, 8, 256)), jnp.ones((2, 14, 14, 256))
    return hloenv.HloModule.from_jax(jax.grad(step), *args, donations=False)


@pytest.mark.jax
def test_forms_are_those_of_hloenv_jit(module):
    space = Space(rules=rules_of(module).labels)
    recipe = recipe_of(space, KNOWN, module)
    theirs = forms_of(module)
    assert theirs is not None
    assert len(theirs.accepted) > 1
    found = recipe.apply(module)
    assert found.fingerprint() == theirs.applied.fingerprint()


@pytest.mark.jax
def test_a_rule_that_is_left_is_not_used(module):
    labels = rules_of(module).labels
    space = Space(rules=labels)
    every = recipe_of(space, KNOWN, module).apply(module).fingerprint()
    forms = [each for each in labels if not each.startswith("onednn")]
    for label in forms:
        left = space.canonical(KNOWN.with_choice(label, "left"))
        found = recipe_of(space, left, module).apply(module)
        assert found.fingerprint() != every
    nothing = KNOWN
    for label in forms:
        nothing = nothing.with_choice(label, "left")
    assert recipe_of(space, space.canonical(nothing), module).trace is None


@pytest.mark.jax
def test_decisions_go_on_after_the_forms(module):
    both = Configuration((("forms", "known"), ("simplify", "all")))
    recipe = recipe_of(Space(), both, module)
    kinds = [step.kind for step in recipe.trace.steps]
    assert kinds[0] == "run"
    assert kinds.count("decide") > 2
    assert recipe.apply(module).fingerprint() == recipe.trace.end.fingerprint


@pytest.mark.jax
def test_small_kernels_are_decided_before_the_order_of_thunks(module):
    low = Configuration(
        (
            *(("engine", "wheel"), ("forms", "known"), ("fusion", "by-bytes")),
            *(("partitions", "none"), ("small-dots", "smallest")),
            *(("small-kernels", "low-overhead"), ("thunks", "sequential")),
        )
    )
    space = Space()
    assert space.canonical(low) == low
    assert recipe_of(space, low, module).build(module).engine == "wheel"


@pytest.mark.jax
def test_a_module_may_have_no_rules():
    found = rules_of(
        hloenv.HloModule.from_text("""
HloModule m
ENTRY e { p = f32[4] parameter(0) ROOT r = f32[4] negate(p) }
""")
    )
    assert (found.labels, found.library) == ((), "")
