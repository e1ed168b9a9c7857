# SPDX-License-Identifier: Apache-2.0
"""Results of the matrix: selection of rows, versions, the archive."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import run_invariants
from hloenv._native import core
from hloenv.fuzz import archive
from hloenv.fuzz.results import Results, Row
from hloenv.fuzz.versions import FUNCTIONS, CodeVersions, code_version

_NEW, _OLD = "new", "old"
_VERSIONS = CodeVersions({"structure": _NEW, "values": _NEW})
_WRONG = ("invariant 3: wrong",)
_TIMEOUT = {"timeout: capture": 1}


def _row(**changes: object) -> Row:
    row = Row("structure", "f" * 32, "m", "raw", "cse", _NEW, 1, 1, time=10.0)
    return replace(row, **changes)  # type: ignore[arg-type]


_CLEAN = _row()
_BROKEN = _row(violations=_WRONG)
_LIMITED = _row(num_checks=0, skipped=_TIMEOUT)


def _read(folder: Path, rows: Sequence[Row]) -> Results:
    """Selected rows if each row is in its own file, read in this order."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for i, row in enumerate(rows):
        (folder / f"shard-{i}.jsonl").write_text(row.to_json() + "\n")
    return Results(folder, _VERSIONS, [_OLD, "older"])


# --- which row counts ---------------------------------------------------------


@pytest.mark.parametrize(
    ("winner", "others"),
    [
        (replace(_CLEAN, time=20), [_LIMITED]),
        (replace(_CLEAN, time=5), [_LIMITED]),
        (replace(_CLEAN, time=20, num_checks=7), [_CLEAN]),
        (_BROKEN, [replace(_CLEAN, version=_OLD, time=99)]),
        (_CLEAN, [replace(_BROKEN, version=_OLD, time=99)]),
        (_LIMITED, [replace(_CLEAN, version=_OLD, time=99)]),
        (
            replace(_BROKEN, version=_OLD),
            [replace(_CLEAN, version="older", time=9)],
        ),
        (
            replace(_CLEAN, version=_OLD),
            [replace(_BROKEN, version="older", time=9)],
        ),
        (_BROKEN, [replace(_CLEAN, time=5), replace(_CLEAN, time=20)]),
        (_BROKEN, [replace(_CLEAN, time=5, is_again=True)]),
        (_BROKEN, [replace(_LIMITED, time=20, is_again=True)]),
        (replace(_CLEAN, time=20, is_again=True), [_BROKEN]),
        (
            replace(_CLEAN, time=30),
            [_BROKEN, replace(_CLEAN, time=20, is_again=True)],
        ),
        (
            replace(_BROKEN, time=30),
            [_BROKEN, replace(_CLEAN, time=20, is_again=True)],
        ),
        (replace(_CLEAN, time=1), [replace(_CLEAN, time=0)]),
        (replace(_BROKEN, time=0), [replace(_CLEAN, time=0)]),
    ],
)
def test_one_row_counts_whatever_its_file(
    tmp_path: Path, winner: Row, others: list[Row]
) -> None:
    for order in itertools.permutations([winner, *others]):
        results = _read(tmp_path / "results", order)
        assert list(results.rows.values()) == [winner]
        assert list(results.everything()) == [winner]


def test_a_row_of_another_tensorflow_does_not_count(tmp_path: Path) -> None:
    assert not _read(tmp_path / "a", [_row(tensorflow="1.0")]).rows
    assert _read(tmp_path / "b", [_row(tensorflow=core.tensorflow_version)]).rows


def test_a_repeated_check_is_later_and_marked(tmp_path: Path) -> None:
    future = time.time() + 1e6
    results = _read(tmp_path / "results", [replace(_BROKEN, time=future)])
    results.look_again(lambda row: bool(row.violations))
    assert not results.rows
    assert [row.violations for row in results.everything()] == [_WRONG]
    again = results.stamped(_row())
    assert again.is_again
    assert again.time > future
    results.add([again], "shard")
    assert list(results.rows.values()) == [again]
    stored = Results(tmp_path / "results", _VERSIONS)
    assert list(stored.rows.values()) == [again]


def test_a_first_check_has_the_current_time(
    tmp_path: Path,
) -> None:
    before = time.time()
    row = Results(tmp_path, _VERSIONS).stamped(_row())
    assert before <= row.time <= time.time()
    assert not row.is_again


