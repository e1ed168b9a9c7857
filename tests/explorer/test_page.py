# SPDX-License-Identifier: Apache-2.0
"""The page: as a file, as built, and what it may load."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from hloenv import HloEnv, HloModule, replay
from hloenv.bench.rows import Row
from hloenv.cli import main
from hloenv.cli.explore import open_target
from hloenv.errors import ArgumentError, PassOptionError, TraceError
from hloenv.explorer.backend import Backend, NoModuleError, Target
from hloenv.explorer.page import page_of
from hloenv.explorer.result_files import read_results
from hloenv.explorer.results import of_artefact, of_bench, of_search
from hloenv.explorer.static_files import read_static
from hloenv.jax.artefact import Artefact, Tuned
from hloenv.jax.recipe import Recipe
from hloenv.rewrite.trace import ModuleId, Step, Trace


@pytest.fixture(scope="module")
def page(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    small.save(folder / "small.hlo")
    path = folder / "page.html"
    assert main(["explore", str(folder / "small.hlo"), "-o", str(path)]) == 0
    return path.read_text(encoding="utf-8")


def _answers(page):
    found = re.search(
        r'<script id="answers" type="application/json">(.*?)</script>', page
    )
    return json.loads(found[1])


def test_the_page_has_the_answers(page):
    (answers,) = _answers(page)["stops"]
    assert answers["state"]["module"]["name"] == "small"
    assert len(answers["graph?which=current"]["names"]) == 15
    details = [key for key in answers if key.startswith("alternative?")]
    assert len(details) >= len(answers["alternatives"])
    assert "import hloenv" in answers["python"]["text"]


def test_the_page_loads_nothing(page):
    outside = re.sub(r'<script id="answers".*?</script>', "", page)
    assert not re.search(r'(?:src|href)="(?!data:)', outside)
    assert "@import" not in outside
    # The namespace of SVG is a name, not a place.
    places = set(re.findall(r"https?://[^\s\"'`)]+", outside))
    assert places <= {"http://www.w3.org/2000/svg"}


def test_only_the_page_s_own_program_may_run(page):
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    program = re.search(r'<script type="module">(.*?)</script>', page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(program.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_hostile_names_stay_text():
    text = "</script><script>alert(1)</script><!--<script>"
    page = page_of({"results": {"title": text}})
    assert "alert(1)</script>" not in page
    assert _answers(page)["results"]["title"] == text
    assert page.count("<script") == 2


def test_the_built_page_is_that_of_its_sources(root):
    folder = root / "explorer"
    own = ["build.mjs", "package.json", "package-lock.json", "tsconfig.json"]
    found = [
        path.relative_to(folder).as_posix()
        for path in (folder / "src").rglob("*")
        if path.is_file()
    ]
    digest = hashlib.sha256()
    for name in sorted([*own, *found]):
        digest.update(f"{name}\n".encode())
        digest.update((folder / name).read_bytes())
    first, _, _ = read_static("explorer.js")[1].partition(b"\n")
    expected = f"sources sha256 {digest.hexdigest()}"
    assert expected in first.decode(), "run npm run build in explorer/"


def test_files_without_a_program_are_copied(root):
    for built, source in (("explorer.css", "style.css"), ("index.html", "index.html")):
        content = (root / "explorer" / "src" / source).read_bytes()
        assert read_static(built)[1] == content


def test_only_the_page_s_files_are_read():
    for name in ("", "..", "../server.py", "/etc/passwd", "explorer.js/"):
        assert read_static(name) is None


def test_the_types_of_the_page_are_those_of_the_schema(root, run_child):
    run_child(
        "import runpy, sys; sys.argv = ['make', '--check']\n"
        f"runpy.run_path({str(root / 'scripts/dev/make_explorer_types.py')!r}, "
        "run_name='__main__')"
    )


@pytest.mark.slow
@pytest.mark.needs_program("node")
def test_the_sources_have_the_right_types(root):
    compiler = root / "explorer" / "node_modules" / "typescript" / "bin" / "tsc"
    command = ["node", str(compiler), "--noEmit"]
    if not compiler.is_file():  # npm ci was not run here: only its syntax
        command = ["node", "--check", str(root / "explorer" / "build.mjs")]
    assert shutil.which("node")
    done = subprocess.run(
        command, cwd=root / "explorer", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _row(method, speedup, **changes):
    return Row("m", "f", "s", "", "test", method, 0, 1, speedup=speedup, **changes)


def test_a_leaderboard_has_the_best_method_first():
    rows = [_row("a", 2.0), _row("a", 8.0), _row("b", 5.0), _row("b", 1.0, error="no")]
    results = of_bench("r.parquet", rows)
    assert [(row["method"], row["failures"]) for row in results["methods"]] == [
        ("b", 1),
        ("a", 0),
    ]
    assert results["methods"][1]["mean_speedup"] == pytest.approx(4.0)
    assert [row["speedup"] for row in results["rows"]] == [8.0, 5.0, 2.0, 1.0]


def test_rows_with_the_earlier_name_of_a_method_are_read():
    data = _row("a", 2.0).to_json()
    data["contestant"] = data.pop("method")
    assert Row.from_json(data) == _row("a", 2.0)


def test_a_search_has_its_curve():
    def candidate(speedup):
        return {
            "decisions": [[1, 0], [2]],
            "estimate_s": 1e-6,
            "speedup": speedup,
            "speedup_interval": [None, None],
            "error": None,
        }

    data = {"measured": [candidate(1.1), candidate(1.0), candidate(1.3)]}
    results = of_search("s.json", {**data, "evaluated": 9, "best": None, "module": "m"})
    (chart,) = results["charts"]
    best, measured = chart["lines"]
    assert best["points"] == [[1, 1.1], [2, 1.1], [3, 1.3]]
    assert measured["points"] == [[1, 1.1], [2, 1.0], [3, 1.3]]
    assert results["rows"][0]["accepted"] == 2
    with pytest.raises(ArgumentError, match="not the output"):
        of_search("s.json", {"measured": [{}], "evaluated": 1, "best": None})


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "not JSON"), ("[]", "not a trace"), ('{"format": "x"}', "format")],
)
def test_other_files_are_messages(tmp_path, capsys, content, message):
    path = tmp_path / "x.json"
    path.write_text(content)
    assert main(["explore", str(path), "--no-open"]) == 1
    assert message in capsys.readouterr().err


def test_a_module_that_cannot_be_parsed_is_a_message(tmp_path, capsys):
    path = tmp_path / "broken.hlo"
    path.write_text("HloModule broken\nENTRY {")
    assert main(["explore", str(path), "--no-open"]) == 1
    assert "broken.hlo" in capsys.readouterr().err


def test_the_file_of_o_is_html(small, tmp_path, capsys):
    small.save(tmp_path / "m.hlo")
    page = str(tmp_path / "page.pdf")
    assert main(["explore", str(tmp_path / "m.hlo"), "-o", page]) == 1
    assert ".html" in capsys.readouterr().err


def test_a_trace_needs_its_module(small, tmp_path, capsys):
    env = HloEnv(small)
    env.get_alternatives("algsimp")
    env.apply_alternatives(env._latest_capture().decisions_for("algsimp"))
    small.save(tmp_path / "m.hlo")
    env.trace.save(tmp_path / "t.json")
    page = tmp_path / "page.html"
    command = ["explore", str(tmp_path / "t.json"), "-o", str(page)]
    assert main(command) == 1
    assert "--module" in capsys.readouterr().err
    assert main([*command, "--module", str(tmp_path / "m.hlo")]) == 0
    (answers,) = _answers(page.read_text())["stops"]
    assert answers["state"]["point"]["passes"] == ["algsimp"]
    assert answers["state"]["totals"]["accepted"] > 0
    assert json.loads(answers["trace"]["text"])["steps"][0]["kind"] == "decide"


def test_a_page_keeps_the_stops_that_it_is_asked_for(small, tmp_path, capsys):
    small.save(tmp_path / "m.hlo")
    page = tmp_path / "page.html"
    stops = ["--stop", ": algsimp cse", "--stop", "fusion: fusion general-fusion"]
    command = ["explore", str(tmp_path / "m.hlo")]
    assert main([*command, "-o", str(page), *stops]) == 0
    first, second = _answers(page.read_text())["stops"]
    assert first["state"]["point"]["until"] == ""
    assert second["state"]["point"]["passes"] == ["fusion", "general-fusion"]
    assert {row["kind"] for row in second["alternatives"]}
    assert first["graph?which=current"] != second["graph?which=current"]
    for extra in (stops, ["--timeline"]):
        assert main([*command, "--no-open", *extra]) == 2
        assert f"{extra[0]} was given without -o" in capsys.readouterr().err
    assert main([*command, "-o", str(page), "--stop", "fusion: no-such-pass"]) == 1
    assert "no-such-pass" in capsys.readouterr().err


def test_the_decisions_of_a_search_are_read_with_it(small, tmp_path, capsys):
    small.save(tmp_path / "m.hlo")
    command = ["search", str(tmp_path / "m.hlo"), "--pass", "algsimp", "--json"]
    limits = ["--estimates", "4", "--measurements", "2", "--no-store"]
    assert main([*command, *limits]) == 0
    path = tmp_path / "search.json"
    path.write_text(capsys.readouterr().out)
    found = read_results(path)
    results, traces = found.results, found.traces
    assert len(traces) == len(results["rows"]) > 0
    for row, trace in zip(results["rows"], traces, strict=True):
        assert row["has_trace"]
        assert replay(trace, small).fingerprint() == trace.end.fingerprint
    target = open_target(str(path), str(tmp_path / "m.hlo"))
    backend = Backend(target, store=None)
    try:
        state = backend.open_row(0)
        assert state["point"]["passes"] == ["algsimp"]
        assert state["target"] == str(tmp_path / "m.hlo")
        assert backend.results()["kind"] == "search"
        with pytest.raises(ArgumentError, match="no decisions"):
            backend.open_row(len(traces))
    finally:
        backend.close()
    without = Backend(open_target(str(path)), store=None)
    with pytest.raises(NoModuleError, match="--module"):
        without.open_row(0)
    without.close()


def test_the_decisions_of_another_module_do_not_open(small, tmp_path):
    other = HloModule.from_text(
        "HloModule other\nENTRY e {\n  p = f32[4] parameter(0)\n"
        "  ROOT n = f32[4] negate(p)\n}"
    )
    env = HloEnv(other)
    env.apply_alternatives(env.get_alternatives("algsimp").leave_to_xla(), partial=True)
    target = Target("m.hlo", small, traces=[env.trace, None])
    backend = Backend(target, store=None)
    try:
        before = backend.request("state", {})
        with pytest.raises(TraceError, match="recorded on one with"):
            backend.open_row(0)
        assert backend.request("state", {})["module"] == before["module"]
        with pytest.raises(ArgumentError, match="no decisions"):
            backend.open_row(1)
    finally:
        backend.close()


def _nested(depth):
    inner = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speedup": 10**400}, "not the output"),
        ({"decisions": [[float("inf")]]}, "not the output"),
        ({"trace": {"format": "hloenv-trace-2"}}, "not a trace"),
        ({"trace": 5}, "not a trace"),
        ({"trace": {"steps": [{"kind": "decide", "decisions": []}]}}, "not a trace"),
    ],
)
def test_a_hostile_search_is_a_message(tmp_path, capsys, changes, message):
    candidate = {
        "decisions": [[1]],
        "estimate_s": 1e-6,
        "speedup": 1.0,
        "speedup_interval": [1.0, 1.0],
        "error": None,
    }
    data = {"measured": [{**candidate, **changes}], "evaluated": 1, "best": None}
    path = tmp_path / "search.json"
    path.write_text(json.dumps(data))
    assert main(["explore", str(path), "-o", str(tmp_path / "page.html")]) == 1
    assert message in capsys.readouterr().err


def test_passes_nested_too_deeply_are_no_trace(small):
    trace = HloEnv(small).trace
    data = json.loads(trace.to_json())
    data["steps"] = [{"kind": "decide", "passes": _nested(700), "decisions": []}]
    text = json.dumps(data)
    with pytest.raises(TraceError, match="nested too deeply"):
        Trace.from_json(text)


def test_white_space_before_results_is_nothing(tmp_path):
    data = {"measured": [], "evaluated": 1, "best": None}
    path = tmp_path / "search.json"
    path.write_text("\n " + json.dumps(data))
    assert read_results(path).results["kind"] == "search"


@pytest.mark.parametrize(
    ("name", "value"),
    [("compile_s", 10**400), ("stages", [{}]), ("interval", [1.0, 10**400])],
)
def test_a_hostile_artefact_is_a_message(tmp_path, capsys, name, value):
    tuned = Tuned("step", ModuleId("f", "t"), Recipe())
    entry = {**tuned.to_json(), name: value}
    path = tmp_path / "a.tuned"
    path.write_text(json.dumps({**Artefact((tuned,)).to_json(), "entries": [entry]}))
    assert main(["explore", str(path), "-o", str(tmp_path / "page.html")]) == 1
    error = capsys.readouterr().err
    assert "hloenv: error: " in error
    assert "internal" not in error


@pytest.mark.parametrize("passes", [5, None, [{"pass": "algsimp", "options": 5}]])
def test_steps_of_the_wrong_types_do_not_open(small, passes):
    pipeline = {"pipeline": "algsimp", "passes": passes}
    trace = replace(HloEnv(small).trace, steps=(Step("decide", (pipeline,), (1,)),))
    backend = Backend(Target("m.hlo", small, traces=[trace]), store=None)
    try:
        before = backend.request("decide", {"changes": [[0, 1]]})
        with pytest.raises(PassOptionError):
            backend.open_row(0)
        assert backend.request("state", {})["decisions"] == before["decisions"]
    finally:
        backend.close()


def test_stops_need_a_module_and_are_not_of_a_trace(small, tmp_path, capsys):
    small.save(tmp_path / "m.hlo")
    env = HloEnv(small)
    env.apply_alternatives(env.get_alternatives("algsimp").reject_all())
    env.trace.save(tmp_path / "t.json")
    stop = ["--stop", ": algsimp", "-o", str(tmp_path / "page.html")]
    trace = ["explore", str(tmp_path / "t.json"), "--module", str(tmp_path / "m.hlo")]
    assert main([*trace, *stop]) == 2
    assert "leave --stop out" in capsys.readouterr().err
    data = {"measured": [], "evaluated": 1, "best": None}
    (tmp_path / "s.json").write_text(json.dumps(data))
    assert main(["explore", str(tmp_path / "s.json"), *stop]) == 2
    assert "add --module" in capsys.readouterr().err


@pytest.mark.parametrize("is_identity", [False, True])
def test_a_tuned_program_says_what_was_found(is_identity):
    module = ModuleId("f", "t")
    recipe = Recipe() if is_identity else Recipe(loops=True)
    stage = {"stage": "loops", "decided": "xla" if is_identity else "single kernels"}
    tuned = Tuned(
        "step",
        module,
        recipe,
        reason="nothing was faster" if is_identity else "",
        baseline_s=2e-3,
        stages=(stage,),
        date="2026-11-25",
    )
    (row,) = of_artefact("a.tuned", Artefact((tuned,)))["rows"]
    assert not row["has_trace"]
    assert row["facts"]["time of jax.jit"] == "2 ms"
    assert row["facts"]["stages tried"] == "loops"
    assert row["facts"]["date"] == "2026-11-25"
    assert ("numerical class" in row["facts"]) is not is_identity
