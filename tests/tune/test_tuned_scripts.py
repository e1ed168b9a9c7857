# SPDX-License-Identifier: Apache-2.0
"""Scripts: their functions are found, tuned, and replaced when they run again."""

from __future__ import annotations

import copy
import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ScriptError
from hloenv.jax import Artefact, JitFunction, Recipe, Tuned
from hloenv.jax.kept import keep_tuned
from hloenv.rewrite.trace import ModuleId
from hloenv.tune import recording, scripts
from hloenv.tune.api import using
from hloenv.tune.options import TuneOptions
from hloenv.tune.patching import jit_replaced
from hloenv.tune.program import program_of_function
from hloenv.tune.recording import record
from hloenv.tune.state import State
from support.run_child import run_python

pytestmark = pytest.mark.jax


def recorded(path, *argv, seconds=60.0):
    return record(path, argv, seconds=seconds)


def test_functions_are_found_with_their_calls(script):
    found = recorded(
        script(
            """
            from functools import partial
            from jax import jit

            @jax.jit
            def often(x): return x + 1

            @partial(jax.jit, static_argnames="n")
            def twice(x, n): return x * n

            once = jit(lambda x: x - 1)
            for i in range(5): often(jnp.ones(3))
            for i in range(2): twice(jnp.ones(3), n=2)
            twice(jnp.ones(3), n=3)
            often(jnp.ones(4))
            once(jnp.ones(3))
            """
        )
    )
    assert found.is_complete
    counts = sorted((each.name, each.calls) for each in found.functions)
    assert counts == [
        ("<lambda>", 1),
        ("often", 1),
        ("often", 5),
        ("twice", 1),
        ("twice", 2),
    ]
    chosen = found.worth_tuning(share=0.0, most=8)
    assert {each.name for each in chosen} == {"often", "twice"}


def test_jit_in_a_loop_and_hloenvs_jit_are_found(script):
    found = recorded(
        script(
            """
            import hloenv
            from hloenv import jit
            from hloenv.jax import jit as another

            def looped(x): return x + 1

            @hloenv.jit
            def ours(x): return x * 2

            @jit(budget=1.0, static_argnames="n")
            def static(x, n): return x * n

            numbers = hloenv.jit(lambda x: x + 3, outputs="numpy")
            for i in range(4):
                jax.jit(looped)(jnp.ones(3))
                jax.jit(looped, static_argnums=())(jnp.ones(3))
                static(ours(jnp.ones(3)), n=2)
                numbers(jnp.ones(3))
            other = another(lambda x: x - 1)
            other(jnp.ones(3))
            assert "ours" in ours.explain(), ours.explain()
            assert ours.decided == [] and ours.lower(jnp.ones(3)).as_text()
            static(jnp.ones(3), n=3)
            """
        )
    )
    assert found.is_complete
    counts = sorted((each.name, each.calls) for each in found.functions)
    assert counts == [
        *[("<lambda>", 1), ("looped", 4), ("looped", 4)],
        *[("ours", 4), ("static", 1), ("static", 4)],
    ]
    by_name = {each.name: each for each in found.functions}
    assert by_name["static"].options == {"static_argnames": "n"}
    assert not isinstance(hloenv.jit, functools.partial)
    assert hloenv.jit is hloenv.jax.jit
    assert isinstance(hloenv.jit(lambda x: x), JitFunction)


def test_numbers_among_the_arguments_are_one_signature(script):
    found = recorded(
        script(
            """
            step = jax.jit(lambda i, x: x + i)
            scaled = jax.jit(lambda x, n: x * n, static_argnums=1)
            x = jnp.ones(3)
            for i in range(6): x = step(i, x)
            for n in (2, 2, 3): scaled(x, n)
            """
        )
    )
    assert sorted(each.calls for each in found.functions) == [1, 2, 6]


def test_functions_that_are_dropped_keep_their_calls(script):
    found = recorded(
        script(
            """
            for k in range(8): jax.jit(lambda x, k=k: x + k)(jnp.ones(3))
            """
        )
    )
    assert [each.calls for each in found.functions] == [1] * 8


def test_a_script_that_uses_what_was_tuned_is_tuned_again(script):
    found = recorded(
        script(
            """
            import hloenv.tune
            hloenv.tune.use()
            step = jax.jit(lambda x: x + 1)
            for i in range(3): step(jnp.ones(3))
            """
        )
    )
    assert [each.calls for each in found.functions] == [3]


