# SPDX-License-Identifier: Apache-2.0
"""What the scripts of scripts/reports share."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from reporting import (
    Rows,
    decisions_of,
    head,
    run_again,
    version_of_rows,
    with_part,
)


def test_a_repeated_run_finds_the_rows_of_the_run_before(tmp_path):
    path = tmp_path / "folder" / "rows.jsonl"
    rows = Rows(path, "name", "cores")
    rows.add({"name": "a", "cores": 1, "speedup": 2.0})
    rows.add({"name": "a", "cores": 2, "speedup": 3.0})
    again = Rows(path, "name", "cores")
    assert again.all() == rows.all()
    found = again.get("a", 2)
    measured = found.pop("measured_at")
    assert found == {"name": "a", "cores": 2, "speedup": 3.0}
    assert again.get("b", 1) is None
    (line,) = [
        each
        for each in head("A page", rows.all())
        if each.startswith("* rows measured")
    ]
    assert line.endswith(f"to {measured[:16].replace('T', ' ')} UTC")


def test_a_line_that_was_not_finished_is_skipped(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = Rows(path, "name")
    rows.add({"name": "a", "speedup": 2.0})
    with path.open("a") as file:
        file.write('{"name": "b", "spee')
    again = Rows(path, "name")
    assert again.get("b") is None
    again.add({"name": "b", "speedup": 3.0})
    assert [each["name"] for each in Rows(path, "name").all()] == ["a", "b"]


def test_errors_of_earlier_runs_are_tried_again(tmp_path):
    rows = Rows(tmp_path / "rows.jsonl", "name")
    rows.add({"name": "a", "error": "not done in 5 s"})
    assert rows.get("a")["error"]
    assert Rows(tmp_path / "rows.jsonl", "name").get("a") is None


def test_rows_with_other_settings_are_of_another_version():
    assert version_of_rows(seconds=2) == version_of_rows(seconds=2)
    assert version_of_rows(seconds=2) != version_of_rows(seconds=3)


@pytest.mark.parametrize(
    ("code", "row"),
    [
        ("print('a line'); print('{\"speedup\": 2.0}')", {"speedup": 2.0}),
        (
            "raise SystemExit('no such module')",
            {"error": "exit code 1: no such module"},
        ),
        ("import os; os._exit(3)", {"error": "exit code 3: no message"}),
        ("import time; time.sleep(60)", {"error": "not done in 1 s"}),
    ],
)
def test_a_child_process_gives_a_row_or_its_error(tmp_path, monkeypatch, code, row):
    script = tmp_path / "script.py"
    script.write_text(code)
    monkeypatch.setattr(sys, "argv", [str(script)])
    timeout_s = 1 if "sleep" in code else 30
    assert run_again([], num_cores=1, timeout_s=timeout_s) == row


def test_only_the_part_between_the_marks_is_replaced():
    page = "a\n<!-- n: begin -->\nold\n<!-- n: end -->\nb\n"
    assert with_part(page, "n", ["new"]) == page.replace("old", "new")


def test_a_page_without_marks_is_an_error():
    with pytest.raises(ValueError, match="needs the lines <!-- n: begin -->"):
        with_part("<!-- n: end -->", "n", [])


def test_decisions_are_rewrites_and_what_the_library_is_not_given():
    def part(accepted, left_out="", then=None, engine="jaxlib"):
        return SimpleNamespace(
            accepted=accepted, left_out=left_out, then=then, engine=engine
        )

    def of(*decided):
        return decisions_of(SimpleNamespace(decided=list(decided)))

    assert of() == {}
    assert of(part({"b": 2, "a": 1}, then=part({"c": 3}))) == {"a": 1, "b": 2, "c": 3}
    assert sum(of(part({}, "convolutions")).values()) == 1
    assert of(part({}, engine="wheel")) == {"compiled by the wheel": 1}
