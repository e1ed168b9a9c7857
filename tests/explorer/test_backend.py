# SPDX-License-Identifier: Apache-2.0
"""Child processes: crashes, jobs, cancelling."""

from __future__ import annotations

import os
import signal
import time

import pytest

from hloenv.errors import ArgumentError, ParseError, WorkerError
from hloenv.explorer.backend import Backend, NoModuleError, Target
from hloenv.explorer.finished import FinishedJobs
from hloenv.explorer.jobs import BusyError, Jobs, UnknownJobError
from hloenv.explorer.work import kernel_differences


def _wait(backend, job):
    while job["state"] == "running":
        time.sleep(0.1)
        job = backend.job(job["id"])
    return job


def _kill_session(backend):
    os.kill(backend._sandbox._child._process.pid, signal.SIGKILL)
    backend._sandbox._child._process.wait()


def _index(backend, original):
    rows = backend.request("alternatives", {})
    (found,) = (row["index"] for row in rows if row["original"] == original)
    return found


@pytest.fixture
def own_backend(small):
    found = Backend(Target("small.hlo", small), store=None)
    yield found
    found.close()


def test_a_session_survives_its_process(own_backend):
    index = _index(own_backend, "same")
    before = own_backend.request("decide", {"changes": [[index, 1]]})
    _kill_session(own_backend)
    after = own_backend.request("state", {})
    assert after == before


def test_the_action_that_crashed_is_not_repeated(own_backend, monkeypatch):
    index = _index(own_backend, "same")
    before = own_backend.request("decide", {"changes": [[index, 1]]})
    call = own_backend._sandbox.call

    def crash(function, *arguments):
        if arguments[1:2] == ("apply",):
            _kill_session(own_backend)
            raise WorkerError("the worker process crashed (signal SIGABRT)")
        return call(function, *arguments)

    monkeypatch.setattr(own_backend._sandbox, "call", crash)
    with pytest.raises(WorkerError, match="continues as it was"):
        own_backend.request("apply", {})
    assert own_backend.request("state", {}) == before


def test_a_module_that_cannot_be_parsed_leaves_the_session(own_backend):
    before = own_backend.request("state", {})
    with pytest.raises(ParseError):
        own_backend.open("broken.hlo", "HloModule broken\nENTRY {")
    assert own_backend.request("state", {}) == before


def test_another_module_starts_another_session(own_backend):
    index = _index(own_backend, "same")
    before = own_backend.request("decide", {"changes": [[index, 1]]})
    text = "HloModule other\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}"
    state = own_backend.open("other.hlo", text)
    assert state["module"]["name"] == "other"
    assert state["session"] != before["session"]
    assert state["log"] == []


def test_a_log_is_not_restored_over_decisions(own_backend):
    index = _index(own_backend, "same")
    state = own_backend.request("decide", {"changes": [[index, 1]]})
    with pytest.raises(ArgumentError, match="decisions of its own"):
        own_backend.restore(state["log"])


def test_results_alone_have_no_module():
    backend = Backend(Target("rows.parquet", problem="rows.parquet has no module"))
    with pytest.raises(NoModuleError, match=r"rows\.parquet"):
        backend.request("state", {})
    assert backend.results()["kind"] == "none"
    backend.close()


def _action(do):
    return {"do": do, "until": "", "occurrence": 1, "passes": [], "changes": []}


def test_results_are_kept_for_the_state_that_they_are_of():
    decide, point = _action("decide"), _action("point")
    jobs = FinishedJobs()
    jobs.add("measure", {"error": ""}, "key", [point, decide], is_decided=True)
    jobs.add("compare", {"error": ""}, "key", [point], is_decided=False)
    jobs.add("timeline", {"stages": []}, "key", [], is_decided=False)

    def kept(key, log):
        return {kind for kind, result in jobs.at(key, log).items() if result}

    assert kept("key", [point, decide]) == {"measure", "compare", "timeline"}
    assert kept("key", [point, decide, decide]) == {"compare", "timeline"}
    assert kept("key", [point, decide, point]) == {"timeline"}
    assert kept("other", [point, decide]) == set()


def test_times_of_single_choices_add_up():
    jobs = FinishedJobs()

    def timed(log, rows):
        result = {"default_s": 1.0, "timed": rows, "error": ""}
        jobs.add("rank", result, "key", log, is_decided=False)
        return jobs.at("key", log)["rank"]["timed"]

    timed([], [[0, 0, 0.0], [0, 1, -1.0]])
    both = timed([_action("decide")], [[0, 1, -2.0], [1, 1, 3.0]])
    assert both == [[0, 0, 0.0], [0, 1, -2.0], [1, 1, 3.0]]
    assert timed([_action("point")], [[0, 1, 4.0]]) == [[0, 1, 4.0]]


