# SPDX-License-Identifier: Apache-2.0
"""The dataset in the package agrees with its card."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import hloenv
from hloenv.cli import main
from hloenv.dataset import reader
from plot_dataset import architecture, draw, summary, with_figures
from support.paths import ROOT

sys.path.append(str(ROOT))

from dataset import manifest, split

DATA = Path(reader.__file__).parent / "files"
# Of the part that published results are about: it may only grow by whole sources.
SMALL_SHA256 = "f873b589be45097d3dceace7ea234f62780aff374b7398d8ab93a7a0f3c7b9be"
# Elements that a constant of a program at real extents may have at most.
MAX_CONSTANT = 20_000


@pytest.fixture(scope="module")
def shipped() -> reader.Dataset:
    return reader.load(path=DATA)


@pytest.fixture(scope="module")
def real() -> reader.Dataset:
    return reader.load(extent="real", path=DATA)


@pytest.fixture(scope="module")
def unseen() -> reader.Dataset:
    return reader.load(reader.UNSEEN, extent="all", path=DATA)


def test_the_small_part_is_the_one_that_results_are_about(shipped):
    lines = []
    for record in shipped:
        text = hashlib.sha256(record.text.encode()).hexdigest()
        words = (record.split, record.name, record.fingerprint, text)
        lines.append(" ".join((*words, str(record.num_copies))))
    # Not by source, because `own-jax` had another name.
    digest = hashlib.sha256("\n".join(sorted(lines)).encode())
    assert digest.hexdigest() == SMALL_SHA256


def test_real_extents_are_many_architectures_in_every_split(real):
    kinds = {name: set() for name in reader.SPLITS}
    for record in real:
        kinds[record.split].add(architecture(record))
    counts = {name: sum(r.split == name for r in real) for name in reader.SPLITS}
    assert counts["train"] >= 20
    assert counts["validation"] >= 10
    assert counts["test"] >= 15
    assert min(map(len, kinds.values())) >= 5
    assert len(set.union(*kinds.values())) >= 15
    assert max(record.instruction_count for record in real) <= 7000
    steps = ("step", "update", "train_step", "grad", "forward")
    for step in steps:
        assert [r for r in real if r.name.endswith(step)]


def test_real_extents_are_far_larger_than_the_small_part(shipped, real):
    """By memory traffic, because a loop's body counts once among the operations."""
    medians = [
        statistics.median(record.bytes for record in records)
        for records in (real, shipped)
    ]
    assert medians[0] > 50 * medians[1]


def test_real_extents_have_no_large_constants(real):
    for record in real:
        for shape in re.findall(r"= \w+\[([\d,]*)\]\S* constant\(", record.text):
            elements = math.prod(int(size) for size in shape.split(",") if size)
            assert elements <= MAX_CONSTANT, (record.source, record.name, shape)


def test_real_extents_are_valid_and_have_finite_outputs(real):
    for record in real[::7]:
        assert reader.check(record) == []
        arrays = record.inputs()
        for each in record.input_ranges:
            array = arrays[each.parameter]
            assert each.low <= array.min() <= array.max() <= each.high
        for each in record.input_distributions:
            assert arrays[each.parameter].dtype.kind == "f"


def test_second_moments_and_variances_are_positive(real):
    """A negative one gives NaN, for which any two outputs are equal."""
    steps = [record for record in real if record.name.endswith("/train_step")]
    assert len(steps) > 30
    for record in steps:
        kinds = {each.distribution for each in record.input_distributions}
        assert kinds == {"normal", "uniform"}, record.name
        assert any(
            each.distribution == "uniform" and 0 < each.location < 1e-6
            for each in record.input_distributions
        ), record.name


def test_the_unseen_split_is_of_other_projects(shipped, real, unseen):
    assert len(unseen) >= 60
    assert len({record.repository for record in unseen}) >= 6
    assert {record.split for record in unseen} == {"unseen"}
    for name in ("source", "repository", "fingerprint"):
        seen = {getattr(record, name) for record in (*shipped, *real)}
        assert not seen & {getattr(record, name) for record in unseen}


