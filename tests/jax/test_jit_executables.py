# SPDX-License-Identifier: Apache-2.0
"""What jaxlib has compiled for decided functions, kept for other processes."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import compiler

import hloenv
from hloenv.jax import executables
from hloenv.jax.library import left_out_of
from hloenv.measurement.store import default_path
from hloenv.runtime.jaxlib.serialized import loading, serialize
from support import jax_outputs
from support.jit_functions import FASTER, IMAGE, KERNEL, SLOWER, depthwise

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]

_SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import jax
from jax._src import compiler
import hloenv
from support.jit_functions import IMAGE, KERNEL, depthwise

original, names = compiler.backend_compile_and_load, []
def compile(backend, module, *args):
    names.append(str(module.operation.attributes["sym_name"]))
    return original(backend, module, *args)
compiler.backend_compile_and_load = compile
other = hloenv.jit(lambda x: x * 2, budget=0)  # hloenv.jit numbers its functions
other(IMAGE)
step = hloenv.jit(depthwise)
out = step(KERNEL, IMAGE)
print(json.dumps([len(step.decided), float(out.sum()),
                  [name for name in names if "depthwise" in name]]))
"""


def _files():
    folder = default_path().parent / "executables"
    return sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def compiled(monkeypatch):
    """The names of the modules that jaxlib compiles."""
    names: list[str] = []
    original = compiler.backend_compile_and_load

    def compile(backend, module, *args):
        names.append(str(module.operation.attributes["sym_name"]))
        return original(backend, module, *args)

    monkeypatch.setattr(compiler, "backend_compile_and_load", compile)
    return names


def _in_another_process(fn, *args, **options):
    """A new function of hloenv.jit, of which nothing is in memory."""
    jax.clear_caches()
    function = hloenv.jit(fn, **options)
    return function, function(*args)


def test_another_process_compiles_nothing(verdicts):
    verdicts += [FASTER]
    expected = hloenv.jit(depthwise)(KERNEL, IMAGE)
    assert len(_files()) == 1
    tests = str(Path(__file__).parents[1])
    words = [sys.executable, "-c", _SCRIPT, tests]
    output = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    decided, total, names = json.loads(output)
    assert (decided, names) == (1, [])
    assert total == pytest.approx(float(expected.sum()), rel=1e-4)


def test_it_is_loaded_once_and_called_by_jax(verdicts, compiled):
    verdicts += [FASTER]
    expected = hloenv.jit(depthwise)(KERNEL, IMAGE)
    del compiled[:]
    function, found = _in_another_process(depthwise, KERNEL, IMAGE)
    assert_same(found, expected)
    assert_same(function(KERNEL, IMAGE), expected)
    assert not any("depthwise" in name for name in compiled)


def test_options_of_the_compiler_of_a_kept_version(verdicts, compiled, monkeypatch):
    options = {"xla_cpu_prefer_vector_width": 128}
    monkeypatch.setattr("hloenv.jax.auto.options_for", lambda module: options)
    verdicts += [FASTER, SLOWER]
    function = hloenv.jit(depthwise)
    expected = function(KERNEL, IMAGE)
    assert function.decided[0].left_out == left_out_of(options)
    del compiled[:]
    _, found = _in_another_process(depthwise, KERNEL, IMAGE)
    assert_same(found, expected)
    assert not any("depthwise" in name for name in compiled)


def test_options_that_the_user_gives_are_part_of_it(verdicts, compiled):
    def call(width):
        options = {"xla_cpu_prefer_vector_width": width}
        return _in_another_process(depthwise, KERNEL, IMAGE, compiler_options=options)

    verdicts += [FASTER, FASTER]
    call(128)
    call(256)
    assert len(_files()) == 2
    del compiled[:]
    call(128)
    assert not any("depthwise" in name for name in compiled)


def test_donations_are_part_of_it(verdicts):
    def both(kernel, x, other):
        return depthwise(kernel, x) + 1, depthwise(kernel, other)

    verdicts += [FASTER, FASTER]
    for donated in (1, 2, 1, 2):
        args = [KERNEL, jnp.array(IMAGE), jnp.array(IMAGE)]
        expected = jax.jit(both)(*args)
        _, found = _in_another_process(both, *args, donate_argnums=donated)
        assert_same(found, expected)
        assert [each.is_deleted() for each in args[1:]] == [donated == 1, donated == 2]
    assert len(_files()) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        lambda data: b"",
    ],
)
def test_a_damaged_file_is_made_again(verdicts, compiled, damage):
    verdicts += [FASTER]
    expected = hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = _files()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    del compiled[:]
    _, found = _in_another_process(depthwise, KERNEL, IMAGE)
    assert_same(found, expected)
    assert any("depthwise" in name for name in compiled)
    assert executables._read(path) is not None