def test_xlas_passes_are_a_timeline(backend):
    job = _wait(backend, backend.start("timeline", {}))
    assert job["state"] == "done", job["message"]
    stages = job["timeline"]["stages"]
    assert len(stages) > 50
    assert job["timeline"]["first_instructions"] == 15
    changed = [stage for stage in stages if stage["changed"]]
    assert "algsimp" in {stage["name"] for stage in changed}
    first = next(stage for stage in changed if stage["name"] == "algsimp")
    diff = backend.stage(first["index"])
    assert {"removed"} <= {change["kind"] for change in diff["changes"]}
    for change in diff["changes"]:
        around = backend.stage_change(first["index"], change["index"])
        for side, name in (("before", change["before"]), ("after", change["after"])):
            assert not name or name in around[side]["names"]
    with pytest.raises(ArgumentError, match="no change 99"):
        backend.stage_change(first["index"], 99)
    unchanged = next(stage for stage in stages if not stage["changed"])
    with pytest.raises(ArgumentError, match="changed nothing"):
        backend.stage(unchanged["index"])


@pytest.mark.compile
def test_an_estimate_times_kernels_and_shows_them(backend):
    with pytest.raises(ArgumentError, match="run an estimate"):
        backend.final_graph()
    job = _wait(backend, backend.start("estimate", {}))
    assert job["state"] == "done", job["message"]
    estimate = job["estimate"]
    assert estimate["error"] == ""
    assert estimate["decided_s"] > 0
    assert "dot" in {kernel["opcode"] for kernel in estimate["kernels"]}
    graph = backend.final_graph()
    assert max(graph["kernel_s"]) > 0


@pytest.mark.slow
@pytest.mark.compile
def test_choices_are_timed_one_by_one(backend):
    index = _index(backend, "same")
    pairs = [[index, 0], [index, 1]]
    job = _wait(backend, backend.start("rank", {"pairs": pairs}))
    assert job["rank"]["error"] == ""
    assert [row[:2] for row in job["rank"]["timed"]] == pairs


@pytest.mark.slow
@pytest.mark.compile
def test_two_methods_with_equal_kernels_do_not_differ(backend):
    methods = {"first": "default", "second": "policy:keep-original"}
    job = _wait(backend, backend.start("compare", methods))
    found = job["compare"]
    assert found["error"] == ""
    assert (found["first"], found["second"]) == ("default", "policy:keep-original")
    gain = sum(row["gain_s"] for row in found["differences"])
    assert gain == pytest.approx(found["first_s"] - found["second_s"], abs=1e-6)


def test_a_cancelled_job_ends(backend):
    job = backend.cancel(backend.start("measure", {})["id"])
    assert job["state"] == "cancelled"
    assert backend.job(job["id"])["state"] == "cancelled"


@pytest.mark.parametrize("pair", [[-1, 1], [10**30, 1], [0, -1], [0, 10**30]])
def test_a_choice_that_is_not_there_is_not_timed(backend, pair):
    with pytest.raises(ArgumentError, match=r"alternative"):
        backend.start("rank", {"pairs": [pair]})


def test_an_estimate_of_earlier_decisions_is_not_shown(own_backend, monkeypatch):
    kept = []
    monkeypatch.setattr(
        own_backend._jobs, "start", lambda *arguments: kept.append(arguments[-1])
    )
    own_backend.start("estimate", {})
    own_backend.start("timeline", {})
    index = _index(own_backend, "same")
    own_backend.request("decide", {"changes": [[index, 1]]})
    estimate, timeline = kept
    estimate({}, ("an estimate", "its graph"))
    with pytest.raises(ArgumentError, match="run an estimate"):
        own_backend.final_graph()
    text = "HloModule other\nENTRY e {\n  ROOT p = f32[4] parameter(0)\n}"
    own_backend.open("other.hlo", text)
    timeline({}, ("a timeline", {0: (b"", b"")}))
    with pytest.raises(ArgumentError, match="was not run"):
        own_backend.stage(0)


def test_a_failed_job_says_why(backend):
    job = _wait(backend, backend.start("timeline", {"target": "no-such-target"}))
    assert job["state"] == "failed"
    assert "no-such-target" in job["message"]


def test_jobs_are_few():
    jobs = Jobs(max_running=1)
    first = jobs.start("measure", (b"", b"", None, 1), lambda *_: None)
    with pytest.raises(BusyError, match="most at one time"):
        jobs.start("measure", (b"", b"", None, 1), lambda *_: None)
    jobs.cancel(first["id"])
    with pytest.raises(UnknownJobError):
        jobs.info(99)
    jobs.close()


def test_kernels_of_both_cancel_out():
    def kernel(fingerprint, runs, opcode="dot", seconds=1e-6):
        return {
            "name": f"{opcode}.{fingerprint}",
            "opcode": opcode,
            "fingerprint": fingerprint,
            "runs": runs,
            "seconds": seconds,
        }

    first = [kernel("1", 2), kernel("2", 1, "fusion", 4e-6)]
    second = [kernel("1", 1), kernel("3", 1, "fusion", 1e-6)]
    rows = kernel_differences(first, second)
    assert [(row["name"], row["gain_s"]) for row in rows] == [
        ("fusion", pytest.approx(3e-6)),
        ("dot", pytest.approx(1e-6)),
    ]
    assert rows[0]["names_first"] == ["fusion.2"]
    assert rows[0]["names_second"] == ["fusion.3"]
    assert kernel_differences(first, first) == []
