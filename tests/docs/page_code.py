# SPDX-License-Identifier: Apache-2.0
"""The code blocks of a page, and a program that runs them in order.

    python tests/docs/page_code.py PAGE [ROOT]

runs the blocks of one page in the current folder, which should be empty:

* `python`: all blocks of the page share one namespace. A `text` block right below one is
  what it prints. Blocks with a title are also a file of that name, which the commands
  below can read.
* `console`: a line that starts with "$ " is a command, and the lines below it are what
  it prints. A command without such lines may print anything.
* `hlo` with a title: a file of that name, which the blocks below can read.
* `cpp` with a title: an excerpt of that file of the repository (ROOT).

"..." in what is printed, and in an excerpt, stands for anything. A comment right above a
block changes that: `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
LANGUAGES = frozenset({"python", "console", "text", "hlo", "cpp"})


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block.

    Attributes:
        language: as the fence names it; "" for none.
        title: of the fence, or "".
        line: of the page where the code starts, from 1.
        text: the code, with a final newline.
        not_run: the reason why it is not run; "" where it is.
        previous: the language of the block right above, with nothing between; or "".
    """

    language: str
    title: str
    line: int
    text: str
    not_run: str
    previous: str


def code_blocks(page: Path) -> list[CodeBlock]:
    """The fenced blocks of a page, in order."""
    blocks: list[CodeBlock] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    reason = previous = ""
    while number < len(lines):
        line = lines[number]
        number += 1
        if match := _FENCE.match(line):
            end = lines.index("```", number)
            text = "".join(f"{each}\n" for each in lines[number:end])
            language, title = match[1], match[2] or ""
            blocks.append(
                CodeBlock(language, title, number + 1, text, reason, previous)
            )
            number, reason, previous = end + 1, "", language
        elif line.lstrip().startswith(("```", "~~~")):
            raise ValueError(f"{page}:{number}: no fence as in page_code.py: {line}")
        elif line.strip():
            match = _NOT_RUN.match(line)
            reason, previous = (match[1] if match else ""), ""
    return blocks


def _matches(wanted: str, found: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(wanted, found, flags)


def _commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what it prints."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        size = 1
        while lines[size - 1].endswith("\\"):
            size += 1
        yield "\n".join(lines[:size]), "\n".join(lines[size:])


_PRELUDE = 'hloenv() { "$HLOENV_PYTHON" -m hloenv "$@"; }\n'


def _run_command(command: str) -> str:
    child = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", _PRELUDE + command],
        env={**os.environ, "HLOENV_PYTHON": sys.executable, "COLUMNS": "88"},
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise AssertionError(
            f"{command} ended with {child.returncode}:\n{child.stdout}{child.stderr}"
        )
    return child.stdout


class Page:
    """Runs the blocks of one page in the current folder."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._namespace: dict[str, Any] = {"__name__": "__main__"}
        self._printed = ""

    def run(self) -> None:
        for block in code_blocks(self._path):
            if block.not_run:
                continue
            try:
                getattr(self, f"_{block.language}")(block)
            except BaseException as error:
                error.add_note(f"in the block at {self._path}:{block.line}")
                raise

    def _python(self, block: CodeBlock) -> None:
        if block.title:
            with Path(block.title).open("a", encoding="utf-8") as file:
                file.write(block.text)
        # So that tracebacks name the page's own lines.
        text = "\n" * (block.line - 1) + block.text
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(text, str(self._path), "exec"), self._namespace)
        self._printed = printed.getvalue()

    def _text(self, block: CodeBlock) -> None:
        if block.previous == "python":
            self._check(block.text, self._printed)

    def _console(self, block: CodeBlock) -> None:
        for command, wanted in _commands(block.text):
            printed = _run_command(command)
            if wanted.strip():
                self._check(wanted, printed)

    def _hlo(self, block: CodeBlock) -> None:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")

    def _cpp(self, block: CodeBlock) -> None:
        source = (self._root / block.title).read_text(encoding="utf-8")
        self._check(f"...{block.text}...", source)

    def _check(self, wanted: str, found: str) -> None:
        if not _matches(wanted, found):
            raise AssertionError(f"the page has\n{wanted}\nbut this is\n{found}")


if __name__ == "__main__":
    Page(Path(sys.argv[1]), Path(sys.argv[2])).run()
