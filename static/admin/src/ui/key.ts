import { useEffect } from "preact/hooks";
import { isOurs } from "../lib/keys";

/** Keyboard shortcut of one page, beside the global ones; inactive while `act` is undefined. */
export function useKey(key: string, act: (() => void) | undefined): void {
  useEffect(() => {
    const hear = (event: KeyboardEvent) => {
      if (!act || event.key !== key || !isOurs(event)) return;
      event.preventDefault();
      act();
    };
    document.addEventListener("keydown", hear);
    return () => document.removeEventListener("keydown", hear);
  }, [key, act]);
}
