// SPDX-License-Identifier: Apache-2.0
// XLA's own passes as a timeline: what each changed, and a stop in front of any.

import { Sides } from "./before_after";
import { button, h, replace, svg } from "./dom";
import { count, delta, quantity, seconds } from "./format";
import { jobBox, jobKey } from "./job_box";
import { VirtualList } from "./list";
import type { BeforeAfter, ChangeRow, StageDiff, StageRow, Timeline } from "./schema";
import { get, hasAnswer, isReadOnly } from "./source";
import { store } from "./store";

const SIGNS: Record<string, string> = { removed: "\u2212", added: "+", changed: "~" };

export class PipelineView {
  readonly element: HTMLElement;
  private bar = h("div", { class: "bar" });
  private chart = h("div", { class: "timeline" });
  private list: VirtualList<StageRow>;
  private detail = h("section", { class: "detail", "aria-label": "what the pass changed" });
  private shown: StageRow[] = [];
  private aroundBox = h("div");
  private sides: Sides | null = null;
  private diff: StageDiff | null = null;
  private detailKey = "";
  private changeKey = "";
  private barKey = "none";

  constructor() {
    const head = h("div", { class: "row-head" }, ...["#", "pass", "instructions", "duration"].map((text) =>
      h("span", { class: `cell stage-${text === "#" ? "index" : text}` }, text)));
    this.list = new VirtualList(head, (row) => this.rowOf(row), "passes");
    this.element = h("div", { class: "view pipeline" }, this.bar, this.chart, h("div", { class: "split" }, this.list.element, this.detail));
  }

  update(): void {
    const timeline = store.timeline;
    const job = store.jobs.get("timeline");
    const isAll = store.route.params.all === "1";
    if (job?.state === "running") jobBox(job);
    const barKey = `${jobKey("timeline")} ${isAll} ${timeline !== null}`;
    if (barKey !== this.barKey) replace(
      this.bar,
      job?.state === "running"
        ? jobBox(job)
        : isReadOnly ? null : button(timeline ? "Run again" : "Run XLA's passes", () => void store.run("timeline"), { kind: timeline ? "" : "primary", id: "run-pipeline", title: "XLA's own pipeline on the module as it was opened" }),
      timeline ? button(isAll ? "Only passes that changed something" : "All passes", () => store.setParams({ all: isAll ? "" : "1" })) : null,
      timeline ? h("span", { class: "note" }, this.summary(timeline)) : null,
    );
    this.barKey = barKey;
    this.shown = timeline ? timeline.stages.filter((row) => isAll || row.changed) : [];
    this.list.show(this.shown);
    replace(this.chart, timeline ? this.draw(timeline) : h("p", { class: "empty" },
      isReadOnly ? "The timeline is not in this page: write it with --timeline." : "XLA runs some two hundred passes on a module. Run them to see what each of them changed, and to decide in front of any of them."));
    this.chart.classList.toggle("is-empty", !timeline);
    void this.showDetail();
  }

  /** Puts the pictures back where they were, after the view was out of the page. */
  restore(): void {
    this.sides?.restore();
  }

  move(by: number): void {
    if (this.shown.length === 0) return;
    const at = this.shown.findIndex((row) => String(row.index) === store.route.params.stage);
    const next = Math.min(Math.max(at + by, 0), this.shown.length - 1);
    store.setParams({ stage: String(this.shown[next].index), change: "" });
    this.list.scrollTo(next);
  }

  private summary(timeline: Timeline): string {
    const last = timeline.stages[timeline.stages.length - 1];
    const changed = timeline.stages.filter((row) => row.changed).length;
    return `${timeline.stages.length} passes, ${changed} changed the module: ${count(timeline.first_instructions)} \u2192 ${count(last?.instructions ?? timeline.first_instructions)} instructions`;
  }

  private rowOf(row: StageRow): HTMLElement {
    const isSelected = String(row.index) === store.route.params.stage;
    const before = this.before(row);
    return h(
      "div",
      {
        class: `stage-row${isSelected ? " selected" : ""}${row.changed ? "" : " irrelevant"}`,
        role: "option",
        "aria-selected": isSelected ? "true" : "false",
        click: () => store.setParams({ stage: String(row.index), change: "" }),
      },
      h("span", { class: "cell stage-index" }, row.index),
      h("span", { class: "cell stage-pass", title: row.path }, row.name),
      h("span", { class: "cell stage-instructions" }, `${count(row.instructions)} (${delta(row.instructions - before)})`),
      h("span", { class: "cell stage-duration" }, seconds(row.seconds)),
    );
  }

