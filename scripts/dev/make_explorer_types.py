# SPDX-License-Identifier: Apache-2.0
"""Writes explorer/src/schema.ts from hloenv/explorer/schema.py.

python scripts/dev/make_explorer_types.py            # writes it
python scripts/dev/make_explorer_types.py --check    # fails if it differs
"""

from __future__ import annotations

import argparse
import sys
import types
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from hloenv.explorer import schema  # noqa: E402

_TARGET = ROOT / "explorer" / "src" / "schema.ts"
_PLAIN = {str: "string", int: "number", float: "number", bool: "boolean"}
_HEAD = """\
// SPDX-License-Identifier: Apache-2.0
// Written by scripts/dev/make_explorer_types.py from hloenv/explorer/schema.py.
"""


def to_typescript() -> str:
    """The TypedDicts of the schema as interfaces, in the order of the source."""
    parts = [_HEAD]
    for name, value in vars(schema).items():
        if typing.is_typeddict(value):
            parts.append(_interface(name, value))
    return "\n".join(parts)


def _interface(name: str, value: type) -> str:
    hints = typing.get_type_hints(value, vars(schema))
    doc = " ".join((value.__doc__ or "").split())
    fields = [f"  {key}: {_type(hint)};" for key, hint in hints.items()]
    return "\n".join([f"/** {doc} */", f"export interface {name} {{", *fields, "}", ""])


def _type(hint: object) -> str:
    if hint in _PLAIN:
        return _PLAIN[typing.cast("type", hint)]
    if hint is type(None):
        return "null"
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        inner = _type(arguments[0])
        return f"({inner})[]" if "|" in inner else f"{inner}[]"
    if origin is dict:
        return f"Record<{_type(arguments[0])}, {_type(arguments[1])}>"
    if origin in (types.UnionType, typing.Union):
        return " | ".join(_type(each) for each in arguments)
    if typing.is_typeddict(hint):
        return typing.cast("type", hint).__name__
    raise TypeError(f"no TypeScript for {hint}")


def main() -> int:
    """Writes or checks the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    text = to_typescript()
    if parser.parse_args().check:
        if _TARGET.read_text(encoding="utf-8") == text:
            return 0
        print(f"{_TARGET} differs from schema.py: run {__file__}", file=sys.stderr)
        return 1
    _TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
