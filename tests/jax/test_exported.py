# SPDX-License-Identifier: Apache-2.0
"""`hloenv.jax.export`: decided here, run where jax is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError

pytestmark = pytest.mark.needs("jax")
jax = pytest.importorskip("jax")
jnp = jax.numpy


def top(x: Any) -> Any:
    return {"top": jax.lax.top_k(x, 3), "twice": x * 2}


def test_an_exported_function_is_decided_and_has_the_outputs_of_its_function(
    tmp_path: Path,
):
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 1024)), "float32")
    made = hloenv.jax.export(
        top, x, platform="cpu", policy="gpu-forms", passes="sort-forms"
    )
    assert made.decided.accepted == {"sort-forms/argmaxes": 1}
    made.save(tmp_path / "top.bin")
    loaded = jax.export.deserialize(bytearray((tmp_path / "top.bin").read_bytes()))
    outputs, wanted = jax.jit(loaded.call)(x), top(x)
    assert jax.tree.structure(outputs) == jax.tree.structure(wanted)
    for output, other in zip(*map(jax.tree.leaves, (outputs, wanted)), strict=True):
        np.testing.assert_array_equal(output, other)


@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_a_module_for_a_platform_that_is_not_here(platform: str):
    spec = jax.ShapeDtypeStruct((64, 32_000), "float32")
    made = hloenv.jax.export(top, spec, platform=platform)
    assert made.exported.platforms == (platform,)
    assert made.decided.num_accepted == 1
    assert "stablehlo.sort" not in made.exported.mlir_module()
    with pytest.raises(ValueError, match="platform"):
        made.exported.call(jnp.zeros(spec.shape))


def test_static_arguments_keywords_weak_types_and_keys():
    def fn(key: Any, count: int, scale: Any, *, unused: Any, b: Any) -> Any:
        return jax.random.split(key, count), b + scale, count

    key, b = jax.random.key(3), jnp.arange(3.0)
    words = {"unused": jnp.zeros(2), "b": b}
    made = hloenv.jax.export(fn, key, 2, 1.5, platform="cpu", static_argnums=1, **words)
    keys, total, count = made.exported.call(key, 1.5, **words)
    wanted = fn(key, 2, 1.5, **words)
    np.testing.assert_array_equal(
        jax.random.key_data(keys), jax.random.key_data(wanted[0])
    )
    np.testing.assert_array_equal(total, wanted[1])
    assert int(count) == 2
    jitted = jax.jit(fn, static_argnums=1)
    assert hloenv.jax.export(jitted, key, 2, 1.5, platform="cpu", **words).decided
    with pytest.raises(TypeError, match="already jitted"):
        hloenv.jax.export(jitted, key, 2, 1.5, static_argnums=1, **words)


def test_what_cannot_be_exported_says_why():
    x = jnp.ones(3)
    with pytest.raises(ArgumentError, match=r"no rules for the platform 'tpu'.*cuda"):
        hloenv.jax.export(top, x, platform="tpu")

    def prints(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x

    with pytest.raises(ArgumentError, match="side effects"):
        hloenv.jax.export(prints, x)


def test_a_module_for_one_platform_does_not_run_on_another():
    from hloenv.runtime.jaxlib.stablehlo import function_of

    module = hloenv.HloModule.from_jax(lambda x: x + 1, jnp.ones(3), platform="cuda")
    types = [jax.core.ShapedArray((3,), "float32")]
    call = function_of(module, types, platform="cuda")
    with pytest.raises(NotImplementedError, match="platform cuda, not cpu"):
        jax.jit(lambda x: call(x))(jnp.ones(3))
