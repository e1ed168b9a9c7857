// SPDX-License-Identifier: Apache-2.0
// Numbers for people. A sign is always a word or an arrow too, never a colour alone.

const MINUS = "\u2212";

export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
  const size = Math.abs(value);
  const sign = value < 0 ? MINUS : "";
  for (const [scale, unit] of [[1, "s"], [1e-3, "ms"], [1e-6, "\u00b5s"]] as const) {
    if (size >= scale) return `${sign}${digits(size / scale)} ${unit}`;
  }
  return size === 0 ? "0" : `${sign}${digits(size / 1e-9)} ns`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US", { maximumFractionDigits: 0 });
}

/** A number of things: "1 alternative", "1,200 alternatives". */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function quantity(value: number | null, unit = ""): string {
  if (value === null || !Number.isFinite(value)) return "\u2013";
  let size = Math.abs(value);
  let prefix = "";
  for (const next of ["k", "M", "G", "T"]) {
    if (size < 1000) break;
    size /= 1000;
    prefix = next;
  }
  return `${value < 0 ? MINUS : ""}${digits(size)} ${prefix}${unit}`.trim();
}

/** A change, with its sign. */
export function delta(value: number, unit = ""): string {
  if (Math.abs(value) < 1e-12) return "0";
  return value > 0 ? `+${quantity(value, unit)}` : quantity(value, unit);
}

/** A change of time as words with an arrow: faster is down. */
export function gain(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "\u2013";
  if (Math.abs(value) < 1e-12) return "0";
  return value < 0 ? `\u25bc ${seconds(-value)}` : `\u25b2 ${seconds(value)}`;
}

export function ratio(value: number | null): string {
  if (value === null || !Number.isFinite(value)) return "\u2013";
  const digits = value >= 100 ? 0 : value >= 10 ? 1 : 3;
  return `${value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}\u00d7`;
}

export function shortened(text: string, longest: number): string {
  return text.length <= longest ? text : `${text.slice(0, longest - 1)}\u2026`;
}

function digits(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return Number(value.toPrecision(3)).toString();
}
