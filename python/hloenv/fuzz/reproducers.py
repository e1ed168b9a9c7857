# SPDX-License-Identifier: Apache-2.0
"""Cases that broke an invariant, as files: a module and a trace.

NAME.hlo is the module; NAME.json is a trace with the violation under "fuzz". `hloenv
apply NAME.json NAME.hlo` replays the decisions, and `hloenv fuzz --replay NAME.json`
checks them.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from .. import errors
from ..hlo.passes import Pipeline
from ..process.forkserver import Job, Pool
from ..rewrite.env import HloEnv
from ..rewrite.trace import FORMAT, ModuleId, Trace
from .cases import Case
from .matrix import load


@dataclass(frozen=True)
class Failure:
    """A broken invariant.

    Attributes:
        invariant: "invariant 3", "honesty", "relevant", "replay", "crash: capture", ...
        violation: message of the check.
        seed: "SEED:NUMBER" of the case.
        is_reduced: whether the saved module was reduced.
        path: path of the saved trace, "" if nothing was saved.
    """

    invariant: str
    violation: str
    seed: str
    is_reduced: bool
    path: str = ""

    def to_json(self) -> dict[str, Any]:
        """JSON-able."""
        return asdict(self)


def texts_of(case: Case) -> tuple[str, str]:
    """Runs in a child: returns the module's text and the trace's JSON.

    The trace ends at the last step that the environment can replay.
    """
    module = load(case.source, case.variant)
    text = module.to_text()
    start = ModuleId.of(module)
    # The module is parsed from the saved text, so that names agree.
    env = HloEnv(text)
    steps = case.steps or ()
    end = start
    try:
        for step in steps:
            pipelines = [Pipeline.from_json(each) for each in step.passes]
            if step.kind == "run":
                env.run(*pipelines)
            else:
                alternatives = env.get_alternatives(*pipelines)
                decisions = step.decisions or alternatives.reject_all()
                env.apply_alternatives(decisions)
        end = ModuleId.of(env.module)
    except errors.HloEnvError:
        pass
    return text, Trace(ModuleId.of(HloEnv(text).module), end, steps).to_json()


def save(pool: Pool, folder: Path, case: Case, failure: Failure) -> Failure:
    """Writes a case and returns the failure with its path."""
    folder.mkdir(parents=True, exist_ok=True)
    outcome = pool.run(Job(f"{__name__}:texts_of", (case,), 60.0))
    if outcome.error:
        # The steps crash this child too: save them without their results.
        text = case.source if "\n" in case.source else ""
        steps = [asdict(step) for step in case.steps or ()]
        trace: dict[str, Any] = {"format": FORMAT, "steps": steps}
    else:
        text, trace_json = outcome.value
        trace = json.loads(trace_json)
    digest = hashlib.sha256(
        (text + failure.invariant + failure.seed).encode()
    ).hexdigest()
    invariant = re.sub(r"[^a-z0-9]+", "-", failure.invariant.lower()).strip("-")
    name = f"{invariant}-{digest[:8]}"
    trace["fuzz"] = {
        "invariant": failure.invariant,
        "violation": failure.violation,
        "seed": failure.seed,
        "source": case.source if not text else f"{name}.hlo",
        "variant": case.variant if not text else "raw",
    }
    if text:
        (folder / f"{name}.hlo").write_text(text + "\n", encoding="utf-8")
    path = folder / f"{name}.json"
    path.write_text(json.dumps(trace, indent=1) + "\n", encoding="utf-8")
    return replace(failure, path=str(path))


def read_case(path: Path) -> Case:
    """Reads a saved case.

    Raises:
        FileNotFoundError: the trace or its module is missing.
        TraceError: the file is not a saved case.
    """
    text = path.read_text(encoding="utf-8")
    try:
        data = json.loads(text)
        found = data["fuzz"]
        if "start" not in data:
            data["start"] = data["end"] = {"fingerprint": "", "text_sha256": ""}
            data["tensorflow"] = ""
        source = found["source"]
        case = Case(
            source,
            found["variant"],
            found["seed"],
            Trace.from_json(json.dumps(data)).steps,
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, errors.TraceError):
            raise
        raise errors.TraceError(
            f"{path} is not a case saved by `hloenv fuzz`: {error!r}"
        ) from error
    if source.endswith(".hlo"):
        beside = path.with_name(source) if "/" not in source else Path(source)
        return replace(case, source=beside.read_text(encoding="utf-8"))
    return case
