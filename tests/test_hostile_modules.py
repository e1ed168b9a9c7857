# SPDX-License-Identifier: Apache-2.0
"""Modules that were made to end the process: by loading, compiling, saving, costing.

Each case runs in a child process. What it ends is the child, and the test fails.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

import pytest

import hloenv
from hloenv.child import num_read
from hloenv.fuzz.children import Outcome, map_jobs
from hloenv.fuzz.damage import damage_text


def _module(entry: str, helpers: str = "") -> str:
    return f"HloModule m\n\n{helpers}ENTRY e {{\n{entry}\n}}\n"


_X = "x = f32[4] parameter(0)\n"
_ADD = """add {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b)
}

ge {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=GE
}

"""


@dataclass(frozen=True)
class Case:
    """What is done with a text, and what comes of it.

    Attributes:
        text: of a module.
        does: the name of a function of `_DOES`.
        outcome: the exception's name, "" for none.
        words: a pattern in its message.
    """

    text: str
    does: str = "load"
    outcome: str = "InvalidModuleError"
    words: str = ""


def _convolution(window: str, *, size: int = 4, result: int = 0) -> Case:
    return Case(
        _module(
            f"x = u8[1,{size},1] parameter(0)\nk = u8[1,1,1] parameter(1)\n"
            f"ROOT r = u8[1,{result},1] convolution(x, k), window={{size=1 {window}}},"
            " dim_labels=b0f_0io->b0f"
        ),
    )


def _reduce_window(window: str, result: int = 0) -> Case:
    return Case(
        _module(
            f"{_X}z = f32[] constant(0)\nROOT r = f32[{result}] reduce-window(x, z),"
            f" window={{size=1 {window}}}, to_apply=add",
            _ADD,
        ),
    )


def _select_and_scatter(window: str, source: int = 0) -> Case:
    return Case(
        _module(
            f"{_X}s = f32[{source}] parameter(1)\nz = f32[] constant(0)\n"
            f"ROOT r = f32[4] select-and-scatter(x, s, z), window={{size=1 {window}}},"
            " select=ge, scatter=add",
            _ADD,
        ),
    )


CASES = {
    "a convolution that is padded away": _convolution("pad=-3_-2"),
    "a convolution that is padded by too much": _convolution(
        "lhs_dilate=2147483648", size=6442450945
    ),
    "a convolution whose window is dilated away": _convolution(
        "pad=2147483648_2147483648 lhs_dilate=2147483648", size=1 << 39, result=4
    ),
    "a reduce-window that is padded away": _reduce_window("pad=-10_0"),
    "a reduce-window of too many places": _reduce_window("pad=0_2147483648"),
    "a select-and-scatter that is padded away": _select_and_scatter("pad=-10_0"),
    "a copy of an opaque value": Case(
        _module("x = opaque[] parameter(0)\nROOT t = opaque[] copy(x)")
    ),
}


def load(text: str) -> None:
    """Reads text, and its proto."""
    module = hloenv.HloModule.from_text(text)
    hloenv.HloModule.from_proto(module.to_proto())


_DOES = {"load": load}


def do(case: Case) -> tuple[str, str]:
    """Runs in a child: the exception's name and message."""
    try:
        _DOES[case.does](case.text)
    except hloenv.HloEnvError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    jobs = [(case,) for case in CASES.values()]
    return dict(zip(CASES, map_jobs("test_hostile_modules:do", jobs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_process_lives(outcomes: dict[str, Outcome], name: str) -> None:
    exception, message = outcomes[name].value
    assert exception == CASES[name].outcome, message
    assert re.search(CASES[name].words, message), message


# --- windows ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        _convolution("pad=-1_-2", result=1),
        _convolution("pad=-1_-3", result=0),
        _convolution("pad=1_-2 lhs_dilate=3 rhs_dilate=5 stride=2", result=5),
        _convolution("pad=0_2", size=0, result=2),
        _reduce_window("pad=-3_1", 2),
        _select_and_scatter("pad=-3_1", 2),
    ],
)
def test_windows_that_hold_something_are_read_here(case: Case) -> None:
    before = num_read()
    load(case.text)
    assert num_read() == before


def test_mutants_have_windows_with_negative_pads() -> None:
    text = _reduce_window("pad=0_0", 4).text.encode()
    mutants = [damage_text(text, [text], Random(i)) for i in range(200)]
    assert any(re.search(rb"pad=\S*-\d", mutant) for mutant in mutants)
    assert any(b"lhs_dilate=" in mutant for mutant in mutants)
