# SPDX-License-Identifier: Apache-2.0
"""A cost model that is trained: graph networks over kernels.

    estimator = hloenv.cost.get_estimator("learned")

`hloenv train cost-model` trains one; `LearnedCost` estimates with it.
"""

from __future__ import annotations
