// SPDX-License-Identifier: Apache-2.0
// Results: two methods on this module, kernel by kernel; leaderboards; curves.

import { button, h, replace, select } from "./dom";
import { count, gain, ratio, seconds, shortened } from "./format";
import { jobBox, jobKey } from "./job_box";
import { VirtualList } from "./list";
import { chart, swatch } from "./picture";
import { tone } from "./rewrites";
import type { AlternativeRow, ChartData, CompareResult, ResultRow, Results } from "./schema";
import { get, isReadOnly } from "./source";
import { store } from "./store";

const MOST_DECISIONS = 100;

export class ResultsView {
  readonly element: HTMLElement;
  private compareBox = h("section", { class: "card" });
  private chartsBox = h("section", { class: "card", id: "charts" });
  private boardBox = h("section", { class: "card" });
  private rowsBox = h("section", { class: "card grow" });
  private results: Results | null = null;
  private isLoading = false;
  private loadedFor = "";
  private compareKey = "";
  private first = "default";
  private second = "decided";
  private list: VirtualList<ResultRow>;
  private detail = h("div", { class: "curve" });
  private subject = h("span", {}, "module");

  constructor() {
    const head = h("div", { class: "row-head" }, ...["module", "method", "speed-up", "95 %", "accepted"].map((text, i) =>
      h("span", { class: `cell result-${text.replace(/\W/g, "")}` }, i ? text : this.subject)));
    this.list = new VirtualList(head, (row, index) => this.rowOf(row, index), "results");
    this.element = h("div", { class: "view results" }, this.compareBox, this.chartsBox, this.boardBox, this.rowsBox);
  }

  update(): void {
    void this.load();
    this.compareBox.hidden = store.state === null || isReadOnly;
    const job = store.jobs.get("compare");
    if (job?.state === "running") jobBox(job);
    const key = `${jobKey("compare")} ${store.version} ${JSON.stringify(store.compare)}`;
    if (!this.compareBox.hidden && key !== this.compareKey) {
      this.compareKey = key;
      replace(this.compareBox, ...this.compare());
    }
    const results = this.results;
    this.chartsBox.hidden = !results || results.charts.length === 0;
    this.boardBox.hidden = !results || results.methods.length === 0;
    this.rowsBox.hidden = !results || results.rows.length === 0;
    if (!results) return;
    if (!this.chartsBox.hidden) replace(this.chartsBox, ...charts(results));
    if (!this.boardBox.hidden) replace(this.boardBox, ...this.board(results));
    if (!this.rowsBox.hidden) {
      const hasTitle = results.charts.length > 0; // above the charts
      replace(this.rowsBox, ...(hasTitle ? [] : titleOf(results)), h("div", { class: "split" }, this.list.element, this.detail));
      const subjects: Record<string, string> = { search: "candidate", tune: "configuration or program" };
      replace(this.subject, subjects[results.kind] ?? "module");
      this.list.show(this.rows());
      this.showCurve(results);
    }
  }

  /** Moves the selection by some rows. */
  move(by: number): void {
    const number = this.rows().length;
    if (number === 0) return;
    const at = Number(store.route.params.row ?? (by > 0 ? -1 : 0));
    const next = Math.min(Math.max(at + by, 0), number - 1);
    store.setParams({ row: String(next) });
    this.list.scrollTo(next);
  }

  private rows(): ResultRow[] {
    const method = store.route.params.method;
    return (this.results?.rows ?? []).filter((row) => !method || row.method === method);
  }

  private async load(): Promise<void> {
    // A server that was started again, or another module, may have others.
    const wanted = store.resultsKey;
    if (this.isLoading || (this.results && this.loadedFor === wanted)) return;
    this.isLoading = true;
    this.results = (await store.attempt(() => get<Results>("results"))) ?? null;
    this.loadedFor = wanted;
    this.isLoading = false;
    if (this.results) this.update();
  }

  private compare(): (HTMLElement | null)[] {
    const methods: [string, string][] = [
      ["default", "XLA's default"],
      ["decided", "your decisions"],
      ...store.state!.policies.map((name): [string, string] => [`policy:${name}`, `policy ${name}`]),
    ];
    const job = store.jobs.get("compare");
    return [
      h("h3", {}, "Two methods on this module"),
      h("p", { class: "soft" }, "Both decide at the stop; XLA does the rest. What differs afterwards is compared kernel by kernel."),
      h(
        "div",
        { class: "bar" },
        select("the first method", methods, this.first, (value) => (this.first = value)),
        h("span", {}, "against"),
        select("the second method", methods, this.second, (value) => (this.second = value)),
        job?.state === "running"
          ? jobBox(job)
          : button("Compare", () => void store.run("compare", { first: this.first, second: this.second }), { kind: "primary", id: "compare" }),
      ),
      store.compare && !store.compare.error ? this.differences(store.compare, new Map(methods)) : null,
    ];
  }

