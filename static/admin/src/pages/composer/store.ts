/** A draft stays in its tab until it is sent: reloading loses nothing, and whoever signs in there next does not see it. */
import { useState } from "preact/hooks";
import { BLANK, type Draft } from "../../lib/draft";

interface Kept {
  draft: Draft;
  /** The idempotency key of exactly this draft: sent twice, by a double click or after a lost answer, it goes out once. */
  key: string;
  /** Whose it is. */
  by: string;
}

const place = (app: string) => `bellwire.draft.${app}`;

/** Not by `randomUUID`, which there is on secure origins only. */
const freshKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (octet) => octet.toString(16).padStart(2, "0")).join("");

function read(app: string, by: string): Kept | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(place(app)) ?? "null") as Kept | null;
    return kept?.by === by ? { ...kept, draft: { ...BLANK, ...kept.draft } } : undefined;
  } catch {
    return undefined; // storage is blocked, or holds something else
  }
}

function write(app: string, kept: Kept | undefined): void {
  try {
    if (kept) sessionStorage.setItem(place(app), JSON.stringify(kept));
    else sessionStorage.removeItem(place(app));
  } catch {
    // It is kept until the page is closed.
  }
}

export interface Writing {
  draft: Draft;
  key: string;
  change: (changes: Partial<Draft>) => void;
  /** Begins anew. */
  clear: () => void;
  /** Keeps it no longer: it was sent. What is shown stays. */
  forget: () => void;
}

export function useDraft(app: string, by: string, begin: Draft | undefined): Writing {
  const [kept, setKept] = useState<Kept>(() => (begin ? { draft: begin, key: freshKey(), by } : (read(app, by) ?? { draft: BLANK, key: freshKey(), by })));
  return {
    draft: kept.draft,
    key: kept.key,
    change: (changes) =>
      setKept((kept) => {
        const next = { draft: { ...kept.draft, ...changes }, key: freshKey(), by };
        write(app, next);
        return next;
      }),
    forget: () => write(app, undefined),
    clear: () => {
      write(app, undefined);
      setKept({ draft: BLANK, key: freshKey(), by });
    },
  };
}
