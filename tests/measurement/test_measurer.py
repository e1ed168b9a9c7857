# SPDX-License-Identifier: Apache-2.0
"""Compiling modules and running them."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import hloenv
from hloenv.runtime.buffers import empty_aligned
from hloenv.runtime.compare import compare_outputs
from hloenv.runtime.executable import Executable, compile
from hloenv.runtime.random_inputs import random_inputs
from support.modules import ADD, entry_of
from support.threads import in_threads

if TYPE_CHECKING:
    from support.run_child import RunChild

pytestmark = pytest.mark.compile


def check_repeatedly(executable: Executable, *inputs: np.ndarray) -> list[np.ndarray]:
    """Outputs of the first of many runs; memory that is freed twice or overwritten
    later shows as a difference or a crash."""
    copies = [each.copy() for each in inputs]
    first = executable(*inputs)
    wanted = [each.copy() for each in first]
    for _ in range(20):
        again = executable(*inputs)
        for want, got in zip(wanted, again, strict=True):
            np.testing.assert_array_equal(want, got)
        for each in again:
            each.fill(1)  # ours to write, and nobody else's
        del again
        gc.collect()
    for want, got in zip(wanted, first, strict=True):
        np.testing.assert_array_equal(want, got)
    for copy, given in zip(copies, inputs, strict=True):
        np.testing.assert_array_equal(copy, given)
    return wanted


# What comes out


def test_outputs_are_the_functions_values():
    a, b = np.arange(12.0, dtype=np.float32).reshape(3, 4), np.full((3, 4), 2, "f4")
    (out,) = compile(ADD)(a, b)
    np.testing.assert_array_equal(out, a + 2)
    assert out.dtype == np.float32
    assert out.flags.writeable


def test_an_output_may_be_a_constant():
    text = entry_of(
        "a = f32[2] parameter(0)",
        """big = f32[3] constant({1, 2, 3})
        small = s32[] constant(7)
        ROOT r = (f32[2], f32[3], s32[], s32[]) tuple(a, big, small, small)""",
    )
    outputs = check_repeatedly(compile(text), np.array([5, 6], np.float32))
    assert [each.tolist() for each in outputs] == [[5, 6], [1, 2, 3], 7, 7]


def test_an_output_may_be_a_large_constant():
    values = ", ".join(str(i) for i in range(2000))
    text = entry_of(
        "a = f32[] parameter(0)",
        f"""c = s32[2000] constant({{{values}}})
        ROOT r = (s32[2000], f32[]) tuple(c, a)""",
    )
    constant, _ = check_repeatedly(compile(text), np.array(0, np.float32))
    np.testing.assert_array_equal(constant, np.arange(2000))


def test_an_output_may_be_a_parameter_or_the_same_value_twice():
    text = entry_of(
        "a = f32[4] parameter(0)",
        """n = f32[4] negate(a)
        ROOT r = (f32[4], f32[4], f32[4], f32[4]) tuple(a, n, n, a)""",
    )
    a = np.arange(4, dtype=np.float32)
    outputs = check_repeatedly(compile(text), a)
    for out, want in zip(outputs, [a, -a, -a, a], strict=True):
        np.testing.assert_array_equal(out, want)
    assert not np.shares_memory(outputs[0], outputs[3])


def test_the_whole_result_may_be_a_parameter():
    text = entry_of("ROOT a = f32[4] parameter(0)", "b = f32[] constant(0)")
    a = empty_aligned((4,), np.dtype(np.float32))
    a[:] = [1, 2, 3, 4]
    (out,) = check_repeatedly(compile(text), a)
    assert not np.shares_memory(out, a)


def test_tuples_go_in_and_come_out_flat():
    text = entry_of(
        "p = (f32[2], (s32[], f32[2])) parameter(0)",
        """a = f32[2] get-tuple-element(p), index=0
        q = (s32[], f32[2]) get-tuple-element(p), index=1
        n = s32[] get-tuple-element(q), index=0
        b = f32[2] get-tuple-element(q), index=1
        s = f32[2] add(a, b)
        inner = (f32[2], s32[]) tuple(s, n)
        ROOT r = ((f32[2], s32[]), f32[2]) tuple(inner, a)""",
    )
    executable = compile(text)
    assert [each.hlo_dtype for each in executable.input_specs] == ["f32", "s32", "f32"]
    a, b = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    outputs = check_repeatedly(executable, a, np.array(3, np.int32), b)
    assert [each.tolist() for each in outputs] == [[11, 22], 3, [1, 2]]


def test_a_module_without_outputs_runs():
    assert (
        compile(entry_of("a = f32[2] parameter(0)", "ROOT r = () tuple()"))(
            np.zeros(2, np.float32)
        )
        == ()
    )


def test_empty_arrays_go_in_and_come_out():
    text = entry_of(
        "a = f32[0,3] parameter(0)",
        """n = f32[0,3] negate(a)
        ROOT r = (f32[0,3], f32[0,3]) tuple(n, a)""",
    )
    outputs = check_repeatedly(compile(text), np.zeros((0, 3), np.float32))
    assert [each.shape for each in outputs] == [(0, 3), (0, 3)]


def test_tokens_are_none():
    text = entry_of(
        "t = token[] parameter(0)\n  a = f32[] parameter(1)",
        """u = token[] after-all(t)
        ROOT r = (token[], f32[]) tuple(u, a)""",
    )
    token, a = compile(text)(None, 3.0)
    assert token is None
    assert a == 3


@pytest.mark.parametrize("alias", ["may-alias", "must-alias"])
def test_donated_inputs_are_not_overwritten(alias: str):
    text = entry_of(
        "a = f32[64] parameter(0)\n  b = f32[64] parameter(1)",
        """s = f32[64] add(a, b)
        d = f32[64] multiply(s, b)
        ROOT r = (f32[64], f32[64]) tuple(s, d)""",
        f", input_output_alias={{ {{0}}: (0, {{}}, {alias}), "
        f"{{1}}: (1, {{}}, {alias}) }}",
    )
    inputs = []
    for value in (1, 2):
        each = empty_aligned((64,), np.dtype(np.float32))
        each.fill(value)
        inputs.append(each)
    s, d = check_repeatedly(compile(text), *inputs)
    assert set(s) == {3}
    assert set(d) == {6}


def test_outputs_outlive_their_executable():
    (out,) = compile(ADD)(np.ones((3, 4), "f4"), np.ones((3, 4), "f4"))
    gc.collect()
    assert set(out.flat) == {2}


def test_layouts_that_are_not_row_major():
    text = """
