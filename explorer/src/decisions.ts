// SPDX-License-Identifier: Apache-2.0
// The panel of the decisions: the stop, the estimate, jobs, the trace, what is saved.

import { button, download, h, replace, select } from "./dom";
import { count, gain, ratio, seconds } from "./format";
import { jobBox, jobKey } from "./job_box";
import { tone } from "./rewrites";
import type { PointInfo, Preset } from "./schema";
import { get, isReadOnly, keptStops, shownStop } from "./source";
import { store } from "./store";

export class DecisionsPanel {
  readonly element = h("aside", { class: "panel", "aria-label": "decisions" });
  private key = "";
  private shown = "";
  /** Kept, so that what was typed there is not lost by an error. */
  private other: HTMLElement | null = null;

  update(): void {
    const state = store.state;
    this.element.hidden = state === null;
    if (state === null) return;
    const kinds = ["estimate", "measure"];
    const key = JSON.stringify([state, kinds.map(jobKey), store.estimate, store.measure, store.isBusy]);
    for (const job of kinds.map((kind) => store.jobs.get(kind))) {
      if (job?.state === "running") jobBox(job);
    }
    // What is typed into a field, or about to be clicked, must stay.
    if (key === this.key) return;
    this.key = key;
    replace(this.element, this.stop(), this.summary(), this.times(), this.trace());
  }

  private stop(): HTMLElement {
    const { point, presets } = store.state!;
    const current = presets.findIndex((each) => isAt(each, point));
    if (isReadOnly) {
      const names = keptStops.map((each, i): [string, string] => [String(i), nameOf(each, presets)]);
      const choose = select("decision points of this page", names, String(shownStop()), (value) => void store.goToStop(Number(value)));
      choose.disabled = names.length < 2;
      choose.id = "preset";
      return h("section", {}, h("h3", {}, "Rewrites"), choose, ...explanation(point, presets[current]));
    }
    const options: [string, string][] = presets.map((each, i) => [String(i), each.name]);
    if (current < 0) options.unshift(["-1", `${point.passes.join(", ")}`]);
    options.push(["other", "other passes\u2026"]);
    const other = this.other ?? (this.other = this.otherPasses());
    const shown = JSON.stringify([store.state!.session, point]);
    if (this.shown !== shown) other.hidden = true;
    this.shown = shown;
    const choose = select("rewrites to decide", options, String(current), (value) => {
      other.hidden = value !== "other";
      const preset = presets[Number(value)];
      if (preset) void store.act("point", { until: preset.until, occurrence: 1, passes: preset.passes });
    });
    if (!other.hidden) choose.value = "other";
    choose.disabled = store.isBusy;
    choose.id = "preset";
    return h(
      "section",
      {},
      h("h3", {}, "Decide"),
      choose,
      other,
      ...explanation(point, presets[current]),
    );
  }

  private otherPasses(): HTMLElement {
    const passes = h("input", { list: "all-passes", placeholder: "passes: algsimp cse", "aria-label": "passes" });
    const until = h("input", { placeholder: "position, such as fusion", "aria-label": "position in XLA's pipeline" });
    return h(
      "div",
      { class: "other" },
      passes,
      h("datalist", { id: "all-passes" }, store.state!.passes.map((each) => h("option", { value: each }))),
      until,
      button("Find rewrites", () => {
        void store.act("point", { until: until.value.trim(), occurrence: 1, passes: passes.value.split(/[\s,]+/).filter(Boolean) });
      }),
    );
  }

  private summary(): HTMLElement {
    const { totals } = store.state!;
    const before = totals.static_before_s ?? 0;
    const after = totals.static_after_s ?? 0;
    const isDecided = totals.accepted + totals.rejected > 0;
    return h(
      "section",
      {},
      h(
        "div",
        { class: "totals" },
        figure(count(totals.accepted), "accepted", "accepted"),
        figure(count(totals.rejected), "rejected", "rejected"),
        figure(count(totals.undecided), "left to XLA", ""),
      ),
      totals.irrelevant ? h("p", { class: "soft" }, `${count(totals.irrelevant)} do not matter, given these decisions and XLA's`) : null,
      h("p", { id: "static-estimate" },
        "static: ", seconds(before), " \u2192 ", h("b", {}, seconds(after)), " ",
        h("span", { class: tone(after - before) }, after === before ? "" : gain(after - before)),
        h("br"), h("span", { class: "soft" }, "roofline of the module here, before XLA's later passes; a row's figure is its change alone")),
      isReadOnly ? null : h(
        "p",
        { class: "actions" },
        button("Apply", () => void store.act("apply"), { kind: "primary", title: "make these decisions a step of the trace, and look for more", disabled: !isDecided || store.isBusy, id: "apply" }),
        button("Undo", () => void store.act("undo"), { title: "key u", disabled: !totals.can_undo || store.isBusy, id: "undo" }),
      ),
    );
  }

