// SPDX-License-Identifier: Apache-2.0
// A small graph as SVG: before or after one choice.

import { groupOf } from "./colors";
import { svg } from "./dom";
import { shortened } from "./format";
import type { GraphData } from "./schema";

const UNIT = 11; // pixels for one unit of the layout
const HAS_BOX = 32;
const SIGNS: Record<string, string> = { removed: "\u2212 ", added: "+ ", changed: "~ " };

export function picture(graph: GraphData, changed: Record<string, string>, label: string): SVGElement {
  const width = (graph.width + 4) * UNIT;
  const height = (graph.height + 4) * UNIT;
  const root = svg("svg", {
    viewBox: `${-2 * UNIT} ${-2 * UNIT} ${width} ${height}`,
    width,
    height,
    class: "picture",
    role: "img",
    "aria-label": label,
  });
  // It shrinks to its column, as long as it can be read.
  root.style.minWidth = `${Math.round(width * 0.75)}px`;
  for (const box of graph.computations) {
    root.append(rectangle(box.x, box.y, box.w, box.h, `computation${box.caller < 0 ? " outer" : ""}`));
  }
  const order = graph.names.map((_, node) => node);
  const isGroup = (node: number) => (graph.flags[node] & HAS_BOX) !== 0;
  order.sort((a, b) => Number(isGroup(b)) - Number(isGroup(a)));
  order.filter(isGroup).forEach((node) => root.append(nodeBox(graph, node, changed)));
  graph.edge_sources.forEach((source, edge) => root.append(edgePath(graph, source, graph.edge_targets[edge])));
  order.filter((node) => !isGroup(node)).forEach((node) => root.append(nodeBox(graph, node, changed)));
  return root;
}

function rectangle(x: number, y: number, w: number, h: number, kind: string): SVGElement {
  return svg("rect", {
    x: (x - w / 2) * UNIT,
    y: (y - h / 2) * UNIT,
    width: w * UNIT,
    height: h * UNIT,
    rx: 5,
    class: kind,
  });
}

function edgePath(graph: GraphData, a: number, b: number): SVGElement {
  const x0 = graph.x[a] * UNIT;
  const y0 = (graph.y[a] + graph.h[a] / 2) * UNIT;
  const x1 = graph.x[b] * UNIT;
  const y1 = (graph.y[b] - graph.h[b] / 2) * UNIT;
  const bend = (y1 - y0) / 2;
  return svg("path", { d: `M${x0} ${y0}C${x0} ${y0 + bend} ${x1} ${y1 - bend} ${x1} ${y1}`, class: "edge" });
}

function nodeBox(graph: GraphData, node: number, changed: Record<string, string>): SVGElement {
  const name = graph.names[node];
  const kind = changed[name] ?? "same";
  const opcode = graph.opcodes[graph.opcode[node]];
  const isGroup = (graph.flags[node] & HAS_BOX) !== 0;
  const letters = Math.floor((graph.w[node] * UNIT - 10) / 6.7);
  const left = (graph.x[node] - graph.w[node] / 2) * UNIT + 6;
  const top = (graph.y[node] - graph.h[node] / 2) * UNIT;
  const group = svg("g", { class: `node ${kind} kind-${groupOf(opcode)}${isGroup ? " group" : ""}` });
  group.append(rectangle(graph.x[node], graph.y[node], graph.w[node], graph.h[node], "box"));
  const first = isGroup ? `${opcode} ${name}` : opcode;
  group.append(svg("text", { x: left, y: top + 12.5 }, shortened((SIGNS[kind] ?? "") + first, letters)));
  if (!isGroup) {
    const shape = graph.shapes[graph.shape[node]].replace(/\{[^}]*\}/g, "");
    group.append(svg("text", { x: left, y: top + 24, class: "soft" }, shortened(shape, letters)));
  }
  group.append(svg("title", {}, `${name}\n${opcode} ${graph.shapes[graph.shape[node]]}\n${kind}`));
  return group;
}

const STYLES = 7; // of .series in the style sheet