HloModule m, entry_computation_layout={(f32[2,3]{0,1})->f32[3,2]{0,1}}
ENTRY e {
  a = f32[2,3] parameter(0)
  ROOT t = f32[3,2] transpose(a), dimensions={1,0}
}
"""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    executable = compile(text)
    for each in (a, np.asfortranarray(a), a[::-1][::-1]):
        (out,) = check_repeatedly(executable, each)
        np.testing.assert_array_equal(out, a.T)


DTYPES = "pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 c64 c128 bf16"
NARROW = "s4 u4 f8e4m3fn f8e5m2 f8e4m3b11fnuz f8e4m3fnuz f8e5m2fnuz f8e4m3 f8e3m4"


@pytest.mark.parametrize("dtype", f"{DTYPES} {NARROW}".split())
def test_every_dtype_goes_through(dtype: str):
    value = {"pred": "true", "c": "(1, 0)"}.get(dtype if dtype == "pred" else dtype[0])
    text = entry_of(
        f"a = {dtype}[5,3] parameter(0)",
        f"""b = {dtype}[3,5] transpose(a), dimensions={{1,0}}
        one = {dtype}[] constant({value or 1})
        ROOT r = ({dtype}[3,5], {dtype}[5,3], {dtype}[]) tuple(b, a, one)""",
    )
    executable = compile(text)
    (a,) = random_inputs(text, seed=3)
    b, same, one = check_repeatedly(executable, a)
    assert b.dtype == a.dtype == executable.input_specs[0].dtype
    np.testing.assert_array_equal(b, a.T)
    np.testing.assert_array_equal(same, a)
    assert one == 1


def test_narrow_integers_compute():
    import ml_dtypes

    text = entry_of(
        "a = s4[7] parameter(0)\n  b = s4[7] parameter(1)", "ROOT r = s4[7] add(a, b)"
    )
    a = np.array([-8, -3, 0, 1, 2, 3, 7], ml_dtypes.int4)
    b = np.array([1, 1, -1, 2, -4, 4, -7], ml_dtypes.int4)
    (out,) = compile(text)(a, b)
    assert [int(each) for each in out] == [-7, -2, -1, 3, -2, 7, 0]


# What goes in


def test_misaligned_and_strided_inputs_are_copied():
    executable = compile(ADD)
    memory = np.zeros(12 * 4 + 4, np.uint8)
    odd = memory[4:].view(np.float32).reshape(3, 4)
    odd[:] = np.arange(12).reshape(3, 4)
    every_other = np.zeros((3, 8), np.float32)[:, ::2]
    (out,) = executable(odd, every_other)
    np.testing.assert_array_equal(out, odd)


def test_inputs_may_come_by_dlpack_or_be_python_numbers():
    class Exporter:
        """Has nothing but DLPack."""

        def __init__(self, array: np.ndarray):
            self._array = array

        def __dlpack__(self, **options: object) -> object:
            return self._array.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return self._array.__dlpack_device__()

    text = entry_of(
        "a = f32[2] parameter(0)\n  s = f32[] parameter(1)",
        """b = f32[2] broadcast(s), dimensions={}
        ROOT r = f32[2] multiply(a, b)""",
    )
    (out,) = compile(text)(Exporter(np.array([1, 2], np.float32)), 3)
    assert out.tolist() == [3, 6]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((np.zeros((3, 4), "f4"),), "takes 2 arrays.*not 1"),
        ((np.zeros((3, 4), "f4"), np.zeros((4, 3), "f4")), r"argument 1.*\[4, 3\]"),
        ((np.zeros((3, 4), "f4"), np.zeros((3, 4))), "argument 1 is float64"),
        ((np.zeros((3, 4), "f4"), np.zeros((3, 4), ">f4")), "argument 1 is >f4"),
        (([[0.0] * 4] * 3, np.zeros((3, 4), "f4")), "argument 0 is a list"),
        ((None, np.zeros((3, 4), "f4")), "argument 0 is a NoneType"),
    ],
)
def test_wrong_arguments_are_named(arrays: tuple[object, ...], message: str):
    with pytest.raises(hloenv.ArgumentError, match=message):
        compile(ADD)(*arrays)


# Compiling


def test_finish_is_checked():
    with pytest.raises(hloenv.CompileError, match="legalize, xla, none"):
        compile(ADD, finish="maybe")


def test_a_legal_module_compiles_without_passes():
    executable = compile(hloenv.finish(hloenv.HloModule.from_text(ADD)), finish="none")
    (out,) = executable(np.ones((3, 4), "f4"), np.ones((3, 4), "f4"))
    assert set(out.flat) == {2}


def test_a_module_that_crashes_the_backend_is_an_error(
    run_child: RunChild, hlo_dir: Path
):
    path = hlo_dir / "brax" / "sac_actor_grad.txt"
    child = run_child(
        f"""
