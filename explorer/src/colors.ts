// SPDX-License-Identifier: Apache-2.0
// Colours of nodes, from the style sheet, so that both themes have theirs.

import type { GraphData } from "./schema";

export type Color = [number, number, number, number];

/** Groups of opcodes; every group has a letter too, which labels show. */
const GROUPS: [string, RegExp][] = [
  ["product", /^(dot|convolution|cholesky|triangular-solve|fft)$/],
  ["reduction", /^(reduce|reduce-window|select-and-scatter|sort|scatter|all-reduce|reduce-scatter|map)$/],
  ["movement", /^(reshape|transpose|broadcast|slice|dynamic-slice|dynamic-update-slice|concatenate|pad|gather|reverse|copy|bitcast|bitcast-convert|iota|copy-start|copy-done)$/],
  ["input", /^(parameter|constant|tuple|get-tuple-element|after-all|opt-barrier)$/],
  ["control", /^(fusion|while|conditional|call|custom-call|async-start|async-done|async-update)$/],
];

export function groupOf(opcode: string): string {
  for (const [name, pattern] of GROUPS) if (pattern.test(opcode)) return name;
  return "elementwise";
}

export function readColor(name: string): Color {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const digits = text.replace("#", "");
  const value = digits.length === 3 ? [...digits].map((each) => each + each).join("") : digits;
  const number = Number.parseInt(value.slice(0, 6) || "888888", 16);
  return [(number >> 16) & 255, (number >> 8) & 255, number & 255, 255];
}

export function cssColor(name: string): string {
  const [r, g, b] = readColor(name);
  return `rgb(${r}, ${g}, ${b})`;
}

/** [N] what colours nodes; undefined where their opcodes do. */
export function columnOf(graph: GraphData, by: string): number[] | undefined {
  const columns: Record<string, number[]> = {
    time: graph.kernel_s.length ? graph.kernel_s : graph.seconds,
    bytes: graph.bytes,
    flops: graph.flops,
  };
  return columns[by];
}

/** [N] how strongly a node counts, from 0 to 1, by a column; null colours by opcode. */
export function heatOf(graph: GraphData, by: string): Float32Array | null {
  const column = columnOf(graph, by);
  if (!column) return null;
  const most = column.reduce((a, b) => Math.max(a, b), 0) || 1;
  return Float32Array.from(column, (value) => Math.sqrt(Math.max(value, 0) / most));
}