@pytest.mark.parametrize(
    "line",
    [
        b"[]",
        b"[1, 2]",
        b"3",
        b"null",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b"[" * 5000,
        json.dumps({**json.loads(_CLEAN.to_json()), "whole": [3]}).encode(),
        json.dumps({**json.loads(_CLEAN.to_json()), "skipped": [3]}).encode(),
        json.dumps({**json.loads(_CLEAN.to_json()), "time": float("nan")}).encode(),
        json.dumps({**json.loads(_CLEAN.to_json()), "variant": {}}).encode(),
        json.dumps({**json.loads(_CLEAN.to_json()), "unknown": 1}).encode(),
        _CLEAN.to_json()[:-9].encode(),
    ],
)
def test_damaged_lines_are_counted_and_skipped(tmp_path: Path, line: bytes) -> None:
    good = _row(passes="dce").to_json().encode()
    (tmp_path / "one.jsonl").write_bytes(line + b"\n\n" + good + b"\n")
    results = Results(tmp_path, _VERSIONS)
    assert [row.passes for row in results.rows.values()] == ["dce"]
    assert results.num_damaged == 1


# --- versions -----------------------------------------------------------------


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    copy = tmp_path_factory.mktemp("sources")
    for folder, suffixes in (("csrc", (".cc", ".h")), ("python/hloenv", (".py",))):
        for path in (root / folder).rglob("*"):
            if path.suffix in suffixes:
                target = copy / path.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
    return copy


def _changed(root: Path, file: str, change: Callable[[str], str]) -> set[str]:
    """The kinds of check whose version depends on the text of a file."""
    path = root / file
    text = path.read_text()
    before = {kind: code_version(root, kind) for kind in FUNCTIONS}  # mostly cached
    try:
        path.write_text(change(text))
        assert path.read_text() != text
        return {kind for kind in FUNCTIONS if code_version(root, kind) != before[kind]}
    finally:
        path.write_text(text)


_ALL = set(FUNCTIONS)
_RUN = {"values", "compiled"}


@pytest.mark.parametrize(
    ("file", "old", "new", "kinds"),
    [
        ("csrc/rewrite/capture.cc", "namespace", "int a;namespace", _ALL),
        ("csrc/runtime/executable.cc", "namespace", "int a;namespace", _RUN),
        ("csrc/runtime/interpreter.cc", "namespace", "int a;namespace", {"values"}),
        ("csrc/runtime/timing.cc", "namespace", "int a;namespace", set()),
        ("csrc/graph/columns.cc", "namespace", "int a;namespace", set()),
        ("runtime/compare.py", '"f32": 1e-4', '"f32": 1e-3', _RUN),
        (
            "runtime/random_inputs.py",
            "def perturbed(",
            "@staticmethod\ndef perturbed(",
            _RUN,
        ),
        ("fuzz/invariants.py", "def random_decisions(", "{}random_decisions(", None),
        ("fuzz/expected.py", "FLOAT64_TOLERANCE = 1e-6", "FLOAT64_TOLERANCE = 1", _RUN),
        ("fuzz/expected.py", "MANY_RUNS = 16", "MANY_RUNS = 3", {"values", "compiled"}),
        ("fuzz/comparison.py", "def has_numbers(", "{}has_numbers(", _RUN),
        ("fuzz/comparison.py", "def worst(", "{}worst(", {"values", "compiled"}),
        ("fuzz/values.py", "def draw_vectors(", "{}draw_vectors(", _RUN),
        ("fuzz/examples.py", "def find_example(", "{}find_example(", _RUN),
        ("fuzz/matrix.py", "def _check_default(", "{}_check_default(", {"default"}),
        ("runtime/upcast.py", "def upcast_to_float64(", "{}upcast_to_float64(", _RUN),
        ("runtime/interpreter.py", "def evaluate(", "{}evaluate(", {"values"}),
        ("hlo/module.py", "class HloModule", "@final\nclass HloModule", _ALL),
        ("rewrite/alternatives.py", "def capture(", "{}capture(", _ALL),
        ("fuzz/sweep.py", "_MAX_REASON = 200", "_MAX_REASON = 3", set()),
        ("measurement/store.py", "class Store", "@final\nclass Store", set()),
        ("fuzz/generator/module.py", "def random_module(", "{}random_module(", set()),
    ],
)
def test_a_version_covers_the_code_of_the_check(
    sources: Path, file: str, old: str, new: str, kinds: set[str] | None
) -> None:
    if not file.startswith("csrc"):
        file = f"python/hloenv/{file}"
    new = new.replace("{}", "@staticmethod\ndef ")
    changed = _changed(sources, file, lambda text: text.replace(old, new, 1))
    if kinds is None:  # by the decisions that they draw
        assert changed >= {"structure", "values", "compiled"}
    else:
        assert changed == kinds


