# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser."""

from __future__ import annotations

import json

import numpy as np
import pytest

from hloenv import HloEnv
from hloenv.cli import main
from hloenv.explorer.backend import Backend, Target
from hloenv.explorer.page import write_page
from hloenv.explorer.results import of_search
from hloenv.explorer.server import Server
from support.browser import open_browser, open_page, wait_until

pytestmark = [pytest.mark.needs_program("chromium"), pytest.mark.needs("playwright")]


@pytest.fixture(scope="module")
def browser():
    with open_browser() as running:
        yield running


@pytest.fixture
def page(browser, server):
    with open_page(browser) as opened:
        opened.goto(server.url)
        opened.wait_for_selector(".row.rewrite")
        yield opened


def _select(page, text):
    page.click(f".row.rewrite:has-text('{text}')")
    page.wait_for_selector(".sides svg .node.removed")


def _state(page):
    return page.evaluate("hloenvExplorer.store.state")


def _undo_all(page):
    while before := len(_state(page)["log"]):
        page.click("#undo")
        wait_until(page, f"hloenvExplorer.store.state.log.length < {before}")
        wait_until(page, "!hloenvExplorer.store.isBusy")


def test_a_rewrite_is_found_accepted_undone_and_saved(page, tmp_path):
    page.fill("#filter", "name:same")
    wait_until(page, "document.querySelectorAll('.row.rewrite').length === 1")
    _select(page, "same")
    figures = page.locator(".sides figure")
    assert "\u2212 add" in figures.nth(0).inner_text()
    assert "add" not in figures.nth(1).locator(".node text").all_inner_texts()
    page.click("#accept")
    page.wait_for_selector(".mini.accept[aria-pressed='true']")
    assert _state(page)["totals"]["accepted"] == 1
    assert "\u25bc" in page.inner_text("#static-estimate")
    with page.expect_download() as download:
        page.click("#save")
    trace = json.loads(download.value.path().read_text())
    assert [step["kind"] for step in trace["steps"]] == ["decide"]
    # The address leads back to the same view, and the server keeps the decisions.
    address = page.url
    assert "q=name" in address
    page.reload()
    page.wait_for_selector(".mini.accept[aria-pressed='true']")
    assert page.url == address
    assert page.input_value("#filter") == "name:same"
    page.keyboard.press("u")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted === 0")


def test_a_window_that_another_has_overtaken_decides_nothing(browser, server, page):
    with open_page(browser) as other:
        other.goto(server.url)
        other.wait_for_selector(".row.rewrite")
        other.keyboard.press("j")
        other.keyboard.press("a")
        wait_until(other, "hloenvExplorer.store.state.totals.accepted === 1")
        page.click(".row.rewrite >> nth=1 >> .mini.reject")
        wait_until(page, "hloenvExplorer.store.message.startsWith('nothing was done')")
        # The overtaken window shows the other's decision, and its next one counts.
        totals = _state(page)["totals"]
        assert (totals["accepted"], totals["rejected"]) == (1, 0)
        page.click(".row.rewrite >> nth=1 >> .mini.reject")
        wait_until(page, "hloenvExplorer.store.state.totals.rejected === 1")
        _undo_all(page)


def test_keys_that_follow_each_other_quickly_all_count(page):
    for key in "jajrjxjr":
        page.keyboard.press(key)
    wait_until(page, "hloenvExplorer.store.state.log.length === 4")
    assert _state(page)["totals"]["accepted"] == 1
    _undo_all(page)


def test_a_filter_says_what_is_wrong_with_it(page):
    for text, why in (
        ("foo:bar", "unknown field foo"),
        ("flips<0", "unknown field flips"),
        ("bytes<", "needs a number"),
        ("time<1parsec", "unknown unit"),
    ):
        page.fill("#filter", text)
        page.wait_for_selector(f".view.rewrites .note:text('{why}')")
    page.fill("#filter", "name:same")
    page.keyboard.press("Escape")
    # Escape leaves the field and keeps what it says.
    assert page.input_value("#filter") == "name:same"
    page.click(".mini.accept")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted === 1")
    assert page.locator(".row.rewrite.selected").count() == 1
    _undo_all(page)


