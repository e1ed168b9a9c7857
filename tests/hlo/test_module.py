# SPDX-License-Identifier: Apache-2.0
"""Modules as values: reading, writing, counting."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from hloenv.errors import (
    ConstantsWarning,
    InvalidModuleError,
    ModuleTooLargeError,
    ParseError,
)
from hloenv.fuzz.generator.module import random_module
from hloenv.hlo.module import (
    HloModule,
    as_module,
    check_size,
    read_text_or_proto,
    read_trusted,
)
from hloenv.hlo.passes import run_passes
from hloenv.runtime.interpreter import interpret
from support.cases import WRITTEN
from support.paths import TESTDATA

HLO = TESTDATA / "hlo"

TEXT = """HloModule small

double {
  v = f32[4]{0} parameter(0)
  ROOT sum = f32[4]{0} add(v, v)
}

ENTRY main {
  x = f32[4]{0} parameter(0)
  p = (s32[], (bf16[2,3]{1,0}, pred[])) parameter(1)
  ROOT out = f32[4]{0} call(x), to_apply=double
}
"""


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_hand_written_modules_survive_text_proto_and_clone(path: Path) -> None:
    module = HloModule.from_file(path)
    module.verify()
    assert HloModule.from_text(module.to_text()).fingerprint() == module.fingerprint()
    assert module.clone().fingerprint() == module.fingerprint()
    if path.stem != "sharded":
        again = HloModule.from_proto(module.to_proto())
        assert again.fingerprint() == module.fingerprint()


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_hand_written_modules_say_what_they_exercise(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert first.startswith("// ")
    assert first.endswith(".")


@pytest.mark.xfail(reason="HloModuleProto has no place for num_partitions")
def test_a_proto_keeps_the_number_of_partitions() -> None:
    module = HloModule.from_file(HLO / "sharded.hlo")
    again = HloModule.from_proto(module.to_proto())
    assert again.fingerprint() == module.fingerprint()


def test_large_constants_can_be_left_out_of_the_text() -> None:
    numbers = ", ".join(map(str, range(11)))
    module = HloModule.from_text(
        "HloModule m\nENTRY main {\n  few = s32[2] constant({7, 8})\n"
        f"  many = s32[11] constant({{{numbers}}})\n"
        "  ROOT both = s32[13] concatenate(few, many), dimensions={0}\n}\n"
    )
    text = module.to_text(all_constants=False)
    assert "constant({7, 8})" in text
    assert "constant({...})" in text
    assert f"constant({{{numbers}}})" in module.to_text()


LEFT_OUT = """HloModule left_out

