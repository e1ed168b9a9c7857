# SPDX-License-Identifier: Apache-2.0
"""Layered layout of a module in linear time, with computations nested in boxes.

Each computation is laid out by itself: instructions in layers from operands to users,
ordered within a layer by the mean position of their neighbours. A computation that
belongs to one instruction (a fusion, the body of a loop) is a box inside that
instruction's; the others, such as reducers, are in rows below the entry.

All computations of one nesting depth are placed at once, by numpy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .._typing import Float64Array, Int64Array

NODE_WIDTH = 12.0
NODE_HEIGHT = 3.2
_TITLE = 2.0  # above the computations inside a node
_PADDING = 1.0
_GAP_X = 1.6
_GAP_Y = 2.4
_SWEEPS = 16
_MIN_ROW_WIDTH = 120.0


@dataclass(frozen=True)
class Structure:
    """What a layout depends on. N nodes, E edges, C computations.

    Attributes:
        computation: [N] of each node.
        edge_sources: [E] the source precedes its target in node order.
        edge_targets: [E] ascending.
        parents: [C] the node that contains the computation, -1 for none; callees
            precede callers.
    """

    computation: Int64Array
    edge_sources: Int64Array
    edge_targets: Int64Array
    parents: Int64Array


@dataclass(frozen=True)
class Layout:
    """Boxes by center and size.

    Attributes:
        x: [N] of each node; likewise y, w, h.
        boxes: [C, 4] x, y, w, h of each computation.
        width: of the whole.
        height: of the whole.
    """

    x: Float64Array
    y: Float64Array
    w: Float64Array
    h: Float64Array
    boxes: Float64Array
    width: float
    height: float


def place(structure: Structure) -> Layout:
    """Lays out all computations."""
    return _Placement(structure).run()


def layers_of(structure: Structure) -> Int64Array:
    """[N] layer of each node in its computation, operands before users.

    The longest path from the computation's sources; chains of one operand that start
    at a source, such as a parameter and its transposition, are next to their users.
    """
    num_nodes = len(structure.computation)
    sources = structure.edge_sources.tolist()
    targets = structure.edge_targets.tolist()
    layer = [0] * num_nodes
    operand = [-1] * num_nodes
    is_chain = [True] * num_nodes
    for source, target in zip(sources, targets, strict=True):
        if layer[target] <= layer[source]:
            layer[target] = layer[source] + 1
        if operand[target] not in (-1, source) or not is_chain[source]:
            is_chain[target] = False
        operand[target] = source
    latest = [num_nodes] * num_nodes
    for source, target in zip(reversed(sources), reversed(targets), strict=True):
        if is_chain[target] and latest[target] < num_nodes:
            layer[target] = latest[target]
        latest[source] = min(latest[source], layer[target] - 1)
    for node in range(num_nodes):
        if is_chain[node] and latest[node] < num_nodes:
            layer[node] = latest[node]
    return np.array(layer, np.int64)


class _Placement:
    def __init__(self, structure: Structure) -> None:
        self._given = structure
        num_nodes = len(structure.computation)
        self._x = np.zeros(num_nodes)
        self._y = np.zeros(num_nodes)
        self._w = np.full(num_nodes, NODE_WIDTH)
        self._h = np.full(num_nodes, NODE_HEIGHT)
        self._boxes = np.zeros((len(structure.parents), 4))
        self._layer = layers_of(structure)
        # Of a computation, relative to its parent's center.
        self._offset = np.zeros((len(structure.parents), 2))

    def run(self) -> Layout:
        depth = self._depths()
        node_depth = depth[self._given.computation]
        for each in range(int(depth.max(initial=0)), -1, -1):
            self._place(np.flatnonzero(node_depth == each))
            self._grow_parents(np.flatnonzero(depth == each))
        self._arrange_roots()
        for each in range(1, int(depth.max(initial=0)) + 1):
            inside = np.flatnonzero(depth == each)
            parents = self._given.parents[inside]
            center = np.stack([self._x[parents], self._y[parents]], 1)
            self._move(inside, center + self._offset[inside])
        ends = self._boxes[:, :2] + self._boxes[:, 2:] / 2
        width, height = ends.max(axis=0, initial=0)
        return Layout(
            self._x, self._y, self._w, self._h, self._boxes, float(width), float(height)
        )

    def _depths(self) -> Int64Array:
        """[C] nesting depth; callers come after callees."""
        depth = np.zeros(len(self._given.parents), np.int64)
        for number in range(len(depth) - 1, -1, -1):
            parent = self._given.parents[number]
            if parent >= 0:
                depth[number] = depth[self._given.computation[parent]] + 1
        return depth

    def _place(self, nodes: Int64Array) -> None:
        """Places nodes of one depth relative to their computation's center."""
        if not len(nodes):
            return
        self._place_x(nodes, _Rows.of(self._given.computation, self._layer, nodes))
        self._place_y(nodes)
        self._measure_boxes(nodes)

    def _place_x(self, nodes: Int64Array, rows: _Rows) -> None:
        x, width = self._x, self._w + _GAP_X
        x[rows.order] = rows.centered(width[rows.order])
        inside = np.zeros(len(x), np.bool_)
        inside[nodes] = True
        kept = inside[self._given.edge_targets]
        source = self._given.edge_sources[kept]
        target = self._given.edge_targets[kept]
        size = len(x)
        num_users = np.bincount(source, minlength=size)
        num_operands = np.bincount(target, minlength=size)
        for sweep in range(_SWEEPS if len(source) else 0):
            total = np.zeros(size)
            count = np.zeros(size)
            if sweep % 3 != 1:
                total += np.bincount(target, x[source], minlength=size)
                count += num_operands
            if sweep % 3 != 0:
                total += np.bincount(source, x[target], minlength=size)
                count += num_users
            mean = np.divide(total, count, out=x.copy(), where=count > 0)
            wanted = 0.3 * x + 0.7 * mean
            rows = rows.sorted_by(wanted)
            x[rows.order] = rows.packed(wanted[rows.order], width[rows.order])

    def _place_y(self, nodes: Int64Array) -> None:
        """Layers below each other, as high as their highest node."""
        rows = _Rows.of(self._given.computation, self._layer, nodes)
        heights = np.maximum.reduceat(self._h[rows.order], rows.starts) + _GAP_Y
        bottoms = np.cumsum(heights)
        first = self._given.computation[rows.order[rows.starts]]
        is_first = np.append(True, first[1:] != first[:-1])
        top = np.where(is_first, bottoms - heights, 0.0)
        top = np.maximum.accumulate(top)
        self._y[rows.order] = (bottoms - heights / 2 - top)[rows.number]

    def _measure_boxes(self, nodes: Int64Array) -> None:
        """Sizes of the computations of these nodes, which are centered in them."""
        order = nodes[np.argsort(self._given.computation[nodes], kind="stable")]
        numbers, starts, inverse = np.unique(
            self._given.computation[order], return_index=True, return_inverse=True
        )
        half_w, half_h = self._w[order] / 2, self._h[order] / 2
        x, y = self._x[order], self._y[order]
        left = np.minimum.reduceat(x - half_w, starts)
        right = np.maximum.reduceat(x + half_w, starts)
        top = np.minimum.reduceat(y - half_h, starts)
        bottom = np.maximum.reduceat(y + half_h, starts)
        self._x[order] -= ((left + right) / 2)[inverse]
        self._y[order] -= ((top + bottom) / 2)[inverse]
        self._boxes[numbers, 2] = right - left + 2 * _PADDING
        self._boxes[numbers, 3] = bottom - top + 2 * _PADDING

    def _grow_parents(self, numbers: Int64Array) -> None:
        """Sizes of the nodes that contain these computations, side by side."""
        parents = self._given.parents[numbers]
        numbers, parents = numbers[parents >= 0], parents[parents >= 0]
        if not len(numbers):
            return
        order = np.argsort(parents, kind="stable")
        numbers, parents = numbers[order], parents[order]
        nodes, starts, inverse = np.unique(
            parents, return_index=True, return_inverse=True
        )
        widths = self._boxes[numbers, 2] + _PADDING
        ends = np.cumsum(widths)
        before = (ends - widths)[starts]
        totals = np.add.reduceat(widths, starts)
        heights = np.maximum.reduceat(self._boxes[numbers, 3], starts)
        self._w[nodes] = np.maximum(totals + _PADDING, NODE_WIDTH)
        self._h[nodes] = heights + _TITLE + _PADDING
        middle = ends - widths / 2 - before[inverse] - (totals / 2)[inverse]
        self._offset[numbers, 0] = middle
        self._offset[numbers, 1] = (_TITLE - _PADDING) / 2

    def _arrange_roots(self) -> None:
        """The entry, which is last, at the top; the others in rows below it."""
        roots = np.flatnonzero(self._given.parents < 0)[::-1]
        if not len(roots):
            return
        sizes = self._boxes[roots, 2:].tolist()
        limit = max(sizes[0][0], _MIN_ROW_WIDTH)
        centers = np.zeros((len(roots), 2))
        left = top = row_height = 0.0
        for place, (width, height) in enumerate(sizes):
            if place == 1 or (left > 0 and left + width > limit):
                top, left, row_height = top + row_height + 2 * _GAP_Y, 0.0, 0.0
            centers[place] = left + width / 2, top + height / 2
            left += width + 2 * _GAP_X
            row_height = max(row_height, height)
        self._move(roots, centers)

    def _move(self, numbers: Int64Array, centers: Float64Array) -> None:
        """Computations to their centers, with their nodes."""
        self._boxes[numbers, :2] = centers
        shift = np.zeros((len(self._boxes), 2))
        shift[numbers] = centers
        self._x += shift[self._given.computation, 0]
        self._y += shift[self._given.computation, 1]


