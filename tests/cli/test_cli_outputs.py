# SPDX-License-Identifier: Apache-2.0
"""Outputs that cannot be written, and commands that find nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(("train", "pass-order"), marks=pytest.mark.needs("gymnasium")),
        pytest.param(("train", "cost-model"), marks=pytest.mark.needs("gymnasium")),
        ("bench", "MODEL"),
        ("fuzz", "--cases", "1"),
    ],
)
def test_a_folder_that_cannot_be_made_is_reported_before_the_work(
    command: tuple[str, ...], run, model
) -> None:
    words = [model if each == "MODEL" else each for each in command]
    for folder in (model, f"{model}/runs/first"):
        code, out, err = run(*words, "-o", folder)
        assert (code, out) == (1, "")
        assert err == (
            f"hloenv: error: cannot make the folder {folder}: {model} is no folder; "
            "name another one\n"
        )


def test_a_full_disk_names_the_file(run, model) -> None:
    for words in (
        ("run", model, "--pass", "cse", "-o", "/dev/full"),
        ("graph", model, "--format", "dot", "-o", "/dev/full"),
    ):
        code, _, err = run(*words)
        assert code == 1
        assert err == "hloenv: error: /dev/full: No space left on device\n"


@pytest.mark.needs("torch", "safetensors", "gymnasium")
@pytest.mark.parametrize(("policy", "expected"), [("gnn", 2), ("pass-order", 1)])
def test_a_folder_in_place_of_a_checkpoint_is_named(
    run, model, tmp_path: Path, policy, expected
) -> None:
    code, _, err = run("optimize", model, "--policy", f"{policy}:{tmp_path}")
    assert code == expected
    assert "it is a folder; give a file, such as best.safetensors" in err


@pytest.mark.parametrize("words", [(), ("--pass", "cse")])
def test_a_search_with_nothing_to_decide_says_so(run, tmp_path: Path, words) -> None:
    path, written = tmp_path / "one.hlo", tmp_path / "x.hlo"
    path.write_text("HloModule one\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}\n")
    code, out, err = run("search", str(path), *words)
    assert code == 0
    assert out.startswith("there is nothing to decide: ")
    assert "game" not in out + err
    code, out, _ = run("search", str(path), *words, "-o", str(written))
    assert code == 3
    assert f"{written} is not written: there is nothing to decide" in out
    assert not written.exists()
    code, out, _ = run("search", str(path), *words, "--json")
    assert (code, json.loads(out)["best"]) == (0, None)


@pytest.mark.needs("pyarrow")
def test_filters_that_no_module_passes_are_said(run) -> None:
    words = ("dataset", "show", "--min-instructions", str(10**9))
    assert run(*words) == (0, "no modules match\n", "")
    assert json.loads(run(*words, "--json")[1]) == {"modules": []}