  private before(row: StageRow): number {
    const timeline = store.timeline!;
    return row.index > 0 ? timeline.stages[row.index - 1]?.instructions ?? timeline.first_instructions : timeline.first_instructions;
  }

  private draw(timeline: Timeline): SVGElement {
    const width = Math.max(this.element.clientWidth - 24, 600);
    const height = 150;
    const pad = { left: 56, right: 64, top: 14, bottom: 26 };
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, class: "chart", role: "img", "aria-label": "instructions and bytes moved after each pass" });
    const counts = [timeline.first_instructions, ...timeline.stages.map((row) => row.instructions)];
    const most = Math.max(...counts) * 1.05;
    const toX = (stage: number) => pad.left + ((stage + 1) / counts.length) * (width - pad.left - pad.right);
    const toY = (value: number) => height - pad.bottom - (value / most) * (height - pad.top - pad.bottom);
    const bytes: number[] = [];
    for (const row of timeline.stages) bytes.push(row.bytes ?? bytes[bytes.length - 1] ?? Number.NaN);
    const first = bytes.findIndex((value) => value > 0);
    const mostBytes = Math.max(...bytes.slice(first));
    for (const part of [0, 0.5, 1]) {
      const value = (most / 1.05) * part;
      root.append(svg("line", { x1: pad.left, x2: width - pad.right, y1: toY(value), y2: toY(value), class: "grid" }));
      root.append(svg("text", { x: pad.left - 6, y: toY(value) + 4, "text-anchor": "end", class: "soft" }, count(value)));
      if (first >= 0) root.append(svg("text", { x: width - pad.right + 6, y: toY(value) + 4, class: "soft" }, quantity(mostBytes * part, "B")));
    }
    root.append(svg("text", { x: pad.left, y: height - 8, class: "soft" }, first >= 0 ? "instructions (solid, left) and bytes moved (dashed, right) after each pass of XLA's pipeline" : "instructions after each pass of XLA's pipeline"));
    let d = `M${toX(-1)} ${toY(counts[0])}`;
    timeline.stages.forEach((row, i) => (d += `H${toX(i)}V${toY(row.instructions)}`));
    if (first >= 0) {
      const toBytesY = (value: number) => toY((value / mostBytes) * (most / 1.05));
      const line = bytes.slice(first).map((value, i) => `${i ? `H${toX(first + i)}V` : `M${toX(first)} `}${toBytesY(value)}`);
      root.append(svg("path", { d: line.join(""), class: "series series-1" }));
    }
    root.append(svg("path", { d, class: "series series-0" }));
    const chosen = timeline.stages.findIndex((row) => String(row.index) === store.route.params.stage);
    if (chosen >= 0) {
      const x = toX(chosen);
      root.append(svg("line", { x1: x, x2: x, y1: pad.top, y2: height - pad.bottom, class: "cursor" }));
      const isRight = x > width / 2;
      root.append(svg("text", { x: x + (isRight ? -6 : 6), y: pad.top + 6, "text-anchor": isRight ? "end" : "start" }, timeline.stages[chosen].name));
    }
    timeline.stages.forEach((row, i) => {
      if (!row.changed) return;
      const dot = svg("circle", { cx: toX(i), cy: toY(row.instructions), r: i === chosen ? 5.5 : 3.5, class: "dot" }, svg("title", {}, `${row.path}: ${delta(row.instructions - this.before(row))} instructions`));
      dot.addEventListener("click", () => store.setParams({ stage: String(row.index), change: "" }));
      root.append(dot);
    });
    return root;
  }

  private async showDetail(): Promise<void> {
    const row = store.timeline?.stages.find((each) => String(each.index) === store.route.params.stage);
    if (!row) {
      this.detailKey = "";
      replace(this.detail, h("p", { class: "empty" }, store.timeline ? "Choose a pass to see what it changed." : ""));
      return;
    }
    const key = `${store.version}/${row.index}/${store.isBusy}`;
    if (key !== this.detailKey) {
      this.detailKey = key;
      this.diff = null;
      replace(this.detail, this.heading(row));
      if (!row.changed) return;
      if (!hasAnswer(`stage?index=${row.index}`)) {
        this.detail.append(h("p", { class: "empty" }, "What this pass changed is not in this page."));
        return;
      }
      this.detail.append(h("p", { class: "empty" }, "comparing the modules before and after \u2026"));
      const diff = await store.attempt(() => get<StageDiff>("stage", { index: row.index }));
      if (!diff || this.detailKey !== key) return;
      this.diff = diff;
      this.changeKey = "";
      replace(this.detail, this.heading(row), this.aroundBox, changeTable(diff));
    }
    if (this.diff) await this.showChange(row, this.diff);
  }

  /** The graphs around the chosen change; the first one at first. */
  private async showChange(row: StageRow, diff: StageDiff): Promise<void> {
    const change = diff.changes.find((each) => String(each.index) === store.route.params.change) ?? diff.changes[0];
    const key = `${this.detailKey}/${change?.index}`;
    if (!change || key === this.changeKey) return;
    this.changeKey = key;
    this.detail.querySelectorAll("tr[data-change]").forEach((each) => each.classList.toggle("selected", each.getAttribute("data-change") === String(change.index)));
    if (!hasAnswer(`change?index=${row.index}&change=${change.index}`)) {
      replace(this.aroundBox, h("p", { class: "empty" }, "The graphs around this change are not in this page."));
      return;
    }
    const found = await store.attempt(() => get<BeforeAfter>("change", { index: row.index, change: change.index }));
    if (!found || this.changeKey !== key) return;
    this.sides = new Sides(found);
    replace(this.aroundBox, this.sides.element);
    this.sides.center();
  }

  private heading(row: StageRow): HTMLElement {
    return h(
      "div",
      { class: "facts" },
      h("h2", {}, row.name),
      h("p", { class: "soft" }, `${row.path}, run ${row.occurrence}`),
      h("p", {}, row.changed ? `${delta(row.instructions - this.before(row))} instructions; the module then has ${quantity(row.flops)} operations and moves ${quantity(row.bytes, "B")}` : "It changed nothing here."),
      isReadOnly ? null : h("p", { class: "actions" },
        row.is_decidable
          ? button("Decide in front of it", () => void this.stopAt(row), { kind: "primary", id: "decide-here", disabled: store.isBusy })
          : h("span", { class: "soft" }, "hloenv cannot capture this pass by name; in Python, hloenv.intercept can.")),
    );
  }

  private async stopAt(row: StageRow): Promise<void> {
    if (await store.act("point", { until: row.path, occurrence: row.occurrence, passes: [row.name] })) store.go("rewrites");
  }
}

