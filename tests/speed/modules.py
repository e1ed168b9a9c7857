# SPDX-License-Identifier: Apache-2.0
"""Modules of a wanted size for the benchmarks."""

from __future__ import annotations

import hloenv


def chain_module(num_instructions: int) -> hloenv.HloModule:
    """A long program in which every pass finds something, in one computation.

    Blocks of twelve instructions: an addition of zero, a product with one, a
    repeated subexpression, a double negation, a transpose that undoes another, and
    some arithmetic that stays.
    """
    lines = [
        "HloModule chain",
        "",
        "ENTRY main {",
        "  p0 = f32[8,16]{1,0} parameter(0)",
        "  zero = f32[] constant(0)",
        "  zeros = f32[8,16]{1,0} broadcast(zero), dimensions={}",
        "  one = f32[] constant(1)",
        "  ones = f32[8,16]{1,0} broadcast(one), dimensions={}",
    ]
    last = "p0"
    shape = "f32[8,16]{1,0}"
    for block in range(max(1, (num_instructions - 5) // 12)):
        name = f"b{block}"
        lines += [
            f"  {name}.a = {shape} add({last}, zeros)",
            f"  {name}.m = {shape} multiply({name}.a, ones)",
            f"  {name}.e1 = {shape} exponential({name}.m)",
            f"  {name}.e2 = {shape} exponential({name}.m)",
            f"  {name}.s = {shape} add({name}.e1, {name}.e2)",
            f"  {name}.n1 = {shape} negate({name}.s)",
            f"  {name}.n2 = {shape} negate({name}.n1)",
            f"  {name}.t1 = f32[16,8]{{1,0}} transpose({name}.n2), dimensions={{1,0}}",
            f"  {name}.t2 = {shape} transpose({name}.t1), dimensions={{1,0}}",
            f"  {name}.x = {shape} maximum({name}.t2, {last})",
            f"  {name}.y = {shape} tanh({name}.x)",
            f"  {name}.z = {shape} subtract({name}.y, {name}.x)",
        ]
        last = f"{name}.z"
    lines += [f"  ROOT out = {shape} add({last}, p0)", "}"]
    return hloenv.HloModule.from_text("\n".join(lines))
