#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decides programs with XLA's GPU compiler, without a GPU, for `time_modules.py`.

    python decide.py FOLDER [PROGRAM ...] [--target h100]
    python decide.py FOLDER train.py:step

PROGRAM is one of `cases.py` and `held_out.py`, or a function without arguments that
returns (fn, *args). Needs jax and hloenv[cuda], with hloenv[cpu] only what is decided
before XLA's passes. Writes for each program its export, its export with precise
matrix products, its arguments, and the decided modules. `NAME.start.export` are
programs that were decided before XLA's passes, which all run on them there
(`hloenv.jax.export`):

    known-forms       hloenv's fixed rules for CPUs
    gpu-forms         its fixed rules for GPUs
    PASS.RULE         every place where the rule of a candidate pass applies

`NAME.post.pb` are modules after XLA's passes and scheduled, which go in at its hook
after scheduling (with --target cpu all go in at the first hook, after XLA's passes):

    xla               the wheel's own choice
    cublas            no product of matrices in Triton
    triton-N          one product less in Triton
    no-softmax        no normalization in one kernel
    unfused           nothing that priority-fusion fuses
    fusion-N          one of its fusions less
    half-N            a random half of them
    no-PASS           nothing that another pass of the pipeline rewrites
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from cases import PROGRAMS as CASES
from cases import Argument, Case, flattened
from held_out import PROGRAMS as HELD_OUT
from jax import export

import hloenv
from hloenv.cli.load import value_of
from hloenv.jax.lowering import from_lowered
from hloenv.policies.gpu_forms import GPU_PASSES
from hloenv.policies.known_forms import FORM_PASSES

PROGRAMS = CASES | HELD_OUT
Decide = Callable[[hloenv.Alternatives], Any]

# Passes that go before XLA's, each of its rules accepted everywhere.
_EARLY = (
    *FORM_PASSES,
    "loop-forms",
    "merge-dots",
    "reassociate",
    "reduce-window-rewriter",
    "select_and_scatter_expander",
)
# Passes that are rejected as a whole, one at a time.
_OPTIONAL = (
    "transpose-folding",
    "reshape-mover",
    "dot_dimension_merger",
    "reduction-dimension-grouper",
    "multi_output_fusion",
)
TRITON, SOFTMAX = "triton-gemm-rewriter", "triton-softmax-rewriter"


def finish(
    module: hloenv.HloModule, target: str, name: str = "", decide: Decide | None = None
) -> hloenv.HloModule:
    """Runs XLA's passes, with the decisions of one pass made by `decide`."""
    with hloenv.intercept(module, target=target) as pipeline:
        if decide is not None:
            stage = pipeline.run_until(name)
            stage.apply_alternatives(decide(stage.get_alternatives()))
        return placed(pipeline.finish(), target)


def finish_without(
    module: hloenv.HloModule, target: str, name: str
) -> hloenv.HloModule:
    """Runs XLA's passes but one."""
    with hloenv.intercept(module, target=target) as pipeline:
        for stage in pipeline:
            if stage.name == name:
                stage.apply_alternatives(stage.get_alternatives().reject_all())
        return placed(pipeline.module, target)


def placed(module: hloenv.HloModule, target: str) -> hloenv.HloModule:
    """The module as jaxlib has it after XLA's passes: on a GPU, with a schedule.

    The schedule is the order in which the text has the instructions.
    """
    if target == "cpu":
        return module
    name, comma, rest = module.to_text().partition(",")
    return hloenv.HloModule.from_text(f"{name}, is_scheduled=true{comma}{rest}")


def count_at(module: hloenv.HloModule, target: str, name: str) -> int:
    """How many alternatives a pass of the pipeline has."""
    count = 0
    # The rest of the pipeline may fail, with this pass and without it.
    with (
        contextlib.suppress(hloenv.HloEnvError),
        hloenv.intercept(module, target=target) as pipeline,
    ):
        count = len(pipeline.run_until(name).get_alternatives())
    return count


def without(index: int, name: str) -> Decide:
    """The pass's decisions, but one."""

    def decide(alternatives: hloenv.Alternatives) -> Any:
        decisions = alternatives.decisions_for(name)
        decisions[index] = 0
        return decisions

    return decide


def half(seed: int, name: str) -> Decide:
    """A random half of the pass's decisions."""

    def decide(alternatives: hloenv.Alternatives) -> Any:
        rng = random.Random(seed)
        wanted = alternatives.decisions_for(name)
        return [each if rng.random() < 0.5 else 0 for each in wanted]

    return decide


Maker = Callable[[], hloenv.HloModule | hloenv.jax.Export]


def with_rule(alternatives: hloenv.Alternatives, rule: str) -> Any:
    """[A] the choice of the rule, -1 where there is none."""
    decisions = alternatives.leave_to_xla()
    for each in alternatives:
        for index, choice in enumerate(each.choices):
            if index and choice.rule == rule:
                decisions[each.index] = index
                break
    return decisions


def early(
    export: Callable[..., hloenv.jax.Export], module: hloenv.HloModule
) -> Iterator[tuple[str, Maker]]:
    """The program with other forms of its operations, before XLA's passes."""
    env = hloenv.HloEnv(hloenv.run_passes(module, "call-inliner").module)
    for name in _EARLY:
        alternatives = env.get_alternatives(name)
        rules = {c.rule for each in alternatives for c in each.choices[1:]}
        for rule in sorted(rules):
            yield (
                f"{name}.{rule}" if rule else name,
                partial(export, policy=partial(with_rule, rule=rule), passes=name),
            )
    for policy, passes in (("known-forms", FORM_PASSES), ("gpu-forms", GPU_PASSES)):
        yield policy, partial(export, policy=policy, passes=passes)


def variants(
    export: Callable[..., hloenv.jax.Export],
    module: hloenv.HloModule,
    target: str,
    max_single: int,
) -> Iterator[tuple[str, Maker]]:
    """Names and makers of the decided modules."""
    is_cpu = target == "cpu"
    after = "pre" if is_cpu else "post"
    for name, make in early(export, module):
        yield f"{name}.start", make
    yield f"xla.{after}", lambda: finish(module, target)
    for name in _OPTIONAL:
        yield (
            f"no-{name}.{after}",
            lambda name=name: finish_without(module, target, name),
        )
    reject = hloenv.Alternatives.reject_all
    fusion = "fusion" if is_cpu else "priority-fusion"
    for stage, label, single in (
        (TRITON, "cublas", "triton"),
        (SOFTMAX, "no-softmax", ""),
        (fusion, "unfused", "fusion"),
    ):
        count = count_at(module, target, stage)
        if not count:
            continue
        yield (
            f"{label}.{after}",
            lambda stage=stage: finish(module, target, stage, reject),
        )
        if single and count > 1:
            for index in random.Random(0).sample(range(count), min(count, max_single)):
                decide = without(index, stage)
                yield (
                    f"{single}-{index}.{after}",
                    lambda stage=stage, decide=decide: finish(
                        module, target, stage, decide
                    ),
                )
        if stage == fusion and count > 2:
            for seed in range(2):
                decide = half(seed, fusion)
                yield (
                    f"half-{seed}.{after}",
                    lambda decide=decide: finish(module, target, fusion, decide),
                )


def own_case(source: str) -> Case:
    """A user's function, with arguments like those that it is returned with."""
    fn, *args = value_of(source)
    leaves, tree = jax.tree.flatten(args)
    return flattened(fn, tree), [argument_like(np.asarray(each)) for each in leaves]


def argument_like(array: Any) -> Argument:
    """Random numbers of the same deviation; integers up to the largest of these."""
    dtype = str(jax.dtypes.canonicalize_dtype(array.dtype))
    if array.dtype.kind in "biu":
        high = int(array.max(initial=0)) + 1
        return Argument(array.shape, dtype, high=max(high, 1))
    deviation = float(np.std(array.astype("float32"))) if array.size else 1.0
    return Argument(array.shape, dtype, deviation or 1.0)


def write_program(folder: Path, name: str, options: argparse.Namespace) -> None:
    """Writes one program's folder."""
    target = options.target
    fn, arguments = PROGRAMS[name]() if name in PROGRAMS else own_case(name)
    specs = [each.spec for each in arguments]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "target").write_text(target)
    (folder / "arguments.json").write_text(json.dumps([asdict(a) for a in arguments]))
    platform = "cpu" if target == "cpu" else "cuda"
    exported = export.export(jax.jit(fn), platforms=[platform])(*specs)
    (folder / "program.export").write_bytes(exported.serialize())
    with jax.default_matmul_precision("highest"):
        precise = export.export(jax.jit(fn), platforms=[platform])(*specs)
    (folder / "precise.export").write_bytes(precise.serialize())
    traced = jax.jit(exported.call).trace(*specs)
    module = from_lowered(traced.lower(lowering_platforms=(platform,)))
    facts = Facts(folder / "variants.json", module.fingerprint())
    export_decided = partial(hloenv.jax.export, fn, *specs, platform=platform)
    makers = variants(export_decided, module, target, options.max_single)
    for label, make in makers:
        if facts.has(label):
            continue
        facts.set(label, error="XLA ended the process")
        try:
            decided = make()
        except hloenv.HloEnvError as error:
            facts.set(label, error=str(error)[:300])
            continue
        except BaseException:
            facts.forget(label)
            raise
        is_module = isinstance(decided, hloenv.HloModule)
        applied = decided if is_module else decided.decided.applied
        fingerprint = applied.fingerprint()
        is_plain = not is_module and not decided.decided.num_accepted
        if is_plain:
            facts.set(label, fingerprint="", same_as="jax.jit")
            continue
        same = facts.first_with(fingerprint)
        if not same and is_module:
            (folder / f"{label}.pb").write_bytes(decided.to_proto())
        elif not same:
            decided.save(folder / f"{label}.export")
        facts.set(label, fingerprint=fingerprint, same_as=same or label)
    (folder / "done").touch()
    facts.show(name)


