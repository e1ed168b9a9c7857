# SPDX-License-Identifier: Apache-2.0
"""Errors of wrong passes, options and pipelines, and of passes that fail."""

from __future__ import annotations

import pytest

from hloenv.errors import PassError, PassOptionError, UnknownPassError
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import (
    Pass,
    Pipeline,
    as_pipeline,
    core,
    list_passes,
    run_passes,
)
from hloenv.rewrite.env import HloEnv
from support.modules import ADD_ZERO, LOOP, RESHAPED_FUSION


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("algsmp", "algsimp"),
        ("AlgebraicSimplifier", "algsimp"),
        ("hlo_dce", "dce"),
        ("call_inliner", "call-inliner"),
        ("Reshape Mover", "reshape-mover"),
        ("WhileLoopSimplifier", "simplify-while-loops"),
        ("qr", "qr_expander"),
    ],
)
def test_unknown_pass_suggests_the_nearest(name: str, suggestion: str):
    with pytest.raises(UnknownPassError, match=f"did you mean '{suggestion}'"):
        Pass(name)


@pytest.mark.parametrize(
    ("text", "in_python"),
    [
        (
            "algsimp:associative_reordering_threshold=2.0",
            "hloenv.Pass('algsimp', associative_reordering_threshold=2.0)",
        ),
        (
            "algsimp+cse*",
            "hloenv.Pipeline('algsimp+cse*', ['algsimp', 'cse'], fixed_point=True)",
        ),
        (
            "cse+algsimp:is_layout_sensitive=true,enable_sink_broadcast=false",
            "hloenv.Pipeline('cse+algsimp:is_layout_sensitive=true,"
            "enable_sink_broadcast=false', ['cse', hloenv.Pass('algsimp', "
            "is_layout_sensitive=True, enable_sink_broadcast=False)])",
        ),
    ],
)
def test_the_text_of_a_command_is_said_in_python(text: str, in_python: str):
    with pytest.raises(UnknownPassError) as caught:
        HloEnv(ADD_ZERO).get_alternatives(text)
    assert (
        f"{text!r}, which is written as for --pass; in Python, write {in_python}"
        in (str(caught.value))
    )


def test_unknown_pass_without_a_near_name_suggests_nothing():
    with pytest.raises(UnknownPassError) as caught:
        run_passes(ADD_ZERO, "zzzzzz")
    assert "did you mean" not in str(caught.value)
    assert f"`hloenv passes` lists all {len(list_passes())}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        (
            "cse",
            {"layout_sensitive": True},
            ["layout_sensitive", "did you mean", "bool"],
        ),
        ("logistic-expander", {"x": 1}, ["It takes no options", "1 (int)"]),
        ("cse", {"is_layout_sensitive": 1}, ["takes a bool", "not 1 (int)"]),
        ("cse", {"is_layout_sensitive": "yes"}, ["takes a bool", "'yes' (string)"]),
        ("algsimp", {"very_small_gather_size": True}, ["an int", "true (bool)"]),
        ("algsimp", {"very_small_gather_size": 2.0}, ["an int", "2.0 (float)"]),
        ("algsimp", {"very_small_gather_size": -1}, ["at least 0", "-1"]),
        ("algsimp", {"very_small_gather_size": 2**70}, ["64 bits"]),
        ("algsimp", {"associative_reordering_threshold": "a"}, ["a float or an int"]),
        ("constant_folding", {"level": "all"}, ["'default', 'aggressive'", "'all'"]),
        ("cse", {"is_layout_sensitive": None}, ["None (NoneType)"]),
        ("cse", {"is_layout_sensitive": [1]}, ["[1] (list)"]),
    ],
)
def test_wrong_option_is_explained(name, options, words):
    with pytest.raises(PassOptionError) as caught:
        Pass(name, **options)
    for word in [*words, f"'{name}'"]:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Pipeline("p", []),
        lambda: Pipeline("", ["cse"]),
        lambda: Pipeline("p", "cse"),
        lambda: Pipeline("p", None),
        lambda: Pipeline("p", [3]),
        lambda: Pipeline("p", ["cse"], max_iterations=0),
        lambda: Pipeline("p", ["cse"], max_iterations=True),
        lambda: Pipeline("p", ["cse"], max_iterations=2**31),
        lambda: Pipeline("p", ["cse"], fixed_point=1),
        lambda: as_pipeline(3),
        lambda: run_passes(ADD_ZERO),
        lambda: core.PipelineSpec("p", [], False, 1),
        lambda: core.PipelineSpec("p", [("cse", {})], True, 0),
    ],
)
def test_wrong_pipeline_is_rejected(make):
    with pytest.raises(PassOptionError):
        make()


def test_candidate_pass_cannot_run():
    with pytest.raises(PassError, match="capture its alternatives"):
        run_passes(ADD_ZERO, "general-fusion")
    with pytest.raises(PassError, match="capture its alternatives"):
        run_passes(ADD_ZERO, Pipeline("p", ["cse", "general-fusion"]))


def test_failing_pass_is_named_by_its_path():
    # XLA's own copy insertion rejects a computation that two loops share.
    twice = LOOP.replace(
        "ROOT out = f32[8] get-tuple-element(done), index=1",
        """again = (s32[], f32[8], f32[8]) while(done), condition=condition, body=body
  ROOT out = f32[8] get-tuple-element(again), index=1""",
    )
    with pytest.raises(PassError, match=r"'late/copy-insertion'.*'loop'"):
        run_passes(twice, Pipeline("p", [Pipeline("late", ["copy-insertion"])]))


@pytest.mark.parametrize("name", ["reshape-mover", "cse+reshape-mover"])
def test_a_pass_that_makes_a_module_invalid_fails(name: str):
    module = HloModule.from_text(RESHAPED_FUSION)
    env = HloEnv(module)
    passes = Pipeline(name, name.split("+"))
    for run in (lambda: run_passes(module, passes), lambda: env.run(passes)):
        with pytest.raises(PassError, match="makes the valid module 'm' invalid"):
            run()
    assert env.module is module
