# SPDX-License-Identifier: Apache-2.0
"""Encodes many graphs in parts, so that the memory has a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

# Nodes and edges that are encoded at once: some hundred MB of activations.
MAX_SIZE = 30_000


def encode_in_chunks(
    encode: Callable[[Sequence[Any]], tuple[Tensor, ...]],
    graphs: Sequence[Any],
    sizes: Sequence[int],
) -> tuple[Tensor, ...]:
    """What `encode` gives for the graphs, each of its tensors concatenated.

    With several parts, the backward pass computes the activations of each part again,
    and only those of one part are held.

    Args:
        encode: of some graphs; what it gives for one must not depend on the others.
        graphs: any number but 0.
        sizes: of the graphs: nodes and edges. A part has at most `MAX_SIZE`, unless it
            is one graph.
    """
    parts = list(_parts(sizes))
    if len(parts) == 1:
        return encode(graphs)
    made = [
        checkpoint(encode, graphs[part], use_reentrant=False)
        if torch.is_grad_enabled()
        else encode(graphs[part])
        for part in parts
    ]
    return tuple(torch.cat(each) for each in zip(*made, strict=True))


def distinct_of(graphs: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The objects without repetitions, and the number of each."""
    numbers: dict[int, int] = {}
    kept: list[Any] = []
    which: list[int] = []
    for graph in graphs:
        if id(graph) not in numbers:
            numbers[id(graph)] = len(kept)
            kept.append(graph)
        which.append(numbers[id(graph)])
    return kept, which


def _parts(sizes: Sequence[int]) -> Iterator[slice]:
    start = total = 0
    for number, size in enumerate(sizes):
        if total and total + size > MAX_SIZE:
            yield slice(start, number)
            start, total = number, 0
        total += size
    yield slice(start, len(sizes))
