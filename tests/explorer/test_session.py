# SPDX-License-Identifier: Apache-2.0
"""Sessions: what the page shows and does."""

from __future__ import annotations

import json

import pytest

import hloenv
from hloenv.errors import ArgumentError, PositionError, UnknownPassError
from hloenv.explorer.session import Session
from hloenv.rewrite.trace import Trace


@pytest.fixture
def session(small):
    return Session(small, "small.hlo")


def _index(session, original):
    (found,) = (row for row in session.alternatives() if row["original"] == original)
    return found["index"]


def test_everything_is_undecided_at_first(session):
    totals = session.state()["totals"]
    assert totals["undecided"] == totals["alternatives"] == len(session.alternatives())
    assert totals["alternatives"] >= 2
    assert not totals["can_undo"]


def test_the_static_estimate_follows_a_decision(session):
    index = _index(session, "same")
    totals = session.decide([[index, 1]])["totals"]
    assert totals["accepted"] == 1
    assert totals["static_after_s"] < totals["static_before_s"]
    totals = session.undo()["totals"]
    assert totals["static_after_s"] == totals["static_before_s"]


def test_undo_takes_back_one_action(session):
    index = _index(session, "same")
    session.decide([[index, 1]])
    session.decide([[index, 0]])
    assert session.undo()["decisions"][index] == 1
    assert session.undo()["decisions"][index] == -1
    with pytest.raises(ArgumentError, match="nothing to undo"):
        session.undo()


def test_two_methods_are_compared_by_their_decisions(session):
    index = _index(session, "same")
    session.decide([[index, 1]])
    found, *others = session.differing("policy:keep-original", "decided")
    # Everything else is rejected by one, and left to XLA by the other.
    assert {(each["first"], each["second"]) for each in others} == {(0, -1)}
    assert found["index"] == index
    assert (found["first"], found["second"]) == (0, 1)
    (choice,) = session.alternatives()[index]["choices"][1:]
    assert found["static_s"] == pytest.approx(choice["static_s"])
    assert found["static_s"] < 0
    back, *_ = session.differing("decided", "policy:keep-original")
    assert back["static_s"] == -found["static_s"]
    assert session.differing("decided", "decided") == []


def test_what_a_policy_leaves_to_xla_is_as_xla_decides(session, monkeypatch):
    monkeypatch.setattr(
        "hloenv.explorer.session.get_policy",
        lambda _: lambda alternatives: alternatives.leave_to_xla(),
    )
    session.point("fusion", 1, ["fusion"])
    assert (session.xla() > 0).any()
    assert session.differing("default", "policy:any") == []
    left = session.by_method("policy:any")
    assert left.fingerprint() == session.default().fingerprint()


def test_an_applied_decision_is_a_step_of_the_trace(session, small):
    index = _index(session, "same")
    session.decide([[index, 1]])
    state = session.apply()
    assert [step["kind"] for step in state["steps"]] == ["decide"]
    assert "same" not in {row["original"] for row in session.alternatives()}
    trace = Trace.from_json(session.finished_trace())
    replayed = hloenv.replay(trace, small)
    assert replayed.fingerprint() == state["module"]["fingerprint"]


def test_the_trace_has_decisions_that_are_not_applied_yet(session, small):
    session.decide([[_index(session, "same"), 1]])
    assert session.state()["steps"] == []
    trace = Trace.from_json(session.finished_trace())
    assert hloenv.replay(trace, small).fingerprint() == session.decided().fingerprint()
    assert session.state()["steps"] == []


def test_the_python_repeats_the_decisions(session, small, tmp_path):
    session.decide([[_index(session, "same"), 1], [_index(session, "kept"), 0]])
    path = tmp_path / "small.hlo"
    small.save(path)
    session.target = str(path)
    names: dict[str, object] = {}
    exec(session.python(), names)
    assert names["env"].fingerprint() == session.decided().fingerprint()


def test_the_log_repeats_the_session(session, small):
    session.decide([[_index(session, "same"), 1]])
    session.apply()
    session.point("fusion", 1, ["fusion", "general-fusion"])
    session.decide([[0, 1]])
    state = session.state()
    other = Session(small, "small.hlo").repeat(json.loads(json.dumps(state["log"])))
    for key in ("module", "decisions", "point", "steps", "totals", "log"):
        assert other[key] == state[key]


