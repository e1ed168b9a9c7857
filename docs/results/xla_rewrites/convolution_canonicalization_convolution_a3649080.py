"""XLA's pass convolution-canonicalization makes this 169 times slower on this CPU.

f32[1,63,63,64] convolution(f32[1,32,32,64], f32[3,3,64,1]), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01oi->b01f, feature_group_count=64

becomes

f32[1,32,32,64] transpose(f32[1,32,32,64]), dimensions={0,1,2,3}; f32[3,3,1,64] transpose(f32[3,3,64,1]), dimensions={0,1,3,2}; f32[1,63,63,64] convolution(f32[1,32,32,64], f32[3,3,1,64]), window={size=3x3 pad=1_1x1_1 lhs_dilate=2x2}, dim_labels=b01f_01io->b01f, feature_group_count=64; f32[1,63,63,64] transpose(f32[1,63,63,64]), dimensions={0,1,2,3}

Found in dm-haiku/real_haiku/image_net[net=mobilenet_v1x128]/grad. Prints the time as XLA compiles the function, and without the pass:

    python convolution_canonicalization_convolution_a3649080.py
"""

import json
import os
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

PASS = 'convolution-canonicalization'
PARAMETERS = [((1, 32, 32, 64), 'float32'), ((3, 3, 64, 1), 'float32')]


def function(p0, p1):
    v2 = lax.conv_general_dilated(p0, p1, [1, 1], [(1, 1), (1, 1)], [2, 2], [1, 1], lax.ConvDimensionNumbers((0, 3, 1, 2), (2, 3, 0, 1), (0, 3, 1, 2)), 64, 1)
    return v2


def milliseconds():
    """The fastest of several runs of jax.jit(function)."""
    rng = np.random.default_rng(0)
    arguments = [
        jnp.asarray(rng.normal(size=shape) if "int" not in kind and kind != "bool"
                    else np.zeros(shape), kind)
        for shape, kind in PARAMETERS
    ]
    run = jax.jit(function)
    jax.block_until_ready(run(*arguments))
    times = []
    end = time.perf_counter() + 2
    while len(times) < 5 or time.perf_counter() < end and len(times) < 1000:
        begin = time.perf_counter()
        jax.block_until_ready(run(*arguments))
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


def in_child(flags):
    """`milliseconds` in a process with these XLA_FLAGS."""
    flags = " ".join(filter(None, (os.environ.get("XLA_FLAGS"), flags)))
    child = subprocess.run(
        [sys.executable, __file__, "--child"],
        env={**os.environ, "XLA_FLAGS": flags},
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(child.stdout)


if __name__ == "__main__":
    if "--child" in sys.argv:
        print(milliseconds())
    else:
        found = {
            "with_ms": in_child(""),
            "without_ms": in_child("--xla_disable_hlo_passes=" + PASS),
        }
        print(json.dumps(found))
