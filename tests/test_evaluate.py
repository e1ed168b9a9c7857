# SPDX-License-Identifier: Apache-2.0
"""Compiling, running and measuring modules."""

from __future__ import annotations

import contextlib
import gc
import threading
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv import evaluate
from hloenv.arrays import empty_aligned, perturbed
from hloenv.evaluate import compare_outputs, compile, measure, random_inputs
from hloenv.executable import Executable, time_runs
from support.run_child import RunChild

pytestmark = pytest.mark.compile

ADD = """
HloModule add
ENTRY e {
  a = f32[3,4] parameter(0)
  b = f32[3,4] parameter(1)
  ROOT r = f32[3,4] add(a, b)
}
"""


def hlo(parameters: str, body: str, extra: str = "") -> str:
    """A module whose entry has the given lines."""
    lines = "".join(f"  {line}\n" for line in body.strip().split("\n"))
    return f"HloModule m{extra}\nENTRY e {{\n  {parameters}\n{lines}}}\n"


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
    text = hlo(
        "a = f32[2] parameter(0)",
        """big = f32[3] constant({1, 2, 3})
        small = s32[] constant(7)
        ROOT r = (f32[2], f32[3], s32[], s32[]) tuple(a, big, small, small)""",
    )
    outputs = check_repeatedly(compile(text), np.array([5, 6], np.float32))
    assert [each.tolist() for each in outputs] == [[5, 6], [1, 2, 3], 7, 7]


def test_an_output_may_be_a_large_constant():
    values = ", ".join(str(i) for i in range(2000))
    text = hlo(
        "a = f32[] parameter(0)",
        f"""c = s32[2000] constant({{{values}}})
        ROOT r = (s32[2000], f32[]) tuple(c, a)""",
    )
    constant, _ = check_repeatedly(compile(text), np.array(0, np.float32))
    np.testing.assert_array_equal(constant, np.arange(2000))


