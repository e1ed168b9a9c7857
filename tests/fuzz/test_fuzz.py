# SPDX-License-Identifier: Apache-2.0
"""Random episodes: drawing, checks, reduction, saving and replay."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hloenv
from hloenv.cli import main
from hloenv.fuzz import cases, episode, invariants
from hloenv.fuzz.campaign import Campaign, Limits
from hloenv.fuzz.cases import Case, random_case, random_step
from hloenv.fuzz.generator.module import KINDS, random_module
from hloenv.fuzz.invariants import StructureChecker, parse
from hloenv.fuzz.matrix import load
from hloenv.fuzz.reducer import Suspect, reduce
from hloenv.fuzz.reducer_edits import apply, edits
from hloenv.fuzz.reproducers import Failure, read_case, save
from hloenv.hlo.passes import Pipeline, pass_names
from hloenv.process.forkserver import Job, Outcome, Pool, note
from hloenv.rewrite.trace import Step
from support.cases import WRITTEN
from support.children import map_in_few
from support.modules import RESHAPED_FUSION
from support.paths import TESTDATA

_REGRESSIONS = TESTDATA / "regressions"


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(workers=2) as pool:
        yield pool


# --- what is drawn ------------------------------------------------------------


def test_a_seed_is_a_module() -> None:
    assert random_module(3) == random_module(3)
    assert random_module(3, kind="wide") == random_module(3, kind="wide")
    assert random_module(3) != random_module(4)
    assert load("seed:3:40").to_text() == load("seed:3").to_text()


def test_modules_are_valid_and_cover_the_opcodes() -> None:
    found: set[str] = set()
    for seed in range(120):
        module = load(f"wide:{seed}:20")
        module.verify()
        found |= module.opcode_counts().keys()
    missing = set(hloenv.opcodes()) - found
    # What is still missing takes part in no pass, or in one of another backend's.
    assert len(missing) <= 12, sorted(missing)


def test_modules_of_large_arrays_reach_the_rules_for_real_sizes() -> None:
    assert random_module(3, kind="grid") == random_module(3, kind="grid")
    passes = ("fusion-cuts", "reduce-forms", "convolution-forms")
    found: set[tuple[str, str]] = set()
    for seed in range(80):
        module = load(f"grid:{seed}:12", "inlined")
        module.verify()
        for name in passes:
            alternatives = hloenv.HloEnv(module).get_alternatives(name)
            found |= {(name, c.rule) for each in alternatives for c in each.choices[1:]}
    cuts = ("bounded", "halo", "repeated", "rounds")
    assert {("fusion-cuts", rule) for rule in cuts} <= found
    assert ("convolution-forms", "toeplitz") in found
    assert ("reduce-forms", "prefixes") in found
    num_rules = {name: sum(each[0] == name for each in found) for name in passes}
    assert num_rules["convolution-forms"] >= 4, num_rules
    assert num_rules["reduce-forms"] >= 4, num_rules


def test_a_case_is_the_same_everywhere() -> None:
    paths = [str(path) for path in WRITTEN]
    cases = [random_case(1, number, paths) for number in range(50)]
    assert cases == [random_case(1, number, paths) for number in range(50)]
    assert len({case.source for case in cases}) > 25
    assert {case.source.partition(":")[0] for case in cases} >= set(KINDS)
    assert any(case.source in paths for case in cases)


def test_every_pass_is_drawn_with_options_and_in_pipelines() -> None:
    rng = random.Random(0)
    drawn = [each for _ in range(4000) for each in random_step(rng, ())]
    assert pass_names(drawn) == set(hloenv.list_passes())
    assert any(len(each.passes) > 1 and each.fixed_point for each in drawn)
    options = {key for p in drawn for s in p.passes for key, _ in s.options}
    known = {
        o.name for n in hloenv.list_passes() for o in hloenv.describe_pass(n).options
    }
    assert len(options) > 0.9 * len(known)


def test_passes_can_be_chosen() -> None:
    rng = random.Random(0)
    drawn = [each for _ in range(50) for each in random_step(rng, ["cse", "dce"])]
    assert pass_names(drawn) == {"cse", "dce"}


def test_options_that_change_values_are_known() -> None:
    fast = Pipeline("p", [hloenv.Pass("algsimp", enable_fast_math=True)])
    assert cases.is_unsafe(fast)
    assert cases.is_unsafe(Pipeline("outer", ["cse", fast]))
    assert not cases.is_unsafe(Pipeline("p", ["algsimp"]))
    for name, options in cases._UNSAFE.items():
        known = {option.name for option in hloenv.describe_pass(name).options}
        assert options <= known


# --- what is found ------------------------------------------------------------

_SINES = """HloModule sines

