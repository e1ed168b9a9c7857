# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, its exit codes, and what it saves."""

from __future__ import annotations

import json
import textwrap

import pytest

import hloenv
from hloenv.cli.arguments import parse_passes
from hloenv.cli.output import format_quantity, format_seconds
from hloenv.cli.passes import group_of
from support.modules import TWO_REWRITES

_COMMANDS = (
    *("passes", "show", "run", "alternatives", "optimize", "search", "apply", "diff"),
    *("graph", "fuzz", "store", "measure", "calibrate", "train", "rewrites"),
    "export",
)


@pytest.fixture
def run_json(run):
    """Runs a command line with --json that succeeds; returns the object."""

    def run_json(*argv: str):
        code, out, err = run(*argv, "--json")
        assert code == 0, err
        value = json.loads(out)
        assert isinstance(value, dict)
        return value

    return run_json


@pytest.mark.parametrize("command", _COMMANDS)
def test_help_of_each_command_has_examples(run, command):
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"hloenv {command}" in out.partition("examples:")[2]
    assert "--json" in out


def test_help_lists_all_commands_and_version(run):
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in _COMMANDS)
    assert run("--version")[1] == f"hloenv {hloenv.__version__}\n"


def test_passes_lists_every_pass_once_under_a_heading(run, run_json):
    _, out, _ = run("passes")
    listed = run_json("passes")["passes"]
    assert [each["name"] for each in listed] == list(hloenv.list_passes())
    starts = [line.split("  ")[0] for line in out.splitlines() if line.strip()]
    assert all(starts.count(each["name"]) == 1 for each in listed)
    groups = {group_of(each["name"]) for each in listed}
    assert len(groups) > 5
    assert all(f"\n{group}\n" in f"\n{out}" for group in groups)


def test_passes_describes_one(run, run_json):
    _, out, _ = run("passes", "algsimp")
    info = run_json("passes", "algsimp")
    assert info["class_name"] == "AlgebraicSimplifier"
    assert all(option["name"] in out for option in info["options"])


def test_show(run, run_json, model):
    shown = run_json("show", model)
    module = hloenv.HloModule.from_file(model)
    assert shown["fingerprint"] == module.fingerprint()
    assert shown["opcodes"] == module.opcode_counts()
    assert shown["inputs"] == [{"dtype": "f32", "shape": [1024]}]
    assert shown["cost"]["flops"] == module.cost().flops
    _, out, _ = run("show", model)
    assert module.fingerprint() in out
    assert "f32[1024]" in out
    _, text, _ = run("show", model, "--text")
    assert hloenv.HloModule.from_text(text).fingerprint() == module.fingerprint()


def test_show_reads_protos(run_json, model, tmp_path):
    path = tmp_path / "model.pb"
    path.write_bytes(hloenv.HloModule.from_file(model).to_proto())
    assert (
        run_json("show", str(path))["fingerprint"]
        == run_json("show", model)["fingerprint"]
    )


def test_alternatives_name_originals_and_replacements(run, run_json, model):
    found = run_json("alternatives", model, "-p", "algsimp", "-p", "cse")
    expected = hloenv.HloEnv(model).get_alternatives("algsimp", "cse")
    assert found["count"] == len(expected) == len(found["alternatives"])
    for shown, alternative in zip(found["alternatives"], expected, strict=True):
        assert len(shown["choices"]) == alternative.num_choices
        assert shown["sites"][0]["original"] == alternative.original
        passes = [tuple(choice["passes"]) for choice in shown["choices"]]
        assert passes == [choice.passes for choice in alternative.choices]
    (addition,) = (
        each for each in found["alternatives"] if each["sites"][0]["original"] == "sum"
    )
    assert [choice["expression"] for choice in addition["choices"]] == [
        "add(x, zeros)",
        "x",
    ]
    _, out, _ = run("alternatives", model, "-p", "algsimp", "-p", "cse", "--limit", "1")
    assert "add(x, zeros)" in out
    assert f"{len(expected) - 1} not shown" in out


