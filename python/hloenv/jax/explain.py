# SPDX-License-Identifier: Apache-2.0
"""Says what hloenv.jit decided, why, and what it gained."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..runtime.memory import fresh_text
from .decide import Decided

_WHERE = {
    "stablehlo": "on the module as jax lowers it",
    "wheel": "in the pipeline of TensorFlow's XLA",
    "jaxlib": "on the module that jaxlib has optimized",
}


def explain(name: str, considered: Sequence[Decided]) -> str:
    """One paragraph for each considered version.

    Args:
        name: of the function.
        considered: the versions, used or not.
    """
    if not considered:
        return f"{name}: nothing was considered; call it first"
    # Of each signature the version in use, or the last one.
    shown = {each.signature: each for each in considered if each.fresh_bytes}
    shown |= {each.signature: each for each in considered if each.is_used}
    used = {each.signature for each in considered if each.is_used}
    order = list(dict.fromkeys(each.signature for each in considered))
    place = {signature: number for number, signature in enumerate(order)}
    lines: list[str] = []
    for each in sorted(
        considered, key=lambda one: (place[one.signature], not one.is_used)
    ):
        lines += _of(name, each, is_other=each.signature in used)
        if each is shown.get(each.signature) and each.fresh_bytes:
            lines += [f"  {text}" for text in [fresh_text(each.fresh_bytes)] if text]
    return "\n".join(lines)


def signature_text(types: Iterable[object]) -> str:
    """The types of arguments, on one line.

    Args:
        types: as jax has them.
    """
    texts = [str(each) for each in types]
    shown = texts if len(texts) <= 6 else [*texts[:5], f"{len(texts) - 5} more"]
    return ", ".join(shown)


def _of(name: str, decided: Decided, *, is_other: bool) -> Iterator[str]:
    verb = "not used" if is_other else "plain jax.jit"
    verb = "decided" if decided.is_used else verb
    yield f"{name}({decided.signature}): {verb}{_gain(decided)}"
    if decided.reason:
        yield f"  {decided.reason}"
    if decided.tuned and decided.is_used:
        yield f"  tuned: {decided.tuned}"
    if decided.left_out:
        yield f"  {decided.left_out} by XLA's own code, not by YNNPACK"
    if decided.options:
        yield f"  with {decided.options}"
    if decided.engine == "wheel":
        yield "  by TensorFlow's XLA, whose code jax calls"
    for part in (decided, decided.then):
        if part is not None and part.num_alternatives:
            accepted = ", ".join(
                f"{count} x {label}" for label, count in sorted(part.accepted.items())
            )
            yield (
                f"  {_WHERE[part.route]}: {part.num_accepted} of "
                f"{part.num_alternatives} alternatives accepted"
                + (f" ({accepted})" if accepted else "")
                + (f", {part.num_rejected} rejected" if part.num_rejected else "")
            )


def _gain(decided: Decided) -> str:
    if decided.speedup is None:
        return ""
    interval = ""
    if decided.interval is not None:
        low, high = decided.interval
        interval = f" (95 %: {low:.3g} to {high:.3g})"
    return f", {decided.speedup:.3g} times as fast as jax.jit{interval}"
