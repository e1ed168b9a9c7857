# SPDX-License-Identifier: Apache-2.0
"""Converts protos lowered by jax to the texts and features of the dataset.

    python -m dataset.normalize RAW_FOLDER OUT.jsonl

runs as a child, because XLA may crash on a module. Lines are written one by one; a
module that was started but not finished is a failure when the child is run again.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hloenv import HloEnvError, HloModule

# Increased when the output changes, so that all sources are described again.
VERSION = 1
MAX_TEXT_BYTES = 4 << 20
# Opcodes without work; a module of only these has nothing to decide.
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
    """The module is excluded from the dataset."""


def strip(text: str) -> str:
    """Removes metadata, and the tables that only metadata refers to, from HLO text."""
    text = _TABLES.sub("", text)
    text = _METADATA.sub(lambda match: match[1] or "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def describe(proto: bytes) -> dict[str, Any]:
    """Returns text, fingerprint, size, opcodes and cost of one module.

    Raises:
        RejectedError: it calls back into Python, is for several devices, is too large,
            has nothing to decide, or XLA rejects it.
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
    """Describes each module of a harvest; resumes an interrupted run."""
    lines = (raw / "index.jsonl").read_text(encoding="utf-8").splitlines()
    index = [json.loads(line) for line in lines]
    done = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
    # Two lines for each module; if the second is missing, the run crashed on it.
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
    """Reads the records that `describe_all` has written."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line != "begin"]


if __name__ == "__main__":
    describe_all(Path(sys.argv[1]), Path(sys.argv[2]))
