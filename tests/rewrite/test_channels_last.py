# SPDX-License-Identifier: Apache-2.0
"""convolution-forms/channels_last: convolutions in loops and branches for a library."""

from __future__ import annotations

import random
import re

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import hloenv
from hloenv.policies import get_policy
from support.captures import capture, capture_rule, check_compiled, rules
from support.convolutions import JAX_FORMS, jax_form, random_convolution

PASS, RULE = "convolution-forms", "channels_last"
# Those whose order is another than XLA's library takes.
REORDERED = {
    name
    for name, (*_, attributes) in JAX_FORMS.items()
    if "b01f_01io->b01f" not in attributes and "batch_group" not in attributes
} - {"strided 1x1 kernel"}  # its padding removes elements


def in_branch(text: str) -> str:
    """The only operation of a module in a branch, beside one that has zeros."""
    body = text[text.index("ENTRY") :].replace("ENTRY main", "computed", 1)
    shapes = re.findall(r"= (\S+) parameter", body)
    operands, result = ", ".join(shapes), re.search(r"ROOT c = (\S+)", body)[1]
    for number, (name, shape) in enumerate(zip("xk", shapes, strict=True)):
        element = f"get-tuple-element(args), index={number}"
        body = body.replace(
            f"{name} = {shape} parameter({number})", f"{name} = {shape} {element}"
        )
    body = body.replace("{\n", f"{{\n  args = ({operands}) parameter(0)\n", 1)
    zero = f"{result.split('[')[0]}[] constant(0)"
    return f"""HloModule branches

{body}
zeros {{
  args = ({operands}) parameter(0)
  zero = {zero}
  ROOT zeros = {result} broadcast(zero), dimensions={{}}
}}

ENTRY main {{
  is_computed = pred[] parameter(0)
  x = {shapes[0]} parameter(1)
  k = {shapes[1]} parameter(2)
  args = ({operands}) tuple(x, k)
  ROOT r = {result} conditional(is_computed, args, args), true_computation=computed, false_computation=zeros
}}
"""


def reordered(text: str) -> hloenv.Alternatives:
    return capture_rule(text, PASS, RULE)


@pytest.mark.parametrize("name", sorted(JAX_FORMS))
def test_which_convolutions_of_jax_have_the_form(name):
    inside = reordered(in_branch(jax_form(name)))
    assert len(inside) == (name in REORDERED)
    assert RULE not in rules(capture(jax_form(name), hloenv.Pass(PASS)))


@pytest.mark.parametrize("name", sorted(REORDERED))
def test_the_form_has_the_order_of_the_library_and_computes_the_same(name):
    alternatives = reordered(in_branch(jax_form(name)))
    text = alternatives.apply([1]).to_text()
    assert text.count("dim_labels=b01f_01io->b01f") == text.count(" convolution(") == 1
    for record in hloenv.verify_alternatives(alternatives, float64=True):
        assert record.relative <= 1e-12, (record, text)


@pytest.mark.compile
@pytest.mark.parametrize("name", ["grouped input", "strided input", "patches kernel"])
def test_the_form_compiles(name):
    check_compiled(in_branch(jax_form(name)), PASS)


@pytest.mark.parametrize("seed", range(4))
def test_random_convolutions(seed):
    rng = random.Random(seed)
    count = 0
    for n in range(40):
        text = in_branch(random_convolution(rng))
        alternatives = reordered(text)
        if not alternatives:
            continue
        count += 1
        (attributes,) = re.findall(r" convolution\(.*", text)
        assert not re.search(r"batch_group_count=[2-9]", attributes), text
        assert not re.search(r"rhs_reversal=\S*1", attributes), text
        assert not re.search(r"pad=\S*-", attributes), text
        for record in hloenv.verify_alternatives(alternatives, seed=n, float64=True):
            assert record.relative <= 1e-12, (record, text)
    assert count >= 3


def test_what_has_no_library_keeps_its_form():
    text = in_branch(jax_form("strided input"))
    assert len(reordered(text)) == 1
    assert not reordered(text.replace("f32[", "s32["))
    reverse = text.replace("lhs_dilate=2x2", "lhs_dilate=2x2 rhs_reversal=1x1")
    assert not reordered(reverse)
    removing = text.replace("pad=2_1x2_1", "pad=4_-1x4_-1")
    assert not reordered(removing)


# --- in hloenv.jit


def convolve(x, kernel, order="NHWC"):
    kernels = "HWIO" if order == "NHWC" else "OIHW"
    numbers = (order, kernels, order)
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=numbers
    )


def trained(xs, kernels):
    """Some steps of gradient descent on two layers."""

    def step(kernels, x):
        def loss(kernels):
            y = convolve(jax.nn.relu(convolve(x, kernels[0])), kernels[1])
            return jnp.mean(y**2)

        found = jax.grad(loss)(kernels)
        return jax.tree.map(lambda a, b: a - 0.1 * b, kernels, found), None

    return lax.scan(step, kernels, xs)[0]


def images(*shape):
    return jax.random.normal(jax.random.key(0), shape) * 0.1


@pytest.mark.jax
@pytest.mark.compile
def test_gradients_in_a_scan_are_for_the_library():
    args = images(3, 4, 16, 16, 16), [images(3, 3, 16, 24), images(3, 3, 24, 16)]
    fast = hloenv.jit(trained, budget=0, remember=False)
    jax.block_until_ready(fast(*args))
    (one,) = fast.decided
    assert one.accepted[f"{PASS}/{RULE}"] >= 2
    for ours, theirs in zip(fast(*args), jax.jit(trained)(*args), strict=True):
        assert jnp.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.jax
@pytest.mark.parametrize(
    ("shapes", "is_faster"),
    [
        (((4, 16, 16, 16), (32, 16, 3, 3)), True),
        (((1, 4, 4, 4), (4, 4, 3, 3)), False),  # a few microseconds
    ],
)
def test_images_with_the_features_first_in_a_loop(shapes, is_faster):
    x, kernel = (images(*shape) for shape in shapes)
    kernel = kernel[: x.shape[1]]

    def repeated(x, kernel):
        return lax.fori_loop(0, 9, lambda _, x: convolve(x, kernel, "NCHW"), x)

    module = hloenv.HloModule.from_jax(repeated, x, kernel)
    alternatives = capture(module.to_text(), hloenv.Pass(PASS))
    assert RULE in rules(alternatives)
    chosen = get_policy("known-forms")(alternatives)
    assert (chosen > 0).tolist() == [is_faster]
