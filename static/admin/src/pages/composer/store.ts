/** A draft stays in its tab until it is sent or saved: a reload loses nothing. The next user of the tab does not see it. */
import { useState } from "preact/hooks";

interface Kept<T> {
  draft: T;
  /** The idempotency key of exactly this draft: sent twice, by a double click or after a lost answer, it goes out once. */
  key: string;
  /** Id of the draft's owner. */
  by: string;
}

/** Not by `randomUUID`, which there is on secure origins only. */
const freshKey = (): string =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (octet) => octet.toString(16).padStart(2, "0")).join("");

function read<T>(place: string, by: string, blank: T): Kept<T> | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(place) ?? "null") as Kept<T> | null;
    return kept?.by === by ? { ...kept, draft: { ...blank, ...kept.draft } } : undefined;
  } catch {
    return undefined; // storage is blocked, or holds something else
  }
}

function write<T>(place: string, kept: Kept<T> | undefined): void {
  try {
    if (kept) sessionStorage.setItem(place, JSON.stringify(kept));
    else sessionStorage.removeItem(place);
  } catch {
    // It is kept until the page is closed.
  }
}

export interface Writing<T> {
  draft: T;
  key: string;
  change: (changes: Partial<T>) => void;
  clear: () => void;
  /** Keeps it no longer: it was sent or saved. What is shown stays. */
  forget: () => void;
}

/** Draft of a page. `begin`: initial content, replaced by a stored draft. */
export function useDraft<T>(place: string, by: string, blank: T, begin?: T): Writing<T> {
  const [kept, setKept] = useState<Kept<T>>(() =>
    begin ? { draft: begin, key: freshKey(), by } : (read(place, by, blank) ?? { draft: blank, key: freshKey(), by }),
  );
  return {
    draft: kept.draft,
    key: kept.key,
    change: (changes) =>
      setKept((kept) => {
        const next = { draft: { ...kept.draft, ...changes }, key: freshKey(), by };
        write(place, next);
        return next;
      }),
    forget: () => write(place, undefined),
    clear: () => {
      write(place, undefined);
      setKept({ draft: blank, key: freshKey(), by });
    },
  };
}