ENTRY main {
  x = f32[12] parameter(0)
  c = f32[12] constant({...})
  d = bf16[12] constant({...})
  i = s32[12] constant({...})
  few = s2[12] constant({...})
  b = pred[12] constant({...})
  iota = s32[12] constant({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
  ROOT t = (f32[12], f32[12], bf16[12], s32[12], s2[12], pred[12], s32[12])
    tuple(x, c, d, i, few, b, iota)
}
"""


def test_constants_that_text_leaves_out_are_the_same_each_time() -> None:
    with pytest.warns(ConstantsWarning, match="leaves 5 of its constants out"):
        module = HloModule.from_text(LEFT_OUT)
    x = np.zeros(12, np.float32)
    _, c, d, i, few, b, iota = interpret(module, x)
    for floats in (c, d.astype(np.float32)):
        assert (floats >= 0.25).all()
        assert (floats <= 1.25).all()
        assert len(set(floats.tolist())) > 6
    assert set(i.tolist()) <= set(range(8))
    assert set(few.astype(np.int8).tolist()) == {0, 1}
    assert set(b.tolist()) == {False, True}
    assert iota.tolist() == list(range(12))
    assert HloModule.from_text(module.to_text()).fingerprint() == module.fingerprint()
    # Wherever else XLA's parser has counted, as in the module before.
    with pytest.warns(ConstantsWarning):
        again = HloModule.from_text(LEFT_OUT)
    assert again.fingerprint() == module.fingerprint()


def test_truth_values_that_text_leaves_out_are_the_same_each_time() -> None:
    text = """HloModule masks

    ENTRY main {
      b = pred[4099] constant({...})
      few = s8[13] constant({...})
      ROOT t = (pred[4099], s8[13]) tuple(b, few)
    }"""
    found = set()
    for _ in range(5):
        with pytest.warns(ConstantsWarning):
            found.add(HloModule.from_text(text).fingerprint())
    assert len(found) == 1


@pytest.mark.parametrize("end", [" ", "\n", "\r\n"])
def test_constants_may_stand_on_one_line(end: str) -> None:
    words = (
        "HloModule one\nENTRY main {",
        "x = f32[12] parameter(0)",
        "%c.1 = f32[12]{0} constant({...})",
        "ROOT s = f32[12] add(x, %c.1) }",
    )
    with pytest.warns(ConstantsWarning):
        (s,) = interpret(HloModule.from_text(end.join(words)), np.zeros(12, np.float32))
    assert (s >= 0.25).all()


def test_numbers_stay_where_another_computation_leaves_its_own_out() -> None:
    text = """HloModule two

    one {
      c = f32[12] constant({...})
      ROOT n = f32[12] negate(c)
    }

    ENTRY main {
      c = f32[12] constant({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
      d = f32[12] call(), to_apply=one
      ROOT t = (f32[12], f32[12]) tuple(c, d)
    }"""
    with pytest.warns(ConstantsWarning):
        c, d = interpret(HloModule.from_text(text))
    assert c.tolist() == list(range(1, 13))
    assert (d <= -0.25).all()


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    text = "HloModule m\nENTRY main {\n  ROOT x = f32[] parameter(0)\n}\n"
    module = HloModule.from_text("\ufeff" + text)
    assert module.fingerprint() == HloModule.from_text(text).fingerprint()
    path = tmp_path / "marked.hlo"
    path.write_bytes(("\ufeff" + text).encode())
    assert HloModule.from_file(path).fingerprint() == module.fingerprint()


@pytest.mark.parametrize("seed", range(20))
def test_random_modules_survive_text_and_proto(seed: int) -> None:
    module = HloModule.from_text(random_module(seed))
    module.verify()
    assert HloModule.from_text(module.to_text()).fingerprint() == module.fingerprint()
    again = HloModule.from_proto(module.to_proto())
    assert again.fingerprint() == module.fingerprint()


def test_specs_list_flat_leaves() -> None:
    module = HloModule.from_text(TEXT)
    assert [(spec.shape, spec.hlo_dtype) for spec in module.input_specs()] == [
        ((4,), "f32"),
        ((), "s32"),
        ((2, 3), "bf16"),
        ((), "pred"),
    ]
    assert [spec.dtype.name for spec in module.input_specs()] == [
        "float32",
        "int32",
        "bfloat16",
        "bool",
    ]
    (output,) = module.output_specs()
    assert (output.dtype, output.nbytes) == (np.dtype(np.float32), 16)


def test_every_element_type_has_a_numpy_dtype() -> None:
    names = [
        spec.dtype.name
        for spec in HloModule.from_file(HLO / "types_small.hlo").output_specs()
    ]
    assert names == [
        "float32",
        "int8",
        "bool",
        "bfloat16",
        "bfloat16",
        "float32",
        "float16",
    ]


def test_counts() -> None:
    module = HloModule.from_text(TEXT)
    assert module.instruction_count == 5
    assert module.computation_count == 2
    assert module.opcode_counts() == {"add": 1, "call": 1, "parameter": 3}
    assert module.cost().flops == 4


def test_files_are_text_or_proto(tmp_path: Path) -> None:
    module = HloModule.from_text(TEXT)
    for name, data in {
        "a.hlo": TEXT.encode(),
        "b.txt": b"// a comment comes first\n" + TEXT.encode(),
        "c": b"\n  /* another */ " + TEXT.encode(),
        "d.pb": module.to_proto(),
        "e.bin": module.to_proto(),
    }.items():
        (tmp_path / name).write_bytes(data)
        read = HloModule.from_file(tmp_path / name)
        assert read.fingerprint() == module.fingerprint(), name
        assert as_module(str(tmp_path / name)).fingerprint() == module.fingerprint()


def test_pickle_keeps_the_module() -> None:
    module = HloModule.from_text(TEXT)
    assert pickle.loads(pickle.dumps(module)).fingerprint() == module.fingerprint()


def test_text_keeps_the_sign_of_zero() -> None:
    module = HloModule.from_text(
        """HloModule signs

ENTRY main {
  a = f32[] constant(-0)
  b = f32[2,2] constant({ { -0, 0 }, { -0.0, -0e1 } })
  c = c64[] constant((-0, 1))
  d = bf16[3] constant({-0, -0.5, -01})
  e = s32[2] constant({-0, 0})
  ROOT out = (f32[], f32[2,2], c64[], bf16[3], s32[2]) tuple(a, b, c, d, e)
}
"""
    )
    for each in (module, HloModule.from_text(module.to_text())):
        a, b, c, d, e = interpret(each)
        assert np.signbit(a)
        assert np.signbit(b).tolist() == [[True, False], [True, True]]
        assert np.signbit(c.real)
        assert np.signbit(d).tolist() == [True, True, True]
        assert e.tolist() == [0, 0]


def test_invalid_modules_parse_and_fail_to_verify() -> None:
    module = HloModule.from_text(
        """HloModule invalid

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[8] parameter(1)
  ROOT out = f32[4] add(x, y)
}
""",
        verify=False,
    )
    with pytest.raises(InvalidModuleError, match="invalid"):
        module.verify()


def test_other_input_is_not_a_module() -> None:
    for value in (3, None, b"HloModule", ["HloModule"]):
        with pytest.raises(ParseError):
            as_module(value)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="from_text"):
        HloModule()
    with pytest.raises(FileNotFoundError):
        as_module("no_such_file.hlo")


def test_a_limit_on_the_size() -> None:
    module = HloModule.from_text(TEXT)
    check_size(module, 5)
    with pytest.raises(ModuleTooLargeError, match=r"5 instructions.*4"):
        check_size(module, 4)


@pytest.mark.parametrize(
    "name", ["HloModule1", "HloModuleTest", "HloModule" + "x" * 23, "m"]
)
def test_a_proto_is_no_text_whatever_the_module_is_named(name, tmp_path) -> None:
    """The length of the name, its first byte, may be that of a space or a line break."""
    text = f"HloModule {name}\nENTRY e {{ ROOT x = f32[2] parameter(0) }}"
    module = HloModule.from_text(text)
    module.save(tmp_path / "m.pb")
    for again in (
        HloModule.from_file(tmp_path / "m.pb"),
        read_text_or_proto(module.to_bytes()),
        read_trusted(module.to_bytes()),
        pickle.loads(pickle.dumps(module)),
    ):
        assert (again.name, again.fingerprint()) == (name, module.fingerprint())
    assert read_text_or_proto(("\n\t " + text).encode()).name == name


def test_a_parse_error_quotes_a_part_of_a_long_line():
    name = "a" * 2_000_000
    text = (
        "HloModule m\nENTRY e {\n  p = f32[4] parameter(0), "
        f'metadata={{op_name="{name}"}} ROOT q = f32[4] add(p, z), b="{name}"\n}}'
    )
    with pytest.raises(ParseError) as error:
        HloModule.from_text(text)
    lines = str(error.value).splitlines()
    assert len(str(error.value)) < 2000
    quoted, mark = lines[-2:]
    assert quoted[mark.index("^") :].startswith("z), b=")


STACK = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[]}

FileNames
1 "a.py"

FunctionNames
1 "f"

FileLocations
1 {file_name_id=1 function_name_id=1 line=12 end_line=12 column=2 end_column=9}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %c = f32[] add(%a, %b)
}

%g (p: f32[4]) -> f32[] {
  %p = f32[4]{0} parameter(0)
  %z.1 = f32[] constant(0)
  ROOT %r.1 = f32[] reduce(%p, %z.1), dimensions={0}, to_apply=%add
}

ENTRY %e (x: f32[4]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %z = f32[] constant(0)
  %s = f32[] reduce(%x, %z), dimensions={0}, to_apply=%add
  %t = f32[] call(%x), to_apply=%g
  ROOT %r = f32[] add(%s, %t), metadata={op_name="r" stack_frame_id=1}
}
"""


def test_lines_of_the_source_survive_where_a_function_is_called_twice():
    module = HloModule.from_text(STACK)
    assert "12" in str(module.sources()["r"])
    again = HloModule.from_text(module.to_text())
    assert again.sources()["r"] == module.sources()["r"]
    assert again.fingerprint() == module.fingerprint()


@pytest.mark.parametrize(
    "text",
    [
        "f32[4] add(f32[4] %x, f32[4] %x.1)",
        "// HloModule m\n/* * HloModule */ ROOT r = f32[4] add(f32[4] x, f32[4] x.1)",
        '%r = f32[4]{0} add(f32[4]{0} x, f32[4]{0} y), metadata={op_name="HloModule"}',
        "f32[4] call(f32[4] x), to_apply={\n p = f32[4] parameter(0)\n"
        " ROOT d = f32[4] add(p, p)\n}",
    ],
)
def test_an_instruction_alone_is_no_scheduled_module(text):
    module = HloModule.from_text(text)
    assert "is_scheduled" not in module.to_text()
    assert run_passes(module, "dce").module.opcode_counts()["add"] == 1
    again = pickle.loads(pickle.dumps(module))
    assert again.to_text() == module.to_text()
    assert "is_scheduled" not in HloModule.from_text(text, verify=False).to_text()


def test_a_schedule_in_the_text_stays():
    text = (
        "HloModule _, is_scheduled=true\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}"
    )
    for given in (text, f"// a comment\n{text}"):
        assert "is_scheduled=true" in HloModule.from_text(given).to_text()