def test_alternatives_list_added_instructions(run_json, tmp_path):
    path = tmp_path / "logistic.hlo"
    path.write_text(
        "HloModule m\n\nENTRY e {\n  x = f32[8]{0} parameter(0)\n"
        "  ROOT y = f32[8]{0} logistic(x)\n}\n",
        encoding="utf-8",
    )
    found = run_json("alternatives", str(path), "-p", "logistic-expander")
    expression = found["alternatives"][0]["choices"][1]["expression"]
    assert expression.startswith("divide(")
    assert "exponential(negate(x))" in expression


def test_passes_on_the_command_line():
    plain, options, pipeline = parse_passes(
        ["cse", "algsimp:run_to_fixed_point=false", "algsimp+cse*"]
    )
    assert plain == hloenv.Pass("cse")
    assert options == hloenv.Pass("algsimp", run_to_fixed_point=False)
    assert pipeline == hloenv.Pipeline(
        "algsimp+cse*", ["algsimp", "cse"], fixed_point=True
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("algsmp", hloenv.UnknownPassError, "did you mean 'algsimp'"),
        ("algsimp:nothing=1", hloenv.PassOptionError, "no option 'nothing'"),
        ("algsimp:run_to_fixed_point", hloenv.PassOptionError, "has no value"),
        ("algsimp:run_to_fixed_point=maybe", hloenv.PassOptionError, "type bool"),
        ("", hloenv.HloEnvError, "non-empty"),
        ("cse+", hloenv.HloEnvError, "non-empty"),
    ],
)
def test_wrong_passes_on_the_command_line(text, error, message):
    with pytest.raises(error, match=message):
        parse_passes([text])


def test_optimize_table(run, model):
    code, out, err = run(
        "optimize", model, "-p", "algsimp", "-p", "cse", "--rounds", "9"
    )
    assert code == 0
    assert "deciding" in err
    rows = {line[:20].strip(): line[20:].split() for line in out.splitlines()}
    assert rows["instructions"] == ["7", "3", "-"]
    assert all(int(cell) > 0 for cell in rows["final instructions"])
    assert "measured time" not in rows
    assert all(len(line) <= 80 for line in out.splitlines())
    assert out.startswith("round 1: ")


@pytest.mark.compile
def test_apply_replays_what_optimize_saves(run, run_json, model, tmp_path):
    saved = str(tmp_path / "decided.hlo")
    done = run_json(
        *("optimize", model, "-p", "algsimp", "-p", "cse"),
        *("--policy", "random", "--seed", "5", "--rounds", "3", "-o", saved, "--force"),
    )
    decided = hloenv.HloModule.from_file(saved)
    assert decided.fingerprint() == done["fingerprint"]
    again = str(tmp_path / "again.pb")
    replayed = run_json("apply", done["trace"], model, "-o", again)
    assert replayed["fingerprint"] == done["fingerprint"]
    assert hloenv.HloModule.from_file(again).fingerprint() == done["fingerprint"]
    code, out, _ = run("apply", done["trace"], model)
    assert code == 0
    assert done["fingerprint"] in out
    other = tmp_path / "other.hlo"
    other.write_text(TWO_REWRITES.replace("sine(sum)\n  sin2", "cosine(sum)\n  sin2"))
    code, out, err = run("apply", done["trace"], str(other))
    assert (code, out) == (1, "")
    assert "fingerprint" in err


def test_optimize_json_compares_three_variants(run_json, model):
    done = run_json("optimize", model, "-p", "cse", "--policy", "reject-all")
    original, decided, by_default = done["variants"]
    assert [each["name"] for each in done["variants"]] == [
        "original",
        "reject-all",
        "XLA's default",
    ]
    assert original["decided"] == decided["decided"]
    assert original["final"] == decided["final"]
    assert by_default["decided"] is None
    assert by_default["final"]["instructions"] > 0
    assert all(each["estimate_s"] > 0 for each in done["variants"])
    assert done["rounds"] == [
        {"alternatives": 1, "accepted": 0, "relevant": 0, "instructions": 7}
    ]


@pytest.mark.compile
def test_optimize_measures(run, run_json, model):
    argv = ("optimize", model, "-p", "algsimp", "-p", "cse", "--measure")
    done = run_json(*argv, "--repeats", "20")
    for variant in done["variants"]:
        assert variant["error"] is None
        assert variant["measured_s"] > 0
        assert variant["output_excess"] < 1
        low, high = variant["speedup_interval"]
        assert low <= variant["speedup"] <= high
    code, out, _ = run(*argv, "--repeats", "5")
    assert code == 0
    rows = {line[:20].strip(): line[20:].split() for line in out.splitlines()}
    assert len(rows["measured time"]) == 6
    assert rows["over XLA's default"][-1] == "1.000x"
    assert rows["over the original"][0] == "1.000x"


