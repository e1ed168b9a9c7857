# SPDX-License-Identifier: Apache-2.0
"""Numbers of devices, and operations between them, on one device."""

from __future__ import annotations

import numpy as np
import pytest

import hloenv
from hloenv.errors import CompileError

pytestmark = pytest.mark.compile


def module_of(line: str) -> hloenv.HloModule:
    return hloenv.HloModule.from_text(f"""HloModule m
region {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
ENTRY main {{
  x = f32[4] parameter(0)
  {line}
}}""")


X = np.arange(4, dtype=np.float32)


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize("opcode", ["partition-id", "replica-id"])
def test_the_number_of_the_device_is_zero(opcode, engine):
    module = module_of(f"ROOT r = u32[] {opcode}()")
    (found,) = hloenv.compile(module, engine=engine)(X)
    assert found == 0


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("collective-permute(x), source_target_pairs={{0,0}}", X),
        ("collective-permute(x), source_target_pairs={}", 0 * X),
        ("all-reduce(x), replica_groups={}, to_apply=region", X),
        ("all-reduce(x), replica_groups={{0}}, to_apply=region", X),
        ("all-gather(x), replica_groups={}, dimensions={0}", X),
        ("reduce-scatter(x), replica_groups={{0}}, dimensions={0}, to_apply=region", X),
    ],
)
def test_operations_between_devices(line, expected, engine):
    (found,) = hloenv.compile(module_of(f"ROOT r = f32[4] {line}"), engine=engine)(X)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("engine", ["wheel", "jaxlib"])
@pytest.mark.parametrize(
    ("line", "devices"),
    [
        ("r = f32[4] collective-permute(x), source_target_pairs={{0,1},{1,0}}", 2),
        ("r = f32[4] collective-permute(x), source_target_pairs={{5,0}}", 6),
        ("r = f32[8] all-gather(x), replica_groups={{0,1}}, dimensions={0}", 2),
        # The rest of the result would be what was in memory.
        ("r = f32[8] all-gather(x), replica_groups={}, dimensions={0}", 2),
        ("r = f32[8] all-gather(x), replica_groups={{0}}, dimensions={0}", 2),
        (
            "r = f32[2] reduce-scatter(x), replica_groups={}, dimensions={0}, "
            "to_apply=region",
            2,
        ),
    ],
)
def test_several_devices_are_refused(line, devices, engine):
    with pytest.raises(CompileError, match=f"needs {devices} devices or more"):
        hloenv.compile(module_of(f"ROOT {line}"), engine=engine)
