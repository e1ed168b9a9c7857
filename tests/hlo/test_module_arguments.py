# SPDX-License-Identifier: Apache-2.0
"""Functions of modules take text and paths too, and name what they cannot take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hloenv
from hloenv import policies
from hloenv.errors import HloEnvError, ParseError
from hloenv.hlo.pipeline import list_stages, run_until

TEXT = """HloModule m

ENTRY main {
  p = f32[4]{0} parameter(0)
  ROOT n = f32[4]{0} negate(p)
}
"""
X = np.ones(4, np.float32)
OF_MODULES: dict[str, Callable[[Any], Any]] = {
    "env": lambda given: hloenv.HloEnv(given).fingerprint(),
    "finish": lambda given: hloenv.finish(given).fingerprint(),
    "interpret": lambda given: hloenv.interpret(given, X)[0].tolist(),
    "list stages": lambda given: [stage.path for stage in list_stages(given)],
    "run passes": lambda given: hloenv.run_passes(given, "dce").module.fingerprint(),
    "run until": lambda given: run_until(given, "fusion").fingerprint(),
    "upcast": lambda given: hloenv.upcast_to_float64(given).fingerprint(),
}
OF_OTHERS: dict[str, Callable[[Any], Any]] = {
    "from file": hloenv.HloModule.from_file,
    "measure": hloenv.measure,
    "policy": policies.get_policy,
    "verify": hloenv.verify_alternatives,
}


@pytest.mark.parametrize("name", OF_MODULES)
def test_modules_text_and_paths_are_equal(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    call = OF_MODULES[name]
    expected = call(hloenv.HloModule.from_text(TEXT))
    for given in (TEXT, path, str(path)):
        assert call(given) == expected


@pytest.mark.parametrize("given", [3, None, b"HloModule m", [1]], ids=str)
@pytest.mark.parametrize("name", [*OF_MODULES, *OF_OTHERS])
def test_others_are_errors_that_name_the_type(name: str, given: object) -> None:
    call = {**OF_MODULES, **OF_OTHERS}[name]
    element = given[0] if isinstance(given, list) else given
    with pytest.raises(
        HloEnvError, match=rf"{type(given).__name__}|{type(element).__name__}"
    ):
        call(given)


@pytest.mark.parametrize("name", [*OF_MODULES, "from file"])
def test_an_empty_string_is_named(name: str) -> None:
    call = {**OF_MODULES, **OF_OTHERS}[name]
    with pytest.raises(ParseError, match="empty text or path was given"):
        call("")


@pytest.mark.parametrize(
    ("name", "content"),
    [("m.hlo", b"\x0a\x01m\xff"), ("m.pb", b"HloModule m, an_attribute=\xff")],
)
def test_a_file_that_is_not_text_is_named(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    offset = content.index(b"\xff")
    with pytest.raises(
        ParseError, match=f"{name}: this is not text: byte 0xff at offset {offset} is"
    ):
        hloenv.HloEnv(path)