def test_functions_inside_others_belong_to_them(script):
    found = recorded(
        script(
            """
            inner = jax.jit(lambda x: x * 2)
            outer = jax.jit(lambda x: inner(x).sum())
            for i in range(3): jax.grad(outer)(jnp.ones(3)); outer(jnp.ones(3))
            """
        )
    )
    assert [(each.name, each.calls) for each in found.functions] == [("<lambda>", 3)]


def test_donated_arguments_are_kept(script):
    found = recorded(
        script(
            """
            step = jax.jit(lambda x: x + 1, donate_argnums=0)
            x = jnp.zeros(3)
            for i in range(3): x = step(x)
            """
        )
    )
    (step,) = found.functions
    assert step.args[0].tolist() == [0.0] * 3


def test_arguments_that_another_function_donates_are_kept(script):
    found = recorded(
        script(
            """
            evaluate = jax.jit(lambda w: w.sum())
            train = jax.jit(lambda w: w * 2, donate_argnums=0)
            w = jnp.ones(3)
            for i in range(3): evaluate(w); w = train(w)
            """
        )
    )
    for each in found.functions:
        assert each.args[0].tolist() == [1.0] * 3


def test_the_arguments_of_all_functions_are_limited_together(script, monkeypatch):
    monkeypatch.setattr(recording, "_MAX_KEPT_BYTES", 20)
    found = recorded(
        script(
            """
            one, two = jax.jit(lambda x: x + 1), jax.jit(lambda x: x + 2)
            for i in range(3): one(jnp.ones(3)); two(jnp.ones(3))
            """
        )
    )
    assert sorted(each.args is None for each in found.functions) == [False, True]


def test_a_script_sees_its_arguments_and_folder(script, tmp_path, monkeypatch):
    (tmp_path / "beside_it.py").write_text("value = 7")
    script(
        """
        import beside_it
        assert __name__ == "__main__" and beside_it.value == 7
        assert sys.argv == ["script.py", "--steps", "3"], sys.argv
        assert __file__ == sys.modules["__main__"].__file__ == PATH, __file__
        def f(x: None): pass
        assert f.__annotations__ == {"x": None}  # the options of others' code do not hold
        """.replace("PATH", repr(str(tmp_path / "script.py")))
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path), list(sys.argv), sys.modules["__main__"]
    assert recorded(Path("script.py"), "--steps", "3").functions == ()
    assert (sys.path, sys.argv, sys.modules["__main__"]) == before
    assert jax.jit is not None
    assert not isinstance(jax.jit(lambda x: x), JitFunction)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise KeyError('boo')", "KeyError"),
        ("sys.exit(3)", "exit code 3"),
        ("def", "SyntaxError"),
        ("import no_such_package", "no_such_package"),
    ],
)
def test_a_script_that_fails_is_an_error(script, text, reason):
    with pytest.raises(ScriptError, match=reason):
        recorded(script(text))
    assert not hasattr(jax.jit, "made")


@pytest.mark.parametrize("text", ["raise KeyError('boo')", "sys.exit(3)"])
def test_what_has_run_before_a_failure_is_tuned(script, monkeypatch, text):
    class Fake:
        state = State(None)

        def __init__(self, program, *_, **__):
            self._program = program

        def run(self):
            return Tuned(
                "step", ModuleId.of(self._program.module), Recipe(), reason="-"
            )

    monkeypatch.setattr(scripts, "Tuner", Fake)
    calls = "step = jax.jit(lambda x: jnp.sort(x))\n"
    calls += "for i in range(3): step(jnp.ones(99))\n"
    seen = []
    found = scripts.tune_script(
        script(calls + text),
        (),
        TuneOptions(),
        run_seconds=60,
        store=None,
        on_recorded=seen.append,
    )
    assert seen == [found.recording]
    assert not found.recording.is_complete
    reason = "exit code 3" if "exit" in text else "KeyError: 'boo'"
    assert reason in str(found.recording.failure)
    assert len(found.artefact.entries) == 1


def test_a_failure_is_the_reason_where_nothing_has_run_twice(script):
    path = script("jax.jit(lambda x: x + 1)(jnp.ones(3))\nraise KeyError('boo')")
    with pytest.raises(ScriptError, match="boo"):
        scripts.tune_script(path, (), TuneOptions(), run_seconds=60, store=None)


def test_ctrl_c_ends_the_script(script):
    interrupt = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    found = recorded(script(f"jax.jit(lambda x: x)(1.0)\n{interrupt}"))
    assert found.is_interrupted
    assert not found.is_complete
    with pytest.raises(KeyboardInterrupt):
        recorded(script(interrupt))


def test_an_exit_with_0_is_the_end(script):
    assert recorded(script("sys.exit()")).is_complete


