# SPDX-License-Identifier: Apache-2.0
"""`hloenv.jax.export`: decided here, run where jax is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, ArgumentTypeError, CompileError

pytestmark = pytest.mark.jax


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


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_a_module_for_a_platform_that_is_not_here(platform: str):
    spec = jax.ShapeDtypeStruct((64, 32_000), "float32")
    own = {} if platform == "cuda" else {"policy": "gpu-forms", "passes": "sort-forms"}
    made = hloenv.jax.export(top, spec, platform=platform, **own)
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
    with pytest.raises(ArgumentError, match="must be one of cuda, cpu, rocm, tpu"):
        hloenv.jax.export(top, x, platform="abacus", policy="keep-original", passes=[])
    with pytest.raises(ArgumentTypeError, match="policy must be a name"):
        hloenv.jax.export(top, x, policy=3)
    sizes = jax.export.symbolic_shape("n")
    with pytest.raises(ArgumentError, match="symbolic shapes"):
        hloenv.jax.export(lambda x: x + 1, jax.ShapeDtypeStruct(sizes, "float32"))

    def asks(x: Any) -> Any:
        return jax.pure_callback(np.sin, x, x)

    with pytest.raises(ArgumentError, match="no form of it for cuda"):
        hloenv.jax.export(asks, x)
    groups = jnp.array([2, 2])
    with pytest.raises(CompileError, match="cannot export"):
        hloenv.jax.export(
            jax.lax.ragged_dot, jnp.ones((4, 8)), jnp.ones((2, 8, 3)), groups
        )


class Pair(NamedTuple):
    first: Any
    second: Any


def test_a_namedtuple_is_said_to_need_a_name(tmp_path: Path):
    made = hloenv.jax.export(lambda x: Pair(x, x + 1), jnp.ones(3), platform="cpu")
    np.testing.assert_array_equal(made.exported.call(jnp.ones(3)).second, 2)
    with pytest.raises(ArgumentError, match="register_namedtuple_serialization"):
        made.save(tmp_path / "out.bin")
    assert not (tmp_path / "out.bin").exists()


def test_the_gradient_of_an_export_says_what_to_do():
    made = hloenv.jax.export(lambda x: jnp.tanh(x).sum(), jnp.ones(3), platform="cpu")
    with pytest.raises(ArgumentError, match="an exported function has no derivative"):
        jax.grad(made.exported.call)(jnp.ones(3))


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
@pytest.mark.parametrize("algorithm", ["BF16_BF16_F32", "F32_F32_F32"])
def test_dots_with_an_algorithm_keep_it(platform: str, algorithm: str, tmp_path: Path):
    if platform == "cpu":
        algorithm = "F32_F32_F32"

    def products(a: Any, x: Any) -> Any:
        return a @ a, a @ x, x @ a, x @ x

    a, x = jnp.arange(16.0).reshape(4, 4), jnp.arange(4.0)
    with jax.default_matmul_precision(algorithm):
        made = hloenv.jax.export(products, a, x, platform=platform)
        text = jax.jit(products).trace(a, x).lower(lowering_platforms=(platform,))
    made.save(tmp_path / "out.bin")
    count = made.exported.mlir_module().count("accumulation_type")
    assert count == text.as_text().count("accumulation_type") > 0
    if platform == "cpu":
        for output, wanted in zip(
            made.exported.call(a, x), products(a, x), strict=True
        ):
            np.testing.assert_array_equal(output, wanted)


def test_a_module_for_one_platform_does_not_run_on_another():
    from hloenv.runtime.jaxlib.stablehlo import function_of

    module = hloenv.HloModule.from_jax(lambda x: x + 1, jnp.ones(3), platform="cuda")
    types = [jax.core.ShapedArray((3,), "float32")]
    call = function_of(module, types, platform="cuda")
    with pytest.raises(NotImplementedError, match="platform cuda, not cpu"):
        jax.jit(lambda x: call(x))(jnp.ones(3))
