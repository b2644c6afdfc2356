/** A new campaign stays in its tab until it is saved: reloading loses nothing, and whoever signs in there next does not see it. */
import { useState } from "preact/hooks";
import type { Draft } from "../../lib/campaign-draft";

interface Kept {
  draft: Draft;
  /** The idempotency key of exactly this draft: saved by a double click, it is made once. */
  key: string;
  /** Whose it is. */
  by: string;
}

export interface Writing {
  draft: Draft;
  key: string;
  change: (changes: Partial<Draft>) => void;
  /** Keeps it no longer: it was saved. */
  forget: () => void;
}

const place = (app: string) => `bellwire.campaign.${app}`;

/** Not by `randomUUID`, which there is on secure origins only. */
const freshKey = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (octet) => octet.toString(16).padStart(2, "0")).join("");

function read(app: string, by: string, blank: Draft): Kept | undefined {
  try {
    const kept = JSON.parse(sessionStorage.getItem(place(app)) ?? "null") as Kept | null;
    return kept?.by === by ? { ...kept, draft: { ...blank, ...kept.draft } } : undefined;
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

export function useWriting(app: string, by: string, blank: Draft): Writing {
  const [kept, setKept] = useState<Kept>(() => read(app, by, blank) ?? { draft: blank, key: freshKey(), by });
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
  };
}