@pytest.mark.compile
def test_optimize_at_a_position(run_json, model):
    argv = ("optimize", model, "--until", "fusion", "-p", "general-fusion")
    done = run_json(*argv, "--measure", "--repeats", "5")
    assert done["until"] == "fusion"
    assert done["rounds"][0]["alternatives"] > 0
    decided = done["variants"][1]
    assert decided["error"] is None
    assert decided["output_excess"] < 1


def test_diff(run, run_json, model, tmp_path):
    other = tmp_path / "other.hlo"
    other.write_text(
        TWO_REWRITES.replace("sin2 = f32[1024]{0} sine", "sin2 = f32[1024]{0} cosine")
    )
    changed = run_json("diff", model, str(other))
    assert (changed["added"], changed["removed"], changed["changed"]) == (1, 1, 1)
    assert not changed["is_same"]
    _, out, _ = run("diff", model, str(other))
    assert "- sin2 = f32[1024]{0} sine" in out
    assert "+ sin2 = f32[1024]{0} cosine" in out
    assert "~ product = f32[1024]{0} multiply: operand 1: sin2 -> sin2" in out
    _, out, _ = run("diff", model, str(other), "--summary")
    assert "7 -> 7" in out
    assert run("diff", model, model)[:2] == (0, "no difference\n")


def test_graph(run, run_json, model, tmp_path):
    target = tmp_path / "graph.json"
    done = run_json("graph", model, "-o", str(target))
    content = json.loads(target.read_text())
    assert done["nodes"] == len(content["nodes"]) == 7
    dot = tmp_path / "graph.dot"
    code, out, _ = run("graph", model, "-p", "algsimp", "-o", str(dot))
    assert code == 0
    assert "1 alternative\n" in out
    assert dot.read_text().startswith("digraph")
    assert run("graph", model)[1].startswith("digraph")
    assert len(run_json("graph", model, "--format", "json")["nodes"]) == 7
    assert run_json("graph", model)["text"].startswith("digraph")


_FUNCTIONS = """\
import hloenv

def module():
    print("this does not belong on stdout")
    return hloenv.HloModule.from_text(TEXT)

def broken():
    raise ValueError("a reason\\nof two lines")

def leaves():
    raise SystemExit(0)
"""


def test_module_from_a_function(run, run_json, tmp_path):
    source = tmp_path / "functions.py"
    source.write_text(f"TEXT = {TWO_REWRITES!r}\n{_FUNCTIONS}", encoding="utf-8")
    assert run_json("show", f"{source}:module")["instructions"] == 7
    for function, message in (
        ("broken", "ValueError: a reason of two lines"),
        ("missing", "AttributeError"),
        ("leaves", "SystemExit"),
    ):
        code, out, err = run("show", f"{source}:{function}")
        assert (code, out) == (1, "")
        assert message in err
        assert len(err.splitlines()) == 1


@pytest.mark.jax
def test_a_function_that_needs_arguments(run, tmp_path):
    source = tmp_path / "train.py"
    source.write_text("def step(x, y, scale=1): return x + y")
    code, _, error = run("show", f"{source}:step")
    assert code == 1
    assert "needs arguments (x, y)" in error
    assert "`def step_example(): return step, x, y`" in error


