# SPDX-License-Identifier: Apache-2.0
"""The builder of the dataset, on a toy project in a local git repository."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest

from hloenv import HloModule
from hloenv.dataset import reader as shipped
from support.paths import ROOT
from support.toy_source import Toy, make_toy

sys.path.append(str(ROOT))

from dataset.harvest import Settings

from dataset import build, dedup, fetch, manifest, normalize, sandbox, split

SITE_PACKAGES = Path(sysconfig.get_paths()["purelib"])
MODULES = ["affine", "grad", "take", "train_step"]


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return make_toy(tmp_path)


def run_build(toy: Toy, out: Path, **options) -> build.Summary:
    settings = Settings(out=out, site_packages=SITE_PACKAGES)
    return build.build(manifest.load(toy.manifest), settings, **options)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Toy, Path, build.Summary]:
    """The toy project, the folder of a build of it, and what the build said."""
    folder = tmp_path_factory.mktemp("built")
    toy = make_toy(folder)
    return toy, folder / "out", run_build(toy, folder / "out")


def contents(folder: Path) -> list[bytes]:
    return [(folder / f"{name}.parquet").read_bytes() for name in split.FILES]


@pytest.mark.jax
def test_build_takes_a_git_repository_at_its_commit(built):
    toy, out, summary = built
    (outcome,) = summary.outcomes
    assert (outcome.status, outcome.origin) == ("done", "git"), outcome.detail
    assert outcome.network == sandbox.network_guard()
    records = shipped.load(path=out)
    names = {record.name for record in records}
    assert "toy/toy[size=3]/affine" in names
    assert "toy/toy[size=5]/train_step" in names
    assert {record.split for record in records} == {split.split_of(str(toy.repository))}
    assert {record.licence for record in records} == {"MIT"}
    assert {record.version for record in records} == {toy.commit}
    assert [shipped.check(record) for record in records] == [[]] * len(records)


@pytest.mark.jax
def test_build_drops_duplicates_and_reports_rejections(built):
    _, out, summary = built
    records = {record.name: record for record in shipped.load(path=out)}
    assert records["toy/toy[size=3]/affine"].num_copies == 2
    assert "toy/toy[size=3]/again" not in records
    assert summary.num_copies == 2
    reasons = dict(summary.outcomes[0].failures)
    assert reasons["toy/refused/callback"] == "it calls back into Python"
    assert reasons["toy/refused/idle"] == "it does nothing"
    assert "TypeError" in reasons["toy/toy[size=3]/broken"]
    report = (out / "report.md").read_text()
    assert "toy/refused/callback: it calls back into Python" in report


@pytest.mark.jax
def test_build_records_the_values_of_integer_inputs(built):
    _, out, _ = built
    records = {record.name: record for record in shipped.load(path=out)}
    assert records["toy/toy[size=5]/take"].input_ranges == (
        shipped.InputRange(parameter=1, low=0, high=4),
    )
    assert records["toy/toy[size=5]/affine"].input_ranges == ()


REAL_ENTRY = '''
"""Toy entry at real extents."""

import jax.numpy as jnp
import toymodels
from hloenv_cases import case, floats, ints, normal, uniform, weights


@case()
def wide(lower):
    params = {"w": floats(300, 300), "scale": floats(300)}
    drawn = weights(params)

    def loss(params, unused, x, i):
        return jnp.sum((params["scale"] * toymodels.affine(params["w"], x))[i])

    x = uniform(1, 3, 300)
    lower("loss", loss, drawn, normal(5), x, ints(300, 4))
    lower.loss(loss, drawn, normal(5), x, ints(300, 4), only=["train_step"])
'''


def with_real_entry(toy: Toy) -> None:
    toy.entry.with_name("real_toy.py").write_text(REAL_ENTRY)
    toy.write(toy.table(real_entries='["real_toy.py"]'))


@pytest.mark.jax
def test_real_entries_give_real_extents_and_distributions(toy, built, tmp_path):
    with_real_entry(toy)
    (outcome,) = run_build(toy, tmp_path / "out").outcomes
    assert outcome.status == "done", outcome.detail
    real = {r.name: r for r in shipped.load(path=tmp_path / "out", extent="real")}
    assert set(real) == {"real_toy/wide/loss", "real_toy/wide/train_step"}
    assert len(shipped.load(path=tmp_path / "out")) == len(shipped.load(path=built[1]))
    # The unused argument is no parameter of the module: jax leaves it out.
    assert real["real_toy/wide/loss"].input_distributions == (
        shipped.InputDistribution(0, "uniform", 0.8, 0.4),
        shipped.InputDistribution(1, "normal", 0.0, 0.05774),
        shipped.InputDistribution(2, "uniform", 1.0, 2.0),
    )
    second_moments = real["real_toy/wide/train_step"].inputs()[5:7]
    assert all(array.min() > 0 for array in second_moments)
    small = next(iter(shipped.load(path=tmp_path / "out")))
    assert small.input_distributions == ()


@pytest.mark.jax
def test_a_merged_build_equals_a_full_build(toy, built, tmp_path):
    _, small, _ = built
    with_real_entry(toy)
    (source,) = manifest.load(toy.manifest)
    # The same project at the same commit as `built`, but in another folder.
    (other,) = manifest.load(built[0].manifest)
    source = dataclasses.replace(
        source, repository=other.repository, commit=other.commit
    )
    for out, made, merge in (
        ("merged", dataclasses.replace(source, entries=()), small),
        ("whole", source, None),
        ("again", dataclasses.replace(source, entries=()), tmp_path / "merged"),
    ):
        settings = Settings(out=tmp_path / out, site_packages=SITE_PACKAGES)
        build.build([made], settings, merge=merge)
    assert contents(tmp_path / "merged") == contents(tmp_path / "whole")
    assert contents(tmp_path / "again") == contents(tmp_path / "whole")


@pytest.mark.jax
def test_a_source_of_the_unseen_split_is_in_no_other(toy, tmp_path):
    toy.write(toy.table(split='"unseen"'))
    summary = run_build(toy, tmp_path / "out")
    counts = dict(summary.counts)
    num_unseen = counts.pop("unseen")
    assert set(counts.values()) == {0}
    assert len(shipped.load("unseen", path=tmp_path / "out")) == num_unseen > 0
    assert len(shipped.load(path=tmp_path / "out")) == 0


@pytest.mark.jax
def test_two_builds_are_byte_identical(built, tmp_path):
    toy, out, _ = built
    run_build(toy, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(out)


@pytest.mark.jax
def test_only_changed_sources_are_run_again(toy, tmp_path):
    started = []

    def note(source, outcome):
        if outcome is None:
            started.append(source.name)

    run_build(toy, tmp_path / "out", on_progress=note)
    before = contents(tmp_path / "out")
    run_build(toy, tmp_path / "out", on_progress=note)
    assert (started, contents(tmp_path / "out")) == (["toy"], before)
    toy.entry.write_text("# A comment changes nothing.\n" + toy.entry.read_text())
    run_build(toy, tmp_path / "out", on_progress=note)
    assert started == ["toy"]
    toy.entry.write_text(toy.entry.read_text().replace("[3, 5]", "[3]"))
    run_build(toy, tmp_path / "out", on_progress=note)
    assert started == ["toy", "toy"]
    names = {record.name for record in shipped.load(path=tmp_path / "out")}
    assert not any("size=5" in name for name in names)


_BUILD = """
import sys
from pathlib import Path

