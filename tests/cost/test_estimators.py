# SPDX-License-Identifier: Apache-2.0
"""Cost models by name: the registry, files of users, the commands that take one."""

from __future__ import annotations

import importlib.metadata
import json
import re
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv import _plugins
from hloenv.bench import runner
from hloenv.bench.entries import from_files
from hloenv.bench.methods import as_methods
from hloenv.cli import main
from hloenv.cost import (
    Estimate,
    Estimator,
    KernelCache,
    Rates,
    Roofline,
    UnknownEstimatorError,
    calibration,
    describe_estimator,
    get_estimator,
    list_estimators,
    open_estimator,
    registry,
)
from hloenv.cost.base import estimate_of, estimates_of
from hloenv.errors import ArgumentError
from hloenv.measurement.store import Store
from hloenv.rewrite.game import DecisionPoint, Game
from hloenv.search import get_search
from hloenv.search.driver import Budget, run_search
from support.paths import TESTDATA

MODULE = TESTDATA / "hlo" / "simplifications.hlo"
# Every module takes a second for each of its instructions.
OWN = '''
from hloenv.cost import Estimate, register_estimator

class Count:
    """Counts the instructions."""

    def __init__(self, *, threads, store):
        self.given = threads, store
        self.is_closed = False

    def estimate_many(self, modules):
        return [Estimate(float(each.instruction_count)) for each in modules]

    def close(self):
        self.is_closed = True

def fails(*, threads, store):
    return 3

number = 3
register_estimator("mine", "a second for each instruction", Count)
register_estimator("mine:SCALE", "as many seconds", lambda spec, **given: Count(**given))
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HLOENV_IMPORT", "")
    path = tmp_path / "own.py"
    path.write_text(OWN)
    yield path
    for name in ("mine", "mine:SCALE"):
        if name in (*list_estimators(), *list_estimators(families=True)):
            registry._REGISTRY.remove(name)


def test_the_estimators_have_names():
    assert list_estimators() == ("kernel-cache", "learned", "operators", "roofline")
    assert describe_estimator("kernel-cache").origin == "hloenv"
    roofline = get_estimator("roofline", threads=2)
    assert (type(roofline), roofline.threads) == (Roofline, 2)
    with open_estimator() as estimator:
        assert isinstance(estimator, KernelCache)


def test_an_unknown_estimator_is_an_error():
    with pytest.raises(UnknownEstimatorError, match="Did you mean 'roofline'"):
        get_estimator("rooflin")


def test_the_roofline_has_the_rates_of_the_calibration(tmp_path: Path):
    rates = replace(Rates(), s_per_kernel=1.0)
    with Store(tmp_path / "store.sqlite") as store:
        assert get_estimator("roofline", store=store).rates == Rates()
        store.put(calibration._key(1), asdict(rates))
        assert get_estimator("roofline", store=store).rates == rates
        assert get_estimator("roofline", store=store, threads=2).rates == Rates()


def test_an_estimator_of_a_file(own: Path):
    module = hloenv.HloModule.from_file(MODULE)
    with open_estimator(f"{own}:Count", threads=2) as estimator:
        (estimate,) = estimator.estimate_many([module])
    assert estimate.seconds == module.instruction_count
    assert (estimator.given, estimator.is_closed) == ((2, None), True)
    described = describe_estimator(f"{own}:Count")
    assert (described.summary, described.origin) == (
        "Counts the instructions.",
        str(own),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", "makes a int; it must make an estimator"),
        ("number", "is a int; it must be a class or a function"),
        ("nothing", "has no 'nothing'; it has"),
    ],
)
def test_a_file_without_that_estimator_is_an_error(own: Path, name: str, message: str):
    with pytest.raises(ArgumentError, match=message):
        get_estimator(f"{own}:{name}")


def _returning(found: object) -> Estimator:
    class Own:
        def estimate_many(self, modules):
            return found

    return Own()


def test_plain_numbers_are_seconds():
    module = hloenv.HloModule.from_file(MODULE)
    assert estimate_of(_returning([0.5]), module) == Estimate(0.5)
    two = estimates_of(_returning(np.array([1, 2])), [module, module])
    assert two == [Estimate(1.0), Estimate(2.0)]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (None, "Own.estimate_many returns None; it must return a list"),
        (0.5, "returns 0.5; it must return a list"),
        ([], "returns 0 estimates for 1 modules"),
        ([1.0, 2.0], "returns 2 estimates for 1 modules"),
        (["fast"], "a list with 'fast'; each entry must be"),
        ([True], "a list with True; each entry must be"),
    ],
)
def test_wrong_estimates_end_a_search(found: object, message: str):
    module = hloenv.HloModule.from_file(MODULE)
    search = get_search("random", Game(module, [DecisionPoint(passes=("algsimp",))]))
    with pytest.raises(ArgumentError, match=re.escape(message)):
        run_search(search, _returning(found), budget=Budget(estimates=2))


def test_an_entry_point_registers(own: Path, monkeypatch: pytest.MonkeyPatch):
    entry = importlib.metadata.EntryPoint("own", "own_costs", "hloenv.cost")
    found = importlib.metadata.EntryPoints([entry])
    monkeypatch.setattr(_plugins, "_entry_points", lambda: found)
    monkeypatch.syspath_prepend(own.parent)
    own.rename(own.with_name("own_costs.py"))
    _plugins.load_entry_points.cache_clear()
    assert "mine" in list_estimators()
    assert list_estimators(families=True) == ("learned:CHECKPOINT", "mine:SCALE")
    assert describe_estimator("mine").origin == "own_costs"
    assert get_estimator("mine:3").given == (1, None)
    monkeypatch.undo()
    _plugins.load_entry_points.cache_clear()


@pytest.mark.compile
def test_search_takes_an_estimator(own: Path, tmp_path: Path, capsys):
    command = ["search", str(MODULE), "--pass", "algsimp", "--import", str(own)]
    command += ["--estimator", "mine", "--estimates", "4", "--measurements", "2"]
    assert main([*command, "--store", str(tmp_path / "store.sqlite"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimator"] == "mine"
    estimates = {each["estimate_s"] for each in found["measured"]}
    assert len(estimates) == 2
    assert all(each >= 1 and each == int(each) for each in estimates)


@pytest.mark.compile
def test_optimize_takes_an_estimator(own: Path, tmp_path: Path, capsys):
    command = ["optimize", str(MODULE), "--pass", "algsimp", "--no-store"]
    command += ["--policy", "greedy-kernels", "--estimator", f"{own}:Count", "--json"]
    assert main(command) == 0
    found = json.loads(capsys.readouterr().out)
    # The policy decides for the fewest instructions, and the table has their number.
    assert [each["estimate_s"] for each in found["variants"][:2]] == [
        each["decided"]["instructions"] for each in found["variants"][:2]
    ]
    fewest = hloenv.HloEnv(MODULE).get_alternatives("algsimp").module
    assert found["variants"][1]["estimate_s"] <= fewest.instruction_count


@pytest.mark.compile
def test_bench_takes_an_estimator(own: Path, tmp_path: Path):
    entries = from_files([MODULE])
    plan = runner.Plan(
        methods=as_methods(["fusion/best-rule", "fusion/xla"]),
        estimator=f"{own}:Count",
    )
    keys = {
        name: runner._key(entries[0], name, 0, plan)
        for name in ("fusion/best-rule", "fusion/xla")
    }
    with Store(tmp_path / "store.sqlite") as store:
        rows = {row.method: row for row in runner.run(entries, plan, store)}
    assert [each.error for each in rows.values()] == ["", ""]
    # Rows of another estimator, or of another text of its file, are other rows.
    own.write_text(OWN + "\n# changed\n")
    for other in (plan, replace(plan, estimator="roofline")):
        assert (
            runner._key(entries[0], "fusion/best-rule", 0, other)
            != (keys["fusion/best-rule"])
        )
        assert runner._key(entries[0], "fusion/xla", 0, other) == keys["fusion/xla"]


WEIGHTS = """HloModule weights
ENTRY e {{
  x = f32[64,64] parameter(0)
  w = f32[64,64] {weights}
  v = f32[64,64] {weights_too}
  both = f32[64,128] concatenate(w, v), dimensions={{1}}
  scaled = f32[64,128] multiply(both, both)
  ROOT y = f32[64,128] dot(x, scaled), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.filterwarnings("ignore::hloenv.errors.ConstantsWarning")
def test_what_is_done_to_constants_is_free_as_it_is_done_once():
    """For the sum of operators."""

    def seconds(weights, weights_too):
        text = WEIGHTS.format(weights=weights, weights_too=weights_too)
        (found,) = get_estimator("operators").estimate_many(
            [hloenv.HloModule.from_text(text)]
        )
        return found.seconds

    dot = """HloModule dot
    ENTRY e { x = f32[64,64] parameter(0)
      w = f32[64,128] constant({...})
      ROOT y = f32[64,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
    }"""
    (alone,) = get_estimator("operators").estimate_many(
        [hloenv.HloModule.from_text(dot)]
    )
    constants = seconds("constant({...})", "constant({...})")
    assert constants == alone.seconds
    assert seconds("constant({...})", "parameter(1)") > constants
    assert seconds("parameter(1)", "parameter(2)") > constants
