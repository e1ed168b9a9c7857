# SPDX-License-Identifier: Apache-2.0

"""Bad input raises a specific exception and does not crash the process.

The cases run in child processes that must end normally, so that an abort inside XLA
fails one test only.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.cases import WRITTEN
from support.children import map_in_few, map_jobs
from support.run_child import RunChild

TEXT = """HloModule small

ENTRY main {
  x = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  ROOT sum = f32[4] add(x, zeros)
}
"""

# XLA takes what its own check of the layout gives, without looking whether it failed.
LAYOUT = """HloModule layout, entry_computation_layout={()->(f32[4]{0}, f32[4]{0})}

ENTRY main {
  zero = f32[] constant(0)
  zeros = f32[4]{0} broadcast(zero), dimensions={}
  one = f32[] constant(1)
  ones = f32[4]{4611686018427387904} broadcast(one), dimensions={}
  ROOT both = (f32[4]{0}, f32[4]{0}) tuple(zeros, ones)
}
"""


@dataclass(frozen=True)
class Case:
    """Code that has to raise.

    Attributes:
        code: what a user might do; `env` is an environment on `TEXT`.
        exception: the name of the exception.
        words: what its message has to say.
    """

    code: str
    exception: str
    words: tuple[str, ...] = ()


CASES = {
    "empty": Case(
        "HloModule.from_text('')",
        "ParseError",
        ("empty",),
    ),
    "foreign text": Case(
        "HloModule.from_text('func.func @main() { return }')",
        "ParseError",
        ("HLO",),
    ),
    "no entry": Case(
        "HloModule.from_text('HloModule m')",
        "ParseError",
    ),
    "unknown opcode": Case(
        "HloModule.from_text(TEXT.replace('add', 'plus'))",
        "ParseError",
        ("plus",),
    ),
    "odd characters": Case(
        "HloModule.from_text(TEXT + chr(0) + chr(233))",
        "ParseError",
    ),
    "bytes as text": Case(
        "HloModule.from_text(b'HloModule m')",
        "ParseError",
        ("bytes",),
    ),
    "text as proto": Case(
        "HloModule.from_proto('text')",
        "ParseError",
        ("str",),
    ),
    "empty proto": Case(
        "HloModule.from_proto(b'')",
        "ParseError",
        ("0 bytes",),
    ),
    "missing file": Case(
        "as_module('no/such/file.hlo')",
        "FileNotFoundError",
        ("no/such/file.hlo",),
    ),
    "unknown pass": Case(
        "env.run('algsimpp')",
        "UnknownPassError",
        ("algsimp",),
    ),
    "a number as pass": Case(
        "env.run(3)",
        "PassOptionError",
    ),
    "unknown option": Case(
        "Pass('algsimp', nonsense=1)",
        "PassOptionError",
        ("nonsense",),
    ),
    "option type": Case(
        "Pass('algsimp', run_to_fixed_point=1)",
        "PassOptionError",
        ("bool",),
    ),
    "empty pipeline": Case(
        "Pipeline('p', [])",
        "PassOptionError",
        ("empty",),
    ),
    "iterations": Case(
        "Pipeline('p', ['algsimp'], max_iterations=0)",
        "PassOptionError",
        ("max_iterations",),
    ),
    "nothing to decide": Case(
        "env.apply_alternatives([])",
        "DecisionError",
        ("get_alternatives",),
    ),
    "half a surrogate pair": Case(
        "HloModule.from_text(TEXT + chr(0xd800))",
        "ParseError",
        ("surrogate",),
    ),
    "bytes that are no text": Case(
        "HloModule.from_text(TEXT.replace('zeros)', 'zeros), origin={{\"\\\\377\"}}'))"
        ".to_text()",
        "InvalidModuleError",
        ("UTF-8",),
    ),
    "a target that is no text": Case(
        "hloenv.HloGraph.from_module(TEXT.replace('add(x, zeros)', 'custom-call(x), '"
        "'custom_call_target=\"\\\\377\"')).custom_call_targets",
        "InvalidModuleError",
        ("UTF-8",),
    ),
    "a pass that is a list": Case(
        "Pass(['algsimp'])",
        "PassOptionError",
        ("list",),
    ),
    "a pipeline whose name is no text": Case(
        "env.run(Pipeline(chr(0xd800), ['cse']))",
        "PassOptionError",
        ("str",),
    ),
    "alternatives that are none": Case(
        "env.apply_alternatives([0], [1])",
        "ArgumentTypeError",
        ("get_alternatives", "list"),
    ),
    "a state that is none": Case(
        "env.restore(1)",
        "ArgumentTypeError",
        ("snapshot",),
    ),
    "a graph that is none": Case(
        "hloenv.graph.to_json([1])",
        "ArgumentTypeError",
        ("HloGraph", "list"),
    ),
    "decisions for a number": Case(
        "env.get_alternatives('algsimp').decisions_for(3)",
        "UnknownPassError",
        ("captured",),
    ),
    "a layout of a dimension that is not there": Case(
        "env = hloenv.HloEnv(LAYOUT)\nenv.get_alternatives('cse')",
        "InvalidModuleError",
    ),
    "too many decisions": Case(
        "env.get_alternatives('algsimp')\nenv.apply_alternatives([0, 0])",
        "DecisionError",
        ("2 decisions",),
    ),
    "no such choice": Case(
        "env.get_alternatives('algsimp')\nenv.apply_alternatives([2])",
        "DecisionError",
        ("choices 0",),
    ),
    "undecided": Case(
        "env.get_alternatives('algsimp')\nenv.apply_alternatives([-1])",
        "DecisionError",
        ("-1",),
    ),
    "float decisions": Case(
        "env.get_alternatives('algsimp')\nenv.apply_alternatives([1.0])",
        "DecisionError",
        ("integers",),
    ),
    "text decisions": Case(
        "env.get_alternatives('algsimp')\nenv.apply_alternatives('1')",
        "DecisionError",
    ),
    "stale": Case(
        "alternatives = HloEnv(TEXT).get_alternatives('algsimp')\nenv.apply_alternatives([1], alternatives)",
        "StaleAlternativesError",
        ("get_alternatives",),
    ),
    "no arrays": Case(
        "interpret(env.module)",
        "ArgumentError",
        ("takes 1",),
    ),
    "wrong shape": Case(
        "interpret(env.module, np.zeros(5, np.float32))",
        "ArgumentError",
        ("float32[4]", "[5]"),
    ),
    "wrong dtype": Case(
        "interpret(env.module, np.zeros(4))",
        "ArgumentError",
        ("float64",),
    ),
    "text as array": Case(
        "interpret(env.module, 'four')",
        "ArgumentError",
    ),
    "too large": Case(
        "hlo.module.check_size(env.module, 3)",
        "ModuleTooLargeError",
        ("4 instructions",),
    ),
    "missing trace": Case(
        "replay('no/such/trace.json', TEXT)",
        "FileNotFoundError",
    ),
    "unknown place": Case(
        "env.run_until('no-such-pass')",
        "PositionError",
        ("no-such-pass",),
    ),
    "unregistered custom call": Case(
        "module = HloModule.from_text(TEXT.replace('add(x, zeros)', 'custom-call(x, zeros), custom_call_target=\"nobody\"'))\ninterpret(module, np.zeros(4, np.float32))",
        "ExecuteError",
        ("custom-call",),
    ),
}


def run_case(code: str) -> tuple[str, str]:
    """Runs in a child: the exception's name, and its message."""
    import hloenv
    from hloenv import graph, hlo, rewrite, runtime

    env = hloenv.HloEnv(TEXT)
    before = env.module
    names = {
        **vars(graph),
        **vars(hlo),
        **vars(rewrite),
        **vars(runtime),
        "TEXT": TEXT,
        "LAYOUT": LAYOUT,
        "hloenv": hloenv,
        "hlo": hlo,
        "env": env,
        "np": np,
    }
    try:
        exec(code, names)
    except Exception as error:
        assert env.module is before, "the environment changed"
        assert hloenv.HloEnv(TEXT).run("algsimp"), "the process is no longer usable"
        return type(error).__name__, str(error)
    return "", "nothing was raised"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Any]:
    found = map_jobs(
        "test_bad_input:run_case", [(case.code,) for case in CASES.values()]
    )
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_a_specific_exception(outcomes: dict[str, Any], name: str) -> None:
    exception, message = outcomes[name].value
    assert exception == CASES[name].exception, message
    for word in CASES[name].words:
        assert word in message


