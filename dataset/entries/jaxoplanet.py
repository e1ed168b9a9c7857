# SPDX-License-Identifier: Apache-2.0
"""Orbits and light curves of stars and planets with jaxoplanet."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxoplanet.core.kepler import kepler
from jaxoplanet.light_curves.limb_dark import light_curve
from jaxoplanet.orbits.keplerian import Central, System
from jaxoplanet.orbits.transit import TransitOrbit
from jaxoplanet.starry.light_curves import surface_light_curve
from jaxoplanet.starry.surface import Surface
from jaxoplanet.starry.ylm import Ylm

from hloenv_cases import Lower, case, floats, uniform


@case(times=[50, 1000])
def transit(lower: Lower, times: int) -> None:
    t = uniform(-0.5, 0.5, times)
    params = {
        "period": uniform(2.0, 4.0),
        "duration": uniform(0.1, 0.2),
        "impact": uniform(0.0, 0.5),
        "ratio": uniform(0.05, 0.15),
        "u": uniform(0.1, 0.3, 2),
    }

    def flux(p, t):
        orbit = TransitOrbit(
            period=p["period"],
            duration=p["duration"],
            time_transit=0.0,
            impact_param=p["impact"],
            radius_ratio=p["ratio"],
        )
        return light_curve(orbit, p["u"])(t)

    lower("flux", flux, params, t)
    lower.loss(lambda p, t, y: jnp.mean((flux(p, t) - y) ** 2), params, t, t)
    lower("jacobian", jax.jacfwd(flux), params, t)


@case(times=[20, 300], bodies=[1, 3])
def system(lower: Lower, times: int, bodies: int) -> None:
    t = uniform(0.0, 10.0, times)
    params = [
        {
            "period": uniform(3.0, 9.0),
            "eccentricity": uniform(0.05, 0.3),
            "omega": uniform(0.0, 3.0),
            "impact": uniform(0.0, 0.5),
            "radius": uniform(0.05, 0.1),
            "mass": uniform(0.001, 0.01),
        }
        for _ in range(bodies)
    ]

    def made(params):
        star = System(Central(mass=1.0, radius=1.0))
        for p in params:
            star = star.add_body(
                time_transit=0.5,
                period=p["period"],
                eccentricity=p["eccentricity"],
                omega_peri=p["omega"],
                impact_param=p["impact"],
                radius=p["radius"],
                mass=p["mass"],
            )
        return star

    lower("positions", lambda p, t: made(p).relative_position(t), params, t)
    lower("velocity", lambda p, t: made(p).radial_velocity(t), params, t)
    lower("flux", lambda p, t: light_curve(made(p), 0.1, 0.3)(t), params, t)
    lower.loss(
        lambda p, t, y: jnp.mean((made(p).radial_velocity(t).sum(0) - y) ** 2),
        params,
        *(t, t),
    )


@case(degree=[2, 5])
def surface(lower: Lower, degree: int) -> None:
    y = floats((degree + 1) ** 2 - 1)
    x = uniform(0.0, 1.5, 40)

    def made(y):
        dense = jnp.concatenate([jnp.ones(1), 0.05 * y])
        return Surface(y=Ylm.from_dense(dense), inc=1.2, u=(0.1, 0.2), normalize=False)

    def flux(y, x):
        one = lambda x: surface_light_curve(made(y), r=0.2, x=x, y=0.1, z=10.0)
        return jax.vmap(one)(x)

    lower("flux", flux, y, x)
    lower("grad", jax.grad(lambda y, x: jnp.sum(flux(y, x) ** 2)), y, x)
    lower("render", lambda y: made(y).render(res=40), y)


@case(times=[64, 2048])
def anomalies(lower: Lower, times: int) -> None:
    mean, eccentricity = uniform(0.0, 6.2, times), uniform(0.0, 0.8, times)
    lower("kepler", lambda m, e: kepler(m, e), mean, eccentricity)
    lower(
        "grad",
        jax.grad(lambda m, e: sum(jnp.sum(part) for part in kepler(m, e)), (0, 1)),
        *(mean, eccentricity),
    )