class Facts:
    """What became of each variant; on disk at once, for XLA may end the process."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        """Reads what an earlier process has done."""
        self._path, self._fingerprint = path, fingerprint
        self._facts: dict[str, dict[str, str]] = {}
        if path.exists():
            self._facts = json.loads(path.read_text())["variants"]

    def has(self, label: str) -> bool:
        """Whether the variant was begun."""
        return label in self._facts

    def set(self, label: str, **facts: str) -> None:
        """Keeps what is known of a variant."""
        self._facts[label] = facts
        self._write()

    def forget(self, label: str) -> None:
        """The variant is begun again by the next process."""
        del self._facts[label]
        self._write()

    def __len__(self) -> int:
        """How many variants were begun."""
        return len(self._facts)

    def _write(self) -> None:
        text = {"fingerprint": self._fingerprint, "variants": self._facts}
        self._path.write_text(json.dumps(text, indent=1))

    def first_with(self, fingerprint: str) -> str:
        """The first variant with this module; "" if there is none."""
        found = (
            k for k, v in self._facts.items() if v.get("fingerprint") == fingerprint
        )
        return next(found, "")

    def show(self, name: str) -> None:
        """Prints how many there are, and what failed."""
        errors = {k: v["error"] for k, v in self._facts.items() if "error" in v}
        distinct = {v["fingerprint"] for v in self._facts.values() if "error" not in v}
        print(
            f"{name}: {len(distinct)} modules of {len(self._facts)} variants",
            flush=True,
        )
        for label, error in errors.items():
            print(f"    {label}: {error}", flush=True)


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "programs", nargs="*", help="or FILE.py:FUNCTION (default: all of them)"
    )
    parser.add_argument("--target", default="h100")
    parser.add_argument(
        "--max-single", type=int, default=4, help="single rejections of a pass"
    )
    parser.add_argument("--here", action="store_true", help="without children")
    options = parser.parse_args()
    names = options.programs or list(PROGRAMS)
    taken = Counter(map(folder_of, names))
    if taken and max(taken.values()) > 1:
        parser.error("two programs of one name; give each a folder of its own")
    for name in names:
        folder = options.folder / folder_of(name)
        if options.here:
            write_program(folder, name, options)
        elif not decide_in_children(folder, name, options):
            print(f"{name}: failed", flush=True)


def folder_of(name: str) -> str:
    """The folder of a program: its name, or that of a user's file and function."""
    if name in PROGRAMS:
        return name
    file, _, function = name.rpartition(":")
    return f"{Path(file).stem}.{function}"


def check_target(folder: Path, target: str) -> None:
    """Raises SystemExit if the folder has modules for another target."""
    path = folder / "target"
    if path.exists() and path.read_text() != target:
        raise SystemExit(
            f"{folder} has modules for {path.read_text()!r}, not {target!r}; "
            "give another folder"
        )


def decide_in_children(folder: Path, name: str, options: argparse.Namespace) -> bool:
    """Writes a program's folder; False if that fails.

    XLA's GPU compiler ends the process where it misses a rewrite; the next process goes
    on after that variant.
    """
    words = [str(options.folder), name, "--target", options.target, "--here"]
    words += ["--max-single", str(options.max_single)]
    check_target(folder, options.target)
    path, before = folder / "variants.json", -1
    while not (folder / "done").exists():
        child = subprocess.run([sys.executable, __file__, *words], check=False)
        count = len(Facts(path, "")) if path.exists() else 0
        # An exception, or a crash outside of the variants, would come again.
        if child.returncode > 0 or (child.returncode < 0 and count == before):
            return False
        before = count
    return True


if __name__ == "__main__":
    main()
