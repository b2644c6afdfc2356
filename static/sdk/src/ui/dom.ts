// Elements are built without markup, so that Trusted Types and a strict CSP allow everything.

type Child = Node | string | false | undefined;

/** Creates an element with properties, attributes and children. Its `part` is `name`, by which pages can style it. */
export function make<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  name = "",
  attributes: Record<string, string | (() => void)> = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  if (name) made.setAttribute("part", (made.className = name));
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else made.setAttribute(key, value);
  }
  made.append(...(children.filter(Boolean) as Node[]));
  return made;
}

/** Button, which submits no form. */
export const button = (name: string, text: string, click = () => {}) =>
  make("button", name, { type: "button", click }, text);

/** Decorative icon with one path. */
export function icon(path: string): SVGElement {
  const [svg, line] = ["svg", "path"].map((name) => document.createElementNS("http://www.w3.org/2000/svg", name)) as [
    SVGElement,
    SVGElement,
  ];
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}
