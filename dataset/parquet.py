# SPDX-License-Identifier: Apache-2.0
"""Writes rows to Parquet, deterministically.

The schema has only types that Hugging Face's `datasets` supports.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

# Columns that `normalize.describe` fills.
MEASURED = (
    "fingerprint",
    "instruction_count",
    "computation_count",
    "opcodes",
    "opcode_counts",
    "flops",
    "bytes",
    "transcendentals",
    "hlo",
)
# Rows that are decompressed to read one module. Small modules of one source are similar
# and compress well together.
_ROWS_PER_GROUP = 64


def schema() -> pyarrow.Schema:
    """Returns the columns and their types."""
    import pyarrow as pa

    ranges = pa.struct(
        [("parameter", pa.int32()), ("low", pa.int64()), ("high", pa.int64())]
    )
    distributions = pa.struct(
        [
            ("parameter", pa.int32()),
            ("distribution", pa.string()),
            ("location", pa.float64()),
            ("scale", pa.float64()),
        ]
    )
    return pa.schema(
        [
            ("source", pa.string()),
            ("name", pa.string()),
            ("fingerprint", pa.string()),
            ("family", pa.string()),
            ("licence", pa.string()),
            ("repository", pa.string()),
            ("version", pa.string()),
            ("entry", pa.string()),
            ("jax_version", pa.string()),
            ("split", pa.string()),
            ("instruction_count", pa.int32()),
            ("computation_count", pa.int32()),
            ("opcodes", pa.list_(pa.string())),
            ("opcode_counts", pa.list_(pa.int32())),
            ("flops", pa.float64()),
            ("bytes", pa.float64()),
            ("transcendentals", pa.float64()),
            ("input_ranges", pa.list_(ranges)),
            ("num_copies", pa.int32()),
            ("hlo", pa.string()),
            ("extent", pa.string()),
            ("input_distributions", pa.list_(distributions)),
        ]
    )


def read(path: Path) -> list[dict[str, Any]]:
    """Reads the rows of a file that `write` has written."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows in the given order, atomically."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = schema()
    table = pa.Table.from_pylist(list(rows), schema=columns)
    part = path.with_suffix(".part")
    pq.write_table(
        table,
        part,
        version="2.6",
        compression="zstd",
        compression_level=19,
        row_group_size=_ROWS_PER_GROUP,
        data_page_size=32 << 20,
        use_dictionary=[
            *("source", "family", "licence", "repository", "opcodes", "extent")
        ],
        write_statistics=False,
    )
    part.rename(path)