  private differences(found: CompareResult, names: Map<string, string>): HTMLElement {
    const title = (key: string) => names.get(key) ?? key;
    const change = (found.second_s ?? 0) - (found.first_s ?? 0);
    return h(
      "div",
      { id: "differences" },
      h("p", {}, `${title(found.first)}: ${seconds(found.first_s)}; ${title(found.second)}: ${seconds(found.second_s)}. `,
        h("b", { class: tone(change) }, `${gain(change)}`), " by kernels timed one by one"),
      found.differences.length === 0
        ? h("p", { class: "soft" }, "Both give the same kernels.")
        : h("table", {},
            h("thead", {}, h("tr", {}, ["kernels", title(found.first), title(found.second), "second over first"].map((text, i) => h("th", { class: i ? "number" : "" }, text)))),
            h("tbody", {}, found.differences.map((row) =>
              h("tr", {}, h("td", { class: "names", title: `${row.opcode}: ${[...row.names_first, ...row.names_second].join(", ")}` }, row.name),
                h("td", { class: "number" }, timeOf(row.first_s, row.names_first.length)),
                h("td", { class: "number" }, timeOf(row.second_s, row.names_second.length)),
                h("td", { class: `number ${tone(-row.gain_s)}` }, gain(-row.gain_s)))))),
      this.decisions(found, title),
    );
  }

  private decisions(found: CompareResult, title: (key: string) => string): HTMLElement {
    const rows = found.decisions;
    if (rows.length === 0) return h("p", { class: "soft" }, "Both decide the same at this stop.");
    const heads = ["rewrite", title(found.first), title(found.second), "static"];
    return h("details", { open: true, id: "decisions" },
      h("summary", {}, `${count(rows.length)} rewrite${rows.length === 1 ? "" : "s"} decided differently${rows.length > MOST_DECISIONS ? `, the first ${MOST_DECISIONS} by the static estimate` : ""}`),
      h("table", {},
        h("thead", {}, h("tr", {}, heads.map((text) => h("th", { class: text === "static" ? "number" : "" }, text)))),
        h("tbody", {}, rows.slice(0, MOST_DECISIONS).map((each) => {
          const row = store.alternatives[each.index];
          const taken = [each.second, each.first].find((choice) => choice > 0) ?? 1;
          return h("tr", {},
            h("td", {}, button(row.original, () => store.go("rewrites", { a: String(row.index), c: String(taken) }), { kind: "link", title: "before and after" }),
              h("span", { class: "soft" }, ` ${shortened(row.shape, 40)}`)),
            h("td", {}, decisionText(row, each.first)),
            h("td", {}, decisionText(row, each.second)),
            h("td", { class: `number ${tone(each.static_s)}` }, gain(each.static_s)));
        }))));
  }

  private board(results: Results): HTMLElement[] {
    const chosen = store.route.params.method ?? "";
    return [
      h("h3", {}, results.kind === "train" ? "The best model beside others, by estimate" : ["Leaderboard: ", h("span", { class: "as-written" }, results.title)]),
      h("div", { class: "board" }, h("table", {},
        h("thead", {}, h("tr", {}, ["method", "modules", "failed", "geometric mean"].map((text, i) => h("th", { class: i ? "number" : "" }, text)))),
        h("tbody", {}, results.methods.map((row) =>
          h("tr", { class: row.method === chosen ? "selected" : "", click: () => store.setParams({ method: row.method === chosen ? "" : row.method }) },
            h("td", {}, h("button", { type: "button", class: "link" }, row.method)), h("td", { class: "number" }, count(row.modules)), h("td", { class: "number" }, count(row.failures)),
            h("td", { class: "number" }, ratio(row.mean_speedup))))))),
    ];
  }

