import { vi } from "vitest";

/** Counts the listeners that are added to globals from now on, less the removed ones. */
export function countListeners(): () => number {
  let count = 0;
  for (const target of [globalThis, document] as EventTarget[])
    for (const [name, by] of [
      ["addEventListener", 1],
      ["removeEventListener", -1],
    ] as const) {
      const original = target[name].bind(target) as (...given: unknown[]) => void;
      vi.spyOn(target, name).mockImplementation((...given: unknown[]) => {
        count += by;
        original(...given);
      });
    }
  return () => count;
}
