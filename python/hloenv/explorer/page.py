# SPDX-License-Identifier: Apache-2.0
"""The page as one file: the program, the styles and the answers to its questions."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .._files import replacing
from ..errors import HloEnvError
from .backend import Backend
from .server import to_json
from .static_files import read_static

# Before and after are kept for the alternatives with the largest static effect.
_MAX_DETAILS = 150
_MAX_DIFFS = 80
_MAX_CHANGES = 3
_POLL_S = 0.1


def write_page(
    backend: Backend,
    path: Path,
    *,
    stops: Sequence[tuple[str, Sequence[str]]] = (),
    has_timeline: bool = False,
) -> int:
    """Writes a read-only page, which needs neither hloenv nor a network.

    Args:
        backend: of the target.
        path: of the file.
        stops: the decision points to keep: position and passes of each; by default
            the one at which the target opens.
        has_timeline: also run XLA's own passes, and keep what they changed.

    Returns:
        Its size in bytes.

    Raises:
        HloEnvError: the module cannot be shown.
    """
    text = page_of(answers_of(backend, stops=stops, has_timeline=has_timeline))
    data = text.encode()
    with replacing(path) as draft:
        draft.write_bytes(data)
    return len(data)


def answers_of(
    backend: Backend,
    *,
    stops: Sequence[tuple[str, Sequence[str]]] = (),
    has_timeline: bool = False,
) -> dict[str, Any]:
    """What the server would answer, by the path of the question.

    "stops" has the answers that differ by decision point.
    """
    answers: dict[str, Any] = {"results": backend.results(), "stops": []}
    if not backend.has_module:
        return answers
    if has_timeline:
        answers |= _timeline(backend)
    for until, passes in stops:
        point = {"until": until, "occurrence": 1, "passes": list(passes)}
        backend.request("point", point)
        answers["stops"].append(_answers_at_stop(backend))
    if not stops:
        answers["stops"].append(_answers_at_stop(backend))
    return answers


def _answers_at_stop(backend: Backend) -> dict[str, Any]:
    rows = backend.request("alternatives", {})
    answers: dict[str, Any] = {
        "state": backend.request("state", {}),
        "alternatives": rows,
        "graph?which=current": backend.request("graph", {"which": "current"}),
    }
    for index, choice in _details(rows):
        answers[f"alternative?index={index}&choice={choice}"] = backend.request(
            "alternative", {"index": index, "choice": choice}
        )
    for name in ("python", "trace"):
        method = "finished_trace" if name == "trace" else name
        answers[name] = {"text": backend.request(method, {})}
    return answers


def _details(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """Alternative and choice of those that change most, by the static estimate."""
    pairs = [
        (-abs(choice["static_s"]), row["index"], number)
        for row in rows
        for number, choice in enumerate(row["choices"])
        if number > 0
    ]
    return [(index, choice) for _, index, choice in sorted(pairs)[:_MAX_DETAILS]]


def _timeline(backend: Backend) -> dict[str, Any]:
    """XLA's own passes, and what each of them changed.

    Raises:
        HloEnvError: the pipeline failed.
    """
    job = backend.start("timeline", {})
    while job["state"] == "running":
        time.sleep(_POLL_S)
        job = backend.job(job["id"])
    if job["timeline"] is None:
        raise HloEnvError(f"XLA's pipeline failed: {job['message']}")
    found: dict[str, Any] = {"timeline": job["timeline"]}
    changed = [each for each in job["timeline"]["stages"] if each["changed"]]
    for stage in changed[:_MAX_DIFFS]:
        index = stage["index"]
        diff = found[f"stage?index={index}"] = backend.stage(index)
        for row in diff["changes"][:_MAX_CHANGES]:
            key = f"change?index={index}&change={row['index']}"
            found[key] = backend.stage_change(index, row["index"])
    return found


def page_of(answers: dict[str, Any]) -> str:
    """One HTML text with everything in it; it may load nothing."""
    program = _static("explorer.js")
    styles = _static("explorer.css")
    icon = base64.b64encode(_static("icon.svg").encode()).decode()
    # In a script element, only "</script" and "<!--" end or change it.
    data = to_json(answers).decode().replace("<", "\\u003c")
    program = program.replace("</script", "<\\/script").replace("<!--", "\\x3c!--")
    policy = (
        f"default-src 'none'; script-src '{_hash(program)}'; "
        f"style-src '{_hash(styles)}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        '<meta charset="utf-8">': '<meta charset="utf-8">\n<meta '
        f'http-equiv="Content-Security-Policy" content="{policy}">',
        'href="icon.svg"': f'href="data:image/svg+xml;base64,{icon}"',
        '<link rel="stylesheet" href="explorer.css">': f"<style>{styles}</style>",
        '<script type="module" src="explorer.js">': '<script id="answers" '
        f'type="application/json">{data}</script>\n<script type="module">{program}',
    }
    places = re.compile("|".join(map(re.escape, parts)))
    return places.sub(lambda found: parts[found[0]], _static("index.html"))


def _static(name: str) -> str:
    found = read_static(name)
    assert found is not None
    return found[1].decode()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