import hloenv
from hloenv.runtime import compile
try:
    compile({str(path)!r}, finish="none")
except hloenv.CompileError as error:
    print(error)
"""
    )
    assert "crashed when a child process compiled" in child.stdout
    assert "finish='legalize'" in child.stdout


def test_early_fusions_that_crash_xla_are_an_error(run_child: RunChild):
    # The pass that simplifies gathers does not look into fusions, and the backend
    # ends the process at a gather that is not simplified.
    child = run_child(
        """
import hloenv
text = '''HloModule m
ENTRY e {
  table = f32[10,8] parameter(0)
  at = s32[5] parameter(1)
  rows = f32[5,8] gather(table, at), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,8}
  ROOT r = f32[5,8] negate(rows)
}'''
module = hloenv.run_passes(text, "fusion").module
assert "fusion" in module.opcode_counts()
try:
    hloenv.compile(module)
except hloenv.CompileError as error:
    print(error)
"""
    )
    assert "crashed when a child process compiled" in child.stdout
    assert child.stderr == ""


def test_early_fusions_that_xla_takes_compute_the_same():
    text = """HloModule m
ENTRY e {
  a = f32[64,32] parameter(0)
  b = f32[32,64] parameter(1)
  t = f32[32,64] transpose(a), dimensions={1,0}
  s = f32[32,64] add(t, b)
  n = f32[32,64] negate(s)
  ROOT r = f32[64,32] transpose(n), dimensions={1,0}
}"""
    module = hloenv.run_passes(text, "fusion").module
    assert "fusion" in module.opcode_counts()
    a, b = random_inputs(text)
    (out,) = compile(module)(a, b)
    np.testing.assert_array_equal(out, -(a.T + b).T)


def test_modules_for_several_devices_are_rejected():
    text = ADD.replace("HloModule add", "HloModule add, replica_count=2")
    with pytest.raises(hloenv.CompileError, match="2 replicas"):
        compile(text)


def test_four_threads_share_an_executable():
    executable = compile(ADD)

    def run(value: int) -> None:
        for _ in range(50):
            (out,) = executable(np.full((3, 4), value, "f4"), np.ones((3, 4), "f4"))
            assert set(out.flat) == {value + 1}

    in_threads(run, range(4))


def test_python_runs_while_a_module_does():
    text = entry_of(
        "a = f32[1024,1024] parameter(0)",
        """b = f32[1024,1024] dot(a, a), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}
        c = f32[1024,1024] dot(b, b), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}
        ROOT r = f32[1024,1024] dot(c, c), lhs_contracting_dims={1}, \