def test_an_unknown_flag_in_the_environment(run_child: RunChild) -> None:
    child = run_child(
        "from hloenv.errors import FlagError\n"
        "from hloenv.hlo.module import HloModule\n"
        "try:\n"
        "    module = HloModule.from_text('HloModule m\\n\\nENTRY e {\\n"
        "  ROOT x = f32[] parameter(0)\\n}\\n')\n"
        "except FlagError as error:\n"
        "    print(error)\n",
        env={"XLA_FLAGS": "--xla_cpu_no_such_flag=true"},
    )
    assert "xla_cpu_no_such_flag" in child.stdout


def test_topk_whose_result_is_used_whole(run_child: RunChild) -> None:
    # XLA's own pass crashes there (CHECK failure).
    child = run_child(
        "from hloenv.rewrite.env import HloEnv\n"
        "env = HloEnv('''HloModule m\n\nENTRY e {\n  x = f32[4] parameter(0)\n"
        "  top = (f32[2], s32[2]) topk(x), k=2, largest=true\n"
        "  ROOT out = ((f32[2], s32[2])) tuple(top)\n}\n''')\n"
        "print(env.run('topk-decomposer'))\n"
    )
    assert child.stdout.strip() == "False"


# --- fuzzing ------------------------------------------------------------------

_TOKENS = ["", " ", "(", ")", "{", "}", ",", "=", "[", "]", "%", "0", "-1", "f32", "s4"]
_TOKENS += ["parameter", "ROOT", "while", "9223372036854775807", "tuple", "nan", "\0"]
_TOKENS += ["\n", "->", "to_apply=", "dimensions={7}", "f32[99999999999]", "1e999"]


