// SPDX-License-Identifier: Apache-2.0
// Two graphs side by side, before and after a change, with their HLO text.

import { h } from "./dom";
import { quantity } from "./format";
import { picture } from "./picture";
import type { BeforeAfter } from "./schema";

export class Sides {
  readonly element: HTMLElement;
  private places: [number, number][] = [];

  constructor(found: BeforeAfter) {
    const side = (title: string, graph: BeforeAfter["before"], lines: string[]) =>
      h(
        "figure",
        {},
        h("figcaption", {}, title),
        h("div", { class: "pan", tabindex: 0 }, picture(graph, found.changed, title)),
        h("details", {}, h("summary", {}, `HLO, ${lines.length} line${lines.length === 1 ? "" : "s"}`), h("pre", {}, lines.join("\n"))),
      );
    this.element = h(
      "div",
      { class: "sides" },
      side("before", found.before, found.text_before),
      side("after", found.after, found.text_after),
      h("p", { class: "legend" }, h("span", { class: "removed" }, "\u2212 removed"), h("span", { class: "changed" }, "~ changed"),
        h("span", { class: "added" }, "+ added"), h("span", {}, "others: operands and users"),
        found.num_left_out ? h("span", {}, `${quantity(found.num_left_out)} instructions are not drawn`) : null),
    );
  }

  /** Scrolls the pictures to what changes; once they are in the page. */
  center(): void {
    this.places = this.pans().map((pan, i) => {
      const node = pan.querySelector(".node.removed, .node.added") ?? pan.querySelector(".node.changed");
      if (node) {
        const inner = node.getBoundingClientRect();
        const outer = pan.getBoundingClientRect();
        pan.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
        pan.scrollTop += inner.top + inner.height / 2 - outer.top - outer.height / 2;
      }
      pan.addEventListener("scroll", () => {
        if (pan.isConnected) this.places[i] = [pan.scrollLeft, pan.scrollTop];
      });
      return [pan.scrollLeft, pan.scrollTop];
    });
  }

  /** Puts the pictures back where they were, after the view was out of the page. */
  restore(): void {
    this.pans().forEach((pan, i) => ([pan.scrollLeft, pan.scrollTop] = this.places[i] ?? [0, 0]));
  }

  private pans(): HTMLElement[] {
    return [...this.element.querySelectorAll<HTMLElement>(".pan")];
  }
}
