# SPDX-License-Identifier: Apache-2.0
"""Times two jax functions against each other, from the caller's side."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..measurement.statistics import speedup_interval, speedup_of
from ..runtime.jaxlib.executable import PAUSE_S
from ..runtime.jaxlib.package import require_jax
from ..runtime.memory import fresh_bytes
from .outputs import are_all_nan, difference
from .wrapping import copy_arrays

# Shorter samples are dominated by the resolution of the clock.
_SAMPLE_NS = 100_000
# Of a call that waits for a core; so long, a few samples take little time.
_MAX_DELAY_NS = 20_000_000
_ROUNDS = 5, 200  # minimum, maximum
# The lower bound of the speedup must exceed this; and the part of the time limit after
# which an upper bound below it ends a comparison, or one of `SLOW_GAIN` with an upper
# bound so many times as high.
_MIN_GAIN, _FIRST_PART, _MAX_SPREAD = 1.02, 0.25, 1.1

# Rounds after which a comparison of long calls ends where the gain is beyond doubt, and
# that gain.
_CLEAR_ROUNDS, CLEAR_GAIN = 3, 4.0

# Times the longest run of which there are enough rounds for an interval: up to so long,
# each version runs a few times instead; then how many times as fast it must be; and
# beyond so long, the first run is not even repeated.
_MAX_SLOW, SLOW_GAIN, _MAX_REPEATED = 4, 1.5, 10
# Likewise where another form is known to be many times as fast.
_MAX_PROMISING = 40

# Of the time limit, for calls with moved arguments.
MOVING = 4

Call = Callable[[], Any]
ALL_NAN = "all outputs of the first call are NaN"

# Copies of arguments that exist at the same time, in bytes.
_MAX_COPIES_BYTES = 1 << 28
# A function with larger results, or donated arguments, is not compared: two more of
# them exist during a comparison, and a third where rounding is told.
_MAX_COMPARED_BYTES = 1 << 30


class Consuming:
    """A call of a function that donates arguments: each has a copy of those.

    Attributes:
        size_bytes: of the arguments that are copied.
        max_calls: for which copies may exist at the same time.
    """

    def __init__(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._jax = require_jax("hloenv.jit")
        self._fn = fn
        self._arguments = args, kwargs
        self._donated = _donated(fn, args, kwargs)
        numbers, names = self._donated
        donated = [args[i] for i in numbers if i < len(args)]
        donated += [kwargs[name] for name in names if name in kwargs]
        self.size_bytes = sum(
            leaf.nbytes
            for leaf in self._jax.tree.leaves(donated)
            if isinstance(leaf, self._jax.Array)
        )
        self.max_calls = max(1, _MAX_COPIES_BYTES // max(self.size_bytes, 1))
        self._copies: list[Any] = []

    def prepare(self, count: int) -> None:
        """Makes the copies for so many calls."""
        self._copies = [self._copy() for _ in range(count)]
        self._jax.block_until_ready(self._copies)

    def __call__(self) -> Any:
        """Calls the function on a copy."""
        args, kwargs = self._copies.pop() if self._copies else self._copy()
        return self._fn(*args, **kwargs)

    def _copy(self) -> Any:
        args, kwargs = self._arguments
        numbers, names = self._donated
        return (
            [
                copy_arrays(self._jax, each) if number in numbers else each
                for number, each in enumerate(args)
            ],
            {
                name: copy_arrays(self._jax, each) if name in names else each
                for name, each in kwargs.items()
            },
        )


def _donated(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Collection[int], Collection[str]]:
    """Positions and names of the arguments that a call donates; all if unknown."""
    info: Any = getattr(fn, "_jit_info", None)
    try:
        numbers, names = info.donate_argnums, info.donate_argnames
    except AttributeError:  # another version of jax, or not a function of jax.jit
        return range(len(args)), kwargs.keys()
    positions = range(len(args))  # of other numbers, the names count
    return {positions[n] for n in numbers if -len(args) <= n < len(args)}, names


@dataclass(frozen=True)
class Comparison:
    """Result of a comparison of two functions on the same arguments.

    Attributes:
        speedup: the plain function's time over the other's; None if not timed.
        interval: its 95 % interval; None if not timed, or by too few runs.
        reason: why the other is not clearly faster; empty if it is.
        is_equal: whether their results are equal.
        fresh_bytes: memory that a call of the other gets from the system anew; 0 if
            unknown.
    """

    speedup: float | None = None
    interval: tuple[float, float] | None = None
    reason: str = ""
    is_equal: bool = True
    fresh_bytes: int = 0


@dataclass(frozen=True)
class Faster:
    """A function that is known to be many times as fast as the plain one.

    Attributes:
        call: calls it.
        known: its comparison with the plain function.
    """

    call: Call
    known: Comparison

    def and_then(self, found: Comparison) -> Comparison:
        """What a comparison of another with this one says of the plain function."""
        known = self.known
        if found.speedup is None or known.speedup is None:
            return found
        interval = None
        if found.interval is not None and known.interval is not None:
            interval = (
                found.interval[0] * known.interval[0],
                found.interval[1] * known.interval[1],
            )
        return replace(
            found,
            speedup=found.speedup * known.speedup,
            interval=interval,
            reason=found.reason
            and "it is not clearly faster than the best of the other versions",
        )


class Running:
    """A call of the plain function that may still be computed.

    Args:
        outputs: of the call, which has just returned them.
    """

    def __init__(self, outputs: Any) -> None:
        self._jax = require_jax("hloenv.jit")
        self._outputs = outputs
        self._begin_ns = time.perf_counter_ns()

    def wait_ns(self) -> int:
        """Waits for the outputs; how long they took at least, 0 if that is unknown."""
        leaves = self._jax.tree.leaves(self._outputs)
        # Results of dtype float0 are arrays of numpy.
        if all(leaf.is_ready() for leaf in leaves if hasattr(leaf, "is_ready")):
            return 0
        self._jax.block_until_ready(leaves)
        return time.perf_counter_ns() - self._begin_ns


def exceeds(
    plain: Call,
    seconds: float,
    running: Running | None = None,
    *,
    is_promising: bool = False,
) -> str:
    """Why a comparison would take too long; empty if it would not.

    Args:
        plain: a call of the plain function, which is compiled.
        seconds: as in `compare`.
        running: an earlier call; if that takes too long already, there is no other.
        is_promising: as in `compare`.
    """
    jax = require_jax("hloenv.jit")
    longest_ns = _longest_ns(seconds)
    slowest_ns = _MAX_SLOW * longest_ns
    run_ns = 0 if running is None else running.wait_ns()
    for _ in range(2):  # other processes may have delayed the first
        if run_ns > _MAX_REPEATED * longest_ns:
            break
        run_ns = _sample(jax, plain, 1)
        if run_ns <= slowest_ns:
            return ""
    if is_promising and run_ns <= _MAX_PROMISING * longest_ns:
        return ""
    return _too_long(seconds)


def time_of(call: Call) -> int:
    """Nanoseconds of a call; of the fastest of three where one may be delayed.

    The two others follow a call that is not timed.
    """
    jax = require_jax("hloenv.jit")
    found = _sample(jax, call, 1)
    if found > _MAX_DELAY_NS:
        return found
    return min(found, *(_sample(jax, call, 1, after_itself=True) for _ in range(2)))


def too_large(plain: Call, results: Iterable[Any]) -> str:
    """Why a comparison would take too much memory; empty if it would not.

    Args:
        plain: a call of the plain function.
        results: the types of its results.
    """
    size = _result_bytes(results)
    if size > _MAX_COMPARED_BYTES:
        return _too_large("results", size)
    if isinstance(plain, Consuming) and plain.size_bytes > _MAX_COMPARED_BYTES:
        return _too_large("donated arguments", plain.size_bytes)
    return ""


def _result_bytes(results: Iterable[Any]) -> int:
    return sum(
        math.prod(each.shape) * getattr(each.dtype, "itemsize", 1) for each in results
    )


def _too_large(what: str, size: int) -> str:
    return (
        f"its {what} take {size >> 20} MiB: beyond {_MAX_COMPARED_BYTES >> 20} MiB, "
        "functions are not compared, as that takes twice their memory"
    )


def _excess_ns(seconds: float) -> float:
    return seconds * 1e10


def _longest_ns(seconds: float) -> float:
    """Of one run, of which a comparison has the fewest rounds."""
    return _excess_ns(seconds) / (2 * _ROUNDS[0])


def _too_long(seconds: float) -> str:
    return f"a comparison takes longer than the budget of {seconds:g} s"


def compare(
    plain: Call,
    other: Call,
    *,
    seconds: float,
    moved: Callable[[int], Any] | None = None,
    other_moved: Callable[[int], Any] | None = None,
    is_promising: bool = False,
    than: Faster | None = None,
) -> Comparison:
    """Compares the results of two functions, then times them interleaved.

    Args:
        plain: calls the first.
        other: calls the second.
        moved: calls the first for arguments that are moved by their last bits, by
            others for each number, to tell how much rounding counts; None for the
            tolerances of types alone.
        other_moved: likewise calls the second.
        seconds: time limit of the timing; if ten times as long is not enough for the
            minimum number of rounds, two runs of each decide; and nothing if one of
            each takes four times as long as such rounds may: the speed-up of these is
            in the result. Four times as long, arguments are moved once more.
        is_promising: whether the second may be many times as fast. If the first takes
            over four times as long as a run of such rounds, one run of it decides, two
            if it takes up to ten times as long.
        than: what the second must be faster than; None for the first, whose runs may
            take many times as long.
    """
    jax = require_jax("hloenv.jit")
    first_ns, outputs = _first(jax, plain)
    other_first_ns, other_outputs = _first(jax, other)
    is_slow = is_promising and first_ns > _MAX_SLOW * _longest_ns(seconds)
    # The first call of a function of jax.jit may take longer.
    if is_slow and other_first_ns > 2 * first_ns:
        return _compare_slow((first_ns,), (other_first_ns,))
    differs = difference(
        outputs,
        other_outputs,
        moved=moved,
        actual_moved=other_moved,
        seconds=MOVING * seconds,
    )
    if not differs and are_all_nan(outputs):
        return Comparison(reason=ALL_NAN)
    del outputs, other_outputs
    if differs:
        return Comparison(
            reason=f"its outputs differ from the plain function's: {differs}",
            is_equal=False,
        )
    if than is not None:
        return than.and_then(_timed(than.call, other, seconds))
    if is_slow and first_ns <= _MAX_REPEATED * _longest_ns(seconds):
        first_ns = min(first_ns, _sample(jax, plain, 1))  # it may have been delayed
        is_slow = first_ns > _MAX_SLOW * _longest_ns(seconds)
    if is_slow:
        other_ns = _sample(jax, other, 1)
        if first_ns < SLOW_GAIN * other_ns:
            return _compare_slow((first_ns,), (other_ns,))
        return _compare_slow((first_ns,), (other_ns, _sample(jax, other, 1)))
    return _timed(plain, other, seconds, first_ns)


def _timed(plain: Call, other: Call, seconds: float, first_ns: int = 0) -> Comparison:
    """Times two functions interleaved; the arguments as of `compare`.

    Args:
        plain: calls the first.
        other: calls the second.
        seconds: time limit.
        first_ns: a run of the first that is known already; 0 for none.
    """
    jax = require_jax("hloenv.jit")
    plain_ns, other_ns = _sample(jax, plain, 1), _sample(jax, other, 1)
    if other_ns > 2 * plain_ns:
        # Ends early: so much slower twice is noise only in samples so short that other
        # processes may have delayed them.
        plain_ns, other_ns = _sample(jax, plain, 1), _sample(jax, other, 1)
        if other_ns > max(2 * plain_ns, _MAX_DELAY_NS):
            return Comparison(
                speedup=plain_ns / other_ns,
                reason="it is slower than plain jax.jit",
            )
    rounds_ns = (plain_ns + other_ns) * _ROUNDS[0]
    if rounds_ns > _MAX_SLOW * _excess_ns(seconds):
        return Comparison(plain_ns / other_ns, reason=_too_long(seconds))
    if rounds_ns > _excess_ns(seconds):
        known = (first_ns,) if first_ns else ()
        others_ns = other_ns, _sample(jax, other, 1)
        return _compare_slow((*known, plain_ns), others_ns)
    calls = max(1, round(_SAMPLE_NS / min(plain_ns, other_ns)))
    calls = max(1, min(calls, _ROUNDS[0] * _MAX_DELAY_NS // max(plain_ns, other_ns)))
    for each in (plain, other):
        if isinstance(each, Consuming):
            calls = max(1, min(calls, each.max_calls - 1))  # and one that is not timed
    durations = _until_told(plain, other, seconds, calls)
    speedup = speedup_of(*durations)
    low, high = speedup_interval(*durations)
    reason = "" if low > _MIN_GAIN else "it is not clearly faster than plain jax.jit"
    return Comparison(speedup, (low, high), reason, fresh_bytes=_fresh(jax, other))


def _until_told(
    plain: Call, other: Call, seconds: float, calls: int
) -> tuple[list[int], list[int]]:
    """As `take_turns`; ends early where it is clear whether the other is faster."""
    end = time.perf_counter() + seconds
    durations: tuple[list[int], list[int]] = ([], [])

    def go_on(fewest: int, limit_s: float) -> tuple[float, float]:
        done = len(durations[0])
        rounds = max(fewest - done, 0), _ROUNDS[1] - done
        more = take_turns(plain, other, rounds=rounds, seconds=limit_s, calls=calls)
        for known, found in zip(durations, more, strict=True):
            known += found
        return speedup_interval(*durations)

    low, high = go_on(_CLEAR_ROUNDS, _FIRST_PART * seconds)
    if len(durations[0]) < _ROUNDS[0]:  # each takes long
        if low > CLEAR_GAIN:
            return durations
        low, high = go_on(_ROUNDS[0], 0.0)
    if high >= _MIN_GAIN and not (low > SLOW_GAIN and high < _MAX_SPREAD * low):
        go_on(0, end - time.perf_counter())
    return durations


def _fresh(jax: Any, call: Call) -> int:
    """Memory that one of two calls gets from the system anew, the less."""
    found = []
    for _ in range(2):
        if isinstance(call, Consuming):
            call.prepare(1)
        before = fresh_bytes()
        jax.block_until_ready(call())
        found.append(fresh_bytes() - before)
    return min(found)


def _first(jax: Any, call: Call) -> tuple[int, Any]:
    """The time of a call, and its outputs."""
    if isinstance(call, Consuming):
        call.prepare(1)
    begin = time.perf_counter_ns()
    outputs = jax.block_until_ready(call())
    return time.perf_counter_ns() - begin, outputs


def _compare_slow(plain_ns: tuple[int, ...], others_ns: tuple[int, ...]) -> Comparison:
    """By two runs at most: too few for an interval, so that the gain must be large."""
    speedup = min(plain_ns) / max(others_ns)
    if speedup < SLOW_GAIN:
        return Comparison(
            speedup,
            reason=f"it is not {SLOW_GAIN} times as fast as plain jax.jit in "
            f"{'each of two runs' if len(others_ns) > 1 else 'one run'}; more take "
            "longer than the budget",
        )
    return Comparison(speedup)


def take_turns(
    plain: Call,
    other: Call,
    *,
    rounds: tuple[int, int],
    seconds: float,
    calls: int = 1,
) -> tuple[list[int], list[int]]:
    """Times two functions interleaved; the order alternates between rounds.

    Each sample follows a call of the same function that is not timed, or a pause if
    that is long: jax frees the memory of a call after its results are there, and so in
    the time of the next one, which took 18 ms longer after a call with 290 MB.

    Args:
        plain: calls the first.
        other: calls the second.
        rounds: minimum and maximum number; between them `seconds` decides.
        seconds: after which no round starts.
        calls: of a function in a round.

    Returns:
        The times of each function by round, in nanoseconds.
    """
    jax = require_jax("hloenv.jit")
    fewest, most = rounds
    durations: tuple[list[int], list[int]] = ([], [])
    end = time.perf_counter() + seconds
    while len(durations[0]) < fewest or (
        len(durations[0]) < most and time.perf_counter() < end
    ):
        for which in (0, 1) if len(durations[0]) % 2 == 0 else (1, 0):
            call = (plain, other)[which]
            last_ns = max(durations[0][-1:] + durations[1][-1:], default=0)
            is_long = last_ns > calls * 1e9 * PAUSE_S
            if is_long:
                time.sleep(PAUSE_S)
            durations[which].append(_sample(jax, call, calls, after_itself=not is_long))
    return durations


def _sample(jax: Any, call: Call, count: int, *, after_itself: bool = False) -> int:
    if isinstance(call, Consuming):
        after_itself = after_itself and call.max_calls > count
        call.prepare(count + after_itself)
    if after_itself:
        jax.block_until_ready(call())
    begin = time.perf_counter_ns()
    for _ in range(count):
        jax.block_until_ready(call())
    return time.perf_counter_ns() - begin