  private times(): HTMLElement | null {
    if (isReadOnly) return null;
    const { estimate, measure } = store;
    return h(
      "section",
      {},
      h("h3", {}, "Against XLA's default"),
      this.job("estimate", "Estimate", "sum of kernels, each compiled and timed once"),
      estimate && !estimate.error ? h("p", { id: "estimate-result" },
        `${seconds(estimate.default_s)} \u2192 `, h("b", {}, seconds(estimate.decided_s)), " ",
        h("span", { class: tone((estimate.decided_s ?? 0) - (estimate.default_s ?? 0)) }, gain((estimate.decided_s ?? 0) - (estimate.default_s ?? 0)))) : null,
      estimate?.error ? h("p", { class: "error" }, estimate.error) : null,
      estimate?.kernels.length ? button("Kernel times in the graph", () => store.go("graph", { which: "final", by: "time" })) : null,
      this.job("measure", "Measure", "both modules compiled, run in turns, outputs compared"),
      measure && !measure.error ? h("p", { id: "measure-result" },
        `${seconds(measure.default_s)} \u2192 `, h("b", {}, seconds(measure.decided_s)),
        `: ${ratio(measure.speedup)} (95\u00a0%: ${ratio(measure.low)} to ${ratio(measure.high)})`,
        h("br"), h("span", { class: "soft" }, measure.outputs)) : null,
      measure?.error ? h("p", { class: "error" }, measure.error) : null,
    );
  }

  private job(kind: string, text: string, title: string): HTMLElement {
    const job = store.jobs.get(kind);
    if (job?.state === "running") return jobBox(job);
    return h("p", { class: "actions" }, button(text, () => void store.run(kind), { title, id: kind }), h("span", { class: "soft" }, title));
  }

  private trace(): HTMLElement {
    const { steps, target } = store.state!;
    const name = target.replace(/.*\//, "").replace(/[^\w.-]/g, "_") || "module";
    const save = async (path: string, file: string, type: string) => {
      const found = await store.attempt(() => get<{ text: string }>(path));
      if (found) download(file, found.text, type);
    };
    const copy = async () => {
      const found = await store.attempt(() => get<{ text: string }>("python"));
      if (!found) return;
      try {
        await navigator.clipboard.writeText(found.text);
        store.say("The Python code is in the clipboard.");
      } catch {
        download(`${name}.py`, found.text, "text/x-python");
      }
    };
    return h(
      "section",
      {},
      h("h3", {}, "Trace"),
      steps.length
        ? h("ol", { class: "steps" }, steps.map((step) =>
            h("li", {}, h("b", {}, step.kind), ` ${step.label}`, step.kind === "decide" ? h("span", { class: "soft" }, ` \u2713${step.accepted} \u2715${step.rejected}`) : null)))
        : h("p", { class: "soft" }, isReadOnly ? "No steps." : "No steps yet: Apply adds one."),
      h("p", { class: "actions" },
        button("Save trace", () => void save("trace", `${name}.trace.json`, "application/json"), { id: "save" }),
        isReadOnly ? null : button("Save HLO", () => void save("text", `${name}.decided.hlo`, "text/plain")),
        button("Copy Python", () => void copy(), { id: "copy-python" })),
    );
  }
}

function isAt(preset: Preset, point: PointInfo): boolean {
  // A position is the path of a pass, of which a preset has the end.
  const isThere = preset.until === "" ? point.until === "" : `/${point.until}`.endsWith(`/${preset.until}`);
  return isThere && preset.passes.join() === point.passes.join();
}

function nameOf(point: PointInfo, presets: Preset[]): string {
  const preset = presets.find((each) => isAt(each, point));
  return preset?.name ?? `${point.passes.join(", ")}${point.until ? ` at ${point.until}` : ""}`;
}

function explanation(point: PointInfo, preset: Preset | undefined): (HTMLElement | null)[] {
  const run = point.occurrence > 1 ? ` (run ${point.occurrence})` : "";
  return [
    preset ? h("p", { class: "soft" }, `${preset.summary} (${point.passes.join(", ")})`) : null,
    h("p", { class: "soft" }, point.until ? `before XLA's ${point.until}${run}` : "before all of XLA's passes"),
  ];
}

function figure(value: string, name: string, kind: string): HTMLElement {
  return h("div", { class: `figure ${kind}` }, h("b", {}, value), h("span", {}, name));
}
