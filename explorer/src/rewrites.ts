// SPDX-License-Identifier: Apache-2.0
// The rewrites: a sorted, filtered list; before and after of the chosen one.

import { Sides } from "./before_after";
import { jobBox, jobKey } from "./job_box";
import { button, h, replace, select } from "./dom";
import { count, delta, gain, shortened } from "./format";
import { VirtualList } from "./list";
import { type Fields, parseQuery } from "./query";
import type { AlternativeDetail, AlternativeRow, ChoiceRow } from "./schema";
import { get, isReadOnly } from "./source";
import { store } from "./store";

interface Rewrite {
  row: AlternativeRow;
  choice: ChoiceRow;
  number: number;
}

const TIMED = 10;
const HEADS: Record<string, string> = {
  decision: "accept, reject, or leave to XLA",
  rewrite: "opcode before and after, instruction, passes that propose it",
  static: "estimated change of time by a roofline, if it alone is taken",
  timed: "accepted against rejected, everything else left to XLA, by timed kernels",
  bytes: "change of the bytes read and written",
};
const SORTS: [string, string][] = [
  ["gain", "estimated gain"],
  ["timed", "timed gain"],
  ["size", "estimated change, either way"],
  ["bytes", "bytes saved"],
  ["flops", "operations saved"],
  ["order", "order in the module"],
];

function fieldsOf(rewrite: Rewrite): Fields {
  const { row, choice } = rewrite;
  return {
    texts: {
      pass: choice.passes.join(" "),
      rule: choice.rule,
      opcode: row.opcode,
      becomes: choice.opcode,
      name: row.original,
      shape: row.shape,
      computation: row.computation,
      source: row.source,
      numerics: choice.numerics,
      kind: row.kind,
    },
    numbers: {
      bytes: choice.bytes,
      flops: choice.flops,
      instructions: choice.instructions,
      time: choice.static_s,
      timed: timedOf(rewrite) ?? Number.NaN,
      sites: row.sites,
      index: row.index,
    },
  };
}

/** Seconds that accepting costs over rejecting, timed; null if not timed. */
function timedOf(rewrite: Rewrite): number | null {
  const accepted = store.timed.get(`${rewrite.row.index}:${rewrite.number}`);
  const rejected = store.timed.get(`${rewrite.row.index}:0`);
  return accepted === undefined || rejected === undefined ? null : accepted - rejected;
}

function all(): Rewrite[] {
  return store.alternatives.flatMap((row) =>
    row.choices.slice(1).map((choice, i) => ({ row, choice, number: i + 1 })),
  );
}

function sorted(rewrites: Rewrite[], by: string): Rewrite[] {
  const keys: Record<string, (rewrite: Rewrite) => number> = {
    gain: ({ choice }) => choice.static_s,
    timed: (rewrite) => timedOf(rewrite) ?? 1e9 + rewrite.choice.static_s,
    size: ({ choice }) => -Math.abs(choice.static_s),
    bytes: ({ choice }) => choice.bytes,
    flops: ({ choice }) => choice.flops,
    order: ({ row }) => row.index,
  };
  const key = keys[by] ?? keys.gain;
  return rewrites
    .map((rewrite) => [key(rewrite), rewrite] as const)
    .sort((a, b) => a[0] - b[0] || a[1].row.index - b[1].row.index)
    .map(([, rewrite]) => rewrite);
}

export class RewritesView {
  readonly element: HTMLElement;
  private filter: HTMLInputElement;
  private note = h("span", { class: "note", "aria-live": "polite" });
  private tools = h("div", { class: "tools" });
  private list: VirtualList<Rewrite>;
  private detail = h("section", { class: "detail", "aria-label": "before and after" });
  private shown: Rewrite[] = [];
  private isFilterRight = true;
  private detailKey = "";
  private sortSelect: HTMLSelectElement;
  private toolsKey = "";

