"""XLA's pass reshape-mover makes this 5.23 times slower on this CPU.

f32[1,1,1024] add(f32[1,1,1024], f32[1,1,1024])

becomes

f32[1024] add(f32[1024], f32[1024]); f32[1,1,1024] reshape(f32[1024])

Found in transformers-decoders/real_transformers_decoders/decoder[model=_gpt2x256x4x4,length=128]/decode_step. Prints the time as XLA compiles the function, and without the pass:

    python reshape_mover_add_30297d0e.py
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

PASS = 'reshape-mover'
PARAMETERS = [((1, 1, 256), 'float32'), ((1024, 256), 'float32'), ((1024,), 'float32')]


def function(p0, p1, p2):
    v1 = lax.reshape(p0, (256,))
    v3 = lax.transpose(p1, [1, 0])
    v4 = lax.dot_general(v1, v3, (([0], [0]), ([], [])), preferred_element_type='float32')
    v5 = lax.reshape(v4, (1, 1, 1024))
    v7 = lax.reshape(p2, (1, 1, 1024))
    v8 = lax.add(v5, v7)
    return v8


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
