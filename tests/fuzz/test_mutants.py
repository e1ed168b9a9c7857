# SPDX-License-Identifier: Apache-2.0
"""Damaged modules raise an exception and do not crash the process.

Each case runs in a child process that must end normally. Most were crashes once.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import hloenv
from hloenv.errors import InvalidModuleError, ParseError
from hloenv.fuzz.mutants import Kind, Mutant, make_mutants, run_mutants, use
from hloenv.process.child import num_read
from hloenv.process.forkserver import Outcome
from support.cases import WRITTEN
from support.children import map_in_few, map_jobs


def _module(entry: str, helpers: str = "") -> str:
    return f"HloModule m\n\n{helpers}ENTRY e {{\n{entry}\n}}\n"


_X = "x = f32[4] parameter(0)\n"
_ADD = "add {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b)\n}\n\n"


@dataclass(frozen=True)
class Case:
    """Text that is not a module, and its expected message."""

    text: str
    exception: type[Exception]
    words: str


# What XLA's parser fails a CHECK of, and what its verifier did not survive.
CASES = {
    "an operand that is an operation": Case(
        _module("t = f32[] tuple(0)\nROOT y = f32[] negate(t)"),
        InvalidModuleError,
        "line 4: expected a name",
    ),
    "a tuple of another shape": Case(
        _module(_X + "ROOT t = f32[4] tuple(x, x)"), InvalidModuleError, "tuple"
    ),
    "a reshape that loses elements": Case(
        _module(_X + "ROOT y = f32[3] reshape(x)"), InvalidModuleError, "elements"
    ),
    "a parameter far off": Case(
        _module("ROOT x = f32[] parameter(2147483648)"),
        InvalidModuleError,
        "parameters are not numbered",
    ),
    "a token with dimensions": Case(
        "HloModule m\n\nENTRY e (x: token[10,2]) -> f32[] {\n"
        "ROOT x = f32[] parameter(0)\n}\n",
        InvalidModuleError,
        "expected",
    ),
    "a constant token": Case(
        _module("ROOT t = token[] constant(0)"), InvalidModuleError, "constant"
    ),
    "a layout that is no permutation": Case(
        _module("ROOT x = f32[2,2]{14,0} parameter(0)"), InvalidModuleError, "layout"
    ),
    "a layout of huge numbers": Case(
        _module("ROOT x = f32[4]{4611686018427387904} parameter(0)"),
        InvalidModuleError,
        "layout|minor_to_major",
    ),
    "an element of no tuple": Case(
        _module(_X + "ROOT y = f32[4] get-tuple-element(x), index=0"),
        InvalidModuleError,
        "tuple",
    ),
    "an element that the tuple does not have": Case(
        _module(
            _X + "t = (f32[4]) tuple(x)\nROOT y = f32[4] get-tuple-element(t), index=7"
        ),
        InvalidModuleError,
        "element",
    ),
    "a dot over a dimension that is not there": Case(
        _module(
            "x = f32[2,2] parameter(0)\n"
            "ROOT y = f32[2,2] dot(x, x), lhs_contracting_dims={0,3},"
            " rhs_contracting_dims={0}"
        ),
        InvalidModuleError,
        "[dD]imension",
    ),
    "a convolution without a window": Case(
        _module(
            "x = f32[2,8,8,3] parameter(0)\nk = f32[3,3,4,3] parameter(1)\n"
            "ROOT y = f32[2,16,16,4] convolution(x, k), window={},"
            " dim_labels=b01f_01oi->b01f"
        ),
        InvalidModuleError,
        "[wW]indow",
    ),
    "a reduce of a tuple": Case(
        _module(
            _X + "t = (f32[4], f32[4]) tuple(x, x)\nz = f32[] constant(0)\n"
            "ROOT y = f32[] reduce(t, z), dimensions={0}, to_apply=add",
            _ADD,
        ),
        InvalidModuleError,
        "arrays",
    ),
    "a slice of no dimension": Case(
        _module(_X + "ROOT y = f32[4] slice(x), slice={}"),
        InvalidModuleError,
        "[sS]lice",
    ),
    "a call of itself": Case(
        _module(_X + "ROOT y = f32[4] call(x), to_apply=e"), ParseError, "e"
    ),
    "a huge constant": Case(
        _module("ROOT x = f32[4611686018427387904] constant({...})"),
        InvalidModuleError,
        "overflow",
    ),
    "shapes nested without end": Case(
        _module(f"ROOT x = {'(' * 100_000}f32[]{')' * 100_000} parameter(0)"),
        ParseError,
        "nested too deep",
    ),
    "calls nested without end": Case(
        _module(
            "x = f32[] parameter(0)\nROOT y = f32[] call(x), to_apply=f4999",
            "f0 {\n x = f32[] parameter(0)\n ROOT y = f32[] negate(x)\n}\n\n"
            + "".join(
                f"f{i} {{\n x = f32[] parameter(0)\n"
                f" ROOT y = f32[] call(x), to_apply=f{i - 1}\n}}\n\n"
                for i in range(1, 5000)
            ),
        ),
        ParseError,
        "too deep",
    ),
    "operands nested without end": Case(
        _module(f"{_X}ROOT y = f32[4] {'add(' * 50_000}x{')' * 50_000}"),
        InvalidModuleError,
        "",
    ),
}


def load(text: str) -> tuple[str, str]:
    """Runs in a child: the exception's name and message."""
    try:
        hloenv.HloModule.from_text(text)
    except hloenv.HloEnvError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    found = map_in_few("test_mutants:load", [(case.text,) for case in CASES.values()])
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_text_is_an_exception(
    outcomes: dict[str, Outcome], name: str
) -> None:
    exception, message = outcomes[name].value
    expected = CASES[name].exception.__name__
    assert exception == expected, message
    assert re.search(CASES[name].words, message), message


