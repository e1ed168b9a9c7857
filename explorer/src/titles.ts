// SPDX-License-Identifier: Apache-2.0
// Titles of nested computations, drawn above the boxes; none over another.

import { shortened } from "./format";
import type { View } from "./renderer";
import type { GraphData } from "./schema";

const MAX_TITLES = 700;
const LETTER = 7;
const LINE = 13;
const LEAST_LETTERS = 5;

export interface Title {
  text: string;
  x: number;
  y: number;
  w: number;
  h: number;
  /** In pixels, below which the box has no title. */
  leastHeight: number;
  /** Whether the title is above the box. */
  isAbove: boolean;
}

/** How many computations a computation is inside of. */
export function depthOf(graph: GraphData, computation: number): number {
  let depth = 0;
  for (let at = computation; ; depth++) {
    const caller = graph.computations[at].caller;
    if (caller < 0) return depth;
    at = graph.computation[caller];
  }
}

/** All titles, outermost first. */
export function titlesOf(graph: GraphData, groups: number[]): Title[] {
  const found: [number, Title][] = [];
  graph.computations.forEach((box, number) => {
    const isAbove = box.caller < 0;
    // The instruction around it has the title.
    if (!isAbove && (box.role === "fused" || box.role === "called")) return;
    const text = `${box.role}${isAbove ? "" : ":"} ${box.name}`;
    const { x, y, w, h } = box;
    found.push([2 * depthOf(graph, number), { text, x, y, w, h, leastHeight: isAbove ? 0 : 30, isAbove }]);
  });
  for (const node of groups) {
    const mark = graph.alternative[node] >= 0 ? "\u25c6 " : "";
    const text = `${mark}${graph.opcodes[graph.opcode[node]]} ${graph.names[node]}`;
    const [x, y, w, h] = [graph.x[node], graph.y[node], graph.w[node], graph.h[node]];
    found.push([2 * depthOf(graph, graph.computation[node]) + 1, { text, x, y, w, h, leastHeight: 40, isAbove: false }]);
  }
  return found.sort((a, b) => a[0] - b[0]).map(([, title]) => title);
}

/** Draws the titles in view; an outer one has its place before those inside. */
export function drawTitles(pen: CanvasRenderingContext2D, titles: Title[], view: View, w: number, h: number): void {
  const taken = new Places(LINE);
  let left = MAX_TITLES;
  for (const title of titles) {
    const [width, height] = [title.w * view.scale, title.h * view.scale];
    if (width < 60 || height < title.leastHeight) continue;
    const x0 = (title.x - view.x) * view.scale + (w - width) / 2;
    const y0 = (title.y - view.y) * view.scale + (h - height) / 2;
    if (x0 > w || x0 + width < 0 || y0 > h || y0 + height < 0) continue;
    const letters = Math.floor((Math.min(x0 + width, w) - Math.max(x0, 0) - 10) / LETTER);
    if (letters < LEAST_LETTERS) continue;
    const text = shortened(title.text, letters);
    const x = Math.max(x0, 0) + 5;
    const y = y0 + (title.isAbove ? -7 : 10);
    if (!taken.take(x, x + LETTER * text.length, y)) continue;
    pen.fillText(text, x, y);
    if (--left === 0) break;
  }
}

/** Places of lines of text. */
class Places {
  private rows = new Map<number, [number, number, number][]>();

  constructor(private height: number) {}

  /** Takes a place, unless another text is there. */
  take(x0: number, x1: number, y: number): boolean {
    const row = Math.floor(y / this.height);
    for (const near of [row - 1, row, row + 1]) {
      for (const [from, to, at] of this.rows.get(near) ?? []) {
        if (x0 < to && from < x1 && Math.abs(at - y) < this.height) return false;
      }
    }
    const others = this.rows.get(row);
    if (others) others.push([x0, x1, y]);
    else this.rows.set(row, [[x0, x1, y]]);
    return true;
  }
}
