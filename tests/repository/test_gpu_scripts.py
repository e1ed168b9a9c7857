# SPDX-License-Identifier: Apache-2.0
"""The scripts that decide and time programs for a GPU, run on the CPU."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hloenv.measurement import Store
from support.run_child import run_python

pytestmark = pytest.mark.needs("jax")

NAME = "rotations"


def run(script: Path, *words: str | Path) -> str:
    """The output of a script that succeeds."""
    child = run_python(str(script), *map(str, words), timeout=300)
    assert child.returncode == 0, child.stderr
    return child.stdout


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@pytest.fixture(scope="module")
def decided(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of one decided program."""
    folder = tmp_path_factory.mktemp("gpu")
    script = root / "scripts" / "gpu" / "decide.py"
    output = run(script, folder, NAME, "--target", "cpu", "--max-single", "1")
    assert f"{NAME}: " in output
    return folder


def test_decisions_run_in_jax_and_errors_are_rows(
    root: Path, decided: Path, tmp_path: Path
):
    folder = tmp_path / "decided"
    shutil.copytree(decided, folder)
    facts = json.loads((folder / NAME / "variants.json").read_text())["variants"]
    assert {"gpu-forms.start", "xla.pre", "unfused.pre"} <= set(facts)
    assert len({fact["fingerprint"] for fact in facts.values()}) >= 4
    (folder / NAME / "broken.pre.pb").write_bytes(b"\x0a\x03abc")
    rows_file = tmp_path / "rows.jsonl"
    script = root / "scripts" / "gpu" / "time_modules.py"
    words = [folder, "--platform", "cpu", "--rounds", "2", "-o", rows_file]
    run(script, *words)
    rows = lines_of(rows_file)
    by_variant = {row["variant"]: row for row in rows}
    assert {"jax.jit", "again", "identity.pre", "unfused.pre"} <= set(by_variant)
    assert by_variant["broken.pre"]["error"]
    for name, row in by_variant.items():
        if name != "broken.pre" and "same_as" not in row:
            assert row["error"] is None, row
            assert row["relative_error"] < 1e-5
            assert len(row["seconds"]) == 2
    # A second run has nothing to do.
    run(script, *words)
    assert lines_of(rows_file) == rows

    page = tmp_path / "page.md"
    store = tmp_path / "store.sqlite"
    report = root / "scripts" / "reports" / "run_gpu.py"
    run(report, rows_file, "--store", store, "--doc", page)
    assert f"| {NAME} |" in page.read_text()
    script = root / "scripts" / "gpu" / "decide.py"
    other = run_python(str(script), str(folder), NAME, "--target", "h100")
    assert "has modules for 'cpu'" in other.stderr
    with Store(store) as opened:
        kept = list(opened.records("measurement"))
    assert len(kept) == len({fact["fingerprint"] for fact in facts.values()} - {""})


def test_a_folder_without_programs_is_refused(root: Path, tmp_path: Path):
    script = root / "scripts" / "gpu" / "time_modules.py"
    child = run_python(str(script), str(tmp_path), "-o", str(tmp_path / "rows.jsonl"))
    assert child.returncode == 2
    assert "must be a folder that decide.py wrote" in child.stderr


def test_a_variant_that_ends_the_process_is_found(
    root: Path, decided: Path, tmp_path: Path
):
    folder = tmp_path / "decided"
    shutil.copytree(decided, folder)
    (folder / NAME / "fatal.pre.pb").write_bytes(b"\x0a\x03abc")
    text = (root / "scripts" / "gpu" / "time_modules.py").read_text()
    script = tmp_path / "time_modules.py"
    begin = "        started = time.perf_counter()\n        executable"
    assert begin in text
    check = "F0000 00:00:1.2 9 some.cc:93] Check failed: 3 <= 2"
    abort = (
        "        if name == 'fatal.pre':\n"
        f"            print({check!r}, 99 * 'stack ', file=sys.stderr, flush=True)\n"
        f"            os.abort()\n{begin}"
    )
    script.write_text(text.replace(begin, abort))
    rows_file = tmp_path / "rows.jsonl"
    words = [folder, "--platform", "cpu", "--rounds", "2", "-o", rows_file]
    run(
        script,
        *words,
        "--variants",
        "again",
        "xla.pre",
        "fatal.pre",
        "unfused.pre",
    )
    rows = lines_of(rows_file)
    failed = {row["variant"]: row["error"] for row in rows if row["error"]}
    assert list(failed) == ["fatal.pre"]
    assert failed["fatal.pre"].startswith(f"ended: {check}")
    timed = [row["variant"] for row in rows if "seconds" in row]
    assert sorted(timed) == ["again", "jax.jit", "unfused.pre", "xla.pre"]
    page = tmp_path / "page.md"
    run(root / "scripts" / "reports" / "run_gpu.py", rows_file, "--doc", page)
    assert "`the process ended: Check failed: 3 <= 2 stack" in page.read_text()


def test_a_function_of_a_user_is_decided_and_timed(root: Path, tmp_path: Path):
    (tmp_path / "model.py").write_text(
        "import jax, jax.numpy as jnp\n\n\n"
        "def largest(x, scale):\n"
        "    return jax.lax.top_k(x['logits'] * scale, 3)\n\n\n"
        "def example():\n"
        "    return largest, {'logits': jnp.ones((4, 500))}, 2\n"
    )
    scripts = root / "scripts" / "gpu"
    folder, rows_file = tmp_path / "decided", tmp_path / "rows.jsonl"
    function = f"{tmp_path / 'model.py'}:example"
    run(scripts / "decide.py", folder, function, "--target", "cpu", "--max-single", "1")
    words = ["--platform", "cpu", "--rounds", "2", "-o", rows_file]
    run(scripts / "time_modules.py", folder, *words, "--variants", "*.start")
    rows = {row["variant"]: row for row in lines_of(rows_file)}
    assert {row["program"] for row in rows.values()} == {"model.example"}
    assert rows["gpu-forms.start"]["same_as"] == "sort-forms.argmaxes.start"
    assert rows["sort-forms.argmaxes.start"]["relative_error"] == 0


def test_a_process_that_ends_after_its_last_program_is_no_error(
    root: Path, decided: Path, tmp_path: Path
):
    text = (root / "scripts" / "gpu" / "time_modules.py").read_text()
    end = "        print(json.dumps([name, rows]), flush=True)\n"
    assert end in text
    script = tmp_path / "time_modules.py"
    script.write_text(text.replace(end, f"{end}    os.abort()\n"))
    rows_file = tmp_path / "rows.jsonl"
    words = ["--platform", "cpu", "--rounds", "2", "-o", rows_file]
    run(script, decided, *words, "--variants", "again")
    assert {row["variant"] for row in lines_of(rows_file)} >= {"jax.jit", "again"}


def test_two_functions_of_one_name_need_two_folders(root: Path, tmp_path: Path):
    script = root / "scripts" / "gpu" / "decide.py"
    words = [str(tmp_path), "a/model.py:step", "b/model.py:step"]
    child = run_python(str(script), *words)
    assert child.returncode == 2
    assert "two programs of one name" in child.stderr
