# SPDX-License-Identifier: Apache-2.0
"""hloenv optimize: applies a policy and compares the result with XLA's default."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .._registry import load_attribute
from ..cost import Estimator, open_estimator
from ..errors import ArgumentError, HloEnvError
from ..hlo.passes import Pass, Pipeline
from ..measurement.config import Settings
from ..policies import Policy, describe_policy, get_policy, list_policies
from ..process.cpu_affinity import check_threads
from ..rewrite.alternatives import as_decisions
from ..rewrite.env import HloEnv
from ..rewrite.game import DecisionPoint
from ..runtime.inputs import as_inputs
from ..search.policy import EstimatingPolicy
from ..search.spaces import USUAL_SPACE, get_space
from . import output
from .arguments import (
    add_engine,
    add_estimator,
    add_inputs,
    add_limit,
    add_module,
    add_passes,
    add_store,
    check_output,
    name_of,
    open_store,
    parse_passes,
    usual_store,
)
from .load import load_module
from .numbers import MAX_REPEATS, add_count
from .result import Result, add_result
from .variants import Variant, compare, make_variants, print_variants

DESCRIPTION = (
    "Captures every rewrite that the passes would make as an alternative, applies a "
    "policy's decisions, and compares the result with the original (all alternatives "
    "rejected) and with XLA's default: size and cost after the decisions and after the "
    "rest of XLA's passes; with --measure also running times and output errors."
)
EXAMPLES = """\
examples:
  hloenv optimize model.hlo -o decided.hlo
  hloenv optimize model.hlo --policy my_policies.py:decide --measure
  hloenv optimize model.hlo --pass algsimp --pass cse --measure
  hloenv optimize model.hlo --pass algsimp --pass cse --policy fewest-ops --rounds 10
  hloenv optimize model.hlo --until fusion --pass general-fusion --policy least-bytes
  hloenv optimize model.hlo --pass algsimp --pass cse -o decided.hlo
  hloenv optimize train.py:step --pass algsimp --policy random --seed 7 -o d.hlo --force
  hloenv optimize model.hlo --policy pass-order --measure
  hloenv optimize model.hlo --policy substitution:runs/a/best.safetensors --measure
  hloenv optimize net.py:step --pass algsimp --engine jaxlib --measure
