"""XLA's pass algsimp makes this 12.8 times slower on this CPU.

f32[1,1024] dot(f32[1,512], f32[512,1024]), lhs_contracting_dims={1}, rhs_contracting_dims={0}

becomes

f32[512] reshape(f32[1,512]); f32[1024] dot(f32[512], f32[512,1024]), lhs_contracting_dims={0}, rhs_contracting_dims={0}; f32[1,1024] reshape(f32[1024])

Found in dm-haiku/real_haiku/recurrent[core=gru,size=512x1x32]/forward. Prints the time as XLA compiles the function, and without the pass:

    python algsimp_dot_4711e5f1.py
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
PARAMETERS = [((1, 512), 'float32'), ((512, 1536), 'float32')]


def function(p0, p1):
    v2 = lax.slice(p1, [0, 0], [512, 1024], [1, 1])
    v3 = lax.dot_general(p0, v2, (([1], [0]), ([], [])), preferred_element_type='float32')
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
