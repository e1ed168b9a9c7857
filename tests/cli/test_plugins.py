# SPDX-License-Identifier: Apache-2.0
"""User-defined policies and searches on every command."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from pathlib import Path

import pytest

import hloenv
from hloenv import _plugins
from hloenv.bench.methods import as_method
from hloenv.cli import main
from hloenv.errors import ArgumentError, ArgumentTypeError
from hloenv.hlo.python_passes import remove_pass
from hloenv.policies import base, describe_policy, get_policy, list_policies
from hloenv.rewrite.game import Game
from hloenv.search import get_search
from support.paths import TESTDATA
from support.run_child import run_python

MODULE = TESTDATA / "hlo" / "simplifications.hlo"
OWN = '''
from hloenv.policies import register_policy
from hloenv.search.base import Search

def reject(alternatives):
    """Keeps every original."""
    return alternatives.reject_all()

class Accept:
    def __call__(self, alternatives):
        return alternatives.decisions_for("algsimp")

def reject_all(game, seed):
    return 0

class Once(Search):
    """Proposes XLA's own decisions, and ends."""
    def _proposals(self):
        yield self.game.complete()

def crash(alternatives):
    import ctypes
    ctypes.string_at(0)

def leave(alternatives):
    raise SystemExit(5)

number = 3
register_policy("mine", "as reject", lambda _: reject)
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOENV_IMPORT", "")
    path = tmp_path / "own.py"
    path.write_text(OWN)
    yield path
    if "mine" in list_policies():
        base._REGISTRY.remove("mine")


def test_a_policy_of_a_file(own: Path):
    alternatives = hloenv.HloEnv(MODULE).get_alternatives("algsimp")
    assert not get_policy(f"{own}:reject")(alternatives).any()
    assert get_policy(f"{own}:Accept")(alternatives).any()
    assert describe_policy(f"{own}:reject").summary == "Keeps every original."
    assert describe_policy(f"{own}:reject").origin == str(own)


@pytest.mark.parametrize(
    ("name", "message"),
    [("nothing", "has no 'nothing'; it has"), ("number", "is a int; a policy is")],
)
def test_a_file_without_that_policy_is_an_error(own: Path, name: str, message: str):
    with pytest.raises(ArgumentError, match=message):
        get_policy(f"{own}:{name}")


@pytest.mark.parametrize(
    "text", ["1/0", "import no_such_package", "def", "raise SystemExit(0)"]
)
def test_a_file_that_fails(tmp_path: Path, text: str):
    path = tmp_path / "fails.py"
    path.write_text(text)
    with pytest.raises(_plugins.PluginError, match=r"fails\.py cannot be imported"):
        get_policy(f"{path}:policy")
    with pytest.raises(_plugins.PluginError, match="no Python file"):
        get_policy(f"{tmp_path}/missing.py:policy")


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--policy", "two", r"own\.py:two has the arguments \(a, b\), .* define it as"),
        ("--search", "two", r"define it as .*own\.py:two\(game, \*, seed\)"),
        ("--estimator", "two", r"define it as .*own\.py:two\(\*, threads, store\)"),
        ("--policy", "fails", r"own\.py:\d+: ZeroDivisionError: .* \(--verbose"),
        ("--policy", "nothing", "decisions must be one-dimensional"),
    ],
)
def test_an_error_of_own_code_names_its_place(
    own: Path, capsys, option: str, name: str, message: str
):
    with own.open("a") as file:
        file.write(
            "def two(a, b): pass\n"
            "def fails(alternatives): return 1 / 0\n"
            "def nothing(alternatives): pass\n"
        )
    command = "optimize" if option == "--policy" else "search"
    words = [command, str(MODULE), "--pass", "algsimp", option, f"{own}:{name}"]
    assert main(words) in (1, 2)
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.search(message, last)
    assert "internal error" not in last


def test_a_summary_in_the_place_of_the_maker_is_an_error():
    with pytest.raises(ArgumentTypeError, match="give name, summary, maker"):
        base.register_policy("swapped", len, "accept all")
    assert "swapped" not in list_policies()