"""
_PASS_ORDER = "pass-order"


def add_parser(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_module(parser)
    add_limit(parser)
    add_passes(parser, required=False)
    names = (*list_policies(), *list_policies(families=True))
    policies = "; ".join(f"{name}: {describe_policy(name).summary}" for name in names)
    parser.add_argument(
        "--policy",
        metavar="NAME",
        type=_policy_name,
        default="accept-all",
        help=f"the policy (default accept-all). {policies}; {_PASS_ORDER}, or "
        f"{_PASS_ORDER}:CHECKPOINT: an agent of `hloenv train` runs passes in an order "
        "of its own, and decides on no alternative",
    )
    add_estimator(
        parser,
        "of the estimated times (default: a roofline), and of policies that estimate "
        "(default: the kernel cache)",
        None,
    )
    add_count(
        parser,
        "--rounds",
        "capture and decide up to N times, until no alternative is accepted (default: "
        "1, or what the policy says)",
    )
    add_count(parser, "--seed", "seed of the policy and of the inputs", 0, least=0)
    parser.add_argument(
        "--measure",
        action="store_true",
        help="compile and time the variants, interleaved in a child process (-o "
        "implies it; with --force, one round)",
    )
    add_count(
        parser,
        "--repeats",
        "timed rounds of each variant (default: until its speed-up is known to 1 "
        "percent, or it is clearly slower)",
        most=MAX_REPEATS,
    )
    add_count(parser, "--threads", "cores that the variants run on", 1)
    add_inputs(parser)
    add_engine(parser)
    add_store(parser)
    add_count(
        parser,
        "--timeout",
        "give up on a variant that takes longer to compile or to run",
        metavar="SECONDS",
    )
    add_result(parser)


@dataclass(frozen=True)
class Round:
    """One capture and what was decided.

    Attributes:
        alternatives: how many there were.
        accepted: how many have a decision other than the original.
        relevant: how many of the accepted ones change the module.
        instructions: of the module afterwards.
    """

    alternatives: int
    accepted: int
    relevant: int
    instructions: int


def run(args: argparse.Namespace) -> int:
    """Decides on `args.module` and compares; returns the exit code."""
    check_output(args.output)
    if args.measure or args.output is not None:
        check_threads(args.threads)
    is_order = _is_pass_order(args.policy)
    if is_order and (args.passes or args.until or args.rounds is not None):
        raise ArgumentError(
            f"--policy {_PASS_ORDER} runs passes of its own: leave --pass, --until and "
            "--rounds out"
        )
    policy = None if is_order else get_policy(args.policy, seed=args.seed)
    points = [] if policy is None else decision_points(args, policy)
    max_rounds = args.rounds
    if max_rounds is None:
        max_rounds = 1 if args.passes else getattr(policy, "usual_rounds", 1)
    module = load_module(args.module, args.max_instructions)
    args.inputs = as_inputs(args.inputs, module)
    env = HloEnv(module)
    start = module
    rounds = []
    with _estimator(args) as estimator:
        if isinstance(policy, EstimatingPolicy):
            policy.estimator = estimator
        with output.progress("deciding", is_shown=not args.json), usual_store(args):
            if policy is None:
                order_passes(env, args)
            for point in points:
                if point.where:
                    env.run_until(point.where, occurrence=point.occurrence)
                for each in point.first:
                    env.run(each)
                if len(points) == 1:
                    start = env.module
                assert policy is not None
                rounds += decide(env, point.passes, policy, max_rounds)
        variants = make_variants(module, start, env.module, name=args.policy)
        with output.progress("running XLA's passes", is_shown=not args.json):
            results = compare(variants, estimator)
    failure = ""
    if args.measure or args.output is not None:
        with output.progress("measuring", is_shown=not args.json):
            failure = _measure(args, results)
    decided = next(each for each in results if each.name == args.policy)
    result = Result(args, env, decided.measurement, failure=failure)
    if args.json:
        output.print_json(_as_json(args, env, rounds, results) | result.to_json())
    else:
        _print(args, env, rounds, results)
        result.print()
    return result.exit_code


@contextlib.contextmanager
def _estimator(args: argparse.Namespace) -> Iterator[Estimator | None]:
    """The estimator that --estimator names, or None."""
    if args.estimator is None:
        yield None
        return
    with (
        open_store(args) as store,
        open_estimator(args.estimator, threads=args.threads, store=store) as estimator,
    ):
        yield estimator


def decision_points(args: argparse.Namespace, policy: Policy) -> list[DecisionPoint]:
    """What --until and --pass say; without them, the policy's, or the engine's usual.

    Raises:
        ArgumentError: there is --until, but no --pass.
    """
    if args.passes:
        return [DecisionPoint(tuple(parse_passes(args.passes)), args.until or "")]
    if args.until:
        raise ArgumentError(f"what is to be decided at {args.until}? add --pass PASS")
    if passes := getattr(policy, "usual_passes", ()):
        return [DecisionPoint(tuple(passes))]
    return list(get_space(USUAL_SPACE[args.engine]).stops)


def _is_pass_order(policy: str) -> bool:
    return policy.partition(":")[0] == _PASS_ORDER


def _policy_name(text: str) -> str:
    return text if _is_pass_order(text) else name_of(get_policy)(text)


def order_passes(env: HloEnv, args: argparse.Namespace) -> None:
    """Runs the passes that the agent of --policy chooses."""
    load_agent = load_attribute("hloenv.learn:load_agent")
    checkpoint = args.policy.partition(":")[2]
    agent = load_agent(checkpoint) if checkpoint else load_agent()
    with contextlib.closing(agent.config.make_env(env.module)) as own:
        found = load_attribute("hloenv.learn:order_passes")(
            agent, env.module, seed=args.seed, env=own
        )
        for each in own.passes_of(found.passes):
            env.run(each)


def _measure(args: argparse.Namespace, results: list[Variant]) -> str:
    """Times the variants; with --force, returns the error instead of raising it."""
    from .measuring import measure_variants

    is_optional = args.force and not args.measure
    settings = Settings(
        engine=args.engine,
        threads=args.threads,
        repeats=1 if is_optional and args.repeats is None else args.repeats,
        seed=args.seed,
        timeout_s=args.timeout,
    )
    try:
        with open_store(args) as store:
            measure_variants(
                results,
                settings=settings,
                store=store,
                again=args.again,
                inputs=args.inputs,
            )
    except HloEnvError as error:
        if not is_optional:
            raise
        return f"XLA's default cannot be measured ({type(error).__name__}: {error})"
    return ""


def decide(
    env: HloEnv,
    passes: Sequence[str | Pass | Pipeline],
    policy: Policy,
    max_rounds: int,
) -> list[Round]:
    """Captures, decides and applies, until a round accepts nothing.

    Returns:
        The rounds, the last one that accepted nothing included.
    """
    rounds: list[Round] = []
    for _ in range(max_rounds):
        alternatives = env.get_alternatives(*passes)
        decisions = as_decisions(policy(alternatives))
        if len(alternatives) == 0:
            rounds.append(Round(0, 0, 0, env.module.instruction_count))
            break
        is_accepted = decisions > 0
        is_relevant = alternatives.relevant(decisions) & is_accepted
        module = env.apply_alternatives(decisions, alternatives, partial=True)
        rounds.append(
            Round(
                len(alternatives),
                int(is_accepted.sum()),
                int(is_relevant.sum()),
                module.instruction_count,
            )
        )
        if not is_accepted.any():
            break
    return rounds


def _as_json(
    args: argparse.Namespace,
    env: HloEnv,
    rounds: list[Round],
    results: list[Variant],
) -> dict[str, Any]:
    return {
        "module": env.module.name,
        "start_fingerprint": env.trace.start.fingerprint,
        "fingerprint": env.fingerprint(),
        "passes": args.passes,
        "until": args.until,
        "policy": args.policy,
        "estimator": args.estimator,
        "seed": args.seed,
        "rounds": [asdict(each) for each in rounds],
        "variants": [each.to_json() for each in results],
    }


def _print(
    args: argparse.Namespace,
    env: HloEnv,
    rounds: list[Round],
    results: list[Variant],
) -> None:
    for number, each in enumerate(rounds, start=1):
        output.print_line(
            f"round {number}: {output.plural(each.alternatives, 'alternative')}, "
            f"{each.accepted} accepted ({each.relevant} of them relevant), "
            f"{output.plural(each.instructions, 'instruction')} left"
        )
    output.print_line()
    is_measured = args.measure or args.output is not None
    print_variants(
        results,
        title=env.module.name,
        is_measured=is_measured,
        estimator=args.estimator,
    )
    output.print_store_note(
        each.measurement.time for each in results if each.measurement is not None
    )
    if is_measured:
        output.print_flag_note(env.module, args.engine)