@dataclass(frozen=True)
class _Rows:
    """Nodes by computation and layer; R rows.

    Attributes:
        order: [M] the nodes, row by row.
        starts: [R] where each row begins in `order`.
        number: [M] the row of each node.
        key: [M] one integer for each computation and layer, ascending.
    """

    order: Int64Array
    starts: Int64Array
    number: Int64Array
    key: Int64Array

    @classmethod
    def of(cls, computation: Int64Array, layer: Int64Array, nodes: Int64Array) -> _Rows:
        """Rows in node order, which is a depth-first order of the graph."""
        base = int(layer.max(initial=0)) + 1
        key = computation[nodes].astype(np.int64) * base + layer[nodes]
        order = np.argsort(key, kind="stable")
        key = key[order]
        is_first = np.append(True, key[1:] != key[:-1])
        number = np.cumsum(is_first) - 1
        return cls(nodes[order], np.flatnonzero(is_first), number, key)

    def sorted_by(self, wanted: Float64Array) -> _Rows:
        """The same rows, each ordered by the wanted positions."""
        inner = np.lexsort((wanted[self.order], self.key))
        return _Rows(self.order[inner], self.starts, self.number, self.key)

    def centered(self, widths: Float64Array) -> Float64Array:
        """[M] positions side by side, each row centered at 0."""
        ends = np.cumsum(widths)
        totals = np.add.reduceat(widths, self.starts)
        begin = (ends - widths)[self.starts] + totals / 2
        centers: Float64Array = ends - widths / 2 - begin[self.number]
        return centers

    def packed(self, wanted: Float64Array, widths: Float64Array) -> Float64Array:
        """[M] positions without overlap, near the wanted ones.

        The mean of the two feasible positions that move nodes only to the right, and
        only to the left.
        """
        ends = np.cumsum(widths)
        slack = wanted - (ends - widths / 2)
        low, high = float(slack.min()), float(slack.max())
        lift = (high - low + 1.0) * self.number
        to_right = np.maximum.accumulate(slack + lift) - lift
        to_left = np.minimum.accumulate((slack + lift)[::-1])[::-1] - lift
        result: npt.NDArray[np.float64] = (to_right + to_left) / 2 + ends - widths / 2
        return result
