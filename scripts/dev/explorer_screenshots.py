# SPDX-License-Identifier: Apache-2.0
"""Takes the screenshots of the explorer's guide, in Chromium by playwright.

    python scripts/dev/explorer_screenshots.py            # all views
    python scripts/dev/explorer_screenshots.py graph      # one of them

They show a GPT-2 training step of the dataset. Times in them are those of this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
TARGET = (
    "hloenv://dataset/train/transformers-decoders/transformers_decoders/"
    "decoder[name=gpt2,size=64x2x2x16]/train_step"
)
BENCH = ROOT / "docs" / "leaderboard" / "results.parquet"
_ARGUMENTS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
_TIMEOUT_MS = 600_000


@contextlib.contextmanager
def explore(target: str) -> Iterator[str]:
    """Runs `hloenv explore`; yields its URL."""
    process = subprocess.Popen(
        [sys.executable, "-m", "hloenv", "explore", target, "--no-open", "--json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait()


def wait_until(page: Page, expression: str) -> None:
    """Waits for a JavaScript expression."""
    deadline = time.monotonic() + _TIMEOUT_MS / 1000
    while not page.evaluate(expression):
        if time.monotonic() > deadline:
            raise TimeoutError(expression)
        page.wait_for_timeout(100)


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
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=_ARGUMENTS
        )
        page = browser.new_page(viewport={"width": 1400, "height": 840})
        page.set_default_timeout(_TIMEOUT_MS)
        if set(chosen) - {"bench"}:
            with explore(args.target) as url:
                for name in VIEWS:
                    if name in chosen:
                        VIEWS[name](page, url)
        if "bench" in chosen:
            with explore(str(BENCH)) as url:
                bench(page, url)
        browser.close()


if __name__ == "__main__":
    main()