def test_the_unseen_split_agrees_with_the_manifest(root):
    sources = manifest.load(root / "dataset" / "manifest.toml")
    where = {}
    for source in sources:
        where.setdefault(split.canonical(source.repository), set()).add(source.split)
    assert all(len(splits) == 1 for splits in where.values())


def test_the_size_is_that_of_the_card(shipped):
    counts = [record.instruction_count for record in shipped]
    assert len(shipped) >= 1500
    assert len({record.repository for record in shipped}) >= 25
    assert sum(count >= 200 for count in counts) >= 300
    assert sum(count >= 2000 for count in counts) >= 50
    files = DATA.glob("*.parquet")
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
def test_the_dataset_has_complete_steps(shipped, source, name):
    steps = ("/step", "/md_step", "train_step")
    found = [r for r in shipped.select(source=source) if r.name.endswith(steps)]
    assert [record for record in found if name in record.name]


def test_splits_share_no_repository_and_no_module(shipped, real):
    of_repository = {record.repository: record.split for record in shipped}
    for record in (*shipped, *real):
        assert record.split == of_repository[record.repository]
        assert record.split == split.split_of(record.repository)
    assert set(of_repository.values()) == set(reader.SPLITS)
    fingerprints = {record.fingerprint for record in (*shipped, *real)}
    assert len(fingerprints) == len(shipped) + len(real)


def test_every_source_is_one_of_the_manifest_at_its_pin(shipped, real, unseen, root):
    sources = {s.name: s for s in manifest.load(root / "dataset" / "manifest.toml")}
    for record in (*shipped, *real, *unseen):
        assert record.extent == sources[record.source].extent_of(record.entry)
        source = sources[record.source]
        assert (record.repository, record.licence, record.version, record.family) == (
            source.repository,
            source.licence,
            source.version,
            source.family,
        )
        assert source.verified


def test_no_reserved_project_is_a_source(shipped, unseen):
    records = (*shipped, *unseen)
    names = {record.source for record in records}
    names |= {record.repository.rsplit("/", 1)[1].lower() for record in records}
    assert not names & manifest.RESERVED


def test_some_modules_are_as_written(shipped, unseen):
    for record in (*shipped[::97], *unseen[::23]):
        assert reader.check(record) == []


@pytest.mark.ci
def test_all_modules_are_as_written(capsys):
    code = main(["dataset", "verify", "--path", str(DATA)])
    assert (code, "all match their records" in capsys.readouterr().out) == (0, True)


@pytest.mark.ci
def test_all_of_the_other_parts_are_as_written(real, unseen):
    problems = {r.name: reader.check(r) for r in (*real, *unseen)}
    assert {name: found for name, found in problems.items() if found} == {}


def test_the_card_and_the_picture_are_those_of_the_files(shipped, real, unseen, root):
    card = (root / "dataset" / "README.md").read_text(encoding="utf-8")
    assert card == with_figures(card, shipped, real, unseen)
    picture = (root / "docs" / "dataset.svg").read_text(encoding="utf-8")
    assert picture == draw(shipped)
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert summary(shipped) in " ".join(readme.split())


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
def test_hugging_face_s_datasets_reads_the_files_as_they_are(tmp_path):
    records = reader.load(extent="all", path=DATA)
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(DATA), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    found = json.loads(done.stdout)
    first = next(record for record in records if record.split == "test")
    assert found["rows"] == {
        name: sum(record.split == name for record in records) for name in reader.SPLITS
    }
    assert found["fingerprint"] == first.fingerprint
    assert hloenv.HloModule.from_text(found["hlo"]).fingerprint() == first.fingerprint
    assert found["opcode_counts"] == first.opcode_counts
    assert found["input_ranges"] == [vars(each) for each in first.input_ranges]
