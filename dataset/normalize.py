# SPDX-License-Identifier: Apache-2.0
"""From the proto that jax hands to XLA to the text and the figures of the dataset.

    python -m dataset.normalize RAW_FOLDER OUT.jsonl

runs as a child, because a module may bring XLA down. Lines are written one by one; a
module that was begun and not ended is named as a failure when the child is run again.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hloenv import HloEnvError, HloModule

# A change here, or in what is written, makes every source be described anew.
VERSION = 1
MAX_TEXT_BYTES = 4 << 20
# What does no work: a module of nothing else has nothing to decide.
_IDLE = frozenset(("constant", "get-tuple-element", "parameter", "tuple"))
_STRING = r'"(?:[^"\\]|\\.)*"'
_METADATA = re.compile(
    rf", metadata=\{{(?:[^{{}}\"]|{_STRING}|\{{[^{{}}]*\}})*\}}|({_STRING})"
)
_TABLES = re.compile(
    r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:\d+ .*\n)*\n*", re.M
)
_CALLBACK = re.compile(r'custom_call_target="[^"]*callback[^"]*"')


class RejectedError(ValueError):
    """The module does not go into the dataset, for the reason given."""


def strip(text: str) -> str:
    """HLO text without metadata and the tables that only metadata refers to."""
    text = _TABLES.sub("", text)
    text = _METADATA.sub(lambda match: match[1] or "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def describe(proto: bytes) -> dict[str, Any]:
    """Text, fingerprint, size, opcodes and cost of one module.

    Raises:
        RejectedError: it calls back into the process that made it, is made for several
            devices, is too large, has nothing to decide, or XLA does not take it.
    """
    try:
        module = HloModule.from_proto(proto)
        text = strip(module.to_text())
        stripped = HloModule.from_text(text)
        stripped.verify()
        cost = stripped.cost()
    except HloEnvError as error:
        raise RejectedError(f"{type(error).__name__}: {error}"[:300]) from None
    if stripped.fingerprint() != module.fingerprint():
        raise RejectedError("it differs from what its text says")
    if _CALLBACK.search(text):
        raise RejectedError("it calls back into Python")
    if 'custom_call_target="Sharding"' in text:
        raise RejectedError("it is made for several devices")
    if len(text) > MAX_TEXT_BYTES:
        raise RejectedError(f"its text has {len(text)} bytes: too large")
    opcodes = stripped.opcode_counts()
    if set(opcodes) <= _IDLE:
        raise RejectedError("it does nothing")
    return {
        "fingerprint": stripped.fingerprint(),
        "instruction_count": stripped.instruction_count,
        "computation_count": stripped.computation_count,
        "opcodes": list(opcodes),
        "opcode_counts": list(opcodes.values()),
        "flops": cost.flops,
        "bytes": cost.bytes,
        "transcendentals": cost.transcendentals,
        "hlo": text,
    }


def describe_all(raw: Path, out: Path) -> None:
    """Describes each module of a harvest; goes on where an earlier run ended."""
    lines = (raw / "index.jsonl").read_text(encoding="utf-8").splitlines()
    index = [json.loads(line) for line in lines]
    done = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    # Two lines for each module; without the second, the run ended within it.
    position = len(done) // 2
    with out.open("a", encoding="utf-8") as file:
        if len(done) % 2:
            record = {**index[position], "rejected": "XLA ended the process"}
            file.write(json.dumps(record) + "\n")
            position += 1
        for record in index[position:]:
            file.write("begin\n")
            file.flush()
            if "file" in record:
                try:
                    record |= describe((raw / record["file"]).read_bytes())
                except RejectedError as error:
                    record["rejected"] = str(error)
            file.write(json.dumps(record) + "\n")
            file.flush()


def read(path: Path) -> list[dict[str, Any]]:
    """The records that `describe_all` has written."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line != "begin"]


if __name__ == "__main__":
    describe_all(Path(sys.argv[1]), Path(sys.argv[2]))
