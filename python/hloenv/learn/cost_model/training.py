# SPDX-License-Identifier: Apache-2.0
"""Training of a cost model: steps, evaluations, checkpoints, resuming.

A run's folder has `config.json`; `data_folder.json`, where its data are; `curve.csv`,
a row for each evaluation;
`best.safetensors`, the networks that ranked the validation modules best, and
`last.safetensors`; `resume.pt`, from which the run continues (tensors and numbers:
reading it executes nothing); `tensorboard/`, where TensorBoard is installed.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..._files import replacing
from ...cost.learned.checkpoint import CostModel, load_cost_model
from ...cost.learned.features import Kernels, feature_digest
from ...cost.learned.network import Ensemble, Shape
from ...cost.learned.ranking import Ranking, mean_ranking
from ...errors import ArgumentError
from ..curve import write_curve
from ..tensorboard import open_writer
from .config import CostModelConfig
from .data import fingerprints_of
from .samples import Sample, losses, sample_of, totals_of
from .shards import read_data, read_settings

_RESUME = "resume.pt"
_DATA = "data_folder.json"
BEST = "best.safetensors"
LAST = "last.safetensors"
_MACHINE = ("cpu", "architecture", "tensorflow", "flags")
# Share of the training modules that a member of the ensemble sees.
_BAG = 0.85
_WARM_UP = 50  # steps
# Kernels that are drawn from one module, beside those whose variants are ranked.
_PER_MODULE = 16
_MAX_GRADIENT = 5.0


@dataclass(frozen=True)
class Progress:
    """A training run now.

    Attributes:
        step: steps so far.
        steps: of the whole run.
        loss: mean over the steps since the last evaluation.
        kendall: Kendall's tau within a validation module, mean over modules, at the
            latest evaluation.
        spearman: the same, rank correlation.
        slowdown: of the variant with the least estimate over the best one, mean.
        best_kendall: at the best evaluation.
        seconds: of training, those of earlier processes included.
    """

    step: int
    steps: int
    loss: float
    kendall: float
    spearman: float
    slowdown: float
    best_kendall: float
    seconds: float


def train(
    config: CostModelConfig,
    data: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda _: None,
) -> CostModel:
    """Trains a cost model; on a GPU where torch has one.

    Args:
        config: what to train.
        data: folder that `make_data` wrote.
        folder: for the files of the run; made if it does not exist.
        resume: whether to continue an earlier run of the same configuration; it may
            have more steps.
        report: called after each step.

    Returns:
        The model that ranked the validation modules best.

    Raises:
        ArgumentError: the folder has a run already, or, to resume, none or one of
            another configuration or other data; there are no data, or none that can
            rank; a module is in both splits.
        DatasetError: a file of the data is damaged.
        OSError: a file cannot be written.
    """
    run = _Run(config, Path(data), Path(folder), report, resume=resume)
    try:
        return run.train()
    finally:
        run.close()


def data_of_run(folder: str | os.PathLike[str]) -> Path:
    """The folder of the data of a run; "data" in the run's where it does not say.

    Raises:
        ArgumentError: the file that says so is damaged.
    """
    path = Path(folder)
    try:
        named = json.loads((path / _DATA).read_text(encoding="utf-8"))
    except FileNotFoundError:
        named = "data"
    except ValueError:
        named = None
    if not isinstance(named, str):
        raise ArgumentError(
            f"{path / _DATA} is damaged: it holds the path of the folder of the data, "
            'as "../data"; name that folder with --data'
        )
    return (path / named).resolve()


def samples_of(
    data: str | os.PathLike[str],
    split: str,
    fingerprints: Collection[str] | None = None,
    *,
    device: str = "cpu",
) -> list[Sample]:
    """The samples of a split with at least two variants; see `read_data`.

    Raises:
        ArgumentError: there are none.
        DatasetError: a file is damaged.
    """
    shards = read_data(data, split, fingerprints)
    found = [sample_of(shard, device=device) for shard in shards]
    kept = [each for each in found if each is not None and len(each.variants) > 1]
    if not kept:
        raise ArgumentError(f"no module of {split} in {data} has two variants")
    return kept


def evaluate(
    ensemble: Ensemble, samples: Sequence[Sample], *, device: str = "cpu"
) -> Ranking:
    """Mean over the modules whose variants differ."""
    ranked = [each for each in samples if each.is_ranked]
    totals = totals_of(ensemble, ranked, device=device)
    return mean_ranking(
        [
            sample.ranking(total.mean(0))
            for sample, total in zip(ranked, totals, strict=True)
        ]
    )


def _mean(values: torch.Tensor, is_seen: torch.Tensor) -> torch.Tensor:
    """Of those that are seen."""
    return (values * is_seen).sum() / is_seen.sum().clamp(min=1)


class _Run:
    def __init__(
        self,
        config: CostModelConfig,
        data: Path,
        folder: Path,
        report: Callable[[Progress], None],
        *,
        resume: bool,
    ) -> None:
        config.check_folder(folder, resume=resume)
        self.config = config
        self.folder = folder
        self.report = report
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.data = read_settings(data)
        if resume and (found := data_of_run(folder)) != data.resolve():
            raise ArgumentError(
                f"the run in {folder} has the data in {found}, not in {data}; to "
                "continue it, leave the other data out"
            )
        drawn = fingerprints_of(config)
        self.train_samples, self.validation = (
            samples_of(data, split, drawn[split], device=self.device)
            for split in ("train", "validation")
        )
        if not any(each.is_ranked for each in self.validation):
            raise ArgumentError(
                f"no validation module in {data} has three variants whose times "
                "differ, by which the best networks could be chosen; raise "
                "max_validation or variants, or give other modules"
            )
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(config.seed)
            shape = Shape(
                config.members,
                config.width,
                config.rounds,
                config.has_attention,
                config.dropout,
            )
            self.ensemble = Ensemble(shape)
        self.ensemble.fit_scaling(
            Kernels.concatenate([each.kernels for each in self.train_samples])
        )
        self.ensemble.to(self.device)
        self.optimizer = torch.optim.AdamW(
            self.ensemble.parameters(), lr=config.learning_rate, weight_decay=1e-4
        )
        self.step, self.rows = 0, list[dict[str, float]]()
        self.best_kendall, self.seconds_before = -math.inf, 0.0
        self.losses: list[float] = []
        if resume and (folder / _RESUME).exists():
            self._resume()
        # Last: what fails above leaves nothing behind.
        config.write_to(folder)
        with replacing(folder / _DATA) as draft:
            draft.write_text(
                json.dumps(os.path.relpath(data.resolve(), folder.resolve()))
            )
        self.writer = open_writer(folder / "tensorboard")
        self._began = time.monotonic()

    def _resume(self) -> None:
        path = self.folder / _RESUME
        try:
            # Tensors, numbers and lists alone: nothing in the file is executed.
            state = torch.load(path, weights_only=True, map_location=self.device)
            if state["features"] != feature_digest():
                raise ArgumentError(
                    f"the run in {self.folder} was started with other features; start "
                    "a new one in another folder"
                )
            self.ensemble.load_state_dict(state["ensemble"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = int(state["step"])
            self.rows = list(state["rows"])
            self.losses = list(state["losses"])
            self.best_kendall = float(state["best_kendall"])
            self.seconds_before = float(self.rows[-1]["seconds"])
        except ArgumentError:
            raise
        except Exception as error:  # zip, pickle and torch have no common root
            raise ArgumentError(
                f"{path} is damaged, or not of this run ({type(error).__name__}); "
                "start a new run in another folder"
            ) from None

    # --- the loop

    def train(self) -> CostModel:
        if not self.rows:
            self.checkpoint()
        while self.step < self.config.steps:
            self.losses.append(self.take_step())
            self.step += 1
            is_last = self.step == self.config.steps
            if self.step % self.config.evaluate_every == 0 or is_last:
                self.checkpoint()
            self.report(self.progress())
        return load_cost_model(self.folder / BEST)

    def take_step(self) -> float:
        """One step; which modules it takes depends on the seed and the step alone."""
        config = self.config
        for group in self.optimizer.param_groups:
            group["lr"] = config.learning_rate * self.rate()
        rng = np.random.default_rng([config.seed, 3, self.step])
        ranked, drawn = self.indices(), self.drawn(rng)
        samples = self.train_samples
        self.ensemble.train()
        with torch.random.fork_rng():
            torch.manual_seed(int(rng.integers(2**62)))  # of dropout
            regression, ranking = losses(
                self.ensemble,
                [samples[i] for i in ranked],
                [(samples[i], which) for i, which in drawn],
                device=self.device,
            )
        loss = _mean(regression, self.bags([*ranked, *(i for i, _ in drawn)]))
        loss = loss + config.ranking_weight * _mean(ranking, self.bags(ranked))
        if not bool(torch.isfinite(loss)):
            raise ArgumentError(
                f"the loss is {loss.item()} at step {self.step}; give a smaller "
                f"learning_rate than {config.learning_rate}"
            )
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.ensemble.parameters(), _MAX_GRADIENT)
        self.optimizer.step()
        return float(loss.item())

    def rate(self) -> float:
        """Of the learning rate: up for some steps, then half a cosine."""
        done = self.step / max(self.config.steps, 1)
        warm = min(1.0, (self.step + 1) / _WARM_UP)
        return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))

    def indices(self) -> list[int]:
        """The modules of this step: an order of all of them in each epoch."""
        count, size = len(self.train_samples), self.config.modules_per_step
        found = []
        for place in range(self.step * size, (self.step + 1) * size):
            rng = np.random.default_rng([self.config.seed, 1, place // count])
            found.append(int(rng.permutation(count)[place % count]))
        return list(dict.fromkeys(found))

    def drawn(
        self, rng: np.random.Generator
    ) -> list[tuple[int, npt.NDArray[np.int64]]]:
        """Other modules, and some kernels of each."""
        count, size = len(self.train_samples), self.config.kernels_per_step
        modules = rng.choice(count, min(count, math.ceil(size / _PER_MODULE)), False)
        found = []
        for module in modules.tolist():
            kernels = len(self.train_samples[module].kernels)
            which = rng.choice(kernels, min(kernels, _PER_MODULE), replace=False)
            found.append((module, np.sort(which)))
        return found

    def bags(self, modules: Sequence[int]) -> torch.Tensor:
        """[M, modules] whether a member sees each of them."""
        rng = np.random.default_rng([self.config.seed, 2])
        seen = rng.random((self.config.members, len(self.train_samples))) < _BAG
        return torch.tensor(seen[:, list(modules)], device=self.device)

    # --- evaluations and files

    def checkpoint(self) -> None:
        """Evaluates the networks, and saves them and the run."""
        self.ensemble.eval()
        found = evaluate(self.ensemble, self.validation, device=self.device)
        is_best = found.kendall > self.best_kendall or not self.rows
        self.best_kendall = max(found.kendall, self.best_kendall)
        self.rows.append(
            {
                "step": self.step,
                "loss": float(np.mean(self.losses)) if self.losses else math.nan,
                "kendall": found.kendall,
                "spearman": found.spearman,
                "slowdown": found.slowdown[0],
                "seconds": self.seconds(),
            }
        )
        self.losses = []
        if self.writer is not None:
            for key, value in self.rows[-1].items():
                self.writer.add_scalar(f"cost_model/{key}", value, self.step)
        model = CostModel(self.ensemble, self.notes(found))
        model.save(self.folder / LAST)
        if is_best:
            model.save(self.folder / BEST)
        with replacing(self.folder / _RESUME) as draft:
            state = {
                "features": feature_digest(),
                "ensemble": self.ensemble.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "rows": self.rows,
                "losses": self.losses,
                "best_kendall": self.best_kendall,
            }
            torch.save(state, draft)
        write_curve(self.folder, self.rows)

    def notes(self, found: Ranking) -> dict[str, Any]:
        return {
            "steps": self.step,
            "threads": self.config.threads,
            "train_modules": len(self.train_samples),
            "validation_modules": sum(each.is_ranked for each in self.validation),
            "validation": asdict(found),
            "config": self.config.to_dict(),
            "data": {**self.data, "machine": self.machine()},
            "curve": [
                {key: value for key, value in row.items() if key != "seconds"}
                for row in self.rows
            ],
        }

    def machine(self) -> dict[str, Any]:
        """What the times in the data depend on."""
        found = self.data.get("machine", {})
        return {name: found[name] for name in _MACHINE if name in found}

    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self._began

    def progress(self) -> Progress:
        row = self.rows[-1]
        return Progress(
            self.step,
            self.config.steps,
            float(np.mean(self.losses)) if self.losses else row["loss"],
            row["kendall"],
            row["spearman"],
            row["slowdown"],
            self.best_kendall,
            self.seconds(),
        )

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