sys.path[:0] = {path!r}
from dataset import build, manifest
from dataset.harvest import Settings

settings = Settings(out=Path({out!r}), site_packages=Path({site!r}))
build.build(manifest.load(Path({manifest!r})), settings,
            on_progress=lambda s, o: print(s.name, o and o.status, flush=True))
"""


@pytest.mark.jax
def test_a_killed_build_resumes(toy, tmp_path):
    slow = toy.entry.with_name("slow.py")
    slow.write_text("import time\ntime.sleep(600)\n")
    toy.write(toy.table(), toy.table(name='"zz"', entries='["slow.py"]'))
    root = str(ROOT)
    code = _BUILD.format(
        path=[root, *filter(None, sys.path)],
        out=str(tmp_path / "out"),
        site=str(SITE_PACKAGES),
        manifest=str(toy.manifest),
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        lines = [child.stdout.readline().strip() for _ in range(3)]
        assert lines == ["toy None", "toy done", "zz None"]
        child.send_signal(signal.SIGINT)
        assert child.wait(30) != 0
    slow.write_text(toy.entry.read_text())
    started = []
    summary = run_build(
        toy, tmp_path / "out", on_progress=lambda s, o: o or started.append(s.name)
    )
    assert started == ["zz"]
    assert [outcome.status for outcome in summary.outcomes] == ["done", "done"]


@pytest.mark.timeout(60)
def test_an_interrupt_does_not_keep_the_lock_of_a_future(tmp_path, monkeypatch):
    # Python may raise KeyboardInterrupt between the lock of a future and the block that
    # releases it; a thread of the pool then waited for it, and the build never ended.
    is_second = threading.Event()
    stopped = []

    def harvest(source, settings):
        if source == "first":
            time.sleep(0.1)  # The main thread waits for this one meanwhile.
            is_second.set()
            return build.Outcome(source)
        sandbox.STOP.wait()
        stopped.append(source)
        raise sandbox.StoppedError

    def interrupt(frame, event, _):
        is_lock = frame.f_code is threading.Condition.__enter__.__code__
        if is_lock and event == "return" and is_second.is_set() and not stopped:
            is_second.clear()
            signal.raise_signal(signal.SIGINT)
        return interrupt if is_lock else None

    monkeypatch.setattr(build, "harvest", harvest)
    monkeypatch.setattr(build, "load_outcome", lambda source, settings: None)
    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            build.build(["first", "second"], Settings(out=tmp_path))
    finally:
        sys.settrace(before)
    assert stopped == ["second"]
    assert not sandbox.STOP.is_set()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.jax
def test_a_script_runs_unchanged_and_its_modules_are_harvested(toy, tmp_path):
    scripts = '["examples/train.py --steps 2"]'
    toy.write(toy.table(entries="", scripts=scripts, commit='"v1"'))
    summary = run_build(toy, tmp_path / "out")
    assert summary.outcomes[0].detail == ""
    names = [record.name for record in shipped.load(path=tmp_path / "out")]
    assert "examples/train.py --steps 2/jit_affine.1" in names


@pytest.mark.jax
def test_a_local_checkout_is_a_source_too(toy, tmp_path):
    toy.write(toy.table(commit="", path=f'"{tmp_path / "tree"}"'))
    (outcome,) = run_build(toy, tmp_path / "out").outcomes
    assert (outcome.status, outcome.origin) == ("done", "path"), outcome.detail


@pytest.mark.jax
def test_a_failed_source_is_reported_without_affecting_others(toy, tmp_path):
    toy.entry.with_name("bad.py").write_text("raise OSError('no data here')\n")
    toy.write(
        toy.table(),
        toy.table(name='"bad"', entries='["bad.py"]'),
        toy.table(name='"gone"', commit='"v2"'),
    )
    summary = run_build(toy, tmp_path / "out")
    statuses = {each.source: each.status for each in summary.outcomes}
    assert statuses == {"bad": "failed", "gone": "failed", "toy": "done"}
    details = {each.source: each.detail for each in summary.outcomes}
    assert "no data here" in details["bad"]
    assert "v2" in details["gone"]
    assert len(shipped.load(path=tmp_path / "out")) > 0


@pytest.mark.namespaces
def test_a_child_that_uses_the_network_fails(tmp_path):
    code = "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)"
    ending = sandbox.run(
        [sys.executable, "-c", code],
        tmp_path / "log",
        cwd=tmp_path,
        env=sandbox.clean_environment(tmp_path),
        timeout_s=60,
        max_memory_bytes=1 << 30,
    )
    assert ending.network == sandbox.network_guard() == "namespace"
    assert ending.status == "failed"
    assert "unreachable" in ending.detail


def test_without_namespaces_python_has_no_sockets(root):
    code = (
        "import sys, socket; sys.path.insert(0, 'dataset/child')\n"
        "from run_source import close_network; close_network()\n"
        "try: socket.create_connection(('127.0.0.1', 9))\n"
        "except OSError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True
    )
    assert done.stdout.startswith("no network")


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("import time; time.sleep(60)", "timeout"),
        ("x = bytearray(600 << 20); import time; time.sleep(60)", "memory"),
        ("raise SystemExit(3)", "failed"),
        ("pass", "done"),
    ],
)
def test_limits_of_a_child(tmp_path, code, status):
    start = time.monotonic()
    ending = sandbox.run(
        [sys.executable, "-c", code],
        tmp_path / "log",
        cwd=tmp_path,
        env=dict(os.environ),
        timeout_s=1.0 if status == "timeout" else 30.0,
        max_memory_bytes=300 << 20,
    )
    assert ending.status == status
    assert time.monotonic() - start < 20


def test_split_is_a_repository_s_and_does_not_depend_on_spelling():
    urls = [f"https://github.com/someone/project{i}" for i in range(300)]
    splits = [split.split_of(url) for url in urls]
    assert splits == [split.split_of(url.upper() + ".git/") for url in urls]
    shares = {name: splits.count(name) / 300 for name in split.SPLITS}
    assert 0.6 < shares["train"] < 0.8
    assert 0.04 < shares["validation"] < 0.17
    assert 0.12 < shares["test"] < 0.28
    # Fixed: a change would move modules from one split to another.
    assert split.split_of("https://github.com/example/one") == FIXED_SPLIT


FIXED_SPLIT = "train"


def test_dedup_does_not_depend_on_the_order():
    records = [
        {"source": "b", "name": "x", "fingerprint": "1"},
        {"source": "a", "name": "y", "fingerprint": "1"},
        {"source": "a", "name": "x", "fingerprint": "2"},
    ]
    kept = dedup.distinct(records)
    assert [(r["source"], r["name"], r["num_copies"]) for r in kept] == [
        ("a", "x", 1),
        ("a", "y", 2),
    ]
    assert dedup.distinct(reversed(records)) == kept
    # Records that were counted already count as many.
    assert [r["num_copies"] for r in dedup.distinct([*kept, *kept])] == [2, 4]


def test_dedup_of_the_unseen_split_leaves_the_others_as_they_are():
    records = [
        {"source": "b", "name": "x", "fingerprint": "1", "split": "train"},
        {"source": "a", "name": "y", "fingerprint": "1", "split": "unseen"},
        {"source": "a", "name": "x", "fingerprint": "2", "split": "unseen"},
        {"source": "a", "name": "z", "fingerprint": "2", "split": "unseen"},
    ]
    kept = dedup.distinct_splits(records)
    assert [(r["source"], r["name"], r["num_copies"]) for r in kept] == [
        ("b", "x", 1),
        ("a", "x", 2),
    ]


def test_metadata_is_removed_but_not_similar_strings():
    text = """HloModule m