rhs_contracting_dims={0}""",
    )
    executable = compile(text)
    done = threading.Event()

    def run() -> None:
        for _ in range(5):
            executable(np.zeros((1024, 1024), "f4"))
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    ticks = 0
    while not done.wait(0.001):
        ticks += 1
    thread.join()
    assert ticks > 5


def test_nothing_is_printed(run_child: RunChild):
    child = run_child(
        f"""
import hloenv
from hloenv.runtime import compile, random_inputs
compile({ADD!r})(*random_inputs({ADD!r}))
"""
    )
    assert child.stdout + child.stderr == ""


def test_verbose_shows_the_log_of_xla(run_child: RunChild):
    # TensorFlow says so by itself on some processors only.
    env = {"HLOENV_VERBOSE": "1", "TF_ENABLE_ONEDNN_OPTS": "1"}
    child = run_child("import hloenv", env=env)
    assert "oneDNN" in child.stderr


def check_runs_twice_alike(module: hloenv.HloModule) -> None:
    executable = compile(module)
    inputs = random_inputs(module)
    one, other = executable(*inputs), executable(*inputs)
    assert [each.shape for each in one] == [s.shape for s in module.output_specs()]
    if not any(name.startswith("rng") for name in module.opcode_counts()):
        assert compare_outputs(one, other)


@pytest.mark.custom_calls(False)
@pytest.mark.max_instructions(400)
def test_real_modules_run_twice_alike(real_module_path: Path):
    check_runs_twice_alike(hloenv.HloModule.from_file(real_module_path))


# Custom calls that neither XLA nor jaxlib implements on the CPU.
UNIMPLEMENTED = ("LuDecomposition", "xla_ffi_python_cpu_callback")


@pytest.mark.jax
@pytest.mark.custom_calls(True)
@pytest.mark.max_instructions(300)
def test_real_modules_with_custom_calls_run_or_name_the_missing(
    real_module_path: Path,
):
    module = hloenv.HloModule.from_file(real_module_path)
    text = real_module_path.read_text()
    missing = [target for target in UNIMPLEMENTED if f'"{target}"' in text]
    if missing:
        with pytest.raises(hloenv.CompileError, match=f"'{missing[0]}'"):
            compile(module)
    else:
        check_runs_twice_alike(module)
