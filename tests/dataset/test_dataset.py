# SPDX-License-Identifier: Apache-2.0
"""Reading a built dataset, and the command `hloenv dataset`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hloenv
from hloenv.cli import main
from hloenv.errors import DatasetError
from support.dataset_rows import parquet, row, write_dataset


@pytest.fixture
def rows() -> dict[str, list[dict[str, object]]]:
    # More than one group of rows, so that texts are found in the right one.
    return {
        "train": [row(size, "a", "train") for size in range(1, 101)],
        "validation": [row(200, "b", "validation")],
        "test": [],
    }


@pytest.fixture
def folder(rows, tmp_path, monkeypatch) -> Path:
    write_dataset(tmp_path, rows)
    monkeypatch.setenv("HLOENV_DATASET", str(tmp_path))
    return tmp_path


@pytest.fixture
def run(capsys, folder):
    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["dataset", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_load_parses_modules_on_access(folder):
    records = hloenv.dataset.load("train")
    assert len(records) == 100
    record = next(each for each in records if "size=77]" in each.name)
    assert record.module.input_specs()[0].shape == (77,)
    assert record.module.fingerprint() == record.fingerprint
    assert (record.source, record.licence, record.split) == ("a", "MIT", "train")
    assert record.opcode_counts == {
        "convert": 1,
        "negate": 1,
        "parameter": 2,
        "tuple": 1,
    }
    assert record.input_ranges == (hloenv.dataset.InputRange(1, 0, 7),)


def test_load_takes_all_splits_and_an_empty_one(folder):
    assert len(hloenv.dataset.load()) == 101
    assert len(hloenv.dataset.load("test")) == 0
    assert len(hloenv.dataset.load("validation", path=folder)) == 1


@pytest.fixture
def extents(folder) -> Path:
    """A dataset with one program at real extents, and one that is unseen."""
    real = {
        "extent": "real",
        "input_distributions": [
            {"parameter": 0, "distribution": "uniform", "location": 2.0, "scale": 0.5}
        ],
    }
    changes = {
        "test": row(3000, "c", "test") | real,
        "unseen": row(300, "d", "unseen"),
    }
    for name, changed in changes.items():
        parquet.write(folder / f"{name}.parquet", [changed])
    return folder


def test_real_extents_are_loaded_only_on_request(extents):
    assert len(hloenv.dataset.load()) == 101
    (real,) = hloenv.dataset.load(extent="real")
    assert (real.extent, real.source) == ("real", "c")
    assert len(hloenv.dataset.load("test")) == 0
    everything = hloenv.dataset.load(extent="all")
    assert len(everything) == 102
    assert list(everything.select(extent="real")) == [real]
    assert {r.extent for r in everything.select(extent="small")} == {"small"}
    with pytest.raises(DatasetError, match="extent must be one of small, real, or all"):
        hloenv.dataset.load(extent="large")


def test_all_does_not_include_the_unseen_split(extents):
    assert [record.source for record in hloenv.dataset.load("unseen")] == ["d"]
    assert "d" not in {r.source for r in hloenv.dataset.load(extent="all")}


def test_a_file_without_the_columns_of_real_extents_is_small(folder):
    import pyarrow.parquet as pq

    path = folder / "validation.parquet"
    newer = ["extent", "input_distributions"]
    pq.write_table(pq.read_table(path).drop_columns(newer), path)
    (record,) = hloenv.dataset.load("validation")
    assert (record.extent, record.input_distributions) == ("small", ())


def test_inputs_are_within_ranges_and_follow_distributions(extents):
    (record,) = hloenv.dataset.load("test", extent="real")
    floats, integers = record.inputs()
    assert floats.min() >= 2.0
    assert 2.4 < floats.max() <= 2.5
    assert set(integers.tolist()) <= set(range(8))
    for again, first in zip(record.inputs(), (floats, integers), strict=True):
        np.testing.assert_array_equal(again, first)
    assert not np.array_equal(record.inputs(seed=1)[0], floats)
    record = hloenv.dataset.load("train")[0]
    drawn, random = record.inputs(), hloenv.random_inputs(record.module)
    np.testing.assert_array_equal(drawn[0], random[0])


def test_a_slice_and_a_selection_are_datasets(folder):
    records = hloenv.dataset.load()
    assert len(records[10:20]) == 10
    assert len(records.select(source="b")) == 1
    assert len(records.select(min_instructions=6)) == 0
    assert repr(records) == "<Dataset: 101 modules of 2 sources>"


@pytest.mark.parametrize(
    ("split", "path", "message"),
    [("dev", None, "got 'dev'"), ("train", "absent", "scripts/build_dataset.py")],
)
def test_load_errors_name_the_missing_file(folder, split, path, message):
    with pytest.raises(DatasetError, match=message):
        hloenv.dataset.load(split, path=None if path is None else folder / path)


def test_load_rejects_other_files(folder):
    (folder / "train.parquet").write_bytes(b"PAR1 no PAR1")
    with pytest.raises(DatasetError, match=r"train\.parquet is not a file"):
        hloenv.dataset.load("train")


def test_stats(run):
    code, out, _ = run("stats")
    assert code == 0
    assert "101 modules of 2 sources in 2 repositories, 505 instructions" in out
    found = json.loads(run("stats", "--json")[1])
    assert found["train_steps"] == 101
    assert found["by_split"] == {"train": 100, "validation": 1}
    assert found["at_least_instructions"]["10"] == 0


def test_show_lists_and_prints_one(run, folder):
    assert "size=200" in run("show", "--source", "b")[1]
    record = hloenv.dataset.load("validation")[0]
    found = json.loads(run("show", record.fingerprint, "--json")[1])
    assert (found["instruction_count"], found["source"]) == (5, "b")
    text = run("show", record.fingerprint, "--text")[1]
    assert hloenv.HloModule.from_text(text).fingerprint() == record.fingerprint
    assert "input 1: 0 to 7" in run("show", record.fingerprint)[1]


def test_show_of_an_unknown_fingerprint(run):
    code, _, err = run("show", "zzzz")
    assert code == 1
    assert "0 modules have a fingerprint" in err


def test_verify_passes_on_a_sound_dataset(run):
    code, out, _ = run("verify")
    assert (code, "all match their records" in out) == (0, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"instruction_count": 6}, "instruction_count is 5, but the record says 6"),
        ({"fingerprint": "0" * 32}, "fingerprint is"),
        ({"hlo": "HloModule m\n"}, "ParseError"),
        ({"repository": "https://example.org/a"}, "several splits"),
        (
            {"input_ranges": [{"parameter": 2, "low": 0, "high": 1}]},
            "parameter 2 of 2 has a range",
        ),
        (
            {
                "input_distributions": [
                    {
                        "parameter": 0,
                        "distribution": "cauchy",
                        "location": 0.0,
                        "scale": 1.0,
                    }
                ]
            },
            "parameter 0 of 2 has the distribution 'cauchy'",
        ),
    ],
)
def test_verify_finds_errors(run, rows, folder, change, message):
    parquet.write(folder / "validation.parquet", [rows["validation"][0] | change])
    code, out, err = run("verify")
    assert code == 1
    assert message in out + err


def test_verify_finds_a_duplicate_module(run, rows, folder):
    twice = rows["train"][0] | {"source": "c", "repository": "https://example.org/c"}
    parquet.write(folder / "test.parquet", [twice | {"split": "test"}])
    assert "duplicate of a: entry/case[size=1]/train_step" in run("verify")[1]
