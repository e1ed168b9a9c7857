# SPDX-License-Identifier: Apache-2.0
"""What hloenv.jit keeps of its decisions for other processes."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import json
import os
import time

import jax
import jax.numpy as jnp
import pytest

import hloenv
from hloenv.jax import stages, timed_call
from hloenv.jax import verdicts as kept_verdicts
from hloenv.jax.facts import key_of_lowered
from hloenv.measurement.store import default_path
from support import jax_outputs
from support.jit_functions import (
    FASTER,
    IMAGE,
    KERNEL,
    MATRIX,
    NOISES,
    SLOWER,
    depthwise,
    filtered,
)

assert_same = functools.partial(jax_outputs.assert_same, tolerance=1e-4)

pytestmark = [
    pytest.mark.jax,
    pytest.mark.compile,
    pytest.mark.usefixtures("own_folder"),
]


def test_another_process_starts_with_what_was_found(verdicts, monkeypatch):
    verdicts += [FASTER]
    first = hloenv.jit(depthwise)
    first(KERNEL, IMAGE)
    # Another function object, as in another process; timing would be an error.
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(depthwise)
    assert_same(second(KERNEL, IMAGE), jax.jit(depthwise)(KERNEL, IMAGE))
    (one,) = second.decided
    assert (one.speedup, one.interval) == (FASTER.speedup, FASTER.interval)
    assert second._plain._cache_size() == 0


def test_plain_is_remembered_too(verdicts, monkeypatch):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    monkeypatch.setattr(timed_call, "compare", None)
    second = hloenv.jit(depthwise)
    second(KERNEL, IMAGE)
    assert second.decided == []
    assert "it is slower (found on 20" in second.explain()


def test_what_was_kept_long_ago_is_removed():
    verdict = kept_verdicts.Verdict("", "it is slower")
    for key in ("old", "recent"):
        kept_verdicts.remember(key, verdict)
        assert kept_verdicts.recall(key)
    folder = default_path().parent / "jit"
    for key, days in (("old", 31), ("recent", 6)):
        then = time.time() - days * 86_400
        os.utime(folder / f"{key}.json", (then, then))
    kept_verdicts._remove_old.cache_clear()  # as in another process
    kept_verdicts.remember("new", verdict)
    assert {each.stem for each in folder.glob("*.json")} == {"recent", "new"}


def test_plain_is_compared_again_after_a_week(verdicts, monkeypatch):
    verdicts += [SLOWER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    today = datetime.date.fromisoformat(kept_verdicts.today())
    for days, count in ((6, 1), (9, 0)):
        date = (today - datetime.timedelta(days)).isoformat()
        (path,) = (default_path().parent / "jit").glob("*.json")
        key, fields = path.stem, json.loads(path.read_text())["verdict"]
        monkeypatch.setattr(kept_verdicts, "today", lambda date=date: date)
        kept_verdicts.remember(key, kept_verdicts.Verdict("", fields["reason"]))
        again = hloenv.jit(depthwise)
        again(KERNEL, IMAGE)
        assert len(verdicts) == count
    assert len(again.decided) == 1


def test_a_decision_is_compared_again_after_a_week(verdicts, monkeypatch):
    verdicts += [FASTER, SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    date = datetime.date.fromisoformat(kept_verdicts.today()) - datetime.timedelta(9)
    (path,) = (default_path().parent / "jit").glob("*.json")
    fields = json.loads(path.read_text())["verdict"]
    kept = kept_verdicts.Verdict(**{**fields, "interval": (1.9, 2.1)})
    with monkeypatch.context() as patch:
        patch.setattr(kept_verdicts, "today", date.isoformat)
        kept_verdicts.remember(path.stem, kept)
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)
    assert verdicts == []
    assert again.decided == []


def test_plain_is_not_kept_where_loops_depend_on_values(verdicts):
    def repeated(kernel, x, count):
        step = lambda _, y: depthwise(kernel, y)  # noqa: E731
        return jax.lax.fori_loop(0, count, step, x)

    verdicts += [SLOWER, FASTER]
    args = KERNEL, IMAGE
    hloenv.jit(repeated)(*args, 0)
    again = hloenv.jit(repeated)
    again(*args, 3)
    assert len(again.decided) == 1
    assert verdicts == []


def test_options_of_the_compiler_are_part_of_what_is_kept(verdicts):
    verdicts += [SLOWER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    with _setting("jax_optimization_level", "O1"):
        again = hloenv.jit(depthwise)
        again(KERNEL, IMAGE)
    assert len(again.decided) == 1


def _another_machine(patch):
    here = kept_verdicts.this_machine()
    patch.setattr(
        kept_verdicts, "this_machine", lambda: dataclasses.replace(here, cpu="another")
    )


@pytest.mark.parametrize(
    "change",
    [
        _another_machine,
        lambda patch: patch.setattr(kept_verdicts, "__version__", "0.0.0"),
        lambda patch: patch.setattr(jax, "__version__", "0.0.0"),
        lambda patch: patch.setattr(jax.lib, "__version__", "0.0.0"),
        lambda patch: patch.setattr(kept_verdicts, "sources", lambda: "others"),
        lambda patch: patch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}),
    ],
    ids=["machine", "hloenv", "jax", "jaxlib", "sources", "cores"],
)
def test_what_another_machine_or_version_found_does_not_count(
    change, verdicts, monkeypatch
):
    verdicts += [SLOWER, FASTER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    with monkeypatch.context() as patch:
        change(patch)
        other = hloenv.jit(depthwise)
        other(KERNEL, IMAGE)
    assert len(other.decided) == 1
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)  # what was found here is still kept
    assert again.decided == []
    assert verdicts == [FASTER]


@contextlib.contextmanager
def _setting(name, value):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


def test_remember_is_an_option(verdicts):
    verdicts += [FASTER, FASTER]
    for _ in range(2):
        hloenv.jit(depthwise, remember=False)(KERNEL, IMAGE)
    assert verdicts == []
    assert not (default_path().parent / "jit").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"forms"', '"other"'),
        lambda text: text.replace("2.0", "9.0"),
        lambda text: text[: len(text) // 2],
        lambda _: "[]",
        lambda _: json.dumps({"verdict": {}, "checksum": "0"}),
        lambda _: "",
    ],
)
def test_a_damaged_file_counts_as_absent(verdicts, damage):
    verdicts += [FASTER, FASTER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = (default_path().parent / "jit").glob("*.json")
    path.write_text(damage(path.read_text()))
    second = hloenv.jit(depthwise)
    second(KERNEL, IMAGE)
    assert len(second.decided) == 1
    assert verdicts == []


def test_a_folder_that_cannot_be_written_keeps_nothing(verdicts, tmp_path):
    verdicts += [FASTER, FASTER]
    for name in ("executables", "jit", "modules"):
        (tmp_path / name).write_text("a file in the place of the folder")
    for _ in range(2):
        fast = hloenv.jit(depthwise)
        fast(KERNEL, IMAGE)
        assert len(fast.decided) == 1
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["executables", "jit", "modules"]


def test_where_plain_is_known_to_be_best_the_module_is_not_converted(
    verdicts, monkeypatch
):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    monkeypatch.setattr(stages, "from_lowered", None)
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)
    assert "it is slower (found on 20" in again.explain()
    assert again.considered[0].module.name == "not_kept"


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("false", "true"),
        lambda text: text[: len(text) // 2],
        lambda _: '{"facts": [], "checksum": "0"}',
        lambda _: "",
    ],
)
def test_damaged_facts_count_as_absent(verdicts, damage):
    verdicts += [SLOWER]
    hloenv.jit(depthwise)(KERNEL, IMAGE)
    (path,) = (default_path().parent / "modules").glob("*.json")
    whole = path.read_text()
    path.write_text(damage(whole))
    again = hloenv.jit(depthwise)
    again(KERNEL, IMAGE)
    assert "it is slower (found on 20" in again.explain()
    assert path.read_text() == whole


def test_what_jax_lowers_is_identified_without_its_source_lines():
    def other(kernel, x):
        return 2 * depthwise(kernel, x)

    def key(fn, *args):
        return key_of_lowered(jax.jit(fn).lower(*args))

    here = key(lambda x: jnp.sin(x) + 1, IMAGE)
    assert here == key(lambda x: jnp.sin(x) + 1, IMAGE)
    assert here != key(lambda x: jnp.sin(x) + 2, IMAGE)
    assert here != key(lambda x: jnp.sin(x) + 1, KERNEL)
    assert key(depthwise, KERNEL, IMAGE) != key(other, KERNEL, IMAGE)


def test_donation_is_part_of_what_is_kept(verdicts):
    """A function that donates is not decided in the same way."""
    verdicts += [FASTER, SLOWER, SLOWER]
    gradient = jax.grad(filtered)
    donating = hloenv.jit(lambda a, n: gradient(a, n), donate_argnums=0)
    donating(MATRIX.copy(), NOISES)
    assert donating.decided == []
    fast = hloenv.jit(lambda a, n: gradient(a, n))
    fast(MATRIX, NOISES)
    assert len(fast.decided) == 1


def test_without_a_home_folder(run_child):
    run_child(
        """
import hloenv, jax.numpy as jnp
assert hloenv.jit(lambda x: x * 2)(jnp.ones(2)).sum() == 4
""",
        env={"HLOENV_STORE": "~no-such-user/store.sqlite"},
    )