def test_the_stop_moves_back_where_nothing_was_decided(session):
    session.point("fusion", 1, ["general-fusion"])
    state = session.point("simplification", 1, ["algsimp"])
    assert "simplification" in state["module"]["position"]
    assert session.point("", 1, ["algsimp", "cse"])["module"]["position"] == ""


def test_two_positions_of_one_name_are_two_positions(session):
    state = session.point("simplification/algsimp", 1, ["algsimp"])
    first = state["module"]["position"]
    later = "HLO passes after layout assignment/simplification after layout assignment"
    state = session.point(f"{later}/algsimp", 1, ["algsimp"])
    assert first != state["module"]["position"]
    assert state["module"]["position"] == f"before {later}/algsimp (1)"


def test_a_session_shows_the_position_that_it_opens_at(small):
    env = hloenv.HloEnv(small)
    env.run_until("fusion")
    alternatives = env.get_alternatives("general-fusion")
    decisions = alternatives.leave_to_xla()
    decisions[0] = 1
    env.apply_alternatives(decisions, alternatives, partial=True)
    session = Session(small, "small.hlo", env.trace)
    point = session.state()["point"]
    assert point["until"].endswith("/fusion")
    assert point["occurrence"] == 1
    assert session.state()["decisions"][0] == 1
    session.point("copy-insertion", 1, ["copy-insertion"])
    assert session.point("", 1, ["algsimp"])["point"]["until"] == ""


def test_the_start_is_not_reached_past_applied_decisions(session):
    session.point("fusion", 1, ["general-fusion"])
    session.decide([[0, 1]])
    before = session.apply()
    with pytest.raises(PositionError, match="undo them"):
        session.point("", 1, ["algsimp", "cse"])
    assert session.state() == before


def test_a_log_that_fails_is_not_half_repeated(session):
    log = session.decide([[_index(session, "same"), 1]])["log"]
    before = session.state()
    wrong = {**log[0], "changes": [[999, 1]]}
    with pytest.raises(ArgumentError):
        session.repeat([{**log[0], "changes": [[0, 0]]}, wrong])
    assert session.state() == before


def test_the_stop_does_not_drop_decisions(session):
    session.point("fusion", 1, ["general-fusion"])
    session.decide([[0, 1]])
    before = session.apply()
    with pytest.raises(PositionError):
        session.point("simplification", 1, ["algsimp"])
    after = session.state()
    assert after["module"] == before["module"]
    assert after["steps"] == before["steps"]


def test_before_and_after_show_what_changes(session):
    index = _index(session, "same")
    detail = session.alternative(index, 1)
    assert detail["changed"]["same"] == "removed"
    assert "same" in detail["before"]["names"]
    assert "same" not in detail["after"]["names"]
    assert any("add(" in line for line in detail["text_before"])
    assert detail["changed"]["d"] == "changed"
    assert {"p", "d"} <= set(detail["after"]["names"])


def test_a_fusion_is_shown_with_its_body(session):
    session.point("fusion", 1, ["general-fusion"])
    detail = session.alternative(0, 1)
    after = detail["after"]
    assert any(box["role"] == "fused" for box in after["computations"])


def test_a_choice_that_is_not_there_is_an_error(session):
    for index, choice in ((9999, 1), (-1, 1), (0, 99), (0, 0)):
        with pytest.raises(ArgumentError):
            session.alternative(index, choice)
    for change in ([0], [0, 1, 2], [0, -2], [10**9, 0]):
        with pytest.raises(ArgumentError):
            session.decide([change])
    assert session.state()["log"] == []


def test_an_unknown_pass_leaves_the_session(session):
    before = session.state()
    with pytest.raises(UnknownPassError):
        session.point("fusion", 1, ["no-such-pass"])
    assert session.state() == before


def test_alternatives_are_marked_in_the_graph(session):
    graph = session.graph()
    marked = {
        graph["names"][node]: alternative
        for node, alternative in enumerate(graph["alternative"])
        if alternative >= 0
    }
    assert marked["same"] == _index(session, "same")


