"""XLA's pass reshape-mover makes this 1.41 times slower on this CPU.

f32[1,1,768] add(f32[1,1,768], f32[1,1,768])

becomes

f32[768] add(f32[768], f32[768]); f32[1,1,768] reshape(f32[768])

Found in transformers-decoders/real_transformers_decoders/decoder[model=_gpt2x768x2x12,length=128]/decode_step. Prints the time as XLA compiles the function, and without the pass:

    python reshape_mover_add_d9a314e6.py
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
PARAMETERS = [((12, 64, 128), 'float32'), ((12, 128), 'float32'), ((768, 768), 'float32'), ((768,), 'float32')]


def function(p0, p1, p2, p3):
    v2 = lax.dot_general(p0, p1, (([2], [1]), ([0], [0])), preferred_element_type='float32')
    v3 = lax.reshape(v2, (768,))
    v5 = lax.transpose(p2, [1, 0])
    v6 = lax.dot_general(v3, v5, (([0], [0]), ([], [])), preferred_element_type='float32')
    v7 = lax.reshape(v6, (1, 1, 768))
    v9 = lax.reshape(p3, (1, 1, 768))
    v10 = lax.add(v7, v9)
    return v10


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
