#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times decided modules against jax's own on the machine's GPU; needs only jax.

    python time_modules.py FOLDER -o rows.jsonl [--seconds 400] [PROGRAM ...]

FOLDER is what `decide.py` wrote: for each program its export (jax.export) and decided
ones. NAME.start.export are compiled as they are, and modules are put in at jax's hooks:
NAME.pre.pb where jax calls it "before scheduling", NAME.post.pb after that. All
variants of a program get the same inputs, their outputs are compared with those of the
function with precise matrix products, and they are timed in turns: one row a variant,
with all durations. One process runs all programs; where it crashes or takes too long,
the halves of the variants run apart, until the variant is found that does it. Programs
that the output file has are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import queue
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

Row = dict[str, Any]

PLAIN = "jax.jit"
# Controls: plain jax compiled once more, and its module put in unchanged.
AGAIN, IDENTITY = "again", "identity.pre"
# Plain jax with other flags of XLA.
FLAGS = {
    "flag.triton_gemm=off": {"xla_gpu_enable_triton_gemm": False},
    "flag.fusion_autotuner=off": {
        "xla_gpu_experimental_enable_fusion_autotuner": False
    },
    "flag.autotune_level=0": {"xla_gpu_autotune_level": 0},
    "flag.cublas=off": {"xla_gpu_cublas_fallback": False},
    "flag.conv_layout=nhwc": {"xla_gpu_force_conv_nhwc": True},
    "flag.conv_layout=nchw": {"xla_gpu_force_conv_nchw": True},
    "flag.heroless_triton=on": {
        "xla_gpu_experimental_enable_triton_heroless_priority_fusion": True
    },
    "flag.block_level_rewriter=on": {
        "xla_gpu_experimental_enable_fusion_block_level_rewriter": True
    },
    "flag.command_buffers=off": {"xla_gpu_graph_min_graph_size": 100_000},
}
_SAMPLE_S = 0.004  # of a sample's calls, about


def module_name(proto: bytes) -> str:
    """The name in a serialized HloModuleProto, its first field."""
    size, at = proto[1], 2
    if size >= 128:
        size, at = (size & 127) | proto[2] << 7, 3
    return proto[at : at + size].decode()


class Hook:
    """Puts modules in where jax compiles a module of their name."""

    def __init__(self, platform: str) -> None:
        """Registers the hook, before the backend exists, for all compilations."""
        from jax.extend import xla

        self.modules: dict[tuple[str, str], bytes] = {}
        self.replaced: set[str] = set()
        for place, stage in (
            ("pre", xla.PipelineStage.PRE_SCHEDULER),
            ("post", xla.PipelineStage.POST_SCHEDULER),
        ):
            xla.register_hlo_module_transformation(
                partial(self._replace, place),
                name=f"decided-{place}",
                stage=stage,
                platforms=platform,
            )

    def _replace(self, place: str, proto: bytes) -> bytes | None:
        name = module_name(proto)
        module = self.modules.get((name, place))
        if module is not None:
            self.replaced.add(name)
        # An empty module stands for the one that jax has.
        return proto if module == b"" else module


def make(spec: dict[str, Any], seed: int) -> Any:
    """The array that an `Argument` describes."""
    import jax.numpy as jnp
    import numpy as np

    rng = np.random.default_rng(seed)
    if spec["high"]:
        return jnp.asarray(
            rng.integers(spec["high"], size=spec["shape"]), spec["dtype"]
        )
    numbers = rng.standard_normal(spec["shape"], "float32") * np.float32(spec["scale"])
    return jnp.asarray(numbers, spec["dtype"])


def error_of(outputs: Any, wanted: Any) -> float:
    """The largest norm of a difference, relative to the norm of the output.

    Infinite where integers, or the places of NaN and infinities, differ, and where all
    outputs are NaN. Computed on the device, where the arrays are.
    """
    import jax

    is_equal, is_number, errors = jax.device_get(_compared()(outputs, wanted))
    return float(max(errors, default=0.0)) if is_equal and is_number else float("inf")


