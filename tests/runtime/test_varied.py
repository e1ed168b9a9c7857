# SPDX-License-Identifier: Apache-2.0
"""Other values for arrays that have one value throughout."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from hloenv.runtime.random_inputs import varied


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
)
@pytest.mark.parametrize("value", [0.0, 1.0, -2.0, 65504.0, "largest"])
def test_values_differ_and_stay_finite(dtype, value):
    if value == "largest":
        value = ml_dtypes.finfo(dtype).max
    (found,) = varied([np.full((3, 40), value, dtype)])
    assert found.dtype == dtype
    assert found.shape == (3, 40)
    exact = found.astype(np.float64)
    assert len(np.unique(exact)) > 20
    value = float(value)
    low, high = sorted((value / 2, value)) if value else (0.0, 0.5)
    rounding = max(abs(low), abs(high)) / 100
    assert np.isfinite(exact).all()
    assert ((low - rounding <= exact) & (exact <= high + rounding)).all()


def test_other_arrays_stay():
    arrays = [
        np.arange(4.0),
        np.zeros(4, np.int32),
        np.zeros(1),
        np.full(4, np.nan),
        np.full(4, np.inf),
        None,
    ]
    assert varied(arrays) == []
    found = varied([*arrays, np.zeros(3)])
    assert all(one is other for one, other in zip(found, arrays, strict=False))
    assert found[-1].any()
