# SPDX-License-Identifier: Apache-2.0
"""Artefacts: files, refusals, and their use by hloenv.jit, compile and inject."""

from __future__ import annotations

import dataclasses
import json
import os
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hloenv
from hloenv.errors import ArgumentError, ArtefactError
from hloenv.hlo.module import read_trusted
from hloenv.jax import Artefact, FallbackWarning, Recipe, Tuned, kept
from hloenv.jax.compare import compare
from hloenv.jax.kept import keep_tuned, kept_key, kept_path, recall_tuned
from hloenv.jax.outputs import compare_bitwise
from hloenv.jax.verdicts import Verdict, recall, remember
from hloenv.policies import get_policy
from hloenv.policies.known_forms import FORM_PASSES
from hloenv.rewrite.trace import ModuleId
from hloenv.runtime.jaxlib.hook import with_module_name

pytestmark = [pytest.mark.jax, pytest.mark.compile]

RNG = np.random.default_rng(0)
KERNEL = jnp.asarray(RNG.standard_normal((3, 3, 1, 32), np.float32))
IMAGE = jnp.asarray(RNG.standard_normal((1, 28, 28, 32), np.float32))
WIDE = {"xla_cpu_prefer_vector_width": 512}


def depthwise(kernel, x):
    return jax.lax.conv_general_dilated(
        x,
        kernel,
        (1, 1),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


@pytest.fixture(scope="module")
def module():
    return hloenv.HloModule.from_jax(depthwise, KERNEL, IMAGE, donations=False)


@pytest.fixture(scope="module")
def trace(module):
    env = hloenv.HloEnv(module)
    alternatives = env.get_alternatives(*FORM_PASSES)
    env.apply_alternatives(get_policy("known-forms")(alternatives), partial=True)
    return env.trace


def entry_of(module, recipe, **fields):
    known = {"label": "known", "speedup": 2.0, "interval": (1.9, 2.1)}
    return Tuned(
        "depthwise", ModuleId.of(module), recipe, date="2026-11-23", **known | fields
    )


RECIPES = {
    "stablehlo": lambda trace: Recipe(trace, options=WIDE),
    "options": lambda trace: Recipe(options=WIDE),
    "wheel-passes": lambda trace: Recipe(trace, pipeline="wheel", options=WIDE),
    "wheel": lambda trace: Recipe(trace, pipeline="wheel", backend="wheel"),
}


@pytest.mark.parametrize("name", RECIPES)
def test_every_kind_of_recipe_gives_the_same_outputs(name, module, trace):
    artefact = Artefact((entry_of(module, RECIPES[name](trace)),))
    expected = jax.jit(depthwise)(KERNEL, IMAGE)
    fast = hloenv.jit(depthwise, tuned=artefact)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FallbackWarning)
        for _ in range(2):
            np.testing.assert_allclose(fast(KERNEL, IMAGE), expected, atol=1e-4)
    (one,) = fast.decided
    assert (one.tuned, one.speedup) == ("known", 2.0)
    assert "tuned: known" in fast.explain()
    (output,) = hloenv.compile(module, tuned=artefact)(
        np.asarray(KERNEL), np.asarray(IMAGE)
    )
    np.testing.assert_allclose(output, expected, atol=1e-4)


def typed(key, scale, x):
    return jax.random.split(key), scale * 2, jnp.tanh(x) * scale, key


