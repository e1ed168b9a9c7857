#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
r"""Reports what decisions are worth on a GPU, from the rows of another machine.

The modules are decided here, without a GPU, and timed there, where only jax is needed:

    python scripts/gpu/decide.py FOLDER                        # needs hloenv[cuda]
    python scripts/gpu/time_modules.py FOLDER -o rows.jsonl    # needs jax and a GPU
    python scripts/gpu/by_hand.py -o by_hand.jsonl             # likewise
    python scripts/reports/run_gpu.py rows.jsonl --by-hand by_hand.jsonl \
        --doc docs/results/gpu.md

The measurements also go to the store (--store).
"""

from __future__ import annotations

import json
import math
import sys
from collections import Counter
from pathlib import Path

from hloenv._markdown import table
from hloenv.bench.rows import geometric_mean
from hloenv.measurement.record import MeasureFailure, Measurement
from hloenv.measurement.statistics import speedup_interval, speedup_of
from hloenv.measurement.store import Store
from hloenv.measurement.store_format import RecordKey
from reporting import Row, head, parser_of, read_lines, write_page

sys.path.append(str(Path(__file__).parents[1] / "gpu"))
from held_out import PROGRAMS as HELD_OUT

PLAIN, CONTROLS = "jax.jit", ("again", "identity.pre")
POLICY = "gpu-forms.start"
# An error may be twice that of jax's own result; and at least this, in units of the
# output's norm, for programs in bfloat16 and others.
_ERROR_RATIO, _BF16_ERROR, _ERROR = 2.0, 2 * 2**-8, 1e-5


def is_equal(row: Row, plain: Row) -> bool:
    """Whether a variant is as near to the precise function as plain jax."""
    least = _BF16_ERROR if "bfloat16" in plain["dtypes"] else _ERROR
    limit = max(_ERROR_RATIO * plain["relative_error"], least)
    return bool(row["relative_error"] <= limit)


def kind_of(variant: str) -> str:
    """The kind of decision that a variant is."""
    if variant == PLAIN or variant in CONTROLS or variant.startswith("flag."):
        return variant
    stem = variant.rpartition(".")[0]
    name, _, number = stem.rpartition("-")
    return f"{name}-N" if number.isdigit() else stem


def both(row: Row) -> tuple[list[int], list[int]]:
    """Durations of plain jax and of the variant, in nanoseconds, round by round."""
    plain, own = (
        [round(each * 1e9) for each in row[name]]
        for name in ("plain_seconds", "seconds")
    )
    return plain, own


def gain(row: Row, part: slice = slice(None)) -> float:
    """Speed-up over plain jax in the same process, in some of the rounds."""
    return speedup_of(*(each[part] for each in both(row)))


def shown(row: Row, part: slice = slice(None)) -> str:
    """The speed-up with its 95 % interval, of the rounds alone."""
    low, high = speedup_interval(*(each[part] for each in both(row)))
    return f"{gain(row, part):.3f} ({low:.3f} to {high:.3f})"


_INTRODUCTION = """
Decided without a GPU by `scripts/gpu/decide.py`. Forms (`start`) are decided before
XLA's passes by `hloenv.jax.export`, and jax's own compiler runs all of its passes on
the result; fusions and the like (`post`) are decided with XLA's GPU compiler of
TensorFlow's CUDA wheel, and put in at a hook of jax's compiler after fusion and
scheduling. Each number is the time of plain `jax.jit` over the variant's: above 1 is
faster. The variants of a program run in turns in one process, called one after the
other without waiting; their outputs are compared with those of the function with
precise matrix products. A call from Python costs tens of microseconds, which hide what
kernels gain in programs below some 100 us. Compiled {jobs} at a time, where XLA's
autotuner measures.

The policy `gpu-forms` takes the forms that paid in the first table; the second one has
programs on which nothing was chosen. `again` is plain jax compiled a second time: no
decision, so that it should be 1. Intervals are of the rounds alone, without what
another compile changes. The best of the others is chosen in every second round and
reported of the rest. In the first table `post` and the flags are of an earlier day,
beside plain jax of that day.
"""
_FINDINGS = """
* Images of vision transformers: XLA computes the gradient of a patch embedding with
  respect to its images as a convolution with large base dilations, which is most of
  the time of patch_embedding and saliency.
  patch_embedding_bf16 was timed with gradients as products of bfloat16, which are of
  float32 since: XLA's CPU backend does not run some of these.
* Top-k: one reduction for each number (`sort-forms.argmaxes`) beats XLA's sort in all
  programs, also of 16 numbers (sampling), which `gpu-forms` leaves to XLA: no more than
  5 had been measured when it was made, and it takes up to 8.
* Loops: `recurrent` starts a few kernels in each step and gains. The two loops of
  gru_step, forward and backward, have twice as many instructions and lose 5 % together.
  Since this was measured, `gpu-forms` leaves loops of more than 64 to XLA, and those of
  large arrays; grouped patches, short rows and small sparse products likewise, which no
  program here has.
* 1x1 convolutions as products (`convolution-forms.blocks`) make mobilenet 1.6 times as
  fast, and do nothing for the training step of resnext_step. `gpu-forms` does not take
  them: which of the two is usual was not measured.
* Cumulative sums as loops (`reduce-forms.scan`), a CPU's form, were not done in 48 s:
  each step starts kernels.
* Shifted multiplications (`convolution-forms.taps`), a CPU's best form of depthwise
  convolutions, gain a tenth or less in two programs here and lose up to two thirds in
  all others.
* Three programs of `held_out.py` are not in the table. routing: its matrix product in
  jax's default precision chose other experts than the precise one, in plain jax too, so
  that no output could be compared; it asks for a precise product since. convnext_step
  and dcgan_step were not timed; `gpu-forms` decides nothing in them, so that they would
  count as 1.
* The programs of the second table were lowered with jax's 64-bit types, by a mistake in
  the script that is mended: the state of gru_step is of float64, the resize's constant
  weights are made in it, and some indices are of int64. Today's script has 32 bits.
"""

