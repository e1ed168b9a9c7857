# SPDX-License-Identifier: Apache-2.0
"""Episodes as data."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from hloenv.errors import ArgumentTypeError, HloEnvError, TraceError
from hloenv.fuzz.invariants import random_decisions
from hloenv.hlo.module import HloModule
from hloenv.hlo.passes import Pass, Pipeline
from hloenv.rewrite.env import HloEnv, replay
from hloenv.rewrite.trace import ModuleId, Step, Trace, text_hash
from support.mutation import mutated_json
from support.paths import TESTDATA
from support.run_child import RunChild

HLO = TESTDATA / "hlo"
START = HLO / "simplifications.hlo"


def _episode(seed: int = 0) -> HloEnv:
    rng = random.Random(seed)
    env = HloEnv(START)
    for passes in (
        [Pass("algsimp", run_to_fixed_point=False)],
        [Pipeline("both", ["cse", "dce"], fixed_point=True), "algsimp"],
    ):
        alternatives = env.get_alternatives(*passes)
        env.apply_alternatives(random_decisions(alternatives, rng))
    env.run("logistic-expander")
    return env


def test_a_trace_lists_the_steps() -> None:
    trace = _episode().trace
    assert [step.kind for step in trace.steps] == ["decide", "decide", "run"]
    assert trace.start.fingerprint == HloEnv(START).fingerprint()
    assert trace.end.fingerprint == _episode().fingerprint()


def test_a_trace_survives_json_and_files(tmp_path: Path) -> None:
    trace = _episode().trace
    assert Trace.from_json(trace.to_json()) == trace
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace


@pytest.mark.parametrize("seed", range(5))
def test_replay_leads_to_the_same_module(seed: int) -> None:
    env = _episode(seed)
    again = replay(env.trace, START)
    assert again.module.to_text() == env.module.to_text()
    assert again.trace == env.trace


def test_replay_in_another_process(tmp_path: Path, run_child: RunChild) -> None:
    env = _episode()
    env.trace.save(tmp_path / "trace.json")
    child = run_child(
        "from hloenv.rewrite.env import replay\n"
        f"env = replay({str(tmp_path / 'trace.json')!r}, {str(START)!r})\n"
        "print(env.fingerprint(), hash(env.module.to_text()) is not None)\n",
    )
    assert child.stdout.split()[0] == env.fingerprint()


def test_a_trace_of_another_module_is_rejected() -> None:
    with pytest.raises(TraceError, match="fingerprint"):
        replay(_episode().trace, HLO / "loop.hlo")


def test_a_module_with_other_names_is_rejected() -> None:
    # Its fingerprint is the same, but passes may see another order.
    renamed = START.read_text().replace("half", "other_half")
    with pytest.raises(TraceError, match="text hash"):
        replay(_episode().trace, renamed)


def test_steps_with_another_result_are_rejected() -> None:
    trace = _episode().trace
    with pytest.raises(TraceError, match="fingerprint"):
        replay(dataclasses.replace(trace, steps=trace.steps[:-1]), START)


def test_an_unknown_step_is_rejected() -> None:
    trace = dataclasses.replace(_episode().trace, steps=(Step("fly"),))
    with pytest.raises(TraceError, match="fly"):
        replay(trace, START)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        "null",
        '{"format": "hloenv-trace-0"}',
        '{"format": "hloenv-trace-1"}',
        '{"format": "hloenv-trace-2", "start": 1, "end": 2, "steps": 3}',
        "[" * 100_000,
        '{"format": "hloenv-trace-3", "start": {}, "end": {}, "steps": []}',
    ],
)
def test_other_text_is_not_a_trace(text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError):
        Trace.from_json(text)
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(TraceError):
        replay(tmp_path / "trace.json", START)


def test_a_missing_file() -> None:
    with pytest.raises(FileNotFoundError):
        replay("no/such/trace.json", START)


def test_a_trace_is_plain_json() -> None:
    data = json.loads(_episode().trace.to_json())
    assert data["format"] == "hloenv-trace-2"
    assert set(data) == {"format", "start", "end", "steps", "tensorflow"}


def test_a_binary_file_is_not_a_trace(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_bytes(b"\xff\xfe")
    with pytest.raises(TraceError, match="UTF-8"):
        Trace.load(tmp_path / "trace.json")


def test_other_objects_are_not_traces() -> None:
    with pytest.raises(ArgumentTypeError, match="int"):
        replay(3, START)  # type: ignore[arg-type]


def test_400_mutated_traces_replay_or_are_rejected() -> None:
    env = _episode()
    env.run_until("fusion")
    text = env.trace.to_json()
    rng = random.Random(14)
    num_read = num_refused = 0
    for _ in range(400):
        mutant = mutated_json(text, rng)
        try:
            trace = Trace.from_json(mutant)
            num_read += 1
            replay(trace, START)
        except HloEnvError:
            num_refused += 1
    # Mutants of every kind: some that are refused as text, some by a step.
    assert num_read > 100
    assert num_refused > 200


# The same function, lowered from two files.
_LOWERED = """HloModule jit_f, entry_computation_layout={{(f32[4]{{0}})->f32[4]{{0}}}}