def test_a_node_has_its_text_and_neighbours(session):
    node = session.node(session.graph()["names"].index("d"))
    assert node["name"] == "d"
    assert node["operands"] == ["same", "q"]
    assert node["users"] == ["kept"]
    assert " dot(" in node["text"]
    for index in (-1, 15, 10**30):
        with pytest.raises(ArgumentError, match="no instruction"):
            session.node(index)


def test_an_instruction_with_a_long_name_has_details():
    name = "n" * 300
    text = f"HloModule m\nENTRY e {{\n  ROOT {name} = f32[4] parameter(0)\n}}"
    session = Session(hloenv.HloModule.from_text(text), "m.hlo")
    assert session.node(0)["name"] == name


def test_the_python_of_text_that_was_opened_names_no_such_file(small, tmp_path):
    session = Session(small, "opened module", is_opened=True)
    text = session.python()
    assert "# Save the HLO text that was opened as 'opened module'" in text
    assert "HloEnv('opened module')" not in text


def test_sources_are_searchable(session):
    graph = session.graph()
    node = graph["names"].index("same")
    assert graph["sources"][graph["source"][node]] == "jit(f)/add train.py:7"


def _at_fusion_after_one_decision(small):
    env = hloenv.HloEnv(small)
    first = env.get_alternatives("algsimp", "cse")
    decisions = first.leave_to_xla()
    decisions[0] = 1
    env.apply_alternatives(decisions, first, partial=True)
    env.run_until("fusion")
    return env


def _trace_of_two_stops(small):
    env = _at_fusion_after_one_decision(small)
    second = env.get_alternatives("fusion", "general-fusion")
    theirs = second.decisions_for("fusion")
    other = theirs.copy()
    other[0] = 0 if theirs[0] > 0 else 1
    env.apply_alternatives(other, second)
    return env.trace, other


def test_a_trace_opens_at_its_last_decisions(small):
    trace, decisions = _trace_of_two_stops(small)
    session = Session(small, "small.hlo", trace)
    state = session.state()
    assert state["point"]["passes"] == ["fusion", "general-fusion"]
    # What XLA decides too is left to it.
    assert [i for i, each in enumerate(state["decisions"]) if each >= 0] == [0]
    assert state["decisions"][0] == decisions[0]
    assert session.decided().fingerprint() == trace.end.fingerprint
    assert Trace.from_json(session.finished_trace()) == trace


def test_undo_goes_back_through_a_trace_and_is_repeated(small):
    trace, _ = _trace_of_two_stops(small)
    session = Session(small, "small.hlo", trace)
    assert session.state()["totals"]["can_undo"]
    state = session.undo()
    assert state["point"] == {
        "until": "",
        "occurrence": 1,
        "passes": ["algsimp", "cse"],
    }
    assert state["decisions"][0] == 1
    assert not state["totals"]["can_undo"]
    state = session.decide([[1, 1]])
    assert [each["do"] for each in state["log"]] == ["undo", "decide"]
    again = Session(small, "small.hlo", trace).repeat(state["log"])
    assert again["decisions"] == state["decisions"]
    assert [each["do"] for each in session.undo()["log"]] == ["undo"]


def test_a_trace_opens_where_xla_is_overruled(small):
    env = _at_fusion_after_one_decision(small)
    env.apply_alternatives(env.get_alternatives("fusion").decisions_for("fusion"))
    session = Session(small, "small.hlo", env.trace)
    assert session.state()["point"]["passes"] == ["algsimp", "cse"]
    assert session.state()["decisions"][0] == 1
    finished = hloenv.finish(env.module).fingerprint()
    assert hloenv.finish(session.decided()).fingerprint() == finished


def test_decisions_like_xlas_are_not_left_out_where_they_matter(small):
    env = hloenv.HloEnv(small)
    first = env.get_alternatives("algsimp")
    env.apply_alternatives(first.reject_all(), first)
    env.run_until("simplification")
    # XLA would not make what was rejected; this decides to.
    second = env.get_alternatives("algsimp")
    assert second.decisions_for("algsimp").any()
    assert not second.xla_decisions().any()
    env.apply_alternatives(second.decisions_for("algsimp"), second)
    session = Session(small, "small.hlo", env.trace)
    assert session.state()["totals"]["accepted"] > 0
    finished = hloenv.finish(session.decided()).fingerprint()
    assert finished == hloenv.finish(env.module).fingerprint()