  constructor() {
    this.filter = h("input", {
      type: "search",
      id: "filter",
      placeholder: "filter: dot  pass:algsimp  bytes<=0  numerics:exact",
      "aria-label": "filter of the rewrites",
      title: "words, field:word (pass, rule, opcode, becomes, name, shape, computation, source, numerics, kind), " +
        "numbers (bytes<=0, flops<0, time<-1us, instructions<0, sites>1); - in front means not",
      input: () => store.setParams({ q: this.filter.value }),
    });
    this.sortSelect = select("order of the rewrites", SORTS, "gain", (value) => store.setParams({ sort: value }));
    const head = h(
      "div",
      { class: "row-head" },
      ...["decision", "rewrite", "static", "timed", "bytes"].map((text) =>
        h("span", { class: `cell ${text}`, title: HEADS[text] }, text),
      ),
    );
    this.list = new VirtualList(head, (rewrite) => this.rowOf(rewrite), "rewrites", 44);
    this.element = h(
      "div",
      { class: "view rewrites" },
      h("div", { class: "bar" }, this.filter, this.sortSelect, this.tools, this.note),
      h("div", { class: "split" }, this.list.element, this.detail),
    );
  }

  update(): void {
    const { params } = store.route;
    if (document.activeElement !== this.filter) this.filter.value = params.q ?? "";
    this.sortSelect.value = params.sort ?? "gain";
    let rewrites = all();
    const match = parseQuery(params.q ?? "", rewrites.length ? fieldsOf(rewrites[0]) : null);
    this.isFilterRight = typeof match !== "string";
    this.note.classList.toggle("error", !this.isFilterRight);
    if (typeof match === "string") {
      this.note.textContent = match;
    } else {
      const number = rewrites.length;
      rewrites = rewrites.filter((rewrite) => match(fieldsOf(rewrite)));
      this.note.textContent = `${count(rewrites.length)} of ${count(number)} rewrites`;
      this.note.title = `a rewrite is a choice of an alternative; there are ${count(store.alternatives.length)} alternatives`;
    }
    this.shown = sorted(rewrites, params.sort ?? "gain");
    const job = store.jobs.get("rank");
    if (job?.state === "running") jobBox(job);
    const key = `${store.isBusy} ${this.isFilterRight} ${store.timed.size > 0} ${this.worthTiming().length} ${jobKey("rank")}`;
    if (key !== this.toolsKey) {
      this.toolsKey = key;
      replace(this.tools, ...this.toolButtons());
    }
    this.list.show(this.shown);
    void this.showDetail();
  }

  focusFilter(): void {
    this.filter.focus();
    this.filter.select();
  }

  /** Moves the selection by some rows. */
  move(by: number): void {
    if (this.shown.length === 0) return;
    const at = this.selectedIndex();
    const next = Math.min(Math.max(at + by, 0), this.shown.length - 1);
    this.select(this.shown[next]);
    this.list.scrollTo(next);
  }

  decideSelected(how: "accept" | "reject" | "leave"): void {
    const chosen = this.shown[this.selectedIndex()];
    if (chosen) void store.decide([[chosen.row.index, { accept: chosen.number, reject: 0, leave: -1 }[how]]]);
  }

  private toolButtons(): HTMLElement[] {
    if (isReadOnly) return [];
    // A filter that says nothing would decide everything.
    const disabled = store.isBusy || !this.isFilterRight;
    const decide = (how: "accept" | "reject" | "leave") => () => {
      const seen = new Map<number, number>();
      for (const { row, number } of this.shown) {
        if (!seen.has(row.index)) seen.set(row.index, { accept: number, reject: 0, leave: -1 }[how]);
      }
      void store.decide([...seen]);
    };
    const job = store.jobs.get("rank");
    return [
      button("Accept all", decide("accept"), { title: "accept every rewrite of the list", disabled }),
      button("Reject all", decide("reject"), { title: "reject every rewrite of the list", disabled }),
      button("Leave all", decide("leave"), { title: "leave every rewrite of the list to XLA", disabled }),
      job?.state === "running"
        ? jobBox(job)
        : button(`Time the ${store.timed.size ? "next" : "top"} ${this.worthTiming().length}`, () => void this.time(), {
            title: "estimate each of the first rewrites that are not timed yet by timed kernels: accepted, and rejected",
            id: "time-top",
            disabled: this.worthTiming().length === 0,
          }),
    ];
  }

  /** The first rewrites of the list that are not timed yet and matter. */
  private worthTiming(): Rewrite[] {
    const found = [];
    for (const rewrite of this.shown) {
      if (store.state!.relevant[rewrite.row.index] && timedOf(rewrite) === null) found.push(rewrite);
      if (found.length === TIMED) break;
    }
    return found;
  }

