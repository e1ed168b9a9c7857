# SPDX-License-Identifier: Apache-2.0
"""The learned cost model: features, checkpoints, estimates."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest

import hloenv
from hloenv import HloModule
from hloenv.cost import KernelCache, KernelSplit, get_estimator, open_estimator
from hloenv.cost.learned.ranking import mean_ranking, rank
from hloenv.errors import ArgumentError, GraphError
from support.paths import TESTDATA

pytestmark = [pytest.mark.learn, pytest.mark.needs("safetensors")]

SMALL = """HloModule m
ENTRY e {
  p = f32[64,32] parameter(0)
  q = f32[32,16] parameter(1)
  d = f32[64,16] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[64,16] tanh(d)
}
"""
FUSED = """HloModule m
fused {
  p = f32[4] parameter(0)
  e = f32[4] exponential(p)
  b = f32[8,4] broadcast(e), dimensions={1}
  ROOT n = f32[8,4] negate(b)
}
ENTRY e {
  p = f32[4] parameter(0)
  k = f32[8,4] fusion(p), kind=kLoop, calls=fused
  ROOT t = (f32[8,4]) tuple(k)
}
"""


@pytest.fixture
def checkpoint(tmp_path):
    """An untrained model."""
    return save(tmp_path / "model.safetensors")


def save(path, *, seed=0, **shape):
    import torch

    from hloenv.cost.learned.checkpoint import CostModel
    from hloenv.cost.learned.network import Ensemble, Shape

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ensemble = Ensemble(Shape(**{"width": 8, "rounds": 2, **shape}))
    CostModel(ensemble, {"threads": 1, "steps": 7}).save(path)
    return path


def modules():
    return [
        HloModule.from_text(SMALL),
        HloModule.from_text(SMALL.replace("64", "128")),
        HloModule.from_file(TESTDATA / "hlo" / "simplifications.hlo"),
    ]


# --- features


def test_elements_that_a_fusion_computes_again_are_counted() -> None:
    from hloenv.cost.learned.features import kernel_node_features, kernels_of
    from hloenv.graph.hlo_graph import opcodes

    kernels = kernels_of(HloModule.from_text(FUSED))
    assert len(kernels) == 1
    names = kernel_node_features()
    found = dict(
        zip(
            (opcodes()[i] for i in kernels.opcode),
            np.expm1(kernels.x[:, names.index("log_evaluations")]).round(3),
            strict=True,
        )
    )
    assert found["exponential"] == 32  # once for each of the 8 rows
    assert found["negate"] == 32
    repeated = kernels.x[:, names.index("log_repetitions")]
    assert np.expm1(repeated).max() == pytest.approx(8)


def test_features_of_a_kernel_do_not_depend_on_the_others() -> None:
    from hloenv.cost.learned.features import Kernels, kernels_of

    split = KernelSplit(modules()[2])
    assert len(split) > 2
    every = kernels_of(split.extract(range(len(split))))
    alone = [kernels_of(split.extract([i])) for i in range(len(split))]
    joined = Kernels.concatenate(alone)
    for name in ("opcode", "x", "work", "node_kernel", "edges", "edge_x", "kernel_x"):
        assert np.array_equal(getattr(every, name), getattr(joined, name)), name
    chosen = every.select(np.array([2, 0]))
    again = Kernels.concatenate([alone[2], alone[0]])
    assert np.array_equal(chosen.x, again.x)
    assert np.array_equal(chosen.edges, again.edges)


def test_dots_that_are_lowered_to_tiled_code_are_distinguished() -> None:
    from hloenv.cost.learned.features import kernel_node_features, kernels_of

    env = hloenv.HloEnv(SMALL)
    env.run_until("fusion")
    alternatives = env.get_alternatives("dot-lowering")
    column = kernel_node_features().index("is_tiled")
    found = []
    for decisions in (alternatives.reject_all(), np.ones(len(alternatives), np.int64)):
        split = KernelSplit(alternatives.apply(decisions))
        kernels = kernels_of(split.extract(range(len(split))))
        found.append(kernels.x[:, column].sum())
    assert found == [0, 1]


def test_modules_above_the_limit_and_of_another_form_are_errors() -> None:
    from hloenv.cost.learned.features import kernels_of

    with pytest.raises(GraphError, match="more than the limit of 3"):
        kernels_of(HloModule.from_text(FUSED), max_nodes=3)
    with pytest.raises(GraphError, match="tuple of its kernels"):
        kernels_of(HloModule.from_text(SMALL))


# --- ranking


def test_rankings_are_those_of_the_textbook() -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0])
    same = rank(times * 7, times)
    assert (same.kendall, same.spearman, same.slowdown) == (1.0, 1.0, (0.0, 0.0))
    turned = rank(-times + 9, times)
    assert turned.kendall == pytest.approx(-1)
    assert turned.slowdown == (3.0, 0.0)
    # One of six pairs is the wrong way round: (5 - 1) / 6; 1 - 6 * 2 / 60.
    near = rank(np.array([2.0, 1.0, 3.0, 4.0]), times)
    assert near.kendall == pytest.approx(4 / 6)
    assert near.spearman == pytest.approx(0.8)
    assert rank(np.ones(4), times).kendall == 0
    assert mean_ranking([same, turned]).kendall == pytest.approx(0)
    assert np.isnan(mean_ranking([]).kendall)


# --- checkpoints


def test_a_checkpoint_gives_the_same_estimates_again(checkpoint, tmp_path) -> None:
    from hloenv.cost.learned.checkpoint import load_cost_model
    from hloenv.cost.learned.estimator import LearnedCost

    model = load_cost_model(checkpoint)
    assert model.notes["steps"] == 7
    assert model.ensemble.shape.width == 8
    model.save(tmp_path / "again.safetensors")
    first, second = (
        LearnedCost(path).estimate_many(modules())
        for path in (checkpoint, tmp_path / "again.safetensors")
    )
    assert first == second


def test_wrong_checkpoints_say_what_is_wrong(checkpoint, tmp_path) -> None:
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    from hloenv.cost.learned.checkpoint import CostCheckpointError, load_cost_model

    with safe_open(checkpoint, framework="pt") as file:
        described = json.loads(file.metadata()["hloenv.cost"])
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118

    def refused(match, changed=None, tensors=None) -> None:
        path = tmp_path / "wrong.safetensors"
        text = json.dumps({**described, **(changed or {})})
        save_file({**weights, **(tensors or {})}, path, {"hloenv.cost": text})
        with pytest.raises(CostCheckpointError, match=match):
            load_cost_model(path)

    name = "networks.0.first.bias"
    refused("features old are not those of this version", {"features": "old"})
    refused("format 99, this version reads 1", {"format": 99})
    refused("holds NaN or infinity", None, {name: torch.full((8,), torch.nan)})
    refused("no checkpoint of a cost model", None, {name: torch.zeros(9)})
    refused("no checkpoint of a cost model", {"shape": {"width": "8"}})
    refused("width must be an integer from 1", {"shape": {"width": 10**9}})
    refused("multiple of 4", {"shape": {"width": 6}})
    damaged = tmp_path / "damaged.safetensors"
    damaged.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(CostCheckpointError, match="no checkpoint of a cost model"):
        load_cost_model(damaged)
    with pytest.raises(FileNotFoundError):
        load_cost_model(tmp_path / "nothing")


def test_a_checkpoint_that_is_a_pickle_is_not_executed(tmp_path) -> None:
    from hloenv.cost.learned.checkpoint import CostCheckpointError, load_cost_model

    path, made = tmp_path / "a.safetensors", tmp_path / "made"

    class Harmful:
        def __reduce__(self):
            return open, (str(made), "w")

    path.write_bytes(pickle.dumps(Harmful()))
    with pytest.raises(CostCheckpointError):
        load_cost_model(path)
    assert not made.exists()


def test_the_package_brings_a_small_model_with_its_record() -> None:
    from hloenv.cost.learned.checkpoint import DEFAULT_CHECKPOINT, load_cost_model

    assert DEFAULT_CHECKPOINT.stat().st_size <= 2_000_000
    notes = load_cost_model().notes
    assert [row["step"] for row in notes["curve"]] == sorted(
        row["step"] for row in notes["curve"]
    )
    # They change where features or weights do.
    estimates = get_estimator("learned").estimate_many(modules())
    assert [each.seconds for each in estimates] == pytest.approx(
        [6.1331e-06, 1.01116e-05, 7.3707e-08], rel=1e-3
    )


# --- estimates


def test_the_registry_makes_it_like_other_estimators(checkpoint) -> None:
    with open_estimator(f"learned:{checkpoint}") as estimator:
        found = estimator.estimate_many(modules())
        assert [each.is_ok for each in found] == [True, True, True]
        assert all(each.seconds > 0 and each.num_kernels > 0 for each in found)
        # One by one, it is the same: kernels are kept, and estimated by themselves.
        again = get_estimator(f"learned:{checkpoint}")
        assert [again.estimate(each).seconds for each in modules()] == pytest.approx(
            [each.seconds for each in found], rel=1e-5
        )


def test_a_kernel_goes_through_the_networks_once(checkpoint) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    learned = LearnedCost(checkpoint)
    learned.estimate_many(modules())
    first = learned.num_new
    assert first > 0
    learned.estimate_many(modules())
    assert learned.num_new == first


def test_estimates_take_one_thread(checkpoint, monkeypatch) -> None:
    import torch

    from hloenv.cost.learned.estimator import LearnedCost

    model, seen = LearnedCost(checkpoint, device="cpu"), []
    forward = type(model.model.ensemble).forward

    def watched(*arguments):
        seen.append(torch.get_num_threads())
        return forward(*arguments)

    monkeypatch.setattr(type(model.model.ensemble), "forward", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert model.estimate(modules()[0]).is_ok
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_the_members_disagree(checkpoint) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    (found,) = LearnedCost(checkpoint).predict_many(modules()[:1])
    assert found.seconds.shape == (3,)
    assert found.spread > 0
    assert found.seconds.min() <= found.mean_s <= found.seconds.max()


def test_a_module_without_kernels_takes_no_time(checkpoint) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    text = "HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }"
    learned = LearnedCost(checkpoint, measure_above=0.5)
    (found,) = learned.predict_many([HloModule.from_text(text)])
    learned.close()
    assert (found.error, found.num_kernels) == ("", 0)
    assert (found.mean_s, found.spread) == (0.0, 0.0)


@pytest.mark.parametrize("rank_", [7, 8, 9, 12])
def test_arrays_of_any_rank_have_an_estimate(checkpoint, rank_) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    shape = f"f32[{','.join(['2'] * rank_)}]"
    module = HloModule.from_text(
        f"HloModule m\nENTRY e {{\n  p = {shape} parameter(0)\n"
        f"  ROOT t = {shape} tanh(p)\n}}"
    )
    (found,) = LearnedCost(checkpoint).estimate_many([module])
    assert found.is_ok
    assert found.seconds > 0


def test_a_module_above_the_limit_fails_alone(checkpoint) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    small, _, large = modules()
    learned = LearnedCost(checkpoint, max_nodes=12)
    one, other = learned.estimate_many([large, small])
    assert not one.is_ok
    assert "more than the limit of 12" in one.error
    assert other.is_ok


def test_networks_that_give_nan_are_an_error_of_the_estimate(checkpoint) -> None:
    import torch

    from hloenv.cost.learned.checkpoint import load_cost_model
    from hloenv.cost.learned.estimator import LearnedCost

    model = load_cost_model(checkpoint)
    with torch.no_grad():
        model.ensemble.networks[0].first.bias.fill_(torch.nan)
    (found,) = LearnedCost(model).estimate_many(modules()[:1])
    assert "NaN" in found.error


def test_attention_looks_at_the_other_variants(tmp_path) -> None:
    import torch

    from hloenv.cost.learned.checkpoint import load_cost_model
    from hloenv.cost.learned.estimator import LearnedCost

    model = load_cost_model(save(tmp_path / "a.safetensors", has_attention=True))
    alone = LearnedCost(model).estimate_many(modules()[:1])
    with torch.no_grad():
        for each in model.ensemble.attentions:
            each.last.weight.copy_(torch.linspace(-1, 1, 8)[None])
    together = LearnedCost(model).estimate_many(modules()[:2])
    assert all(each.is_ok for each in together)
    assert together[0].seconds != pytest.approx(alone[0].seconds)


@pytest.mark.compile
def test_where_the_members_disagree_kernels_are_timed(checkpoint) -> None:
    from hloenv.cost.learned.estimator import LearnedCost

    module = modules()[2]
    with LearnedCost(checkpoint, measure_above=0.0) as learned:
        (found,) = learned.estimate_many([module])
        assert found.num_timed == found.num_kernels == learned.num_timed
        assert isinstance(learned._cache, KernelCache)
        # All kernels were timed: it is the estimate of the kernel cache.
        assert found.seconds == pytest.approx(
            learned._cache.estimate(module).seconds, rel=1e-6
        )
    with LearnedCost(checkpoint, measure_above=100.0) as learned:
        learned.estimate_many([module])
        assert learned.num_timed == 0


def test_wrong_options_are_errors(checkpoint) -> None:
    with pytest.raises(ArgumentError, match="must have a number >= 0"):
        get_estimator(f"learned:{checkpoint},measure-above=often")
    with pytest.raises(ArgumentError, match="a number >= 0, got -1"):
        get_estimator(f"learned:{checkpoint},measure-above=-1")
    with pytest.raises(ArgumentError, match="trained on kernels that ran on 1 cores"):
        get_estimator(f"learned:{checkpoint},measure-above=1", threads=2)
