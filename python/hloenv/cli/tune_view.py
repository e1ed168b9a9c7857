# SPDX-License-Identifier: Apache-2.0
"""The live table of `hloenv tune`; lines where stderr is no terminal."""

from __future__ import annotations

from typing import Any

from ..tune import State
from ..tune.recording import Hot
from . import output

_MAX_MESSAGES = 4


class View:
    """Shows on stderr what a tuning does."""

    def __init__(self, *, is_shown: bool) -> None:
        """Shows nothing before the first state."""
        self._console = output.console(to_stderr=True)
        self._is_shown = is_shown
        self._live: Any = None
        self._best = 0.0
        self._messages: list[str] = []
        # Of each program that was tuned, in order; a state changes until its end.
        self.states: list[State] = []

    def say(self, text: str) -> None:
        """One line that stays."""
        if self._is_shown:
            self._console.print(text)

    def begin(self, hot: Hot) -> None:
        """A function of a script is tuned next."""
        self._end_live()
        self._best, self._messages = 0.0, []
        self.say(
            f"tunes {hot.name}: {hot.calls} calls, "
            f"{output.format_seconds(hot.seconds)} after the first ..."
        )

    def show(self, state: State) -> None:
        """The state of a tuning has changed."""
        if not any(each is state for each in self.states):
            self.states.append(state)
        if not self._is_shown:
            return
        for message in state.messages[len(self._messages) :]:
            self._messages.append(message)
            if not self._console.is_terminal:
                self._console.print(message)
        if self._console.is_terminal:
            self._update(state)
        elif state.best is not None and state.best.speedup != self._best:
            self._best = state.best.speedup
            self._console.print(
                f"{state.num_measured} measured: {_speedup(state)}, "
                f"{state.best.configuration.text}"
            )

    def _update(self, state: State) -> None:
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=4)
            self._live.start()
        self._live.update(self._table(state))

    def _table(self, state: State) -> Any:
        from rich.table import Table
        from rich.text import Text

        table = Table.grid(padding=(0, 2))
        best = state.best
        rows = [
            ("program", state.program.name),
            ("best so far", _speedup(state)),
            ("decided", "xla" if best is None else best.configuration.text),
            ("now", state.stage),
            ("measured", f"{state.num_measured} (and {state.num_known} earlier)"),
            ("time left", f"{state.seconds_left:.0f} s"),
        ]
        rows += [("note", each) for each in state.messages[-_MAX_MESSAGES:]]
        for name, value in rows:
            table.add_row(Text(name, style="bold"), Text(value))
        return table

    def _end_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_live()


def _speedup(state: State) -> str:
    best = state.best
    if best is None:
        return f"nothing is faster than {state.program.baseline}"
    low, high = best.interval
    return f"{best.speedup:.3f}x ({low:.3f} to {high:.3f})"