helper {
  a = f32[4] parameter(0)
  b = f32[4] negate(a)
  ROOT c = f32[4] add(b, b)
}

ENTRY main {
  x = f32[4] parameter(0)
  y = f32[4] parameter(1)
  sum = f32[4] add(x, y)
  called = f32[4] call(sum), to_apply=helper
  first = f32[4] sine(called)
  second = f32[4] sine(called)
  both = f32[4] multiply(first, second)
  more = f32[4] exponential(both)
  ROOT out = (f32[4], f32[4]) tuple(both, more)
}
"""


def faulty_case(case: Case) -> Iterator[Any]:
    """Runs in a child: as `run_case`, and an invariant breaks wherever cse finds something."""
    for event in episode.run_case(case):
        yield event
        if isinstance(event, episode.Decided) and event.num_alternatives:
            yield episode.Broken("invariant 4: 'cse#0' is said to be wrong")


def dying_case(case: Case) -> Iterator[Any]:
    """Runs in a child and crashes it."""
    yield episode.Start(())
    yield episode.StepStarted(Step("decide", (Pipeline("p", ["cse"]).to_json(),)))
    note("capture p")
    os.abort()


def native_death(case: Case) -> Iterator[Any]:
    """Runs in a child: XLA's own pass crashes."""
    yield episode.Start(())
    note("native p")
    os.abort()


def slow_case(case: Case) -> Iterator[Any]:
    """Runs in a child: times out once, or every time."""
    yield episode.Start(())
    yield episode.StepStarted(Step("decide", (Pipeline("p", ["cse"]).to_json(),)))
    note("capture p")
    been_here = Path(os.environ["HLOENV_TEST_BEEN_HERE"])
    is_late = not been_here.exists() or os.environ["HLOENV_TEST_LATE"] == "always"
    been_here.touch()
    time.sleep(60 if is_late else 0)


def breaks_with_two_sines(suspect: Suspect) -> tuple[int, ...] | None:
    """Runs in a child: the invariant is that no module holds two sines."""
    try:
        module = hloenv.HloModule.from_text(suspect.text)
        module.verify()
    except hloenv.HloEnvError:
        return None
    passes = pass_names(Pipeline.from_json(each) for each in suspect.passes)
    is_broken = module.opcode_counts().get("sine", 0) >= 2 and "cse" in passes
    return (1,) if is_broken else None


def test_a_broken_invariant_is_found_and_saved(tmp_path: Path) -> None:
    campaign = Campaign(names=["cse"], output=tmp_path, limits=Limits(reduce_s=2))
    campaign._function = "test_fuzz:faulty_case"
    summary = campaign.run(cases=12)
    assert summary.cases == 12
    assert summary.broken["invariant 4"] > 0
    assert 1 <= len(summary.failures) <= 2  # the others are of the same kind
    case = read_case(Path(summary.failures[0].path))
    assert case.steps
    assert case.steps[-1].decisions


@pytest.mark.parametrize(
    ("function", "broken", "died"),
    [("dying_case", {"crash: capture": 3}, 0), ("native_death", {}, 3)],
)
def test_a_crash_is_attributed_to_hloenv_or_xla(
    function: str, broken: dict[str, int], died: int
) -> None:
    campaign = Campaign(limits=Limits(reduce_s=1))
    campaign._function = f"test_fuzz:{function}"
    summary = campaign.run(cases=3)
    assert summary.cases == 3
    assert dict(summary.broken) == broken
    assert sum(summary.died.values()) == died


