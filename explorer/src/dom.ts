// SPDX-License-Identifier: Apache-2.0
// Elements without a framework. Texts are always text nodes, never HTML.

type Child = Node | string | number | null | undefined | false;
type Handler = (event: any) => void;
type Props = Record<string, string | number | boolean | Handler | undefined | null>;

const SVG = "http://www.w3.org/2000/svg";

function fill<T extends Element>(element: T, props: Props, children: (Child | Child[])[]): T {
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: (Child | Child[])[]
): HTMLElementTagNameMap[K] {
  return fill(document.createElement(tag), props, children);
}

export function svg(tag: string, props: Props = {}, ...children: (Child | Child[])[]): SVGElement {
  return fill(document.createElementNS(SVG, tag) as SVGElement, props, children);
}

export function replace(element: Element, ...children: (Child | Child[])[]): void {
  element.replaceChildren();
  fill(element, {}, children);
}

/** A button with its key, if it has one. */
export function button(
  text: Child,
  onClick: () => void,
  options: { title?: string; kind?: string; disabled?: boolean; id?: string; isPressed?: boolean } = {},
): HTMLButtonElement {
  return h(
    "button",
    {
      type: "button",
      class: options.kind ?? "",
      title: options.title,
      id: options.id,
      disabled: options.disabled,
      "aria-pressed": options.isPressed === undefined ? undefined : String(options.isPressed),
      click: () => onClick(),
    },
    text,
  );
}

export function select(
  label: string,
  options: [string, string][],
  value: string,
  onChange: (value: string) => void,
): HTMLSelectElement {
  const element = h(
    "select",
    { "aria-label": label, title: label, change: () => onChange(element.value) },
    options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)),
  );
  return element;
}

/** Saves a text as a file. */
export function download(name: string, text: string, type = "text/plain"): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