/** A line chart with axes: [x, y] or [x, y, low, high] points of several series. */
export function chart(
  series: { name: string; points: number[][]; step?: boolean; dots?: boolean }[],
  options: { width: number; height: number; xLabel: string; yLabel: string; formatY?: (value: number, digits: number) => string; reference?: number | null },
): SVGElement {
  const { width, height } = options;
  const formatY = options.formatY ?? plain;
  const all = series.flatMap((each) => each.points);
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": options.yLabel });
  if (all.length === 0) return root;
  const pad = { left: 64, right: 14, top: 12, bottom: 32 };
  const xs = all.map((point) => point[0]);
  const ys = all.map((point) => point[1]);
  const reference = options.reference ?? null;
  if (reference !== null) ys.push(reference);
  // Intervals that would make everything else small are cut off.
  const [least, most] = range(ys);
  const [floor, ceiling] = [4 * least - 3 * most, 4 * most - 3 * least];
  for (const point of all) ys.push(...point.slice(2).map((y) => Math.min(Math.max(y, floor), ceiling)));
  const [x0, x1] = range(xs);
  const [y0, y1] = range(ys);
  const toX = (x: number) => pad.left + ((x - x0) / (x1 - x0)) * (width - pad.left - pad.right);
  const toY = (y: number) => height - pad.bottom - ((y - y0) / (y1 - y0)) * (height - pad.top - pad.bottom);
  const rows = ticks(y0, y1);
  // As many digits as tell neighbours apart.
  const digits = rows.length > 1 ? Math.max(0, Math.ceil(-Math.log10(rows[1] - rows[0]) - 1e-9)) : 2;
  let before = "";
  for (const y of rows) {
    root.append(svg("line", { x1: pad.left, x2: width - pad.right, y1: toY(y), y2: toY(y), class: "grid" }));
    // Of whole numbers, ticks between two have no label of their own.
    const text = formatY(y, digits);
    if (text === before) continue;
    before = text;
    root.append(svg("text", { x: pad.left - 6, y: toY(y) + 4, "text-anchor": "end", class: "soft" }, text));
  }
  root.append(svg("text", { x: width - pad.right, y: height - 4, "text-anchor": "end", class: "soft" }, options.xLabel));
  const isWhole = xs.every(Number.isInteger);
  for (const x of ticks(x0, x1)) {
    if (isWhole && !Number.isInteger(x)) continue;
    root.append(svg("text", { x: toX(x), y: height - 17, "text-anchor": "middle", class: "soft" }, String(x)));
  }
  if (reference !== null) {
    root.append(svg("line", { x1: pad.left, x2: width - pad.right, y1: toY(reference), y2: toY(reference), class: "reference" }));
  }
  series.forEach((each, number) => {
    const style = `series series-${number % STYLES}`;
    if (each.dots || each.points.length === 1) {
      for (const [x, y, low, high] of each.points) {
        if (low !== undefined) {
          const [top, bottom] = [toY(Math.min(high, y1)), toY(Math.max(low, y0))];
          root.append(svg("line", { x1: toX(x), x2: toX(x), y1: top, y2: bottom, class: style }));
          // An end without a cap goes on.
          for (const [y, at] of [[low, bottom], [high, top]]) {
            if (y >= y0 && y <= y1) root.append(svg("line", { x1: toX(x) - 3, x2: toX(x) + 3, y1: at, y2: at, class: style }));
          }
        }
        root.append(svg("circle", { cx: toX(x), cy: toY(y), r: 3.5, class: `${style} mark` }));
      }
      return;
    }
    let d = "";
    each.points.forEach(([x, y], i) => {
      if (i > 0 && each.step) d += `L${toX(x)} ${toY(each.points[i - 1][1])}`;
      d += `${i === 0 ? "M" : "L"}${toX(x)} ${toY(y)}`;
    });
    root.append(svg("path", { d, class: style }));
    const last = each.points[each.points.length - 1];
    if (series.length > 1 && last) {
      root.append(svg("text", { x: toX(last[0]) - 4, y: toY(last[1]) - 6, "text-anchor": "end" }, each.name));
    }
  });
  return root;
}

function plain(value: number, digits: number): string {
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || digits > 6) ? value.toExponential(2) : value.toFixed(digits);
}

/** A piece of a series, for a legend. */
export function swatch(number: number, isDots: boolean): SVGElement {
  const style = `series series-${number % STYLES}`;
  const root = svg("svg", { viewBox: "0 0 34 10", width: 34, height: 10, class: "chart" });
  root.append(isDots ? svg("circle", { cx: 17, cy: 5, r: 3.5, class: `${style} mark` }) : svg("path", { d: "M1 5H33", class: style }));
  return root;
}

function range(values: number[]): [number, number] {
  const least = values.reduce((a, b) => Math.min(a, b));
  const most = values.reduce((a, b) => Math.max(a, b));
  if (most > least) return [least - (most - least) * 0.02, most + (most - least) * 0.04];
  return [least - 0.5 * Math.abs(least || 1), most + 0.5 * Math.abs(most || 1)];
}

function ticks(low: number, high: number): number[] {
  const raw = (high - low) / 5;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw)!;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}
