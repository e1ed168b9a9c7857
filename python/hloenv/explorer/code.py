# SPDX-License-Identifier: Apache-2.0
"""The Python that repeats an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..rewrite.trace import Step, Trace

_OPTIONS_OF_PLACE = frozenset({"is_layout_sensitive"})


def python_of(trace: Trace, import_: str, load: str) -> str:
    """A program that repeats a trace.

    Args:
        trace: of the episode.
        import_: a line that the expression needs; "" for none.
        load: the expression for the module that it starts with.
    """
    lines = [
        "import hloenv",
        *filter(None, [import_]),
        "",
        f"env = hloenv.HloEnv({load})",
        f"assert env.fingerprint() == {trace.start.fingerprint!r}",
    ]
    for step in trace.steps:
        lines += ["", *_lines_of(step)]
    lines += ["", "executable = hloenv.compile(env.module)", ""]
    return "\n".join(lines)


def load_expression(target: str) -> tuple[str, str]:
    """The import and the expression that load what the user opened, by its name."""
    if target.startswith("hloenv://"):
        return (
            "from hloenv.dataset import find_benchmarks",
            f"find_benchmarks({target!r})[0].load()",
        )
    if ":" in target:
        return "from hloenv.cli.load import load_module", f"load_module({target!r})"
    return "", repr(target)


def opened_expression(title: str) -> tuple[str, str]:
    """As `load_expression`, for HLO text that the page sent, which has no file."""
    return (
        f"# Save the HLO text that was opened as {title!r} to this file.",
        "'module.hlo'",
    )


def _lines_of(step: Step) -> list[str]:
    if step.kind == "run-until" and step.place is not None:
        where, occurrence = step.place
        which = "" if occurrence == 1 else f", occurrence={occurrence}"
        return [f"env.run_until({where!r}{which})"]
    passes = ", ".join(_expression(each) for each in step.passes)
    if step.kind == "run":
        return [f"env.run({passes})"]
    return [
        f"alternatives = env.get_alternatives({passes})",
        *_decisions(step.decisions),
        "env.apply_alternatives(decisions, partial=True)",
    ]


def _decisions(decisions: Sequence[int]) -> list[str]:
    """Sets what differs from the most frequent of undecided, rejected, accepted."""
    first = max((-1, 0), key=list(decisions).count)
    start = "leave_to_xla" if first == -1 else "reject_all"
    lines = [f"decisions = alternatives.{start}()"]
    by_choice: dict[int, list[int]] = {}
    for index, choice in enumerate(decisions):
        if choice != first:
            by_choice.setdefault(choice, []).append(index)
    lines += [
        f"decisions[{indices}] = {choice}"
        for choice, indices in sorted(by_choice.items())
    ]
    return lines


def pass_name(pipeline: Any) -> str:
    """The name of a pipeline of a trace, for people."""
    return (
        str(pipeline.get("pipeline", ""))
        if isinstance(pipeline, dict)
        else str(pipeline)
    )


def plain_name(pipeline: Any) -> str | None:
    """The name of a single pass without options; None for another pipeline."""
    if isinstance(pipeline, dict):
        inner = pipeline.get("passes", [])
        if len(inner) == 1 and isinstance(inner[0], dict):
            name, options = inner[0].get("pass"), inner[0].get("options", {})
            is_plain = not pipeline.get("fixed_point") and name == pipeline.get(
                "pipeline"
            )
            if is_plain and set(options) <= _OPTIONS_OF_PLACE:
                return str(name)
    return None


def _expression(pipeline: Any) -> str:
    """A pass by its name, or a whole pipeline."""
    name = plain_name(pipeline)
    return (
        repr(name) if name is not None else f"hloenv.Pipeline.from_json({pipeline!r})"
    )
