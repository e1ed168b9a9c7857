"""XLA's pass algsimp makes this 21.4 times slower on this CPU.

f32[2,2,2,512] transpose(f32[2,2,2,512]), dimensions={0,1,2,3}

becomes

f32[3,3,512,512] reverse(f32[3,3,512,512]), dimensions={0,1}; f32[2,2,2,512] convolution(f32[3,3,512,512], f32[2,2,2,512]), window={size=2x2 rhs_reversal=1x1}, dim_labels=01fb_o01i->f01b

Found in dm-haiku/real_haiku/image_net[net=resnet18x64]/train_step. Prints the time as XLA compiles the function, and without the pass:

    python algsimp_transpose_98614f15.py
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

PASS = 'algsimp'
PARAMETERS = [((2, 2, 2, 512), 'float32'), ((3, 3, 512, 512), 'float32')]


def function(p0, p1):
    v1 = lax.transpose(p0, [0, 1, 2, 3])
    v3 = lax.transpose(p1, [0, 1, 3, 2])
    v4 = lax.conv_general_dilated(v1, v3, [1, 1], [(1, 1), (1, 1)], [1, 1], [1, 1], lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)), 1, 1)
    v5 = lax.transpose(v4, [0, 1, 2, 3])
    return v5


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
