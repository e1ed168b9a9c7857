// SPDX-License-Identifier: Apache-2.0
// The graph of the module: search, colours, a minimap, details of a node.

import { columnOf, cssColor, groupOf } from "./colors";
import { button, h, replace, select } from "./dom";
import { gain, quantity, seconds, shortened } from "./format";
import { type Fields, parseQuery } from "./query";
import { hasWebGl, type Marks, Renderer } from "./renderer";
import type { GraphData, NodeDetail } from "./schema";
import { get, isReadOnly } from "./source";
import { store } from "./store";

const MAP = { width: 190, height: 130 };
const MAX_FOUND = 5000;

export class GraphView {
  readonly element: HTMLElement;
  private renderer: Renderer | null;
  private stage = h("div", { class: "stage", tabindex: 0, "aria-label": "graph; arrows move, plus and minus zoom" });
  // The picture is drawn once for a graph; a frame moves an element over it.
  private mapImage = h("canvas", { width: 2 * MAP.width, height: 2 * MAP.height });
  private mapWindow = h("div", { class: "window" });
  private map = h("div", { class: "map", "aria-label": "minimap" }, this.mapImage, this.mapWindow);
  private search: HTMLInputElement;
  private note = h("span", { class: "note", "aria-live": "polite" });
  private details = h("div", { class: "node-details", "aria-live": "polite" });
  private which: HTMLSelectElement;
  private by: HTMLSelectElement;
  private graph: GraphData | null = null;
  private graphKey = "";
  private stateKey = "";
  private found: number[] = [];
  private foundAt = -1;
  private detailKey = "";
  private legend = h("div", { class: "key" });
  private tip = h("div", { class: "tip" });

  constructor() {
    this.renderer = hasWebGl() ? new Renderer() : null;
    this.search = h("input", {
      type: "search",
      id: "search",
      placeholder: "search: dot  opcode:fusion  shape:f32[64  source:train.py  bytes>1M",
      "aria-label": "search in the graph",
      title: "words, field:word (name, opcode, shape, source, computation), numbers (bytes, flops, time, alternative); Enter goes to the next",
      input: () => store.setParams({ q: this.search.value }),
      keydown: (event: KeyboardEvent) => {
        if (event.key === "Enter") this.next(event.shiftKey ? -1 : 1);
      },
    });
    this.which = select("which module", [
      ["current", "module at the stop"],
      ["decided", "with your decisions"],
      ["final", "after XLA's passes, timed"],
    ], "current", (value) => store.setParams({ which: value === "current" ? "" : value, node: "" }));
    this.by = select("colours", [
      ["kind", "colour: kind"],
      ["time", "colour: time"],
      ["bytes", "colour: bytes"],
      ["flops", "colour: operations"],
    ], "kind", (value) => store.setParams({ by: value === "kind" ? "" : value }));
    if (this.renderer) this.stage.append(this.renderer.canvas, this.renderer.labels);
    else this.stage.append(h("p", { class: "empty" }, "This browser has no WebGL2, which draws the graph. The other views work."));
    this.stage.append(this.map, this.tip, this.legend);
    this.element = h(
      "div",
      { class: "view graph" },
      h("div", { class: "bar" }, this.search, this.which, this.by,
        button("Fit", () => this.renderer?.fit(), { title: "key f" }),
        button("\u25c6 next", () => this.nextAlternative(), { title: "next alternative; key n" }), this.note),
      h("div", { class: "split" }, this.stage, this.details),
    );
    if (this.renderer) this.listen(this.renderer);
  }

  get canvasFrames(): number {
    return this.renderer?.frames ?? 0;
  }

  update(): void {
    const { params } = store.route;
    if (document.activeElement !== this.search) this.search.value = params.q ?? "";
    const which = isReadOnly ? "current" : params.which ?? "current";
    this.which.value = which;
    this.which.disabled = isReadOnly;
    this.by.value = params.by ?? "kind";
    this.explainColours();
    void this.load(which);
    this.restyle();
  }

  focusSearch(): void {
    this.search.focus();
    this.search.select();
  }