def test_a_filter_that_says_nothing_decides_nothing(page):
    page.fill("#filter", "bytes<foo")
    page.wait_for_selector(".view.rewrites .note.error")
    for text in ("Accept all", "Reject all", "Leave all"):
        assert page.is_disabled(f".tools button:text-is('{text}')")
    page.fill("#filter", "bytes<0")
    wait_until(page, "!document.querySelector('.tools button').disabled")
    assert page.locator(".view.rewrites .note.error").count() == 0


def test_pictures_are_moved_by_the_mouse_and_fill_the_window(page):
    _select(page, "same")
    page.click("#larger")
    dialog = page.locator("dialog.large")
    assert dialog.bounding_box()["width"] > 1300
    pan = dialog.locator(".pan").first
    box = pan.bounding_box()
    pan.evaluate("(pan) => (pan.firstElementChild.style.minWidth = '3000px')")
    pan.evaluate("(pan) => (pan.scrollLeft = 500)")
    page.mouse.move(box["x"] + 200, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 120, box["y"] + 40)
    page.mouse.up()
    assert pan.evaluate("(pan) => pan.scrollLeft") == 580
    assert page.evaluate("getSelection().toString()") == ""
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('dialog.large')")


def test_moving_the_stop_says_what_is_not_applied(page):
    page.click(".mini.accept")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted === 1")
    page.select_option("#preset", label="fusion")
    wait_until(page, "hloenvExplorer.store.message.includes('were not applied')")
    _undo_all(page)


def test_a_query_decides(page):
    page.fill("#filter", "pass:algsimp bytes<0")
    page.wait_for_timeout(200)
    number = page.evaluate("hloenvExplorer.views.rewrites.shown.length")
    assert number > 0
    page.click("button:text('Reject all')")
    wait_until(page, f"hloenvExplorer.store.state.totals.rejected === {number}")
    assert page.evaluate("hloenvExplorer.store.state.log.length") == 1
    _undo_all(page)


def test_a_view_is_found_as_it_was_left(page):
    page.fill("#filter", "name:same")
    page.wait_for_selector(".row.rewrite")
    page.click(".row.rewrite")
    page.wait_for_selector(".row.rewrite.selected")
    page.keyboard.press("2")
    page.wait_for_selector(".view.graph")
    page.keyboard.press("1")
    page.wait_for_selector(".row.rewrite.selected")
    assert page.input_value("#filter") == "name:same"
    # Other passes have other rewrites: the number of this one means nothing there.
    changes = (
        "hloenvExplorer.store.act('point', {until: '', occurrence: 1, passes: ['cse']})"
    )
    page.evaluate(changes)
    wait_until(page, "hloenvExplorer.store.state.point.passes[0] === 'cse'")
    wait_until(page, "!('a' in hloenvExplorer.store.route.params)")
    assert "q=name" in page.url
    page.fill("#filter", "")
    _undo_all(page)


def test_pictures_stay_where_they_were_scrolled(page):
    page.keyboard.press("1")
    page.wait_for_selector(".row.rewrite")
    page.keyboard.press("j")
    page.wait_for_selector(".pan svg")
    # Narrow enough to scroll, whatever the picture is.
    page.evaluate(
        """() => {
          for (const each of document.querySelectorAll('.pan')) {
            each.style.width = '60px';
            each.querySelector('svg').style.minWidth = '900px';
          }
          document.querySelector('.pan').scrollLeft = 123;
        }"""
    )
    where = "document.querySelector('.pan').scrollLeft"
    wait_until(page, f"{where} === 123")
    page.wait_for_timeout(100)  # the event of the scrolling
    page.keyboard.press("a")
    wait_until(page, "hloenvExplorer.store.state.totals.accepted === 1")
    assert page.evaluate(where) == 123
    page.keyboard.press("2")
    page.wait_for_selector(".view.graph")
    page.keyboard.press("1")
    page.wait_for_selector(".view.rewrites .pan")
    assert page.evaluate(where) == 123
    _undo_all(page)


def test_passes_that_do_not_exist_stay_in_the_form(page):
    page.select_option("#preset", "other")
    page.fill(".other input", "nopass")
    page.click(".other button")
    page.wait_for_selector(".message:has-text('nopass')")
    assert page.input_value(".other input") == "nopass"
    assert page.locator(".other").is_visible()
    page.select_option("#preset", "0")
    wait_until(page, "!hloenvExplorer.store.isBusy")
    assert not page.locator(".other").is_visible()
    _undo_all(page)


