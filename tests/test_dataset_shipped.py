# SPDX-License-Identifier: Apache-2.0
"""The dataset that the package brings: what its card promises."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import hloenv
from hloenv import dataset
from hloenv.cli import main

sys.path.append(str(Path(__file__).resolve().parent.parent))

from dataset import manifest, split


@pytest.fixture(scope="module")
def shipped() -> dataset.Dataset:
    return dataset.load(path=Path(dataset.__file__).parent / "data")


def test_it_is_as_large_as_promised_and_small_to_ship(shipped):
    counts = [record.instruction_count for record in shipped]
    assert len(shipped) >= 1500
    assert len({record.repository for record in shipped}) >= 25
    assert sum(count >= 200 for count in counts) >= 300
    assert sum(count >= 2000 for count in counts) >= 50
    files = (Path(dataset.__file__).parent / "data").glob("*.parquet")
    assert sum(path.stat().st_size for path in files) <= 20_000_000


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("transformers-decoders", "gpt2"),
        ("transformers-encoders", "bert"),
        ("transformers-encoders", "t5"),
        ("transformers-vision", "vit"),
        ("flax", "resnet"),
        ("flax", "vae"),
        ("flax", "diffusion"),
        ("flax", "graph_network"),
        ("rlax", ""),
        ("jax-md", "md_step"),
        ("numpyro", "mcmc"),
    ],
)
def test_whole_steps_are_among_them(shipped, source, name):
    steps = ("/step", "/md_step", "train_step")
    found = [r for r in shipped.select(source=source) if r.name.endswith(steps)]
    assert [record for record in found if name in record.name]


def test_no_repository_is_in_two_splits_and_no_module_is_there_twice(shipped):
    of_repository = {record.repository: record.split for record in shipped}
    for record in shipped:
        assert record.split == of_repository[record.repository]
        assert record.split == split.split_of(record.repository)
    assert set(of_repository.values()) == set(dataset.SPLITS)
    assert len({record.fingerprint for record in shipped}) == len(shipped)


def test_every_source_is_one_of_the_manifest_at_its_pin(shipped, root):
    sources = {s.name: s for s in manifest.load(root / "dataset" / "manifest.toml")}
    for record in shipped:
        source = sources[record.source]
        assert (record.repository, record.licence, record.version, record.family) == (
            source.repository,
            source.licence,
            source.version,
            source.family,
        )
        assert source.verified


def test_no_reserved_project_is_a_source(shipped):
    names = {record.source for record in shipped}
    names |= {record.repository.rsplit("/", 1)[1].lower() for record in shipped}
    assert not names & manifest.RESERVED


def test_some_modules_are_as_written(shipped):
    for record in shipped[::97]:
        assert dataset.check(record) == []


@pytest.mark.ci
def test_all_modules_are_as_written(capsys):
    data = Path(dataset.__file__).parent / "data"
    code = main(["dataset", "verify", "--path", str(data)])
    assert (code, "all as written" in capsys.readouterr().out) == (0, True)


def test_the_card_and_the_picture_are_those_of_the_files(shipped, root):
    plot = runpy.run_path(str(root / "scripts" / "plot_dataset.py"))
    card = (root / "dataset" / "README.md").read_text(encoding="utf-8")
    assert card == plot["with_figures"](card, shipped)
    picture = (root / "docs" / "dataset.svg").read_text(encoding="utf-8")
    assert picture == plot["draw"](shipped)
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert plot["summary"](shipped) in " ".join(readme.split())


_LOAD = """
import json, sys
import datasets

folder = sys.argv[1]
files = {s: f"{folder}/{s}.parquet" for s in ("train", "validation", "test")}
found = datasets.load_dataset("parquet", data_files=files, cache_dir=sys.argv[2])
row = found["test"][0]
print(json.dumps({
    "rows": {split: len(rows) for split, rows in found.items()},
    "fingerprint": row["fingerprint"],
    "hlo": row["hlo"],
    "opcode_counts": dict(zip(row["opcodes"], row["opcode_counts"])),
    "input_ranges": row["input_ranges"],
}))
"""


@pytest.mark.huggingface
def test_hugging_face_s_datasets_reads_the_files_as_they_are(shipped, tmp_path):
    folder = Path(dataset.__file__).parent / "data"
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(folder), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    found = json.loads(done.stdout)
    first = next(record for record in shipped if record.split == "test")
    assert found["rows"] == {
        name: sum(record.split == name for record in shipped) for name in dataset.SPLITS
    }
    assert found["fingerprint"] == first.fingerprint
    assert hloenv.HloModule.from_text(found["hlo"]).fingerprint() == first.fingerprint
    assert found["opcode_counts"] == first.opcode_counts
    assert found["input_ranges"] == [vars(each) for each in first.input_ranges]