def test_modules_from_jax_functions(run_json, tmp_path):
    source = tmp_path / "train.py"
    source.write_text(
        textwrap.dedent("""\
            import jax, jax.numpy as jnp

            def with_arguments():
                return jnp.dot, jnp.ones((4, 8)), jnp.ones((8, 2))

            def lowered():
                return jax.jit(jnp.sin).lower(jnp.ones(16))

            def without_inputs():
                return jnp.arange(10.0) * 2
        """),
        encoding="utf-8",
    )
    shown = run_json("show", f"{source}:with_arguments")
    assert [each["shape"] for each in shown["inputs"]] == [[4, 8], [8, 2]]
    assert "dot" in shown["opcodes"]
    assert run_json("show", f"{source}:lowered")["opcodes"]["sine"] == 1
    alone = run_json("show", f"{source}:without_inputs")
    assert alone["inputs"] == []
    assert alone["outputs"] == [{"dtype": "f32", "shape": [10]}]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["show", "/no/such/file"], "/no/such/file: No such file"),
        (["show", "."], "Is a directory"),
        (["show", "MODEL", "--max-instructions", "3"], "the limit is 3"),
        (["show", "no_such_file.py:f"], "no_such_file.py"),
        (["show", "no.such.package:f"], "No module named"),
        (["passes", "algsmp"], "did you mean 'algsimp'"),
        (["alternatives", "MODEL", "-p", "none"], "no pass is named 'none'"),
        (
            ["alternatives", "MODEL", "-p", "cse", "--until", "none"],
            "; `hloenv explore MODULE` shows the pipeline",
        ),
        (["apply", "MODEL", "MODEL"], "not a trace"),
        (["graph", "MODEL", "-o", "/no/such/folder/x.dot"], "/no/such/folder"),
        (["diff", "MODEL", "/no/such/file"], "/no/such/file"),
    ],
)
@pytest.mark.parametrize("json_flag", [(), ("--json",)])
def test_failures_are_one_line_and_exit_code_1(run, model, argv, message, json_flag):
    argv = [model if each == "MODEL" else each for each in argv]
    code, out, err = run(*argv, *json_flag)
    assert (code, out) == (1, "")
    assert err.startswith("hloenv: error: ")
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nothing"],
        ["show"],
        ["show", "x", "--max-instructions", "0"],
        ["alternatives", "x"],
        ["optimize", "x", "-p", "cse", "--policy", "none"],
        ["optimize", "x", "-p", "cse", "--rounds", "many"],
        ["graph", "x", "--format", "png"],
    ],
)
def test_wrong_usage_is_exit_code_2(run, argv):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert "usage: hloenv" in err


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["benhc"], "there is no command 'benhc'; is bench meant?"),
        (["qqq"], "there is no command 'qqq'"),
        (["bench", "--measurments=3"], "--measurments=3; is --measurements meant?"),
        (["show", "x", "--zz"], "hloenv show: error: there is no option --zz"),
        (["show", "x", "y"], "'y' is one argument too many"),
    ],
)
def test_wrong_words_are_named_with_what_is_near(run, argv, what):
    code, out, err = run(*argv)
    assert (code, out) == (2, "")
    assert what in err
    assert len(err.splitlines()) == 2


def test_nothing_shows_the_commands(run):
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "search for decisions" in err


def test_bad_modules_are_failures(run, tmp_path):
    for number, content in enumerate(
        (
            b"",
            b"HloModule broken\n\nENTRY e {",
            b"\x00\xff" * 99,
            TWO_REWRITES[:200].encode(),
        )
    ):
        path = tmp_path / f"bad{number}"
        path.write_bytes(content)
        code, out, err = run("show", str(path))
        assert (code, out) == (1, ""), content
        assert str(path) in err


def test_verbose_shows_the_traceback(run):
    _, _, err = run("show", "/no/such/file", "--verbose")
    assert "Traceback" in err
    assert "Traceback" not in run("show", "/no/such/file")[2]


def test_an_internal_error_is_one_line(run, monkeypatch):
    monkeypatch.setattr("hloenv.cli.passes.list_passes", lambda: 1 / 0)
    code, out, err = run("passes")
    assert (code, out) == (1, "")
    assert err.startswith("hloenv: error: internal error: ZeroDivisionError")
    assert len(err.splitlines()) == 1


def test_early_fusion_warns_in_terms_of_options(run, model):
    code, _, err = run("alternatives", model, "-p", "general-fusion")
    assert code == 0
    assert "hloenv: warning: " in err
    assert "--until fusion" in err


def test_formats():
    assert format_seconds(63.2e-6) == "63.2 us"
    assert format_seconds(1.5) == "1.5 s"
    assert format_seconds(2e-9) == "2 ns"
    assert format_seconds(float("nan")) == "-"
    assert format_quantity(1234567, "B") == "1.235 MB"
    assert format_quantity(0) == "0"