const MAX_ROWS = 200;

function changeTable(diff: StageDiff): HTMLElement {
  const kinds = ["added", "changed", "removed"];
  return h(
    "div",
    { class: "diff" },
    h("p", { class: "soft" }, `${count(diff.num_changes)} instructions differ, ${count(diff.num_same)} are the same${diff.changes.length < diff.num_changes ? `; the first ${count(diff.changes.length)} are here` : ""}`),
    kinds.map((kind) => {
      const rows = diff.changes.filter((row) => row.kind === kind);
      return rows.length ? h("details", { open: true }, h("summary", {}, `${SIGNS[kind]} ${count(rows.length)} ${kind}${rows.length > MAX_ROWS ? `, the first ${MAX_ROWS}` : ""}`), kindTable(rows.slice(0, MAX_ROWS))) : null;
    }),
  );
}

function kindTable(rows: ChangeRow[]): HTMLElement {
  const hasDetails = rows.some((row) => row.details.length > 0);
  return h("table", {},
    h("thead", {}, h("tr", {}, ["", "instruction", "opcode", "shape", hasDetails ? "change" : null].filter((text) => text !== null).map((text) => h("th", {}, text)))),
    h("tbody", {}, rows.map((row) => h("tr", { class: row.kind, title: row.source, "data-change": row.index, click: () => choose(row) }, h("td", { class: "sign", title: row.kind }, SIGNS[row.kind]),
      h("td", {}, h("button", { type: "button", class: "link" }, nameOf(row))), h("td", {}, row.opcode), h("td", { class: "shape" }, row.shape.replace(/\{[^}]*\}/g, "")),
      hasDetails ? h("td", { class: "soft" }, row.details.join("; ")) : null))));
}

function choose(row: ChangeRow): void {
  store.setParams({ change: String(row.index) });
  document.querySelector(".pipeline .sides")?.scrollIntoView({ block: "nearest" });
}

function nameOf(row: ChangeRow): string {
  if (row.before && row.after && row.before !== row.after) return `${row.before} \u2192 ${row.after}`;
  return row.after || row.before;
}