def test_another_user_may_not_write_it(verdicts, compiled):
    verdicts += [FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = _files()
    path.chmod(0o622)
    del compiled[:]
    _in_another_process(depthwise, KERNEL, IMAGE)
    assert any("depthwise" in name for name in compiled)


def test_a_folder_that_cannot_be_written(verdicts):
    (default_path().parent / "executables").write_text("a file")
    verdicts += [FASTER]
    function = hloenv.jit(depthwise)
    function(KERNEL, IMAGE)
    assert len(function.decided) == 1
    again, _ = _in_another_process(depthwise, KERNEL, IMAGE)
    assert len(again.decided) == 1


def test_nothing_is_kept_of_a_plain_function_or_without_remember(verdicts):
    verdicts += [SLOWER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    hloenv.jit(depthwise, remember=False)(KERNEL, IMAGE)
    assert _files() == []


def test_what_is_kept_has_no_address(verdicts):
    def custom(kernel, x):
        y = depthwise(kernel, x)
        shape = jax.ShapeDtypeStruct((4,), jnp.float32)
        call = jax.ffi.ffi_call("address_of_this_process", shape)
        return y, call(x[0, 0, 0, :4])

    assert _path_of(custom) is None
    assert _path_of(depthwise) is not None
    assert _path_of(lambda k, x: jnp.linalg.cholesky(k[:, :, 0, 0])) is not None


def _path_of(fn):
    lowered = jax.jit(fn).lower(KERNEL, IMAGE)
    decided = types.SimpleNamespace(applied=hloenv.HloModule.from_jax(lowered))
    attempt = types.SimpleNamespace(
        replace=None, discard=None, decided=decided, options={}
    )
    return executables._path_of(attempt, lowered, {})


def test_code_that_this_jaxlib_refuses_is_not_tried_again(
    verdicts, compiled, monkeypatch
):
    """As of processors whose features jaxlib does not find again."""
    verdicts += [FASTER]
    expected = hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = _files()
    executables._write(path, b"refused")
    for _ in range(2):
        del compiled[:]
        _, found = _in_another_process(depthwise, KERNEL, IMAGE)
        assert_same(found, expected)
        assert any("depthwise" in name for name in compiled)
        assert executables._read(path) == b""
    monkeypatch.setattr(executables, "loading", None)
    _in_another_process(depthwise, KERNEL, IMAGE)


def test_threads_load_what_is_theirs():
    """A compilation of another thread, or a later one, takes nothing of them."""
    x = np.ones(3, np.float32)

    def of(factor):
        return jax.jit(lambda x: x * factor).lower(x)

    data = {factor: serialize(of(factor).compile()) for factor in range(2, 6)}
    original = compiler.backend_compile_and_load
    jax.clear_caches()
    results, barrier = {}, threading.Barrier(len(data))

    def load(factor):
        mine, later = of(factor), of(factor + 10)
        barrier.wait()
        with loading(data[factor]) as found:
            loaded = mine.compile()
            other = later.compile()
        results[factor] = found.is_loaded, loaded(x)[0], other(x)[0]

    threads = [threading.Thread(target=load, args=(each,)) for each in data]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    assert results == {each: (True, each, each + 10) for each in data}
    assert compiler.backend_compile_and_load is original


def test_old_and_large_files_are_removed(monkeypatch):
    folder = default_path().parent / "executables"
    folder.mkdir(parents=True, mode=0o700)
    ages = {"old": 40, "recent": 5, "new": 1}
    for name, days in ages.items():
        (folder / name).write_bytes(b"x" * 100)
        then = time.time() - days * 86_400
        os.utime(folder / name, (then, then))
    executables._remove_old(folder)
    assert {each.name for each in _files()} == {"recent", "new"}
    monkeypatch.setattr(executables, "_MAX_TOTAL_BYTES", 150)
    executables._remove_old(folder)
    assert [each.name for each in _files()] == ["new"]


def test_what_cannot_be_loaded_is_compiled(compiled):
    lowered = jax.jit(lambda x: x * 3).lower(np.ones(3, np.float32))
    with loading(b"not an executable"):
        function = lowered.compile()
    assert len(compiled) == 1
    assert function(np.ones(3, np.float32)).tolist() == [3, 3, 3]
    data = serialize(function)
    assert data is not None
    jax.clear_caches()
    del compiled[:]
    with loading(data):
        again = jax.jit(lambda x: x * 3).lower(np.ones(3, np.float32)).compile()
    assert compiled == []
    assert again(np.ones(3, np.float32)).tolist() == [3, 3, 3]


def test_without_serialization_nothing_is_written(verdicts, monkeypatch):
    monkeypatch.setattr(executables, "serialize", lambda compiled: None)
    verdicts += [FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    assert _files() == []