def test_tab_reaches_the_buttons_of_one_row(page):
    page.keyboard.press("1")
    page.wait_for_selector(".row.rewrite")
    page.keyboard.press("j")
    page.wait_for_selector(".row.rewrite.selected")
    reachable = page.locator(".row.rewrite button[tabindex='0']")
    assert reachable.count() == 3
    assert page.locator(".row.rewrite.selected button[tabindex='0']").count() == 3


def test_an_action_behind_one_that_changes_the_rewrites_says_so(page):
    page.keyboard.press("1")
    page.wait_for_selector(".row.rewrite")
    page.evaluate(
        """() => {
          const {store} = hloenvExplorer;
          void store.act('point', {until: '', occurrence: 1, passes: ['cse']});
          void store.decide([[0, 1]]);
        }"""
    )
    page.wait_for_selector(".message:has-text('did nothing')")
    assert page.evaluate("hloenvExplorer.store.state.totals.accepted") == 0
    _undo_all(page)


def test_the_graph_is_searched_and_drawn(page):
    page.keyboard.press("2")
    wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
    page.fill("#search", "opcodes:dot")
    page.wait_for_selector(".view.graph .note:text('unknown field opcodes')")
    page.fill("#search", "opcode:dot")
    page.keyboard.press("Enter")
    page.wait_for_selector(".node-details h2:text('d')")
    assert "node=d" in page.url
    page.fill("#search", "source:train.py")
    page.keyboard.press("Enter")
    page.wait_for_selector(".node-details dd:text('train.py')")
    drawn = page.evaluate(
        """() => {
          const renderer = hloenvExplorer.views.graph.renderer;
          renderer.paint();
          const {width, height} = renderer.canvas;
          const pixels = new Uint8Array(width * height * 4);
          const gl = renderer.canvas.getContext('webgl2');
          gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
          return new Set(new Uint32Array(pixels.buffer)).size;
        }"""
    )
    assert drawn > 10
    # The legend follows the colours.
    legend = page.locator(".key")
    assert legend.inner_text().startswith("product")
    page.select_option("select[aria-label='colours']", "bytes")
    page.wait_for_selector(".key .hot:has-text('kB')")
    assert "product" not in legend.inner_text()


_ESTIMATE = {"estimate": {"default_s": 1, "decided_s": 1, "kernels": [], "error": ""}}


def test_a_result_of_earlier_decisions_is_dropped(page):
    job = {"id": 99, "kind": "estimate", "state": "running", "done": 0, "total": 0}
    job |= {"phase": "", "seconds": 0, "message": ""}
    page.route("**/api/start", lambda route: route.fulfill(json=job))

    def answer(route):
        if page.evaluate("hloenvExplorer.store.state.totals.accepted") == 1:
            route.fulfill(json={**job, **_ESTIMATE, "state": "done"})
        else:
            route.fulfill(json=job)

    page.route("**/api/job?*", answer)
    page.click("#estimate")
    wait_until(page, "hloenvExplorer.store.jobs.get('estimate')?.state === 'running'")
    page.keyboard.press("j")
    page.keyboard.press("a")
    wait_until(page, "hloenvExplorer.store.jobs.get('estimate')?.state === 'done'")
    wait_until(page, "hloenvExplorer.store.message.includes('dropped')")
    assert page.evaluate("hloenvExplorer.store.estimate") is None
    _undo_all(page)


def test_a_module_that_cannot_be_parsed_is_a_message(page):
    page.click("#open")
    page.fill("#open-text", "HloModule broken\nENTRY {")
    page.click("#open-go")
    page.wait_for_selector("#open-error:not(:empty)")
    assert len(page.inner_text("#open-error")) > 20
    page.keyboard.press("Escape")
    assert _state(page)["module"]["name"] == "small"
    assert page.is_visible(".row.rewrite")


def test_another_module_has_neither_timeline_nor_comparison(browser, small):
    backend = Backend(Target("small.hlo", small), store=None)
    with Server(backend) as server, open_page(browser) as page:
        page.goto(server.url)
        page.wait_for_selector(".row.rewrite")
        page.evaluate(
            """() => {
              const {store} = hloenvExplorer;
              store.timeline = {target: "cpu", first_instructions: 1, stages: []};
              store.compare = {first: "default", second: "decided", differences: [], decisions: []};
            }"""
        )
        page.click("#open")
        text = "HloModule other\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}"
        page.fill("#open-text", text)
        page.click("#open-go")
        wait_until(page, "hloenvExplorer.store.state.module.name === 'other'")
        wait_until(page, "!hloenvExplorer.store.isBusy")
        assert page.evaluate("hloenvExplorer.store.timeline") is None
        assert page.evaluate("hloenvExplorer.store.compare") is None
    backend.close()


