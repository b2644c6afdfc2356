import { useEffect, useState } from "preact/hooks";
import { refusal, type Refusal } from "../../api/problem";
import type { Preview, PreviewBody } from "../../api/types";
import { preview } from "./load";

/** Keys that follow each other faster than this are one question. */
const SETTLE_MS = 250;

/** What the server says of a draft. */
export interface Previewed {
  /** The last timetable that there was, of this draft or of one before. */
  shown: Preview | undefined;
  /** Why the draft is refused, or could not be asked about. */
  problem: Refusal | undefined;
  /** Whether all of it is about the draft as it stands. */
  isCurrent: boolean;
}

/** Previews a draft while it is written. */
export function usePreview(app: string, body: PreviewBody): Previewed {
  const asked = JSON.stringify(body);
  const [known, setKnown] = useState<{ of: string; shown: Preview | undefined; problem: Refusal | undefined }>();
  useEffect(() => {
    const stop = new AbortController();
    const ask = async () => {
      try {
        const shown = await preview(app, JSON.parse(asked) as PreviewBody, stop.signal);
        if (!stop.signal.aborted) setKnown({ of: asked, shown, problem: undefined });
      } catch (thrown) {
        if (stop.signal.aborted) return;
        const problem = refusal(thrown);
        setKnown((before) => ({ of: asked, shown: before?.shown, problem }));
      }
    };
    const timer = setTimeout(() => void ask(), known ? SETTLE_MS : 0);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [app, asked]);
  return { shown: known?.shown, problem: known?.of === asked ? known.problem : undefined, isCurrent: known?.of === asked };
}
