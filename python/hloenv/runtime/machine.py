# SPDX-License-Identifier: Apache-2.0
"""The machine, the XLA version and its flags of a measurement."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._native import BUILT_WITH


@dataclass(frozen=True)
class Machine:
    """The machine of a measurement.

    Attributes:
        cpu: model of the processor, with its numbers: virtual machines of several
            generations may have one name.
        architecture: "x86_64" or "aarch64".
        num_cores: cores that this process may use.
        memory_bytes: of the machine.
        kernel: name and release of the operating system.
        tensorflow: version of the wheel whose XLA compiled.
        flags: XLA_FLAGS, each flag once, sorted.
        features: extensions of the instruction set, sorted.
    """

    cpu: str
    architecture: str
    num_cores: int
    memory_bytes: int
    kernel: str
    tensorflow: str
    flags: str
    features: str = ""

    @property
    def id(self) -> str:
        """12 hex digits, the same on machines of one kind.

        Depends on the processor, what it can run, the architecture and the version of
        XLA, but not on the cores of the process or the version of the system.
        """
        parts = (self.cpu, self.features, self.architecture, self.tensorflow)
        text = "\n".join(parts)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """The attributes, and the id."""
        return {**asdict(self), "id": self.id}


@functools.cache
def this_machine() -> Machine:
    """The machine that this process runs on."""
    fields = _fields()
    return Machine(
        cpu=_cpu_model(fields),
        architecture=platform.machine(),
        num_cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        kernel=f"{platform.system()} {platform.release()}",
        tensorflow=BUILT_WITH,
        flags=" ".join(sorted(set(os.environ.get("XLA_FLAGS", "").split()))),
        features=_features(fields),
    )


# What a compiler may use; the other flags are of the system.
_FEATURES = (
    *("sse", "ssse", "avx", "apx", "amx", "fma", "f16c", "bmi", "abm", "adx", "movbe"),
    *("popcnt", "aes", "vaes", "pclmul", "vpclmul", "sha", "gfni", "xop", "tbm"),
    *("asimd", "sve", "neon", "crc32", "i8mm", "bf16", "atomics"),
)


def _features(fields: Mapping[str, str]) -> str:
    flags = fields.get("flags") or fields.get("Features") or ""
    return " ".join(
        sorted({each for each in flags.split() if each.startswith(_FEATURES)})
    )


def _fields() -> dict[str, str]:
    """What the system says of its first processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    return fields


def _cpu_model(fields: Mapping[str, str]) -> str:
    # Arm processors have numbers in place of a name.
    parts = ("implementer", "part", "variant", "revision")
    numbers = [fields.get(f"CPU {each}", "") for each in parts]
    named = " ".join([platform.machine(), *filter(None, numbers)])
    if not (name := fields.get("model name", "")):
        return named
    numbers = [fields.get(each, "") for each in ("cpu family", "model", "stepping")]
    return f"{name} ({'.'.join(numbers)})" if all(numbers) else name