def test_the_page_asks_its_server_alone(page, server):
    page.keyboard.press("2")
    wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
    assert page.requests_seen
    assert all(url.startswith(server.url) for url in page.requests_seen)


def test_filters_understand_numbers_words_and_not(page):
    def matches(query):
        page.fill("#filter", query)
        page.wait_for_timeout(120)
        shown = page.evaluate(
            "hloenvExplorer.views.rewrites.shown.map(each => each.row.original)"
        )
        return set(shown), page.inner_text(".rewrites .note")

    everything, _ = matches("")
    algsimp, _ = matches("pass:algsimp")
    assert algsimp
    assert matches("-pass:algsimp")[0] == everything - algsimp
    assert matches("bytes<=0")[0] | matches("bytes>0")[0] == everything
    assert matches("bytes<-1k pass:algsimp")[0] <= algsimp
    assert matches("no-such-word")[0] == set()
    assert "unknown unit" in matches("bytes<3parsec")[1]
    assert "unknown unit" in matches("time<1day")[1]


def test_a_hostile_name_is_text(browser, server, page):
    page.goto(
        f"{server.url}#/rewrites?q=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&a=%00&c=x"
    )
    page.reload()
    page.wait_for_selector(".rewrites .note")
    assert page.locator("img").count() == 0
    assert "<img" in page.input_value("#filter")


_HOSTILE = "</script><img src=x onerror=alert(1)>'`${alert(1)}\u2028"
_HOSTILE_MODULE = """HloModule hostile
ENTRY e {
  p = f32[4] parameter(0)
  zero = f32[] constant(0)
  zeros = f32[4] broadcast(zero), dimensions={}
  sum = f32[4] add(p, zeros), metadata={op_name="HOSTILE" source_file="HOSTILE"}
  ROOT call = f32[4] custom-call(sum), custom_call_target="HOSTILE"
}""".replace("HOSTILE", _HOSTILE)


@pytest.mark.parametrize("is_file", [False, True])
def test_a_module_with_hostile_names_is_text(browser, tmp_path, is_file):
    backend = Backend(Target(_HOSTILE, _HOSTILE_MODULE), store=None)
    path = tmp_path / "page.html"
    write_page(backend, path)
    with Server(backend) as server, open_page(browser) as page:
        page.goto(path.as_uri() if is_file else server.url)
        page.click(".row.rewrite:has-text('sum')")
        page.wait_for_selector(".sides svg .node.removed")
        assert "<img src=x" in page.inner_text(".detail")
        page.keyboard.press("2")
        wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
        page.fill("#search", "name:call")
        page.keyboard.press("Enter")
        page.wait_for_selector(".node-details h2:text('call')")
        page.fill("#search", "name:sum")
        page.keyboard.press("Enter")
        page.wait_for_selector(".node-details dd:text('<img src=x')")
        assert page.locator("img").count() == 0
    backend.close()


def test_the_file_works_without_a_network(browser, small, tmp_path):
    small.save(tmp_path / "small.hlo")
    path = tmp_path / "page.html"
    main(["explore", str(tmp_path / "small.hlo"), "-o", str(path), "--timeline"])
    with open_page(browser, offline=True) as page:
        page.goto(path.as_uri())
        _select(page, "same")
        assert page.locator("#accept").count() == 0
        assert page.is_visible(".badge")
        assert page.locator("nav a").all_inner_texts() == [
            "Rewrites",
            "Graph",
            "Pipeline",
        ]
        page.keyboard.press("2")
        wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
        page.keyboard.press("3")
        page.click(".stage-row:has-text('algsimp')")
        page.wait_for_selector(".diff tr.removed")
        page.wait_for_selector(".pipeline .sides figure svg")
        assert set(page.requests_seen) == {path.as_uri()}