@pytest.mark.parametrize("code", [0, 3])
def test_an_exit_without_cleaning_up_is_the_end(script, code):
    """In a process of its own, which it would end without a word."""
    path = script(
        f"""
        import os, threading
        step = jax.jit(lambda x: x + 1)
        for i in range(3): step(jnp.ones(3))
        if os.fork() == 0: os._exit(7)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
        os._exit({code})
        """
    )
    done = run_python(
        "-c",
        "import os, pathlib\n"
        "from hloenv.tune.recording import record\n"
        "before = os._exit\n"
        f"found = record(pathlib.Path({str(path)!r}), (), seconds=60)\n"
        "assert os._exit is before\n"
        "print(found.functions[0].calls, found.is_complete, found.failure)",
    )
    failure = f"{path} ended with exit code 3" if code else None
    assert done.stdout == f"3 {code == 0} {failure}\n", done.stderr


def test_a_missing_script_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.py"):
        recorded(tmp_path / "no.py")
    with pytest.raises(ScriptError, match="is a folder"):
        recorded(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("f(jnp.ones(3))", r"\(1 function was called in .*nothing to tune"),
        ("f(jnp.ones(3)), f(jnp.ones(4))", "1 function was called with 2 signatures"),
        ("f(jnp.ones(3)), jax.jit(lambda x: x)(1)", "2 functions were called in"),
        ("", "0 functions were called in"),
    ],
)
def test_nothing_to_tune_is_an_error(script, text, reason):
    with pytest.raises(ScriptError, match=reason):
        scripts.tune_script(
            script(f"f = jax.jit(lambda x: x)\n{text}"),
            (),
            TuneOptions(),
            run_seconds=60,
            store=None,
        )


def test_the_budget_is_divided_by_time_and_failures_are_said(script, monkeypatch):
    seen = []

    class Fake:
        def __init__(self, program, options, **_):
            seen.append((program.name, options.seconds))
            self._program = program

        state = State(None)

        def run(self):
            module = ModuleId.of(self._program.module)
            recipe = Recipe(options={"xla_cpu_prefer_vector_width": 512})
            return Tuned("big", module, recipe, speedup=2.0, interval=(1.9, 2.1))

    monkeypatch.setattr(scripts, "Tuner", Fake)
    found = scripts.tune_script(
        script(
            """
            import time
            def big(x): return jnp.sort(jnp.sin(x))
            def prints(x):
                jax.debug.callback(lambda: None)
                return jnp.sort(jnp.cos(x))
            big, prints = jax.jit(big), jax.jit(prints)
            for i in range(6): big(jnp.ones(100_000)); prints(jnp.ones(100_000))
            """
        ),
        (),
        TuneOptions(seconds=100),
        run_seconds=60,
        store=None,
    )
    by_name = {each.hot.name: each for each in found.functions}
    assert "side effects" in by_name["prints"].failure
    assert by_name["prints"].entry is None
    ((name, seconds),) = seen
    assert name == "big"
    assert 10 <= seconds < 100
    assert len(found.artefact.entries) == 1
    saved = found.calls_s - found.expected_s
    assert saved == pytest.approx(by_name["big"].hot.seconds / 2)


def test_functions_for_which_there_is_no_time_are_named(script, monkeypatch):
    class Fake:
        state = State(None)

        def __init__(self, program, *_, **__):
            self._program = program

        def run(self):
            module = ModuleId.of(self._program.module)
            return Tuned("f", module, Recipe(), reason="no", compile_s=0.5)

    monkeypatch.setattr(scripts, "Tuner", Fake)
    monkeypatch.setattr(scripts, "_MIN_SHARE", 0.0)
    found = scripts.tune_script(
        script(
            """
            fs = [jax.jit(lambda x, i=i: jnp.sort(jnp.sin(x + i))) for i in range(3)]
            for i in range(3):
                for f in fs: f(jnp.ones(100_000))
            """
        ),
        (),
        TuneOptions(seconds=20.0),
        run_seconds=60,
        store=None,
    )
    failures = [each.failure for each in found.functions]
    assert failures == ["", "", "no time: give more --seconds"]
    assert len(found.artefact.entries) == 2
    assert found.compile_s == 1.0