@functools.cache
def _compared() -> Any:
    """A function of outputs and references: two truth values, and relative errors."""
    import jax
    import jax.numpy as jnp

    def compare(outputs: Any, wanted: Any) -> Any:
        is_equal, is_number, errors = jnp.bool_(True), jnp.bool_(False), []
        pairs = zip(jax.tree.leaves(outputs), jax.tree.leaves(wanted), strict=True)
        for a, b in pairs:
            if not jnp.issubdtype(b.dtype, jnp.inexact):
                is_equal, is_number = is_equal & (a == b).all(), jnp.bool_(True)
                continue
            a, b = a.astype("float32"), b.astype("float32")
            for special in (jnp.isnan, jnp.isposinf, jnp.isneginf):
                is_equal &= (special(a) == special(b)).all()
            is_number |= ~jnp.isnan(b).all()
            a, b = (jnp.where(jnp.isfinite(x), x, 0) for x in (a, b))
            scale = jnp.abs(b).max(initial=1e-30)  # so that no square overflows
            norm = jnp.linalg.norm((b / scale).ravel())
            errors.append(jnp.linalg.norm(((a - b) / scale).ravel()) / (norm + 1e-30))
        return is_equal, is_number, errors

    return jax.jit(compare)


def read_export(path: Path) -> Any:
    """The `jax.export.Exported` of a file."""
    from jax import export

    return export.deserialize(bytearray(path.read_bytes()))


