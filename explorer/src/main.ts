// SPDX-License-Identifier: Apache-2.0
// The page: tabs, keys, the theme, messages, and another module to open.

import { DecisionsPanel } from "./decisions";
import { button, h, replace } from "./dom";
import { plural } from "./format";
import { GraphView } from "./graph_view";
import { PipelineView } from "./pipeline";
import { ResultsView } from "./results";
import { RewritesView } from "./rewrites";
import { hasKeptResults, isReadOnly } from "./source";
import { store, type Tab, TABS } from "./store";

const TITLES: Record<Tab, string> = { rewrites: "Rewrites", graph: "Graph", pipeline: "Pipeline", results: "Results" };
const ORDER: Tab[] = ["rewrites", "graph", "pipeline", "results"];
const KEYS: [string, string][] = [
  ["1 2 3 4", "rewrites, graph, pipeline, results"],
  ["/", "search or filter"],
  ["j k", "next and previous row"],
  ["a r x", "accept, reject, leave to XLA"],
  ["u", "undo"],
  ["f", "fit the graph"],
  ["n", "next alternative in the graph"],
  ["arrows + \u2212", "move and zoom the graph"],
  ["t", "light or dark"],
  ["?", "this list"],
];

const theme = {
  read(): string {
    try {
      return localStorage.getItem("theme") ?? "";
    } catch {
      return "";
    }
  },
  set(value: string): void {
    document.documentElement.dataset.theme = value;
    try {
      localStorage.setItem("theme", value);
    } catch {
      // Without storage the theme lasts until the page closes.
    }
  },
  toggle(): void {
    const isDark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
    theme.set(isDark ? "light" : "dark");
    views.graph.themeChanged();
  },
};
if (theme.read()) document.documentElement.dataset.theme = theme.read();

const views = {
  rewrites: new RewritesView(),
  graph: new GraphView(),
  pipeline: new PipelineView(),
  results: new ResultsView(),
};
const panel = new DecisionsPanel();
const tabs = h("nav", { class: "tabs", "aria-label": "views" });
const title = h("div", { class: "title" });
const banner = h("div", { class: "banner", role: "alert", hidden: true });
const message = h("div", { class: "message", role: "status", hidden: true });
const main = h("main", {});
const keys = h("dialog", { class: "keys" },
  h("h2", {}, "Keys"),
  h("table", {}, h("tbody", {}, KEYS.map(([key, text]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, text))))),
  button("Close", () => keys.close()));
const opener = makeOpener();

document.getElementById("app")!.append(
  h("header", {},
    h("span", { class: "logo" }, "hloenv"), title, tabs,
    h("span", { class: "spring" }),
    isReadOnly ? h("span", { class: "badge", title: "hloenv explore TARGET starts a server that can decide" }, "read-only file") : button("Open\u2026", () => opener.showModal(), { id: "open" }),
    button("\u25d0", () => theme.toggle(), { title: "light or dark; key t", id: "theme" }),
    button("?", () => keys.showModal(), { title: "keys" })),
  banner, message,
  h("div", { class: "body" }, main, panel.element),
  keys, opener,
);

function makeOpener(): HTMLDialogElement {
  const text = h("textarea", { rows: 12, placeholder: "HloModule \u2026", "aria-label": "HLO text", id: "open-text", spellcheck: "false" });
  const error = h("p", { class: "error", id: "open-error" });
  const file = h("input", {
    type: "file",
    accept: ".hlo,.txt",
    "aria-label": "a file of HLO text",
    change: async () => {
      const chosen = file.files?.[0];
      if (chosen) text.value = await chosen.text();
    },
  });
  const dialog = h("dialog", { class: "opener" },
    h("h2", {}, "Open another module"),
    h("p", { class: "soft" }, "HLO text, as XLA and JAX print it. Decisions that are not saved are dropped."),
    file, text, error,
    h("p", { class: "actions" },
      button("Open", async () => {
        error.textContent = "";
        const isOpen = await store.act("open", { name: file.files?.[0]?.name ?? "opened module", content: text.value });
        if (isOpen) dialog.close();
        else error.textContent = store.message;
      }, { kind: "primary", id: "open-go" }),
      button("Cancel", () => dialog.close())));
  return dialog;
}

const isOffered = (tab: Tab) => (tab === "results" ? !isReadOnly || hasKeptResults : store.hasModule);

let shownTab: Tab | null = null;

function render(): void {
  const { tab } = store.route;
  const state = store.state;
  replace(tabs, ORDER.map((each, i) =>
    isOffered(each) && h("a", { href: store.addressOf(each), class: each === tab ? "selected" : "", "aria-current": each === tab ? "page" : undefined, title: `key ${i + 1}` }, TITLES[each])));
  replace(title, state ? [h("b", { title: state.target }, state.module.name), h("span", { class: "soft" }, `${plural(state.module.instructions, "instruction")}, ${plural(state.totals.alternatives, "alternative")}`)] : h("b", {}, "no module"));
  banner.hidden = !store.isLost;
  banner.textContent = `The server does not answer. Start it again with the same address: hloenv explore TARGET --port ${location.port} --token ${location.pathname.split("/")[1] ?? ""}. Your decisions are kept in this page.`;
  message.hidden = store.message === "";
  if (store.message) replace(message, h("span", {}, store.message), button("\u2715", () => store.say(""), { title: "close", kind: "mini" }));
  document.body.classList.toggle("busy", store.isBusy);
  if (shownTab !== tab) {
    shownTab = tab;
    replace(main, views[tab].element);
    if (tab === "rewrites" || tab === "pipeline") views[tab].restore();
  }
  views[tab].update();
  panel.update();
}

addEventListener("keydown", (event) => {
  const target = event.target as HTMLElement;
  if (event.key === "Escape" && target.matches("input")) {
    // A search field would lose its text and not say so.
    event.preventDefault();
    target.blur();
    return;
  }
  if (target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  const { tab } = store.route;
  const numbered = ORDER[Number(event.key) - 1];
  if (numbered) {
    if (isOffered(numbered)) location.hash = store.addressOf(numbered);
  }
  else if (event.key === "/") {
    event.preventDefault();
    if (tab === "graph") views.graph.focusSearch();
    else {
      if (tab !== "rewrites") store.go("rewrites");
      views.rewrites.focusFilter();
    }
  } else if (event.key === "?") keys.showModal();
  else if (event.key === "t") theme.toggle();
  else if (event.key === "u" && !isReadOnly) void store.undo();
  else if (tab === "graph") {
    if (views.graph.key(event)) event.preventDefault();
  } else {
    const step: Record<string, number> = { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };
    const how: Record<string, "accept" | "reject" | "leave"> = { a: "accept", r: "reject", x: "leave" };
    if (event.key in step) {
      event.preventDefault();
      views[tab].move(step[event.key]);
    } else if (tab === "rewrites" && event.key in how && !isReadOnly) views.rewrites.decideSelected(how[event.key]);
  }
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => views.graph.themeChanged());

// For those who measure the page: scripts/reports/run_explorer.py, the tests.
Object.assign(window, { hloenvExplorer: { store, views, tabs: TABS } });

store.listen(render);
render();
void store.start();
