# SPDX-License-Identifier: Apache-2.0
"""Every optimizer of optax on a small tree; its losses, projections and schedules."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from hloenv_cases import Lower, case, floats, ints

_OPTIMIZERS = {
    "adabelief": lambda: optax.adabelief(1e-3),
    "adadelta": lambda: optax.adadelta(1e-3),
    "adafactor": lambda: optax.adafactor(1e-3, min_dim_size_to_factor=8),
    "adagrad": lambda: optax.adagrad(1e-3),
    "adam": lambda: optax.adam(1e-3),
    "adamax": lambda: optax.adamax(1e-3),
    "adamaxw": lambda: optax.adamaxw(1e-3),
    "adamw": lambda: optax.adamw(1e-3),
    "adan": lambda: optax.adan(1e-3),
    "amsgrad": lambda: optax.amsgrad(1e-3),
    "fromage": lambda: optax.fromage(1e-3),
    "lamb": lambda: optax.lamb(1e-3),
    "lars": lambda: optax.lars(1e-3),
    "lion": lambda: optax.lion(1e-3),
    "nadam": lambda: optax.nadam(1e-3),
    "nadamw": lambda: optax.nadamw(1e-3),
    "noisy_sgd": lambda: optax.noisy_sgd(1e-3),
    "novograd": lambda: optax.novograd(1e-3),
    "optimistic_adam": lambda: optax.optimistic_adam(1e-3),
    "radam": lambda: optax.radam(1e-3),
    "rmsprop": lambda: optax.rmsprop(1e-3, momentum=0.9),
    "rprop": lambda: optax.rprop(1e-3),
    "sgd": lambda: optax.sgd(1e-2, momentum=0.9, nesterov=True),
    "sign_sgd": lambda: optax.sign_sgd(1e-3),
    "sm3": lambda: optax.sm3(1e-3),
    "yogi": lambda: optax.yogi(1e-3),
    "schedule_free": lambda: optax.contrib.schedule_free_adamw(1e-3),
    "prodigy": lambda: optax.contrib.prodigy(),
    "dadapt": lambda: optax.contrib.dadapt_adamw(),
    "dog": lambda: optax.contrib.dog(),
    "muon": lambda: optax.contrib.muon(1e-3),
    "ademamix": lambda: optax.contrib.ademamix(1e-3),
    "cocob": lambda: optax.contrib.cocob(),
    "mechanic": lambda: optax.contrib.mechanize(optax.adam(1e-3)),
    "clipped": lambda: optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)),
    ),
    "lookahead_chain": lambda: optax.chain(
        optax.add_noise(0.1, 0.5, 0), optax.centralize(), optax.trace(0.9)
    ),
    "every_k": lambda: optax.MultiSteps(
        optax.adam(1e-3), every_k_schedule=4
    ).gradient_transformation(),
    "finite": lambda: optax.apply_if_finite(optax.adam(1e-3), 5),
}


def _tree(sizes: tuple[int, ...]):
    pairs = zip(sizes[:-1], sizes[1:], strict=True)
    return [{"w": floats(m, n), "b": floats(n)} for m, n in pairs]


def _loss(params, x, y):
    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.mean(optax.l2_loss(x @ params[-1]["w"] + params[-1]["b"], y))


@case(name=list(_OPTIMIZERS), sizes=[(8, 16, 4), (32, 64, 64, 64, 8)])
def optimizer(lower: Lower, name: str, sizes) -> None:
    rule = _OPTIMIZERS[name]()
    params = _tree(sizes)
    state = lower.shapes(rule.init, params)

    def update(grads, state, params):
        changes, state = rule.update(grads, state, params)
        return optax.apply_updates(params, changes), state

    def train_step(params, state, x, y):
        grads = jax.grad(_loss)(params, x, y)
        return update(grads, state, params)

    lower("update", update, params, state, params)
    x, y = floats(16, sizes[0]), floats(16, sizes[-1])
    lower("train_step", train_step, params, state, x, y)


@case(size=[(8, 10), (64, 128)])
def losses(lower: Lower, size) -> None:
    batch, classes = size
    logits, labels = floats(batch, classes), ints(classes, batch)
    dense = floats(batch, classes)
    both = {
        "softmax": (
            lambda a, b: optax.softmax_cross_entropy_with_integer_labels(a, b).mean(),
            (logits, labels),
        ),
        "poly": (
            lambda a, b: optax.losses.poly_loss_cross_entropy(a, b, epsilon=1.0).mean(),
            (logits, dense),
        ),
        "sigmoid": (
            lambda a, b: optax.sigmoid_binary_cross_entropy(a, b).mean(),
            (logits, dense),
        ),
        "focal": (
            lambda a, b: optax.sigmoid_focal_loss(a, b, alpha=0.25).mean(),
            (logits, dense),
        ),
        "huber": (lambda a, b: optax.huber_loss(a, b).mean(), (logits, dense)),
        "log_cosh": (lambda a, b: optax.log_cosh(a, b).mean(), (logits, dense)),
        "cosine": (lambda a, b: optax.cosine_distance(a, b).mean(), (logits, dense)),
        "kl": (
            lambda a, b: optax.kl_divergence(jax.nn.log_softmax(a), b).mean(),
            (logits, dense),
        ),
        "hinge": (lambda a, b: optax.hinge_loss(a, b).mean(), (logits, dense)),
        "ranking": (
            lambda a, b: optax.losses.ranking_softmax_loss(a, b),
            (logits, dense),
        ),
        "ntxent": (lambda a, b: optax.ntxent(a, b), (logits, labels)),
        "triplet": (
            lambda a, b: optax.losses.triplet_margin_loss(a, b, a + b).mean(),
            (logits, dense),
        ),
        "sparsemax": (
            lambda a, b: jax.vmap(optax.losses.multiclass_sparsemax_loss)(a, b).mean(),
            (logits, labels),
        ),
        "perceptron": (
            lambda a, b: jax.vmap(optax.losses.multiclass_perceptron_loss)(a, b).mean(),
            (logits, labels),
        ),
        "dice": (lambda a, b: optax.losses.dice_loss(a, b).mean(), (logits, dense)),
    }
    for name, (function, args) in both.items():
        lower(name, function, *args)
        lower(f"{name}_grad", jax.grad(function), *args)


@case(frames=[12, 40])
def ctc(lower: Lower, frames: int) -> None:
    args = (
        floats(4, frames, 16),
        floats(4, frames),
        ints(16, 4, 8, low=1),
        floats(4, 8),
    )

    def loss(*args):
        return optax.ctc_loss(*args).mean()

    lower("loss", loss, *args)
    lower("grad", jax.grad(loss), *args)


@case(size=[8, 100])
def projections(lower: Lower, size: int) -> None:
    x = floats(size)
    for name in ("simplex", "l1_ball", "l2_ball", "linf_ball", "l1_sphere", "box"):
        function = getattr(optax.projections, f"projection_{name}")
        extra = (-1.0, 1.0) if name == "box" else ()
        lower(name, lambda x, f=function, e=extra: f(x, *e), x)
    lower("transport", lambda a, b: optax.assignment.hungarian_algorithm(a)[0] + b,
          floats(size, size), 0)  # fmt: skip
    lower("powerball", lambda a: optax.power_iteration(a), floats(size, size))


@case(size=[4, 32])
def lbfgs(lower: Lower, size: int) -> None:
    rule = optax.lbfgs(memory_size=5)

    def value(x, a):
        return jnp.sum((a @ x - 1.0) ** 2) + jnp.sum(jnp.cos(x))

    def step(x, state, a):
        f = lambda x: value(x, a)
        v, grad = optax.value_and_grad_from_state(f)(x, state=state)
        changes, state = rule.update(grad, state, x, value=v, grad=grad, value_fn=f)
        return optax.apply_updates(x, changes), state

    x, a = floats(size), floats(size, size)
    lower("step", step, x, lower.shapes(rule.init, x), a)
