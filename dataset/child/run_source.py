# SPDX-License-Identifier: Apache-2.0
"""Runs one entry file or one script of a source, inside the source's environment.

    python run_source.py entry FOLDER FILE
    python run_source.py script FOLDER examples/mnist.py --steps 2
    python run_source.py script FOLDER -m pytest tests/test_layers.py

Protos of the modules and `index.jsonl` go to FOLDER. An entry file lowers and compiles
nothing. A script runs as it is; XLA writes every module that it compiles before the
first pass.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path

# One `lower` of an entry may take this long.
CASE_LIMIT_S = 240


class _TooLong(Exception):  # noqa: N818 (what happened, not whose error)
    """A case takes more than its share."""


def _on_alarm(*_: object) -> None:
    raise _TooLong(f"more than {CASE_LIMIT_S} s")


def close_network() -> None:
    """Closes Python's sockets to all addresses, for kernels without namespaces."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network: the dataset is built from what was installed")

    for name in ("connect", "connect_ex", "sendto"):
        setattr(socket.socket, name, refuse)
    socket.getaddrinfo = refuse


def run_entry(folder: Path, file: Path) -> int:
    """Runs the cases of an entry file; returns the number of modules so far."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    import hloenv_cases

    signal.signal(signal.SIGALRM, _on_alarm)
    with (folder / "index.jsonl").open("a", encoding="utf-8") as index:
        runpy.run_path(str(file), run_name="hloenv_entry")
        return hloenv_cases.run_cases(folder, index, file.stem, limit_s=CASE_LIMIT_S)


def run_script(folder: Path, arguments: list[str]) -> int:
    """Runs a script or `-m module` and takes what it compiled; returns the number."""
    dump = Path(tempfile.mkdtemp())
    os.environ["XLA_FLAGS"] = " ".join(
        (
            os.environ.get("XLA_FLAGS", ""),
            f"--xla_dump_to={dump} --xla_dump_hlo_as_proto",
            # The code is run once: compile it quickly.
            "--xla_backend_optimization_level=0",
        )
    )
    is_module = arguments[0] == "-m"
    program, *rest = arguments[1:] if is_module else arguments
    sys.argv = [program, *rest]
    sys.path[0] = str(Path.cwd() if is_module else Path(program).resolve().parent)
    reason = ""
    try:
        if is_module:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        reason = f"exit code {error.code}" if error.code else ""
    except (
        BaseException
    ) as error:  # a script may fail in any way, and keeps its modules
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
    entry = " ".join(arguments)
    with (folder / "index.jsonl").open("a", encoding="utf-8") as index:
        if reason:
            record = {"entry": entry, "failure": entry, "reason": reason[:500]}
            index.write(json.dumps(record) + "\n")
        num_modules = _take(dump, folder, entry, index)
    shutil.rmtree(dump)
    return num_modules


def _take(dump: Path, folder: Path, entry: str, index: object) -> int:
    """Moves the dumped modules over, in the order in which they were compiled."""
    pattern = re.compile(r"module_(\d+)\.(.*)\.before_optimizations\.hlo\.pb\Z")
    found = [(pattern.match(path.name), path) for path in dump.iterdir()]
    dumped = sorted((int(m[1]), m[2], path) for m, path in found if m)
    position = len(list(folder.glob("*.pb")))
    seen: dict[str, int] = {}
    for _, name, path in dumped:
        seen[name] = seen.get(name, 0) + 1
        file = f"{position:05}.pb"
        shutil.copyfile(path, folder / file)
        record = {"entry": entry, "file": file, "ranges": []}
        record["module"] = f"{entry}/{name}.{seen[name]}"
        index.write(json.dumps(record) + "\n")  # type: ignore[attr-defined]
        position += 1
    return position


def main() -> int:
    """Returns 1 when not a single module was found."""
    kind, folder, *rest = sys.argv[1:]
    if os.environ.get("HLOENV_NO_NETWORK"):
        close_network()
    if kind == "entry":
        num_modules = run_entry(Path(folder), Path(rest[0]))
    else:
        num_modules = run_script(Path(folder), rest)
    import jax

    Path(folder, "jax_version").write_text(jax.__version__)
    sys.stdout.flush()
    return 0 if num_modules else 1


if __name__ == "__main__":
    sys.exit(main())
