// SPDX-License-Identifier: Apache-2.0
// Written by scripts/dev/make_explorer_types.py from hloenv/explorer/schema.py.

/** A module in a few numbers. */
export interface ModuleInfo {
  name: string;
  fingerprint: string;
  instructions: number;
  computations: number;
  position: string;
  flops: number;
  bytes: number;
}

/** One step of the trace: kind is run, run-until or decide. */
export interface StepInfo {
  kind: string;
  label: string;
  accepted: number;
  rejected: number;
}

/** A decision point that is offered by name. */
export interface Preset {
  name: string;
  summary: string;
  until: string;
  passes: string[];
}

/** The decision point: a position in XLA's pipeline and the passes decided there. */
export interface PointInfo {
  until: string;
  occurrence: number;
  passes: string[];
}

/** The decisions in numbers, and the static estimate with and without them. */
export interface Totals {
  alternatives: number;
  accepted: number;
  rejected: number;
  undecided: number;
  irrelevant: number;
  static_before_s: number | null;
  static_after_s: number | null;
  can_undo: boolean;
}

/** Everything but the graph: the module, the trace, the decision point. decisions are the user's, -1 for what is left to XLA; xla has what that means: the choice that XLA's pass here takes, or -1 where later passes decide. Another revision of a session has other decisions, or is at another point. */
export interface State {
  session: string;
  revision: string;
  version: string;
  target: string;
  is_safe_to_restore: boolean;
  base: string;
  module: ModuleInfo;
  point: PointInfo;
  steps: StepInfo[];
  totals: Totals;
  decisions: number[];
  xla: number[];
  relevant: boolean[];
  presets: Preset[];
  passes: string[];
  policies: string[];
  log: Action[];
}

/** One action of a session, as the log repeats it; other fields are "" or []. */
export interface Action {
  do: string;
  until: string;
  occurrence: number;
  passes: string[];
  changes: number[][];
}

/** A computation: role says how its caller uses it ("body", "fused", ...). */
export interface ComputationBox {
  name: string;
  role: string;
  caller: number;
  x: number;
  y: number;
  w: number;
  h: number;
}

/** A module as columns; N nodes, E edges. flags is a sum of 1 root, 2 parameter, 4 constant, 8 side effect, 16 in a fusion, 32 contains computations. alternative is the number of an alternative at the node, -1 for none. seconds are static, or kernel_s timed. */
export interface GraphData {
  module: string;
  width: number;
  height: number;
  opcodes: string[];
  shapes: string[];
  sources: string[];
  names: string[];
  opcode: number[];
  shape: number[];
  source: number[];
  computation: number[];
  flags: number[];
  alternative: number[];
  x: number[];
  y: number[];
  w: number[];
  h: number[];
  bytes: number[];
  flops: number[];
  seconds: number[];
  kernel_s: number[];
  edge_sources: number[];
  edge_targets: number[];
  edge_controls: number[];
  computations: ComputationBox[];
}

/** A choice: static cost deltas if it alone is taken. */
export interface ChoiceRow {
  opcode: string;
  passes: string[];
  rule: string;
  numerics: string;
  adds: number;
  kills: number;
  instructions: number;
  flops: number;
  bytes: number;
  static_s: number;
  compares_duplicates: boolean;
}

/** An alternative; choice 0 is the original. */
export interface AlternativeRow {
  index: number;
  kind: string;
  original: string;
  opcode: string;
  shape: string;
  computation: string;
  source: string;
  sites: number;
  choices: ChoiceRow[];
}

/** One value that the alternative replaces, and who reads it. */
export interface SiteInfo {
  computation: string;
  original: string;
  uses: string[];
}

/** Changed instructions and their neighbours, before and after. changed has a node's kind of change by name: removed, changed, added. */
export interface BeforeAfter {
  before: GraphData;
  after: GraphData;
  changed: Record<string, string>;
  text_before: string[];
  text_after: string[];
  num_left_out: number;
}

/** What one choice changes. */
export interface AlternativeDetail {
  before: GraphData;
  after: GraphData;
  changed: Record<string, string>;
  text_before: string[];
  text_after: string[];
  num_left_out: number;
  index: number;
  choice: number;
  sites: SiteInfo[];
  kills: string[];
  makes_irrelevant: number[];
}

