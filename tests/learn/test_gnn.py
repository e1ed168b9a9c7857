# SPDX-License-Identifier: Apache-2.0
"""Graph networks over alternatives, their checkpoints, and what they decide."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
import torch

from envs.modules import small
from hloenv import HloModule
from hloenv._checkpoints import write_checkpoint
from hloenv.cost.learned.threads import one_thread
from hloenv.envs import RewriteAllEnv, RewriteEnv, RewriteObservation
from hloenv.envs.candidates import CandidateTable
from hloenv.learn import chunks
from hloenv.learn.agent import DEFAULT_CHECKPOINT as PASS_ORDER
from hloenv.learn.agent import CheckpointError
from hloenv.learn.gnn import (
    DEFAULT_CHECKPOINT,
    GnnModel,
    GnnPolicy,
    GraphTooLargeWarning,
    load_gnn,
)
from hloenv.learn.networks import RewriteNetwork
from hloenv.learn.scores import Decisions, TrainingError
from hloenv.policies import get_policy
from hloenv.rewrite.env import HloEnv
from hloenv.rewrite.game import Game
from hloenv.search import get_search
from hloenv.search.spaces import get_space
from support.paths import TESTDATA

pytestmark = pytest.mark.needs("torch_geometric", "safetensors")


def network(seed=0, width=8, rounds=2):
    """A network whose scores differ."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = RewriteNetwork(width, rounds)
        for name, parameter in made.named_parameters():
            if parameter.dim() == 2 and "embedding" not in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return made.eval()


def observations():
    seen = []
    for make in (RewriteAllEnv, RewriteEnv):
        env = make(small(), observation="alternatives")
        observation, _ = env.reset()
        seen.append(observation)
        action = 0 if make is RewriteEnv else np.zeros(len(env.decisions), np.int64)
        seen.append(env.step(action)[0])
    return seen


@pytest.fixture(scope="module")
def alternatives():
    env = HloEnv(small())
    env.run_until("fusion")
    return env.get_alternatives("fusion", "general-fusion")


def test_groups_are_alternatives_or_all_rows_and_no_op() -> None:
    joint, joint_next, one, _ = observations()
    with torch.no_grad():
        scores = network()([joint, one, joint_next])
    assert len(scores.values) == 3
    num = len(joint.candidates.first)
    assert scores.owners.tolist().count(0) == num
    assert scores.owners.tolist().count(1) == 1
    groups = torch.bincount(scores.groups)
    assert groups[num] == len(one.candidates) + 1
    sizes = np.bincount(joint.candidates.alternative)
    assert groups[:num].tolist() == sizes.tolist()
    masked = torch.isinf(scores.logits[: len(joint.candidates)]).numpy()
    assert np.array_equal(masked, ~joint.candidates.allowed)


def test_a_batch_scores_as_each_alone() -> None:
    seen = observations()
    net = network()
    with torch.no_grad():
        together = net(seen)
        alone = [net([each]) for each in seen]
    assert torch.allclose(
        together.logits, torch.cat([each.logits for each in alone]), atol=1e-5
    )
    assert torch.allclose(
        together.values, torch.cat([each.values for each in alone]), atol=1e-5
    )


def test_the_order_of_alternatives_does_not_matter() -> None:
    """Every choice is scored by the same scorer, by what it is."""
    text = """HloModule m
ENTRY e {{
  x = f32[4] parameter(0)
  z = f32[] constant(0)
  zs = f32[4] broadcast(z), dimensions={{}}
  {} = f32[4] add(x, zs)
  {} = f32[4] add(x, zs)
  ROOT t = (f32[4], f32[4]) tuple({}, {})
}}"""
    policy = GnnPolicy(GnnModel(network(), True, {}))
    decided = []
    for names in (("a", "b", "a", "b"), ("b", "a", "b", "a")):
        env = HloEnv(HloModule.from_text(text.format(*names)))
        decided.append(policy(env.get_alternatives("algsimp")).tolist())
    assert decided[0] == decided[1]


def test_passes_that_the_training_did_not_have_are_left_to_xla(alternatives) -> None:
    default = CandidateTable(alternatives).default
    trained, decisions = next(
        (each, decisions)
        for each in map(network, range(20))
        for decisions in [GnnPolicy(GnnModel(each, True, {}))(alternatives)]
        if not np.array_equal(decisions, default)
    )
    for space, expected in (("fusion", decisions), ("algsimp", default)):
        model = GnnModel(trained, True, {"config": {"space": space}})
        assert np.array_equal(GnnPolicy(model)(alternatives), expected)


def test_features_far_from_the_trainings_are_limited() -> None:
    net = network(2)
    net.normalize(observations())
    (seen,) = observations()[:1]
    before = net([seen]).logits
    net.node_scale.fill_(1e-6)
    net.row_scale.fill_(1e-6)
    after = net([seen]).logits
    finite = torch.isfinite(before)
    assert bool((after[finite].abs() < 1e4).all())


