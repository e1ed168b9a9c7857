// SPDX-License-Identifier: Apache-2.0
// The language of the filters: words, field:word, and number comparisons.
//
//   algsimp bytes<=0            of a pass, adding no bytes
//   opcode:dot time<0           dots, faster by the estimate
//   source:train.py numerics:exact
//   -pass:cse                   not of a pass

export interface Fields {
  texts: Record<string, string>;
  numbers: Record<string, number>;
}

type Match = (fields: Fields) => boolean;

const COMPARISON = /^(-?)([a-z_]+)(<=|>=|<|>|=)(-?[\d.]+(?:e-?\d+)?)([a-zA-Z\u00b5]*)$/;
const UNITS: Record<string, number> = {
  "": 1, k: 1e3, M: 1e6, G: 1e9, ns: 1e-9, us: 1e-6, "\u00b5s": 1e-6, ms: 1e-3, s: 1,
};

/** Parses a filter; a text, where it is wrong, says why. Without an example of what is
 * filtered, fields that do not exist are not found. */
export function parseQuery(text: string, example: Fields | null = null): Match | string {
  const parts: Match[] = [];
  for (const word of text.match(/(?:[^\s"]|"[^"]*")+/g) ?? []) {
    const part = (example && problemOf(word, example)) || parseWord(word.replaceAll('"', ""));
    if (typeof part === "string") return part;
    parts.push(part);
  }
  return (fields) => parts.every((part) => part(fields));
}

/** What is wrong with a word that names a field; "" if nothing is. */
function problemOf(word: string, example: Fields): string {
  const [, field, sign] = /^-?([a-z_]+)(:|<=|>=|<|>|=)/.exec(word) ?? [];
  if (!sign) return "";
  const known = Object.keys(sign === ":" ? example.texts : example.numbers);
  if (!known.includes(field)) return `unknown field ${field}; with ${sign} use ${known.join(", ")}`;
  return sign === ":" || COMPARISON.test(word) ? "" : `${field}${sign} needs a number, such as ${field}${sign}1k, without a space`;
}

function parseWord(word: string): Match | string {
  const comparison = COMPARISON.exec(word);
  if (comparison) {
    const [, minus, field, operator, digits, unit] = comparison;
    if (!(unit in UNITS)) return `unknown unit ${unit}; use ${Object.keys(UNITS).filter(Boolean).join(", ")}`;
    const limit = Number(digits) * UNITS[unit];
    if (Number.isNaN(limit)) return `${digits} is not a number`;
    return (fields) => (field in fields.numbers && compare(fields.numbers[field], operator, limit)) !== (minus === "-");
  }
  const isNot = word.startsWith("-") && word.length > 1;
  const rest = isNot ? word.slice(1) : word;
  const colon = rest.indexOf(":");
  const field = colon > 0 ? rest.slice(0, colon) : "";
  return (fields) => {
    let found: boolean;
    if (field in fields.texts) {
      found = fields.texts[field].toLowerCase().includes(rest.slice(colon + 1).toLowerCase());
    } else {
      const wanted = rest.toLowerCase();
      found = Object.values(fields.texts).some((value) => value.toLowerCase().includes(wanted));
    }
    return found !== isNot;
  };
}

function compare(value: number, operator: string, limit: number): boolean {
  switch (operator) {
    case "<": return value < limit;
    case "<=": return value <= limit;
    case ">": return value > limit;
    case ">=": return value >= limit;
    default: return value === limit;
  }
}
