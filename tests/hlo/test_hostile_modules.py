# SPDX-License-Identifier: Apache-2.0
"""Modules designed to crash the process on loading, compiling, saving or costing.

Each case runs in a child process; a crash of the child fails the test.
"""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import pytest

import hloenv
from hloenv.errors import ConstantsWarning
from hloenv.fuzz.damage import _fields, _varint, damage_text
from hloenv.process.child import num_read
from hloenv.process.forkserver import Outcome
from support.children import map_in_few, map_jobs


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
    """An operation on a text, and its expected result.

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


def _constant(shape: str) -> Case:
    return Case(_module(f"ROOT r = {shape} constant({{...}})"), words="large|range")


def _doubling(times: int) -> str:
    """Computations that call the one before twice."""
    return _module(
        f"x = f32[] parameter(0)\nROOT y = f32[] call(x), to_apply=twice{times}",
        "twice0 {\n x = f32[] parameter(0)\n ROOT y = f32[] negate(x)\n}\n\n"
        + "".join(
            f"twice{i} {{\n x = f32[] parameter(0)\n"
            f" y = f32[] call(x), to_apply=twice{i - 1}\n"
            f" ROOT z = f32[] call(y), to_apply=twice{i - 1}\n}}\n\n"
            for i in range(1, times + 1)
        ),
    )


def _compiled(entry: str, words: str = "") -> Case:
    return Case(_module(entry), "compile", "CompileError", words)


def _own_call(
    target: str, shape: str = "f32[4]", *, operands: str = "x", words: str = ""
) -> Case:
    return _compiled(
        f'{_X}ROOT r = {shape} custom-call({operands}), custom_call_target="{target}"',
        words,
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
    "a constant of 4 GB": _constant("f32[1000000000]"),
    "a constant of 4 GB of a rare type": _constant("f8e5m2[4000000000]"),
    "a constant that is a tuple of 4 GB": _constant("(f32[1000000000], f32[])"),
    "a constant too large to count": _constant("f32[900000000000,900000000000]"),
    "calls that double 40 times": Case(_doubling(40), words="1,000,000"),
    "calls that double 18 times": Case(_doubling(18), does="cost", outcome=""),
    "metadata that is no text": Case(
        _module(_X + 'ROOT y = f32[4] add(x, x), metadata={op_name="\\377"}'),
        words="UTF-8",
    ),
    "metadata that is no text, in hexadecimal": Case(
        _module(_X + 'ROOT y = f32[4] add(x, x), metadata={op_name="a\\xFF"}'),
        words="UTF-8",
    ),
    "an attribute that is no text": Case(
        _module(_X + 'ROOT y = f32[4] add(x, x), frontend_attributes={a="\\377"}'),
        words="UTF-8",
    ),
    "an attribute of the module that is no text": Case(
        _module(_X + "ROOT y = f32[4] add(x, x)").replace(
            "m\n", 'm, frontend_attributes={a="\\377"}\n', 1
        ),
        words="UTF-8",
    ),
    "a sharded instruction whose metadata is no text": Case(
        _module(
            _X + "ROOT y = f32[4] add(x, x), sharding={devices=[2]<=[2]}, "
            'metadata={op_name="\\377"}'
        ),
    ),
    "escapes that are text": Case(
        _module(
            _X + 'ROOT y = f32[4] add(x, x), metadata={op_name="\\303\\251 \\x41 \\n"}'
        ),
        does="save",
        outcome="",
    ),
    "a backend's configuration of any bytes": Case(
        _module(
            _X + 'ROOT y = f32[4] custom-call(x), custom_call_target="t", '
            'backend_config="\\377\\000"'
        ),
        does="save",
        outcome="",
    ),
    "an opaque input": _compiled("ROOT x = opaque[] parameter(0)", "numpy"),
    "an opaque input, up to fusion": Case(
        _module("ROOT x = opaque[] parameter(0)"), "run_until", "CompileError"
    ),
    "an opaque input that nothing reads": _compiled(
        "o = (opaque[], f32[]) parameter(0)\n"
        "ROOT x = f32[] get-tuple-element(o), index=1",
        "numpy",
    ),
    "tokens": Case(
        _module(
            "o = token[] parameter(0)\nx = f32[] parameter(1)\n"
            "ROOT t = (token[], f32[]) tuple(o, x)"
        ),
        "compile",
        "",
    ),
    "a top-k that is no tuple": _own_call("TopK", words="tuple"),
    "a top-k of more than there is": _own_call("TopK", "(f32[5], s32[5])"),
    "a top-k of other dimensions": _own_call("TopK", "(f32[2,2], s32[2,2])"),
    "a top-k without operands": _own_call("TopK", "(f32[2], s32[2])", operands=""),
    "a slice that is not dynamic": _own_call("SliceToDynamic", words="dynamic"),
    "a slice that is dynamic in a tuple": _own_call(
        "SliceToDynamic", "(f32[4], s32[])"
    ),
    "a slice of a dynamic size that nobody gives": _compiled(
        _X + 's = f32[<=4] custom-call(x), custom_call_target="SliceToDynamic"\n'
        "ROOT r = s32[] get-dimension-size(s), dimensions={0}",
        "size of each dimension",
    ),
    "a sharding of two operands": _own_call("Sharding", operands="x, x"),
    "a sharding of nothing": _own_call("SPMDFullToShardShape", operands=""),
    "a shard of two operands": _own_call("SPMDShardToFullShape", operands="x, x"),
    "a padding of nothing": _own_call("PadToStatic", operands=""),
    "eigenvalues of nothing": _own_call("Eigh", operands=""),
    "a QR decomposition of nothing": _own_call("Qr", operands=""),
    "a QR decomposition of a tuple": _compiled(
        "x = (f32[4,4], f32[4]) parameter(0)\n"
        'ROOT r = f32[4] custom-call(x), custom_call_target="Qr"'
    ),
    "reflectors without factors": _own_call("ProductOfElementaryHouseholderReflectors"),
    "reflectors with one factor": _compiled(
        "x = f32[3,3] parameter(0)\nf = f32[] parameter(1)\n"
        "ROOT r = f32[3,3] custom-call(x, f), "
        'custom_call_target="ProductOfElementaryHouseholderReflectors"'
    ),
    "a call of oneDNN": _own_call("__onednn$matmul", words="finish='none'"),
    "a call of oneDNN with a wrong configuration": Case(
        _module(
            _X
            + 'ROOT r = f32[4] custom-call(x), custom_call_target="__onednn$matmul", '
            'backend_config={"a":1}'
        ),
        "run_until",
        "CompileError",
    ),
    "random bits of a short state": _compiled(
        "s = u64[1] parameter(0)\n"
        "ROOT r = u64[4] rng-bit-generator(s), algorithm=rng_three_fry"
    ),
    "random bits, up to fusion": Case(
        _module(
            "s = u64[3] parameter(0)\n"
            "ROOT r = u64[4] rng-bit-generator(s), algorithm=rng_default"
        ),
        "run_until",
        "",
    ),
}


def load(text: str) -> None:
    """Reads text, and its proto."""
    module = hloenv.HloModule.from_text(text)
    hloenv.HloModule.from_proto(module.to_proto())


def save(text: str) -> None:
    """Reads text, and whatever may be saved of it."""
    module = hloenv.HloModule.from_text(text)
    again = hloenv.HloModule.from_proto(module.to_proto())
    assert again.to_text() == module.to_text()
    assert pickle.loads(pickle.dumps(module)).to_text() == module.to_text()
    with TemporaryDirectory() as folder:
        for name in ("a.pb", "a.hlo"):
            module.save(Path(folder, name))
            saved = hloenv.HloModule.from_file(Path(folder, name))
            assert saved.to_text() == module.to_text()


def cost(text: str) -> None:
    """XLA's cost analysis."""
    assert hloenv.HloModule.from_text(text).cost().flops >= 2**18