def compile_variants(
    folder: Path, names: list[str], hook: Hook, call: Any, args: list[Any], jobs: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Compiles all variants, and plain jax before them.

    With more than one at a time, XLA's autotuner measures beside other work.
    """
    import jax

    def compiled(name: str) -> Any:
        function = call
        if name.endswith(".start"):
            function = read_export(folder / f"{name}.export").call

        def run(*arrays: Any) -> Any:
            return function(*arrays)

        label = "v_" + "".join(
            c if c.isalnum() else "_" for c in f"{folder.name}_{name}"
        )
        run.__name__ = label
        is_put_in = name.endswith((".pre", ".post"))
        if is_put_in:
            file = folder / f"{name}.pb"
            module = b"" if name == IDENTITY else file.read_bytes()
            hook.modules[f"jit_{label}", name.rpartition(".")[2]] = module
        started = time.perf_counter()
        executable = jax.jit(run).lower(*args).compile(FLAGS.get(name))
        seconds = time.perf_counter() - started
        if is_put_in and f"jit_{label}" not in hook.replaced:
            raise RuntimeError("jax did not call the hook, so no module was put in")
        return executable, seconds

    done, errors = {PLAIN: compiled(PLAIN)}, {}
    with ThreadPoolExecutor(jobs) as pool:
        futures = {name: pool.submit(compiled, name) for name in names}
        for name, future in futures.items():
            try:
                done[name] = future.result()
            except Exception as error:
                errors[name] = f"{type(error).__name__}: {error}"[:600]
    return done, errors


def time_in_turns(
    calls: dict[str, Any], args: list[Any], *, rounds: int
) -> dict[str, list[float]]:
    """Seconds a call of each, `rounds` times, in a new order each time."""
    import jax

    def sample(call: Any, count: int) -> float:
        started = time.perf_counter()
        for _ in range(count):
            result = call(*args)
        jax.block_until_ready(result)
        return (time.perf_counter() - started) / count

    counts = {}
    for name, call in calls.items():
        sample(call, 3)
        counts[name] = max(2, min(400, int(_SAMPLE_S / sample(call, 3))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    order = list(calls)
    rng = random.Random(0)
    for _ in range(rounds):
        rng.shuffle(order)
        for name in order:
            times[name].append(sample(calls[name], counts[name]))
    return times


def run_program(
    folder: Path, names: list[str], hook: Hook, options: argparse.Namespace
) -> list[Row]:
    """The rows of one program."""
    import jax

    specs = json.loads((folder / "arguments.json").read_text())
    facts = json.loads((folder / "variants.json").read_text())
    shared = {
        "baseline": facts["fingerprint"],
        "dtypes": sorted({spec["dtype"] for spec in specs}),
        "jobs": options.jobs,
    }
    args = [make(spec, seed) for seed, spec in enumerate(specs)]
    call = read_export(folder / "program.export").call
    precise = read_export(folder / "precise.export").call
    wanted = jax.jit(precise)(*args)
    done, errors = compile_variants(folder, names, hook, call, args, options.jobs)
    rows = [{"variant": name, "error": error} for name, error in errors.items()]
    calls, compared = {}, {}
    for name, (executable, _) in done.items():
        try:
            compared[name] = error_of(executable(*args), wanted)
            calls[name] = executable
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:600]
            rows.append({"variant": name, "error": text})
    if PLAIN not in calls:
        raise RuntimeError(f"jax.jit itself fails: {rows}")
    times = time_in_turns(calls, args, rounds=options.rounds)
    for name in calls:
        rows.append(
            {
                "variant": name,
                "error": None,
                "seconds": times[name],
                "plain_seconds": times[PLAIN],
                "median_us": statistics.median(times[name]) * 1e6,
                "relative_error": compared[name],
                "compile_s": done[name][1],
            }
        )
    for row in rows:
        row.update(shared)
        fact = facts["variants"].get(row["variant"], {})
        row["fingerprint"] = fact.get("fingerprint", "")
    return rows


def run_here(options: argparse.Namespace) -> None:
    """Runs the programs of standard input in this process; a line for each."""
    hook = Hook(options.platform)
    import jax

    facts = {"jax": jax.__version__, "device": str(jax.devices()[0].device_kind)}
    for name, variants in json.load(sys.stdin).items():
        try:
            rows = run_program(options.folder / name, variants, hook, options)
        except Exception as error:  # of no variant in particular
            rows = [{"variant": "", "error": f"{type(error).__name__}: {error}"[:600]}]
        rows = [{"program": name, **facts, **row} for row in rows]
        print(json.dumps([name, rows]), flush=True)


def last_words(stderr: str) -> str:
    """What a process that ended has said: the check of XLA that failed, or the end."""
    checks = [line for line in stderr.splitlines() if "Check failed" in line]
    return checks[0][:800] if checks else stderr[-800:]


class Children:
    """Runs programs in a process of their own, and in others after what it ends at."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Starts the clock."""
        self._options = options
        self._started = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return float(self._options.seconds - (time.monotonic() - self._started))

    def run(self, plan: dict[str, list[str]]) -> Iterator[tuple[str, list[Row]]]:
        """Programs and their rows, as they come.

        Args:
            plan: the variants of each program; in halves where the process ends.
        """
        left = dict(plan)
        while left and self.left_s > 0:
            error = yield from self._child(left)
            if error is None or not left:  # it may end after its last program
                return
            name = next(iter(left))
            yield name, self._halves(name, left.pop(name), error)

    def _child(
        self, left: dict[str, list[str]]
    ) -> Generator[tuple[str, list[Row]], None, str | None]:
        """Programs that one process runs; they are taken out of `left`.

        Returns why the process ended before all were run.
        """
        options = self._options
        words = [str(options.folder), "--here", "--platform", options.platform]
        words += ["--rounds", str(options.rounds), "--jobs", str(options.jobs)]
        with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as plan:
            json.dump(left, plan)
            plan.seek(0)
            child = subprocess.Popen(
                [sys.executable, __file__, *words],
                stdin=plan,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
            )
            lines: queue.Queue[str] = queue.Queue()
            threading.Thread(target=_read, args=(child.stdout, lines)).start()
            try:
                while True:
                    limit = max(1.0, min(self.left_s, options.program_seconds))
                    try:
                        line = lines.get(timeout=limit)
                    except queue.Empty:
                        return f"over {limit:.0f} s"
                    if not line:
                        break
                    if line.startswith("["):
                        name, rows = json.loads(line)
                        del left[name]
                        yield name, rows
                if child.wait() == 0:
                    return None
                said.seek(0)
                return f"ended: {last_words(said.read())}"
            finally:
                child.kill()
                child.wait()

    def _halves(self, name: str, variants: list[str], error: str) -> list[Row]:
        """The rows of a program that ended a process with these variants."""
        if len(variants) > 1 and self.left_s > 0:
            middle, rows = len(variants) // 2, []
            for half in (variants[:middle], variants[middle:]):
                has_plain = any(row["variant"] == PLAIN for row in rows)
                for _, found in self.run({name: half}):
                    rows += [
                        row for row in found if row["variant"] != PLAIN or not has_plain
                    ]
            return rows
        label = variants[0] if len(variants) == 1 else ""
        facts = json.loads((self._options.folder / name / "variants.json").read_text())
        fact = facts["variants"].get(label, {})
        row = {"program": name, "variant": label, "error": error}
        row |= {"baseline": facts["fingerprint"]}
        return [{**row, "fingerprint": fact.get("fingerprint", "")}]


def _read(stream: Any, lines: queue.Queue[str]) -> None:
    """Puts the lines of a stream into a queue, and "" at its end."""
    for line in stream:
        lines.put(line)
    lines.put("")


def equal_variants(folder: Path) -> list[Row]:
    """Rows of the variants of which the module is another's."""
    facts = json.loads((folder / "variants.json").read_text())["variants"]
    return [
        {"program": folder.name, "variant": name, "error": None, "same_as": same}
        for name, fact in facts.items()
        if (same := fact.get("same_as", name)) != name
    ]


def main() -> None:
    """Runs the programs that the output file does not have."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", help="default: all of them")
    parser.add_argument("-o", "--output", type=Path, default=Path("rows.jsonl"))
    parser.add_argument("--platform", default="cuda", help="jax's name (default cuda)")
    parser.add_argument("--seconds", type=float, default=1e9, help="end after these")
    parser.add_argument("--program-seconds", type=float, default=120)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each variant")
    parser.add_argument("--jobs", type=int, default=1, help="compiles at a time")
    parser.add_argument(
        "--variants", nargs="*", default=["*"], help="or patterns (default: all)"
    )
    parser.add_argument("--without", nargs="*", default=[], help="none of these")
    parser.add_argument(
        "--flags",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time plain jax with other flags as well",
    )
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options)
        return
    names = options.programs or sorted(
        path.parent.name for path in options.folder.glob("*/program.export")
    )
    missing = [name for name in names if not (options.folder / name / "done").exists()]
    if not names or missing:
        parser.error(
            f"{options.folder} must be a folder that decide.py wrote; it has not "
            f"finished {', '.join(missing) or 'any program'} there"
        )
    done = set()
    with options.output.open("a+") as file:
        file.seek(0)
        for line in file:
            with contextlib.suppress(ValueError):  # of an interrupted run
                row = json.loads(line)
                if row["variant"] == PLAIN and not row["error"]:
                    done.add(row["program"])
    plan = {
        name: chosen_variants(options.folder / name, options)
        for name in names
        if name not in done
    }
    for name, rows in Children(options).run(plan):
        rows += equal_variants(options.folder / name)
        with options.output.open("a") as file:
            # After a line that was not finished.
            file.writelines("\n" + json.dumps(row) for row in rows)
            file.write("\n")
        del plan[name]
        show(name, rows)
    if plan:
        print(f"no time was left for {', '.join(plan)}", flush=True)


def chosen_variants(folder: Path, options: argparse.Namespace) -> list[str]:
    """Names of the variants of a program, without those that are left out."""
    files = [*folder.glob("*.pb"), *folder.glob("*.start.export")]
    flags = FLAGS if options.flags and options.platform == "cuda" else ()
    every = [AGAIN, IDENTITY, *flags, *sorted(path.stem for path in files)]

    def fits(variant: str, patterns: list[str]) -> bool:
        return any(fnmatchcase(variant, pattern) for pattern in patterns)

    return [
        variant
        for variant in every
        if fits(variant, options.variants) and not fits(variant, options.without)
    ]


def show(name: str, rows: list[Row]) -> None:
    """Prints the fastest variants of a program, and what failed."""
    good = [row for row in rows if "seconds" in row]
    plain = next((r["median_us"] for r in good if r["variant"] == PLAIN), float("nan"))
    print(f"{name}: {len(rows)} rows, jax.jit {plain:.1f} us", flush=True)
    for row in sorted(good, key=lambda row: row["median_us"])[:8]:
        gain = plain / row["median_us"]
        print(
            f"  {row['variant']:<40} {row['median_us']:10.1f} us {gain:6.3f}  "
            f"error {row['relative_error']:.1e}",
            flush=True,
        )
    for row in [row for row in rows if row["error"]][:3]:
        print(f"  {row['variant']}: {row['error'][-300:]}", flush=True)


if __name__ == "__main__":
    main()
