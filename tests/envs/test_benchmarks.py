# SPDX-License-Identifier: Apache-2.0
"""Benchmarks by URI."""

from __future__ import annotations

import pytest

from envs.modules import SMALL, small
from hloenv import dataset
from hloenv.envs import find_benchmarks, list_benchmark_sets
from hloenv.errors import ArgumentError, DatasetError


def test_a_uri_finds_a_split_a_source_or_one_module() -> None:
    records = dataset.load("test")
    assert len(find_benchmarks("hloenv://dataset/test")) == len(records)
    of_source = records.select(source="flax")
    found = find_benchmarks("hloenv://dataset/test/flax")
    assert len(found) == len(of_source)
    for benchmark, record in list(zip(found, of_source, strict=True))[:5]:
        (again,) = find_benchmarks(benchmark.uri)
        assert again == benchmark
        assert again.load().fingerprint() == record.fingerprint


def test_conditions() -> None:
    uri = "hloenv://dataset/train?min_instructions=50&max_instructions=80"
    found = find_benchmarks(uri)
    assert found
    assert all(50 <= each.load().instruction_count <= 80 for each in found[:20])
    real = find_benchmarks("hloenv://dataset/test?extent=real")
    assert len(real) == len(dataset.load("test", extent="real"))


@pytest.mark.parametrize("name", list_benchmark_sets())
def test_sets_are_split_by_repository(name) -> None:
    sources = {
        split: {
            each.uri.split("/")[4]
            for each in find_benchmarks(f"hloenv://{name}/{split}")
        }
        for split in ("train", "test")
    }
    assert sources["train"]
    assert sources["test"]
    assert not sources["train"] & sources["test"]


def test_training_graphs_are_training_graphs() -> None:
    for split in ("train", "validation", "test"):
        for each in find_benchmarks(f"hloenv://gpt2-train/{split}"):
            assert each.uri.endswith(("/grad", "/train_step"))
            assert "gpt" in each.uri


def test_files_generated_modules_and_modules(tmp_path) -> None:
    path = tmp_path / "a b.hlo"
    path.write_text(SMALL)
    (found,) = find_benchmarks(f"hloenv://file/{path}")
    assert found.load().fingerprint() == small().fingerprint()
    (tmp_path / "b.hlo").write_text(
        "HloModule b\nENTRY e { ROOT p = s4[] parameter(0) }"
    )
    (tmp_path / ".hidden").write_text("")
    both = find_benchmarks(f"hloenv://file/{tmp_path}")
    assert [each.load().name for each in both] == [small().name, "b"]
    assert find_benchmarks(both[0].uri)[0].uri == both[0].uri
    (found,) = find_benchmarks("hloenv://generated/7")
    (again,) = find_benchmarks("hloenv://generated/7")
    assert found.load().fingerprint() == again.load().fingerprint()
    (other,) = find_benchmarks("hloenv://generated/8")
    assert found.load().fingerprint() != other.load().fingerprint()
    (found,) = find_benchmarks(small())
    assert found.load().fingerprint() in found.uri
    assert not found.is_trusted


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        ("dataset/train", ArgumentError, "URI such as"),
        ("hloenv://", ArgumentError, "must come one of"),
        ("hloenv://dataset/tain", DatasetError, "split must be"),
        ("hloenv://dataset/train/nobody", ArgumentError, "no module"),
        ("hloenv://dataset/train?size=3", ArgumentError, "max_instructions"),
        ("hloenv://dataset/train?max_instructions=x", ArgumentError, "no integer"),
        ("hloenv://file/nowhere.hlo", FileNotFoundError, "nowhere.hlo"),
        ("hloenv://file/", ArgumentError, "has no path"),
        ("hloenv://generated/-1", ArgumentError, ">= 0"),
        ("hloenv://module/0123", ArgumentError, "must come one of"),
    ],
)
def test_what_is_no_benchmark(uri, error, words) -> None:
    with pytest.raises(error, match=words):
        find_benchmarks(uri)


def test_an_empty_folder(tmp_path) -> None:
    with pytest.raises(ArgumentError, match="no file in the folder"):
        find_benchmarks(f"hloenv://file/{tmp_path}")