@pytest.mark.parametrize("is_raised", [False, True])
def test_ctrl_c_ends_the_tuning_of_the_script(script, monkeypatch, is_raised):
    names = []

    class Interrupted:
        def __init__(self, program, *_, **__):
            names.append(program.name)
            self.state = State(program, is_interrupted=len(names) == 2)
            self._module = ModuleId.of(program.module)

        def run(self):
            if is_raised and len(names) == 2:
                raise KeyboardInterrupt
            return Tuned(names[-1], self._module, Recipe(), reason="no")

    monkeypatch.setattr(scripts, "Tuner", Interrupted)
    monkeypatch.setattr(scripts, "_MIN_SHARE", 0.0)
    found = scripts.tune_script(
        script(
            """
            fs = [jax.jit(lambda x, i=i: jnp.sort(jnp.sin(x + i))) for i in range(3)]
            for i in range(3):
                for f in fs: f(jnp.ones(100_000))
            """
        ),
        (),
        TuneOptions(),
        run_seconds=60,
        store=None,
    )
    assert len(names) == 2
    assert len(found.artefact.entries) == (1 if is_raised else 2)


def wide(x):
    return jnp.tanh(x).sum()


def keep_wide():
    x = jnp.ones((64, 64))
    program = program_of_function(wide, (x,), {}, {})
    recipe = Recipe(options={"xla_cpu_prefer_vector_width": 512})
    entry = Tuned(
        "wide", ModuleId.of(program.module), recipe, "w", speedup=2.0, date="2026-11-23"
    )
    assert keep_tuned(program.key, entry) == ""
    assert Artefact((entry,)).find(program.module) == entry
    return x


@pytest.mark.compile
def test_what_is_kept_is_used_inside_using():
    x = keep_wide()
    with using():
        fast = jax.jit(wide)
        other = jax.jit(lambda x: x + 1)
        np.testing.assert_allclose(fast(x), jnp.tanh(1.0) * 4096, rtol=1e-5)
        assert other(1.0) == 2.0
        assert float(jax.grad(fast)(x)[0, 0]) == pytest.approx(1 - np.tanh(1) ** 2)
        assert jax.jit(wide) is fast  # as in a loop
        assert jax.jit(wide, donate_argnums=0) is not fast
    assert [each.tuned for each in fast.decided] == ["w"]
    assert other.decided == []


@pytest.mark.compile
@pytest.mark.parametrize("use", ["module", "line"])
def test_a_script_runs_with_what_is_kept(script, use, tmp_path):
    keep_wide()
    path = script(
        """
        def wide(x):
            return jnp.tanh(x).sum()
        wide = jax.jit(wide)
        for i in range(2): print(float(wide(jnp.ones((64, 64)))))
        print([each.tuned for each in wide.decided], sys.argv[1:])
        """
    )
    if use == "line":
        text = path.read_text()
        path.write_text("import hloenv.tune\nhloenv.tune.use()\n" + text)
    words = ["-m", "hloenv.tune"] if use == "module" else []
    done = run_python(*words, str(path), "--a")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['w'] ['--a']"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [("sys.exit(7)", 7, ""), ("sys.exit('boo')", 1, "boo\n"), ("sys.exit()", 0, "")],
)
def test_a_script_keeps_its_exit_code(script, text, code, message):
    done = run_python("-m", "hloenv.tune", str(script(text)))
    assert done.returncode == code
    assert done.stderr.endswith(message)


@pytest.mark.parametrize("kind", ["used", "recorded"])
def test_functions_are_copied_and_bound_as_those_of_jax(kind, script):
    recorder = recording._Recorder(60.0)

    def make(fn, options, plain):
        return recording._Recorded(recorder, fn, options, plain(fn, **options))

    replaced = using() if kind == "used" else jit_replaced(make)
    with replaced:

        class Model:
            def __init__(self):
                self.forward = jax.jit(lambda x: x + 1)

            @functools.partial(jax.jit, static_argnums=0)
            def scaled(self, x):
                return x * 2

        with pytest.raises(TypeError, match="fun"):
            jax.jit(fun=len)
        model = Model()
    for each in (model, copy.copy(model), copy.deepcopy(model)):
        assert each.forward is model.forward
        assert float(each.forward(1.0)) == 2.0
        assert float(each.scaled(1.0)) == 2.0
    assert model.scaled.__name__ == "scaled"
    assert "stablehlo" in model.scaled.lower(model, 1.0).as_text()


def test_running_a_script_that_fails_shows_its_own_error(script):
    path = script("def fails(): raise KeyError('boo')\nfails()")
    tuned, plain = run_python("-m", "hloenv.tune", str(path)), run_python(str(path))
    assert tuned.returncode == plain.returncode == 1
    assert plain.stderr.endswith("KeyError: 'boo'\n")
    assert tuned.stderr.endswith(plain.stderr)
    assert tuned.stderr.count("Traceback") == 1
    done = run_python("-m", "hloenv.tune")
    assert done.returncode == 2
    assert "usage" in done.stderr
