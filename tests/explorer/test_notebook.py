# SPDX-License-Identifier: Apache-2.0
"""HTML of modules, alternatives and comparisons, for notebooks."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from hloenv import HloEnv, HloModule
from hloenv.errors import CompileError
from hloenv.explorer.graph_data import graph_data
from hloenv.explorer.notebook import svg_of
from hloenv.hlo.diff import diff_modules
from hloenv.measurement.record import MeasureFailure, Measurement


def _parsed(html):
    """The HTML as XML: every element is closed, every text escaped."""
    assert "<script" not in html
    assert not re.search(r"(?:src|href)=", html)
    return ElementTree.fromstring(html)


def _texts(html):
    return " ".join(_parsed(html).itertext())


def test_a_module_is_a_table_and_a_picture(small):
    html = small._repr_html_()
    assert "HloModule small" in _texts(html)
    assert "15" in _texts(html)
    pictures = list(_parsed(html).iter("{http://www.w3.org/2000/svg}svg"))
    assert len(pictures) == 1
    assert len(list(pictures[0].iter("{http://www.w3.org/2000/svg}rect"))) == 15


def test_a_large_module_is_a_table_alone():
    lines = ["p0 = f32[8] parameter(0)"]
    lines += [f"p{number} = f32[8] negate(p{number - 1})" for number in range(1, 400)]
    lines[-1] = "ROOT " + lines[-1]
    text = "HloModule big\nENTRY e {\n" + "\n".join(lines) + "\n}"
    html = HloModule.from_text(text)._repr_html_()
    assert "negate 399" in _texts(html)
    assert "<svg" not in html


def test_alternatives_show_what_gains_most(small):
    html = HloEnv(small).get_alternatives("algsimp", "cse")._repr_html_()
    assert "alternatives of algsimp, cse" in _texts(html)
    assert html.count("<svg") == 2
    assert "before" in html
    assert "after" in html
    assert "\u2212 " in html


def test_no_alternatives_are_a_line(small):
    html = HloEnv(small).get_alternatives("reshape-mover")._repr_html_()
    assert "0 alternatives" in _texts(html)


def test_a_diff_counts_its_changes(small):
    env = HloEnv(small)
    env.run("algsimp")
    diff = diff_modules(small, env.module)
    html = diff._repr_html_()
    assert f"{diff.count('removed')} removed" in _texts(html)
    assert html.count("<svg") == 2
    assert "\u2212 add" in _texts(html)
    assert "equal modules" in _texts(diff_modules(small, small)._repr_html_())


def test_a_measurement_has_its_interval():
    measured = Measurement(
        "a", "b", "legalize", 0, durations_ns=(100,) * 20, baseline_ns=(200,) * 20
    )
    assert "2.000" in _texts(measured._repr_html_())


def test_a_failed_measurement_says_why():
    failure = MeasureFailure(CompileError.__name__, "<b>no & yes</b>")
    measured = Measurement("a", "b", "legalize", 0, error=failure)
    assert "<b>no & yes</b>" in _texts(measured._repr_html_())


@pytest.mark.parametrize("name", ["<script>", "a&b", '"', "</svg>"])
def test_names_are_escaped(small, name):
    graph = graph_data(small)
    graph["names"][0] = graph["opcodes"][0] = name
    assert name in _texts(svg_of(graph))