def test_a_file_shows_each_of_its_stops(browser, small, tmp_path):
    small.save(tmp_path / "small.hlo")
    path = tmp_path / "page.html"
    stops = ["--stop", ": algsimp cse", "--stop", "fusion: general-fusion"]
    main(["explore", str(tmp_path / "small.hlo"), "-o", str(path), *stops])
    with open_page(browser, offline=True) as page:
        page.goto(path.as_uri())
        _select(page, "same")
        options = page.locator("#preset option").all_inner_texts()
        assert options == ["simplify", "general-fusion at fusion"]
        page.select_option("#preset", index=1)
        wait_until(page, "hloenvExplorer.store.state.point.until === 'fusion'")
        # What was chosen at the other stop is another rewrite here.
        assert page.locator(".sides").count() == 0
        page.click(".row.rewrite")
        page.wait_for_selector(".sides svg")
        address = page.url
        assert "stop=1" in address
    with open_page(browser, offline=True) as page:
        page.goto(address)
        page.wait_for_selector(".sides svg")
        assert page.evaluate("hloenvExplorer.store.state.point.until") == "fusion"


def test_the_decisions_of_a_candidate_are_opened(browser, small):
    env = HloEnv(small)
    first = env.get_alternatives("algsimp", "cse")
    decisions = first.leave_to_xla()
    decisions[0] = 1
    env.apply_alternatives(decisions, first, partial=True)
    env.run_until("fusion")
    second = env.get_alternatives("fusion")
    others = np.where(second.decisions_for("fusion") > 0, 0, 1)
    env.apply_alternatives(others, second)
    candidate = {
        "decisions": [decisions.tolist(), others.tolist()],
        "estimate_s": 1e-6,
        "speedup": 1.2,
        "speedup_interval": [1.1, 1.3],
        "error": None,
        "trace": {},
    }
    data = {"module": "small", "evaluated": 1, "best": None, "measured": [candidate]}
    results = of_search("search.json", data)
    target = Target("small.hlo", small, results=results, traces=[env.trace])
    backend = Backend(target, store=None)
    with Server(backend) as server, open_page(browser) as page:
        page.goto(server.url)  # results are shown first
        page.click("#open-row")
        page.wait_for_selector(".mini.reject[aria-pressed='true']")
        assert _state(page)["point"]["passes"] == ["fusion"]
        page.click("#undo")
        wait_until(page, "hloenvExplorer.store.state.point.until === ''")
        assert _state(page)["decisions"] == decisions.tolist()
        # The page keeps what it did for a server that starts again.
        assert [each["do"] for each in _state(page)["log"]] == ["undo"]
        page.keyboard.press("4")
        page.wait_for_selector("#open-row")
    backend.close()


def test_no_title_is_written_over_another(browser, server):
    nested = """HloModule nested

    body {
      s = (s32[], f32[8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      one = s32[] constant(1)
      j = s32[] add(i, one)
      x = f32[8] get-tuple-element(s), index=1
      y = f32[8] negate(x)
      ROOT t = (s32[], f32[8]) tuple(j, y)
    }

    test {
      s = (s32[], f32[8]) parameter(0)
      i = s32[] get-tuple-element(s), index=0
      n = s32[] constant(9)
      ROOT c = pred[] compare(i, n), direction=LT
    }

    ENTRY main {
      zero = s32[] constant(0)
      p = f32[8] parameter(0)
      s = (s32[], f32[8]) tuple(zero, p)
      ROOT w = (s32[], f32[8]) while(s), condition=test, body=body
    }
    """
    backend = Backend(Target("nested.hlo", nested), store=None)
    with Server(backend) as own, open_page(browser) as page:
        page.add_init_script(
            """const write = CanvasRenderingContext2D.prototype.fillText;
            window.written = [];
            CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
              if (this.font.startsWith("11.5px")) window.written.push([text, x, y]);
              write.call(this, text, x, y);
            };"""
        )
        page.goto(f"{own.url}#/graph")
        wait_until(page, "hloenvExplorer.views.graph.canvasFrames > 0")
        seen = set()
        for scale in (14, 8, 5, 4, 3):
            page.evaluate(
                f"""() => {{
                  const {{renderer}} = hloenvExplorer.views.graph;
                  window.written.length = 0;
                  renderer.view.scale = {scale};
                  renderer.paint();
                }}"""
            )
            titles = page.evaluate("window.written")
            seen |= {text.split()[0] for text, _, _ in titles}
            places = [(x, x + 7 * len(text), y) for text, x, y in titles]
            for i, (x0, x1, y) in enumerate(places):
                for from_, to, at in places[i + 1 :]:
                    assert not (x0 < to and from_ < x1 and abs(at - y) < 13), titles
        assert {"while", "body:"} <= seen
    backend.close()
