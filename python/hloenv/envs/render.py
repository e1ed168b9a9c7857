# SPDX-License-Identifier: Apache-2.0
"""Episodes for people: a table of the steps, a curve of the instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def render_ansi(
    names: Sequence[str], op_counts: Sequence[int], rewards: Sequence[float]
) -> str:
    """One line for each step; `op_counts` has the start's in front."""
    lines = [f"{'':40s} {op_counts[0]:7d} instructions"] if op_counts else []
    for name, before, after, reward in zip(
        names, op_counts, op_counts[1:], rewards, strict=False
    ):
        lines.append(f"{name:40s} {after:7d} {after - before:+7d} {reward:+10.5f}")
    return "\n".join(lines) + "\n"


def render_rgb(names: Sequence[str], op_counts: Sequence[int]) -> Any:
    """[480, 640, 3] uint8: the number of instructions by step."""
    import matplotlib
    import numpy as np
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"font.size": 9}):
        figure = Figure(figsize=(6.4, 4.8), dpi=100, layout="constrained")
        canvas: Any = FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        axes.step(range(len(op_counts)), op_counts, where="post")
        axes.set_xticks(range(1, len(names) + 1), names, rotation=90)
        axes.set_ylabel("instructions")
        axes.set_ylim(bottom=0)
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
