# SPDX-License-Identifier: Apache-2.0
"""Installs and runs one source and describes its modules, once per version."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hloenv.process.child import child_environment

from . import fetch, normalize, sandbox
from .manifest import Source

CHILD = Path(__file__).resolve().parent / "child"
DESCRIBE_TIMEOUT_S = 1800
# Crashes of XLA allowed while describing the modules of a source.
_MAX_CRASHES = 20


@dataclass(frozen=True)
class Settings:
    """Settings of a build.

    Attributes:
        out: folder of the build.
        prefer: "pypi", "git" or "path": the preferred origin.
        keep_venvs: whether to keep the environments of finished sources.
        lock: whether to write the installed packages to `locks/`.
        site_packages: packages to use instead of installing any; for tests.
    """

    out: Path
    prefer: str = ""
    keep_venvs: bool = False
    lock: bool = False
    site_packages: Path | None = None


@dataclass
class Outcome:
    """The result of one source.

    Attributes:
        source: its name.
        status: "done", "failed".
        detail: why it failed.
        key: hash of the inputs; a source with another one is run again.
        origin: "pypi", "git" or "path".
        network: how network access was blocked: "namespace" or "guard".
        jax: version of jax.
        seconds: run time, for display.
        num_modules: number of described modules, copies included.
        failures: [name, reason] of failed cases and rejected modules.
        packages: the installed packages.
    """

    source: str
    status: str = "failed"
    detail: str = ""
    key: str = ""
    origin: str = ""
    network: str = ""
    jax: str = ""
    seconds: float = 0.0
    num_modules: int = 0
    failures: list[list[str]] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def origin_of(source: Source, prefer: str) -> str:
    """Returns the preferred origin if the source has it, else its default."""
    has = {
        "pypi": bool(source.pypi),
        "git": bool(source.commit),
        "path": bool(source.path),
    }
    return prefer if has.get(prefer) else source.origin


def key_of(source: Source, origin: str) -> str:
    """Returns a hash of everything that determines the modules of a source."""
    values = dataclasses.asdict(source)
    for name in ("folder", "verified", "timeout_s", "max_memory_gb", "family"):
        del values[name]
    # Without the split, which has no effect, and defaults, so that older keys stay
    # valid.
    del values["split"]
    if not values["real_entries"]:
        del values["real_entries"]
    digest = hashlib.sha256(json.dumps([values, origin], sort_keys=True).encode())
    for path in [*source.entry_paths, *sorted(CHILD.glob("*.py"))]:
        # Independent of formatting and comments.
        digest.update(ast.dump(ast.parse(path.read_bytes())).encode())
    lock = fetch.lock_path(source)
    if lock.is_file():
        digest.update(lock.read_bytes())
    digest.update(str(normalize.VERSION).encode())
    return digest.hexdigest()


def load_outcome(source: Source, settings: Settings) -> Outcome | None:
    """Returns the outcome of an earlier build of the same source, or None."""
    path = settings.out / "sources" / source.name / "outcome.json"
    try:
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    if outcome.key != key_of(source, origin_of(source, settings.prefer)):
        return None
    if outcome.status == "done" and not modules_path(source, settings).is_file():
        return None
    return outcome


def modules_path(source: Source, settings: Settings) -> Path:
    """Returns the path of the described modules of a source."""
    return settings.out / "sources" / source.name / "modules.jsonl"


def harvest(source: Source, settings: Settings) -> Outcome:
    """Installs a source, runs its entries and describes its modules.

    The outcome is written atomically at the end, so that an interrupted build repeats
    only the sources in progress.
    """
    folder = settings.out / "sources" / source.name
    if folder.exists():
        shutil.rmtree(folder)
    (folder / "home").mkdir(parents=True)
    start = time.monotonic()
    origin = origin_of(source, settings.prefer)
    outcome = Outcome(source.name, key=key_of(source, origin), origin=origin)
    try:
        _harvest(source, settings, folder, outcome)
    except (fetch.FetchError, HarvestError) as error:
        outcome.detail = str(error)[:2000]
    outcome.seconds = round(time.monotonic() - start, 1)
    for name in ("home", *(() if settings.keep_venvs else ("venv", "checkout"))):
        shutil.rmtree(folder / name, ignore_errors=True)
    if settings.lock and outcome.status == "done":
        lock = fetch.lock_path(source)
        lock.parent.mkdir(exist_ok=True)
        lock.write_text("\n".join(outcome.packages) + "\n", encoding="utf-8")
        outcome.key = key_of(source, origin)
    written = folder / "outcome.json.part"
    text = json.dumps(dataclasses.asdict(outcome), indent=1)
    written.write_text(text, encoding="utf-8")
    written.rename(folder / "outcome.json")
    return outcome


class HarvestError(RuntimeError):
    """A source produced no modules."""


def _harvest(
    source: Source, settings: Settings, folder: Path, outcome: Outcome
) -> None:
    log = folder / "log.txt"
    python, tree = fetch.install(
        source,
        folder,
        origin=outcome.origin,
        log=log,
        site_packages=settings.site_packages,
    )
    outcome.packages = [] if settings.site_packages else fetch.freeze(python)
    raw = folder / "raw"
    raw.mkdir()
    endings = [
        _run(source, [python, CHILD / "run_source.py", *arguments], folder, tree)
        for arguments in [
            *(["entry", raw, path.resolve()] for path in source.entry_paths),
            *(["script", raw, *line.split()] for line in source.scripts),
        ]
    ]
    outcome.network = endings[0].network
    outcome.failures = [
        [name, f"{ending.status}: {ending.detail}"]
        for name, ending in zip(
            [*(path.name for path in source.entry_paths), *source.scripts],
            endings,
            strict=True,
        )
        if ending.status != "done"
    ]
    if not (raw / "index.jsonl").is_file():
        reasons = "; ".join(reason for _, reason in outcome.failures)
        raise HarvestError(reasons or "it lowered nothing")
    version = raw / "jax_version"
    outcome.jax = version.read_text() if version.exists() else source.jax
    _describe(raw, folder / "modules.jsonl", log)
    records = normalize.read(folder / "modules.jsonl")
    for record in records:
        if "fingerprint" not in record:
            name = record.get("module") or record["failure"]
            reason = record.get("rejected") or record["reason"]
            outcome.failures.append([name, reason])
    outcome.num_modules = sum("fingerprint" in record for record in records)
    if not outcome.num_modules:
        raise HarvestError("; ".join(": ".join(each) for each in outcome.failures[:3]))
    shutil.rmtree(raw)
    outcome.status = "done"


def _run(
    source: Source, command: list[Any], folder: Path, tree: Path | None
) -> sandbox.Ending:
    return sandbox.run(
        [str(part) for part in command],
        folder / "log.txt",
        cwd=tree or folder / "home",
        env=sandbox.clean_environment(folder / "home"),
        timeout_s=source.timeout_s,
        max_memory_bytes=int(source.max_memory_gb * 2**30),
    )


def _describe(raw: Path, out: Path, log: Path) -> None:
    root = CHILD.parent.parent
    paths = os.pathsep.join([str(root), child_environment()["PYTHONPATH"]])
    for _ in range(_MAX_CRASHES):
        ending = sandbox.run(
            # -P: untrusted code wrote the current folder.
            [sys.executable, "-P", "-m", "dataset.normalize", str(raw), str(out)],
            log,
            cwd=raw,
            env=sandbox.clean_environment(raw) | {"PYTHONPATH": paths},
            timeout_s=DESCRIBE_TIMEOUT_S,
            max_memory_bytes=8 << 30,
        )
        if ending.status == "done":
            return
        if not out.exists():
            break
    raise HarvestError(f"describing its modules: {ending.status}: {ending.detail}")