def test_an_output_may_be_a_parameter_or_the_same_value_twice():
    text = hlo(
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
    text = hlo("ROOT a = f32[4] parameter(0)", "b = f32[] constant(0)")
    a = empty_aligned((4,), np.dtype(np.float32))
    a[:] = [1, 2, 3, 4]
    (out,) = check_repeatedly(compile(text), a)
    assert not np.shares_memory(out, a)


def test_tuples_go_in_and_come_out_flat():
    text = hlo(
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
        compile(hlo("a = f32[2] parameter(0)", "ROOT r = () tuple()"))(
            np.zeros(2, np.float32)
        )
        == ()
    )


def test_empty_arrays_go_in_and_come_out():
    text = hlo(
        "a = f32[0,3] parameter(0)",
        """n = f32[0,3] negate(a)
        ROOT r = (f32[0,3], f32[0,3]) tuple(n, a)""",
    )
    outputs = check_repeatedly(compile(text), np.zeros((0, 3), np.float32))
    assert [each.shape for each in outputs] == [(0, 3), (0, 3)]


def test_tokens_are_none():
    text = hlo(
        "t = token[] parameter(0)\n  a = f32[] parameter(1)",
        """u = token[] after-all(t)
        ROOT r = (token[], f32[]) tuple(u, a)""",
    )
    token, a = compile(text)(None, 3.0)
    assert token is None
    assert a == 3


@pytest.mark.parametrize("alias", ["may-alias", "must-alias"])
def test_donated_inputs_are_not_overwritten(alias: str):
    text = hlo(
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
    text = hlo(
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

    text = hlo(
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

    text = hlo(
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


def test_a_module_that_kills_the_backend_is_an_error(
    run_child: RunChild, hlo_dir: Path
):
    path = hlo_dir / "brax" / "sac_actor_grad.txt"
    child = run_child(
        f"""
import hloenv
from hloenv.evaluate import compile
try:
    compile({str(path)!r}, finish="none")
except hloenv.CompileError as error:
    print(error)
"""
    )
    assert "ended the process" in child.stdout
    assert "finish='legalize'" in child.stdout


def test_fusions_before_layout_assignment_are_tried_out_first(run_child: RunChild):
    child = run_child(
        """
import hloenv
text = '''HloModule m
ENTRY e {
  a = f32[64,32] parameter(0)
  b = f32[32,64] parameter(1)
  t = f32[32,64] transpose(a), dimensions={1,0}
  s = f32[32,64] add(t, b)
  n = f32[32,64] negate(s)
  ROOT r = f32[64,32] transpose(n), dimensions={1,0}
}'''
module = hloenv.run_passes(hloenv.HloModule.from_text(text), "fusion").module
assert "fusion" in module.opcode_counts()
try:
    hloenv.compile(module)(*hloenv.evaluate.random_inputs(module))
except hloenv.CompileError as error:
    print(error)
"""
    )
    assert child.stderr == ""


@pytest.mark.parametrize(
    ("target", "version", "advice"),
    [
        ("nobody.knows", "API_VERSION_TYPED_FFI", "hloenv.ffi.register_target"),
        ("nobody.knows", "API_VERSION_STATUS_RETURNING", "register_target"),
        ("xla_ffi_python_cpu_callback", "API_VERSION_TYPED_FFI", "calls back into"),
        ("LuDecomposition", "API_VERSION_ORIGINAL", "getrf"),
        ("hloenv.alternative", "API_VERSION_ORIGINAL", "undecided alternatives"),
    ],
)
def test_custom_calls_that_nobody_implements(target: str, version: str, advice: str):
    text = hlo(
        "a = f32[2] parameter(0)",
        f'ROOT r = f32[2] custom-call(a), custom_call_target="{target}", '
        f"api_version={version}",
    )
    with pytest.raises(hloenv.CompileError, match=advice) as error:
        compile(text)
    assert f"'{target}' (%r, 1 call)" in str(error.value)


def test_dead_custom_calls_do_not_matter():
    text = hlo(
        "a = f32[2] parameter(0)",
        """dead = f32[2] custom-call(a), custom_call_target="nobody.knows"
        ROOT r = f32[2] negate(a)""",
    )
    compile(text)


def test_modules_for_several_devices_are_refused():
    text = ADD.replace("HloModule add", "HloModule add, replica_count=2")
    with pytest.raises(hloenv.CompileError, match="2 replicas"):
        compile(text)


@pytest.mark.parametrize("name", ["gpjax/rbf_predict", "lineax/tri"])
def test_modules_that_call_lapack_run(hlo_dir: Path, name: str):
    pytest.importorskip("jaxlib")
    path = hlo_dir / f"{name}.txt"
    outputs = compile(path)(*random_inputs(path))
    assert all(np.isfinite(each).all() for each in outputs)


@pytest.mark.jax
def test_lapack_computes_what_jax_computes():
    import jax
    import jax.numpy as jnp

    def fn(a):
        q, r = jnp.linalg.qr(a)
        chol = jnp.linalg.cholesky(a @ a.T + jnp.eye(5))
        return q @ r, chol, jnp.linalg.solve(a, chol), jnp.linalg.eigvalsh(a + a.T)

    a = np.random.default_rng(0).normal(size=(5, 5)).astype(np.float32)
    text = jax.jit(fn).lower(a).compiler_ir("hlo").as_hlo_text()
    outputs = compile(text)(a)
    wanted = [np.asarray(each) for each in jax.jit(fn)(a)]
    compare_outputs(wanted, outputs, rtol=1e-3).check()


def test_four_threads_share_an_executable():
    executable = compile(ADD)
    wrong: list[int] = []

    def run(value: int) -> None:
        for _ in range(50):
            (out,) = executable(np.full((3, 4), value, "f4"), np.ones((3, 4), "f4"))
            if set(out.flat) != {value + 1}:
                wrong.append(value)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_python_runs_while_a_module_does():
    text = hlo(
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
from hloenv.evaluate import compile, random_inputs
compile({ADD!r})(*random_inputs({ADD!r}))
"""
    )
    assert child.stdout + child.stderr == ""


def test_verbose_lets_xla_speak(run_child: RunChild):
    child = run_child("import hloenv", env={"HLOENV_VERBOSE": "1"})
    assert "oneDNN" in child.stderr


# Inputs


def test_random_inputs_are_the_same_in_every_process(run_child: RunChild):
    code = f"""
from hloenv.evaluate import random_inputs
print([each.tobytes().hex() for each in random_inputs({ADD!r}, seed=5)])
"""
    here = [each.tobytes().hex() for each in random_inputs(ADD, seed=5)]
    assert run_child(code).stdout.strip() == str(here)
    assert random_inputs(ADD, seed=6)[0].tobytes() != random_inputs(ADD)[0].tobytes()


def test_integers_that_index_are_valid_indices():
    text = hlo(
        "table = f32[3,50] parameter(0)\n  i = s32[200] parameter(1)\n"
        "  j = s32[] parameter(2)\n  label = s32[200] parameter(3)\n"
        "  free = s32[200] parameter(4)",
        """k = s32[200,1] reshape(i)
        rows = f32[200,50] gather(table, k), offset_dims={1}, \
collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, \
slice_sizes={1,50}
        zero = s32[] constant(0)
        cut = f32[3,10] dynamic-slice(table, zero, j), dynamic_slice_sizes={3,10}
        iota = s32[200,100] iota(), iota_dimension=1
        wide = s32[200,100] broadcast(label), dimensions={0}
        hot = pred[200,100] compare(wide, iota), direction=EQ
        ROOT r = (f32[200,50], f32[3,10], pred[200,100], s32[200]) \
tuple(rows, cut, hot, free)""",
    )
    _, i, j, label, free = random_inputs(text)
    assert (i.min(), i.max()) == (0, 2)
    assert 0 <= j <= 40
    assert 50 < label.max() < 100
    assert (free.min(), free.max()) == (0, 7)


# Comparing


def test_nan_equals_nan_and_nothing_else():
    nan, one = np.array([1, np.nan]), np.array([1.0, 1.0])
    assert compare_outputs([nan], [nan.copy()])
    result = compare_outputs([nan, one], [nan, nan])
    assert not result.is_equal
    assert (result.leaf, result.index, result.expected) == (1, (1,), "1.0")
    with pytest.raises(hloenv.OutputMismatchError, match=r"output 1 at \[1\]: nan"):
        result.check()


@pytest.mark.parametrize(
    ("dtype", "small", "large"),
    [("f8", 1e-12, 1e-8), ("f4", 1e-6, 1e-2), ("f2", 1e-3, 0.1)],
)
def test_tolerance_depends_on_the_dtype(dtype: str, small: float, large: float):
    base = np.linspace(-1, 1, 7).astype(dtype)
    assert compare_outputs([base], [(base * (1 + small)).astype(dtype)])
    assert not compare_outputs([base], [(base * (1 + large)).astype(dtype)])


def test_cancelling_sums_are_held_to_the_leafs_scale():
    base = np.array([1000, 1e-6], np.float32)
    assert compare_outputs([base], [base + np.float32(1e-3)])


def test_integers_have_to_be_the_same():
    assert not compare_outputs([np.array([1, 2])], [np.array([1, 3])])
    assert not compare_outputs([np.array([True])], [np.array([False])])


def test_what_rounding_moves_is_allowed_to_move():
    base, moved = np.array([1.0, 2.0]), np.array([1.1, 2.0])
    assert not compare_outputs([base], [np.array([1.0, 2.2])])
    assert compare_outputs([base], [np.array([1.0, 2.2])], also=[moved])


def test_infinities_compare():
    inf = np.array([np.inf, -np.inf, 1.0])
    assert compare_outputs([inf], [inf.copy()])
    assert not compare_outputs([inf], [-inf])


def test_outputs_of_other_shapes_cannot_be_compared():
    with pytest.raises(hloenv.ArgumentError, match=r"float64\[2\], expected"):
        compare_outputs([np.zeros(3)], [np.zeros(2)])
    with pytest.raises(hloenv.ArgumentError, match="2 outputs"):
        compare_outputs([np.zeros(3)], [np.zeros(3), np.zeros(3)])


def test_perturbed_inputs_are_one_unit_away():
    (a, _) = random_inputs(ADD)
    (moved, _) = perturbed(random_inputs(ADD))
    np.testing.assert_array_max_ulp(a, moved, maxulp=1)
    assert (a != moved).all()


# Timing and measuring


def test_run_times_every_run():
    durations = compile(ADD).run(repeats=7)
    assert durations.shape == (7,)
    assert durations.dtype == np.int64
    assert (durations > 0).all()


def test_executables_are_timed_in_turns():
    executable = compile(ADD)
    times = time_runs([executable, executable], [None, None], repeats=4)
    assert [len(each) for each in times] == [4, 4]


WRONG = ADD.replace("add(a, b)", "subtract(a, b)")
OTHER_INPUTS = ADD.replace("f32[3,4]", "f32[4,3]")
UNKNOWN_CALL = ADD.replace("add(a, b)", 'custom-call(a, b), custom_call_target="x"')


def test_measure_keeps_every_duration():
    result = measure(ADD, repeats=20)
    assert result.is_ok
    assert len(result.durations_ns) == len(result.baseline_ns) == 20
    low, high = result.speedup_interval
    assert low <= result.speedup <= high
    assert result.outputs is not None
    assert result.outputs.is_equal
    assert result.check() is result
    assert result.num_threads >= 1


def test_what_fails_is_a_record_and_stops_nobody():
    results = measure(
        [ADD, WRONG, OTHER_INPUTS, UNKNOWN_CALL, ADD], baseline=ADD, repeats=5
    )
    kinds = [None if each.error is None else each.error.kind for each in results]
    assert kinds == [
        None,
        "OutputMismatchError",
        "ArgumentError",
        "CompileError",
        None,
    ]
    assert "f32[4, 3]" in results[2].error.message
    with pytest.raises(hloenv.OutputMismatchError, match="worst is output 0"):
        results[1].check()
    assert np.isnan(results[3].speedup)


def test_a_module_that_dies_takes_no_other_along(hlo_dir: Path):
    path = hlo_dir / "brax" / "sac_actor_grad.txt"
    raw = hloenv.HloModule.from_file(path)
    results = measure([raw, hloenv.finish(raw)], baseline=raw, finish="none", repeats=3)
    assert results[0].error.kind == "WorkerError"
    assert "SIGABRT" in results[0].error.message
    assert "Check failed" in results[0].error.message
    assert results[1].is_ok


LOOP = """
HloModule loop
cond { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2000000000)
  ROOT lt = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[] cosine(x)
  ROOT t = (s32[], f32[]) tuple(j, y) }
ENTRY e { x = f32[] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[]) tuple(zero, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body
  ROOT r = f32[] get-tuple-element(w), index=1 }
"""
QUICK = LOOP.replace("2000000000", "3")


def test_what_takes_too_long_is_a_record():
    results = measure([LOOP, QUICK], baseline=QUICK, repeats=3, timeout_s=5)
    assert results[0].error.kind == "MeasureTimeout"
    with pytest.raises(TimeoutError):
        results[0].check()
    assert results[1].is_ok


def test_a_baseline_that_fails_is_an_exception():
    with pytest.raises(hloenv.CompileError, match="nobody implements"):
        measure(ADD, baseline=UNKNOWN_CALL)


def test_the_memory_of_a_measurement_can_be_limited():
    text = hlo(
        "a = f32[] parameter(0)",
        """b = f32[40000,40000] broadcast(a), dimensions={}
        ROOT r = f32[40000,40000] cosine(b)""",
    )
    results = measure(
        [text.replace("40000,40000", "40,40")], max_memory_bytes=2**31, repeats=2
    )
    assert results[0].is_ok
    with pytest.raises(hloenv.HloEnvError):
        measure(text, max_memory_bytes=2**31, repeats=2)


def test_repeats_are_checked():
    with pytest.raises(hloenv.ArgumentError, match="repeats is 0"):
        measure(ADD, repeats=0)


def test_the_bootstrap_interval_holds_the_ratio():
    rng = np.random.default_rng(0)
    base = (1000 + 50 * rng.standard_normal(200)).astype(int).tolist()
    half = (500 + 25 * rng.standard_normal(200)).astype(int).tolist()
    low, high = evaluate.bootstrap_ratio(base, half)
    assert 1.9 < low < 2 < high < 2.1
    assert (low, high) == evaluate.bootstrap_ratio(base, half)


def test_real_modules_run_twice_alike(real_module_path: Path):
    module = hloenv.HloModule.from_file(real_module_path)
    opcodes = module.opcode_counts()
    if module.instruction_count > 300:
        return
    if "custom-call" in opcodes:
        # Some call what jaxlib or nobody implements; other tests are about those.
        with contextlib.suppress(hloenv.CompileError):
            compile(module)
        return
    executable = compile(module)
    inputs = random_inputs(module)
    one, other = executable(*inputs), executable(*inputs)
    assert [each.shape for each in one] == [s.shape for s in module.output_specs()]
    if not any(name.startswith("rng") for name in opcodes):
        compare_outputs(one, other).check()
