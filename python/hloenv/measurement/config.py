# SPDX-License-Identifier: Apache-2.0
"""Settings of measurements, and their keys in the store."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ..errors import ArgumentError
from ..hlo.module import HloModule, decided_of
from ..hlo.position import as_tuple
from ..hlo.renamed import stored_entry
from ..process.child import check_memory
from ..runtime.executable import Engine, Finish, check_engine
from ..runtime.jaxlib.options import OptionValue, check_options
from ..runtime.machine import this_machine
from .store import RecordKey
from .timing import Plan


@dataclass(frozen=True)
class Settings:
    """Settings of measurements.

    Attributes:
        finish: as in `compile`, for the modules; not for their baseline.
        engine: the XLA that compiles and runs modules and baseline, as in `compile`.
        options: of jaxlib's compiler, for the modules, as in `compile`: pairs of a name
            and a value. The baseline is compiled without.
        baseline_engine: the XLA of the baseline; None for that of the modules.
        threads: cores of the process that compiles and runs.
        repeats: timed rounds; None to stop by the next three.
        precision: target half-width of the interval of the speed-up.
        give_up_below: a module is done if its interval is below this speed-up.
        seconds: a module is done if its runs have taken so long.
        seed: of the first of the `input_sets`, and of the order of the runs.
        input_sets: number of random inputs on which outputs are compared; the timed
            runs use the first.
        timeout_s: seconds that one module may take to compile, to run once, and for
            its share of the timed runs; None for no limit.
        max_memory_bytes: memory limit of the child process.
    """

    finish: Finish = "legalize"
    engine: Engine = "wheel"
    options: tuple[tuple[str, OptionValue], ...] = ()
    baseline_engine: Engine | None = None
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
                f"repeats must be None or an integer >= 1, got {self.repeats}"
            )
        check_engine(self.engine)
        if self.baseline_engine is not None:
            check_engine(self.baseline_engine)
        check_options(dict(self.options))
        check_memory(self.max_memory_bytes)
        if self.input_sets < 1:
            raise ArgumentError(
                f"input_sets must be an integer >= 1, got {self.input_sets}"
            )

    @property
    def engine_of_baseline(self) -> Engine:
        """The XLA that compiles and runs the baseline."""
        return self.baseline_engine or self.engine

    @property
    def worker(self) -> tuple[int, int | None]:
        """What a child process is started for: its cores and its memory limit."""
        return self.threads, self.max_memory_bytes

    @property
    def plan(self) -> Plan:
        """The stopping rules of the timing."""
        return Plan(
            repeats=self.repeats,
            precision=self.precision,
            give_up_below=self.give_up_below,
            seconds=self.seconds,
            seed=self.seed,
        )


class Keys:
    """Store keys of the measurements against one baseline.

    Attributes:
        inputs: "random", or a hash of the given ones.
        identity: the baseline and its inputs, as text.
    """

    def __init__(
        self, baseline: HloModule, inputs: list[Any] | None, settings: Settings
    ):
        """Takes the parts that all keys share."""
        self.inputs = "random"
        if inputs is not None:
            digest = hashlib.sha256(pickle.dumps(inputs)).hexdigest()
            self.inputs = f"given ({digest[:16]})"
        self._settings = settings
        self.identity = json.dumps(
            [
                baseline.fingerprint(),
                _stored(_header(baseline, "legalize")),
                settings.seed,
                settings.input_sets,
                self.inputs,
                *self._other_engine(),
            ]
        )

    def _other_engine(self) -> list[str]:
        """The baseline's engine, where it is not that of the modules."""
        settings = self._settings
        if settings.engine_of_baseline == settings.engine:
            return []
        baseline = settings.engine_of_baseline
        return [f"baseline by {' '.join(engine_key(baseline)) or baseline}"]

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
                    _stored(_header(module, settings.finish)),
                    settings.threads,
                    plan,
                    self.identity,
                    *engine_key(settings.engine),
                    *([dict(settings.options)] if settings.options else []),
                ],
                sort_keys=True,
            ),
        )


def _header(module: HloModule, finish: Finish) -> dict[str, Any]:
    """The data that a worker needs of a module besides its proto."""
    return {
        "place": as_tuple(module.position),
        "decided": decided_of(module),
        "finish": finish,
    }


def engine_key(engine: Engine) -> list[str]:
    """What keys of the store have in addition, for another engine than the wheel's."""
    return [] if engine == "wheel" else [f"{engine} {version(engine)}"]


def _stored(header: dict[str, Any]) -> dict[str, Any]:
    """A header as keys of the store contain it."""
    return {**header, "decided": sorted(map(stored_entry, header["decided"]))}
