# SPDX-License-Identifier: Apache-2.0
"""First-order solvers of linear programs with mpax."""

from __future__ import annotations

import jax
import mpax

from hloenv_cases import Lower, case, floats, uniform

_SOLVERS = {"raPDHG": mpax.raPDHG, "r2HPDHG": mpax.r2HPDHG}


def _arguments(variables: int, equalities: int, inequalities: int, *batch: int):
    return (
        floats(*batch, variables),
        floats(*batch, equalities, variables),
        floats(*batch, equalities),
        floats(*batch, inequalities, variables),
        floats(*batch, inequalities),
        uniform(-2.0, -1.0, *batch, variables),
        uniform(1.0, 2.0, *batch, variables),
    )


@case(solver=list(_SOLVERS), size=[(8, 2, 4), (40, 10, 20), (120, 30, 60)])
def linear(lower: Lower, solver: str, size) -> None:
    def solve(*problem):
        made = _SOLVERS[solver](
            jit=True, eps_abs=1e-4, eps_rel=1e-4, iteration_limit=256
        )
        program = mpax.create_lp(*problem, use_sparse_matrix=False)
        result = made.optimize(program)
        return result.primal_solution, result.dual_solution

    lower("solve", solve, *_arguments(*size))
    lower("batch", jax.vmap(solve), *_arguments(*size, 8))
