import { useEffect, useState } from "preact/hooks";
import { refusal, type Refusal } from "../api/problem";

export interface Begun<T> {
  /** The newest there was when it was asked for. */
  begun?: T;
  problem?: Refusal;
  /** Number of the draft, counted from 1. */
  edition: number;
  /** Asks anew: for what was saved, or after a failure. */
  again: () => void;
}

/**
 * Initial content of a draft. Requested once; a later response does not replace edits. After a change of `key` the content of the
 * former one is not returned.
 */
export function useBegin<T>(key: string, load: (stop: AbortSignal) => Promise<T>): Begun<T> {
  const [asked, ask] = useState(0);
  const [known, setKnown] = useState<{ key?: string; begun?: T; problem?: Refusal; edition: number }>({ edition: 0 });
  useEffect(() => {
    const stop = new AbortController();
    load(stop.signal)
      .then((begun) => stop.signal.aborted || setKnown(({ edition }) => ({ key, begun, edition: edition + 1 })))
      .catch(
        (thrown) => stop.signal.aborted || setKnown(({ edition }) => ({ key, problem: refusal(thrown), edition })),
      );
    return () => stop.abort();
  }, [key, asked]);
  const { begun, problem, edition } = known;
  return { ...(known.key === key ? { begun, problem } : {}), edition, again: () => ask((asked) => asked + 1) };
}