def types_of(tree):
    return [leaf.aval for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("name", [*RECIPES, "loaded", "loaded by jaxlib"])
@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_and_weak_types_stay_what_they_are(name, impl):
    args = jax.random.key(1, impl=impl), 2.0, jnp.ones((8, 8), jnp.bfloat16)
    module = hloenv.HloModule.from_jax(typed, *args, donations=False)
    if name.startswith("loaded"):
        engine = "jaxlib" if name.endswith("jaxlib") else "wheel"
        fast = hloenv.load(module, typed, engine=engine)
    else:
        env = hloenv.HloEnv(module)
        alternatives = env.get_alternatives("algsimp")
        env.apply_alternatives(alternatives.decisions_for("algsimp"))
        artefact = Artefact((entry_of(module, RECIPES[name](env.trace)),))
        fast = hloenv.jit(typed, tuned=artefact)
    expected = jax.jit(typed)(*args)
    for _ in range(2):
        found = fast(*args)
        assert types_of(found) == types_of(expected)
        assert compare_bitwise(found[0], expected[0])
    if not name.startswith("loaded"):
        assert len(fast.decided) == 1


def test_outputs_of_another_type_differ():
    weak, strong = jnp.asarray(2.0), jnp.float32(2)
    assert weak.weak_type
    assert not compare_bitwise(weak, strong)
    assert "weak" in compare(lambda: weak, lambda: strong, seconds=0.1).reason
    key = jax.random.key(0)
    data = jax.random.key_data(key)
    assert "key" in compare(lambda: key, lambda: data, seconds=0.1).reason


@pytest.mark.parametrize("name", ["stablehlo", "wheel-passes"])
def test_the_final_module_runs_in_plain_jax(name, module, trace):
    recipe = dataclasses.replace(RECIPES[name](trace), options={})
    artefact = Artefact((entry_of(module, recipe),))

    def renamed(kernel, x):
        return depthwise(kernel, x)

    with hloenv.jax.inject(artefact.final(module), name="jit_renamed") as injection:
        found = jax.jit(renamed)(KERNEL, IMAGE)
    assert injection.replaced == 1
    np.testing.assert_allclose(found, depthwise(KERNEL, IMAGE), atol=1e-4)


def check_final_by_name(recipe, module, fn, *args):
    jitted = jax.jit(fn)
    expected = jitted(*args)
    jitted.clear_cache()
    with hloenv.jax.inject(recipe.final(module)) as injection:
        found = jitted(*args)
    assert injection.replaced == 1
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("pipeline", ["jaxlib", "wheel"])
@pytest.mark.parametrize("is_plain", [True, False])
def test_the_final_module_has_the_name_of_the_given_one(
    pipeline, is_plain, module, trace
):
    recipe = Recipe(None if is_plain else trace, pipeline=pipeline)
    check_final_by_name(recipe, module, depthwise, KERNEL, IMAGE)


@pytest.mark.parametrize("size", [1, 127, 128, 300])
def test_a_module_is_read_with_another_name(size):
    given = hloenv.HloModule.from_jax(jnp.tanh, KERNEL)
    proto = with_module_name(given.to_proto(), "x" * size)
    assert read_trusted(proto).name == "x" * size


def test_options_that_the_final_module_lacks_are_named(module, trace):
    recipe = dataclasses.replace(RECIPES["stablehlo"](trace), options=WIDE)
    artefact = Artefact((entry_of(module, recipe),))
    with pytest.warns(hloenv.errors.LeftOutWarning, match="vector_width': 512"):
        artefact.final(module)


def test_the_wheels_backend_cannot_be_injected(module, trace):
    artefact = Artefact((entry_of(module, RECIPES["wheel"](trace)),))
    with pytest.raises(ArtefactError, match=r"hloenv\.jit"):
        artefact.final(module)


def filtered(a, noises):
    def step(p, noise):
        p = a @ p @ a.T + noise
        return p - jnp.outer(p[:, 0], p[0]) / (p[0, 0] + 1), p[0, 0]

    return jax.lax.scan(step, jnp.eye(3), noises)[1].sum()


def test_loops_become_kernels():
    args = jnp.eye(3) * 0.9, jnp.ones((500, 3, 3)) * 0.01
    gradient = jax.grad(filtered)
    module = hloenv.HloModule.from_jax(gradient, *args, donations=False)
    check_final_by_name(Recipe(loops=True), module, gradient, *args)
    artefact = Artefact((entry_of(module, Recipe(loops=True)),))
    fast = hloenv.jit(gradient, tuned=artefact)
    np.testing.assert_allclose(fast(*args), jax.jit(gradient)(*args), rtol=1e-4)
    assert fast.decided[0].num_accepted >= 1
    assert fast.decided[0].tuned == "known"
    assert "  tuned: known" in fast.explain().splitlines()
    assert fast.num_injected == 1


def test_a_file_round_trips(module, trace, tmp_path):
    stages = ({"stage": "forms", "decided": "x", "alone": None, "without": [1.0]},)
    artefact = Artefact((entry_of(module, Recipe(trace, options=WIDE), stages=stages),))
    artefact.save(tmp_path / "a.tuned")
    assert Artefact.load(tmp_path / "a.tuned") == artefact
    assert str(artefact.entries[0]).startswith("depthwise: 2.000x of jax.jit (1.900")


def test_what_is_kept_is_used_by_another_function(module):
    entry = entry_of(module, Recipe(options=WIDE))
    assert keep_tuned(kept_key(module.fingerprint(), {}, donates=False), entry) == ""
    assert recall_tuned(kept_key(module.fingerprint(), {}, donates=False)) == entry
    for policy in ("auto", "tuned"):
        fast = hloenv.jit(depthwise, policy=policy)
        fast(KERNEL, IMAGE)
        assert [each.tuned for each in fast.decided] == ["known"]


def test_what_is_kept_without_donation_is_not_for_a_function_that_donates(module):
    keep_tuned(
        kept_key(module.fingerprint(), {}, donates=False),
        entry_of(module, Recipe(pipeline="wheel", backend="wheel")),
    )
    fast = hloenv.jit(depthwise, policy="tuned", donate_argnums=1)
    image = IMAGE + 0
    fast(KERNEL, image)
    assert fast.decided == []


def test_an_identity_that_is_kept_is_plain_jax(module):
    entry = entry_of(module, Recipe(), speedup=1.0, reason="nothing is faster")
    keep_tuned(kept_key(module.fingerprint(), {}, donates=False), entry)
    fast = hloenv.jit(depthwise, policy="tuned")
    fast(KERNEL, IMAGE)
    assert fast.decided == []
    assert [each.tuned for each in fast.considered] == ["nothing"]
    assert "nothing is faster" in fast.explain()


def test_an_identity_that_is_kept_leaves_the_rules_alone(module):
    entry = entry_of(module, Recipe(), speedup=1.0, reason="nothing is faster")
    keep_tuned(kept_key(module.fingerprint(), {}, donates=False), entry)
    fast = hloenv.jit(depthwise)
    fast(KERNEL, IMAGE)
    assert "nothing is faster" not in fast.explain()
    assert fast.considered


def test_the_policy_tuned_leaves_everything_else_alone():
    fast = hloenv.jit(depthwise, policy="tuned")
    fast(KERNEL, IMAGE)
    assert fast.decided == []
    assert "nothing is tuned for it" in fast.explain()


def test_with_remember_off_nothing_kept_is_used(module):
    keep_tuned(
        kept_key(module.fingerprint(), {}, donates=False),
        entry_of(module, Recipe(options=WIDE)),
    )
    fast = hloenv.jit(depthwise, policy="tuned", remember=False)
    fast(KERNEL, IMAGE)
    assert fast.decided == []


@pytest.mark.parametrize(
    "name", ["cpu", "architecture", "cores", "flags", "tensorflow", "jaxlib", "hloenv"]
)
def test_another_machine_or_version_is_refused(name, module):
    entry = entry_of(module, Recipe(options=WIDE))
    other = dataclasses.replace(entry, environment={**entry.environment, name: "?"})
    artefact = Artefact((other,))
    with pytest.raises(ArtefactError, match=f"tuned for {name} '\\?'"):
        hloenv.compile(module, tuned=artefact)
    fast = hloenv.jit(depthwise, tuned=artefact)
    with pytest.warns(FallbackWarning, match=f"tuned for {name}"):
        found = fast(KERNEL, IMAGE)
    np.testing.assert_allclose(found, depthwise(KERNEL, IMAGE), atol=1e-4)
    assert fast.decided == []


def test_another_shape_is_refused(module):
    artefact = Artefact((entry_of(module, Recipe(options=WIDE)),))
    fast = hloenv.jit(depthwise, tuned=artefact)
    with pytest.warns(FallbackWarning, match="another program, shape or type"):
        fast(KERNEL[..., :16], IMAGE[..., :16])


def test_a_trace_of_another_module_is_refused(module, trace):
    def other(kernel, x):
        return depthwise(kernel, x) + 1

    theirs = hloenv.HloModule.from_jax(other, KERNEL, IMAGE, donations=False)
    fast = hloenv.jit(other, tuned=Artefact((entry_of(theirs, Recipe(trace)),)))
    with pytest.warns(FallbackWarning, match="the trace was recorded on"):
        fast(KERNEL, IMAGE)


def changed(**fields):
    def change(data):
        data["entries"][0].update(fields)

    return change


DAMAGES = {
    "format": lambda data: data.update(format="hloenv-tuned-9"),
    "no format": lambda data: data.pop("format"),
    "checksum": lambda data: data["entries"][0].update(speedup=9.0),
    "entries": lambda data: data.update(entries={}),
}
WRONG = {
    "speedup": {"speedup": "2"},
    "bool": {"speedup": True},
    "interval": {"interval": [1]},
    "module": {"module": {"fingerprint": 1, "text_sha256": ""}},
    "recipe": {"recipe": {"trace": None}},
    "engine": {"recipe": {**Recipe().to_json(), "pipeline": "tpu"}},
    "option": {"recipe": {**Recipe().to_json(), "options": {"rm": "-rf"}}},
    "dump": {"recipe": {**Recipe().to_json(), "options": {"xla_dump_to": "/"}}},
    **{
        f"value {value!r}": {"recipe": {**Recipe().to_json(), "options": {name: value}}}
        for name, value in (
            ("xla_disable_hlo_passes", "copy-insertion"),
            ("xla_cpu_prefer_vector_width", 2**40),
            ("xla_cpu_prefer_vector_width", 512.0),
            ("xla_backend_optimization_level", True),
            ("xla_cpu_multi_thread_eigen", 0),
            ("xla_backend_extra_options", "xla_cpu_optimize_for_size=,x=1"),
            ("xla_backend_extra_options", 3),
        )
    },
    "loops": {"recipe": {**Recipe().to_json(), "loops": 1}},
    "trace": {"recipe": {**Recipe().to_json(), "trace": {"format": "x"}}},
    "stages": {"stages": [1]},
    "more": {"code": "print()"},
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(name, module, tmp_path):
    data = Artefact((entry_of(module, Recipe()),)).to_json()
    DAMAGES[name](data)
    (tmp_path / "a.tuned").write_text(json.dumps(data))
    with pytest.raises(ArtefactError, match=r"a\.tuned"):
        Artefact.load(tmp_path / "a.tuned")


@pytest.mark.parametrize("name", WRONG)
def test_wrong_entries_are_refused(name, module):
    data = entry_of(module, Recipe()).to_json()
    with pytest.raises(ArtefactError):
        Tuned.from_json({**data, **WRONG[name]})


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", "[" * 99999, "3", '"x"'])
def test_other_files_are_refused(text, tmp_path):
    (tmp_path / "a.tuned").write_text(text)
    with pytest.raises(ArtefactError):
        hloenv.jit(depthwise, tuned=tmp_path / "a.tuned")


def test_a_missing_file_and_a_wrong_type_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError):
        hloenv.jit(depthwise, tuned=tmp_path / "none")
    with pytest.raises(ArgumentError, match=r"hloenv\.tune"):
        hloenv.jit(depthwise, tuned=3)


def test_a_damaged_kept_file_counts_as_absent(module, tmp_path):
    key = kept_key(module.fingerprint(), {}, donates=False)
    keep_tuned(key, entry_of(module, Recipe()))
    (file,) = (tmp_path / "tuned").glob("*.json")
    file.write_text("{")
    assert recall_tuned(key) is None


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


def make_endless(path):
    path.unlink()
    path.symlink_to("/dev/zero")


UNSAFE = {
    "pipe": make_pipe,
    "endless": make_endless,
    "writable": lambda path: path.chmod(0o666),
    "folder": lambda path: path.parent.chmod(0o777),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_a_kept_file_that_others_may_have_written_counts_as_absent(
    name, module, tmp_path
):
    key = kept_key(module.fingerprint(), {}, donates=False)
    keep_tuned(key, entry_of(module, Recipe()))
    remember(key, Verdict("", "x"))
    assert recall_tuned(key) is not None
    assert recall(key) is not None
    for folder in "tuned", "jit":
        (file,) = (tmp_path / folder).glob("*.json")
        UNSAFE[name](file)
    assert recall_tuned(key) is None
    assert recall(key) is None


def test_kept_files_are_written_for_the_user_alone(module, tmp_path):
    before = os.umask(0o002)
    try:
        keep_tuned("key", entry_of(module, Recipe()))
    finally:
        os.umask(before)
    assert recall_tuned("key") is not None


def test_a_pipe_is_not_an_artefact(tmp_path):
    os.mkfifo(tmp_path / "a.tuned")
    with pytest.raises(OSError, match="not a regular file"):
        hloenv.jit(depthwise, tuned=tmp_path / "a.tuned")


def test_a_folder_that_cannot_be_written_is_said(module, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLOENV_STORE", str(tmp_path / "file" / "store.sqlite"))
    reason = keep_tuned(
        kept_key(module.fingerprint(), {}, donates=False), entry_of(module, Recipe())
    )
    assert "could not be kept" in reason


@pytest.mark.parametrize(
    "fields",
    [
        {"backend": "wheel"},
        {"pipeline": "wheel", "loops": True},
        {"pipeline": "wheel", "backend": "wheel", "options": WIDE},
    ],
)
def test_recipes_whose_parts_do_not_fit_are_errors(fields):
    with pytest.raises(ArtefactError):
        Recipe(**fields)


def test_compile_takes_a_tuned_artefact_alone(module):
    artefact = Artefact((entry_of(module, Recipe()),))
    with pytest.raises(ArgumentError, match="tuned="):
        hloenv.compile(module, tuned=artefact, finish="none")
    with pytest.raises(ArgumentError, match="engine='jaxlib'"):
        hloenv.compile(module, options=WIDE)


def test_the_programs_that_were_not_tuned_for_longest_are_forgotten(
    module, tmp_path, monkeypatch
):
    monkeypatch.setattr(kept, "_MAX_KEPT", 2)
    entry = entry_of(module, Recipe())
    for age, key in ((30, "a"), (20, "b"), (10, "c")):
        assert keep_tuned(key, entry) == ""
        for suffix in ("json", "journal"):
            path = kept_path(key).with_suffix(f".{suffix}")
            path.touch()
            # The journal of the oldest is the last that was written.
            then = time.time() - (0 if (key, suffix) == ("b", "journal") else age)
            os.utime(path, (then, then))
    folder = kept_path("d").parent
    (folder / "backup.json").mkdir()
    (folder / ".draft.json").touch()
    assert keep_tuned("d", entry) == ""
    left = sorted(each.name for each in folder.iterdir())
    assert left == [".draft.json", "b.journal", "b.json", "backup.json", "d.json"]

    def denied(_, *, missing_ok=False):
        if not missing_ok:
            raise PermissionError

    monkeypatch.setattr(type(folder), "unlink", denied)
    assert keep_tuned("e", entry) == ""
    assert kept_path("e").exists()
