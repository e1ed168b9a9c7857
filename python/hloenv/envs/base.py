# SPDX-License-Identifier: Apache-2.0
"""What the environments share: benchmarks, observations, rewards, states, forks."""

from __future__ import annotations

import copy
import shlex
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from ..dataset.benchmarks import MODULE_SCHEME, Benchmark, find_benchmarks
from ..errors import ArgumentError, ForkError, HloEnvError
from ..hlo.module import HloModule
from ..hlo.pass_text import pass_text
from ..hlo.passes import Pass, Pipeline, run_passes
from ..rewrite.sandbox import Sandbox, isolated
from .episode import Episode, EpisodeOverError
from .integers import check_limit, is_integer
from .pass_memo import Node, PassMemo, Runner
from .render import render_ansi, render_rgb
from .rewards import RewardError, RewardSpace, get_reward, reward_now
from .spaces import get_observation
from .state import EpisodeState, ValidationResult
from .validation import compare_outputs, problems_of_repeat, replay

# Of one pass in the child process, in seconds.
_TIMEOUT_S = 60.0
# Modules that `reset` tries.
_MAX_DRAWS = 10


class CompilerEnv(Episode, gymnasium.Env[Any, Any]):
    """An environment whose actions change a module; see `Episode`.

    The actions are passes; environments with others override `num_actions`,
    `action_name`, `action_of`, `check_action`, `action_masks`, `_start`, `_act`,
    `_is_stop` and `_replay`.

    Attributes:
        benchmarks: from which `reset` draws.
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 2}  # noqa: RUF012
    _reward: RewardSpace

    def __init__(
        self,
        passes: Sequence[Pass | Pipeline],
        *,
        benchmark: str | HloModule,
        observation: str,
        reward: str,
        max_steps: int,
        isolate: bool | None,
        dry_run: bool,
        has_undo: bool,
        render_mode: str | None,
    ) -> None:
        """Checks the arguments; `reset` reads the first module."""
        check_limit("max_steps", max_steps)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ArgumentError(
                f"render_mode must be None, 'ansi' or 'rgb_array', got {render_mode!r}"
            )
        self.passes = tuple(passes)
        self.has_undo = has_undo
        names = [self.action_name(each) for each in range(self.num_actions)]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise ArgumentError(
                f"two actions are named {twice!r}; passes must differ in name or "
                "options, and pipelines in name"
            )
        self.max_steps = max_steps
        self.render_mode = render_mode
        self.memo = PassMemo(self.passes)
        self.actions: list[int] = []
        self.is_over = True
        self.error = ""
        self.extra_info: dict[str, Any] = {}
        self._isolate = isolate
        self._dry_run = dry_run
        self._sandbox: Sandbox | None = None
        self._names = (observation, reward)
        self._source = benchmark
        self._find()
        self._benchmark: Benchmark | None = None
        self.nodes: list[Node] = []
        # Those that can be taken back.
        self._path: list[Node] = []
        # Of this episode, by module: actions that changed nothing, or failed.
        self._unchanged: dict[str, set[int]] = {}
        self._rewards: list[float] = []
        self._seconds = 0.0
        # What the agent saw last.
        self._observed: Any = None
        self.observation_space = self._observation.space(self)

    # --- Gymnasium

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; where a pass fails on a drawn module, on another one.

        Args:
            seed: of the environment's random numbers.
            options: "benchmark": an `HloModule` or a URI to draw from, in place of
                those of the environment.

        Raises:
            ArgumentError: another option, or no such benchmark.
            HloEnvError: a pass fails on the module that was given, or on several
                drawn ones; there is no episode then.
        """
        super().reset(seed=seed)
        self.is_over = True
        options = {} if options is None else options
        if not isinstance(options, Mapping) or set(options) - {"benchmark"}:
            raise ArgumentError(f"the options of reset are: benchmark; got {options!r}")
        given = options.get("benchmark")
        if given is not None:
            benchmark = self._find_benchmark(given)
            start = self._start(benchmark)
        else:
            benchmark, start = self._draw()
        self._benchmark = benchmark
        self._begin(start)
        self._observed = self._observation.observe(self)
        return self._observed, self._info(changed=False)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one action.

        Raises:
            ArgumentError: the action is out of range.
            EpisodeOverError: there is no episode.
            ForkError, RewardError: XLA cannot run here; the reward is no finite number.
        """
        number = self.check_action(action)
        started = time.perf_counter()
        self.previous = self.node
        self.extra_info = {}
        self.actions.append(number)
        reward, before = 0.0, self._mark()
        measured = self.measured, self.measured_node
        try:
            self._act(number)
            is_last = len(self.actions) >= self.max_steps
            terminated = self._is_stop(number) or (is_last and self._reward.is_terminal)
            truncated = is_last and not terminated
            self.is_over = terminated or truncated
            reward = reward_now(self, self._reward, self._names[1])
            observation = self._observation.observe(self)
        except (ForkError, RewardError):
            self._return_to(before)
            self.actions.pop()
            self.is_over = False
            raise
        except HloEnvError as error:
            # Without the step: a copy of the environment does not take it either.
            self._return_to(before)
            self.error = f"{type(error).__name__}: {error}"
            terminated, truncated, self.is_over = True, False, True
            reward = 0.0
            self.measured, self.measured_node = measured
            self.extra_info = {}
            observation = self._observe_again()
        self._observed = observation
        self._seconds += time.perf_counter() - started
        self.nodes.append(self.node)
        self._rewards.append(reward)
        changed = self.node is not self.previous
        return observation, reward, terminated, truncated, self._info(changed=changed)

    def _observe_again(self) -> Any:
        """What is observed after a failure; what was, where that fails too."""
        try:
            return self._observation.observe(self)
        except HloEnvError:
            return self._observed

    def _draw(self) -> tuple[Benchmark, Node]:
        """A benchmark on which an episode can start, and the node it starts from."""
        num_draws = _MAX_DRAWS if len(self.benchmarks) > 1 else 1
        for number in range(1, num_draws + 1):
            drawn = int(self.np_random.integers(len(self.benchmarks)))
            benchmark = self.benchmarks[drawn]
            try:
                return benchmark, self._start(benchmark)
            except (ArgumentError, ForkError):
                raise
            except HloEnvError:
                if number == num_draws:
                    raise
        raise AssertionError("not reached")

    def _start(self, benchmark: Benchmark) -> Node:
        """The node that an episode on this benchmark starts from."""
        return self.memo.start(benchmark.load)

    def _mark(self) -> Any:
        """What `_act` may change."""
        return self.node, tuple(self._path)

    def _return_to(self, mark: Any) -> None:
        """Takes back what `_act` has changed since the mark."""
        self.node, path = mark
        self._path = list(path)

    def _is_stop(self, action: Any) -> bool:
        """Whether the action that was just taken ends the episode."""
        return bool(action == len(self.passes))

    def _act(self, number: Any) -> None:
        """Changes `node` as the action says."""
        if number == len(self.passes):
            return
        if number > len(self.passes):
            self.node = self._path.pop() if self._path else self.node
            return
        try:
            self.node = self.memo.run(self.node, number, self.runner())
        finally:
            if self.node is self.previous:
                known = self._unchanged.setdefault(self.node.fingerprint, set())
                known.add(number)
        if self.node is not self.previous:
            self._path.append(self.previous)

    def render(self) -> Any:
        """What has changed: a text, or an RGB array."""
        if self.render_mode == "rgb_array":
            return render_rgb(self.action_names, self._op_counts())
        if self.render_mode == "ansi":
            return render_ansi(self.action_names, self._op_counts(), self._rewards)
        return None

    def close(self) -> None:
        """Ends the child process, if there is one."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None

    # --- beyond Gymnasium

    def observe(self, name: str) -> Any:
        """Another observation of the module now, by name.

        Raises:
            ArgumentError: no observation has this name.
            EpisodeOverError: before the first `reset`.
        """
        self.check_begun()
        return get_observation(name).observe(self)

    def reward_of(self, name: str) -> float:
        """Another reward of the last step, by name.

        Raises:
            ArgumentError: no reward has this name.
            EpisodeOverError: before the first `reset`.
        """
        self.check_begun()
        return reward_now(self, get_reward(name), name)

    @property
    def reward_space(self) -> RewardSpace:
        """The reward: its unit, range and determinism."""
        return self._reward

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """[number of actions] False for passes known to change nothing here.

        Without `dry_run`, those that have not run on this module in this episode count
        as possible.

        Raises:
            EpisodeOverError: before the first `reset`.
        """
        self.check_begun()
        masks = np.ones(self.num_actions, np.bool_)
        if self._dry_run:
            for number in range(len(self.passes)):
                masks[number] = self.following(number) is not self.node
        else:
            masks[list(self._unchanged.get(self.node.fingerprint, ()))] = False
        if self.has_undo:
            masks[-1] = bool(self._path)
        return masks

    @property
    def state(self) -> EpisodeState:
        """The episode so far.

        Raises:
            EpisodeOverError: before the first `reset`.
        """
        uri = self.check_begun().uri
        names = tuple(self.action_names)
        total = float(sum(self._rewards))
        return EpisodeState(uri, names, total, self._seconds, self.error)

    def apply(self, state: EpisodeState) -> None:
        """Repeats an episode from its start; `validate(state)` says if it is the same.

        Raises:
            ArgumentError: it has a benchmark or a pass that does not exist here.
            EpisodeOverError: it is longer than an episode here; nothing has changed.
                Or a step before its last one ends the episode here.
        """
        actions = [self.action_of(name) for name in state.passes]
        if len(actions) > self.max_steps:
            raise EpisodeOverError(
                f"the state has {len(actions)} steps, an episode here {self.max_steps}"
            )
        self.reset(options={"benchmark": state.benchmark})
        for action in actions:
            if self.is_over:
                raise EpisodeOverError(
                    f"step {len(self.actions)} of {len(actions)} of the state ends the "
                    f"episode here{': ' * bool(self.error)}{self.error}"
                )
            self.step(action)

    def validate(self, state: EpisodeState | None = None) -> ValidationResult:
        """Replays the episode without the memo, and compares the outputs.

        The module must have the same fingerprint, a deterministic reward the same sum,
        the last step the same failure, if any, and the compiled module the outputs of
        the start's.

        Args:
            state: what the episode is said to be; by default, what it is here.
        """
        claimed = self.state if state is None else state
        start = self.check_begun().load()
        module, failure = self._replay(start)
        problems = [failure] if failure else []
        if self._fingerprint(module) != self.node.fingerprint:
            problems.append("the same passes give another module")
        if (claimed.benchmark, claimed.passes) != (
            self.state.benchmark,
            self.state.passes,
        ):
            problems.append("the state is of another episode")
        else:
            twin = self._fresh()
            try:
                problems += problems_of_repeat(
                    twin, self.state, claimed, has_reward=self._reward.deterministic
                )
            finally:
                twin.close()
        problems += compare_outputs(module, start)
        return ValidationResult(tuple(problems))

    def _replay(self, start: HloModule) -> tuple[HloModule, str]:
        """The module that the episode makes of `start`, and what fails."""
        return replay(self, start)

    def _replay_steps(self, start: HloModule) -> tuple[HloModule, str]:
        """As `_replay`, for actions that are no passes."""
        twin = self._fresh()
        twin.reset(options={"benchmark": start})
        for action in self.actions:
            if twin.is_over:
                return twin.module, f"step {len(twin.actions)} fails: {twin.error}"
            twin.step(action)
        return twin.module, "" if twin.error == self.error else twin.error

    def _fingerprint(self, module: HloModule) -> str:
        """What the `fingerprint` of this module's node is."""
        return module.fingerprint()

    def fork(self) -> CompilerEnv:
        """Another environment in the same state, which shares the memo."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        twin.actions = list(self.actions)
        twin.extra_info = dict(self.extra_info)
        twin.nodes = list(self.nodes)
        twin._path = list(self._path)
        twin._unchanged = {key: set(each) for key, each in self._unchanged.items()}
        twin._rewards = list(self._rewards)
        twin._sandbox = None
        twin._np_random = copy.deepcopy(self._np_random)
        twin.action_space = copy.deepcopy(self.action_space)
        return twin

    def skip_rewards(self) -> None:
        """From now on no step is rewarded, which may save estimates or measurements.

        What the reward decreases is still `reward_space.value`.
        """
        self._reward = replace(self._reward, compute=lambda _: 0.0)

    def commandline(self) -> str:
        """A shell command that makes the module of the episode.

        Raises:
            ArgumentError: the command line cannot say it: the episode started from a
                module without a URI, or has a pipeline that is not flat.
        """
        uri = self.check_begun().uri
        if uri.startswith(MODULE_SCHEME):
            raise ArgumentError(
                "the episode started from a module that was given as an object; save "
                "it, and start from hloenv://file/PATH"
            )
        words = ["hloenv", "run", uri]
        for item in self._passes_of_path():
            words += ["--pass", pass_text(item)]
        return shlex.join(words)

    def _passes_of_path(self) -> list[Pass | Pipeline]:
        """The passes that led to the module, without those that were taken back."""
        path: list[tuple[int, Node]] = []
        steps = zip(self.actions, self.nodes, self.nodes[1:], strict=False)
        for action, before, after in steps:
            if action > len(self.passes):
                del path[-1:]
            elif after is not before:
                path.append((action, after))
        return self._with_cleaning(path)

    def passes_of(self, numbers: Iterable[int]) -> list[Pass | Pipeline]:
        """What makes the module that these actions lead to from the start.

        Dead code is removed where the environment removes it.

        Args:
            numbers: of passes, such as those of `hloenv.learn.BestOrder`.
        """
        path, node = list[tuple[int, Node]](), self.start
        for number in numbers:
            before, node = node, self.following(number, node)
            if node is not before:
                path.append((number, node))
        return self._with_cleaning(path)

    def _with_cleaning(self, path: Iterable[tuple[int, Node]]) -> list[Pass | Pipeline]:
        """Passes, by number and the node after each, and where dead code is removed."""
        clean = Pass("dce")
        made: list[Pass | Pipeline] = [clean] * self.start.is_cleaned
        for number, after in path:
            made += [self.passes[number], *[clean] * after.is_cleaned]
        return made

    def __getstate__(self) -> dict[str, Any]:
        dropped = {"memo", "start", "node", "previous", "measured_node"}
        dropped |= {"benchmarks", "_by_uri", "_benchmark"}
        state = {k: v for k, v in self.__dict__.items() if k not in dropped}
        source: str | HloModule | None = None
        if self._benchmark is not None:
            source = self._benchmark.uri
            if source.startswith(MODULE_SCHEME):
                source = self._benchmark.load()
        places = [i for i, node in enumerate(self.nodes) if node is self.measured_node]
        return state | {
            "_from": source,
            "_measured_at": places[0] if places else 0,
            "_path": [],
            "_sandbox": None,
            "_observation": None,
            "_reward": None,
            "_found": {},
            "_observed": None,
            "nodes": [],
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        source, measured_at = state.pop("_from"), state.pop("_measured_at")
        self.__dict__.update(state)
        self._find()
        self.memo = PassMemo(self.passes)
        self._benchmark = None
        if source is None:
            return
        self._benchmark = self._find_benchmark(source)
        # The module is made again from the actions.
        self.start = self.node = self.previous = self._start(self._benchmark)
        self.nodes = [self.start]
        actions, self.actions = self.actions, []
        # The last action failed, and those before it did not.
        error, self.error = self.error, ""
        for position, action in enumerate(actions):
            self.previous = self.node
            self.actions.append(action)
            if not (error and position == len(actions) - 1):
                self._act(action)
            self.nodes.append(self.node)
        self.error = error
        self.measured_node = self.nodes[measured_at]

    # --- parts of the above

    def check_begun(self) -> Benchmark:
        """The benchmark of the episode.

        Raises:
            EpisodeOverError: before the first `reset`.
        """
        if self._benchmark is None:
            raise EpisodeOverError("there is no episode yet; call reset() first")
        return self._benchmark

    def _find(self) -> None:
        observation, reward = self._names
        self._observation = get_observation(observation)
        self._reward = get_reward(reward)
        self.benchmarks = find_benchmarks(self._source)
        self._by_uri = {each.uri: each for each in self.benchmarks}
        # The last set that was given to `reset`.
        self._found: dict[str, Sequence[Benchmark]] = {}

    def _find_benchmark(self, source: str | HloModule) -> Benchmark:
        if self._benchmark is not None and source == self._benchmark.uri:
            return self._benchmark
        if not isinstance(source, str):
            return find_benchmarks(source)[0]
        if source in self._by_uri:
            return self._by_uri[source]
        if source not in self._found:
            self._found = {source: find_benchmarks(source)}
        found = self._found[source]
        return found[int(self.np_random.integers(len(found)))]

    def _fresh(self) -> CompilerEnv:
        twin = self.fork()
        twin.memo = PassMemo(self.passes)
        return twin

    def _begin(self, node: Node) -> None:
        self.start = self.node = self.previous = node
        self.actions = []
        self.is_over = False
        self.error = ""
        self.extra_info = {}
        self.measured, self.measured_node = 0.0, node
        self.nodes = [node]
        self._path = []
        self._unchanged = {}
        self._rewards = []
        self._seconds = 0.0

    def check_running(self) -> None:
        """Raises EpisodeOverError if there is no episode or it has ended."""
        if self.is_over:
            raise EpisodeOverError("the episode is over; call reset() first")

    def check_action(self, action: Any) -> Any:
        """The action that `step` would take now, here a number.

        Raises:
            ArgumentError: the action is out of range.
            EpisodeOverError: there is no episode.
        """
        self.check_running()
        limit = self.num_actions - 1
        if not is_integer(action) or not 0 <= action <= limit:
            raise ArgumentError(
                f"an action must be an integer from 0 to {limit}, got {action!r}"
            )
        return int(action)

    def runner(self) -> Runner:
        """What runs passes: in this process, or in a child process."""
        isolate = self._isolate
        if isolate is None:
            isolate = not self.check_begun().is_trusted
        if not isolate:
            return run_passes
        if self._sandbox is None:
            self._sandbox = isolated(timeout_s=_TIMEOUT_S)
            # Ends the child process of an environment that is dropped without `close`.
            weakref.finalize(self, self._sandbox.close)
        return self._sandbox.run_passes

    def _info(self, *, changed: bool) -> dict[str, Any]:
        info = {
            "benchmark": self.check_begun().uri,
            "op_count": self.node.op_count,
            "changed": changed,
            "action_mask": self.action_masks().astype(np.int8),
            **self.extra_info,
        }
        if self.error:
            info["error"] = self.error
        return info

    def _op_counts(self) -> list[int]:
        return [node.op_count for node in self.nodes]