def test_a_log_that_fails_leaves_the_trace_undoable(small):
    trace, _ = _trace_of_two_stops(small)
    session = Session(small, "small.hlo", trace)
    log = session.undo()["log"]
    log.append({**log[0], "do": "decide", "changes": [[999, 1]]})
    session = Session(small, "small.hlo", trace)
    before = session.state()
    with pytest.raises(ArgumentError, match="no alternative 999"):
        session.repeat(log)
    assert session.state() == before
    assert session.undo()["point"]["until"] == ""


def test_a_log_is_of_one_order_of_instructions():
    lines = ["a = f32[4] add(p, z)", "b = f32[4] add(q, z)"]

    def session(lines):
        text = (
            "HloModule m\nENTRY main {\np = f32[4] parameter(0)\n"
            "q = f32[4] parameter(1)\nzero = f32[] constant(0)\n"
            "z = f32[4] broadcast(zero), dimensions={}\n" + "\n".join(lines)
        )
        text += "\nROOT t = (f32[4], f32[4]) tuple(a, b)\n}\n"
        return Session(hloenv.HloModule.from_text(text), "m.hlo")

    first, second, again = session(lines), session(lines[::-1]), session(lines)
    assert first.module.fingerprint() == second.module.fingerprint()
    assert first.state()["base"] == again.state()["base"] != second.state()["base"]


def test_any_name_can_be_explored(small):
    assert Session(small, "m\udcff.hlo").state()["base"]


@pytest.mark.parametrize("last", [[], ["dce"]])
def test_a_trace_whose_end_cannot_be_undone_opens_there(small, last):
    env = hloenv.HloEnv(small)
    with_option = hloenv.Pass("algsimp", enable_dot_strength_reduction=True)
    alternatives = env.get_alternatives(with_option)
    env.apply_alternatives(alternatives.decisions_for("algsimp"))
    if last:
        env.run(*last)
    session = Session(small, "small.hlo", env.trace)
    state = session.state()
    assert state["module"]["fingerprint"] == env.fingerprint()
    assert set(state["decisions"]) <= {-1}
    assert not state["totals"]["can_undo"]
    kinds = [step.kind for step in env.trace.steps]
    assert [step["kind"] for step in state["steps"]] == kinds


def test_what_is_left_to_xla_is_what_its_pass_does(session, small):
    state = session.point("fusion", 1, ["fusion", "general-fusion"])
    assert set(state["xla"]) <= {0, 1, 2, 3}
    assert max(state["xla"]) > 0
    finished = hloenv.finish(session.default())
    assert finished.fingerprint() == hloenv.finish(small).fingerprint()
    taken = state["xla"].index(max(state["xla"]))
    session.decide([[taken, 0]])
    rejected = hloenv.finish(session.decided())
    assert rejected.fingerprint() != finished.fingerprint()


def test_a_rejection_that_is_applied_stays(session):
    state = session.point("fusion", 1, ["fusion", "general-fusion"])
    taken = state["xla"].index(max(state["xla"]))
    session.decide([[taken, 0]])
    rejected = hloenv.finish(session.decided()).fingerprint()
    state = session.apply()
    # The decisions are in place of XLA's run: what is undecided now stays as it is.
    assert set(state["xla"]) <= {-1}
    assert hloenv.finish(session.default()).fingerprint() == rejected
    assert hloenv.finish(session.decided()).fingerprint() == rejected


def test_later_passes_decide_what_is_left_at_the_start(session):
    assert set(session.state()["xla"]) == {-1}


def test_the_python_loads_a_module_of_the_dataset():
    from hloenv.dataset import find_benchmarks

    target = "hloenv://generated/3"
    names: dict[str, object] = {}
    session = Session(next(iter(find_benchmarks(target))).load(), target)
    exec(session.python(), names)
    assert names["env"].fingerprint() == session.module.fingerprint()