FileNames
1 "{file}"

FunctionNames
1 "f"

FileLocations
1 {{file_name_id=1 function_name_id=1 line={line} end_line={line} column=4 end_column=9}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}


ENTRY %main (x: f32[4]) -> f32[4] {{
  %x = f32[4]{{0}} parameter(0), metadata={{op_name="x"}}
  %zero = f32[] constant(0)
  %zeros = f32[4]{{0}} broadcast(%zero), dimensions={{}}
  ROOT %add = f32[4]{{0}} add(%x, %zeros), metadata={{op_name="jit(f)/add" stack_frame_id=1}}
}}
"""


def test_a_trace_does_not_depend_on_metadata() -> None:
    first = _LOWERED.format(file="/home/a/train.py", line=7)
    second = _LOWERED.format(file="/tmp/b.py", line=700)
    env = HloEnv(first)
    env.run("algsimp")
    assert HloEnv(first).module.to_text() != HloEnv(second).module.to_text()
    assert replay(env.trace, second).trace == env.trace


def test_the_text_hash_sees_names_and_order_but_no_metadata() -> None:
    module = HloModule.from_text(_LOWERED.format(file="a.py", line=7))
    bare = _LOWERED[_LOWERED.index("ENTRY") :].replace("{{", "{").replace("}}", "}")
    bare = bare.replace(', metadata={op_name="x"}', "").replace(
        ', metadata={op_name="jit(f)/add" stack_frame_id=1}', ""
    )
    bare = "HloModule jit_f\n\n" + bare
    assert text_hash(HloModule.from_text(bare)) == text_hash(module)
    renamed = HloModule.from_text(bare.replace("%zeros", "%nulls"))
    assert renamed.fingerprint() == module.fingerprint()
    assert text_hash(renamed) != text_hash(module)


def test_a_trace_of_the_first_format_replays_on_the_very_text() -> None:
    first = _LOWERED.format(file="/home/a/train.py", line=7)
    env = HloEnv(first)
    start = env.module
    env.run("algsimp")
    old = dataclasses.replace(
        env.trace,
        format="hloenv-trace-1",
        start=ModuleId.of(start, format_="hloenv-trace-1"),
        end=ModuleId.of(env.module, format_="hloenv-trace-1"),
    )
    assert old.start.text_sha256 != env.trace.start.text_sha256
    old = Trace.from_json(old.to_json())
    assert replay(old, first).fingerprint() == env.fingerprint()
    with pytest.raises(TraceError, match="text hash"):
        replay(old, _LOWERED.format(file="/tmp/b.py", line=700))


@pytest.mark.jax
def test_a_trace_of_a_jax_function_replays_on_it_from_another_file(
    tmp_path: Path, run_child: RunChild
) -> None:
    function = (
        "import jax.numpy as jnp\n"
        "def step(x):\n    return jnp.sin(x + 0.0) * jnp.sin(x + 0.0)\n"
        "def target():\n    return step, jnp.ones((4, 4))\n"
    )
    (tmp_path / "first.py").write_text(function)
    (tmp_path / "second.py").write_text("\n" * 30 + function)
    trace = tmp_path / "trace.json"
    child = (
        "from hloenv.cli.load import load_module\n"
        "from hloenv.rewrite.env import HloEnv, replay\n"
    )
    run_child(
        f"{child}env = HloEnv(load_module({str(tmp_path / 'first.py')!r} + ':target'))\n"
        f"env.run('algsimp', 'cse')\nenv.trace.save({str(trace)!r})\n"
    )
    run_child(
        f"{child}replay({str(trace)!r}, "
        f"load_module({str(tmp_path / 'second.py')!r} + ':target'))\n"
    )