# Variants are chosen in every second round, and reported of the others.
_CHOSEN, _REPORTED = slice(0, None, 2), slice(1, None, 2)


def best(rows: list[Row]) -> Row | None:
    """The fastest of the rows in the rounds for choosing."""
    return max(rows, key=lambda row: gain(row, _CHOSEN), default=None)


def program_line(name: str, rows: dict[str, Row]) -> list[str]:
    """One line of the table of programs."""
    plain = rows[PLAIN]
    good = [r for r in rows.values() if not r["error"] and is_equal(r, plain)]
    controls = [gain(rows[c]) for c in CONTROLS if "seconds" in rows.get(c, {})]
    line = [name, f"{plain['median_us']:.0f}"]
    line.append(" ".join(f"{each:.3f}" for each in controls))
    line.append(decided(rows))
    for end in ("flag.", ".start", ".post"):
        of_kind = [
            row
            for row in good
            if row["variant"] not in (PLAIN, POLICY, *CONTROLS)
            and row.get("same_as") != PLAIN
            and (row["variant"].startswith(end) or row["variant"].endswith(end))
        ]
        chosen = best(of_kind)
        if chosen is None:
            line.append("-")
            continue
        label = chosen["variant"].removeprefix("flag.").rpartition(end)
        label = label[0] or label[2]
        line.append(f"{shown(chosen, _REPORTED)} `{label}`")
    return line


def decided(rows: dict[str, Row]) -> str:
    """What the fixed rules for GPUs gain in a program."""
    row = rows.get(POLICY)
    if row is None or row.get("same_as") == PLAIN:
        return "undecided"
    if row["error"] or not is_equal(row, rows[PLAIN]):
        return "failed"
    return shown(row)


def policy_mean(programs: dict[str, dict[str, Row]]) -> str:
    """Geometric mean speed-up by the rules; 1 where they failed or decided nothing."""
    gains = [
        1.0 if decided(rows) in ("undecided", "failed") else gain(rows[POLICY])
        for rows in programs.values()
    ]
    return f"{geometric_mean(gains):.3f}"


def without_best(
    programs: dict[str, dict[str, Row]], count: int = 1
) -> dict[str, dict[str, Row]]:
    """The programs but for those in which the fixed rules gain most."""

    def size(name: str) -> float:
        row = programs[name].get(POLICY)
        return 1.0 if row is None or row.get("same_as") == PLAIN else gain(row)

    left = sorted(programs, key=size)[:-count]
    return {name: programs[name] for name in left}


def kind_lines(programs: dict[str, dict[str, Row]]) -> list[list[str]]:
    """One line for each kind of variant, over the programs that have it."""
    gains: dict[str, dict[str, list[float]]] = {}
    alone: dict[str, dict[str, list[float]]] = {}
    failed: Counter[str] = Counter()
    for name, rows in programs.items():
        plain = rows[PLAIN]
        for variant, row in rows.items():
            kind = kind_of(variant)
            if row["error"] or not is_equal(row, plain):
                failed[kind] += 1
                continue
            if variant == PLAIN or row.get("same_as") == PLAIN:
                continue
            gains.setdefault(kind, {}).setdefault(name, []).append(gain(row))
            start = rows.get("xla.post" if variant.endswith(".post") else "")
            if start is not None and not start["error"]:
                over = gain(row) / gain(start)
                alone.setdefault(kind, {}).setdefault(name, []).append(over)
    lines = []
    for kind in gains.keys() | failed.keys():
        every = [each for several in gains.get(kind, {}).values() for each in several]
        lines.append(
            [
                f"`{kind}`",
                str(len(gains.get(kind, {}))),
                _mean(gains.get(kind, {})),
                f"{min(every):.3f}" if every else "-",
                f"{max(every):.3f}" if every else "-",
                _mean(alone.get(kind, {})),
                str(failed[kind]),
            ]
        )
    return sorted(lines, key=lambda line: -float(line[2].replace("-", "0")))


