import { useEffect, useState } from "preact/hooks";
import { refusal, type Refusal } from "../api/problem";

/** Response of the server to the current draft. */
export interface Asked<T> {
  /** The last answer that there was: to this question, or to one before. */
  shown?: T;
  /** Why the last question was refused. */
  problem?: Refusal;
  /** Whether both are about an earlier question. */
  isOld: boolean;
}

/** Delay, so that not every keystroke causes a request. */
export const PAUSE_MS = 300;

/** Asks the first question after `firstPauseMs`, and each later one once it has not changed for a moment. Undefined: asks nothing. */
export function useAsked<Q, T>(
  question: Q | undefined,
  ask: (question: Q, stop: AbortSignal) => Promise<T>,
  firstPauseMs = 0,
): Asked<T> {
  const [known, setKnown] = useState<Omit<Asked<T>, "isOld"> & { of?: string }>({});
  const asked = question === undefined ? undefined : JSON.stringify(question);
  useEffect(() => {
    if (asked === undefined) return;
    const stop = new AbortController();
    const timer = setTimeout(
      () => {
        ask(JSON.parse(asked) as Q, stop.signal)
          .then((shown) => stop.signal.aborted || setKnown({ shown, of: asked }))
          .catch((thrown) => {
            if (stop.signal.aborted) return;
            const problem = refusal(thrown);
            setKnown(({ shown }) => ({ ...(shown === undefined ? {} : { shown }), problem, of: asked }));
          });
      },
      known.of === undefined ? firstPauseMs : PAUSE_MS,
    );
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [asked]);
  const { of, ...rest } = known;
  return { ...rest, isOld: of !== asked };
}
