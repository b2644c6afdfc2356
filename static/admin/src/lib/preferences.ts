import { effect, signal } from "@preact/signals";
import type { Zone } from "./format";

export type Theme = "system" | "light" | "dark";

/** Preferences of one user on one machine. Filters are in the URL instead. */
function kept<T extends string>(name: string, choices: readonly [T, ...T[]]) {
  const key = `bellwire.${name}`;
  const read = (): T => {
    try {
      return choices.find((choice) => choice === localStorage.getItem(key)) ?? choices[0];
    } catch {
      return choices[0]; // storage is blocked
    }
  };
  const chosen = signal<T>(read());
  effect(() => {
    try {
      localStorage.setItem(key, chosen.value);
    } catch {
      // It holds until the page is closed.
    }
  });
  return chosen;
}

export const theme = kept<Theme>("theme", ["system", "light", "dark"]);
export const zone = kept<Zone>("zone", ["local", "UTC"]);

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
});