def _mean(by_name: dict[str, list[float]]) -> str:
    """The geometric mean of the programs' means."""
    means = [geometric_mean(each) for each in by_name.values()]
    return f"{geometric_mean(means):.3f}" if means else "-"


def error_lines(
    rows: list[Row], programs: dict[str, dict[str, Row]]
) -> list[list[str]]:
    """What failed, and how often, the most frequent first."""
    # Of a variant that was run again, the last counts; of a program that ended, nothing
    # else is known.
    latest = {(row["program"], row["variant"]): row for row in rows}
    rows = [
        row
        for row in latest.values()
        if row["variant"] or row["program"] not in programs
    ]
    found: dict[str, set[str]] = {}
    counts: Counter[str] = Counter()
    for row in rows:
        plain = programs.get(row["program"], {}).get(PLAIN)
        reason = row["error"]
        if not reason:
            if plain is None or "seconds" not in row or is_equal(row, plain):
                continue
            reason = "other outputs than plain jax"
        elif reason.startswith("ended"):
            # Which check of XLA failed, without time and thread.
            _, found_check, rest = reason.partition("Check failed")
            reason = "the process ended" + (found_check and f": {found_check}{rest}")
        reason = " ".join(reason.split())[:110]
        counts[reason] += 1
        found.setdefault(reason, set()).add(row["program"])
    return [
        [str(count), ", ".join(sorted(found[reason])), f"`{reason}`"]
        for reason, count in counts.most_common()
    ]


def by_program(rows: list[Row]) -> dict[str, dict[str, Row]]:
    """The rows of each program by variant."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["program"], {})[row["variant"]] = row
    return found


def with_equal(programs: dict[str, dict[str, Row]]) -> dict[str, dict[str, Row]]:
    """The rows, with those of variants of which the module is another's."""
    for rows in programs.values():
        for variant, row in [*rows.items()]:
            if "same_as" in row and row["same_as"] in rows:
                same = row["same_as"]
                rows[variant] = {**rows[same], "variant": variant, "same_as": same}
            elif "same_as" in row:
                del rows[variant]
    return programs


def keep(programs: dict[str, dict[str, Row]], store: Store) -> int:
    """Saves the measurements of decided modules in the store; returns their number."""
    keys = set()
    for rows in programs.values():
        plain = rows[PLAIN]
        for variant, row in rows.items():
            if not row.get("fingerprint"):
                continue
            key = RecordKey(
                kind="measurement",
                fingerprint=row["fingerprint"],
                finish=finish_of(variant),
                flags="",
                target="cpu" if plain["device"] == "cpu" else "cuda",
                machine=f"{plain['device']}, jax {plain['jax']}",
                variant=json.dumps([row["baseline"], variant.rpartition(".")[2]]),
            )
            store.put(key, measurement_of(row, plain).to_json())
            keys.add(key)
    return len(keys)


def finish_of(variant: str) -> str:
    """The passes that ran on its module before jaxlib's backend."""
    return "none" if variant.endswith(".post") else "jaxlib"


def measurement_of(row: Row, plain: Row) -> Measurement:
    """A row as a measurement against plain jax."""
    error = None
    if row.get("error"):
        error = MeasureFailure("CompileError", row["error"])
    elif not is_equal(row, plain):
        text = f"relative error {row['relative_error']:.1e}"
        error = MeasureFailure("OutputMismatchError", text)
    return Measurement(
        fingerprint=row["fingerprint"],
        baseline=row["baseline"],
        finish=finish_of(row["variant"]),
        seed=0,
        durations_ns=tuple(both(row)[1]) if "seconds" in row else (),
        baseline_ns=tuple(both(row)[0]) if "seconds" in row else (),
        compile_ns=round(row.get("compile_s", 0) * 1e9),
        baseline_compile_ns=round(plain["compile_s"] * 1e9),
        machine={"id": f"{plain['device']}, jax {plain['jax']}"},
        engine="jaxlib",
        error=error,
    )


