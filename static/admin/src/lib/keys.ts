/** Keyboard shortcuts of all pages. Inactive in fields, in open dialogs, and with modifiers of the browser. */
import { ALL_PAGES } from "../pages";

/** `g` waits this long for its letter. */
const PATIENCE_MS = 1_500;

export type Wish = { kind: "help" } | { kind: "search" } | { kind: "go"; path: string } | { kind: "step"; by: 1 | -1 };

/** Reads keys as they come. */
export class Keys {
  #gPressedAt = -Infinity;

  /** Action of a key. */
  read(key: string, atMs: number): Wish | undefined {
    const page = atMs - this.#gPressedAt < PATIENCE_MS ? ALL_PAGES.find(({ letter }) => letter === key) : undefined;
    this.#gPressedAt = key === "g" && !page ? atMs : -Infinity;
    if (page) return { kind: "go", path: page.path };
    if (key === "?") return { kind: "help" };
    if (key === "/") return { kind: "search" };
    if (key === "j") return { kind: "step", by: 1 };
    if (key === "k") return { kind: "step", by: -1 };
    return undefined;
  }
}

/** Whether it is Ctrl+K, or ⌘K on a Mac, which lead to the search from fields as well. */
export const asksSearch = (event: KeyboardEvent): boolean =>
  (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k";

/** Whether a key press belongs to a field or to the browser. */
export function isOurs(event: KeyboardEvent): boolean {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || event.isComposing) return false;
  const target = event.target instanceof Element ? event.target : null;
  return !target?.closest("input, textarea, select, [contenteditable], dialog");
}

/** Moves the focus to the next row's link. */
export function step(by: 1 | -1): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const here = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[here < 0 ? (by > 0 ? 0 : rows.length - 1) : here + by];
  next?.querySelector<HTMLElement>("a, button")?.focus();
}
