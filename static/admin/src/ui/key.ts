import { useEffect } from "preact/hooks";
import { isOurs } from "../lib/keys";

/** What a key does on one page, beside those that work everywhere; nothing while `act` is undefined. */
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
