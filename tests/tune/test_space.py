# SPDX-License-Identifier: Apache-2.0
"""The decisions as data, and that each of them does something."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hloenv.errors import ArgumentError, CompileError
from hloenv.hlo.text import without_metadata
from hloenv.jax import Recipe
from hloenv.jax.recipe import FILE_OPTIONS
from hloenv.policies import describe_policy
from hloenv.runtime.jaxlib.options import (
    EXTRA,
    check_options,
    compile_lowered,
    parse_extra,
)
from hloenv.tune import DECISIONS, Configuration, Space

CPU_FLAGS = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
OPTIONS = [
    (decision.name, choice.name, choice.option)
    for decision in DECISIONS
    for choice in decision.choices
    if choice.option is not None
]
# On a processor without such vectors it changes nothing.
SEEN = [each for each in OPTIONS if each[2][1] != 512 or "avx512f" in CPU_FLAGS]
WHEEL = Configuration((("engine", "wheel"),))
PLAIN = Configuration()


def normal(*shape):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


def loop(x):
    return jax.lax.scan(lambda c, _: (jnp.sin(c @ c.T) + c, None), x, None, length=9)[0]


def swap(x):
    def step(pair, _):
        return (pair[1], 2 * pair[1] - pair[0]), None

    return jax.lax.scan(step, (x, x + 1), None, length=9)[0]


def wide(x):
    parts = []
    for i in range(5):
        part = x * (i + 1.0)
        for _ in range(i + 1):
            part = jnp.tanh(part @ x)
        parts.append(jnp.sort(part, axis=0))
    return parts[0] @ parts[1] + parts[2] @ parts[3] @ parts[4]


def convolved(x):
    kernel = jnp.ones((3, 3, 32, 32), jnp.float32)
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=dimensions
    )


PROGRAMS = {
    "softmax": (lambda x: jnp.tanh(jax.nn.softmax(x)) / (1 + x * x), normal(64, 256)),
    "vector": (lambda x: x @ x[0], normal(128, 128)),
    "loop": (loop, normal(8, 8)),
    "wide": (wide, normal(48, 48)),
    "convolution": (convolved, normal(1, 16, 16, 32)),
    "swap": (swap, normal(64, 64)),
}


def code_of(name, options):
    """Hashes of the object files and of the schedule of a program."""
    fn, x = PROGRAMS[name]
    lowered = jax.jit(lambda x: fn(x)).lower(x)
    compiled = compile_lowered(lowered, options)
    data = compiled._executable.xla_executable.serialize()
    found, begin = [without_metadata(compiled.as_text())], data.find(b"\x7fELF")
    while begin >= 0:
        (offset,) = struct.unpack_from("<Q", data, begin + 0x28)
        size, count = struct.unpack_from("<HH", data, begin + 0x3A)
        end = begin + offset + size * count
        found.append(hashlib.sha256(data[begin:end]).hexdigest())
        begin = data.find(b"\x7fELF", max(end, begin + 4))
    return found[:1] + sorted(found[1:])  # jaxlib compiles them in parallel


@pytest.fixture(scope="module")
def plain_code():
    return {name: code_of(name, None) for name in PROGRAMS}


@pytest.mark.jax
@pytest.mark.compile
@pytest.mark.two_cores
@pytest.mark.parametrize(
    ("decision", "choice", "option"), SEEN, ids=[f"{a}-{b}" for a, b, _ in SEEN]
)
def test_every_option_changes_the_code_of_a_program(
    decision, choice, option, plain_code
):
    name, value = option
    assert any(
        code_of(program, {name: value}) != plain_code[program] for program in PROGRAMS
    )


@pytest.mark.jax
@pytest.mark.compile
def test_the_same_compilation_gives_the_same_code(plain_code):
    assert all(code_of(name, None) == plain_code[name] for name in PROGRAMS)


@pytest.mark.jax
def test_an_unknown_option_is_a_compile_error():
    lowered = jax.jit(lambda x: x + 1).lower(1.0)
    with pytest.raises(CompileError, match="xla_cpu_no_such"):
        compile_lowered(lowered, {"xla_cpu_no_such": 1})


@pytest.mark.parametrize("options", [{"--xla_x": 1}, {1: 2}, [], {"xla_x": 1.5}])
def test_a_wrong_option_is_an_error(options):
    with pytest.raises(ArgumentError):
        check_options(options)


def test_extra_options_have_names():
    assert parse_extra("a=1, b=,c") == {"a": "1", "b": "", "c": ""}
    with pytest.raises(ArgumentError, match=EXTRA):
        parse_extra("=1")


def test_an_artefact_may_set_what_the_decisions_set_and_no_more():
    found = {}
    for _, _, (name, value) in OPTIONS:
        found.setdefault(name, set()).add(repr(value))
    allowed = {name: set(map(repr, values)) for name, values in FILE_OPTIONS.items()}
    assert allowed == found


@pytest.mark.parametrize("option", [each[2] for each in OPTIONS])
def test_an_artefact_may_set_every_option(option):
    recipe = Recipe(options=dict([option]))
    assert Recipe.from_json(recipe.to_json()) == recipe


def test_every_policy_exists():
    for decision in DECISIONS:
        for choice in decision.choices:
            if choice.policy:
                assert describe_policy(choice.policy).name == choice.policy


def test_names_are_unique():
    names = [each.name for each in DECISIONS]
    assert len(set(names)) == len(names)


def test_exact_has_no_wider_choice():
    for decision in Space(numerics="exact").decisions:
        assert {each.numerics for each in decision.choices} == {"exact"}


def test_fast_math_is_approximate_only():
    assert "math" not in {each.name for each in Space().decisions}
    assert "math" in {each.name for each in Space(numerics="approximate").decisions}


def test_a_donating_program_keeps_its_module():
    names = {each.name for each in Space(donates=True).decisions}
    assert names.isdisjoint({"engine", "loops"})
    assert {"forms", "vectors"} <= names


def test_what_the_engine_does_not_have_is_dropped():
    space = Space()
    both = WHEEL.with_choice("vectors", "512").with_choice("fusion", "by-bytes")
    assert space.canonical(both) == WHEEL.with_choice("fusion", "by-bytes")
    only_fusion = Configuration((("fusion", "by-bytes"),))
    assert space.canonical(only_fusion) == Configuration()


def test_a_stage_alone_keeps_the_engine_that_it_needs():
    space = Space()
    both = WHEEL.with_choice("forms", "known").with_choice("fusion", "by-bytes")
    assert space.only(both, "fusion") == WHEEL.with_choice("fusion", "by-bytes")
    assert space.only(both, "forms") == Configuration((("forms", "known"),))


def test_a_rule_needs_what_uses_it():
    label, call = "dot-forms/swapped", "onednn-calls/convolution"
    space = Space(rules=[label, call])
    left = Configuration(((label, "left"), (call, "left")))
    assert space.canonical(left) == Configuration()
    with_forms = left.with_choice("forms", "known")
    assert space.canonical(with_forms) == with_forms.with_choice(call, None)
    assert {label, call}.isdisjoint(each.name for each in space.active(PLAIN))
    exact = Space(numerics="exact", rules=[label])
    assert label not in {each.name for each in exact.decisions}
    other = left.with_choice("forms", "convolutions")
    assert space.canonical(other) == Configuration((("forms", "convolutions"),))


def test_what_a_search_has_decided_leaves_no_rule():
    space = Space(rules=["dot-forms/swapped"])
    graph = Configuration((("engine", "wheel"),), ((1,),))
    both = graph.with_choice("forms", "known").with_choice("dot-forms/swapped", "left")
    assert space.canonical(both) == graph


def test_a_configuration_without_a_stage():
    both = Configuration((("forms", "known"), ("vectors", "512")))
    assert Space().without(both, "forms") == Configuration((("vectors", "512"),))


def test_the_widest_class_counts():
    space = Space(numerics="approximate")
    exact = Configuration((("llvm", "1"),))
    assert space.numerics_of(exact) == "exact"
    assert space.numerics_of(exact.with_choice("math", "fast")) == "approximate"


def test_a_configuration_round_trips():
    both = Configuration((("engine", "wheel"),), ((0, 1, -1), ()))
    assert Configuration.from_json(both.to_json()) == both


@pytest.mark.parametrize("data", [None, {}, {"choices": 3, "graph": []}, []])
def test_damaged_configurations_are_value_errors(data):
    with pytest.raises(ValueError, match="configuration"):
        Configuration.from_json(data)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Space(numerics="loose"),
        lambda: Space(["forms", "x"]),
        lambda: Space(["forms"]).decision("vectors"),
        lambda: DECISIONS[0].choice("tpu"),
    ],
)
def test_wrong_names_are_errors(make):
    with pytest.raises(ArgumentError):
        make()


@pytest.mark.parametrize(
    ("graph", "text"),
    [
        (((0, 0), (0,)), "engine=wheel"),
        (((0, 2), (1,)), "engine=wheel, 2 rewrites by search"),
    ],
)
def test_a_search_that_rewrites_nothing_is_not_in_the_label(graph, text):
    assert Configuration((("engine", "wheel"),), graph).text == text
