# SPDX-License-Identifier: Apache-2.0
"""The solvers of jaxopt, run whole, stepped, and differentiated implicitly."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jaxopt

from hloenv_cases import Lower, case, floats


def _ridge(x, a, b):
    return jnp.mean((a @ x - b) ** 2) + 0.1 * jnp.sum(x**2)


def _logistic(x, a, b):
    return jnp.mean(jax.nn.softplus(-b * (a @ x))) + 0.01 * jnp.sum(x**2)


def _rosenbrock(x, a, b):
    base = 100 * jnp.sum((x[1:] - x[:-1] ** 2) ** 2) + jnp.sum((1 - x) ** 2)
    return base + 0.0 * (jnp.sum(a) + jnp.sum(b))


_SOLVERS = {
    "gradient_descent": lambda f: jaxopt.GradientDescent(f, maxiter=30),
    "bfgs": lambda f: jaxopt.BFGS(f, maxiter=30),
    "lbfgs": lambda f: jaxopt.LBFGS(f, maxiter=30),
    "lbfgs_zoom": lambda f: jaxopt.LBFGS(f, maxiter=30, linesearch="hager-zhang"),
    "nonlinear_cg": lambda f: jaxopt.NonlinearCG(f, maxiter=30),
    "polyak": lambda f: jaxopt.PolyakSGD(f, maxiter=30),
    "armijo": lambda f: jaxopt.ArmijoSGD(f, maxiter=30),
    "lbfgsb": lambda f: jaxopt.LBFGSB(f, maxiter=30),
}


@case(
    name=list(_SOLVERS),
    objective=[_ridge, _logistic, _rosenbrock],
    size=[(4, 10), (20, 50)],
)
def smooth(lower: Lower, name: str, objective, size) -> None:
    solver = _SOLVERS[name](objective)
    x, a, b = floats(size[0]), floats(size[1], size[0]), floats(size[1])
    extra = (
        {"bounds": (-jnp.ones(size[0]), jnp.ones(size[0]))} if name == "lbfgsb" else {}
    )
    lower("run", lambda x, a, b: solver.run(x, a=a, b=b, **extra).params, x, a, b)
    if name in ("lbfgsb", "lbfgs_zoom"):
        return
    lower("implicit", jax.grad(lambda b, x, a: jnp.sum(
        solver.run(x, a=a, b=b).params)), b, x, a)  # fmt: skip


_PROXES = {
    "lasso": (jaxopt.prox.prox_lasso, 0.1),
    "elastic": (jaxopt.prox.prox_elastic_net, (0.1, 0.1)),
    "group": (jaxopt.prox.prox_group_lasso, 0.1),
    "ridge": (jaxopt.prox.prox_ridge, 0.1),
    "positive": (jaxopt.prox.prox_non_negative_lasso, 0.1),
}


@case(prox=list(_PROXES), size=[(5, 12), (24, 40)])
def proximal(lower: Lower, prox: str, size) -> None:
    rule, weight = _PROXES[prox]
    solver = jaxopt.ProximalGradient(_ridge, rule, maxiter=30)
    x, a, b = floats(size[0]), floats(size[1], size[0]), floats(size[1])
    run = lambda x, a, b: solver.run(x, weight, a=a, b=b).params
    lower("run", run, x, a, b)
    lower("implicit", jax.grad(lambda b, x, a: jnp.sum(run(x, a, b))), b, x, a)


@case(size=[6, 40])
def projections(lower: Lower, size: int) -> None:
    x = floats(size)
    rules = jaxopt.projection
    ones = jnp.ones(size)
    made = {
        "simplex": lambda x: rules.projection_simplex(x),
        "l1_ball": lambda x: rules.projection_l1_ball(x),
        "l2_ball": lambda x: rules.projection_l2_ball(x),
        "box": lambda x: rules.projection_box(x, (-ones, ones)),
        "hyperplane": lambda x: rules.projection_hyperplane(x, (ones, 1.0)),
        "halfspace": lambda x: rules.projection_halfspace(x, (ones, 1.0)),
        "box_section": lambda x: rules.projection_box_section(
            x, (-ones, ones, ones, 1.0)
        ),
    }
    for name, function in made.items():
        lower(name, function, x)
        lower(f"{name}_jacobian", jax.jacobian(function), x)
        solver = jaxopt.ProjectedGradient(
            _ridge, lambda x, _, f=function: f(x), maxiter=20
        )
        lower(f"{name}_descent", lambda x, a, b, s=solver: s.run(
            x, None, a=a, b=b).params, x, floats(10, size), floats(10))  # fmt: skip


@case(size=[3, 16])
def equations(lower: Lower, size: int) -> None:
    x, a = floats(size), floats(size, size)

    def residual(x, a):
        return jnp.tanh(a @ x) - 0.5 * x + 0.1

    def fixed(x, a):
        return 0.5 * jnp.tanh(a @ x) + 0.1

    made = {
        "broyden": jaxopt.Broyden(residual, maxiter=20),
        "gauss_newton": jaxopt.GaussNewton(residual, maxiter=10),
        "levenberg": jaxopt.LevenbergMarquardt(residual, maxiter=10),
        "fixed_point": jaxopt.FixedPointIteration(fixed, maxiter=30),
        "anderson": jaxopt.AndersonAcceleration(fixed, maxiter=30),
    }
    for name, solver in made.items():
        lower(f"{name}_run", lambda x, a, s=solver: s.run(x, a).params, x, a)
        lower(f"{name}_implicit", jax.grad(lambda a, x, s=solver: jnp.sum(
            s.run(x, a).params)), a, x)  # fmt: skip
    lower("bisection", lambda b: jaxopt.Bisection(
        lambda x, b: x**3 - x - b, 1.0, 3.0, maxiter=30).run(None, b).params,
        floats())  # fmt: skip


@case(size=[4, 12])
def programs(lower: Lower, size: int) -> None:
    q, c = floats(size, size), floats(size)
    a, b = floats(2, size), floats(2)
    g, h = floats(size, size), floats(size)

    def spd(q):
        return q @ q.T + jnp.eye(size)

    def equality(q, c, a, b):
        return (
            jaxopt.EqualityConstrainedQP()
            .run(params_obj=(spd(q), c), params_eq=(a, b))
            .params.primal
        )

    def box(q, c, h):
        solver = jaxopt.BoxOSQP(maxiter=40)
        return solver.run(
            params_obj=(spd(q), c), params_eq=jnp.eye(size), params_ineq=(-h, h)
        ).params.primal

    def osqp(q, c, a, b, g, h):
        solver = jaxopt.OSQP(maxiter=40)
        return solver.run(
            params_obj=(spd(q), c), params_eq=(a, b), params_ineq=(g, h)
        ).params.primal

    lower("equality", equality, q, c, a, b)
    lower("equality_grad", jax.grad(lambda *x: jnp.sum(equality(*x))), q, c, a, b)
    lower("box", box, q, c, h)
    lower("osqp", osqp, q, c, a, b, g, h)


@case(size=[8, 32])
def losses(lower: Lower, size: int) -> None:
    x, y = floats(5, size), floats(5, size)
    rules = {
        "sparse_plus": lambda x, y: jaxopt.loss.make_fenchel_young_loss(
            lambda z: jax.scipy.special.logsumexp(z)
        )(y[0], x[0]),
        "huber": lambda x, y: jnp.mean(jaxopt.loss.huber_loss(y, x)),
        "isotonic": lambda x, y: jnp.sum(jaxopt.isotonic.isotonic_l2_pav(x[0], y[0])),
        "transport": lambda x, y: jnp.sum(
            jaxopt.projection.projection_transport(
                x[:, :5], (jnp.ones(5) / 5, jnp.ones(5) / 5)
            )
        ),
    }
    for name, rule in rules.items():
        lower(name, rule, x, y)
        lower(f"{name}_grad", jax.grad(rule), x, y)