  private rowOf(row: ResultRow, index: number): HTMLElement {
    const isSelected = (store.route.params.row ?? "0") === String(index);
    return h(
      "div",
      { class: `result-row${isSelected ? " selected" : ""}`, role: "option", "aria-selected": isSelected ? "true" : "false", click: () => store.setParams({ row: String(index) }) },
      h("span", { class: "cell result-module", title: row.module }, row.module),
      h("span", { class: "cell result-method", title: row.method }, row.method),
      h("span", { class: "cell result-speedup", title: row.error }, row.error ? "failed" : ratio(row.speedup)),
      h("span", { class: "cell result-95" }, row.low === null ? "" : `${ratio(row.low)} to ${ratio(row.high)}`),
      h("span", { class: "cell result-accepted" }, count(row.accepted)),
    );
  }

  /** Leads to the decisions of a row, on the module that they were made on. */
  private opener(row: ResultRow): HTMLElement | null {
    if (!row.has_trace || isReadOnly) return null;
    if (!store.hasModule) {
      return h("p", { class: "soft", id: "no-module" }, "Start with --module MODULE to look at these decisions on the module that they were made on.");
    }
    const open = async () => {
      const at = this.results!.rows.indexOf(row);
      if (!(await store.act("open_row", { row: at }))) return;
      store.go("rewrites");
      if (store.state?.decisions.every((each) => each < 0)) store.say("This candidate decides as XLA does, at every stop.");
    };
    return h("p", { class: "actions" },
      button("Look at its decisions", () => void open(), { kind: "primary", id: "open-row", disabled: store.isBusy }),
      h("span", { class: "soft" }, "opens the last stop where they differ from XLA's; Undo goes back through the others"));
  }

  private showCurve(results: Results): void {
    const rows = this.rows();
    const row = rows[Number(store.route.params.row ?? 0)] ?? rows[0];
    if (!row) return;
    const changes = Object.entries(row.changes).sort((a, b) => b[1] - a[1]);
    const curve = row.curve;
    replace(
      this.detail,
      h("h4", {}, shortened(row.module, 70)),
      row.error ? h("p", { class: "error" }, row.error) : null,
      curve.length > 1
        ? chart([{ name: "", points: curve, step: true }], {
            width: 460, height: 220, xLabel: "estimates",
            yLabel: "best estimated speed-up so far", formatY: (value, digits) => `${value.toFixed(Math.max(digits, 2))}\u00d7`,
          })
        : results.kind === "bench" ? h("p", { class: "soft" }, "This method is no search: it has no curve.") : null,
      this.opener(row),
      facts(row.facts),
      changes.length ? h("table", {}, h("thead", {}, h("tr", {}, h("th", {}, "decisions other than XLA's"), h("th", { class: "number" }, "times"))),
        h("tbody", {}, changes.slice(0, 30).map(([what, number]) => h("tr", {}, h("td", {}, what), h("td", { class: "number" }, count(number)))))) : null,
    );
  }
}

function facts(found: Record<string, string>): HTMLElement | null {
  const known = Object.entries(found).filter(([, text]) => text !== "");
  if (known.length === 0) return null;
  return h("dl", { class: "facts-of-row" }, known.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)]));
}

/** The charts side by side; the pictures of the command line show the same data. */
function charts(results: Results): HTMLElement[] {
  return [
    ...titleOf(results),
    h("div", { class: "charts" }, results.charts.map((each) =>
      h("figure", {}, h("figcaption", {}, each.title), h("p", { class: "soft" }, each.y), legend(each),
        chart(each.lines.map((line) => ({ name: "", points: line.points, step: line.kind === "step", dots: line.kind === "points" })), {
          width: 460, height: 240, xLabel: each.x, yLabel: `${each.title}: ${each.y}`, reference: each.reference,
        })))),
  ];
}

function titleOf(results: Results): HTMLElement[] {
  return [h("h3", { class: "as-written" }, results.title), h("p", { class: "soft" }, results.note)];
}

function legend(data: ChartData): HTMLElement | null {
  if (data.lines.length < 2) return null;
  return h("div", { class: "legend" }, data.lines.map((line, i) => h("span", {}, swatch(i, line.kind === "points"), line.name)));
}

/** What a decision does with an alternative. */
function decisionText(row: AlternativeRow, choice: number): string {
  if (choice < 0) return "left to later passes";
  if (choice === 0) return `keeps ${row.opcode}`;
  const { opcode, passes, rule } = row.choices[choice];
  return `${row.opcode} \u2192 ${opcode} (${[passes.join(", "), rule].filter(Boolean).join(": ")})`;
}

function timeOf(value: number, number: number): string {
  if (number === 0) return "\u2013";
  return number === 1 ? seconds(value) : `${seconds(value)} (${number})`;
}
