# SPDX-License-Identifier: Apache-2.0
"""What is known of a module as jax lowers it, kept for other processes.

Converting what jax lowers to an HLO module takes longer than to look up what was
decided for it, which needs little of the module. One small file for each, by a hash of
what jax lowers without its source locations.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any

from ..hlo.module import HloModule
from .verdicts import build, recall_fields, remember_fields, sources

_STRIPS = "builtin.module(strip-debuginfo)"


@dataclass(frozen=True)
class Facts:
    """What decides how a module may be compiled.

    Attributes:
        fingerprint: as of the `HloModule`.
        draws_random: whether two calls differ, by random numbers of XLA's state.
    """

    fingerprint: str
    draws_random: bool

    @classmethod
    def of(cls, module: HloModule) -> Facts:
        """Those of a module."""
        return cls(module.fingerprint(), module.opcode_counts().get("rng", 0) > 0)


def key_of_lowered(lowered: Any) -> str | None:
    """Identifies what jax has lowered, in all processes; None if this jax cannot.

    The name of the module does not count: `hloenv.jit` numbers its functions.

    Args:
        lowered: a `jax.stages.Lowered`.
    """
    try:
        from jaxlib.mlir.ir import StringAttr
        from jaxlib.mlir.passmanager import PassManager

        operation = lowered.compiler_ir("stablehlo").operation
        with operation.context:
            copy = operation.clone(ip=False)
            copy.attributes["sym_name"] = StringAttr.get("module")
            PassManager.parse(_STRIPS).run(copy)
            code = io.BytesIO()
            copy.write_bytecode(code)
    except Exception:  # another version of jax
        return None
    digest = hashlib.sha256(f"{build()} {sources()}".encode())
    digest.update(code.getbuffer())
    return digest.hexdigest()


def recall_facts(key: str) -> Facts | None:
    """What an earlier process found; None if there is nothing."""
    fields = recall_fields("facts", key)
    if fields is None or not isinstance(fields.get("draws_random"), bool):
        return None
    fingerprint = fields.get("fingerprint")
    if not isinstance(fingerprint, str):
        return None
    return Facts(fingerprint, fields["draws_random"])


def remember_facts(key: str, facts: Facts) -> None:
    """Keeps facts for other processes."""
    remember_fields(
        "facts",
        key,
        {"fingerprint": facts.fingerprint, "draws_random": facts.draws_random},
    )
