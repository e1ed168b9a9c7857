# SPDX-License-Identifier: Apache-2.0
"""The dataset as PyTorch Geometric graphs."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.errors import DatasetError
from support.dataset_rows import HLO, row, write_dataset
from support.run_child import run_python

pytestmark = pytest.mark.learn


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rows = {
        "train": [row(size, "a", "train") for size in (3, 4, 5, 6)],
        "validation": [row(9, "b", "validation")],
    }
    write_dataset(tmp_path, rows)
    monkeypatch.setenv("HLOENV_DATASET", str(tmp_path))
    return tmp_path


def test_a_graph_has_the_record_of_its_module(folder):
    from hloenv.dataset.pyg import HloDataset

    graphs = HloDataset("train")
    records = hloenv.dataset.load("train")
    assert len(graphs) == 4
    for data, record in zip(graphs, records, strict=True):
        expected = hloenv.to_pyg(hloenv.HloGraph.from_module(record.module))
        assert data.x.equal(expected.x)
        assert data.edge_index.equal(expected.edge_index)
        assert data.fingerprint == record.fingerprint
        assert (data.source, data.family) == ("a", "vision")


def test_splits_and_the_unknown_one(folder):
    from hloenv.dataset.pyg import HloDataset

    assert (len(HloDataset()), len(HloDataset("test"))) == (5, 0)
    assert HloDataset("validation")[0].split == "validation"
    with pytest.raises(DatasetError, match="got 'dev'"):
        HloDataset("dev")


def test_filtered_records_are_never_converted(folder):
    from hloenv.dataset.pyg import HloDataset

    made = []

    def to_graph(module):
        made.append(module.input_specs()[0].shape)
        return hloenv.HloGraph.from_module(module)

    graphs = HloDataset(
        "train", pre_filter=lambda r: "size=5]" in r.name, to_graph=to_graph
    )
    assert (len(graphs), made) == (1, [])
    assert graphs[0].num_nodes == 5
    assert made == [(5,)]


def test_transform_is_applied_each_time(folder):
    from hloenv.dataset.pyg import HloDataset

    calls = []

    def transform(data):
        calls.append(data.fingerprint)
        data.y = data.num_nodes
        return data

    graphs = HloDataset("train", transform=transform)
    assert [graphs[0].y, graphs[0].y] == [5, 5]
    assert len(calls) == 2
    assert "y" not in graphs.get(0)


def test_slices_and_shuffles_are_torch_geometric_s(folder):
    from hloenv.dataset.pyg import HloDataset

    graphs = HloDataset("train")
    names = {data.name for data in graphs}
    assert [data.name for data in graphs[1:3]] == [graphs[1].name, graphs[2].name]
    assert {data.name for data in graphs.shuffle()} == names


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_batches_graphs(folder, num_workers):
    from torch_geometric.loader import DataLoader

    from hloenv.dataset.pyg import HloDataset

    graphs = HloDataset("train")
    options = {"multiprocessing_context": "spawn"} if num_workers else {}
    loader = DataLoader(graphs, batch_size=3, num_workers=num_workers, **options)
    batches = list(loader)
    assert [batch.num_graphs for batch in batches] == [3, 1]
    assert [name for batch in batches for name in batch.name] == [
        data.name for data in graphs
    ]


def test_alternatives_and_hetero_graphs(folder):
    from hloenv.dataset.pyg import HloDataset

    twice = HLO.replace("negate(p)", "negate(m)").replace(
        "  n =", "  m = f32[{size}]{{0}} negate(p)\n  n ="
    )
    write_dataset(folder, {"train": [row(3, "a", "train", hlo=twice)]})
    graphs = HloDataset(
        "train",
        hetero=True,
        passes=["algsimp"],
        to_graph=lambda m: hloenv.HloEnv(m).get_alternatives("algsimp").graph,
    )
    (data,) = graphs
    assert data["choice"].x.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert data.source == "a"


def test_without_torch_geometric_the_error_names_the_extra():
    code = (
        "import sys; sys.modules['torch_geometric.data'] = None\n"
        "try:\n    import hloenv.dataset.pyg\n"
        "except ImportError as error: print(error)\n"
    )
    done = run_python("-c", code)
    assert "pip install 'hloenv[learn]'" in done.stdout
