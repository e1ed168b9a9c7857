"""XLA's pass fusion makes this 1.7 times slower on this CPU.

f32[3,3,512,512] copy(f32[3,3,512,512])

becomes

f32[3,3,512,512] fusion(f32[3,3,512,512]), kind=kLoop

Found in transformers-vision/real_transformers_vision/classifier[model=_resnet18x128]/grad. Prints the time as XLA compiles the function, and without the pass:

    python fusion_copy_36f74413.py
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

PASS = 'fusion'
PARAMETERS = [((3, 3, 512, 512), 'float32')]


def function(p0):
    v1 = lax.rev(p0, [0, 1])
    v2 = lax.transpose(v1, [0, 1, 3, 2])
    v3 = v2
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
