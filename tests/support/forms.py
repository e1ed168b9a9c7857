# SPDX-License-Identifier: Apache-2.0
"""What the policy known-forms takes."""

from __future__ import annotations

import hloenv
from hloenv.policies import get_policy


def form_of(text: str, name: str = "convolution-forms") -> str | None:
    """The rule that the policy takes; None if it leaves the alternative undecided."""
    env = hloenv.HloEnv(hloenv.HloModule.from_text(text))
    alternatives = env.get_alternatives(name)
    (decision,) = get_policy("known-forms")(alternatives).tolist()
    assert decision != 0
    return alternatives[0].choices[decision].rule if decision > 0 else None
