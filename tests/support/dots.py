# SPDX-License-Identifier: Apache-2.0
"""HLO text of dots whose dimensions have labels."""

from __future__ import annotations

from collections.abc import Mapping


def shape_text(kind: str, labels: str, sizes: Mapping[str, int]) -> str:
    """The shape of an array with these dimensions."""
    return f"{kind}[{','.join(str(sizes[label]) for label in labels)}]"


def dot_attributes(left: str, right: str, batch: str, summed: str) -> str:
    """The dimension numbers of a dot of operands with these dimensions."""

    def dimensions(name: str, labels: str, of: str) -> str:
        return f"{name}={{{','.join(str(labels.index(each)) for each in of)}}}"

    return ", ".join(
        (
            dimensions("lhs_batch_dims", left, batch),
            dimensions("rhs_batch_dims", right, batch),
            dimensions("lhs_contracting_dims", left, summed),
            dimensions("rhs_contracting_dims", right, summed),
        )
    )