def jobs_of(programs: dict[str, dict[str, Row]]) -> str:
    """How many variants were compiled at a time: "1", "4 to 8"."""
    every = {
        row.get("jobs", 1)
        for rows in programs.values()
        for row in rows.values()
        if "seconds" in row
    }
    return " to ".join(map(str, sorted({min(every), max(every)})))


def by_hand_section(rows: list[Row]) -> list[str]:
    """What other forms gain that are written in jax."""
    return [
        "## Written by hand",
        "",
        "Operations written in another form in jax, by `scripts/gpu/by_hand.py`: what",
        "a rule that makes the form could gain. Error: to the function with precise",
        "products, relative to its norm (of patch_embedding, to plain jax.jit).",
        "The figures are rounded. The forms of a program are timed in",
        "turns in one process; times below 200 us differ by up to a half between",
        "processes. Rules make three of the forms: `sort-forms.argmaxes` the five",
        "reductions, `loop-forms.unrolled` the eight steps in one, and",
        "`convolution-forms.blocks` the product of patches.",
        "",
        *table(
            ["program", "form", "us", "jax.jit over it", "error"],
            [
                [
                    row["program"],
                    row["form"],
                    f"{row['median_us']:.0f}",
                    f"{row['speedup']:.2f}",
                    f"{row['relative_error']:.0e}",
                ]
                for row in rows
            ],
        ),
        "",
    ]


def program_table(programs: dict[str, dict[str, Row]]) -> list[str]:
    """A table with a line for each program."""
    labels = "program", "jax.jit, us", "again", "`gpu-forms`"
    best_of = "best flag", "best form", "best `post`"
    lines = [program_line(name, rows) for name, rows in programs.items()]
    return table([*labels, *best_of], lines)


def page(
    rows: list[Row], programs: dict[str, dict[str, Row]], by_hand: list[Row]
) -> list[str]:
    """The page."""
    first = next(iter(programs.values()))[PLAIN]
    seen, held_out = (
        {
            name: rows
            for name, rows in programs.items()
            if (name.partition(",")[0] in HELD_OUT) == which
        }
        for which in (False, True)
    )
    lines = head("Decisions on a GPU")
    lines += [
        f"* timed on: {first['device']}, jax {first['jax']}, by "
        "`scripts/gpu/time_modules.py`",
        "",
        *_INTRODUCTION.strip().format(jobs=jobs_of(programs)).splitlines(),
        "",
        f"## {len(seen)} programs on which the rules were chosen",
        "",
        f"Geometric mean of `gpu-forms`: {policy_mean(seen)}; "
        f"{policy_mean(without_best(seen, 2))} without the two that gain most.",
        "",
        *program_table(seen),
        "",
        f"## {len(held_out)} programs on which nothing was chosen",
        "",
        f"Geometric mean of `gpu-forms`: {policy_mean(held_out)}; "
        f"{policy_mean(without_best(held_out))} without the one that gains most.",
        "",
        *program_table(held_out),
        "",
        *_FINDINGS.strip().splitlines(),
        "",
        *(by_hand_section(by_hand) if by_hand else []),
        "## Kinds of variants",
        "",
        "Geometric means over the programs in which the outputs are equal; `alone` is",
        "those of modules after fusion over XLA's own choice there (`xla`).",
        "",
        *table(
            ["variant", "programs", "mean", "worst", "best", "alone", "failed"],
            kind_lines(programs),
        ),
        "",
        "## What failed",
        "",
        *table(["variants", "programs", "reason"], error_lines(rows, programs)),
    ]
    return lines


def main() -> None:
    """Reads the rows, saves them in the store, and writes the page."""
    parser = parser_of(__doc__)
    parser.add_argument("rows", type=Path, help="what time_modules.py wrote")
    parser.add_argument("--by-hand", type=Path, help="what by_hand.py wrote")
    parser.add_argument("--store", type=Path, help="where the measurements go as well")
    options = parser.parse_args()
    rows = read_lines(options.rows)
    programs = with_equal(by_program([row for row in rows if row["variant"]]))
    programs = {
        name: found
        for name, found in programs.items()
        if PLAIN in found
        and not found[PLAIN]["error"]
        and math.isfinite(found[PLAIN]["relative_error"])
    }
    if not programs:
        raise SystemExit(f"no program in {options.rows} has a time of plain jax.jit")
    if options.store is not None:
        with Store(options.store) as store:
            count = keep(programs, store)
        print(f"{count} measurements are in {options.store}")
    by_hand = read_lines(options.by_hand) if options.by_hand is not None else []
    write_page(page(rows, programs, by_hand), options.doc)


if __name__ == "__main__":
    main()