def test_a_version_is_not_of_comments_layout_docstrings_and_annotations(
    sources: Path,
) -> None:
    file = "csrc/rewrite/capture.cc"
    path = sources / file
    path.write_text("int f(int a, int b) { return a; }\n" + path.read_text())
    new = "/* two\n lines */ int f(  // one\n  int a,\n int  b)\n{ return a ;}\n\n"
    assert not _changed(
        sources, file, lambda text: new + text.partition("\n")[2] + "\n//"
    )
    file = "python/hloenv/runtime/compare.py"
    old, new = '"""Comparing outputs', '# A comment.\n\n"""Other words'
    assert not _changed(sources, file, lambda text: text.replace(old, new))
    old, new = "def compare_outputs(", "# A comment.\n\n\ndef compare_outputs("
    assert not _changed(sources, file, lambda text: text.replace(old, new))
    file = "python/hloenv/fuzz/expected.py"
    old = "def compare(self, outputs: Sequence[Array]) -> Verdict:"
    new = "def compare(self, outputs):"
    assert not _changed(sources, file, lambda text: text.replace(old, new))


def test_a_version_is_not_of_the_files_that_hold_the_code(
    sources: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(sources, tmp_path / "moved")
    for path in (moved / "csrc" / "rewrite").glob("capture.*"):
        path.rename(path.with_stem("captured"))
    for path in (moved / "csrc").rglob("*.*"):
        text = path.read_text()
        path.write_text(text.replace('"rewrite/capture.h"', '"rewrite/captured.h"'))
    for kind in FUNCTIONS:
        assert code_version(moved, kind) == code_version(sources, kind)


def test_results_of_xla_passes_do_not_depend_on_proposals(sources: Path) -> None:
    path = sources / "csrc" / "passes" / "proposals" / "dot_forms.cc"
    names = ("dot-forms", "reassociate")
    text = path.read_text()
    before = CodeVersions.of_sources(sources, names)
    try:
        path.write_text(f"int a;\n{text}")
        after = CodeVersions.of_sources(sources, names)
    finally:
        path.write_text(text)
    for kind in FUNCTIONS:
        assert after.of(kind, "cse,algsimp") == before.of(kind, "cse,algsimp")
        assert after.of(kind, "cse,dot-forms") != before.of(kind, "cse,dot-forms")
    path = sources / "csrc" / "rewrite" / "capture.cc"
    text = path.read_text()
    try:
        path.write_text(f"int b;\n{text}")
        changed = CodeVersions.of_sources(sources, names)
    finally:
        path.write_text(text)
    for kind in FUNCTIONS:
        for passes in ("cse", "dot-forms"):
            assert changed.of(kind, passes) != before.of(kind, passes)


def test_rows_of_each_kind_of_pass_need_their_version(tmp_path: Path) -> None:
    versions = CodeVersions({"structure": "x"}, {"structure": "y"}, ["dot-forms"])
    rows = [
        _row(passes=passes, version=version, fingerprint=version * 32)
        for passes in ("cse", "dot-forms", "cse,dot-forms")
        for version in ("x", "y")
    ]
    other = _row(kind="values", passes="cse", version="x")
    text = "".join(f"{row.to_json()}\n" for row in (*rows, other))
    (tmp_path / "one.jsonl").write_text(text)
    found = Results(tmp_path, versions).rows.values()
    assert {(row.passes, row.version) for row in found} == {
        ("cse", "x"),
        ("dot-forms", "y"),
        ("cse,dot-forms", "y"),
    }


def test_text_in_quotes_is_code(sources: Path) -> None:
    file = "csrc/rewrite/capture.cc"
    base = sources / file
    text = base.read_text()
    try:
        for a, b in (('"a  b"', '"a b"'), ('"x//1"', '"x//2"'), ('R"(\n)"', 'R"( )"')):
            base.write_text(f"auto a = {a};\n{text}")
            assert "structure" in _changed(
                sources,
                file,
                lambda t, a=a, b=b: t.replace(a, b, 1),  # type: ignore[misc]
            )
    finally:
        base.write_text(text)


def test_a_version_is_of_tensorflow(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other:
        tensorflow_version = "1.0"

    before = code_version(sources, "structure")
    monkeypatch.setattr("hloenv.fuzz.versions.core", Other)
    assert code_version(sources, "structure") != before


# --- the archive --------------------------------------------------------------

_EXACT = [
    replace(_BROKEN, passes="a,b", time=1.25, whole=(("a", "why"),)),
    replace(_BROKEN, passes="b,a", time=2.5, is_again=True),
    replace(_CLEAN, passes="c", is_again=True, time=3.75, tensorflow="2"),
    replace(_LIMITED, passes="a", skipped={"timeout: x": 1, "ünï|\n\"'": 3}),
    replace(_CLEAN, passes="a", variant="in front of it", num_alternatives=12345),
    replace(_CLEAN, passes="a", kind="values", version=_OLD, num_checks=77),
    replace(_CLEAN, passes="a,b,c", kind="an unknown kind"),
]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("rows", [_EXACT, []])
def test_an_archive_gives_its_rows_back(tmp_path: Path, rows: list[Row]) -> None:
    path = tmp_path / "folder" / "a.parquet"
    archive.write(path, rows)
    assert {row.key: row for row in archive.read(path)} == {
        row.key: row for row in rows
    }
    again = tmp_path / "b.parquet"
    archive.write(again, archive.read(path))
    assert again.read_bytes() == path.read_bytes()
    assert [each.name for each in tmp_path.rglob("*.parquet*")] == [
        *("b.parquet", "a.parquet")
    ]


@pytest.mark.needs("pyarrow")
def test_an_archived_row_never_looks_newer_than_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    archive.write(
        path, [_row(passes=name, time=t) for name, t in (("a", 9.5), ("b", 7.5))]
    )
    assert {row.passes: row.time for row in archive.read(path)} == {"a": 7.0, "b": 7.0}


@pytest.mark.needs("pyarrow")
def test_other_files_are_not_archives(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet

    path = tmp_path / "a.parquet"
    path.write_bytes(b"text")
    with pytest.raises(ValueError, match="not an archive"):
        archive.read(path)
    parquet.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match="not an archive"):
        archive.read(path)


@pytest.mark.needs("pyarrow")
def test_an_archive_keeps_the_best_row_of_every_cell(tmp_path: Path) -> None:
    rows = [
        _row(passes="a", version="gone", time=1),
        _row(passes="a", version="gone", time=2, num_checks=5),
        _row(passes="b", version="gone", time=9),
        _row(passes="b", version=_OLD),
        _row(passes="c", kind="default"),
    ]
    results = Results(tmp_path, _VERSIONS, [_OLD], archived=rows)
    assert list(results.rows.values()) == [rows[3]]
    assert {row.key: row for row in results.everything()} == {
        row.key: row for row in (rows[1], rows[3], rows[4])
    }


@pytest.mark.needs("pyarrow")
def test_a_large_archive_is_small(tmp_path: Path) -> None:
    """A tenth of the matrix in a tenth of three megabytes."""
    rng = random.Random(0)
    names = [f"pass-{i}" for i in range(170)]
    rows = []
    for number in range(370):
        fingerprint = f"{rng.getrandbits(128):032x}"
        row = Row("structure", fingerprint, f"m{number}", "raw", "", _NEW)
        for each in [*names, *(",".join(rng.sample(names, 2)) for _ in range(50))]:
            num = 0 if rng.random() < 0.6 else int(rng.lognormvariate(1.5, 1.2))
            skipped = {f"reason {rng.randrange(40)}": 1} if rng.random() < 0.03 else {}
            rows.append(
                replace(
                    row,
                    passes=each,
                    num_alternatives=num,
                    num_checks=5 + min(num, 2) + rng.randrange(2),
                    skipped=skipped,
                    time=1.8e9 + len(rows) / 20,
                )
            )
    cells = {row.key: row for row in rows}
    archive.write(tmp_path / "a.parquet", cells.values())
    size = (tmp_path / "a.parquet").stat().st_size
    assert size / len(cells) < 3e6 / 8e5
    found = Results(tmp_path, _VERSIONS, archived=archive.read(tmp_path / "a.parquet"))
    assert found.rows.keys() == cells.keys()


@pytest.mark.needs("pyarrow")
def test_a_run_without_results_continues_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["run_invariants.py", *arguments])
        status = run_invariants.main()
        return status, page.read_text()

    hlo = tmp_path / "hlo"
    hlo.mkdir()
    for size in (3, 4):
        (hlo / f"{size}.hlo").write_text(
            "HloModule m\n\nENTRY main {\n"
            f"  p = f32[{size}]{{0}} parameter(0)\n"
            f"  ROOT r = f32[{size}]{{0}} add(p, p)\n}}\n"
        )
    page = tmp_path / "docs" / "page.md"
    common = (str(hlo), "--passes", "cse", "--variants", "raw", "--doc", str(page))
    first = ("--results", str(tmp_path / "first"), "--archives")
    kinds = ("--kinds", "structure")
    assert run(*common, *first, *kinds)[0] == 0
    assert "* complete" in page.read_text()
    # Another machine: no folder of results, no time, and the page is there again.
    second = ("--results", str(tmp_path / "second"), "--archives")
    assert "* complete" in run(*common, *second, *kinds, "--seconds", "0")[1]
    assert not list((tmp_path / "second").iterdir())
    # What this run did not ask for stays in the archive.
    before = archive.read(page.with_suffix(".parquet"))
    run(*common, *second, "--kinds", "default", "--seconds", "0", "--only", "00")
    assert archive.read(page.with_suffix(".parquet")) == before
    third = ("--results", str(tmp_path / "third"), "--archives")
    fingerprint = before[0].fingerprint
    run(*common, *third, *kinds, "--only", fingerprint[:12])
    again = {
        row.key: row.is_again for row in archive.read(page.with_suffix(".parquet"))
    }
    assert again == {row.key: row.fingerprint == fingerprint for row in before}
