# SPDX-License-Identifier: Apache-2.0
"""Files of versions in which passes had other names are read."""

from __future__ import annotations

import pytest

import hloenv
from hloenv.hlo.renamed import RENAMED, current_entry, stored_entry
from hloenv.measurement.config import Keys, Settings
from hloenv.rewrite.trace import Trace

POSITIONS = {"dot-lowering": "fusion", "thunk-order": "copy-insertion"}
# Nine small dots, which XLA would run concurrently.
DOTS = "\n".join(
    f"  d{i} = f32[16,16] dot(x, x), lhs_contracting_dims={{{i // 3 % 2}}}, "
    f"rhs_contracting_dims={{{i // 6}}}, operand_precision={{{precision},default}}"
    for i, precision in enumerate(("default", "high", "highest") * 3)
)
TEXT = f"""HloModule renamed

ENTRY main {{
  x = f32[16,16] parameter(0)
{DOTS}
  ROOT r = ({", ".join(["f32[16,16]"] * 9)}) tuple({", ".join(f"d{i}" for i in range(9))})
}}
"""

pytestmark = pytest.mark.parametrize(("earlier", "name"), RENAMED.items())


def _decided(name: str) -> hloenv.HloEnv:
    """An episode that decided on a pass."""
    env = hloenv.HloEnv(TEXT)
    env.run_until(POSITIONS[name])
    alternatives = env.get_alternatives(name)
    assert len(alternatives) > 0
    env.apply_alternatives(alternatives.decisions_for(name))
    return env


def test_a_pass_is_found_by_its_earlier_name(earlier: str, name: str) -> None:
    assert hloenv.Pass(earlier) == hloenv.Pass(name)
    assert hloenv.describe_pass(earlier).name == name
    assert earlier not in hloenv.list_passes()


def test_a_trace_with_the_earlier_name_is_replayed(earlier: str, name: str) -> None:
    env = _decided(name)
    text = env.trace.to_json()
    assert f'"{name}"' in text
    trace = Trace.from_json(text.replace(f'"{name}"', f'"{earlier}"'))
    assert hloenv.replay(trace, TEXT).fingerprint() == env.fingerprint()


def test_a_module_saved_with_the_earlier_name_is_read(
    earlier: str, name: str, tmp_path
) -> None:
    module = _decided(name).module
    path = tmp_path / "module.hlo"
    module.save(path)
    text = path.read_text()
    assert name in text
    again = hloenv.HloModule.from_text(text.replace(name, earlier))
    assert name in again.decided
    assert again.decided == module.decided
    assert again.position == module.position


def test_a_row_of_the_store_with_the_earlier_name_is_found(
    earlier: str, name: str
) -> None:
    module = _decided(name).module
    variant = Keys(module, None, Settings()).of(module).variant
    assert earlier in variant
    assert name not in variant


@pytest.mark.parametrize("end", ["", "?", "?1f0c", "!1"])
def test_entries_change_their_names_alone(earlier: str, name: str, end: str) -> None:
    assert current_entry(earlier + end) == name + end
    assert stored_entry(name + end) == earlier + end
    assert current_entry(f"{earlier}er{end}") == f"{earlier}er{end}"