@pytest.mark.parametrize(("late", "broken"), [("once", 0), ("always", 1)])
def test_a_timed_out_case_is_repeated_with_more_time(
    late: str, broken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOENV_TEST_BEEN_HERE", str(tmp_path / "been_here"))
    monkeypatch.setenv("HLOENV_TEST_LATE", late)
    campaign = Campaign(limits=Limits(timeout_s=1.0, reduce_s=1.0))
    campaign._function = "test_fuzz:slow_case"
    summary = campaign.run(cases=1)
    assert summary.cases == 1
    assert sum(summary.broken.values()) == broken


def test_a_budget_of_time_ends_a_campaign() -> None:
    summary = Campaign(seed=5, names=["cse"]).run(seconds=1.5)
    assert summary.cases > 0
    assert 1.5 <= summary.seconds < 20


# --- how it is reduced --------------------------------------------------------


def test_a_reduction_keeps_what_matters(pool: Pool) -> None:
    text = hloenv.HloModule.from_text(_SINES).to_text()
    passes = [
        Pipeline("a", ["dce"]),
        Pipeline("b", ["algsimp", "cse"], fixed_point=True),
    ]
    suspect = Suspect(text, tuple(each.to_json() for each in passes), (), "invariant 9")
    smaller, is_reduced = reduce(
        pool, suspect, seconds=60, function="test_fuzz:breaks_with_two_sines"
    )
    assert is_reduced
    assert smaller.decisions == (1,)
    (only,) = smaller.passes
    assert [step["pass"] for step in only["passes"]] == ["cse"]
    assert not only["fixed_point"]
    module = hloenv.HloModule.from_text(smaller.text)
    assert module.opcode_counts()["sine"] == 2
    assert module.instruction_count <= 4


def test_an_unreproducible_case_is_returned_unchanged(pool: Pool) -> None:
    suspect = Suspect(_SINES, (Pipeline("a", ["dce"]).to_json(),), (), "invariant 3")
    assert reduce(pool, suspect, seconds=10) == (suspect, False)


def _smaller(path: Path) -> list[str]:
    text = load(str(path)).to_text()
    results = [apply(text, edit) for edit in edits(text)[:40]]
    smaller = [each for each in results if each is not None]
    assert all(len(each) < len(text) for each in smaller)
    return smaller


def count_valid(path: Path) -> Iterator[int]:
    """Runs in a child, as some texts crash XLA: counts valid modules."""
    valid = 0
    for text in _smaller(path):
        try:
            hloenv.HloModule.from_text(text).verify()
            valid += 1
        except hloenv.HloEnvError:
            continue
        yield valid


@pytest.fixture(scope="module")
def valid_edits() -> dict[Path, Outcome]:
    jobs = [(path,) for path in WRITTEN]
    return dict(zip(WRITTEN, map_in_few("test_fuzz:count_valid", jobs), strict=True))


@pytest.mark.parametrize("path", WRITTEN, ids=lambda path: path.stem)
def test_edits_make_smaller_modules(
    valid_edits: dict[Path, Outcome], path: Path
) -> None:
    outcome = valid_edits[path]
    assert outcome.values, outcome.error or "none is valid"


# --- how it is saved ----------------------------------------------------------


def test_a_saved_case_is_a_trace_and_a_module(
    pool: Pool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = hloenv.HloEnv(_SINES)
    env.run("call-inliner")
    alternatives = env.get_alternatives("cse")
    env.apply_alternatives([1] * len(alternatives))
    case = Case(_SINES, steps=env.trace.steps)
    failure = save(
        pool,
        tmp_path,
        case,
        Failure("invariant 4", "invariant 4: as a test", "0", True),
    )
    path = Path(failure.path)
    again = read_case(path)
    assert again.steps == case.steps
    assert hloenv.HloModule.from_text(again.source).fingerprint() == (
        hloenv.HloModule.from_text(_SINES).fingerprint()
    )
    module = str(path.with_suffix(".hlo"))
    assert main(["apply", str(path), module]) == 0
    assert main(["fuzz", "--replay", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out.partition("\n")[2])
    assert shown["broken"] == {}
    assert shown["captures"] == 1


@pytest.mark.parametrize("content", ["", "{}", '{"format": "hloenv-trace-1"}'])
def test_other_traces_are_an_error(
    tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "case.json"
    path.write_text(content)
    assert main(["fuzz", "--replay", str(path)]) == 1
    assert str(path) in capsys.readouterr().err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["fuzz", "--cases", "4", "-p", "cse", "-o", str(tmp_path / "failures")]
    assert main(argv) == 0
    assert "4 cases" in capsys.readouterr().out
    assert not (tmp_path / "failures").exists()
    assert main(["fuzz", "-p", "csee"]) == 1
    assert "cse" in capsys.readouterr().err
    assert main(["fuzz", str(tmp_path / "nowhere")]) == 1
    assert "nowhere" in capsys.readouterr().err
    assert main(["fuzz", str(tmp_path)]) == 1
    assert "--max-kb" in capsys.readouterr().err


@pytest.mark.needs("pyarrow")
def test_the_command_draws_from_the_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--cases", "3", "-p", "cse", "--max-kb", "10", "-o", str(tmp_path)]
    assert main(["fuzz", "dataset:validation", *options]) == 0
    assert "3 cases" in capsys.readouterr().out
    assert main(["fuzz", "dataset:nothing", *options]) == 1
    assert "nothing" in capsys.readouterr().err


def test_a_share_of_the_cases_takes_real_modules() -> None:
    def sources(share: float) -> list[str]:
        cases = [
            random_case(1, number, ["real"], real_share=share) for number in range(40)
        ]
        return [case.source for case in cases]

    assert set(sources(1.0)) == {"real"}
    assert "real" not in sources(0.0)
    assert 0 < sources(0.5).count("real") < 40


# --- invariants ---------------------------------------------------------------------


def _saved(folder: Path) -> list[Any]:
    return [pytest.param(path, id=path.stem) for path in sorted(folder.glob("*.json"))]


@pytest.mark.parametrize("path", _saved(_REGRESSIONS))
def test_regressions_stay_fixed(path: Path) -> None:
    summary = Campaign().check(read_case(path))
    assert not summary.broken, [each.violation for each in summary.failures]
    assert not summary.died


def _assert_invariants(campaign: Campaign) -> None:
    found = [f"{each.seed}: {each.violation}" for each in campaign.summary.failures]
    assert not found, "\n\n".join(found)
    assert not campaign.summary.broken
    assert not campaign.summary.died


def test_random_episodes_keep_the_invariants() -> None:
    paths = [str(path) for path in WRITTEN]
    campaign = Campaign(seed=11, sources=paths, jobs=2, limits=Limits(reduce_s=2))
    summary = campaign.run(cases=60)
    _assert_invariants(campaign)
    assert summary.cases == 60
    assert summary.checked["3"] > 70
    assert summary.checked["4"] > 20
    assert len(summary.opcodes) > 80


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(4))
def test_many_random_episodes_keep_the_invariants(seed: int, hlo_dir: Path) -> None:
    paths = sorted(hlo_dir.glob("*/*.txt"))
    small = [str(path) for path in paths if path.stat().st_size < 60_000]
    campaign = Campaign(seed=seed, sources=small, jobs=2)
    campaign.run(seconds=240)
    _assert_invariants(campaign)


def test_jobs_have_a_limit_of_memory(pool: Pool) -> None:
    outcome = pool.run(Job("builtins:bytearray", (4 << 30,), 60.0, 2 << 30))
    assert "MemoryError" in outcome.error
    assert pool.run(Job("math:sqrt", (4,))).value == 2.0


# --- what XLA breaks itself ---------------------------------------------------


@pytest.mark.parametrize("passes", ["reshape-mover", "cse,reshape-mover"])
def test_a_pass_that_breaks_a_module_natively_breaks_no_invariant(passes: str) -> None:
    checker = StructureChecker(hloenv.HloModule.from_text(RESHAPED_FUSION), seed=0)
    report = checker.check(parse(passes))
    assert report.violations == ()
    assert "makes the valid module" in report.skipped[0]


def test_a_capture_that_fails_alone_breaks_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise hloenv.errors.PassError("no capture")

    monkeypatch.setattr(invariants, "capture", fails)
    checker = StructureChecker(hloenv.HloModule.from_text(RESHAPED_FUSION), seed=0)
    report = checker.check(parse("cse"))
    assert report.violations == ("the capture fails: no capture",)


@pytest.mark.parametrize(
    ("name", "is_known"), [("float-normalization-bf16", True), ("cse", False)]
)
def test_an_untrue_report_of_no_change_is_counted(name: str, is_known: bool) -> None:
    """Where XLA's pass is known to say so, as a check that was not made."""
    module = hloenv.HloModule.from_text(RESHAPED_FUSION)
    (pipeline,) = parse(name)
    checker = StructureChecker(module, seed=0)
    other = hloenv.HloModule.from_text(
        "HloModule n\n\nENTRY e { ROOT p = f32[] parameter(0) }"
    )
    checker.natives[pipeline] = (other, False)
    report = checker.check([pipeline])
    what = f"{name!r} reports no change, but changed the module"
    assert (f"honesty: {what}" in report.violations) != is_known
    assert (f"a known bug of XLA's: {what}" in report.skipped) == is_known


def test_random_seeds_are_counted_as_not_compared() -> None:
    module = hloenv.HloModule.from_text("""HloModule random

ENTRY main {
  zero = f32[] constant(0)
  one = f32[] constant(1)
  ROOT r = f32[4] rng(zero, one), distribution=rng_uniform
}
""")
    report = StructureChecker(module, seed=0).check(parse("rng-expander"))
    assert report.violations == ()
    assert report.skipped == (
        "invariant 3: 'rng-expander' draws other seeds in each run",
    )
    assert StructureChecker(module, seed=0).check(parse("cse")).skipped == ()
