# SPDX-License-Identifier: Apache-2.0
"""What was measured to be best for a function, kept for other processes.

One small file for each module, machine, number of cores, and version of jax, jaxlib and
hloenv, in the folder of the store. A file that cannot be read, is damaged, or may be
another user's counts as absent; a folder that cannot be written keeps nothing.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .._files import read_file, write_own
from .._native import core
from .._version import __version__
from ..measurement.store import default_path
from ..runtime.jaxlib.package import require_jax
from ..runtime.machine import this_machine

# Of the kinds of what is kept, in the folder of the store.
_FOLDERS = {"verdict": "jit", "facts": "modules"}
# A larger file is none of these.
_MAX_BYTES = 1 << 20
# After which a comparison is made again: other programs may have used the machine
# meanwhile.
_MAX_DAYS = 7
# After which a file is removed; what is needed is found again.
_MAX_FILE_DAYS = 30
# What is kept depends on these sources, besides the extension: the fixed rules, the
# comparison, and what is known of a module.
_SOURCES = (
    *("policies/known_forms.py", "policies/loops.py", "jax/auto.py"),
    *("policies/readers.py", "search/spaces.py", "runtime/jaxlib/executable.py"),
    *("jax/stages.py", "jax/by_wheel.py", "jax/overhead.py", "jax/trials.py"),
    *("jax/compare.py", "jax/decide.py", "jax/facts.py", "jax/library.py"),
    *("jax/wrapping.py", "runtime/random_inputs.py"),
    *("jax/lowering.py", "jax/outputs.py", "runtime/compare.py", "jax/settings.py"),
    *("jax/onednn.py", "policies/known_calls.py", "policies/convolution_sizes.py"),
    *("policies/crossed_dots.py", "policies/dot_sizes.py", "jax/timed_call.py"),
    *("policies/rolls.py", "policies/windows.py"),
    *("runtime/jaxlib/options.py", "runtime/moved.py", "runtime/jaxlib/products.py"),
)


def _stamp() -> str:
    extension = Path(core.__file__).stat()
    return f"{extension.st_size} {extension.st_mtime_ns}"


# Of the extension that this process has loaded, whose file may be replaced later.
_STAMP = _stamp()


@dataclass(frozen=True)
class Verdict:
    """The best way to compile one module.

    Attributes:
        attempt: name of the `Attempt`; empty for plain jax.jit.
        reason: why plain jax.jit is best; empty if it is not.
        speedup: jax.jit's time over that of the attempt; None if not compared.
        interval: 95 % interval of `speedup`.
        date: of the comparison, as 2026-11-23.
    """

    attempt: str
    reason: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    date: str = ""

    @property
    def is_too_old(self) -> bool:
        """Whether the comparison was some days ago."""
        if not self.date:
            return False
        now = datetime.datetime.now(datetime.UTC).date()
        age = now - datetime.date.fromisoformat(self.date)
        # The clock may have been set back.
        return not 0 <= age.days <= _MAX_DAYS


def key_of(fingerprint: str, budget: float, others: Mapping[str, Any]) -> str:
    """Identifies a module, the machine, versions, and the time of the comparison.

    Args:
        fingerprint: of the module as jax lowers it.
        budget: seconds.
        others: what else the decisions depend on, JSON-able.
    """
    jax = require_jax("hloenv.jit")
    machine = this_machine()
    parts = {
        "module": fingerprint,
        "machine": machine.id,
        "cores": len(os.sched_getaffinity(0)),
        "flags": machine.flags,
        "threads": os.environ.get("NPROC", ""),  # of jaxlib's runtime
        "compiler": _compiler_options(),
        "jax": jax.__version__,
        "build": build(),
        "rules": sources(),
        "budget": budget,
        **others,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _compiler_options() -> str:
    """A hash of jaxlib's options as jax sets them, such as the optimization level."""
    try:
        from jax._src.compiler import get_compile_options

        options = get_compile_options(num_replicas=1, num_partitions=1)
        return hashlib.sha256(options.SerializeAsString()).hexdigest()
    except (ImportError, AttributeError, TypeError):  # another version of jax
        return ""


def build() -> str:
    """The versions of jaxlib and hloenv, and which build the extension is."""
    jaxlib = require_jax("hloenv.jit").lib.__version__
    return f"jaxlib {jaxlib} hloenv {__version__} {core.tensorflow_version} {_STAMP}"


@functools.cache
def sources() -> str:
    """A hash of the sources that what is kept depends on."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((package / name).read_bytes())
    return digest.hexdigest()


def today() -> str:
    """The date, as 2026-11-23."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def recall(key: str) -> Verdict | None:
    """The verdict of an earlier process; None if there is none, or it is too old."""
    fields = recall_fields("verdict", key)
    if fields is None:
        return None
    try:
        interval = fields["interval"]
        found = Verdict(**{**fields, "interval": interval and tuple(interval)})
        return None if found.is_too_old else found
    except (ValueError, LookupError, TypeError):
        return None


def remember(key: str, verdict: Verdict) -> None:
    """Keeps a verdict for other processes, with today's date."""
    remember_fields("verdict", key, {**asdict(verdict), "date": today()})


def recall_fields(kind: str, key: str) -> dict[str, Any] | None:
    """What was kept under a key; None if there is nothing, or it is damaged."""
    try:
        text = read_file(_path(kind, key), max_bytes=_MAX_BYTES, is_own=True)
        found = json.loads(text)
        fields = found[kind]
        is_whole = isinstance(fields, dict) and found["checksum"] == _checksum(fields)
    # RuntimeError: there is no home folder.
    except (OSError, ValueError, LookupError, TypeError, RuntimeError):
        return None
    return fields if is_whole else None


def remember_fields(kind: str, key: str, fields: Mapping[str, Any]) -> None:
    """Keeps JSON-able fields for other processes, where that is possible."""
    text = json.dumps({kind: fields, "checksum": _checksum(fields)})
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(kind, key)
        write_own(path, text)
        _remove_old(path.parent)


@functools.cache
def _remove_old(folder: Path) -> None:
    """Removes what was kept long ago, once in a process: of earlier versions, mostly.

    Raises:
        OSError: the folder cannot be read.
    """
    oldest = time.time() - _MAX_FILE_DAYS * 86_400
    for path in folder.glob("*.json"):
        with contextlib.suppress(OSError):  # another process removes it, too
            if path.stat().st_mtime < oldest:
                path.unlink()


def _path(kind: str, key: str) -> Path:
    return default_path().parent / _FOLDERS[kind] / f"{key}.json"


def _checksum(fields: Mapping[str, Any]) -> str:
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
