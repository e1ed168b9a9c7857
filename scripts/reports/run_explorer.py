#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times the page of `hloenv explore` in a headless Chromium, drawn by the processor.

For modules of some sizes: seconds from the request of the URL to the drawn graph, in a
browser that has not seen the page; frames a second while it is panned and zoomed, each
frame moved by the page itself; and milliseconds from a decision to the static estimate
that follows it.

    python scripts/reports/run_explorer.py
    python scripts/reports/run_explorer.py --doc docs/results/explorer.md
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from hloenv._markdown import table  # noqa: E402
from reporting import head, parser_of, write_page  # noqa: E402
from support.browser import explore, open_browser, open_page, wait_until  # noqa: E402
from support.modules import rows_of_sums  # noqa: E402

_DATASET = "hloenv://dataset/train"
_TARGETS = {
    "GPT-2, training step": f"{_DATASET}/transformers-decoders/transformers_decoders/"
    "decoder[name=gpt2,size=64x2x2x16]/train_step",
    "GPT-J, training step": f"{_DATASET}/transformers-decoders/transformers_decoders/"
    "decoder[name=gptj,size=128x4x4x32]/train_step",
    "ResNet-50, training step": f"{_DATASET}/dm-haiku/haiku/"
    "image_net[name=resnet50,size=32]/train_step",
}
_SYNTHETIC = (10_000, 100_000)
_REPEATS = 5
_FRAMES_S = 3.0
_IS_DRAWN = "hloenvExplorer.views.graph.canvasFrames > 0"

_MOVE = """async (seconds) => {
  const {renderer} = hloenvExplorer.views.graph;
  const begin = performance.now();
  let frames = 0;
  while (performance.now() < begin + 1000 * seconds) {
    renderer.pan(frames % 2 ? 9 : -7, 3);
    renderer.zoom(frames % 40 < 20 ? 1.05 : 0.95, 300, 300);
    await new Promise((resolve) => requestAnimationFrame(resolve));
    frames++;
  }
  return 1000 * frames / (performance.now() - begin);
}"""

_DECIDE = """async (number) => {
  const {store} = hloenvExplorer;
  if (!store.state.decisions.length) return null;
  const begin = performance.now();
  await store.decide([[number % store.state.decisions.length, number % 2]]);
  return performance.now() - begin;
}"""


@dataclass(frozen=True)
class Figures:
    """What was measured of one module; medians."""

    name: str
    instructions: int
    rewrites: int
    paint_s: float
    frames_per_s: float
    estimate_ms: float | None

    def row(self) -> list[str]:
        """The row of the table."""
        estimate = "" if self.estimate_ms is None else f"{self.estimate_ms:.0f} ms"
        return [
            self.name,
            f"{self.instructions:,}",
            f"{self.rewrites:,}",
            f"{self.paint_s:.2f} s",
            f"{self.frames_per_s:.0f}",
            estimate,
        ]


def _paint_s(page: Any, url: str) -> float:
    begin = time.perf_counter()
    page.goto(f"{url}#/graph")
    wait_until(page, _IS_DRAWN)
    return time.perf_counter() - begin


def measure(browser: Any, name: str, target: str) -> Figures:
    """Opens one module several times in new windows, and moves and decides in each."""
    paints, frames, estimates = [], [], []
    for _ in range(_REPEATS):
        with explore(target, "--no-store") as (url, _), open_page(browser) as page:
            paints.append(_paint_s(page, url))
            instructions = page.evaluate(
                "hloenvExplorer.views.graph.graph.names.length"
            )
            wait_until(page, "!hloenvExplorer.store.isBusy")
            page.evaluate("hloenvExplorer.views.graph.renderer.fit()")
            frames.append(page.evaluate(_MOVE, _FRAMES_S))
            found = [page.evaluate(_DECIDE, number) for number in range(10)]
            estimates += [each for each in found if each is not None]
            rewrites = page.evaluate("hloenvExplorer.store.state.decisions.length")
    return Figures(
        name,
        instructions,
        rewrites,
        statistics.median(paints),
        statistics.median(frames),
        statistics.median(estimates) if estimates else None,
    )


def main() -> None:
    """Measures and writes the page."""
    arguments = parser_of(__doc__).parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        targets = dict(_TARGETS)
        for number in _SYNTHETIC:
            path = Path(folder) / f"{number}.hlo"
            path.write_text(rows_of_sums(number), encoding="utf-8")
            targets[f"{number:,} sums, in rows of 50"] = str(path)
        for name, target in targets.items():
            found.append(measure(browser, name, target))
            print(" | ".join(found[-1].row()), file=sys.stderr, flush=True)
        version = browser.version
    columns = [
        *("module", "instructions", "rewrites listed", "first paint"),
        *("frames a second", "static estimate"),
    ]
    write_page(
        [
            *head("The explorer: paint, frames, estimates"),
            f"* Chromium {version}, headless, 1440x860, no graphics card: SwiftShader "
            "draws with the same cores that run the page and its server",
            "",
            *table(columns, [each.row() for each in found], "lrrrrr"),
            "",
            f"Medians of {_REPEATS} windows, each with its own server, which has not "
            "seen the module. *First paint*: from the request of the URL to the drawn "
            f"graph. *Frames*: over {_FRAMES_S:g} seconds of panning and zooming, "
            "starting with the whole module; where there is no graphics card, a large "
            "graph shows 7,000 boxes, 3,000 edges and no labels while it moves. "
            "*Static estimate*: from a decision to the new estimate in the page.",
        ],
        arguments.doc,
    )


if __name__ == "__main__":
    main()
