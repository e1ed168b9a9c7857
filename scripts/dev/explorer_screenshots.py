# SPDX-License-Identifier: Apache-2.0
"""Takes the screenshots of the explorer's guide, in Chromium by playwright.

    python scripts/dev/explorer_screenshots.py            # all views
    python scripts/dev/explorer_screenshots.py graph      # one of them

They show a GPT-2 training step of the dataset. Times in them are those of this machine.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from playwright.sync_api import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests")]

from support.browser import explore, open_browser, open_page, wait_until  # noqa: E402

IMAGES = ROOT / "docs" / "images"
TARGET = (
    "hloenv://dataset/train/transformers-decoders/transformers_decoders/"
    "decoder[name=gpt2,size=64x2x2x16]/train_step"
)
BENCH = ROOT / "docs" / "leaderboard" / "results.parquet"
_SIZE = {"width": 1400, "height": 840}
_TIMEOUT_MS = 600_000


def shoot(page: Page, name: str) -> None:
    """Saves what the page shows."""
    page.mouse.move(2, 2)
    page.wait_for_timeout(400)
    path = IMAGES / f"explorer_{name}.png"
    page.screenshot(path=path)
    print(path.relative_to(ROOT))


def rewrites(page: Page, url: str) -> None:
    """The rewrites at XLA's fusion: the ten that promise most timed, one chosen."""
    page.goto(url)
    page.wait_for_selector(".row.rewrite")
    page.select_option("#preset", label="fusion")
    wait_until(page, "hloenvExplorer.store.state.point.until === 'fusion'")
    wait_until(page, "!hloenvExplorer.store.isBusy")
    page.click("#time-top")
    wait_until(page, "hloenvExplorer.store.timed.size > 0")
    wait_until(page, "hloenvExplorer.store.jobs.get('rank').state !== 'running'")
    page.wait_for_timeout(500)
    page.keyboard.press("j")
    page.wait_for_selector(".sides svg")
    shoot(page, "rewrites")
    page.keyboard.press("a")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted > 0")
    page.click("#estimate")
    page.wait_for_selector("#estimate-result")


def graph(page: Page, url: str) -> None:
    """The module at the fusion pass, a product in the middle."""
    page.goto(f"{url}#/graph")
    wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
    page.fill("#search", "opcode:dot")
    for _ in range(4):
        page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.wait_for_timeout(500)
    shoot(page, "graph")


def pipeline(page: Page, url: str) -> None:
    """XLA's own passes, and what the fusion pass did."""
    page.goto(f"{url}#/pipeline")
    page.click("#run-pipeline")
    page.wait_for_selector(".stage-row")
    page.evaluate(
        """() => {
          const {store} = hloenvExplorer;
          const stage = store.timeline.stages.find((each) => each.name === 'fusion');
          store.setParams({stage: String(stage.index)});
        }"""
    )
    page.wait_for_selector(".diff tr.added")
    shoot(page, "pipeline")


def compare(page: Page, url: str) -> None:
    """XLA's default against a policy, kernel by kernel."""
    page.goto(f"{url}#/results")
    page.select_option(
        "select[aria-label='the second method']", "policy:fuse-all-legal"
    )
    page.click("#compare")
    page.wait_for_selector("#differences table")
    shoot(page, "compare")


def dark(page: Page, url: str) -> None:
    """The graph in the dark theme, as a whole."""
    page.goto(f"{url}#/graph")
    page.reload()
    wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.evaluate("hloenvExplorer.views.graph.themeChanged()")
    page.keyboard.press("f")
    shoot(page, "dark")
    page.evaluate("document.documentElement.dataset.theme = 'light'")


def bench(page: Page, url: str) -> None:
    """A leaderboard, and the curve of one search."""
    page.goto(url)
    page.wait_for_selector(".result-row")
    page.wait_for_timeout(500)
    shoot(page, "bench")


VIEWS = {
    "rewrites": rewrites,
    "graph": graph,
    "pipeline": pipeline,
    "compare": compare,
    "dark": dark,
}


def main() -> None:
    """Takes the screenshots that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", choices=[*VIEWS, "bench", []])
    parser.add_argument("--target", default=TARGET, help="the module to show")
    args = parser.parse_args()
    chosen = args.views or [*VIEWS, "bench"]
    with open_browser() as browser, open_page(browser) as page:
        page.set_viewport_size(_SIZE)
        page.set_default_timeout(_TIMEOUT_MS)
        if set(chosen) - {"bench"}:
            with explore(args.target) as (url, _):
                for name in VIEWS:
                    if name in chosen:
                        VIEWS[name](page, url)
        if "bench" in chosen:
            with explore(str(BENCH)) as (url, _):
                bench(page, url)


if __name__ == "__main__":
    main()
