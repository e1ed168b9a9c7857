# SPDX-License-Identifier: Apache-2.0
"""onednn-calls: convolutions and matrix products as calls of oneDNN."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv.cost.profile import profile
from hloenv.errors import CompileError, ExecuteError
from hloenv.policies import get_policy
from support.processor import has_products_of_bf16

pytestmark = pytest.mark.compile


def module(body: str) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(f"HloModule m\nENTRY e {{\n{body}\n}}\n")


def convolution(
    window: str = "size=3x3 pad=1_1x1_1",
    *,
    result: str = "f32[2,9,9,16]",
    image: str = "f32[2,9,9,8]",
    kernel: str = "f32[3,3,8,16]",
    labels: str = "b01f_01io->b01f",
    others: str = "",
) -> hloenv.HloModule:
    return module(
        f"x = {image} parameter(0)\nk = {kernel} parameter(1)\n"
        f"ROOT c = {result} convolution(x, k), window={{{window}}}, "
        f"dim_labels={labels}{others}"
    )


def dot(left: str, right: str, result: str, dims: str) -> hloenv.HloModule:
    return module(
        f"x = {left} parameter(0)\ny = {right} parameter(1)\n"
        f"ROOT d = {result} dot(x, y), {dims}"
    )


BOTH = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, "
OFFERED = {
    "plain": convolution(),
    "features first": convolution(
        image="f32[2,8,9,9]",
        kernel="f32[16,8,3,3]",
        result="f32[2,16,9,9]",
        labels="bf01_oi01->bf01",
    ),
    "gradient of a kernel": convolution(
        "size=9x9 pad=1_1x1_1 rhs_dilate=1x1",
        image="f32[2,9,9,8]",
        kernel="f32[2,9,9,16]",
        result="f32[3,3,8,16]",
        labels="f01b_i01o->01bf",
    ),
    "features last, then first": convolution(
        result="f32[2,16,9,9]", labels="b01f_01io->bf01"
    ),
    "features first, then last": convolution(
        image="f32[2,8,9,9]", labels="bf01_01io->b01f"
    ),
    "spatial dimensions in another order": convolution(
        "size=3x2 pad=1_1x0_0",
        image="f32[2,7,9,8]",
        kernel="f32[16,2,8,3]",
        result="f32[16,6,9,2]",
        labels="b10f_o1i0->f10b",
    ),
    "one dimension, features last, then first": convolution(
        "size=3 pad=1_1",
        image="f32[2,9,8]",
        kernel="f32[3,8,16]",
        result="f32[2,16,9]",
        labels="b0f_0io->bf0",
    ),
    "strides and window dilation": convolution(
        "size=3x3 stride=2x1 pad=1_2x0_3 rhs_dilate=1x2", result="f32[2,5,8,16]"
    ),
    "groups": convolution(kernel="f32[3,3,2,16]", others=", feature_group_count=4"),
    "a reversed window": convolution("size=3x3 pad=1_1x1_1 rhs_reversal=1x0"),
    "one dimension": convolution(
        "size=3 pad=1_1",
        image="f32[2,9,8]",
        kernel="f32[3,8,16]",
        result="f32[2,9,16]",
        labels="b0f_0io->b0f",
    ),
    "three dimensions": convolution(
        "size=3x2x1 pad=1_1x0_0x0_0",
        image="f32[2,5,6,7,8]",
        kernel="f32[3,2,1,8,16]",
        result="f32[2,5,5,7,16]",
        labels="b012f_012io->b012f",
    ),
    "a matrix product": dot("f32[33,20]", "f32[20,17]", "f32[33,17]", BOTH),
    "of transposed matrices": dot(
        "f32[20,33]",
        "f32[17,20]",
        "f32[33,17]",
        "lhs_contracting_dims={0}, rhs_contracting_dims={1}",
    ),
    "of batches": dot(
        "f32[3,5,20]",
        "f32[3,7,20]",
        "f32[3,5,7]",
        f"{BATCHED}lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}",
    ),
    "vectors": dot(
        "f32[20]",
        "f32[20]",
        "f32[]",
        "lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "a matrix and a vector": dot("f32[33,20]", "f32[20]", "f32[33]", BOTH),
    "of matrices and vectors, in odd orders": dot(
        *("f32[5,3,20,2]", "f32[2,7,5,20,6]", "f32[5,3,7,6]"),
        "lhs_batch_dims={0}, rhs_batch_dims={2}, "
        "lhs_contracting_dims={3,2}, rhs_contracting_dims={0,3}",
    ),
    "of several batches": dot(
        *("f32[4,5,20,3]", "f32[3,20,7,4]", "f32[3,4,5,7]"),
        "lhs_batch_dims={3,0}, rhs_batch_dims={0,3}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "of a transpose": module(
        """x = f32[33,20] parameter(0)
        y = f32[17,20] parameter(1)
        t = f32[20,17]{0,1} transpose(y), dimensions={1,0}
        ROOT d = f32[33,17] dot(x, t), lhs_contracting_dims={1},
          rhs_contracting_dims={0}"""
    ),
    "of a transpose of batches": module(
        """x = f32[4,33,20] parameter(0)
        y = f32[17,4,20] parameter(1)
        t = f32[20,17,4] transpose(y), dimensions={2,0,1}
        ROOT d = f32[4,33,17] dot(x, t), lhs_contracting_dims={2},
          rhs_contracting_dims={0}, lhs_batch_dims={0}, rhs_batch_dims={2}"""
    ),
}
REFUSED = {
    "nothing that is summed": dot(
        *("f32[5]", "f32[6]", "f32[5,6]"),
        "lhs_contracting_dims={}, rhs_contracting_dims={}",
    ),
    "bf16 for f32": dot("bf16[33,20]", "bf16[20,17]", "f32[33,17]", BOTH),
    "dilation of the input": convolution(
        "size=3x3 pad=1_1x1_1 lhs_dilate=2x1", result="f32[2,17,9,16]"
    ),
    "negative padding": convolution("size=3x3 pad=-1_1x1_1", result="f32[2,7,9,16]"),
    "groups of the batch": convolution(
        image="f32[4,9,9,8]", result="f32[1,9,9,16]", others=", batch_group_count=4"
    ),
    "f64": convolution(
        image="f64[2,9,9,8]", kernel="f64[3,3,8,16]", result="f64[2,9,9,16]"
    ),
    "bf16": convolution(
        image="bf16[2,9,9,8]", kernel="bf16[3,3,8,16]", result="bf16[2,9,9,16]"
    ),
    "no images": convolution(image="f32[0,9,9,8]", result="f32[0,9,9,16]"),
    "no window": convolution(
        "",
        image="f32[2,8]",
        kernel="f32[8,16]",
        result="f32[2,16]",
        labels="bf_io->bf",
    ),
    "integers": dot("s32[33,20]", "s32[20,17]", "s32[33,17]", BOTH),
    "another algorithm": dot(
        *("f32[33,20]", "f32[20,17]", "f32[33,17]"),
        f"{BOTH}, algorithm=dot_bf16_bf16_f32",
    ),
    "no terms": dot("f32[33,0]", "f32[0,17]", "f32[33,17]", BOTH),
}


def called(original: hloenv.HloModule, until: str | None = None) -> hloenv.HloModule:
    env = hloenv.HloEnv(original)
    if until:
        env.run_until(until)
    alternatives = env.get_alternatives("onednn-calls")
    assert len(alternatives) == 1
    return env.apply_alternatives(np.ones(1, int), alternatives)


@pytest.mark.parametrize("until", [None, "fusion"])
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("name", OFFERED)
def test_calls_compute_the_same(name, engine, until):
    original = OFFERED[name]
    inputs = hloenv.random_inputs(original)
    decided = called(original, until)
    assert "__onednn$" in decided.to_text()
    found = hloenv.compile(decided, engine=engine, isolate=False)(*inputs)
    expected = hloenv.compile(original)(*inputs)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def in_order(data: dict[str, Any]) -> str:
    names = {data["batch_dim"]: "b", data["feature_dim"]: "f"}
    names |= {d: str(i) for i, d in enumerate(data["spatial_dims"])}
    return "".join(names[d] for d in sorted(names))


@pytest.mark.parametrize("name", OFFERED)
def test_onednn_gets_images_in_an_order_that_it_has_fast_code_for(name):
    """In others, or in two, its code takes a thousand times as long."""
    text = called(OFFERED[name]).to_text()
    for found in re.findall(r"backend_config=(\{\"onednn_conv_config.*\})", text):
        config = json.loads(found)["onednn_conv_config"]
        image, result = (in_order(config[each]["data"]) for each in ("input", "output"))
        assert image == result
        assert image in ("b0f", "b01f", "b012f", "bf01")


def test_images_with_the_features_first_stay_so():
    text = called(OFFERED["features first"]).to_text()
    assert "transpose" not in text
    assert "transpose" in called(OFFERED["gradient of a kernel"]).to_text()


def test_products_of_bf16_are_offered_where_the_processor_has_them():
    text = OFFERED["a matrix product"].to_text().replace("f32[", "bf16[")
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    assert len(env.get_alternatives("onednn-calls")) == int(has_products_of_bf16())


@pytest.mark.bf16_products
@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    "name", [name for name, each in OFFERED.items() if " dot(" in each.to_text()]
)
def test_products_of_bf16_compute_the_same(name, engine):
    text = OFFERED[name].to_text().replace("f32[", "bf16[")
    original = hloenv.HloModule.from_text(text)
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(-2, 3, each.shape).astype(each.dtype)
        for each in hloenv.random_inputs(original)
    ]
    (found,) = hloenv.compile(called(original), engine=engine, isolate=False)(*inputs)
    (expected,) = hloenv.interpret(original, *inputs)
    # Sums of small integers are exact.
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("variable", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_no_products_of_bf16_where_onednn_is_limited(variable, monkeypatch):
    # It may have none then, and XLA's call of it ended the process.
    monkeypatch.setenv(variable, "AVX2")
    text = OFFERED["a matrix product"].to_text().replace("f32[", "bf16[")
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    assert not len(env.get_alternatives("onednn-calls"))


@pytest.mark.parametrize("name", REFUSED)
def test_what_onednn_does_not_run_is_not_offered(name):
    assert len(hloenv.HloEnv(REFUSED[name]).get_alternatives("onednn-calls")) == 0


def test_original_stays_where_it_is_chosen():
    env = hloenv.HloEnv(OFFERED["plain"])
    alternatives = env.get_alternatives("onednn-calls")
    assert alternatives[0].choices[1].rule == "convolution"
    module = env.apply_alternatives(np.zeros(1, int), alternatives)
    assert "__onednn$" not in module.to_text()


def test_a_saved_module_compiles(tmp_path):
    original = OFFERED["plain"]
    called(original).save(tmp_path / "m.hlo")
    inputs = hloenv.random_inputs(original)
    found = hloenv.compile(
        hloenv.HloModule.from_file(tmp_path / "m.hlo"), isolate=False
    )(*inputs)
    expected = hloenv.compile(original)(*inputs)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-4, atol=1e-4)


def test_text_alone_is_refused():
    """Nothing says that the configuration of its call is right."""
    text = hloenv.HloModule.from_text(called(OFFERED["plain"]).to_text())
    with pytest.raises(CompileError, match=r"HloModule\.save"):
        hloenv.compile(text)


def test_its_code_cannot_be_linked_again():
    """XLA exports such code without what it holds: loading it raised bad_alloc."""
    executable = hloenv.compile(called(OFFERED["plain"]), isolate=False)
    with pytest.raises(CompileError, match="linked again"):
        executable.copy()
    original = OFFERED["plain"]
    for engine in ("wheel", "jaxlib"):
        measured = hloenv.measure(
            called(original), baseline=original, engine=engine, repeats=5
        )
        assert measured.error is None
        assert measured.outputs.is_equal


@pytest.mark.jax
def test_a_profile_says_what_runs_it():
    alternatives = hloenv.HloEnv(convolution()).get_alternatives("onednn-calls")
    found = profile(alternatives.apply([1]), engine="jaxlib")
    kernels = {each.name: each.emitter for each in found.kernels}
    assert "library (oneDNN)" in kernels.values()
    assert not any("$" in name for name in kernels)


def test_the_interpreter_says_that_it_has_no_such_call():
    original = OFFERED["plain"]
    with pytest.raises(ExecuteError, match="custom-call"):
        hloenv.interpret(called(original), *hloenv.random_inputs(original))


def test_products_of_the_padding_are_left_out():
    """Of a kernel with an infinite number, XLA's own code has NaN at the border."""
    original = OFFERED["plain"]
    x, kernel = hloenv.random_inputs(original)
    kernel[0, 0, 0, 0] = np.inf
    (expected,) = hloenv.compile(original)(x, kernel)
    (found,) = hloenv.compile(called(original), isolate=False)(x, kernel)
    assert np.isnan(expected[:, 0, :, 0]).all()
    assert not np.isnan(found).any()
    inner = (slice(None), slice(1, -1), slice(1, -1))
    np.testing.assert_allclose(found[inner], expected[inner], rtol=1e-4, atol=1e-4)