def compile(text: str) -> None:
    """Compiles for the CPU, in this process."""
    hloenv.compile(hloenv.HloModule.from_text(text))


def run_until(text: str) -> None:
    """Runs XLA's pipeline up to fusion."""
    hloenv.run_until(hloenv.HloModule.from_text(text), "fusion")


_DOES = {
    "load": load,
    "save": save,
    "cost": cost,
    "compile": compile,
    "run_until": run_until,
}


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
    return dict(zip(CASES, map_in_few("test_hostile_modules:do", jobs), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_the_process_does_not_crash(outcomes: dict[str, Outcome], name: str) -> None:
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


# --- constants, calls ---------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in CASES if "constant" in name])
def test_no_process_looks_at_what_is_only_claimed(name: str) -> None:
    before = num_read()
    with pytest.raises(hloenv.InvalidModuleError):
        load(CASES[name].text)
    assert num_read() == before


def test_an_elided_constant_is_read_here() -> None:
    before = num_read()
    with pytest.warns(ConstantsWarning):
        load(_constant("f32[1000,1000]").text)
    assert num_read() == before


def test_the_datasets_largest_modules_need_no_other_process() -> None:
    before = num_read()
    records = hloenv.dataset.load("all")
    for record in sorted(records, key=lambda each: -each.instruction_count)[:5]:
        _ = record.module
    assert num_read() == before


# --- random bits --------------------------------------------------------------------


@pytest.mark.parametrize("place", ["ROOT r", "r"])
def test_random_bits_without_the_next_state(place: str) -> None:
    bits = "u64[4] rng-bit-generator(s), algorithm=rng_three_fry"
    used = "" if place == "ROOT r" else "\nROOT n = u64[4] not(r)"
    alone = _module(f"s = u64[2] parameter(0)\n{place} = {bits}{used}")
    both = _module(
        "s = u64[2] parameter(0)\n"
        f"b = (u64[2], {bits.replace(' ', ') ', 1)}\n"
        f"{place} = u64[4] get-tuple-element(b), index=1{used}"
    )
    state = np.array([3, 4], np.uint64)
    (result,) = hloenv.compile(alone)(state)
    (expected,) = hloenv.compile(both)(state)
    np.testing.assert_array_equal(result, expected)


def run_expander(text: str) -> bool:
    """Runs in a child: whether the pass did anything."""
    return bool(hloenv.HloEnv(text).run("rng-bit-generator-expander"))


def test_the_expander_ignores_them() -> None:
    text = _module("s = u64[2] parameter(0)\nROOT r = u64[4] rng-bit-generator(s)")
    text = text.replace("(s)", "(s), algorithm=rng_three_fry")
    (outcome,) = map_jobs("test_hostile_modules:run_expander", [(text,)])
    assert outcome.value is False


# --- protos -------------------------------------------------------------------------


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _changed(text: str, name: str, addition: bytes) -> bytes:
    """The proto of `text` with fields added to the root, whose name is `name`."""
    proto = hloenv.HloModule.from_text(text).to_proto()
    (computation,) = (
        proto[payload:end]
        for tag, _, payload, end in _fields(proto)
        if tag >> 3 == _COMPUTATIONS
    )
    parts = []
    for tag, begin, payload, end in _fields(computation):
        part = computation[begin:end]
        if tag >> 3 == _INSTRUCTIONS and name.encode() in part:
            part = _field(_INSTRUCTIONS, computation[payload:end] + addition)
        parts.append(part)
    return b"".join(
        _field(_COMPUTATIONS, b"".join(parts))
        if tag >> 3 == _COMPUTATIONS
        else proto[begin:end]
        for tag, begin, _, end in _fields(proto)
    )


_COMPUTATIONS, _INSTRUCTIONS = 3, 2  # of HloModuleProto, HloComputationProto
_SCHEDULE, _API_VERSION, _FRONTEND_ATTRIBUTES = 76, 77, 68
_CALL = _module(_X + 'ROOT root.1 = f32[4] custom-call(x), custom_call_target="t"')


def _attribute(key: bytes) -> bytes:
    return _field(_FRONTEND_ATTRIBUTES, _field(1, _field(1, key) + _field(2, b"v")))


PROTOS = {
    "an unknown schedule": (_field(_SCHEDULE, 99), True),
    "an unknown version": (_field(_API_VERSION, 99), True),
    "a key with a brace": (_attribute(b"a b{"), True),
    "an empty key": (_attribute(b""), True),
    "a known schedule": (_field(_SCHEDULE, 1), False),
    "a plain key": (_attribute(b"xla.a-b_c"), False),
}


def load_proto(proto: bytes) -> str:
    """Runs in a child: the exception's name; what loads has a text."""
    try:
        module = hloenv.HloModule.from_proto(proto)
    except hloenv.HloEnvError as error:
        return type(error).__name__
    hloenv.HloModule.from_text(module.to_text())
    return ""


@pytest.mark.parametrize("name", PROTOS)
def test_a_proto_that_loads_has_a_text(name: str) -> None:
    addition, is_refused = PROTOS[name]
    proto = _changed(_CALL, "root.1", addition)
    (outcome,) = map_jobs("test_hostile_modules:load_proto", [(proto,)])
    assert outcome.value in (
        ("InvalidModuleError", "ParseError") if is_refused else ("",)
    )


def test_a_proto_whose_window_is_padded_away() -> None:
    proto = hloenv.HloModule.from_text(_reduce_window("pad=-1_0", 3).text).to_proto()
    low, lower = (_field(3, value) for value in (-1, -10))
    assert proto.count(low) == 1
    changed = proto.replace(low, lower)
    (outcome,) = map_jobs("test_hostile_modules:load_proto", [(changed,)])
    assert outcome.value in ("InvalidModuleError", "ParseError")


@pytest.mark.parametrize(
    "entry",
    [
        "a = f32[] parameter(0)\nROOT r = f32[] dynamic-slice(a), dynamic_slice_sizes={}",
        "a = f32[] parameter(0)\nb = f32[] parameter(1)\n"
        "ROOT r = f32[] dynamic-update-slice(a, b)",
    ],
)
def test_slices_of_scalars_are_rejected(entry: str) -> None:
    """XLA's cost analysis looks for the index that they have not."""
    with pytest.raises(hloenv.errors.InvalidModuleError, match="slice of a scalar"):
        hloenv.HloModule.from_text(_module(entry))


def draw(text: str) -> list[int]:
    """Runs in a child: the shapes of random inputs."""
    module = hloenv.HloModule.from_text(text)
    return [each.size for each in hloenv.random_inputs(module)]


def test_starts_of_slices_in_one_array() -> None:
    texts = [
        "HloModule m\nENTRY e {\n x = f32[] parameter(0)\n i = s32[0] parameter(1)\n"
        " ROOT r = f32[] dynamic-slice(x, i), dynamic_slice_sizes={}\n}",
        "HloModule m\nENTRY e {\n x = f32[] parameter(0)\n i = s32[0] parameter(1)\n"
        " ROOT r = f32[] dynamic-update-slice(x, x, i)\n}",
    ]
    for outcome in map_jobs("test_hostile_modules:draw", [(text,) for text in texts]):
        assert not outcome.error
        assert outcome.value == [1, 0]


def verify_clone(text: str) -> str:
    """Runs in a child: the exception of a clone that was not verified."""
    module = hloenv.HloModule.from_text(text, verify=False).clone()
    try:
        module.fingerprint()
    except hloenv.HloEnvError as error:
        return type(error).__name__
    return ""


def test_a_clone_of_an_unverified_module_is_verified_elsewhere() -> None:
    text = (
        "HloModule m\n\nadd {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n"
        " ROOT c = f32[] add(a, b)\n}\n\nENTRY e {\n x = f32[4] parameter(0)\n"
        " z = f32[] constant(0)\n ROOT r = f32[0] reduce-window(x, z), "
        "window={size=1 pad=-10_0}, to_apply=add\n}"
    )
    (outcome,) = map_jobs("test_hostile_modules:verify_clone", [(text,)])
    assert outcome.value == "InvalidModuleError"


def test_bounds_of_many_indices_are_passed_on_once() -> None:
    """An unrolled loop; quadratic once."""
    count = 20_000
    lines = [
        "i0 = s32[] parameter(0)",
        "one = s32[] constant(1)",
        "a0 = f32[8] parameter(1)",
        "u = f32[1] parameter(2)",
    ]
    for k in range(1, count):
        root = "ROOT " if k == count - 1 else ""
        lines += [
            f"i{k} = s32[] add(i{k - 1}, one)",
            f"{root}a{k} = f32[8] dynamic-update-slice(a{k - 1}, u, i{k})",
        ]
    text = "HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n"
    index, *_ = hloenv.random_inputs(hloenv.HloModule.from_text(text))
    assert 0 <= int(index) < 8


def test_constants_in_names_of_metadata() -> None:
    """Quadratic once, in the length of the name."""
    name = " constant(" * 300_000
    text = (
        "HloModule m\n\nENTRY e {\n  ROOT x = f32[] parameter(0), "
        f'metadata={{op_name="{name}"}}\n}}\n'
    )
    assert hloenv.HloModule.from_text(text).instruction_count == 1
