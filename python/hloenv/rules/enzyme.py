# SPDX-License-Identifier: Apache-2.0
"""Enzyme-JAX's rewrites of StableHLO (`pip install 'hloenv[enzyme]'`) as a pass.

`optimize` gives what its optimizer makes of a module. As a pass, that is an
alternative, beside those of other passes: as a whole, for chosen patterns, for each
part, or for each pattern. `verify_alternatives` compares their values. The optimizer
runs in a child process.
"""

from __future__ import annotations

import atexit
import difflib
import functools
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from .._optional import needed_by
from ..errors import HloEnvError, PassError, PassOptionError, WorkerError
from ..hlo.module import HloModule
from ..hlo.pass_info import OptionValue, PassInfo, PassOption
from ..hlo.python_passes import Proposals, add_pass
from ..rewrite.sandbox import Sandbox
from .changes import proposals_of, replacements_of
from .passes import to_proposals
from .rule import Replacement

_WORKER = f"{__package__}.enzyme_worker"
_TIMEOUT_S = 300.0
# What MLIR changes whichever pattern it runs, in the place of a pattern's name.
FOLDING = "folding"
# Patterns that run in one call. One that crashes is found by halves; of a module on
# which calls crash more often, nothing is known.
_TOGETHER, _MAX_CRASHES = 64, 30
_lock = threading.Lock()


def patterns() -> tuple[str, ...]:
    """Names of Enzyme-JAX's patterns: "transpose_transpose".

    Raises:
        ImportError: enzyme-ad or jax is missing.
    """
    return tuple(_patterns())


def optimize(module: HloModule, *, only: Sequence[str] = ()) -> HloModule:
    """What Enzyme-JAX's optimizer makes of a module.

    Args:
        module: before XLA's layout assignment; not modified.
        only: names of patterns, applied until none matches; empty for the whole
            pipeline, which also inlines calls.

    Returns:
        A module with the same inputs and outputs. Enzyme-JAX's authors answer for its
        values; `hloenv.runtime.compare_outputs` compares them.

    Raises:
        PassOptionError: there is no such pattern.
        PassError: the optimizer fails or crashes, or StableHLO has no form of the
            module.
        ImportError: enzyme-ad or jax is missing.
    """
    chosen = _spelled(module, only)
    try:
        found: HloModule = _call("optimize", module, chosen)
    except HloEnvError as error:
        raise PassError(
            f"Enzyme-JAX's optimizer failed on module {module.name!r}: {error}"
        ) from error
    return found


def optimize_each(
    module: HloModule, *, only: Sequence[str] = ()
) -> dict[str, HloModule]:
    """What each pattern that matches makes of a module, alone.

    Args:
        module: before XLA's layout assignment; not modified.
        only: names of patterns; empty for all.

    Returns:
        Modules by name of the pattern; of those that give equal modules, the first.
        `FOLDING` comes first where MLIR folds something, which it does whichever
        pattern it runs. Patterns that fail or crash on the module are left out.

    Raises:
        PassOptionError, PassError, ImportError: as `optimize`.
    """
    chosen = _spelled(module, only or patterns())
    parts = [chosen[i : i + _TOGETHER] for i in range(0, len(chosen), _TOGETHER)]
    found: dict[str, HloModule] = {}
    names: dict[str, str] = {}
    num_crashes = 0
    while parts:
        part = parts.pop(0)
        try:
            made: list[tuple[str, HloModule]] = _call("optimize_each", module, part)
        except HloEnvError as error:
            num_crashes += 1
            if not isinstance(error, WorkerError) or num_crashes > _MAX_CRASHES:
                raise PassError(
                    f"Enzyme-JAX's optimizer failed on module {module.name!r}: {error}"
                ) from error
            if len(part) > 1:  # one of them hides the others
                middle = len(part) // 2
                parts[:0] = [part[:middle], part[middle:]]
            continue
        for pattern, changed in made:
            found.setdefault(changed.fingerprint(), changed)
            names.setdefault(changed.fingerprint(), _name_of(pattern) or FOLDING)
    return {names[key]: changed for key, changed in found.items()}