def test_features_are_normalized_and_kept(tmp_path) -> None:
    net = RewriteNetwork(8, 1)
    net.normalize(observations())
    assert not torch.equal(net.node_mean, torch.zeros_like(net.node_mean))
    assert bool((net.row_scale > 0).all())
    GnnModel(net, True, {"step": 3}).save(tmp_path / "a.safetensors")
    again = load_gnn(tmp_path / "a.safetensors")
    for name, tensor in net.state_dict().items():
        assert torch.equal(again.network.state_dict()[name], tensor)
    assert again.notes == {"step": 3}
    assert again.is_joint


@pytest.mark.parametrize("is_joint", [True, False])
def test_a_policy_decides_what_can_be_applied(alternatives, is_joint) -> None:
    policy = GnnPolicy(GnnModel(network(4), is_joint, {}))
    decisions = policy(alternatives)
    assert np.array_equal(decisions, policy(alternatives))
    alternatives.apply(decisions, partial=True)
    rng = np.random.default_rng(0)
    drawn = {policy.sample(alternatives, rng).tobytes() for _ in range(8)}
    assert len(drawn) > 1


class OnDevice:
    """A tensor on a device, which numpy cannot read."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def cpu(self) -> torch.Tensor:
        return self.tensor

    def numpy(self) -> None:
        raise TypeError("can't convert device type tensor to numpy")


@pytest.mark.parametrize("is_joint", [True, False])
def test_choices_are_copied_from_the_device(
    alternatives, monkeypatch, is_joint
) -> None:
    policy = GnnPolicy(GnnModel(network(3), is_joint, {}))
    expected = policy(alternatives)
    mode, sample = Decisions.mode, Decisions.sample
    monkeypatch.setattr(Decisions, "mode", lambda self: OnDevice(mode(self)))
    monkeypatch.setattr(Decisions, "sample", lambda *a: OnDevice(sample(*a)))
    assert np.array_equal(policy(alternatives), expected)
    policy.sample(alternatives, np.random.default_rng(0))


def test_one_after_the_other_encodes_the_graph_once(alternatives, monkeypatch) -> None:
    net, calls = network(3), []
    with torch.no_grad():
        net.none[-1].bias.fill_(-50.0)  # never No-Op
    encode = RewriteNetwork.encode
    monkeypatch.setattr(
        RewriteNetwork, "encode", lambda *a: calls.append(0) or encode(*a)
    )
    GnnPolicy(GnnModel(net, False, {}))(alternatives)
    assert len(calls) == 1


def test_parts_give_the_same_scores_and_gradients(monkeypatch) -> None:
    found = []
    for size in (100_000, 1):
        monkeypatch.setattr(chunks, "MAX_SIZE", size)
        net = network().train()
        scores = net(observations())
        Decisions(scores).entropy().sum().backward()
        gradient = torch.cat(
            [p.grad.flatten() for p in net.parameters() if p.grad is not None]
        )
        found.append((scores.logits.detach(), gradient))
    for one, other in zip(*found, strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_an_untrained_scorer_leaves_everything_to_xla(alternatives) -> None:
    # All rows are alike, and the first is "as XLA decides".
    policy = GnnPolicy(GnnModel(RewriteNetwork(8, 1), True, {}))
    assert np.array_equal(policy(alternatives), alternatives.decisions_for("fusion"))
    env = HloEnv(small())
    assert (policy(env.get_alternatives("algsimp", "cse")) == -1).all()


def test_there_may_be_no_alternatives() -> None:
    module = HloModule.from_text(
        "HloModule e\nENTRY e { ROOT p = f32[4] parameter(0) }"
    )
    policy = GnnPolicy(GnnModel(network(), True, {}))
    assert policy(HloEnv(module).get_alternatives("algsimp")).tolist() == []


def test_xla_decides_graphs_above_the_limit(alternatives) -> None:
    policy = GnnPolicy(GnnModel(network(), True, {}), max_nodes=10)
    with pytest.warns(GraphTooLargeWarning, match="more than 10"):
        decisions = policy(alternatives)
    assert np.array_equal(decisions, alternatives.decisions_for("fusion"))


def test_scores_that_are_not_finite_are_an_error(alternatives) -> None:
    net = network()
    with torch.no_grad():
        net.score.bias.fill_(torch.nan)
    with pytest.raises(TrainingError, match="no finite score"):
        GnnPolicy(GnnModel(net, True, {}))(alternatives)


def test_the_policy_is_found_by_name(tmp_path, alternatives) -> None:
    model = GnnModel(network(5), True, {})
    model.save(tmp_path / "a.safetensors")
    policy = get_policy(f"gnn:{tmp_path / 'a.safetensors'}")
    assert np.array_equal(policy(alternatives), GnnPolicy(model)(alternatives))


def test_a_search_draws_from_the_policy(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    GnnModel(network(5), True, {}).save(path)
    game = Game(small(), get_space("fusion").stops)
    found = []
    for _ in range(2):
        search = get_search(f"policy:gnn:{path}", game, seed=1)
        while len(search.history) < 6 and (prefix := search.ask()) is not None:
            search.tell(prefix, 1.0)
        found.append([[each.tolist() for each in p] for p, _ in search.history])
    assert found[0] == found[1]
    assert len(found[0]) > 2
    plain = get_search("policy:fewest-ops", game, seed=1)
    assert plain.ask() is not None


def changed(path, made, **values):
    """A copy of a checkpoint, described in another way."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    with safe_open(path, framework="pt") as file:
        described = json.loads(file.metadata()["hloenv"]) | values
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    save_file(tensors, made, metadata={"hloenv": json.dumps(described)})


