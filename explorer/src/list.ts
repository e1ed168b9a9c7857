// SPDX-License-Identifier: Apache-2.0
// A list of any length: only the rows in view are in the page.

import { h } from "./dom";

export class VirtualList<T> {
  readonly element: HTMLElement;
  private rows: T[] = [];
  private inner = h("div", { class: "rows" });
  private head: HTMLElement;
  private scroller: HTMLElement;

  constructor(
    head: HTMLElement,
    private render: (row: T, index: number) => HTMLElement,
    label: string,
    private rowHeight = 30,
  ) {
    this.head = head;
    this.scroller = h("div", { class: "scroller", tabindex: 0, role: "listbox", "aria-label": label }, this.inner);
    this.element = h("div", { class: "list" }, this.head, this.scroller);
    this.scroller.addEventListener("scroll", () => this.paint());
    new ResizeObserver(() => this.paint()).observe(this.scroller);
  }

  show(rows: T[]): void {
    this.rows = rows;
    this.inner.style.height = `${rows.length * this.rowHeight}px`;
    this.paint();
  }

  scrollTo(index: number): void {
    const top = index * this.rowHeight;
    const { scrollTop, clientHeight } = this.scroller;
    if (top < scrollTop || top + this.rowHeight > scrollTop + clientHeight) {
      this.scroller.scrollTop = Math.max(0, top - clientHeight / 2);
    }
    this.paint();
  }

  paint(): void {
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - 4);
    const last = Math.min(this.rows.length, Math.ceil((scrollTop + (clientHeight || 600)) / this.rowHeight) + 4);
    const shown: HTMLElement[] = [];
    for (let index = first; index < last; index++) {
      const row = this.render(this.rows[index], index);
      row.style.top = `${index * this.rowHeight}px`;
      row.classList.add("row");
      shown.push(row);
    }
    this.inner.replaceChildren(...shown);
  }
}
