# SPDX-License-Identifier: Apache-2.0
"""Runs Enzyme-JAX's optimizer on a module, in a child process.

The module goes through StableHLO both ways, converted by jaxlib. An assertion in MLIR
ends the process.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Sequence
from typing import Any

from ..hlo.module import HloModule
from ..hlo.text import COMMENT, Computation, parse_text
from ..runtime.jaxlib.stablehlo import stablehlo_of

# Of equal gradients of batch normalizations, which no frontend makes.
_MATCHES_NOTHING = "cse_batch_norm_grad<16>"
# Attributes of Enzyme's dialects, which jaxlib does not know.
_OWN = re.compile(r"^enzyme")


@functools.cache
def patterns() -> tuple[str, ...]:
    """Names of its patterns, with their parameters: "transpose_transpose<16>"."""
    from enzyme_ad.jax import primitives

    pipeline = primitives.optimization_passes(inline=False)
    found = re.search(r"\{patterns=(.*?)\},transform-interpreter", pipeline)
    assert found is not None, pipeline[:200]
    return tuple(each for each in found[1].split(";") if each)


def optimize(module: HloModule, chosen: Sequence[str]) -> HloModule:
    """The module after Enzyme-JAX's optimizer.

    Args:
        module: before XLA's layout assignment.
        chosen: patterns to apply until none matches; empty for the whole pipeline.

    Returns:
        A module with the same inputs and outputs.
    """
    from enzyme_ad.jax import enzyme_call, primitives

    whole = primitives.full_optimization_pass_pipeline()
    name, text = enzyme_call.run_pass_pipeline(
        ["main"], _text_of(module), _pipeline_of(chosen) if chosen else whole
    )
    return _with_results_of(_to_hlo(text, name), module)


def optimize_each(
    module: HloModule, chosen: Sequence[str]
) -> list[tuple[str, HloModule]]:
    """What patterns make of a module, each alone, until it does not match any more.

    Args:
        module: before XLA's layout assignment.
        chosen: the patterns.

    Returns:
        The patterns that change the module, with what they make of it; without those
        that fail. First "", if
        something changes without them: MLIR folds, whichever pattern it runs, constants
        and what undoes another operation. That is in the other modules, too.
    """
    from enzyme_ad.jax import enzyme_call

    text = _text_of(module)

    def run(pattern: str) -> tuple[str, str]:
        pipeline = _pipeline_of([pattern])
        name, found = enzyme_call.run_pass_pipeline(["main"], text, pipeline)
        return str(name), str(found)

    name, folded = run(_MATCHES_NOTHING)
    seen = {folded}
    made = _with_results_of(_to_hlo(folded, name), module)
    modules = [("", made)] if made.fingerprint() != module.fingerprint() else []
    for pattern in chosen:
        # It fails, or makes what HLO has no form for, in whatever kind of error.
        with contextlib.suppress(Exception):
            name, changed = run(pattern)
            if changed not in seen:
                made = _with_results_of(_to_hlo(changed, name), module)
                modules.append((pattern, made))
            seen.add(changed)
    return modules


def _text_of(module: HloModule) -> str:
    from jax.interpreters.mlir import make_ir_context
    from jaxlib.mlir import ir

    with make_ir_context():
        return str(ir.Module.parse(stablehlo_of(module)))


def _pipeline_of(chosen: Sequence[str]) -> str:
    """The passes that apply patterns until none matches."""
    return (
        f"enzyme-hlo-generate-td{{patterns={';'.join(chosen)}}},"
        "transform-interpreter,enzyme-hlo-remove-transform"
    )


def _to_hlo(text: str, name: str) -> HloModule:
    """The HLO of StableHLO whose entry is a private function."""
    from jax.interpreters.mlir import make_ir_context
    from jaxlib import xla_client
    from jaxlib.mlir import ir

    context = make_ir_context()
    context.allow_unregistered_dialects = True
    with context:
        parsed = ir.Module.parse(text)
        parsed.operation.walk(_without_own_attributes)
        entry = ir.SymbolTable(parsed.operation)[name].attributes
        entry["sym_name"] = ir.StringAttr.get("main")
        entry["sym_visibility"] = ir.StringAttr.get("public")
        xla: Any = xla_client
        computation = xla._xla.mlir.mlir_module_to_xla_computation(
            str(parsed), use_tuple_args=False, return_tuple=False
        )
    return HloModule.from_proto(computation.as_serialized_hlo_module_proto())


def _without_own_attributes(operation: Any) -> Any:
    from jaxlib.mlir import ir

    def kept(attributes: Any) -> Any:
        pairs = {each.name: each.attr for each in attributes}
        return ir.DictAttr.get({k: v for k, v in pairs.items() if not _OWN.match(k)})

    for name in [str(each) for each in operation.attributes]:
        if _OWN.match(name):
            del operation.attributes[name]
    for name in ("arg_attrs", "res_attrs"):
        if name in operation.attributes:
            kept_attributes = [kept(each) for each in operation.attributes[name]]
            operation.attributes[name] = ir.ArrayAttr.get(kept_attributes)
    return ir.WalkResult.ADVANCE


def _with_results_of(changed: HloModule, module: HloModule) -> HloModule:
    """A copy whose parameters and results have the layouts of `module`.

    Before layout assignment a layout says where a parameter or a result is, and nothing
    of a value's elements.
    """
    text = changed.to_text().replace(changed.entry_layout, module.entry_layout, 1)
    old, new = (_entry_of(each) for each in (module.to_text(), text))
    text = COMMENT.sub("", text)
    wanted = old.instructions[old.root], new.instructions[new.root]
    pairs = [wanted]
    if {each.opcode for each in wanted} == {"tuple"}:
        pairs += [
            (old.instructions[i], new.instructions[j])
            for i, j in zip(wanted[0].operands, wanted[1].operands, strict=True)
        ]
    for first, second in pairs:
        if second.opcode not in ("parameter", "get-tuple-element"):
            text = text.replace(
                f"%{second.name} = {second.shape} ", f"%{second.name} = {first.shape} "
            )
    return HloModule.from_text(text)


def _entry_of(text: str) -> Computation:
    parsed = parse_text(text)
    return parsed.computations[parsed.entry]
