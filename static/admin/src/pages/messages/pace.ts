import { useEffect, useState } from "preact/hooks";
import { pace, remember, type Sample } from "../../lib/messages";
import type { Resource } from "../../lib/resource";

/** Deliveries ended per minute, measured since the page was opened. `ended`: their number so far. */
export function usePace<T>(of: Resource<T>, ended: (value: T) => number | undefined): number | undefined {
  const [samples, setSamples] = useState<readonly Sample[]>([]);
  const known = of.known.value;
  useEffect(() => {
    if (!known) return;
    const n = ended(known.value);
    // What is paused has no pace, and what is resumed gets a new one.
    setSamples((samples) => (n === undefined ? [] : remember(samples, { atMs: known.at.getTime(), ended: n })));
  }, [known]);
  return pace(samples);
}
