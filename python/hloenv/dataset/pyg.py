# SPDX-License-Identifier: Apache-2.0
"""The dataset as PyTorch Geometric graphs. Needs torch, torch-geometric and pyarrow.

from hloenv.dataset.pyg import HloDataset

graphs = HloDataset("train", pre_filter=lambda r: r.instruction_count <= 2000)
for batch in torch_geometric.loader.DataLoader(graphs, batch_size=16, shuffle=True):
    batch.x, batch.edge_index, batch.family
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from .._optional import needed_by
from ..graph.convert import to_pyg
from ..graph.hlo_graph import HloGraph
from ..hlo.module import HloModule
from . import reader
from .reader import Record

with needed_by("hloenv.dataset.pyg", "torch and torch-geometric", "learn"):
    from torch_geometric.data import Dataset

if TYPE_CHECKING:
    from torch_geometric.data import HeteroData

    from ..graph.pyg import HloData

# Graph attributes from the record, in addition to those of `hloenv.graph.pyg`.
RECORD_ATTRIBUTES = ("fingerprint", "source", "name", "family", "split")


class HloDataset(Dataset):  # type: ignore[misc] # torch-geometric has no types
    """Modules of one split as graphs, converted on access.

    A graph has the tensors of `hloenv.graph.pyg.HloData`, or the node and edge types
    of `hloenv.graph.pyg.to_hetero`, and the strings `fingerprint`, `source`, `name`,
    `family` and `split` of its record; join your own labels by the fingerprint in
    `transform`. Slices, masks and `shuffle` are those of torch-geometric; loaders may
    have workers.

    Attributes:
        records: the records of the graphs, in the order of the unsliced dataset.
    """

    def __init__(
        self,
        split: str = "all",
        *,
        extent: str = "small",
        path: str | os.PathLike[str] | None = None,
        pre_filter: Callable[[Record], bool] | None = None,
        transform: Callable[[Any], Any] | None = None,
        hetero: bool = False,
        passes: Sequence[str] = (),
        to_graph: Callable[[HloModule], HloGraph] = HloGraph.from_module,
    ) -> None:
        """Reads the records without parsing modules.

        Args:
            split: as `dataset.load` takes it.
            extent: as `dataset.load` takes it.
            path: folder of the Parquet files; `dataset.folder()` by default.
            pre_filter: predicate on records, not graphs, so that excluded modules are
                never converted; None for all.
            transform: applied to a graph on each access.
            hetero: as `to_pyg` takes it.
            passes: as `to_pyg` takes it.
            to_graph: converts a module to a graph; for example to graphs with
                alternatives.

        Raises:
            DatasetError: as `dataset.load` raises it.
            ImportError: pyarrow is not installed.
        """
        found = reader.load(split, extent=extent, path=path)
        self.records = [r for r in found if pre_filter is None or pre_filter(r)]
        self._hetero, self._passes = hetero, tuple(passes)
        self._to_graph = to_graph
        super().__init__(root=None, transform=transform)

    def len(self) -> int:
        """Number of graphs before slicing."""
        return len(self.records)

    def get(self, index: int) -> HloData | HeteroData:
        """The graph of `records[index]`, without `transform`."""
        record = self.records[index]
        graph = self._to_graph(record.module)
        data: HloData | HeteroData
        if self._hetero:
            data = to_pyg(graph, hetero=True, passes=self._passes)
        else:
            data = to_pyg(graph, passes=self._passes)
        for name in RECORD_ATTRIBUTES:
            data[name] = getattr(record, name)
        return data
