// SPDX-License-Identifier: Apache-2.0
// Two graphs side by side, before and after a change, with their HLO text.

import { button, h } from "./dom";
import { quantity } from "./format";
import { picture } from "./picture";
import type { BeforeAfter } from "./schema";

export class Sides {
  readonly element: HTMLElement;
  private places: [number, number][] = [];

  constructor(found: BeforeAfter, isLarge = false) {
    const side = (title: string, graph: BeforeAfter["before"], lines: string[]) =>
      h(
        "figure",
        {},
        h("figcaption", {}, title),
        draggable(h("div", { class: "pan", tabindex: 0 }, picture(graph, found.changed, title))),
        h("details", { open: isLarge }, h("summary", {}, `HLO, ${lines.length} line${lines.length === 1 ? "" : "s"}`), h("pre", {}, lines.join("\n"))),
      );
    this.element = h(
      "div",
      { class: "sides" },
      side("before", found.before, found.text_before),
      side("after", found.after, found.text_after),
      h("p", { class: "legend" }, h("span", { class: "removed" }, "\u2212 removed"), h("span", { class: "changed" }, "~ changed"),
        h("span", { class: "added" }, "+ added"), h("span", {}, "others: operands and users"),
        found.num_left_out ? h("span", {}, `${quantity(found.num_left_out)} instructions are not drawn`) : null,
        isLarge ? null : button("Larger", () => showLarge(found), { id: "larger", title: "both pictures over the whole window" })),
    );
  }

  /** Scrolls the pictures to what changes; once they are in the page. */
  center(): void {
    this.places = this.pans().map((pan, i) => {
      const node = lowest(pan, ".node.removed, .node.added") ?? lowest(pan, ".node.changed");
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

/** The last of some nodes on the way down: what the others compute. */
function lowest(pan: HTMLElement, nodes: string): Element | null {
  let found: Element | null = null;
  let bottom = Number.NEGATIVE_INFINITY;
  for (const node of pan.querySelectorAll(nodes)) {
    const box = node.getBoundingClientRect();
    if (box.bottom > bottom) [found, bottom] = [node, box.bottom];
  }
  return found;
}

/** Lets the mouse move what is inside, as in the graph of the module. */
function draggable(pan: HTMLElement): HTMLElement {
  let last: { x: number; y: number } | null = null;
  pan.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType !== "mouse") return;
    last = { x: event.clientX, y: event.clientY };
    pan.setPointerCapture(event.pointerId);
    event.preventDefault(); // no text is selected
    pan.focus({ preventScroll: true });
  });
  pan.addEventListener("pointermove", (event) => {
    if (!last) return;
    pan.scrollLeft -= event.clientX - last.x;
    pan.scrollTop -= event.clientY - last.y;
    last = { x: event.clientX, y: event.clientY };
  });
  for (const end of ["pointerup", "pointercancel"]) pan.addEventListener(end, () => (last = null));
  return pan;
}

function showLarge(found: BeforeAfter): void {
  const sides = new Sides(found, true);
  const dialog: HTMLDialogElement = h("dialog", { class: "large", "aria-label": "before and after" },
    h("p", { class: "actions" }, h("b", {}, "Before and after"), button("Close", () => dialog.close(), { title: "key Escape" })), sides.element);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  sides.center();
}