  private async time(): Promise<void> {
    const pairs: [number, number][] = [];
    const seen = new Set<string>();
    for (const { row, number } of this.worthTiming()) {
      for (const choice of [0, number]) {
        const key = `${row.index}:${choice}`;
        if (!seen.has(key)) pairs.push([row.index, choice]);
        seen.add(key);
      }
    }
    const done = await store.run("rank", { pairs });
    if (done?.rank && !done.rank.error) store.setParams({ sort: "timed" });
  }

  private selectedIndex(): number {
    const { a, c } = store.route.params;
    return this.shown.findIndex(({ row, number }) => String(row.index) === a && String(number) === (c ?? "1"));
  }

  private select(rewrite: Rewrite): void {
    store.setParams({ a: String(rewrite.row.index), c: String(rewrite.number) });
  }

  private rowOf(rewrite: Rewrite): HTMLElement {
    const { row, choice, number } = rewrite;
    const { a, c } = store.route.params;
    const isSelected = String(row.index) === a && String(number) === (c ?? "1");
    const decision = store.state!.decisions[row.index];
    const isIrrelevant = !store.state!.relevant[row.index];
    const becomes = `${row.opcode} \u2192 ${choice.opcode}`;
    const timed = timedOf(rewrite);
    return h(
      "div",
      {
        class: `rewrite${isSelected ? " selected" : ""}${isIrrelevant ? " irrelevant" : ""}`,
        role: "option",
        "aria-selected": isSelected ? "true" : "false",
        click: () => this.select(rewrite),
      },
      h("span", { class: "cell decision" }, this.decisionButtons(rewrite, decision, isSelected)),
      h(
        "span",
        { class: "cell rewrite", title: `${becomes}\n${row.original} ${row.shape}\n${choice.passes.join(", ")} ${choice.rule}` },
        h("span", { class: "line" }, row.opcode, h("span", { class: "soft" }, " \u2192 "), choice.opcode),
        h("span", { class: "line soft" }, `${choice.rule || choice.passes.join(", ")} \u00b7 ${row.original}`),
      ),
      h("span", { class: `cell static ${tone(choice.static_s)}` }, gain(choice.static_s)),
      h("span", { class: `cell timed ${tone(timed ?? 0)}` }, timed === null ? "\u2013" : gain(timed)),
      h("span", { class: "cell bytes" }, delta(choice.bytes, "B")),
    );
  }

  private decisionButtons({ row, number }: Rewrite, decision: number, isSelected: boolean): HTMLElement[] {
    const xla = store.state!.xla[row.index];
    const options: [string, string, number][] = [
      ["\u2713", "accept", number],
      ["\u2715", "reject", 0],
      ["\u00b7", "leave to XLA", -1],
    ];
    if (isReadOnly) {
      return options.filter(([, , choice]) => choice === decision).map(([sign, text]) => h("span", { title: text, "aria-label": text }, sign));
    }
    return options.map(([sign, text, choice]) =>
      h(
        "button",
        {
          type: "button",
          class: `mini ${text.split(" ")[0]}${choice >= 0 && choice === xla ? " xla" : ""}`,
          title: choice >= 0 && choice === xla ? `${text}, as XLA's pass here does` : text,
          "aria-label": text,
          // Tab stops at one row; j and k move it.
          tabindex: isSelected ? 0 : -1,
          "aria-pressed": decision === choice ? "true" : "false",
          disabled: store.isBusy,
          click: (event: MouseEvent) => {
            event.stopPropagation();
            this.select({ row, choice: row.choices[number], number });
            void store.decide([[row.index, choice]]);
          },
        },
        sign,
      ),
    );
  }

  private async showDetail(): Promise<void> {
    let chosen = this.shown[this.selectedIndex()];
    const { a, c } = store.route.params;
    if (!chosen && a !== undefined) {
      chosen = all().find(({ row, number }) => String(row.index) === a && String(number) === (c ?? "1")) ?? chosen;
    }
    if (!chosen) {
      this.detailKey = "";
      replace(
        this.detail,
        h("p", { class: "empty" },
          this.shown.length
            ? `Choose a rewrite to see the graph before and after it. j and k move${isReadOnly ? "" : ", a accepts, r rejects"}.`
            : "No rewrites here. Choose other passes on the right, or clear the filter."),
      );
      return;
    }
    const key = `${store.version}/${chosen.row.index}/${chosen.number}`;
    if (key !== this.detailKey) {
      this.detailKey = key;
      replace(this.detail, h("p", { class: "empty" }, "\u2026"));
      const found = await store.attempt(() =>
        get<AlternativeDetail>("alternative", { index: chosen.row.index, choice: chosen.number }),
      );
      if (this.detailKey !== key) return;
      if (!found) {
        replace(this.detail, h("p", { class: "empty" }, store.message || "This rewrite cannot be shown."));
        return;
      }
      this.sides = new Sides(found);
      this.found = found;
      replace(this.detail, this.factsBox, this.sides.element);
      this.sides.center();
    }
    if (this.found) replace(this.factsBox, this.facts(chosen, this.found));
  }

