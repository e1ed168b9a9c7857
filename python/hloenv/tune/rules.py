# SPDX-License-Identifier: Apache-2.0
"""What the fixed rules of `hloenv.jit` find in one program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import HloEnvError
from ..jax.auto import calls_of, forms_of
from ..jax.library import OPTION, options_for
from ..jax.onednn import has_onednn, is_cache_on
from ..policies.known_calls import CALL_PASSES
from .decisions import DECISIONS
from .space import Configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..hlo.module import HloModule
    from .journal import Journal
    from .options import TuneOptions

# Of rules that a tuning may leave to XLA, those that apply most often.
_MAX_RULES = 16


@dataclass(frozen=True)
class Rules:
    """What rules find.

    Attributes:
        labels: of the rules that apply, such as "dot-forms/swapped".
        library: the choice of the decision "library" that is estimated to be faster
            with the forms; "" for XLA's own.
    """

    labels: tuple[str, ...] = ()
    library: str = ""


def rules_of(module: HloModule) -> Rules:
    """What the rules find; nothing in a module that XLA's passes do not take.

    Args:
        module: from before XLA's passes.
    """
    try:
        forms = forms_of(module)
        # Not to be asked while the cache is on.
        calls = calls_of(module) if not is_cache_on() and has_onednn() else None
        options = options_for(module if forms is None else forms.applied)
    except HloEnvError:
        return Rules()
    counts: dict[str, int] = {} if forms is None else dict(forms.accepted)
    for label, count in ({} if calls is None else calls.accepted).items():
        if label.split("/")[0] in CALL_PASSES:
            counts[label] = count
    labels = sorted(counts, key=lambda each: (-counts[each], each))
    return Rules(tuple(labels[:_MAX_RULES]), _library(options))


def rules_for(module: HloModule, options: TuneOptions, journal: Journal) -> Rules:
    """What the rules find, where a tuning may use it.

    Nothing if finding it has ended the process before.

    Args:
        module: from before XLA's passes.
        options: of the tuning.
        journal: of it.
    """
    used = options.stages is None or "forms" in options.stages
    first = Configuration((("forms", "known"),))
    if not used or options.numerics == "exact" or first in journal.crashed:
        return Rules()
    with journal.running(first):
        return rules_of(module)


def _library(options: Mapping[str, object]) -> str:
    """The choice that sets the same option."""
    decision = next(each for each in DECISIONS if each.name == "library")
    for choice in decision.choices:
        if choice.option == (OPTION, options.get(OPTION)):
            return choice.name
    return ""
