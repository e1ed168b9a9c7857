# SPDX-License-Identifier: Apache-2.0
"""Images of galaxies with JAX-GalSim: profiles, convolutions, their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax_galsim as galsim

from hloenv_cases import Lower, case, uniform

_PROFILES = {
    "gaussian": lambda flux, size: galsim.Gaussian(flux=flux, half_light_radius=size),
    "exponential": lambda flux, size: galsim.Exponential(
        flux=flux, half_light_radius=size
    ),
    "moffat": lambda flux, size: galsim.Moffat(
        beta=2.5, flux=flux, half_light_radius=size
    ),
    "spergel": lambda flux, size: galsim.Spergel(
        nu=0.5, flux=flux, half_light_radius=size
    ),
    "box": lambda flux, size: galsim.Box(width=2 * size, height=size, flux=flux),
    "sum": lambda flux, size: (
        galsim.Gaussian(flux=flux, half_light_radius=size)
        + galsim.Exponential(flux=0.5 * flux, half_light_radius=2 * size)
    ),
}
_PARAMETERS = {"flux": (1.0, 10.0), "size": (0.6, 1.5), "g1": (-0.2, 0.2)}
_PARAMETERS |= {"g2": (-0.2, 0.2), "dx": (-0.5, 0.5)}


@case(name=list(_PROFILES), size=[32])
def profile(lower: Lower, name: str, size: int) -> None:
    params = {key: uniform(*range_) for key, range_ in _PARAMETERS.items()}

    def made(params):
        found = _PROFILES[name](params["flux"], params["size"])
        found = found.shear(g1=params["g1"], g2=params["g2"])
        return found.shift(params["dx"], 0.1)

    def draw(params):
        found = made(params)
        return found.drawImage(nx=size, ny=size, scale=0.2, method="no_pixel").array

    def convolved(params):
        options = galsim.GSParams(minimum_fft_size=128, maximum_fft_size=128)
        psf = galsim.Gaussian(flux=1.0, fwhm=0.7)
        both = galsim.Convolve(made(params), psf, gsparams=options)
        return both.drawImage(nx=size, ny=size, scale=0.2).array

    def loss(params, image):
        return jnp.sum((convolved(params) - image) ** 2)

    image = uniform(0.0, 0.1, size, size)
    lower("draw", draw, params)
    lower("draw_many", jax.vmap(draw), {
        key: uniform(*range_, 8) for key, range_ in _PARAMETERS.items()})  # fmt: skip
    lower("convolved", convolved, params)
    lower("grad", jax.grad(loss), params, image)
    if name != "spergel":
        lower("draw_jacobian", jax.jacfwd(draw), params)