def _spelled(module: HloModule, names: Sequence[str]) -> list[str]:
    """Patterns with their parameters, where module and names are right."""
    if module.position is not None and module.position.has_layouts:
        raise PassError(
            f"Enzyme-JAX's optimizer cannot take module {module.name!r}, which is "
            f"{module.position}: StableHLO has no layouts and no fusions; decide it "
            "before XLA's layout assignment"
        )
    known = _patterns()
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3)
            hint = f"; similar: {', '.join(close)}" if close else ""
            raise PassOptionError(
                f"Enzyme-JAX has no pattern {name!r} among its {len(known)} "
                f"(hloenv.rules.enzyme.patterns()){hint}"
            )
    return [known[name] for name in names]


class EnzymePass:
    """The candidate pass `enzyme`.

    Attributes:
        info: its description.
    """

    info = PassInfo(
        name="enzyme",
        summary="Enzyme-JAX's rewrites of StableHLO, by another program.",
        options=(
            PassOption(
                "patterns",
                "string",
                "",
                'Names of its patterns, joined by ";"; empty for its whole pipeline.',
            ),
            PassOption(
                "regions",
                "bool",
                False,
                "Makes an alternative of each part of the changes, in place of one; a "
                "part need not be right by itself.",
            ),
            PassOption(
                "each",
                "bool",
                False,
                "Applies each pattern alone, so that a choice is one pattern in one "
                "part, also without `regions`; its rule is the pattern's name.",
            ),
        ),
        candidate=True,
        class_name="enzyme_ad",
        numerics="unsafe",
    )

    def propose(
        self, module: HloModule, options: Mapping[str, OptionValue]
    ) -> Proposals:
        """The parts that it changes.

        Raises:
            PassError, PassOptionError: as `optimize`, or no replacement of arrays gives
                its changes.
        """
        text = str(options.get("patterns", ""))
        names = [each for each in text.split(";") if each]
        try:
            if options.get("each", False):
                return _proposals_of_each(module, names)
            changed = optimize(module, only=names)
        except ImportError as error:
            raise PassError(str(error)) from error
        split = bool(options.get("regions", False))
        return proposals_of("enzyme", module, changed, split=split)


def _proposals_of_each(module: HloModule, names: Sequence[str]) -> Proposals:
    """The parts that each pattern changes; equal ones are the first pattern's."""
    found: dict[Any, Replacement] = {}
    for pattern, changed in optimize_each(module, only=names).items():
        try:
            parts = replacements_of(pattern, module, changed, split=True)
        except PassError:  # no replacement of arrays gives it
            continue
        for part in parts:
            key = part.originals, part.reads, part.body, part.called
            found.setdefault(key, part)
    return to_proposals(list(found.values()), has_layouts=True)


def register() -> None:
    """Registers the pass, so that `get_alternatives("enzyme")` finds it."""
    add_pass(EnzymePass())


@functools.cache
def _patterns() -> dict[str, str]:
    """The patterns with their parameters, by name."""
    with needed_by("Enzyme-JAX's optimizer", "enzyme-ad", "enzyme"):
        import enzyme_ad  # noqa: F401
        import jaxlib  # noqa: F401
    found: tuple[str, ...] = _call("patterns")
    return {_name_of(each): each for each in found}


def _name_of(pattern: str) -> str:
    """Its name without parameters."""
    return pattern.partition("<")[0].partition("(")[0]


def _call(function: str, *args: Any) -> Any:
    """Calls a function of the worker."""
    with _lock:
        return _sandbox().call(f"{_WORKER}:{function}", *args)


@functools.cache
def _sandbox() -> Sandbox:
    """Starts its process anew where that has crashed, or this one was forked."""
    sandbox = Sandbox(timeout_s=_TIMEOUT_S)
    atexit.register(sandbox.close)
    return sandbox
