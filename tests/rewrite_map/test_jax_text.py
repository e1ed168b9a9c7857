# SPDX-License-Identifier: Apache-2.0
"""Small modules as Python for jax: the same outputs as XLA's evaluator gives."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.hlo.text import parse_text
from hloenv.rewrite_map.jax_text import NotInJaxError, jax_function
from support.convolutions import JAX_FORMS, jax_form

pytestmark = pytest.mark.jax

_ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""


def module_of(lines: str, called: str = "") -> str:
    return f"HloModule m\n\n{called}\nENTRY e {{\n{lines}\n}}\n"


MODULES = {
    "dot": module_of(
        """  x = f32[3,4,5] parameter(0)
  y = f32[3,5,6] parameter(1)
  ROOT d = f32[3,4,6] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
    lhs_contracting_dims={2}, rhs_contracting_dims={1}""".replace(",\n    ", ", ")
    ),
    "reduce": module_of(
        """  x = f32[3,4] parameter(0)
  zero = f32[] constant(0)
  ROOT r = f32[3] reduce(x, zero), dimensions={1}, to_apply=add""",
        _ADD,
    ),
    "window": module_of(
        """  x = f32[4,6] parameter(0)
  zero = f32[] constant(-1.5)
  ROOT r = f32[2,6] reduce-window(x, zero), window={size=2x3 stride=2x1 pad=0_0x1_1}, to_apply=add""",
        _ADD,
    ),
    "movement": module_of(
        """  x = f32[2,3] parameter(0)
  two = f32[] constant(2)
  twos = f32[2,3] broadcast(two), dimensions={}
  y = f32[2,3] multiply(x, twos)
  t = f32[3,2] transpose(y), dimensions={1,0}
  p = f32[5,2] pad(t, two), padding=1_1x0_0
  s = f32[2,2] slice(p), slice={[0:4:2], [0:2]}
  r = f32[2,2] reverse(s), dimensions={0}
  c = f32[4,2] concatenate(r, s), dimensions={0}
  f = f32[8] reshape(c)
  n = s32[8] iota(), iota_dimension=0
  k = f32[8] convert(n)
  g = pred[8] compare(f, k), direction=GT
  e = f32[8] exponential(f)
  ROOT o = f32[8] select(g, e, k)"""
    ),
    "constants": module_of(
        """  x = f32[3] parameter(0)
  c = f32[3] constant({1, -2.5, inf})
  ROOT m = f32[3] minimum(x, c)"""
    ),
    **{
        name: jax_form(name)
        for name in JAX_FORMS
        if "rhs_reversal" not in JAX_FORMS[name][3]
    },
}


def function_of(text: str):
    """The Python function of a module, and its module."""
    import jax.numpy as jnp
    from jax import lax

    module = hloenv.HloModule.from_text(text)
    source, parameters = jax_function(parse_text(module.to_text()))
    space = {"np": np, "jnp": jnp, "lax": lax}
    exec(source, space)
    specs = [(each.shape, each.dtype.name) for each in module.input_specs()]
    assert parameters == specs
    return space["function"], module


@pytest.mark.parametrize("name", MODULES)
def test_the_python_computes_the_same(name):
    function, module = function_of(MODULES[name])
    inputs = hloenv.random_inputs(module)
    wanted = hloenv.interpret(module, *inputs)
    outputs = [np.asarray(function(*inputs))]
    hloenv.compare_outputs(wanted, outputs, rtol=1e-4).check()


def test_what_jax_cannot_write_is_an_error():
    text = parse_text(
        hloenv.HloModule.from_text(
            module_of(
                "  x = f32[2] parameter(0)\n  ROOT y = f32[2] custom-call(x), "
                'custom_call_target="f"'
            )
        ).to_text()
    )
    with pytest.raises(NotInJaxError, match="custom-call"):
        jax_function(text)