def test_a_pass_says_where_it_comes_from(own: Path, capsys):
    own.write_text(
        "import hloenv\n@hloenv.register_pass\ndef mine(module): return module\n"
    )
    try:
        assert main(["passes", "--import", str(own), "--json"]) == 0
        rows = json.loads(capsys.readouterr().out)["passes"]
        found = {row["name"]: (row["group"], row["origin"]) for row in rows}
        assert found["mine"] == (found["mine"][0], str(own))
        assert found["mine"][0].startswith("Yours")
        assert found["substitutions"][1] == found["algsimp"][1] == "hloenv"
        assert main(["passes", "mine"]) == 0
        assert f"From {own}." in capsys.readouterr().out.replace("\n", "")
    finally:
        remove_pass("mine")


def test_a_search_of_a_file(own: Path):
    game = Game.of(hloenv.HloEnv(MODULE).get_alternatives("algsimp"))
    search = get_search(f"{own}:Once", game)
    prefix = search.ask()
    assert len(prefix) == 1
    search.tell(prefix, 1.0)
    assert search.ask() is None
    with pytest.raises(ArgumentError, match=r"must make an hloenv\.search\.Search"):
        get_search(f"{own}:reject_all", game)


def test_an_import_registers_here_and_in_children(own: Path, capsys, monkeypatch):
    monkeypatch.chdir(own.parent)
    command = ["optimize", str(MODULE), "--pass", "algsimp", "--import", "own.py"]
    assert main([*command, "--policy", "mine", "--json"]) == 0
    assert '"accepted": 0' in capsys.readouterr().out
    assert os.environ["HLOENV_IMPORT"] == str(own)
    assert main(["bench", "--list"]) == 0
    assert f"mine (from {own})" in capsys.readouterr().out.replace("\n", " ")


def test_an_entry_point_registers(own: Path, monkeypatch):
    entry = importlib.metadata.EntryPoint("own", "own_package", "hloenv.policies")
    found = importlib.metadata.EntryPoints([entry])
    monkeypatch.setattr(_plugins, "_entry_points", lambda: found)
    monkeypatch.syspath_prepend(own.parent)
    own.rename(own.with_name("own_package.py"))
    _plugins.load_entry_points.cache_clear()
    assert "mine" in list_policies()
    assert describe_policy("mine").origin == "own_package"
    own.with_name("own_package.py").write_text("1/0")
    monkeypatch.delitem(__import__("sys").modules, "own_package")
    _plugins.load_entry_points.cache_clear()
    base._REGISTRY.remove("mine")
    with pytest.warns(_plugins.PluginWarning, match=r"'own' of .* ZeroDivisionError"):
        assert "mine" not in list_policies()
    monkeypatch.undo()
    _plugins.load_entry_points.cache_clear()


def test_an_import_that_fails_is_one_line(tmp_path, capsys):
    (tmp_path / "fails.py").write_text("1/0")
    assert main(["passes", "--import", str(tmp_path / "fails.py")]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert main(["passes", "--import"]) == 2


def test_rows_of_a_file_depend_on_its_text(own: Path):
    definition = as_method(f"fusion/{own}:reject").definition
    own.write_text(OWN + "\n# changed\n")
    assert as_method(f"fusion/{own}:reject").definition != definition
    assert as_method("fusion/xla").definition == "xla in " + (
        as_method("fusion/xla").space.definition
    )


def test_optimize_and_search_have_the_same_defaults(capsys):
    assert main(["optimize", str(MODULE), "--json"]) == 0
    assert capsys.readouterr().out.count('"alternatives"') == 4
    assert main(["optimize", str(MODULE), "--until", "fusion"]) == 1
    assert "add --pass PASS" in capsys.readouterr().err


def test_a_policy_that_crashes_is_named(own):
    argv = ["optimize", str(MODULE), "-p", "algsimp", "--policy"]
    done = run_python("-m", "hloenv", *argv, f"{own}:crash")
    assert done.returncode == 1
    assert f"the command crashed (SIGSEGV), in XLA or in what {own} calls" in (
        done.stderr
    )


def test_a_policy_that_exits_is_an_error(own, capsys):
    argv = ["optimize", str(MODULE), "-p", "algsimp", "--policy"]
    assert main([*argv, f"{own}:leave"]) == 1
    line = OWN.split("\n").index("    raise SystemExit(5)") + 1
    assert f"error: {own}:{line}: sys.exit(5) is no result; raise an error\n" in (
        capsys.readouterr().err
    )
