# SPDX-License-Identifier: Apache-2.0
"""Large modules, measurements and lost servers, in a real browser."""

from __future__ import annotations

import json
import signal

import pytest

from support.browser import explore, open_browser, open_page, wait_until
from support.modules import rows_of_sums

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs_program("chromium"),
    pytest.mark.needs("playwright"),
]
_RESULTS = """(() => {
  const {estimate, measure, compare, timed} = hloenvExplorer.store;
  return {estimate, measure, compare, timed: [...timed]};
})()"""
_PORT, _TOKEN = "18765", "testtokentesttoken42"


@pytest.fixture(scope="module")
def browser():
    with open_browser() as running:
        yield running


@pytest.fixture(scope="module")
def module_path(small, tmp_path_factory):
    path = tmp_path_factory.mktemp("explore") / "small.hlo"
    small.save(path)
    return str(path)


def _accept_first(page):
    page.wait_for_selector(".row.rewrite")
    page.keyboard.press("j")
    page.keyboard.press("a")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted === 1")


@pytest.mark.compile
def test_decisions_are_estimated_and_measured(browser, module_path):
    with explore(module_path, "--no-store") as (url, _), open_page(browser) as page:
        page.goto(url)
        _accept_first(page)
        page.click("#estimate")
        page.wait_for_selector("#estimate-result")
        assert page.evaluate("hloenvExplorer.store.estimate.decided_s") > 0
        page.click("#measure")
        page.wait_for_selector("#measure-result")
        assert page.evaluate("hloenvExplorer.store.measure.speedup") > 0
        page.click("#time-one")
        wait_until(page, "hloenvExplorer.store.timed.size === 2")
        page.wait_for_selector("#time-one:not([disabled])")
        page.click("#time-top")
        wait_until(page, "hloenvExplorer.store.timed.size > 2")
        page.keyboard.press("4")
        page.click("#compare")
        page.wait_for_selector("#differences")
        (row,) = page.locator("#decisions tbody tr").all()
        assert "(algsimp" in row.inner_text()
        seen = page.evaluate(_RESULTS)
        page.reload()
        page.wait_for_selector("#differences")
        assert page.evaluate(_RESULTS) == seen
        page.click("#decisions tbody button")
        page.wait_for_selector(".sides figure svg")
        page.keyboard.press("u")
        wait_until(page, "hloenvExplorer.store.state.totals.accepted === 0")
        page.reload()
        wait_until(page, "hloenvExplorer.store.timed.size > 0")
        # The times of single rewrites are of any decisions, the others of those made.
        kept = page.evaluate(_RESULTS)
        assert kept["timed"] == seen["timed"]
        assert kept["estimate"] is None
        assert kept["measure"] is None
        assert kept["compare"] is None


def test_the_curves_of_a_run_are_drawn(browser, tmp_path):
    (tmp_path / "curve.csv").write_text(
        "step,episode_return,entropy,score,best_score,seconds\n"
        "0,nan,nan,1.0,1.0,1\n8,0.5,1.5,1.25,1.25,2\n16,0.7,1.2,1.2,1.25,3\n"
    )
    with explore(str(tmp_path)) as (url, _), open_page(browser) as page:
        page.goto(f"{url}#results")
        page.wait_for_selector("#charts path.series")
        captions = page.locator("#charts figcaption").all_inner_texts()
        assert captions == ["return", "entropy", "validation modules"]
        assert page.locator("#charts .legend").all_inner_texts() == [
            "latest\nbest so far"
        ]


def test_a_measurement_can_be_cancelled(browser, module_path):
    with explore(module_path, "--no-store") as (url, _), open_page(browser) as page:
        page.goto(url)
        _accept_first(page)
        # In the page, as the measurement may be done before playwright's next click.
        page.evaluate(
            """async () => {
              document.querySelector('#measure').click();
              let cancel = null;
              while (!cancel) {
                await new Promise((resolve) => setTimeout(resolve, 2));
                cancel = document.querySelector('.job button');
              }
              cancel.click();
            }"""
        )
        page.wait_for_selector("#measure")
        assert (
            page.evaluate("hloenvExplorer.store.jobs.get('measure').state")
            == "cancelled"
        )


