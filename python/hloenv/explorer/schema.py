# SPDX-License-Identifier: Apache-2.0
"""What the server and the page exchange, as typed dictionaries.

`scripts/dev/make_explorer_types.py` writes `explorer/src/schema.ts` from this file, so
that both sides are checked against one schema. Seconds are estimates unless a name
says measured; what is unknown is null. Coordinates are in units of one line of text,
with y downwards; boxes are given by their centers.
"""

from __future__ import annotations

from typing import TypedDict


class ModuleInfo(TypedDict):
    """A module in a few numbers."""

    name: str
    fingerprint: str
    instructions: int
    computations: int
    position: str
    flops: float
    bytes: float


class StepInfo(TypedDict):
    """One step of the trace: kind is run, run-until or decide."""

    kind: str
    label: str
    accepted: int
    rejected: int


class Preset(TypedDict):
    """A decision point that is offered by name."""

    name: str
    summary: str
    until: str
    passes: list[str]


class PointInfo(TypedDict):
    """The decision point: a position in XLA's pipeline and the passes decided there."""

    until: str
    occurrence: int
    passes: list[str]


class Totals(TypedDict):
    """The decisions in numbers, and the static estimate with and without them."""

    alternatives: int
    accepted: int
    rejected: int
    undecided: int
    irrelevant: int
    static_before_s: float | None
    static_after_s: float | None
    can_undo: bool


class State(TypedDict):
    """Everything but the graph: the module, the trace, the decision point.

    decisions are the user's, -1 for what is left to XLA; xla has what that means: the
    choice that XLA's pass here takes, or -1 where later passes decide. Another revision
    of a session has other decisions, or is at another point.
    """

    session: str
    revision: str
    version: str
    target: str
    is_safe_to_restore: bool
    base: str
    module: ModuleInfo
    point: PointInfo
    steps: list[StepInfo]
    totals: Totals
    decisions: list[int]
    xla: list[int]
    relevant: list[bool]
    presets: list[Preset]
    passes: list[str]
    policies: list[str]
    log: list[Action]


class Action(TypedDict):
    """One action of a session, as the log repeats it; other fields are "" or []."""

    do: str
    until: str
    occurrence: int
    passes: list[str]
    changes: list[list[int]]


class ComputationBox(TypedDict):
    """A computation: role says how its caller uses it ("body", "fused", ...)."""

    name: str
    role: str
    caller: int
    x: float
    y: float
    w: float
    h: float


class GraphData(TypedDict):
    """A module as columns; N nodes, E edges.

    flags is a sum of 1 root, 2 parameter, 4 constant, 8 side effect, 16 in a fusion,
    32 contains computations. alternative is the number of an alternative at the node,
    -1 for none. seconds are static, or kernel_s timed.
    """

    module: str
    width: float
    height: float
    opcodes: list[str]
    shapes: list[str]
    sources: list[str]
    names: list[str]
    opcode: list[int]
    shape: list[int]
    source: list[int]
    computation: list[int]
    flags: list[int]
    alternative: list[int]
    x: list[float]
    y: list[float]
    w: list[float]
    h: list[float]
    bytes: list[float]
    flops: list[float]
    seconds: list[float]
    kernel_s: list[float]
    edge_sources: list[int]
    edge_targets: list[int]
    edge_controls: list[int]
    computations: list[ComputationBox]


class ChoiceRow(TypedDict):
    """A choice: static cost deltas if it alone is taken."""

    opcode: str
    passes: list[str]
    rule: str
    numerics: str
    adds: int
    kills: int
    instructions: float
    flops: float
    bytes: float
    static_s: float
    compares_duplicates: bool


class AlternativeRow(TypedDict):
    """An alternative; choice 0 is the original."""

    index: int
    kind: str
    original: str
    opcode: str
    shape: str
    computation: str
    source: str
    sites: int
    choices: list[ChoiceRow]


class SiteInfo(TypedDict):
    """One value that the alternative replaces, and who reads it."""

    computation: str
    original: str
    uses: list[str]


class BeforeAfter(TypedDict):
    """Changed instructions and their neighbours, before and after.

    changed has a node's kind of change by name: removed, changed, added.
    """

    before: GraphData
    after: GraphData
    changed: dict[str, str]
    text_before: list[str]
    text_after: list[str]
    num_left_out: int