/** An instruction: its HLO text and its neighbours. */
export interface NodeDetail {
  name: string;
  text: string;
  operands: string[];
  users: string[];
}

/** One run of a pass in XLA's own pipeline. */
export interface StageRow {
  index: number;
  name: string;
  path: string;
  occurrence: number;
  changed: boolean;
  seconds: number;
  instructions: number;
  flops: number | null;
  bytes: number | null;
  is_decidable: boolean;
}

/** XLA's own passes on the module, in order. */
export interface Timeline {
  target: string;
  first_instructions: number;
  stages: StageRow[];
}

/** One instruction that a pass added, removed or changed. */
export interface ChangeRow {
  index: number;
  kind: string;
  computation: string;
  before: string;
  after: string;
  opcode: string;
  shape: string;
  details: string[];
  source: string;
}

/** What one pass changed. */
export interface StageDiff {
  num_same: number;
  num_changes: number;
  changes: ChangeRow[];
}

/** A kernel after XLA's passes; seconds of all its runs. */
export interface KernelRow {
  name: string;
  opcode: string;
  runs: number;
  seconds: number;
  source: string;
}

/** The kernel cache's estimates of XLA's default and of the decisions. */
export interface EstimateResult {
  default_s: number | null;
  decided_s: number | null;
  kernels: KernelRow[];
  error: string;
}

/** The decided module timed against XLA's default, in turns. */
export interface MeasureResult {
  default_s: number | null;
  decided_s: number | null;
  speedup: number | null;
  low: number | null;
  high: number | null;
  outputs: string;
  error: string;
}

/** Kernels of one name that only one of two modules has, or has more often. */
export interface KernelDifference {
  name: string;
  opcode: string;
  names_first: string[];
  names_second: string[];
  first_s: number;
  second_s: number;
  gain_s: number;
}

/** An alternative that two methods decide differently; static_s is second - first. first and second are choices: 0 keeps the original, -1 leaves it to later passes. */
export interface DecisionDifference {
  index: number;
  first: number;
  second: number;
  static_s: number;
}

/** Two methods on the module: first is the reference, gains are of the second. */
export interface CompareResult {
  first: string;
  second: string;
  first_s: number | null;
  second_s: number | null;
  differences: KernelDifference[];
  decisions: DecisionDifference[];
  error: string;
}

/** Choices timed one by one: [alternative, choice, seconds over the default]. */
export interface RankResult {
  default_s: number | null;
  timed: number[][];
  error: string;
}

/** Results of jobs, by kind; None for those without one. */
export interface Finished {
  estimate: EstimateResult | null;
  measure: MeasureResult | null;
  compare: CompareResult | null;
  rank: RankResult | null;
  timeline: Timeline | null;
}

/** Long work: state is running, done, failed or cancelled; total 0 is unknown. */
export interface JobInfo {
  estimate: EstimateResult | null;
  measure: MeasureResult | null;
  compare: CompareResult | null;
  rank: RankResult | null;
  timeline: Timeline | null;
  id: number;
  kind: string;
  state: string;
  done: number;
  total: number;
  phase: string;
  seconds: number;
  message: string;
}

/** A method of a leaderboard. */
export interface MethodRow {
  method: string;
  modules: number;
  mean_speedup: number | null;
  failures: number;
}

/** One method on one module; or one measured candidate of a search or a tuning. Its decisions can be opened if it has a trace and the module is known. */
export interface ResultRow {
  module: string;
  method: string;
  speedup: number | null;
  low: number | null;
  high: number | null;
  estimate_s: number | null;
  accepted: number;
  changes: Record<string, number>;
  curve: number[][];
  error: string;
  has_trace: boolean;
  facts: Record<string, string>;
}

/** A line of a chart: kind is line, step or points; [x, y] or [x, y, low, high]. */
export interface LineData {
  name: string;
  points: number[][];
  kind: string;
}

/** A chart with the labels of its axes; reference is a y to compare with. */
export interface ChartData {
  title: string;
  x: string;
  y: string;
  lines: LineData[];
  reference: number | null;
}

/** A result file: kind is none, search, tune, train or bench. */
export interface Results {
  kind: string;
  title: string;
  note: string;
  charts: ChartData[];
  methods: MethodRow[];
  rows: ResultRow[];
}

/** Why a request failed. */
export interface ErrorInfo {
  error: string;
  message: string;
}