  key(event: KeyboardEvent): boolean {
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60],
    };
    const renderer = this.renderer;
    if (!renderer) return false;
    const middle = [this.stage.clientWidth / 2, this.stage.clientHeight / 2] as const;
    if (event.key in moves) renderer.pan(...moves[event.key]);
    else if (event.key === "+" || event.key === "=") renderer.zoom(1.3, ...middle);
    else if (event.key === "-") renderer.zoom(1 / 1.3, ...middle);
    else if (event.key === "f") renderer.fit();
    else if (event.key === "n") this.nextAlternative();
    else return false;
    return true;
  }

  themeChanged(): void {
    this.drawMap();
    this.stateKey = "";
    this.restyle();
  }

  private async load(which: string): Promise<void> {
    if (!store.state) return;
    const decided = which === "current" ? "" : JSON.stringify(store.state.decisions) + (which === "final" ? String(store.estimate?.decided_s) : "");
    const key = `${store.version}/${which}/${decided}`;
    if (key === this.graphKey) return;
    this.graphKey = key;
    const graph = await store.attempt(() => get<GraphData>("graph", { which }));
    if (this.graphKey !== key) return;
    if (!graph) {
      if (which !== "current") store.setParams({ which: "" });
      return;
    }
    const isFirst = this.graph === null || this.graph.width !== graph.width || this.graph.height !== graph.height;
    this.graph = graph;
    this.stateKey = "";
    this.renderer?.show(graph, this.marks());
    if (isFirst) this.renderer?.fit();
    this.drawMap();
    this.restyle();
    const node = this.selected();
    if (node >= 0) this.renderer?.center(node);
  }

  private marks(): Marks {
    return {
      selected: this.selected(),
      found: new Set(this.found),
      colorBy: store.route.params.by ?? "kind",
      decisions: store.state?.decisions ?? [],
    };
  }

  private selected(): number {
    const name = store.route.params.node;
    return name && this.graph ? this.graph.names.indexOf(name) : -1;
  }

  private restyle(): void {
    if (!this.graph || !store.state) return;
    const { params } = store.route;
    const key = JSON.stringify([this.graphKey, params, store.state.decisions]);
    if (key === this.stateKey) return;
    const wasNode = this.stateKey ? JSON.parse(this.stateKey)[1].node : params.node;
    this.stateKey = key;
    this.findAll(params.q ?? "");
    this.renderer?.restyle(this.marks());
    const node = this.selected();
    if (node >= 0 && wasNode !== params.node && !this.isVisible(node)) this.renderer?.center(node);
    void this.showDetails(node);
  }

  private isVisible(node: number): boolean {
    const graph = this.graph!;
    const view = this.renderer?.view;
    if (!view) return true;
    const w = this.stage.clientWidth / view.scale / 2;
    const hgt = this.stage.clientHeight / view.scale / 2;
    return view.scale > 3 && Math.abs(graph.x[node] - view.x) < w && Math.abs(graph.y[node] - view.y) < hgt;
  }

  private fields(node: number): Fields {
    const graph = this.graph!;
    return {
      texts: {
        name: graph.names[node],
        opcode: graph.opcodes[graph.opcode[node]],
        shape: graph.shapes[graph.shape[node]],
        source: graph.sources[graph.source[node]],
        computation: graph.computations[graph.computation[node]].name,
      },
      numbers: {
        bytes: graph.bytes[node],
        flops: graph.flops[node],
        time: (graph.kernel_s.length ? graph.kernel_s : graph.seconds)[node],
        alternative: graph.alternative[node],
      },
    };
  }

  private findAll(query: string): void {
    const graph = this.graph!;
    const before = this.found.join();
    this.found = [];
    if (query.trim() === "") {
      this.note.textContent = `${graph.names.length.toLocaleString("en-US")} instructions, ${graph.alternative.filter((each) => each >= 0).length} with alternatives`;
      return;
    }
    const match = parseQuery(query, graph.names.length ? this.fields(0) : null);
    if (typeof match === "string") {
      this.note.textContent = match;
      return;
    }
    for (let node = 0; node < graph.names.length && this.found.length < MAX_FOUND; node++) {
      if (match(this.fields(node))) this.found.push(node);
    }
    if (this.found.join() !== before) this.foundAt = -1;
    this.note.textContent = `${this.found.length} found${this.found.length ? "; Enter goes through them" : ""}`;
  }

  private next(by: number): void {
    if (this.found.length === 0) return;
    this.foundAt = (this.foundAt + by + this.found.length) % this.found.length;
    this.choose(this.found[this.foundAt]);
  }

  private nextAlternative(): void {
    const graph = this.graph;
    if (!graph) return;
    const number = graph.names.length;
    const from = this.selected();
    for (let step = 1; step <= number; step++) {
      const node = (from + step + number) % number;
      if (graph.alternative[node] >= 0) {
        this.choose(node);
        return;
      }
    }
    store.say("No instruction here has alternatives.");
  }

  private choose(node: number): void {
    store.setParams({ node: this.graph!.names[node] });
    this.renderer?.center(node);
  }

  private async showDetails(node: number): Promise<void> {
    const graph = this.graph!;
    if (node < 0) {
      this.detailKey = "";
      replace(this.details, h("p", { class: "soft" }, "Click an instruction for its details. Drag to move, scroll to zoom. Instructions with \u25c6 have alternatives."), this.heaviest());
      return;
    }
    const key = `${this.graphKey}/${node}/${JSON.stringify(store.state?.decisions[graph.alternative[node]])}`;
    if (key === this.detailKey) return;
    this.detailKey = key;
    replace(this.details, this.plainDetails(node));
    const isHere = (store.route.params.which ?? "current") === "current" && !isReadOnly;
    if (!isHere) return;
    const detail = await store.attempt(() => get<NodeDetail>("node", { index: node }));
    if (detail && this.detailKey === key) {
      const link = (name: string) => button(name, () => this.goTo(name), { kind: "link" });
      replace(
        this.details,
        this.plainDetails(node),
        h("h4", {}, "operands"), h("p", {}, detail.operands.length ? detail.operands.map(link) : "none"),
        h("h4", {}, "users"), h("p", {}, detail.users.length ? detail.users.slice(0, 60).map(link) : "none"),
        h("pre", { class: "hlo" }, detail.text),
      );
    }
  }

  private goTo(name: string): void {
    const node = this.graph!.names.indexOf(name);
    if (node >= 0) this.choose(node);
  }

  private plainDetails(node: number): HTMLElement {
    const graph = this.graph!;
    const fact = (name: string, value: string) => (value ? h("div", { class: "fact" }, h("dt", {}, name), h("dd", {}, value)) : null);
    const alternative = graph.alternative[node];
    const rows = alternative >= 0 ? store.alternatives[alternative]?.choices.slice(1) ?? [] : [];
    const kernel = graph.kernel_s.length ? graph.kernel_s[node] : 0;
    return h(
      "div",
      {},
      h("h2", {}, graph.names[node]),
      h(
        "dl",
        {},
        fact("opcode", graph.opcodes[graph.opcode[node]]),
        fact("shape", graph.shapes[graph.shape[node]]),
        fact("computation", graph.computations[graph.computation[node]].name),
        fact("source", graph.sources[graph.source[node]]),
        fact("bytes moved", quantity(graph.bytes[node], "B")),
        fact("operations", quantity(graph.flops[node])),
        kernel ? fact("kernel time", seconds(kernel)) : fact("estimate, static", graph.seconds[node] ? seconds(graph.seconds[node]) : ""),
      ),
      rows.length
        ? h("div", { class: "choices" }, h("h4", {}, `\u25c6 alternative ${alternative}`), rows.map((choice, i) =>
            button(`${choice.passes.join(", ")}: ${choice.opcode} ${gain(choice.static_s)}`, () =>
              store.go("rewrites", { a: String(alternative), c: String(i + 1) }), { kind: "wide" })))
        : null,
    );
  }

  private heaviest(): HTMLElement {
    const graph = this.graph!;
    const column = graph.kernel_s.length ? graph.kernel_s : graph.seconds;
    const top = column.map((value, node) => [value, node]).filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]).slice(0, 12);
    return h(
      "div",
      {},
      h("h4", {}, graph.kernel_s.length ? "longest kernels" : "longest by the static estimate"),
      h("div", { class: "choices" }, top.map(([value, node]) =>
        button(h("span", { class: "between" }, h("span", { title: shortened(graph.names[node], 400) }, shortened(graph.names[node], 34)), h("span", {}, seconds(value))), () => this.choose(node), { kind: "wide" }))),
    );
  }

  private listen(renderer: Renderer): void {
    let drag: { x: number; y: number; moved: number } | null = null;
    const stage = this.stage;
    stage.addEventListener("pointerdown", (event) => {
      if (event.target === this.map) return;
      drag = { x: event.clientX, y: event.clientY, moved: 0 };
      stage.setPointerCapture(event.pointerId);
    });
    stage.addEventListener("pointermove", (event) => {
      if (drag) {
        const dx = event.clientX - drag.x;
        const dy = event.clientY - drag.y;
        drag = { x: event.clientX, y: event.clientY, moved: drag.moved + Math.abs(dx) + Math.abs(dy) };
        renderer.pan(dx, dy);
      } else this.hover(event);
    });
    stage.addEventListener("pointerup", (event) => {
      if (drag && drag.moved < 4) {
        const box = stage.getBoundingClientRect();
        const node = renderer.pick(event.clientX - box.left, event.clientY - box.top);
        store.setParams({ node: node >= 0 ? this.graph!.names[node] : "" });
      }
      drag = null;
    });
    stage.addEventListener("pointerleave", () => (this.tip.style.display = "none"));
    stage.addEventListener("wheel", (event) => {
      event.preventDefault();
      const box = stage.getBoundingClientRect();
      renderer.zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016)), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    renderer.onView = () => this.drawWindow();
    let hadSize = false;
    new ResizeObserver(() => {
      if (!hadSize && stage.clientWidth > 0 && this.graph) {
        hadSize = true;
        renderer.fit();
      } else renderer.draw();
    }).observe(stage);
    const jump = (event: PointerEvent) => {
      const graph = this.graph;
      if (!graph) return;
      const box = this.map.getBoundingClientRect();
      const { scale, left, top } = this.mapScale(graph);
      renderer.view.x = (event.clientX - box.left - left) / scale;
      renderer.view.y = (event.clientY - box.top - top) / scale;
      renderer.draw();
    };
    this.map.addEventListener("pointerdown", (event) => {
      event.stopPropagation();
      this.map.setPointerCapture(event.pointerId);
      jump(event);
    });
    this.map.addEventListener("pointermove", (event) => {
      if (event.buttons) jump(event);
    });
  }

  private hover(event: PointerEvent): void {
    const box = this.stage.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const node = event.target === this.map ? -1 : this.renderer!.pick(x, y);
    const graph = this.graph;
    if (node < 0 || !graph || graph.flags[node] & 32) {
      this.tip.style.display = "none";
      return;
    }
    this.tip.textContent = `${graph.opcodes[graph.opcode[node]]} ${graph.names[node]} ${graph.shapes[graph.shape[node]]}`;
    this.tip.style.display = "block";
    this.tip.style.left = `${Math.min(x + 14, box.width - 260)}px`;
    this.tip.style.top = `${Math.min(y + 14, box.height - 40)}px`;
  }

  private mapScale(graph: GraphData): { scale: number; left: number; top: number } {
    const scale = Math.min((MAP.width - 8) / (graph.width || 1), (MAP.height - 8) / (graph.height || 1));
    return { scale, left: (MAP.width - graph.width * scale) / 2, top: (MAP.height - graph.height * scale) / 2 };
  }

  private drawMap(): void {
    const graph = this.graph;
    if (!graph) return;
    const pen = this.mapImage.getContext("2d")!;
    pen.setTransform(2, 0, 0, 2, 0, 0);
    pen.clearRect(0, 0, MAP.width, MAP.height);
    const { scale, left, top } = this.mapScale(graph);
    const colors = new Map<string, string>();
    const step = Math.max(1, Math.floor(graph.names.length / 20000));
    for (let node = 0; node < graph.names.length; node += step) {
      if (graph.flags[node] & 32) continue;
      const kind = graph.alternative[node] >= 0 ? "--alternative" : `--kind-${groupOf(graph.opcodes[graph.opcode[node]])}`;
      let color = colors.get(kind);
      if (!color) colors.set(kind, (color = cssColor(kind)));
      pen.fillStyle = color;
      pen.fillRect(left + (graph.x[node] - graph.w[node] / 2) * scale, top + (graph.y[node] - graph.h[node] / 2) * scale,
        Math.max(graph.w[node] * scale, 1), Math.max(graph.h[node] * scale, 1));
    }
    this.drawWindow();
  }

  private drawWindow(): void {
    const graph = this.graph;
    const view = this.renderer?.view;
    if (!graph || !view) return;
    const { scale, left, top } = this.mapScale(graph);
    const w = this.stage.clientWidth / view.scale;
    const hgt = this.stage.clientHeight / view.scale;
    const x0 = Math.max(1, left + (view.x - w / 2) * scale);
    const y0 = Math.max(1, top + (view.y - hgt / 2) * scale);
    const x1 = Math.min(MAP.width - 1, left + (view.x + w / 2) * scale);
    const y1 = Math.min(MAP.height - 1, top + (view.y + hgt / 2) * scale);
    const { style } = this.mapWindow;
    style.transform = `translate(${x0}px, ${y0}px)`;
    style.width = `${Math.max(3, x1 - x0)}px`;
    style.height = `${Math.max(3, y1 - y0)}px`;
  }

  private explainColours(): void {
    const kinds = ["product", "reduction", "elementwise", "movement", "input", "control"];
    const column = this.graph && columnOf(this.graph, this.by.value);
    const most = column ? column.reduce((a, b) => Math.max(a, b), 0) : 0;
    const unit: Record<string, string> = { time: seconds(most), bytes: quantity(most, "B"), flops: quantity(most) };
    replace(
      this.legend,
      column ? [h("span", { class: "kind cold" }, "0"), h("span", { class: "kind hot" }, unit[this.by.value])]
        : kinds.map((kind) => h("span", { class: `kind kind-${kind}` }, kind)),
      h("span", { class: "kind has-alternative" }, "\u25c6 alternative"),
    );
  }
}