def test_a_stop_is_moved_along_xlas_pipeline(browser, module_path):
    with explore(module_path, "--no-store") as (url, _), open_page(browser) as page:
        page.goto(f"{url}#/pipeline")
        page.click("#run-pipeline")
        page.wait_for_selector("svg[aria-label^='instructions and bytes'] .series-1")
        page.click(".stage-row:has-text('fusion')")
        page.wait_for_selector(".diff tr.added")
        page.click(".diff tr.removed >> nth=0")
        page.wait_for_selector(".diff tr.removed.selected")
        page.wait_for_selector(".pipeline .sides .node.added")
        chosen = page.url
        page.reload()
        page.wait_for_selector(".pipeline .sides .node.added")
        assert page.url == chosen
        page.click("#decide-here")
        wait_until(page, "hloenvExplorer.store.state.point.until.endsWith('fusion')")
        assert page.evaluate("hloenvExplorer.store.state.point.passes") == ["fusion"]
        page.wait_for_selector(".row.rewrite")


def test_a_restarted_server_gets_the_decisions_back(browser, module_path):
    words = (module_path, "--no-store", "--port", _PORT, "--token", _TOKEN)
    with open_page(browser) as page:
        with explore(*words) as (url, process):
            page.goto(url)
            _accept_first(page)
            kept = page.evaluate("hloenvExplorer.store.state.decisions")
            process.send_signal(signal.SIGKILL)
            process.wait()
        # An idle page does not notice a restart: its action means the earlier server.
        with explore(*words) as (_, process):
            page.keyboard.press("x")
            wait_until(page, "hloenvExplorer.store.message.includes('are restored')")
            assert page.evaluate("hloenvExplorer.store.state.decisions") == kept
            process.send_signal(signal.SIGKILL)
            process.wait()
        page.keyboard.press("x")
        page.wait_for_selector(".banner:visible")
        assert f"--port {_PORT} --token {_TOKEN}" in page.inner_text(".banner")
        with explore(*words):
            page.wait_for_selector(".banner", state="hidden")
            assert page.evaluate("hloenvExplorer.store.state.decisions") == kept
            page.reload()
            page.wait_for_selector(".mini.accept[aria-pressed='true']")


@pytest.fixture(scope="module")
def large_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("large") / "large.hlo"
    path.write_text(rows_of_sums(10_000))
    return str(path)


def test_ten_thousand_instructions_are_drawn_and_searched(browser, large_path):
    with explore(large_path, "--no-store") as (url, _), open_page(browser) as page:
        page.goto(f"{url}#/graph")
        wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
        number = page.evaluate("hloenvExplorer.views.graph.graph.names.length")
        assert number == 10_001
        page.fill("#search", "p5000")
        page.keyboard.press("Enter")
        page.wait_for_selector(".node-details h2:text('p5000')")
        frames = page.evaluate("hloenvExplorer.views.graph.canvasFrames")
        for _ in range(10):
            page.keyboard.press("+")
        wait_until(page, f"hloenvExplorer.views.graph.canvasFrames > {frames}")
        # While the processor draws a movement, labels and most edges are left out.
        renderer = "hloenvExplorer.views.graph.renderer"
        wait_until(page, f"{renderer}.movement === 0")
        page.evaluate(f"{renderer}.pan(5, 5)")
        wait_until(page, f"{renderer}.labels.style.visibility === 'hidden'")
        wait_until(page, f"{renderer}.labels.style.visibility === ''")
        assert page.evaluate(f"{renderer}.movement") == 0


def test_search_results_have_a_curve(browser, module_path, tmp_path):
    candidate = {
        "decisions": [[1, 0]],
        "estimate_s": 1e-6,
        "speedup_interval": [1.0, 1.2],
        "error": None,
    }
    measured = [{**candidate, "speedup": speedup} for speedup in (1.1, 1.3)]
    data = {"module": "small", "evaluated": 3, "best": None, "measured": measured}
    path = tmp_path / "search.json"
    path.write_text(json.dumps(data))
    with explore(str(path)) as (url, _), open_page(browser) as page:
        page.goto(url)
        page.wait_for_selector(".result-row")
        page.wait_for_selector("#charts svg[role=img] path.series")
        assert "2 measured" in page.inner_text(".results")
        assert page.locator("nav a").all_inner_texts() == ["Results"]