FileNames
1 "/home/someone/x.py"

FunctionNames
1 "<module>"

FileLocations
1 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=2 end_column=90}

StackFrames
1 {file_location_id=1 parent_frame_id=1}


ENTRY e {
  p = f32[2]{0} parameter(0), metadata={op_name="a[\\"}{\\"]" stack_frame_id=1}
  ROOT c = f32[2]{0} custom-call(p), custom_call_target="t", backend_config=", metadata={x}"
}
"""
    stripped = normalize.strip(text)
    assert "someone" not in stripped
    assert "op_name" not in stripped
    assert 'backend_config=", metadata={x}"' in stripped
    before, after = HloModule.from_text(text), HloModule.from_text(stripped)
    assert before.fingerprint() == after.fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"licence": ""}, "no 'licence'"),
        ({"family": '"cooking"'}, "is none of"),
        ({"colour": '"red"'}, "unknown key 'colour'"),
        ({"entries": '"toy.py"'}, "is not a tuple"),
        ({"entries": '["absent.py"]'}, "no entry file"),
        ({"entries": ""}, "runs nothing"),
        ({"commit": ""}, "needs a pin"),
        ({"pypi": '"toy>=1"'}, "exact pin"),
        ({"verified": '"surely"'}, "verified"),
        ({"name": '"Toy Project"'}, "a name is"),
        ({"real_entries": '["toy.py"]'}, "not in both"),
        ({"split": '"dev"'}, "neither 'unseen' nor left out"),
        ({"timeout_s": "true"}, "is not a float"),
        ({"repository": '"https://github.com/google/jraph.git"'}, "reserved"),
        ({"pypi": '"dm_pix==0.4.3"'}, "reserved"),
    ],
)
def test_manifest_errors_say_which_source_and_key(toy, changes, message):
    toy.write(toy.table(**changes))
    with pytest.raises(manifest.ManifestError, match=message) as caught:
        manifest.load(toy.manifest)
    assert "source" in str(caught.value)


@pytest.mark.parametrize("text", ["[[source", "x = 1\n", "[source]\nname = 'a'\n"])
def test_a_manifest_that_is_not_toml(toy, text):
    toy.manifest.write_text(text)
    with pytest.raises(manifest.ManifestError, match=r"manifest\.toml"):
        manifest.load(toy.manifest)


def test_manifest_with_a_name_twice(toy):
    toy.write(toy.table(), toy.table())
    with pytest.raises(manifest.ManifestError, match="two sources"):
        manifest.load(toy.manifest)


def test_the_manifest_is_valid(root):
    sources = manifest.load(root / "dataset" / "manifest.toml")
    assert len({source.repository for source in sources}) > 1
    for source in sources:
        assert source.jax
        for path in source.entry_paths:
            compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_no_entry_imports_a_reserved_project(root):
    names = "|".join(name.replace("-", "_") for name in sorted(manifest.RESERVED))
    found = [
        (path.name, line)
        for path in sorted((root / "dataset" / "entries").glob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.lstrip().startswith(("import ", "from "))
        and set(line.replace(".", " ").split()) & set(names.split("|"))
    ]
    assert found == []


@pytest.mark.network
@pytest.mark.timeout(700)  # pip, and jax's lowering of a whole source
def test_a_source_from_pypi_is_rebuilt_as_shipped(root, tmp_path):
    """A small source; every version is pinned, so that its modules are the same."""
    command = [sys.executable, "scripts/build_dataset.py", "--only", "jaxkd"]
    subprocess.run([*command, "--out", str(tmp_path)], cwd=root, check=True)
    data = Path(shipped.__file__).parent / "files"
    wanted = {r.name: r.text for r in shipped.load(path=data).select(source="jaxkd")}
    rebuilt = {r.name: r.text for r in shipped.load(path=tmp_path)}
    assert len(wanted) == 28
    assert {name: rebuilt.get(name) for name in wanted} == wanted


@pytest.mark.network
def test_a_missing_project_is_an_error(root, tmp_path):
    sources = manifest.load(root / "dataset" / "manifest.toml")
    (source,) = (each for each in sources if each.name == "jaxkd")
    absent = dataclasses.replace(source, pypi="hloenv-no-such-project==1.0")
    with pytest.raises(fetch.FetchError, match="hloenv-no-such-project"):
        fetch.install(absent, tmp_path, origin="pypi", log=tmp_path / "log.txt")