class AlternativeDetail(BeforeAfter):
    """What one choice changes."""

    index: int
    choice: int
    sites: list[SiteInfo]
    kills: list[str]
    makes_irrelevant: list[int]


class NodeDetail(TypedDict):
    """An instruction: its HLO text and its neighbours."""

    name: str
    text: str
    operands: list[str]
    users: list[str]


class StageRow(TypedDict):
    """One run of a pass in XLA's own pipeline."""

    index: int
    name: str
    path: str
    occurrence: int
    changed: bool
    seconds: float
    instructions: int
    flops: float | None
    bytes: float | None
    is_decidable: bool


class Timeline(TypedDict):
    """XLA's own passes on the module, in order."""

    target: str
    first_instructions: int
    stages: list[StageRow]


class ChangeRow(TypedDict):
    """One instruction that a pass added, removed or changed."""

    index: int
    kind: str
    computation: str
    before: str
    after: str
    opcode: str
    shape: str
    details: list[str]
    source: str


class StageDiff(TypedDict):
    """What one pass changed."""

    num_same: int
    num_changes: int
    changes: list[ChangeRow]


class KernelRow(TypedDict):
    """A kernel after XLA's passes; seconds of all its runs."""

    name: str
    opcode: str
    runs: float
    seconds: float
    source: str


class EstimateResult(TypedDict):
    """The kernel cache's estimates of XLA's default and of the decisions."""

    default_s: float | None
    decided_s: float | None
    kernels: list[KernelRow]
    error: str


class MeasureResult(TypedDict):
    """The decided module timed against XLA's default, in turns."""

    default_s: float | None
    decided_s: float | None
    speedup: float | None
    low: float | None
    high: float | None
    outputs: str
    error: str


class KernelDifference(TypedDict):
    """Kernels of one name that only one of two modules has, or has more often."""

    name: str
    opcode: str
    names_first: list[str]
    names_second: list[str]
    first_s: float
    second_s: float
    gain_s: float


class DecisionDifference(TypedDict):
    """An alternative that two methods decide differently; static_s is second - first.

    first and second are choices: 0 keeps the original, -1 leaves it to later passes.
    """

    index: int
    first: int
    second: int
    static_s: float


class CompareResult(TypedDict):
    """Two methods on the module: first is the reference, gains are of the second."""

    first: str
    second: str
    first_s: float | None
    second_s: float | None
    differences: list[KernelDifference]
    decisions: list[DecisionDifference]
    error: str


class RankResult(TypedDict):
    """Choices timed one by one: [alternative, choice, seconds over the default]."""

    default_s: float | None
    timed: list[list[float]]
    error: str


class Finished(TypedDict):
    """Results of jobs, by kind; None for those without one."""

    estimate: EstimateResult | None
    measure: MeasureResult | None
    compare: CompareResult | None
    rank: RankResult | None
    timeline: Timeline | None


class JobInfo(Finished):
    """Long work: state is running, done, failed or cancelled; total 0 is unknown."""

    id: int
    kind: str
    state: str
    done: int
    total: int
    phase: str
    seconds: float
    message: str


class MethodRow(TypedDict):
    """A method of a leaderboard."""

    method: str
    modules: int
    mean_speedup: float | None
    failures: int


class ResultRow(TypedDict):
    """One method on one module; or one measured candidate of a search or a tuning.

    Its decisions can be opened if it has a trace and the module is known.
    """

    module: str
    method: str
    speedup: float | None
    low: float | None
    high: float | None
    estimate_s: float | None
    accepted: int
    changes: dict[str, int]
    curve: list[list[float]]
    error: str
    has_trace: bool
    facts: dict[str, str]


class LineData(TypedDict):
    """A line of a chart: kind is line, step or points; [x, y] or [x, y, low, high]."""

    name: str
    points: list[list[float]]
    kind: str


class ChartData(TypedDict):
    """A chart with the labels of its axes; reference is a y to compare with."""

    title: str
    x: str
    y: str
    lines: list[LineData]
    reference: float | None


class Results(TypedDict):
    """A result file: kind is none, search, tune, train or bench."""

    kind: str
    title: str
    note: str
    charts: list[ChartData]
    methods: list[MethodRow]
    rows: list[ResultRow]


class ErrorInfo(TypedDict):
    """Why a request failed."""

    error: str
    message: str
