"""XLA's pass tree_reduction_rewriter makes this 17.4 times slower on this CPU.

f32[] reduce(f32[512,2048], f32[]), dimensions={0,1}

becomes

f32[16,64] reduce-window(f32[512,2048], f32[]), window={size=32x32 stride=32x32}; f32[] reduce(f32[16,64], f32[]), dimensions={0,1}

Found in optax/real_optax/transformer_update[rule=lamb,size=512x2048x2]/update. Prints the time as XLA compiles the function, and without the pass:

    python tree_reduction_rewriter_reduce_b7ff9868.py
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

PASS = 'tree_reduction_rewriter'
PARAMETERS = [((512, 2048), 'float32')]


def function(p0):
    v1 = lax.mul(p0, p0)
    v2 = jnp.asarray(np.array([0], 'float32').reshape(()))
    v3 = lax.reduce(v1, v2, lax.add, [0, 1])
    return v3


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