def _mutated(text: str, rng: random.Random) -> str:
    kind = rng.randrange(5)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:
        at, to = sorted(rng.randrange(len(text)) for _ in range(2))
        return text[:at] + text[min(to, at + 30) :]
    if kind == 2:
        at = rng.randrange(len(text))
        return text[:at] + rng.choice(_TOKENS) + text[at + rng.randrange(4) :]
    lines = text.splitlines(keepends=True)
    first, second = (rng.randrange(len(lines)) for _ in range(2))
    if kind == 3:
        lines[first], lines[second] = lines[second], lines[first]
    else:
        lines.insert(first, lines[second])
    return "".join(lines)


def use_mutated(path: str, seed: int, count: int) -> Iterator[str]:
    """Runs in a child: parses mutations; yields the text before, then how it went."""
    from hloenv.errors import HloEnvError
    from hloenv.hlo.module import HloModule

    text = Path(path).read_text()
    rng = random.Random(f"{Path(path).name} {seed}")
    for _ in range(count):
        mutation = _mutated(text, rng)
        yield mutation
        try:
            module = HloModule.from_text(mutation)
            module.verify()
            module.fingerprint()
            HloModule.from_text(module.to_text())
        except HloEnvError as error:
            yield type(error).__name__
        else:
            yield "valid"


def use_mutated_proto(path: str, seed: int, count: int) -> Iterator[str]:
    """Runs in a child: as `use_mutated`, with flipped bytes of a proto."""
    from hloenv.errors import HloEnvError
    from hloenv.hlo.module import HloModule

    proto = HloModule.from_file(path).to_proto()
    rng = random.Random(f"{Path(path).name} {seed}")
    for _ in range(count):
        data = bytearray(proto)
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        mutation = bytes(
            data[: rng.randrange(len(data))] if rng.random() < 0.2 else data
        )
        yield mutation.hex()
        try:
            module = HloModule.from_proto(mutation)
            module.verify()
            module.fingerprint()
        except HloEnvError as error:
            yield type(error).__name__
        else:
            yield "valid"


def _assert_all_live(function: str, jobs: list[tuple[str, int, int]]) -> None:
    crashed = []
    for outcome in map_in_few(f"test_bad_input:{function}", jobs):
        if outcome.error:
            culprit = outcome.values[-1] if outcome.values else ""
            crashed.append(f"{jobs[outcome.index]}: {outcome.error[:400]}\n{culprit}")
        else:
            count = jobs[outcome.index][2]
            assert len(outcome.values) == 2 * count
    assert not crashed, "\n\n".join(crashed)


def test_mutated_text_never_ends_the_process() -> None:
    _assert_all_live("use_mutated", [(str(path), 0, 8) for path in WRITTEN])


def test_mutated_protos_never_end_the_process() -> None:
    _assert_all_live("use_mutated_proto", [(str(path), 0, 8) for path in WRITTEN])


@pytest.mark.fuzz
@pytest.mark.parametrize("function", ["use_mutated", "use_mutated_proto"])
def test_many_mutations(function: str) -> None:
    jobs = [(str(path), seed, 50) for path in WRITTEN for seed in range(1, 11)]
    _assert_all_live(function, jobs)


def test_random_bytes_are_no_proto(run_child: RunChild) -> None:
    child = run_child(
        "import random\n"
        "from hloenv.errors import ParseError\n"
        "from hloenv.hlo.module import HloModule\n"
        "rng, refused = random.Random(0), 0\n"
        "for size in range(300):\n"
        "    try:\n"
        "        HloModule.from_proto(rng.randbytes(size))\n"
        "    except ParseError:\n"
        "        refused += 1\n"
        "print(refused)\n"
    )
    assert child.stdout.strip() == "300"
