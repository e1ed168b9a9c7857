# SPDX-License-Identifier: Apache-2.0
"""The child's requests, answered in this process: what is compiled, and when."""

from __future__ import annotations

import functools

import pytest

import hloenv
from hloenv.errors import CompileError, HloEnvError
from hloenv.measurement import worker as worker_module
from hloenv.measurement.worker import Worker

TEXT = """HloModule m
ENTRY e { p = f32[64] parameter(0) ROOT r = f32[64] NAME(p) }
"""


@pytest.fixture
def compiled(monkeypatch):
    """Names of the operations of the modules that were compiled."""
    found = []
    real = worker_module._compile

    def counted(module, request):
        found.append(next(iter(set(module.opcode_counts()) - {"parameter"})))
        return real(module, request)

    monkeypatch.setattr(worker_module, "_compile", counted)
    return found


@functools.cache
def module_of(name: str) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(TEXT.replace("NAME", name))


def ask(worker: Worker, what: str, name: str, **more):
    module = module_of(name)
    request = {"do": what, "finish": "legalize", "engine": "wheel", **more}
    return worker.answer(request, [module.to_bytes()])[0]


def time_of(worker: Worker):
    plan = {"repeats": 5, "precision": 0.1, "give_up_below": 0.0, "seconds": 1.0}
    return worker.answer({"do": "time", "keys": [1], "plan": {**plan, "seed": 0}}, [])


@pytest.mark.compile
def test_a_baseline_is_compiled_once_for_all_inputs(compiled):
    worker = Worker()
    for seeds in ([0], [1], [1, 2]):
        ask(worker, "baseline", "negate", seeds=seeds)
        assert len(worker._examples) == len(seeds)
    assert compiled == ["negate"]
    ask(worker, "baseline", "tanh", seeds=[0])
    assert compiled == ["negate", "tanh"]


@pytest.mark.compile
@pytest.mark.parametrize("takes_long", [True, False])
def test_a_large_baseline_is_not_compiled_beside_itself(
    compiled, monkeypatch, takes_long
):
    monkeypatch.setattr(worker_module, "_MAX_COMPILE_NS", 0 if takes_long else 1e12)
    worker = Worker()
    ask(worker, "baseline", "negate", seeds=[0])
    answer = ask(worker, "load", "negate", key=1)
    assert answer["outputs"]["is_bitwise"]
    assert (worker._loaded[1] is worker._baseline) == takes_long
    assert compiled == ["negate"] * (1 if takes_long else 2)
    assert len(time_of(worker)[1]) == 2
    compiled.clear()
    with pytest.raises(HloEnvError):  # other options are other code
        ask(worker, "load", "negate", key=2, options={"xla_cpu_no_such": True})
    assert compiled == ["negate"]


@pytest.mark.compile
def test_a_baseline_that_fails_leaves_the_one_before(compiled, monkeypatch):
    worker = Worker()
    ask(worker, "baseline", "negate", seeds=[0])
    counted = worker_module._compile

    def fails(module, request):
        raise CompileError("no")

    monkeypatch.setattr(worker_module, "_compile", fails)
    with pytest.raises(CompileError):
        ask(worker, "baseline", "tanh", seeds=[0])
    monkeypatch.setattr(worker_module, "_compile", counted)
    answer = ask(worker, "load", "negate", key=1)
    assert answer["outputs"]["is_bitwise"]
