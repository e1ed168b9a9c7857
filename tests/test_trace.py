# SPDX-License-Identifier: Apache-2.0
"""Episodes as data."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path

import pytest

from hloenv.env import HloEnv, replay
from hloenv.errors import TraceError
from hloenv.fuzz.laws import random_decisions
from hloenv.passes import Pass, Pipeline
from hloenv.trace import Step, Trace
from support.run_child import RunChild

HLO = Path(__file__).parent / "hlo"
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
        "from hloenv.env import replay\n"
        f"env = replay({str(tmp_path / 'trace.json')!r}, {str(START)!r})\n"
        "print(env.fingerprint(), hash(env.module.to_text()) is not None)\n",
    )
    assert child.stdout.split()[0] == env.fingerprint()


def test_a_trace_of_another_module_is_refused() -> None:
    with pytest.raises(TraceError, match="fingerprint"):
        replay(_episode().trace, HLO / "loop.hlo")


def test_a_module_with_other_names_is_refused() -> None:
    # Its fingerprint is the same, but passes may see another order.
    renamed = START.read_text().replace("half", "other_half")
    with pytest.raises(TraceError, match="text hash"):
        replay(_episode().trace, renamed)


def test_steps_that_lead_elsewhere_are_refused() -> None:
    trace = _episode().trace
    with pytest.raises(TraceError, match="fingerprint"):
        replay(dataclasses.replace(trace, steps=trace.steps[:-1]), START)


def test_an_unknown_step_is_refused() -> None:
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
        '{"format": "hloenv-trace-1", "start": 1, "end": 2, "steps": 3}',
    ],
)
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path) -> None:
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
    assert data["format"] == "hloenv-trace-1"
    assert set(data) == {"format", "start", "end", "steps", "tensorflow"}