  /** Puts the pictures back where they were, after the view was out of the page. */
  restore(): void {
    this.sides?.restore();
  }

  private found: AlternativeDetail | null = null;
  private factsBox = h("div");
  private sides: Sides | null = null;

  private facts(rewrite: Rewrite, detail: AlternativeDetail): HTMLElement {
    const { row, choice, number } = rewrite;
    const timed = timedOf(rewrite);
    const fact = (name: string, value: string | HTMLElement, kind = "") =>
      h("div", { class: `fact ${kind}` }, h("dt", {}, name), h("dd", {}, value));
    const decision = store.state!.decisions[row.index];
    const xla = store.state!.xla[row.index];
    const byXla = xla < 0 ? "left to XLA" : xla === number ? "left to XLA, which takes it" : xla === 0 ? "left to XLA, which keeps the original" : `left to XLA, which takes choice ${xla}`;
    const words = decision < 0 ? byXla : decision === 0 ? "rejected" : decision === number ? "accepted" : `choice ${decision} accepted`;
    return h(
      "div",
      { class: "facts" },
      h("h2", {}, `${row.opcode} `, h("span", { class: "soft" }, "\u2192"), ` ${choice.opcode}`),
      h("p", { class: "soft" }, `alternative ${row.index}, choice ${number} of ${row.choices.length - 1}: ${row.original} ${shortened(row.shape, 60)} in ${row.computation}`),
      row.choices.length > 2
        ? h("p", { class: "soft" }, "other choices: ", row.choices.slice(1).map((each, i) =>
            i + 1 === number ? null : button(`${i + 1} (${each.opcode}, ${each.passes.join(", ")})`, () => this.select({ row, choice: each, number: i + 1 }), { kind: "link" })))
        : null,
      row.source ? h("p", { class: "soft" }, row.source) : null,
      h(
        "dl",
        {},
        fact("proposed by", [choice.passes.join(", "), choice.rule].filter(Boolean).join(": ")),
        fact("decision", words),
        fact("estimate, static", gain(choice.static_s), tone(choice.static_s)),
        fact("estimate, kernels timed", timed === null ? "not timed" : gain(timed), tone(timed ?? 0)),
        fact("operations", delta(choice.flops)),
        fact("bytes", delta(choice.bytes, "B")),
        fact("instructions", `+${choice.adds} \u2212${choice.kills}`),
        fact("numerics", choice.numerics + (choice.compares_duplicates ? ", computes a compared value twice" : "")),
        detail.makes_irrelevant.length
          ? fact("makes irrelevant", `${detail.makes_irrelevant.length} alternatives: ${shortened(detail.makes_irrelevant.join(", "), 60)}`)
          : null,
        detail.sites.length > 1 ? fact("sites", `${detail.sites.length} values, decided together`) : null,
      ),
      h("p", { class: "actions" },
        isReadOnly ? null : button("Accept", () => this.decideSelected("accept"), { title: "key a", id: "accept", isPressed: decision === number }),
        isReadOnly ? null : button("Reject", () => this.decideSelected("reject"), { title: "key r", id: "reject", isPressed: decision === 0 }),
        isReadOnly ? null : button("Leave to XLA", () => this.decideSelected("leave"), { title: "key x", isPressed: decision < 0 }),
        isReadOnly ? null : button("Time it", () => void store.run("rank", { pairs: [[row.index, 0], [row.index, number]] }), {
          title: "by timed kernels: accepted against rejected, everything else left to XLA",
          id: "time-one",
          disabled: store.jobs.get("rank")?.state === "running",
        }),
        button("Show in the graph", () => store.go("graph", { node: row.original })),
      ),
    );
  }
}

export function tone(value: number): string {
  if (Math.abs(value) < 1e-12 || !Number.isFinite(value)) return "";
  return value < 0 ? "faster" : "slower";
}