def use_file(path: str) -> str:
    """Runs in a child: what a caller may do with a file; the exception's name."""
    return use(Path(path).read_bytes(), path)[0]


def test_modules_that_once_crashed_the_process(mutant_paths: list[Path]) -> None:
    jobs = [(str(path),) for path in mutant_paths]
    outcomes = map_in_few("test_mutants:use_file", jobs)
    for path, outcome in zip(mutant_paths, outcomes, strict=True):
        is_valid = path.stem.startswith("valid")
        expected = {"module"} if is_valid else {"ParseError", "InvalidModuleError"}
        assert not outcome.error, f"{path.name}: {outcome.error}"
        assert outcome.value in expected, path.name


# --- without the verifier ---------------------------------------------------------

_WRONG_SUM = _module(_X + "ROOT y = f32[5] add(x, x)")


def load_unverified() -> list[str]:
    """Runs in a child: exceptions of what may be done with an invalid module."""
    module = hloenv.HloModule.from_text(_WRONG_SUM, verify=False)
    assert module.instruction_count == 2
    assert module.clone().to_text() == module.to_text()
    found = []
    for call in (
        lambda: module.verify(),
        lambda: module.fingerprint(),
        lambda: module.cost(),
        lambda: hloenv.HloEnv(module).get_alternatives("algsimp"),
        lambda: hloenv.HloEnv(module.clone()).run("algsimp"),
        lambda: hloenv.compile(module),
        lambda: hloenv.HloGraph.from_module(module),
    ):
        try:
            call()
        except Exception as error:
            found.append(type(error).__name__)
        else:
            found.append("")
    return found


def test_an_invalid_module_is_for_reading_only() -> None:
    (outcome,) = map_jobs("test_mutants:load_unverified", [()])
    assert outcome.value == ["InvalidModuleError"] * 7


def test_a_valid_module_may_be_verified_later() -> None:
    text = _WRONG_SUM.replace("5", "4")
    module = hloenv.HloModule.from_text(text, verify=False)
    assert module.fingerprint() == hloenv.HloModule.from_text(text).fingerprint()


# --- where it is read ---------------------------------------------------------------


def count_read(path: str) -> int:
    """Runs in a child: how many modules another process had to read first."""
    module = hloenv.HloModule.from_file(path)
    hloenv.HloModule.from_proto(module.to_proto())
    return num_read()


def test_the_datasets_modules_need_no_other_process() -> None:
    before = num_read()
    for record in hloenv.dataset.load("validation"):
        if record.instruction_count < 500:
            module = record.module
            hloenv.HloModule.from_proto(module.to_proto())
    assert num_read() == before


def test_unchecked_modules_are_read_in_a_child_first() -> None:
    path = next(path for path in WRITTEN if path.stem == "collectives")
    (outcome,) = map_jobs("test_mutants:count_read", [(str(path),)])
    assert outcome.value == 2


# --- the fuzzer -------------------------------------------------------------------

_CORPUS = [path.read_bytes() for path in WRITTEN]


def _protos() -> list[bytes]:
    return [hloenv.HloModule.from_text(text.decode()).to_proto() for text in _CORPUS]


@pytest.mark.parametrize("kind", ["text", "proto"])
def test_damaged_modules_never_end_the_process(kind: Kind) -> None:
    corpus = _CORPUS if kind == "text" else _protos()
    results = list(run_mutants(make_mutants(kind, corpus, seed=14, count=200)))
    failures = [
        f"{each.mutant.name}: {each.outcome}: {each.detail}\n{each.mutant.content!r}"
        for each in results
        if each.is_failure
    ]
    assert not failures, "\n\n".join(failures)
    outcomes = Counter(each.outcome for each in results)
    assert outcomes.total() == 200
    # Both sides of the line are tried.
    assert outcomes["module"] >= 20
    assert outcomes["ParseError"] + outcomes["InvalidModuleError"] >= 20


def test_a_mutant_depends_on_its_number_alone() -> None:
    whole = list(make_mutants("text", _CORPUS, seed=3, count=20))
    part = list(make_mutants("text", _CORPUS, seed=3, count=5, first=15))
    assert part == whole[15:]
    assert whole != list(make_mutants("text", _CORPUS, seed=4, count=20))


def test_a_crash_affects_one_mutant() -> None:
    contents = [b"HloModule m", b"die", b"HloModule m"]
    mutants = [Mutant("text", 0, i, content) for i, content in enumerate(contents)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hloenv.fuzz.mutants._USE", "test_mutants:use_or_die")
        results = sorted(run_mutants(mutants), key=lambda each: each.mutant.number)
    assert [each.outcome for each in results] == ["fine", "death", "fine"]
    assert "SIGABRT" in results[1].detail


def use_or_die(mutants: list[Mutant]) -> Iterator[tuple[str, str, bool]]:
    """Runs in a child, in the place of the fuzzer's own function."""
    for mutant in mutants:
        if mutant.content == b"die":
            os.abort()
        yield "fine", "", False
