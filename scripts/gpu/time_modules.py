#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times decided modules against jax's own on the machine's GPU; needs only jax.

    python time_modules.py FOLDER -o rows.jsonl [--seconds 400] [PROGRAM ...]

FOLDER is what `decide.py` wrote: for each program its export (jax.export) and decided
modules, which are put in at jax's hooks: NAME.pre.pb where jax calls it "before
scheduling", NAME.post.pb after that. All variants of a program get the same inputs,
their outputs are compared with those of the function with precise matrix products,
and they are timed in turns: one row a variant, with all durations. Where the process
crashes or takes too long, the halves of the variants run apart, until the variant is
found that does it. Programs that the output file has are not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

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
        self.seen: dict[tuple[str, str], bytes] = {}
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
        if name.endswith("_jax_jit"):
            self.seen[name, place] = proto
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
    outputs are NaN.
    """
    import jax
    import numpy as np

    worst, is_number = 0.0, False
    pairs = zip(jax.tree.leaves(outputs), jax.tree.leaves(wanted), strict=True)
    for output, reference in pairs:
        if np.asarray(reference).dtype.kind in "biu":
            if not np.array_equal(output, reference):
                return float("inf")
            is_number = True
            continue
        a, b = np.asarray(output, "float64"), np.asarray(reference, "float64")
        for special in (np.isnan, np.isposinf, np.isneginf):
            if not np.array_equal(special(a), special(b)):
                return float("inf")
        is_number |= not np.isnan(b).all()
        a, b = (np.where(np.isfinite(x), x, 0) for x in (a, b))
        worst = max(worst, float(np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-30)))
    return worst if is_number else float("inf")


def compile_variants(
    folder: Path, names: list[str], hook: Hook, call: Any, args: list[Any], jobs: int
) -> tuple[dict[str, Any], dict[str, str]]:
    """Compiles all variants, and plain jax before them.

    With more than one at a time, XLA's autotuner measures beside other work.
    """
    import jax

    def compiled(name: str) -> Any:
        def run(*arrays: Any) -> Any:
            return call(*arrays)

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
    calls: dict[str, Any], args: list[Any], *, rounds: int, sample_s: float = 0.004
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
        counts[name] = max(2, min(400, int(sample_s / sample(call, 3))))
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
) -> list[dict[str, Any]]:
    """The rows of one program."""
    import jax
    from jax import export

    specs = json.loads((folder / "arguments.json").read_text())
    facts = json.loads((folder / "variants.json").read_text())
    shared = {
        "baseline": facts["fingerprint"],
        "dtypes": sorted({spec["dtype"] for spec in specs}),
        "jobs": options.jobs,
    }
    args = [make(spec, seed) for seed, spec in enumerate(specs)]
    call = export.deserialize(bytearray((folder / "program.export").read_bytes())).call
    precise = export.deserialize(
        bytearray((folder / "precise.export").read_bytes())
    ).call
    wanted = jax.device_get(jax.jit(precise)(*args))
    done, errors = compile_variants(folder, names, hook, call, args, options.jobs)
    rows = [{"variant": name, "error": error} for name, error in errors.items()]
    calls, compared = {}, {}
    for name, (executable, _) in done.items():
        try:
            compared[name] = error_of(jax.device_get(executable(*args)), wanted)
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
    """Runs a program in this process, and prints its rows."""
    hook = Hook(options.platform)
    import jax

    facts = {"jax": jax.__version__, "device": str(jax.devices()[0].device_kind)}
    for name in options.programs:
        rows = run_program(options.folder / name, options.variants, hook, options)
        for row in rows:
            print(json.dumps({"program": name, **facts, **row}), flush=True)
        for (label, place), proto in hook.seen.items() if options.keep else ():
            (options.keep / f"{label}.{place}.pb").write_bytes(proto)


def last_words(stderr: str) -> str:
    """What a process that ended has said: the check of XLA that failed, or the end."""
    checks = [line for line in stderr.splitlines() if "Check failed" in line]
    return checks[0][:800] if checks else stderr[-800:]


class Children:
    """Runs programs in processes of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Starts the clock."""
        self._options = options
        self._started = time.monotonic()

    @property
    def left_s(self) -> float:
        """Seconds until the end."""
        return float(self._options.seconds - (time.monotonic() - self._started))

    def run(self, name: str, variants: list[str]) -> list[dict[str, Any]]:
        """The rows of a program; in halves where the process ends."""
        options = self._options
        limit = max(1.0, min(self.left_s, options.program_seconds))
        words = [str(options.folder), name, "--here", "--platform", options.platform]
        words += ["--rounds", str(options.rounds), "--variants", *variants]
        if options.keep:
            words += ["--keep", str(options.keep)]
        words += ["--jobs", str(options.jobs)]
        try:
            child = subprocess.run(
                [sys.executable, __file__, *words],
                capture_output=True,
                text=True,
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired:
            error = f"over {limit:.0f} s"
        else:
            if child.returncode == 0:
                lines = child.stdout.splitlines()
                return [json.loads(line) for line in lines if line.startswith("{")]
            error = f"ended: {last_words(child.stderr)}"
            if child.returncode > 0:  # an exception: of no variant in particular
                return [{"program": name, "variant": "", "error": error}]
        if len(variants) > 1 and self.left_s > 0:
            middle = len(variants) // 2
            rows = self.run(name, variants[:middle])
            has_plain = any(row["variant"] == PLAIN for row in rows)
            for row in self.run(name, variants[middle:]):
                if row["variant"] != PLAIN or not has_plain:
                    rows.append(row)
            return rows
        label = variants[0] if len(variants) == 1 else ""
        facts = json.loads((options.folder / name / "variants.json").read_text())
        fact = facts["variants"].get(label, {})
        row = {"program": name, "variant": label, "error": error}
        row |= {"baseline": facts["fingerprint"]}
        return [{**row, "fingerprint": fact.get("fingerprint", "")}]


def equal_variants(folder: Path) -> list[dict[str, Any]]:
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
    parser.add_argument("--variants", nargs="*", help="default: all of them")
    parser.add_argument(
        "--flags",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="time plain jax with other flags as well",
    )
    parser.add_argument("--keep", type=Path, help="folder for jax's own modules")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        run_here(options)
        return
    names = options.programs or sorted(
        path.parent.name for path in options.folder.glob("*/program.export")
    )
    missing = [name for name in names if not any((options.folder / name).glob("done*"))]
    if not names or missing:
        parser.error(
            f"{options.folder} must be a folder that decide.py wrote; it has not "
            f"finished {', '.join(missing) or 'any program'} there"
        )
    if options.keep:
        options.keep.mkdir(parents=True, exist_ok=True)
    done = set()
    with options.output.open("a+") as file:
        file.seek(0)
        for line in file:
            with contextlib.suppress(ValueError):  # of an interrupted run
                row = json.loads(line)
                if row["variant"] == PLAIN and not row["error"]:
                    done.add(row["program"])
    children = Children(options)
    for name in (each for each in names if each not in done):
        if children.left_s <= 0:
            print("no time is left", flush=True)
            break
        folder = options.folder / name
        own = sorted(path.stem for path in folder.glob("*.pb"))
        flags = FLAGS if options.flags and options.platform == "cuda" else ()
        rows = children.run(name, options.variants or [AGAIN, IDENTITY, *flags, *own])
        rows += equal_variants(folder)
        with options.output.open("a") as file:
            # After a line that was not finished.
            file.writelines("\n" + json.dumps(row) for row in rows)
            file.write("\n")
        show(name, rows)


def show(name: str, rows: list[dict[str, Any]]) -> None:
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
