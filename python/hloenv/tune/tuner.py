# SPDX-License-Identifier: Apache-2.0
"""The driver: one loop for stages alone, in sequence and jointly.

It asks arms for configurations, builds and measures them, and tells the results. The
measurements are in a journal, from which the next tuning of the same program continues.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, HloEnvError
from ..jax.artefact import Tuned
from ..jax.kept import kept_path
from .ablation import PLAIN, plain_result, rows_alone, rows_of_best
from .arms import Arm, Bandit, RulesArm, StageArm
from .build import Candidate, build_candidate
from .checking import NOT_BITWISE, Context, check_best, differs, reason_of_none
from .entries import identity_of
from .joint import bases, joint_arms
from .journal import Journal, Result, features_of, journal_path, near
from .keeping import is_kept, keep
from .measuring import Control, Measuring, inputs_key, is_lost
from .options import TuneOptions
from .program import Program
from .rules import rules_for
from .space import Configuration, Space
from .state import OnChange, State, score

if TYPE_CHECKING:
    from ..measurement.store import Store

# Shares of the budget after which the search and the ablation end.
_SEARCH_SHARE, _ABLATION_SHARE = 0.75, 0.9
# Up to which the first measurement of what is known to gain may take.
_FIRST_SHARE = 3.0
# Of the seeds of fresh measurements; those of the last check are below.
_KEPT_ROUND, _STAGE_ROUND = 90, 100


class Tuner:
    """Tunes one program.

    Args:
        program: what to tune.
        options: how.
        store: cache of measurements and kernel times; None for none.
        on_change: called after each change, with the state.

    Raises:
        ArgumentError: the options leave nothing to decide.
    """

    def __init__(
        self,
        program: Program,
        options: TuneOptions,
        *,
        store: Store | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        self._program = program
        self._options = options
        self._store = store if options.keep else None
        self._on_change = on_change or (lambda _: None)
        self._journal_path = journal_path(kept_path(program.key))
        self._features = features_of(program.module)
        path = self._journal_path if options.keep else None
        self._journal = Journal(path, self._features)
        self._rules = rules_for(program.module, options, self._journal)
        self.space = Space(
            options.stages,
            numerics=options.numerics,
            donates=program.donates,
            rules=self._rules.labels,
        )
        if not self.space.active(PLAIN):
            raise ArgumentError(
                f"there is nothing to decide at the stages "
                f"{', '.join(self.space.stages)} with numerics={options.numerics!r}"
                f"{' and donated arguments' if program.donates else ''}; add stages, "
                "such as engine, which others need, or allow a wider numerical class"
            )
        self.state = State(program, seconds_left=options.seconds, journal=path)
        # By the key of the candidate, which several configurations may share.
        self._by_key: dict[str, Result] = {}
        self._proposed: set[Configuration] = {PLAIN}
        self._candidates: dict[Configuration, Candidate] = {}
        self._arms: list[Arm] = []
        self._started = time.monotonic()
        # Share of the seconds after which running measurements are ended.
        self._until = 1.0
        self._best_of_stage: dict[str, Result] = {}
        self._open = contextlib.ExitStack()
        self._inputs = inputs_key(program.module, program.inputs)

    def run(self) -> Tuned:
        """Tunes, checks the best afresh, and returns its entry.

        Ctrl-C ends the search; the best so far is still checked, from the beginning
        where it ends the check. A second one is raised.

        Raises:
            HloEnvError: the program itself cannot be compiled or run.
        """
        self._started = time.monotonic()
        options, program = self._options, self._program
        self._recall()
        with (
            self._open,
            Measuring(
                program.module,
                program.inputs,
                engine=program.engine,
                threads=options.cores,
                workers=options.workers,
                executor=options.executor,
                store=None if options.is_again else self._store,
                seed=options.seed,
                timeout_s=options.timeout_s,
            ) as measuring,
        ):
            control = self._control(measuring)
            if not control.is_above_clock:
                reason = (
                    f"one run takes {control.median_ns:.0f} ns, which cannot be "
                    "distinguished from the call itself: let one call do more"
                )
                entry = identity_of(program, reason, control)
                return self._keep(entry, measuring, control)
            stages: list[dict[str, Any]] = []
            described: Result | None = None
            try:
                self._search(measuring)
                self._change("ablation")
                stages, described = self._ablation(measuring)
            except KeyboardInterrupt:
                self.state.is_interrupted = True
                self._say("interrupted: the best so far is checked and kept")
            checked = functools.partial(self._checked, measuring, control)
            try:
                return checked(stages, described)
            except KeyboardInterrupt:
                if self.state.is_interrupted:
                    raise
                self.state.is_interrupted = True
                self._say("interrupted: the last check begins again, and is the end")
                return checked(stages, described)

    # --- phases -----------------------------------------------------------------

    def _recall(self) -> None:
        """Takes the results of earlier tunings."""
        if self._options.is_again:
            return
        recalled = self._journal.recalled(
            threads=self._options.cores,
            inputs=self._inputs,
            timeout_s=self._options.timeout_s,
        )
        for result in recalled:
            if not self.space.has(result.configuration):
                continue
            if self._options.mode in ("jointly", result.mode):
                self._take(result)
            elif result.key:  # what another mode has found does not count here
                self._by_key[result.key] = result
        self.state.num_known = len(self.state.results)
        for each in self._journal.crashed:
            if self.space.has(each):
                self._take(Result(each, error="it ended the process"))
        if self.state.num_known:
            self._say(f"continues from {self.state.num_known} earlier measurements")

    def _control(self, measuring: Measuring, before: Control | None = None) -> Control:
        """The baseline against itself, at the beginning and at the end."""
        self._change("control")
        control = measuring.control(again=0 if before is None else 1)
        is_news = not control.is_steady and (before is None or before.is_steady)
        if before is not None:
            control = control.wider(before)
        self.state.control = control
        if is_news:
            low, high = control.interval
            self._say(
                "the load of the machine changes: the program against itself gives "
                f"{low:.3f} to {high:.3f}; all intervals are widened by that"
            )
        return control

    def _near(self) -> list[Configuration]:
        """What was best for near modules."""
        if not (self._options.is_warm and self._options.keep):
            return []
        return near(self._journal_path.parent, self._features, self._journal_path)

    def _search(self, measuring: Measuring) -> None:
        options = self._options
        if options.mode == "jointly":
            self._arms = joint_arms(
                *(self._program, self.space, options),
                store=None if options.is_again else self._store,
                near=self._near(),
                stack=self._open,
                say=self._say,
            )
            for result in self.state.results.values():
                self._tell(result)
            # A short budget is not to end before what is known to gain.
            rules = RulesArm(self.space, library=self._rules.library)
            if self._rules.labels and rules.first not in self._proposed:
                self._explore_one(measuring, rules)
            near = [each for each in self._arms if each.name == "near"]
            for arms in ([*near, rules], self._arms):
                self._explore(measuring, arms, end=_SEARCH_SHARE)
            return
        used = [each for each in self.space.stages if self.space.of_stage(each)]
        limit = options.measurements
        for index, stage in enumerate(used):
            self._arms = [StageArm(self.space, stage)]
            # What is left to a stage does not depend on how long the earlier ones took:
            # a measurement that has begun may take a second share, and no more.
            now = (time.monotonic() - self._started) / max(options.seconds, 1e-9)
            share = now + max(_SEARCH_SHARE - now, 0.0) / (len(used) - index)
            self._until = min(2 * share - now, 1.0)
            most = None
            if limit is not None:
                most = limit * (index + 1) // len(used)
            if options.mode == "sequence":
                self._explore(measuring, self._arms, end=share, limit=most)
                continue
            for base in bases(self.space, stage):
                self._explore(measuring, self._arms, end=share, limit=most, base=base)
            alone = [
                result
                for configuration, result in self.state.results.items()
                if configuration == self.space.only(configuration, stage)
            ]
            self._best_of_stage[stage] = max(
                [plain_result(), *alone],
                key=lambda each: score(each) - self._base(each, stage),
            )
        self._until = 1.0

    def _explore_one(self, measuring: Measuring, arm: Arm) -> None:
        """Measures one proposal, even if that takes longer than the budget."""
        limit = self.state.num_measured + 1
        most = self._options.measurements
        limit = limit if most is None else min(limit, most)
        self._until = _FIRST_SHARE
        self._explore(measuring, [arm], end=_FIRST_SHARE, limit=limit)
        self._until = 1.0

    def _explore(
        self,
        measuring: Measuring,
        arms: Sequence[Arm],
        *,
        end: float,
        limit: int | None = None,
        base: Configuration | None = None,
    ) -> None:
        """Measures what the arms propose, until the share of the budget is used.

        Args:
            measuring: builds and runs.
            arms: to choose from.
            end: share of the seconds.
            limit: of the number of measurements in all; None for that of the options.
            base: what is changed; None for the best so far.
        """
        limit = self._options.measurements if limit is None else limit
        bandit = Bandit([each.name for each in arms])
        open_ = {each.name: each for each in arms}
        while open_ and self._has_time(end):
            batch: list[tuple[Configuration, Arm]] = []
            size = self._options.proposals
            if limit is not None:
                size = min(size, limit - self.state.num_measured)
            if size <= 0:
                return
            while open_ and len(batch) < size and self._has_time(end):
                arm = open_[bandit.choose(list(open_))]
                self._change(arm.name)
                best = self.state.best
                start = base or (PLAIN if best is None else best.configuration)
                found = arm.ask(start, self._proposed.__contains__)
                if found is None:
                    bandit.passed(arm.name)
                    del open_[arm.name]
                    continue
                self._proposed.add(found)
                batch.append((found, arm))
            before = self.state.best
            for measured in self._measured(measuring, batch):
                known = max(score(self.state.best), 0.0)
                result = self._take(measured)
                self._tell(result)
                bandit.reward(result.arm, score(result) - known, result.seconds)
                self._change(result.arm)
            now = self.state.best
            if now is not before and now is not None and base is None:
                old = PLAIN if before is None else before.configuration
                reopened = self.space.reopened(old, now.configuration)
                open_.update(
                    (each.name, each) for each in arms if each.name in reopened
                )

    def _measured(
        self, measuring: Measuring, batch: Sequence[tuple[Configuration, Arm]]
    ) -> list[Result]:
        """The results of a batch, in the order of the proposals."""
        results: dict[int, Result] = {}
        waiting: dict[int, Candidate] = {}
        began = {}
        for number, (configuration, arm) in enumerate(batch):
            began[number] = time.monotonic()
            try:
                candidate = self._candidate(configuration)
            except HloEnvError as error:
                results[number] = Result(
                    configuration,
                    arm=arm.name,
                    error=f"{type(error).__name__}: {error}",
                    threads=self._options.cores,
                    inputs=self._inputs,
                )
                continue
            known = self._by_key.get(candidate.key)
            first = next(
                (n for n, each in waiting.items() if each.key == candidate.key), None
            )
            if known is not None:
                results[number] = self._same(configuration, arm.name, known)
            elif first is None:
                waiting[number] = candidate
        shared = {each.key: number for number, each in waiting.items()}
        try:
            self._measure(measuring, waiting, batch, began, results)
        except KeyboardInterrupt:
            for result in results.values():
                self._take(result)
            raise
        for number, (configuration, arm) in enumerate(batch):
            if number in results:
                continue
            twin = shared.get(self._candidates[configuration].key)
            if twin is not None and twin in results:
                results[number] = self._same(configuration, arm.name, results[twin])
            else:  # out of time
                self._proposed.discard(configuration)
        for number, result in results.items():
            if number not in waiting:
                self._note(result)
        if self._journal.failure and self._journal.failure not in self.state.messages:
            self.state.journal = None
            self._say(self._journal.failure)
        return [results[number] for number in sorted(results)]

    def _measure(
        self,
        measuring: Measuring,
        waiting: Mapping[int, Candidate],
        batch: Sequence[tuple[Configuration, Arm]],
        began: Mapping[int, float],
        results: dict[int, Result],
    ) -> None:
        """Adds the results of the candidates, by their numbers in the batch."""
        until = self._started + self._until * self._options.seconds
        last = 0.0
        for number, measurement in measuring.measure(waiting, until=until):
            _, arm = batch[number]
            now = time.monotonic()
            # Those of a batch wait for each other.
            seconds, last = now - max(began[number], last), now
            interval = measurement.speedup_interval
            if self.state.control is not None:
                interval = self.state.control.widened(interval)
            found = Result.of(
                waiting[number],
                arm.name,
                measurement,
                interval,
                seconds=seconds,
                threads=self._options.cores,
            )
            results[number] = replace(
                found, inputs=self._inputs, timeout_s=self._options.timeout_s
            )
            self.state.num_measured += 1
            if not is_lost(measurement):
                self._note(results[number])
            if not self._has_time(self._until):
                break

    def _ablation(
        self, measuring: Measuring
    ) -> tuple[list[dict[str, Any]], Result | None]:
        """What each stage of the best is worth alone, and what the rest is without.

        Returns:
            The stages, and the result that they belong to; None if to all.
        """
        best, control = self.state.best, self.state.control
        if self._options.mode == "alone":

            def again(result: Result, round_: int) -> Result | None:
                if not self._has_time(1.0):
                    message = "no time was left to measure all stages again"
                    if message not in self.state.messages:
                        self._say(message)
                    return None
                return self._afresh(measuring, result, round_ + _STAGE_ROUND, control)

            known = self.state.results
            rows = rows_alone(self.space, self._best_of_stage, known, again)
            return rows, None
        if best is None or best.configuration.graph:
            return [], best
        rows = rows_of_best(
            self.space, best.configuration, functools.partial(self._one, measuring)
        )
        return rows, best

    def _base(self, result: Result, stage: str) -> float:
        """Score of a result without the choices of a stage: of its engine alone."""
        base = self.space.without(result.configuration, stage)
        if base in (PLAIN, result.configuration):
            return 0.0
        known = self.state.results.get(base)
        return math.inf if known is None or not known.is_ok else score(known)

    def _afresh(
        self, measuring: Measuring, result: Result, round_: int, control: Control | None
    ) -> Result:
        """A result measured again: the maximum of many is too good."""
        if result.configuration == PLAIN:
            return result
        try:
            candidate = self._candidate(result.configuration)
            found = measuring.again(candidate, round_=round_)
        except HloEnvError as error:
            return replace(result, error=f"{type(error).__name__}: {error}")
        interval = found.speedup_interval
        again = Result.of(
            *(candidate, result.arm, found),
            interval if control is None else control.widened(interval),
            seconds=result.seconds,
            threads=result.threads,
        )
        return self._judged(again)

    def _one(self, measuring: Measuring, configuration: Configuration) -> Result | None:
        """The result of a configuration, measured if there is time."""
        if configuration == PLAIN:
            return plain_result()
        known = self.state.results.get(configuration)
        if known is None and self._has_time(_ABLATION_SHARE):
            arm = StageArm(self.space, "ablation")
            for known in self._measured(measuring, [(configuration, arm)]):
                known = self._take(known)
        return known

    def _checked(
        self,
        measuring: Measuring,
        control: Control,
        stages: list[dict[str, Any]],
        described: Result | None,
    ) -> Tuned:
        """The best that is faster in two fresh comparisons, or the identity."""
        self._change("check")
        ranked = sorted(
            (each for each in self.state.results.values() if score(each) > 0),
            key=score,
            reverse=True,
        )
        if ranked:
            control = self._control(measuring, control)
            self._change("check")
        entry, result = check_best(
            ranked,
            Context(
                *(self._program, self.space, measuring, control, self._candidate),
                self._journal.running,
            ),
            numerics=self._options.numerics,
            stages=stages,
            described=described,
            reason=reason_of_none(self.state, self._options),
        )
        return self._keep(entry, measuring, control, result)

    # --- results ----------------------------------------------------------------

    def _candidate(self, configuration: Configuration) -> Candidate:
        if configuration not in self._candidates:
            with self._journal.running(configuration):
                self._candidates[configuration] = build_candidate(
                    self.space, configuration, self._program.module
                )
        return self._candidates[configuration]

    def _judged(self, result: Result) -> Result:
        """The result in the numerical class of this tuning."""
        if self._options.numerics != "exact" or not result.is_ok or result.is_bitwise:
            return result
        return replace(result, speedup=0.0, interval=(0.0, 0.0), error=NOT_BITWISE)

    def _same(self, configuration: Configuration, arm: str, known: Result) -> Result:
        """The result of a configuration that is compiled like a known one."""
        return replace(known, configuration=configuration, arm=arm, seconds=0.0)

    def _take(self, result: Result) -> Result:
        """Takes a result, and returns it in the numerical class of this tuning."""
        state = self.state
        if result.key:
            self._by_key[result.key] = result
        result = self._judged(result)
        state.take(result)
        self._proposed.add(result.configuration)
        return result

    def _note(self, result: Result) -> None:
        self._journal.add(replace(result, mode=self._options.mode))

    def _tell(self, result: Result) -> None:
        log_speedup = math.log(result.speedup) if result.speedup > 0 else -math.inf
        for arm in self._arms:
            arm.tell(result.configuration, log_speedup)

    def _keep(
        self,
        entry: Tuned,
        measuring: Measuring,
        control: Control,
        ours: Result | None = None,
    ) -> Tuned:
        is_whole = (
            control.is_conclusive
            and self.state.num_measured + self.state.num_known > 0
            and not self.state.is_interrupted
            and self.space.stages == Space().stages
        )

        def is_still_faster(kept: Tuned) -> bool:
            before = self._result_of(kept)
            if before is None:
                return False
            found = self._afresh(measuring, before, _KEPT_ROUND, control)
            if not found.is_ok or found.interval[0] <= 1:
                return False
            if ours is None:
                return not differs(self._program, kept, control)
            # Both in the same way: a function is checked in another.
            result = self._afresh(measuring, ours, _KEPT_ROUND, control)
            return not result.is_ok or found.speedup > result.speedup

        entry, words = keep(
            *(self._program, entry, self._options),
            is_whole=is_whole,
            is_still_faster=is_still_faster,
        )
        if words:
            self._say(words)
        self.state.is_kept = self._options.keep and is_kept(self._program)
        return entry

    def _result_of(self, kept: Tuned) -> Result | None:
        """The measured result that an entry is of; None if that is not known here."""
        for each in (*self.state.results.values(), *self._journal.results):
            configuration = each.configuration
            if configuration.text == kept.label and self.space.has(configuration):
                with contextlib.suppress(HloEnvError):
                    if self._candidate(configuration).recipe == kept.recipe:
                        return each
        return None

    # --- time and messages --------------------------------------------------------

    def _has_time(self, share: float) -> bool:
        elapsed = time.monotonic() - self._started
        return elapsed < share * self._options.seconds

    def _say(self, message: str) -> None:
        self.state.messages.append(message)
        self._change(self.state.stage)

    def _change(self, stage: str) -> None:
        state = self.state
        state.stage = stage
        elapsed = time.monotonic() - self._started
        state.seconds_left = max(self._options.seconds - elapsed, 0.0)
        self._on_change(state)
