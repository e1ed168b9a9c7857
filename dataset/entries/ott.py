# SPDX-License-Identifier: Apache-2.0
"""Optimal transport with OTT: Sinkhorn, Gromov-Wasserstein, soft sorting."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from ott.geometry import costs, geometry, grid, pointcloud
from ott.problems.linear import linear_problem
from ott.problems.quadratic import quadratic_problem
from ott.solvers.linear import sinkhorn, sinkhorn_lr
from ott.solvers.quadratic import gromov_wasserstein
from ott.tools import soft_sort
from ott.tools.gaussian_mixture import gaussian

from hloenv_cases import Lower, case, floats, key

_COSTS = {
    "sq_euclidean": costs.SqEuclidean,
    "euclidean": costs.Euclidean,
    "cosine": costs.Cosine,
    "pnorm": lambda: costs.PNormP(1.5),
    "soft_dtw": lambda: costs.SoftDTW(gamma=0.5),
}


@case(cost=list(_COSTS), size=[(8, 10, 2), (30, 40, 5)], lse=[True, False])
def transport(lower: Lower, cost: str, size, lse: bool) -> None:
    n, m, dim = size

    def solve(x, y):
        geom = pointcloud.PointCloud(x, y, cost_fn=_COSTS[cost](), epsilon=0.1)
        problem = linear_problem.LinearProblem(geom)
        out = sinkhorn.Sinkhorn(lse_mode=lse, max_iterations=50)(problem)
        return out.reg_ot_cost, out.f

    x, y = floats(n, dim), floats(m, dim)
    lower("solve", solve, x, y)
    lower("grad", jax.grad(lambda x, y: solve(x, y)[0]), x, y)


@case(options=["unbalanced", "momentum", "anderson", "matrix", "low_rank", "unrolled"],
      n=[12, 40])  # fmt: skip
def variants(lower: Lower, options: str, n: int) -> None:
    def solve(c):
        if options in ("matrix", "unbalanced", "momentum", "anderson", "unrolled"):
            geom = geometry.Geometry(cost_matrix=c**2, epsilon=0.1)
        else:
            geom = pointcloud.PointCloud(c[:, :3], c[:, 3:6], epsilon=0.1)
        tau = 0.9 if options == "unbalanced" else 1.0
        problem = linear_problem.LinearProblem(geom, tau_a=tau)
        if options == "low_rank":
            return sinkhorn_lr.LRSinkhorn(rank=3, max_iterations=20)(
                problem
            ).primal_cost
        extra = {}
        if options == "momentum":
            from ott.solvers.linear import acceleration

            extra["momentum"] = acceleration.Momentum(start=10, value=1.2)
        if options == "anderson":
            from ott.solvers.linear import acceleration

            extra["anderson"] = acceleration.AndersonAcceleration(memory=3)
        if options == "unrolled":
            extra["implicit_diff"] = None
        made = sinkhorn.Sinkhorn(max_iterations=40, **extra)
        return made(problem).reg_ot_cost

    lower("solve", solve, floats(n, n))
    lower("grad", jax.grad(solve), floats(n, n))


@case(size=[(6, 8), (16, 20)])
def gromov(lower: Lower, size) -> None:
    n, m = size

    def solve(x, y):
        problem = quadratic_problem.QuadraticProblem(
            pointcloud.PointCloud(x), pointcloud.PointCloud(y)
        )
        linear = sinkhorn.Sinkhorn(max_iterations=30)
        out = gromov_wasserstein.GromovWasserstein(
            linear, epsilon=0.5, max_iterations=5
        )
        return out(problem).matrix

    lower("solve", solve, floats(n, 2), floats(m, 3))


@case(n=[10, 50])
def sorting(lower: Lower, n: int) -> None:
    x = floats(n)
    for name, function in {
        "sort": lambda x: soft_sort.sort(x, epsilon=0.05),
        "ranks": lambda x: soft_sort.ranks(x, epsilon=0.05),
        "quantile": lambda x: soft_sort.quantile(x, 0.3, weight=0.1),
        "top_k": lambda x: soft_sort.topk_mask(x, k=3),
    }.items():
        lower(name, function, x)
        lower(f"{name}_grad", jax.grad(lambda x, f=function: jnp.sum(f(x))), x)


@case(size=[4, 8])
def more(lower: Lower, size: int) -> None:
    def on_grid(a):
        geom = grid.Grid(grid_size=(size, size), epsilon=0.1)
        a = jax.nn.softmax(a.ravel())
        problem = linear_problem.LinearProblem(geom, a, a[::-1])
        return sinkhorn.Sinkhorn(max_iterations=30)(problem).reg_ot_cost

    def bures(seed, points):
        one = gaussian.Gaussian.from_random(jax.random.wrap_key_data(seed), size)
        two = gaussian.Gaussian.from_samples(points)
        return one.w2_dist(two), one.transport(two, points)

    lower("grid", on_grid, floats(size, size))
    lower("bures", bures, key(), floats(20, size))
