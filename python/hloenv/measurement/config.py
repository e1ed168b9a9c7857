# SPDX-License-Identifier: Apache-2.0
"""How modules are measured, and what their measurements are stored under."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from ..hlo.module import HloModule, decided_of
from ..hlo.position import as_tuple
from ..hlo.renamed import stored_entry
from ..process.child import check_memory
from ..runtime.executable import Finish
from ..runtime.machine import this_machine
from .store import RecordKey
from .timing import Plan


@dataclass(frozen=True)
class Settings:
    """How modules are measured.

    Attributes:
        finish: as in `compile`, for the modules; not for their baseline.
        threads: cores that compile and run, in a process that has no others.
        repeats: timed rounds; None for as many as it takes, see the next three.
        precision: half the width of the interval of the speed-up that is wanted.
        give_up_below: a module whose interval lies below this is done.
        seconds: a module whose runs have taken so long is done.
        seed: of the inputs, the first of `input_sets`, and of the order of the runs.
        input_sets: random inputs on which the outputs are compared; the first are
            those of the timed runs.
        timeout_s: seconds that one module may take to compile, to run once, and for
            its share of the timed runs; None for no limit.
        max_memory_bytes: what the child process may allocate.
    """

    finish: Finish = "legalize"
    threads: int = 1
    repeats: int | None = None
    precision: float = 0.01
    give_up_below: float = 0.9
    seconds: float = 2.0
    seed: int = 0
    input_sets: int = 2
    timeout_s: float | None = None
    max_memory_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.repeats is not None and self.repeats < 1:
            raise ArgumentError(
                f"repeats is {self.repeats}; at least 1 run has to be timed"
            )
        check_memory(self.max_memory_bytes)
        if self.input_sets < 1:
            raise ArgumentError(
                f"input_sets is {self.input_sets}; outputs are compared on at least 1"
            )

    @property
    def plan(self) -> Plan:
        """How long the timing goes on."""
        return Plan(
            repeats=self.repeats,
            precision=self.precision,
            give_up_below=self.give_up_below,
            seconds=self.seconds,
            seed=self.seed,
        )


class Keys:
    """What measurements against one baseline are stored under.

    Attributes:
        inputs: "random", or which ones were given.
        identity: the baseline and its inputs, as text.
    """

    def __init__(
        self, baseline: HloModule, inputs: list[Any] | None, settings: Settings
    ):
        """Takes what all measurements share."""
        self.inputs = "random"
        if inputs is not None:
            digest = hashlib.sha256(pickle.dumps(inputs)).hexdigest()
            self.inputs = f"given ({digest[:16]})"
        self._settings = settings
        self.identity = json.dumps(
            [
                baseline.fingerprint(),
                _stored(header(baseline, "legalize")),
                settings.seed,
                settings.input_sets,
                self.inputs,
            ]
        )

    def of(self, module: HloModule) -> RecordKey:
        """The key of a measurement of `module` on this machine."""
        settings, machine = self._settings, this_machine()
        plan = [
            settings.repeats,
            settings.precision,
            settings.give_up_below,
            settings.seconds,
        ]
        return RecordKey(
            kind="measurement",
            fingerprint=module.fingerprint(),
            finish=settings.finish,
            flags=machine.flags,
            target="cpu",
            machine=machine.id,
            variant=json.dumps(
                [
                    _stored(header(module, settings.finish)),
                    settings.threads,
                    plan,
                    self.identity,
                ],
                sort_keys=True,
            ),
        )


def header(module: HloModule, finish: Finish) -> dict[str, Any]:
    """What a worker needs to know of a module beside its proto."""
    return {
        "place": as_tuple(module.position),
        "decided": decided_of(module),
        "finish": finish,
    }


def _stored(header: dict[str, Any]) -> dict[str, Any]:
    """A header as keys of the store have it."""
    return {**header, "decided": sorted(map(stored_entry, header["decided"]))}