def _of_row(operands: str, rows: int, kind: str) -> hloenv.HloModule:
    return module(
        f"""x = {kind}[{rows},1024] parameter(0)
        y = {kind}[1024,1024] parameter(1)
        t = {kind}[1024,1024] transpose(y), dimensions={{1,0}}
        ROOT d = {kind}[{rows},1024] dot({operands}), {BOTH}"""
    )


@pytest.mark.bf16_products
@pytest.mark.parametrize(
    ("operands", "rows", "kind", "expected"),
    [
        ("x, y", 20, "bf16", 1),
        ("x, y", 1, "bf16", 1),
        ("x, t", 20, "bf16", 1),
        ("x, t", 1, "bf16", -1),
        ("x, y", 20, "f32", -1),
    ],
)
def test_known_calls_takes_products_of_bf16(operands, rows, kind, expected):
    alternatives = hloenv.HloEnv(_of_row(operands, rows, kind)).get_alternatives(
        "onednn-calls"
    )
    assert get_policy("known-calls")(alternatives).tolist() == [expected]


def test_known_calls_takes_convolutions_with_groups_only_where_it_is_worth_it():
    policy = get_policy("known-calls")
    large = convolution(
        image="f32[2,28,28,32]",
        kernel="f32[3,3,4,32]",
        result="f32[2,28,28,32]",
        others=", feature_group_count=8",
    )
    for each, expected in (
        (large, 1),
        (OFFERED["groups"], -1),
        (OFFERED["of batches"], -1),
    ):
        alternatives = hloenv.HloEnv(each).get_alternatives("onednn-calls")
        assert policy(alternatives).tolist() == [expected]


@pytest.mark.parametrize(("features", "expected"), [(64, 1), (256, -1)])
def test_known_calls_takes_gradients_of_kernels_of_few_features(features, expected):
    gradient = convolution(
        "size=7x7 pad=1_1x1_1",
        image=f"f32[16,7,7,{features}]",
        kernel=f"f32[16,7,7,{features}]",
        result=f"f32[3,3,{features},{features}]",
        labels="f01b_i01o->01bf",
    )
    alternatives = hloenv.HloEnv(gradient).get_alternatives("onednn-calls")
    assert get_policy("known-calls")(alternatives).tolist() == [expected]
