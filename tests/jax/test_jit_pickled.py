# SPDX-License-Identifier: Apache-2.0
"""Functions of hloenv.jit travel to other processes as those of jax.jit do."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import hloenv

pytestmark = [pytest.mark.jax, pytest.mark.compile]


@hloenv.jit
def named(x):
    return x * 2


class Model:
    scale = 3.0

    @hloenv.jit(static_argnums=0)
    def method(self, x):
        return x * self.scale


@hloenv.jit(outputs="numpy")
def numpy_named(x):
    return x * 2


def plain(x, times=2):
    return x * times


other_name = hloenv.jit(plain, static_argnames="times", budget=0.25, remember=False)


@pytest.mark.needs("cloudpickle")
@pytest.mark.parametrize("fn", [named, numpy_named, Model.__dict__["method"]])
def test_a_function_of_a_module_is_pickled_by_name(fn):
    import cloudpickle

    assert pickle.loads(pickle.dumps(fn)) is fn
    assert cloudpickle.loads(cloudpickle.dumps(fn)) is fn


def test_copies_are_the_function_itself():
    for fn in (named, other_name, hloenv.jit(lambda x: x), numpy_named):
        assert copy.copy(fn) is fn
        assert copy.deepcopy(fn) is fn


def test_under_another_name_it_is_pickled_with_its_options():
    again = pickle.loads(pickle.dumps(other_name))
    assert again is not other_name
    assert again._options.given == {"static_argnames": "times"}
    assert (again._budget, again._decider._remembers) == (0.25, False)
    assert again(np.float32(2), times=3) == 6
    assert again.__name__ == "plain"


@pytest.mark.needs("cloudpickle")
@pytest.mark.parametrize("options", [{}, {"outputs": "numpy"}])
def test_local_functions_are_pickled_by_value(options):
    import cloudpickle

    factor = 4
    fn = hloenv.jit(lambda x: x * factor, **options)
    assert pickle.loads(cloudpickle.dumps(fn))(np.float32(2)) == 8


@pytest.mark.needs("cloudpickle")
def test_functions_of_a_script_are_pickled_by_value(run_child, tmp_path):
    path = tmp_path / "pickled"
    run_child(f"""
import pathlib, pickle
import cloudpickle, hloenv

@hloenv.jit
def fact(x, n=3):
    return x if n == 0 else x * n * fact.__wrapped__(x, n - 1)

def uses(x):
    return fact(x) + 1

assert pickle.loads(pickle.dumps(fact)) is fact
pathlib.Path({str(path)!r}).write_bytes(cloudpickle.dumps((fact, uses)))
""")
    child = run_child(f"""
import pathlib, pickle
fact, uses = pickle.loads(pathlib.Path({str(path)!r}).read_bytes())
print(float(fact(1.0)), float(uses(1.0)))
assert uses.__globals__["fact"] is fact is fact.__wrapped__.__globals__["fact"]
""")
    assert child.stdout == "6.0 7.0\n"