def test_checkpoints_of_other_features_are_refused(tmp_path) -> None:
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    GnnModel(network(), True, {}).save(path)
    with path.open("rb"):
        from hloenv.learn.networks import feature_names

        names = feature_names()
    names["candidates"] = ["is_round", *names["candidates"][1:]]
    changed(path, other, features=names)
    with pytest.raises(CheckpointError, match=r"gone is_round; new is_as_xla.*train"):
        load_gnn(other)
    changed(path, other, format=99)
    with pytest.raises(CheckpointError, match="format 99"):
        load_gnn(other)
    changed(path, other, network={"width": 9, "rounds": 2})
    with pytest.raises(CheckpointError, match="no checkpoint"):
        load_gnn(other)
    changed(path, other, network={"width": -1, "rounds": 2})
    with pytest.raises(CheckpointError, match="width"):
        load_gnn(other)


def test_damage_is_named(tmp_path) -> None:
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    write_checkpoint(path, "hloenv", {"kind": "rewrite"}, {})
    with pytest.raises(CheckpointError, match=r"train rewrite: it lacks 'format'$"):
        load_gnn(path)
    write_checkpoint(path, "another", {}, {})
    with pytest.raises(CheckpointError, match=r"train rewrite: it lacks 'hloenv'$"):
        load_gnn(path)
    GnnModel(network(), True, {}).save(path)
    changed(path, other, network={"width": 9, "rounds": 2})
    with pytest.raises(
        CheckpointError, match=r"state_dict for RewriteNetwork: size mismatch for \w+"
    ):
        load_gnn(other)


@pytest.mark.parametrize("value", ["lol", -1, None, 1])
def test_is_joint_must_be_a_bool(tmp_path, value) -> None:
    path, other = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    GnnModel(network(), True, {}).save(path)
    changed(path, other, is_joint=value)
    with pytest.raises(CheckpointError, match="is_joint must be true or false, got"):
        load_gnn(other)


def test_files_that_are_no_checkpoints_are_refused(tmp_path) -> None:
    path = tmp_path / "a.safetensors"
    for data in (b"", b"\0" * 64, b"\xff" * 64, b"text"):
        path.write_bytes(data)
        with pytest.raises(CheckpointError, match="no checkpoint"):
            load_gnn(path)
    with pytest.raises(FileNotFoundError, match="`hloenv train rewrite` makes one"):
        load_gnn(tmp_path / "nothing")
    with pytest.raises(CheckpointError, match="not a policy of rewrites"):
        load_gnn(PASS_ORDER)
    net = network()
    with torch.no_grad():
        net.first.weight[0, 0] = torch.inf
    GnnModel(net, True, {}).save(path)
    with pytest.raises(CheckpointError, match="not finite"):
        load_gnn(path)


def test_the_number_of_threads_is_left_as_it_was() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_gradients_reach_all_parameters() -> None:
    with warnings.catch_warnings():
        net = network().train()
        scores = net(observations())
        decisions = Decisions(scores)
        (decisions.entropy().sum() + scores.values.sum()).backward()
    without = [n for n, p in net.named_parameters() if p.grad is None]
    assert without == []


# What the shipped policy decides, and the scores of the first alternative; they change
# where features or weights do.
SHIPPED = {
    "small": ([-1, -1, -1], [-1.0481, -11.4420, -11.6981]),
    "simplifications": ([-1, -1, 1, -1, -1], [0.9366, -7.4182, -7.4682]),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_policy_decides_as_it_did_after_its_training(name) -> None:
    file = TESTDATA / "hlo" / "simplifications.hlo"
    module = small() if name == "small" else HloModule.from_file(file)
    found = HloEnv(module).get_alternatives("algsimp", "cse", "general-simplify")
    decisions, first = SHIPPED[name]
    assert get_policy("gnn")(found).tolist() == decisions
    model, table = load_gnn(), CandidateTable(found)
    progress = np.zeros(2, np.float32)
    seen = RewriteObservation(table.data, table.rows(), progress, model.is_joint)
    with torch.no_grad():
        logits = model.network([seen]).logits
    assert logits[: len(first)].tolist() == pytest.approx(first, abs=0.02)


def test_the_shipped_policy_was_not_trained_on_validation_modules() -> None:
    config = load_gnn().notes["config"]
    assert "/train" in config["train"]
    assert "/validation" in config["validation"]
    assert DEFAULT_CHECKPOINT.stat().st_size <= 2 * 2**20
